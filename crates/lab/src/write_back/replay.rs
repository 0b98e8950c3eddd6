//! A trace as a workload: its requests at their times, or as fast as the machine takes them.
//!
//! A limited number of requests may be under way at once; a request that starts late still counts from its own time.
//! Each device of the trace gets an area of its own on the modelled disk, one behind the other. Unaligned requests are
//! split on page borders. A page that is written in part counts as written, and nothing is read for it: the recorded
//! machine's own cache knew the rest of the page. Discards change nothing here.

use std::collections::VecDeque;

use thiserror::Error;
use umbrella_units::{BlockNo, ByteSize, FileId, Nanos, PAGE_BYTES};

use crate::trace::{Digest, Record, Summary, TraceError, TraceOp};
use crate::workload::{ClientId, FileOperation, Workload};

/// When requests are issued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplaySpeed {
    /// At their recorded times, this many times as fast.
    Times(f64),
    /// Each as soon as one before it is done.
    Max,
}

/// Below this speed a run would mostly wake up with no work.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

impl std::str::FromStr for ReplaySpeed {
    type Err = BadReplaySpeed;

    fn from_str(text: &str) -> Result<ReplaySpeed, BadReplaySpeed> {
        match text.parse::<f64>() {
            _ if text == "max" => Ok(ReplaySpeed::Max),
            Ok(speed) if SPEEDS.contains(&speed) => Ok(ReplaySpeed::Times(speed)),
            _ => Err(BadReplaySpeed),
        }
    }
}

/// A text that is no [`ReplaySpeed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("give a number from 0.001 to 1000000, or `max`")]
pub struct BadReplaySpeed;

/// What to do with addresses beyond the disk's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fit {
    /// They are an error.
    #[default]
    Refuse,
    /// They begin again at the disk's first block.
    Wrap,
}

/// How a trace is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayOptions {
    /// When requests are issued.
    pub speed: ReplaySpeed,
    /// How many may be under way at once.
    pub depth: u32,
    /// What to do with addresses beyond the disk's end.
    pub fit: Fit,
    /// Only this device of the trace.
    pub device: Option<u32>,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions { speed: ReplaySpeed::Times(1.0), depth: 64, fit: Fit::Refuse, device: None }
    }
}

/// Where each device of a trace begins on the modelled disk, in blocks, and where the last of them ends. With a
/// `capacity` to wrap at, all of these are below it.
pub(crate) fn areas(summary: &Summary, device: Option<u32>, wrap: Option<BlockNo>) -> (Vec<BlockNo>, BlockNo) {
    let mut next = BlockNo(0);
    let mut areas = Vec::with_capacity(summary.devices.len());
    for (number, of) in summary.devices.iter().enumerate() {
        areas.push(next);
        if device.is_none_or(|device| device as usize == number) {
            next.0 = next.0.saturating_add(of.end_of_data.0.div_ceil(PAGE_BYTES));
            next.0 = wrap.map_or(next.0, |capacity| next.0 % capacity.0.max(1));
        }
    }
    (areas, next)
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    step: FileOperation,
    due: Nanos,
}

/// See the module.
pub(super) struct Replay<R> {
    records: R,
    options: ReplayOptions,
    areas: Vec<BlockNo>,
    capacity: u64,
    clients: Vec<Option<Pending>>,
    due: Vec<Option<Nanos>>,
    /// The second part of a request that wraps around the disk's end.
    rest: VecDeque<Pending>,
    total: u64,
    digest: Digest,
    given: u64,
    digest_given: Digest,
    /// Whether the trace was read to its end.
    ended: bool,
    error: Option<TraceError>,
}

impl<R: Iterator<Item = Result<Record, TraceError>>> Replay<R> {
    /// Replays `records`, which were summed up before, on a disk of `capacity` blocks.
    pub(super) fn new(records: R, options: ReplayOptions, summary: &Summary, capacity: BlockNo) -> Self {
        let depth = options.depth.max(1) as usize;
        let (areas, _) = areas(summary, options.device, (options.fit == Fit::Wrap).then_some(capacity));
        Replay {
            records,
            options,
            areas,
            capacity: capacity.0.max(1),
            clients: vec![None; depth],
            due: vec![None; depth],
            rest: VecDeque::new(),
            total: summary.records,
            digest: summary.digest,
            given: 0,
            digest_given: Digest::default(),
            ended: false,
            error: None,
        }
    }

    /// What was wrong with the trace, if the replay ended early because of it.
    pub(super) fn take_error(&mut self) -> Option<TraceError> {
        self.error.take()
    }

    /// Whether this is not the trace that was looked through before: it has more requests, or fewer, or others.
    pub(super) fn is_another(&self) -> bool {
        self.given > self.total || (self.ended && (self.given, self.digest_given) != (self.total, self.digest))
    }

    fn next_pending(&mut self) -> Option<Pending> {
        if let Some(rest) = self.rest.pop_front() {
            return Some(rest);
        }
        loop {
            let Some(record) = self.records.next() else {
                self.ended = true;
                return None;
            };
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    self.error = Some(error);
                    return None;
                }
            };
            self.given += 1;
            self.digest_given.add(&record);
            let wanted = self.options.device.is_none_or(|device| device == record.device);
            if wanted && record.size.0 > 0 && record.op != TraceOp::Discard {
                return Some(self.pending(&record));
            }
        }
    }

    fn pending(&mut self, record: &Record) -> Pending {
        let due = match self.options.speed {
            ReplaySpeed::Times(speed) => Nanos((record.time.0 as f64 / speed) as u64),
            ReplaySpeed::Max => Nanos(0),
        };
        let area = self.areas.get(record.device as usize).map_or(0, |area| area.0);
        let area = area.saturating_mul(PAGE_BYTES);
        let mut offset = record.offset.0.saturating_add(area);
        let mut size = record.size.0;
        if self.options.fit == Fit::Wrap {
            let bytes = self.capacity * PAGE_BYTES;
            offset = (record.offset.0 % bytes + area) % bytes;
            size = size.min(bytes);
            if offset + size > bytes {
                let beyond = offset + size - bytes;
                size -= beyond;
                self.rest.push_back(Pending { step: step(record.op, 0, beyond), due });
            }
        }
        Pending { step: step(record.op, offset, size), due }
    }
}

fn step(op: TraceOp, offset: u64, size: u64) -> FileOperation {
    let (file, offset, size) = (FileId::DEVICE, ByteSize(offset), ByteSize(size));
    if op == TraceOp::Read {
        FileOperation::Read { file, offset, size }
    } else {
        FileOperation::Write { file, offset, size }
    }
}

impl<R: Iterator<Item = Result<Record, TraceError>>> Workload for Replay<R> {
    fn clients(&self) -> u32 {
        self.clients.len() as u32
    }

    fn next(&mut self, client: ClientId, now: Nanos) -> Option<FileOperation> {
        let place = client.0 as usize;
        let pending = match self.clients[place].take() {
            Some(pending) => pending,
            None => self.next_pending()?,
        };
        if pending.due > now {
            self.clients[place] = Some(pending);
            self.due[place] = None;
            return Some(FileOperation::Think { time: pending.due - now });
        }
        self.due[place] = matches!(self.options.speed, ReplaySpeed::Times(_)).then_some(pending.due);
        Some(pending.step)
    }

    fn due(&self, client: ClientId) -> Option<Nanos> {
        self.due[client.0 as usize]
    }

    fn progress(&self, _now: Nanos) -> Option<f64> {
        (self.total > 0).then(|| (self.given as f64 / self.total as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(device: u32, op: TraceOp, offset: u64, size: u64) -> Record {
        Record { time: Nanos(0), device, op, offset: ByteSize(offset), size: ByteSize(size) }
    }

    fn sum(records: &[Record]) -> Summary {
        let mut summary = Summary::default();
        for record in records {
            summary.add(record);
        }
        summary
    }

    #[test]
    fn devices_that_end_at_the_largest_address_are_apart_when_they_wrap() {
        let last = u64::MAX - 4096;
        let records = [
            record(0, TraceOp::Write, last - 4095, 4096),
            record(1, TraceOp::Write, 0, 4096),
            record(2, TraceOp::Write, 8192, 4096),
        ];
        let options = ReplayOptions { speed: ReplaySpeed::Max, fit: Fit::Wrap, ..ReplayOptions::default() };
        let summary = sum(&records);
        let mut replay = Replay::new(records.into_iter().map(Ok), options, &summary, BlockNo(1000));
        let steps: Vec<FileOperation> = std::iter::from_fn(|| replay.next(ClientId(0), Nanos(0))).collect();
        let first = (last / PAGE_BYTES) % 1000;
        let page = |page: u64| step(TraceOp::Write, page % 1000 * PAGE_BYTES, 4096);
        assert_eq!(steps, [page(first), page(first + 1), page(first + 4)]);
    }

    #[test]
    fn a_discard_far_out_takes_no_room_on_the_disk() {
        let records = [record(0, TraceOp::Write, 0, 4096), record(0, TraceOp::Discard, 0, 1 << 60)];
        assert_eq!(areas(&sum(&records), None, None).1, BlockNo(1));
    }

    #[test]
    fn what_is_beyond_the_end_continues_at_the_first_block() {
        let record = |op, offset, size| record(0, op, offset, size);
        let end = 100 * PAGE_BYTES;
        let records = [
            record(TraceOp::Write, end - 4096, 10_000),
            record(TraceOp::Read, 3 * end + 512, 4096),
            record(TraceOp::Write, 0, 7 * end),
        ];
        let options = ReplayOptions { speed: ReplaySpeed::Max, fit: Fit::Wrap, ..ReplayOptions::default() };
        let summary = sum(&records);
        let mut replay = Replay::new(records.into_iter().map(Ok), options, &summary, BlockNo(100));
        let steps: Vec<FileOperation> = std::iter::from_fn(|| replay.next(ClientId(0), Nanos(0))).collect();
        let expected = [
            step(TraceOp::Write, end - 4096, 4096),
            step(TraceOp::Write, 0, 10_000 - 4096),
            step(TraceOp::Read, 512, 4096),
            step(TraceOp::Write, 0, end),
        ];
        assert_eq!(steps, expected);
        assert!(!replay.is_another() && replay.take_error().is_none());
    }
}
