//! The input of a store.

use std::sync::Arc;

use umbrella_units::{BlockNo, Extent, Pages};

use super::error::LogError;
use super::percent::Percent;
use crate::trace::{Skipped, TraceOp};

/// A request, of packed blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub op: TraceOp,
    /// With which blocks; never none.
    pub extent: Extent,
}

/// Requests for blocks that are numbered without gaps.
#[derive(Debug, Clone)]
pub struct LogInput {
    /// What it is called in results.
    pub name: String,
    /// What was left out of the trace that it is.
    pub skipped: Skipped,
    /// The trace that it comes from, whole or one of its disks; its own name if it comes from none.
    pub source: String,
    is_trace: bool,
    /// The disk that the log is as large as. `None` if the size of the log follows from the data and the utilisation.
    disk: Option<DiskFill>,
    requests: Arc<[Request]>,
    blocks: Pages,
    /// Blocks that hold nothing at the beginning.
    empty: Arc<[bool]>,
    most_live: Pages,
}

/// A disk, and how the blocks that the requests never touch lie between those that they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskFill {
    /// Blocks of the disk.
    pub(super) blocks: Pages,
    /// Before how many touched blocks an untouched part of the disk lies, and how long it is; rising.
    pub(super) gaps: Vec<(u64, Pages)>,
}

impl DiskFill {
    /// In the order of addresses: how many untouched blocks come before the touched block of each number, so that
    /// `cold` of them are spread over the gaps by their lengths.
    fn cold_before(&self, cold: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all: u64 = self.gaps.iter().map(|(_, gap)| gap.0).sum();
        let mut sum = 0_u64;
        let mut given = 0_u64;
        self.gaps.iter().map(move |(before, gap)| {
            sum += gap.0;
            let until = (u128::from(cold) * u128::from(sum)).checked_div(u128::from(all)).unwrap_or(0) as u64;
            let here = until - given;
            given = until;
            (*before, here)
        })
    }
}

/// Fewer segments make the open ones a large part of the log.
const SEGMENTS: u64 = 2048;
const LARGEST_SEGMENT: u64 = 256;
const SMALLEST_SEGMENT: u64 = 8;
/// Less data than this fills only 512 of the smallest segments.
pub(super) const LEAST: Pages = Pages(4096);
const MOST: Pages = Pages(1 << 30);

impl LogInput {
    /// These requests for the first `blocks` blocks; what lies beyond them is cut off.
    pub fn new(name: &str, requests: Vec<Request>, blocks: Pages) -> Result<LogInput, LogError> {
        let input = LogInput::of_any_size(name, requests, blocks)?;
        if input.most_live < LEAST {
            return Err(LogError::TooSmall { input: input.name, pages: input.most_live, least: LEAST });
        }
        Ok(input)
    }

    /// The same, however few blocks there are.
    pub(super) fn of_any_size(name: &str, requests: Vec<Request>, blocks: Pages) -> Result<LogInput, LogError> {
        let input = || name.to_owned();
        if blocks > MOST {
            return Err(LogError::TooLarge { input: input(), pages: blocks, most: MOST });
        }
        let within = |mut request: Request| {
            let left = blocks.0.checked_sub(request.extent.start.0)?;
            request.extent.blocks = request.extent.blocks.min(left);
            (request.extent.blocks > 0).then_some(request)
        };
        let requests: Arc<[Request]> = requests.into_iter().filter_map(within).collect();
        if !requests.iter().any(|request| request.op == TraceOp::Write) {
            return Err(LogError::NoWrites { input: input() });
        }
        let (empty, most_live) = life(&requests, blocks);
        Ok(LogInput {
            name: input(),
            skipped: Skipped::default(),
            source: input(),
            is_trace: false,
            disk: None,
            requests,
            blocks,
            empty: empty.into(),
            most_live,
        })
    }

    /// The same as a trace of that name, or a disk of it.
    pub(super) fn of_trace(self, source: String, skipped: Skipped) -> LogInput {
        LogInput { source, skipped, is_trace: true, ..self }
    }

    /// The same as a disk: the log is as large as it, and filled to the utilisation with blocks that are never touched.
    pub(super) fn on_disk(self, disk: DiskFill) -> LogInput {
        LogInput { disk: Some(disk), ..self }
    }

    /// Whether it is a trace, or a disk of one.
    pub fn is_trace(&self) -> bool {
        self.is_trace
    }

    /// Whether the log is as large as the disk.
    pub fn is_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether what the requests touch alone is more than that share of the disk.
    pub fn is_too_full(&self, utilisation: Percent) -> bool {
        self.disk.as_ref().is_some_and(|disk| self.most_live.0 * 100 > disk.blocks.0 * u64::from(utilisation.0))
    }

    /// Blocks of a log that is so full.
    pub(super) fn log_blocks(&self, utilisation: Percent) -> u64 {
        match &self.disk {
            Some(disk) => disk.blocks.0,
            None => self.most_live.0 * 100 / u64::from(utilisation.0.clamp(1, 100)),
        }
    }

    /// How many blocks hold data at most in a log that is so full: of a disk also those that the requests never touch.
    pub(super) fn live(&self, utilisation: Percent) -> u64 {
        self.most_live.0 + self.cold(utilisation)
    }

    /// Blocks that are never touched but fill a disk.
    pub(super) fn cold(&self, utilisation: Percent) -> u64 {
        let disk = self.disk.as_ref().map_or(0, |disk| disk.blocks.0 * u64::from(utilisation.0) / 100);
        disk.saturating_sub(self.most_live.0)
    }

    /// How many requests it has.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none; never.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many blocks are ever read or written.
    pub fn blocks(&self) -> Pages {
        self.blocks
    }

    /// The most blocks that hold data at a time: all of them, except those that are discarded.
    pub fn most_live(&self) -> Pages {
        self.most_live
    }

    /// The blocks that hold data at the beginning, in the order of their addresses. It is the same set each time that
    /// the requests begin again: all blocks except those that end discarded. On a disk, blocks that are never touched
    /// lie between them; their numbers are behind all others.
    pub(super) fn filled(&self, utilisation: Percent) -> impl Iterator<Item = BlockNo> + '_ {
        let touched = self.blocks.0;
        let cold = self.cold(utilisation);
        let gaps = self.disk.iter().flat_map(move |disk| disk.cold_before(cold)).chain([(touched, 0)]);
        let mut at = (0, touched);
        let blocks = gaps.flat_map(move |(before, here)| {
            let (next, cold) = at;
            at = (before, cold + here);
            (next..before).chain(cold..cold + here)
        });
        let is_filled = |block: &u64| self.empty.get(*block as usize).is_none_or(|empty| !empty);
        blocks.filter(is_filled).map(BlockNo)
    }

    /// Blocks of a segment: the largest power of two up to 256 (1 MiB) for which the data, or the disk, fill 2,048
    /// segments. The least is 8.
    pub fn segment_blocks(&self) -> u32 {
        let data = self.disk.as_ref().map_or(self.most_live, |disk| disk.blocks);
        let fitting = (data.0 / SEGMENTS).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT);
        1 << fitting.ilog2()
    }

    /// The requests, from the beginning again and again.
    pub(super) fn endless(&self) -> impl Iterator<Item = Request> + '_ {
        self.requests.iter().copied().cycle()
    }

    /// The block numbers of a request.
    pub(super) fn blocks_of(request: &Request) -> impl Iterator<Item = BlockNo> + use<> {
        (request.extent.start.0..request.extent.end().0).map(BlockNo)
    }
}

/// Which blocks hold nothing when the requests have come to their end, and how many held something at a time, at most,
/// when they begin from there.
fn life(requests: &[Request], blocks: Pages) -> (Vec<bool>, Pages) {
    let mut empty = vec![false; blocks.0 as usize];
    let pass = |empty: &mut Vec<bool>| {
        let mut live = empty.iter().filter(|empty| !**empty).count() as u64;
        let mut most = live;
        for request in requests.iter().filter(|request| request.op != TraceOp::Read) {
            let discard = request.op == TraceOp::Discard;
            for block in LogInput::blocks_of(request) {
                let Some(empty) = empty.get_mut(block.0 as usize).filter(|empty| **empty != discard) else { continue };
                *empty = discard;
                live = if discard { live - 1 } else { live + 1 };
            }
            most = most.max(live);
        }
        most
    };
    pass(&mut empty);
    let most = pass(&mut empty);
    (empty, Pages(most))
}
