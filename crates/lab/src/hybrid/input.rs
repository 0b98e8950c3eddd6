//! The input of a hybrid disk: a trace laid out on the disk, or the synthetic week.

use std::path::Path;
use std::sync::Arc;

use umbrella_units::{ByteSize, Lba, Nanos, PAGE_BYTES, SECTOR_BYTES, SectorRange};

use crate::experiment::LabError;
use crate::trace::{self, Columns, OpenOptions, Record, Summary, TraceOp};
use crate::write_back::areas;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it comes.
    pub at: Nanos,
    /// What it does.
    pub direction: Direction,
    /// Its sectors; never none.
    pub range: SectorRange,
}

/// Requests in the order of their times.
#[derive(Debug, Clone)]
pub struct HybridInput {
    /// What it is called in results.
    pub name: String,
    /// The requests.
    pub arrivals: Arc<[Arrival]>,
    /// How long it is watched.
    pub length: Nanos,
    /// Whether addresses beyond the disk's end were laid out from its start again.
    pub wrapped: bool,
}

impl HybridInput {
    /// These requests, watched until the last has come, and for at least `length`.
    pub fn new(name: &str, mut arrivals: Vec<Arrival>, length: Nanos) -> HybridInput {
        arrivals.retain(|arrival| arrival.range.sectors > 0);
        arrivals.sort_by_key(|arrival| arrival.at);
        let last = arrivals.last().map_or(Nanos(0), |last| last.at);
        HybridInput { name: name.to_owned(), arrivals: arrivals.into(), length: length.max(last), wrapped: false }
    }

    /// A trace on a disk of that capacity: its devices one behind the other; what lies beyond the end begins at the
    /// start again. Requests that begin or end within a sector count whole ones; discards are left out.
    pub fn trace(path: &Path, open: &OpenOptions, capacity: Lba) -> Result<HybridInput, LabError> {
        let failed = |source| LabError::Trace { path: path.to_owned(), source };
        let (mut records, mut summary) = (Vec::new(), Summary::default());
        for record in trace::open(path, open).map_err(failed)? {
            let record = record.map_err(failed)?;
            summary.add(&record);
            records.push(record);
        }
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let name = name.split('.').next().unwrap_or_default();
        Ok(HybridInput::records(name, records.into_iter(), &summary, capacity))
    }

    /// A trace that is in memory, as in [`HybridInput::trace`].
    pub fn columns(name: &str, columns: &Columns, capacity: Lba) -> HybridInput {
        HybridInput::records(name, columns.records(), &columns.summary(), capacity)
    }

    fn records(name: &str, records: impl Iterator<Item = Record>, summary: &Summary, capacity: Lba) -> HybridInput {
        let (areas, end) = areas(summary, None, None);
        let mut arrivals = Vec::new();
        for record in records.filter(|record| record.op != TraceOp::Discard && record.size.0 > 0) {
            let area = areas.get(record.device as usize).map_or(0, |area| area.0.saturating_mul(PAGE_BYTES));
            let offset = record.offset.0.saturating_add(area);
            let (first, last) = (offset / SECTOR_BYTES, offset.saturating_add(record.size.0).div_ceil(SECTOR_BYTES));
            let direction = if record.op == TraceOp::Read { Direction::Read } else { Direction::Write };
            for range in wrap(SectorRange::between(Lba(first), Lba(last)), capacity) {
                arrivals.push(Arrival { at: record.time, direction, range });
            }
        }
        let wrapped = end.lba() > capacity;
        HybridInput { wrapped, ..HybridInput::new(name, arrivals, Nanos(0)) }
    }

    /// Bytes that it writes.
    pub fn written(&self) -> ByteSize {
        let writes = self.arrivals.iter().filter(|arrival| arrival.direction == Direction::Write);
        ByteSize(writes.map(|arrival| arrival.range.bytes().0).sum())
    }

    /// Whether it reads at all.
    pub fn reads(&self) -> bool {
        self.arrivals.iter().any(|arrival| arrival.direction == Direction::Read)
    }
}

/// The sectors of a disk of that capacity that stand for `range`.
fn wrap(range: SectorRange, capacity: Lba) -> impl Iterator<Item = SectorRange> {
    let capacity = capacity.0.max(1);
    let start = range.start.0 % capacity;
    let sectors = range.sectors.min(capacity);
    let first = sectors.min(capacity - start);
    let parts = [(start, first), (0, sectors - first)];
    parts.into_iter().filter(|part| part.1 > 0).map(|(start, sectors)| SectorRange { start: Lba(start), sectors })
}
