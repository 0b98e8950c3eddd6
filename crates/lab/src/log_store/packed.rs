//! A trace as an input of a log: the pages that it reads or writes, packed in the order of their addresses.
//!
//! - [`LogInput::trace`]: they are all data that there is, of all its disks together.
//! - [`LogInput::disks`]: one input for each disk that is written. The log is as large as the disk; the rest of the
//!   disk is data that is never touched, as far as the log is filled. Where a disk reaches how far is the highest
//!   address of the trace.
//!
//! Larger disks are made smaller: the gaps between touched pages shrink together with the log, to a disk of 1 GiB, or
//! of four times what is touched.

use std::path::Path;

use umbrella_units::{BlockNo, ByteSize, Extent, PAGE_BYTES, Pages};

use super::input::{DiskFill, LEAST, LogInput, Request};
use crate::experiment::LabError;
use crate::trace::{self, OpenOptions, Record, Summary, TraceOp};
use crate::write_back::areas;

/// Where the pages of a trace lie when those that it never touches are left out.
#[derive(Debug, Default)]
struct Packing {
    /// Runs of touched pages: first, end, and how many lie before it.
    runs: Vec<(u64, u64, u64)>,
}

impl Packing {
    fn of(mut touched: Vec<(u64, u64)>) -> Packing {
        touched.sort_unstable();
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        for (start, end) in touched {
            match runs.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                Some(&mut (first, last, before)) => runs.push((start, end, before + (last - first))),
                None => runs.push((start, end, 0)),
            }
        }
        Packing { runs }
    }

    /// The disk of `pages` pages, made smaller if it is large.
    fn disk(&self, pages: u64) -> DiskFill {
        let touched = self.rank(u64::MAX);
        let gap = |at: usize, end: u64| {
            let before = at.checked_sub(1).and_then(|at| self.runs.get(at)).map_or(0, |(_, end, _)| *end);
            Pages(end.saturating_sub(before))
        };
        let gaps = self.runs.iter().enumerate().map(|(at, (first, _, before))| (*before, gap(at, *first)));
        let last = (touched, gap(self.runs.len(), pages));
        DiskFill {
            blocks: Pages(pages.min(LARGE.max(TOUCHED.saturating_mul(touched)))),
            gaps: gaps.chain([last]).collect(),
        }
    }

    /// How many touched pages lie before this one.
    fn rank(&self, page: u64) -> u64 {
        let at = self.runs.partition_point(|(first, _, _)| *first <= page);
        let run = at.checked_sub(1).and_then(|at| self.runs.get(at));
        run.map_or(0, |(first, end, before)| before + page.min(*end) - first)
    }
}

/// The first page and the page after the last: of a discard whole ones only, and none beyond the device's data.
fn pages_of(record: &Record, area: BlockNo, end_of_data: ByteSize) -> (u64, u64) {
    let (start, end) = (record.offset.0, record.offset.0.saturating_add(record.size.0));
    let (first, last) = match record.op {
        TraceOp::Discard => (start.div_ceil(PAGE_BYTES), (end / PAGE_BYTES).min(end_of_data.0.div_ceil(PAGE_BYTES))),
        TraceOp::Read | TraceOp::Write => (start / PAGE_BYTES, end.div_ceil(PAGE_BYTES)),
    };
    (area.0.saturating_add(first), area.0.saturating_add(last))
}

/// A larger disk is made smaller, down to this number of blocks.
const LARGE: u64 = 1 << 18;
/// It is made no smaller than this number of times the touched blocks.
const TOUCHED: u64 = 4;

/// What a request does with which pages.
type PageAccess = (TraceOp, (u64, u64));

/// The records of a trace as spans of pages: requests that begin or end within a page count whole ones, discards only
/// what they cover whole.
fn spans<'a>(records: impl Iterator<Item = &'a Record>, summary: &Summary, areas: &[BlockNo]) -> Vec<PageAccess> {
    let pages_of = |record: &Record| {
        let device = record.device as usize;
        let end_of_data = summary.devices.get(device).map_or(ByteSize(0), |device| device.end_of_data);
        pages_of(record, areas.get(device).copied().unwrap_or_default(), end_of_data)
    };
    records.map(|record| (record.op, pages_of(record))).filter(|(_, (first, end))| first < end).collect()
}

/// Where the touched pages lie, and the requests for them.
fn packed(spans: &[PageAccess]) -> (Packing, Vec<Request>) {
    let touched = spans.iter().filter(|(op, _)| *op != TraceOp::Discard).map(|(_, span)| *span);
    let packing = Packing::of(touched.collect());
    let request = |&(op, (first, end)): &PageAccess| {
        let start = packing.rank(first);
        Request { op, extent: Extent { start: BlockNo(start), blocks: packing.rank(end) - start } }
    };
    let requests = spans.iter().map(request).collect();
    (packing, requests)
}

/// What results call a trace: its file's name without the endings.
fn name_of(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    name.split('.').next().unwrap_or_default().to_owned()
}

impl LogInput {
    /// A trace, its devices one behind the other.
    pub fn trace(path: &Path, open: &OpenOptions) -> Result<LogInput, LabError> {
        let failed = |source| LabError::Trace { path: path.to_owned(), source };
        let (records, summary) = trace::read_all(path, open).map_err(failed)?;
        let (areas, _) = areas(&summary, None, None);
        let (packing, requests) = packed(&spans(records.iter(), &summary, &areas));
        // What is wrong with it is said of the file.
        let mut input = LogInput::new(&path.display().to_string(), requests, Pages(packing.rank(u64::MAX)))?;
        input.name = name_of(path);
        Ok(input.of_trace(name_of(path), summary.skipped))
    }

    /// Each of the trace's disks that is written, and is large enough for a log.
    pub fn disks(path: &Path, open: &OpenOptions) -> Result<Vec<LogInput>, LabError> {
        let failed = |source| LabError::Trace { path: path.to_owned(), source };
        let (records, summary) = trace::read_all(path, open).map_err(failed)?;
        let mut inputs = Vec::new();
        for (number, device) in summary.devices.iter().enumerate() {
            let of_device = records.iter().filter(|record| record.device as usize == number);
            let (packing, requests) = packed(&spans(of_device, &summary, &[]));
            let is_written = requests.iter().any(|request| request.op == TraceOp::Write && request.extent.blocks > 0);
            let disk = packing.disk(device.end_of_data.0.div_ceil(PAGE_BYTES));
            if !is_written || disk.blocks < LEAST {
                continue;
            }
            let name = format!("{} disk {number}", name_of(path));
            let input = LogInput::of_any_size(&name, requests, Pages(packing.rank(u64::MAX)))?.on_disk(disk);
            inputs.push(input.of_trace(name_of(path), summary.skipped));
        }
        Ok(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::percent::Percent;
    use super::*;

    #[test]
    fn pages_that_are_never_touched_are_left_out() {
        let packing = Packing::of(vec![(10, 12), (100, 103), (11, 14)]);
        let ranks: Vec<u64> = [0, 10, 13, 14, 50, 100, 102, 103, u64::MAX].map(|page| packing.rank(page)).to_vec();
        assert_eq!(ranks, [0, 0, 3, 4, 4, 4, 6, 7, 7]);
    }

    #[test]
    fn a_disk_is_filled_in_the_order_of_addresses_with_blocks_that_are_never_touched() {
        let write = |start, blocks| Request { op: TraceOp::Write, extent: Extent { start: BlockNo(start), blocks } };
        let packing = Packing::of(vec![(4, 6), (12, 14)]);
        let disk = packing.disk(16);
        assert_eq!((disk.blocks, disk.gaps.clone()), (Pages(16), vec![(0, Pages(4)), (2, Pages(6)), (4, Pages(2))]));
        let input = LogInput::of_any_size("a disk", vec![write(0, 4)], Pages(4)).unwrap().on_disk(disk);
        let filled = |percent| input.filled(Percent(percent)).map(|block| block.0).collect::<Vec<u64>>();
        // Half of the disk: four touched blocks, and four others in the gaps of 4, 6 and 2.
        assert_eq!(filled(50), [4, 0, 1, 5, 6, 2, 3, 7]);
        assert_eq!(filled(25), [0, 1, 2, 3]);
        assert!(input.is_too_full(Percent(24)) && !input.is_too_full(Percent(25)));
    }

    #[test]
    fn a_large_disk_is_made_smaller_and_keeps_what_is_touched() {
        let packing = Packing::of(vec![(1 << 30, (1 << 30) + 7)]);
        assert_eq!(packing.disk(1 << 31).blocks, Pages(LARGE));
        let packing = Packing::of(vec![(0, LARGE)]);
        assert_eq!(packing.disk(1 << 31).blocks, Pages(4 * LARGE));
        assert_eq!(packing.disk(LARGE + 1).blocks, Pages(LARGE + 1), "no disk grows");
    }
}
