//! What a trace sums up to: how much, how far, how often again, and when nothing happened.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::path::Path;

use rustc_hash::FxHasher;
use serde::Serialize;
use umbrella_units::{BlockNo, ByteSize, Nanos, PAGE_BYTES};

use super::{Devices, OpenOptions, Record, Skipped, TraceError, TraceOp, TraceReader, open};

/// A gap of more than this is counted as idle.
const IDLE: Nanos = Nanos::from_secs(60);

/// Figures of a trace; times from its first record.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Records.
    pub records: u64,
    /// Requests that write.
    pub writes: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that discard.
    pub discards: u64,
    /// Bytes written.
    pub written: ByteSize,
    /// Bytes read.
    pub read: ByteSize,
    /// Bytes discarded.
    pub discarded: ByteSize,
    /// From the first record to the last.
    pub length: Nanos,
    /// Pages written, each time anew.
    pub page_writes: u64,
    /// Pages that only a part was written of.
    pub partial_page_writes: u64,
    /// Different pages written.
    pub distinct_pages_written: u64,
    /// Writes that begin where the last one of their device ended.
    pub sequential_writes: u64,
    /// Sizes of writes.
    pub write_sizes: Sizes,
    /// Sizes of reads.
    pub read_sizes: Sizes,
    /// Times without a record.
    pub idle: Gaps,
    /// Each device.
    pub devices: Vec<DeviceSummary>,
    /// Lines and records that were left out.
    #[serde(serialize_with = "total")]
    pub skipped: Skipped,
    /// The digest of all records in their order.
    #[serde(skip)]
    pub digest: Digest,
    #[serde(skip)]
    last: Option<Nanos>,
    #[serde(skip)]
    first: Option<Nanos>,
    #[serde(skip)]
    written_runs: Vec<Runs>,
}

fn total<S: serde::Serializer>(skipped: &Skipped, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(skipped.total())
}

/// Distinguishes lists of records. It is no protection against deliberate collisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Adds the next record.
    pub fn add(&mut self, record: &Record) {
        let mut hasher = FxHasher::default();
        (self.0, record).hash(&mut hasher);
        self.0 = hasher.finish();
    }
}

/// Sizes of requests, by powers of two.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Sizes {
    /// The smallest.
    pub min: ByteSize,
    /// The largest.
    pub max: ByteSize,
    /// How many requests are of at most 512 bytes, 1 KiB, 2 KiB, ... 16 MiB; the last counts all larger ones.
    pub up_to_512_doubling: [u64; 17],
}

/// Times without a record that are longer than a minute.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Gaps {
    /// How many.
    pub over_60_s: u64,
    /// The longest gap of all, also if shorter.
    pub longest: Nanos,
}

/// Figures of one device.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeviceSummary {
    /// Its name in the trace.
    pub name: String,
    /// Its records.
    pub records: u64,
    /// The first byte touched.
    pub start: ByteSize,
    /// The byte after the last one touched.
    pub end: ByteSize,
    /// The byte after the last one read or written.
    #[serde(skip)]
    pub end_of_data: ByteSize,
    #[serde(skip)]
    write_end: Option<u64>,
}

impl DeviceSummary {
    /// From the first byte touched to the last.
    pub fn span(&self) -> ByteSize {
        ByteSize(self.end.0.saturating_sub(self.start.0))
    }
}

impl Sizes {
    fn add(&mut self, size: u64, first: bool) {
        self.min = ByteSize(if first { size } else { self.min.0.min(size) });
        self.max = ByteSize(self.max.0.max(size));
        let class = size.max(1).div_ceil(512).next_power_of_two().trailing_zeros() as usize;
        let last = self.up_to_512_doubling.len() - 1;
        if let Some(count) = self.up_to_512_doubling.get_mut(class.min(last)) {
            *count += 1;
        }
    }
}

/// Pages, as runs that neither touch nor overlap: start and end.
#[derive(Debug, Clone, Default)]
struct Runs {
    ends: BTreeMap<BlockNo, BlockNo>,
    pages: u64,
}

impl Runs {
    /// Adds the pages from `start` to before `end`.
    fn add(&mut self, start: BlockNo, end: BlockNo) {
        let (mut from, mut to) = (start, end);
        if let Some((before, before_end)) = self.ends.range(..=start).next_back().map(|(start, end)| (*start, *end)) {
            if before_end >= end {
                return;
            }
            if before_end >= start {
                from = before;
            }
        }
        while let Some((next, next_end)) = self.ends.range(from..=to).next().map(|(start, end)| (*start, *end)) {
            self.ends.remove(&next);
            self.pages -= next_end.0 - next.0;
            to = to.max(next_end);
        }
        self.ends.insert(from, to);
        self.pages += to.0 - from.0;
    }
}

impl Summary {
    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        self.records += 1;
        self.digest.add(record);
        let first = *self.first.get_or_insert(record.time);
        let last = self.last.unwrap_or(record.time);
        let gap = record.time.since(last);
        self.idle.longest = self.idle.longest.max(gap);
        self.idle.over_60_s += u64::from(gap > IDLE);
        self.last = Some(last.max(record.time));
        self.length = self.length.max(record.time.since(first));
        let device = record.device as usize;
        if self.devices.len() <= device {
            self.devices.resize_with(device + 1, DeviceSummary::default);
            self.written_runs.resize_with(device + 1, Runs::default);
        }
        self.add_to_device(device, record);
        let size = record.size.0;
        match record.op {
            TraceOp::Read => {
                self.read_sizes.add(size, self.reads == 0);
                self.reads += 1;
                self.read = ByteSize(self.read.0.saturating_add(size));
            }
            TraceOp::Write => {
                self.write_sizes.add(size, self.writes == 0);
                self.writes += 1;
                self.written = ByteSize(self.written.0.saturating_add(size));
                self.add_written_pages(device, record);
            }
            TraceOp::Discard => {
                self.discards += 1;
                self.discarded = ByteSize(self.discarded.0.saturating_add(size));
            }
        }
    }

    fn add_to_device(&mut self, device: usize, record: &Record) {
        let Some(device) = self.devices.get_mut(device) else { return };
        let (start, end) = (record.offset.0, record.offset.0.saturating_add(record.size.0));
        device.start = ByteSize(if device.records == 0 { start } else { device.start.0.min(start) });
        device.end = ByteSize(device.end.0.max(end));
        if record.op != TraceOp::Discard && record.size.0 > 0 {
            device.end_of_data = ByteSize(device.end_of_data.0.max(end));
        }
        device.records += 1;
        if record.op == TraceOp::Write {
            self.sequential_writes += u64::from(device.write_end == Some(start));
            device.write_end = Some(end);
        }
    }

    fn add_written_pages(&mut self, device: usize, record: &Record) {
        if record.size.0 == 0 {
            return;
        }
        let (start, end) = (record.offset.0, record.offset.0.saturating_add(record.size.0));
        let (first, after) = (start / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        self.page_writes += after - first;
        let (cut_start, cut_end) = (!start.is_multiple_of(PAGE_BYTES), !end.is_multiple_of(PAGE_BYTES));
        let one_page = after - first == 1;
        self.partial_page_writes +=
            if one_page { u64::from(cut_start || cut_end) } else { u64::from(cut_start) + u64::from(cut_end) };
        if let Some(runs) = self.written_runs.get_mut(device) {
            let before = runs.pages;
            runs.add(BlockNo(first), BlockNo(after));
            self.distinct_pages_written += runs.pages - before;
        }
    }

    /// Takes what only the reader knows: names, and how much was left out.
    pub fn finish(&mut self, reader: &TraceReader) {
        self.name_devices(reader.devices());
        self.skipped = reader.skipped();
    }

    /// Gives the devices their names.
    pub(super) fn name_devices(&mut self, names: &Devices) {
        for (number, device) in self.devices.iter_mut().enumerate() {
            device.name = names.name(number as u32).unwrap_or_else(|| number.to_string());
        }
    }

    /// How often a written page was written; 0 when none was.
    pub fn rewrites(&self) -> f64 {
        if self.distinct_pages_written == 0 {
            0.0
        } else {
            self.page_writes as f64 / self.distinct_pages_written as f64
        }
    }

    /// The largest address span of a device.
    pub fn span(&self) -> ByteSize {
        self.devices.iter().map(DeviceSummary::span).max().unwrap_or_default()
    }
}

/// Reads all records, and what they sum up to.
pub fn read_all(path: impl AsRef<Path>, options: &OpenOptions) -> Result<(Vec<Record>, Summary), TraceError> {
    let mut reader = open(path, options)?;
    let mut records = Vec::new();
    let mut summary = Summary::default();
    for record in &mut reader {
        let record = record?;
        summary.add(&record);
        records.push(record);
    }
    summary.finish(&reader);
    Ok((records, summary))
}
