//! A trace on a disk that it fills: the pages that it reads or writes, packed in the order of their addresses.

use std::path::Path;

use umbrella_units::{BlockNo, ByteSize, Extent, PAGE_BYTES, Pages};

use super::input::{LogInput, Request};
use crate::experiment::LabError;
use crate::trace::{self, OpenOptions, Record, TraceOp};
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

impl LogInput {
    /// A trace, its devices one behind the other. Requests that begin or end within a page count whole ones, discards only what they cover whole.
    pub fn trace(path: &Path, open: &OpenOptions) -> Result<LogInput, LabError> {
        let failed = |source| LabError::Trace { path: path.to_owned(), source };
        let (records, summary) = trace::read_all(path, open).map_err(failed)?;
        let (areas, _) = areas(&summary, None, None);
        let pages_of = |record: &Record| {
            let device = record.device as usize;
            let end_of_data = summary.devices.get(device).map_or(ByteSize(0), |device| device.end_of_data);
            pages_of(record, areas.get(device).copied().unwrap_or_default(), end_of_data)
        };
        let spans: Vec<(TraceOp, (u64, u64))> = records
            .iter()
            .map(|record| (record.op, pages_of(record)))
            .filter(|(_, (first, end))| first < end)
            .collect();
        let touched = spans.iter().filter(|(op, _)| *op != TraceOp::Discard).map(|(_, span)| *span);
        let packing = Packing::of(touched.collect());
        let request = |&(op, (first, end)): &(TraceOp, (u64, u64))| {
            let start = packing.rank(first);
            Request { op, extent: Extent { start: BlockNo(start), blocks: packing.rank(end) - start } }
        };
        let blocks = Pages(packing.rank(u64::MAX));
        // What is wrong with it is said of the file, results have its name without the endings.
        let mut input = LogInput::new(&path.display().to_string(), spans.iter().map(request).collect(), blocks)?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        name.split('.').next().unwrap_or_default().clone_into(&mut input.name);
        input.skipped = summary.skipped;
        input.disks = summary.devices.len();
        Ok(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_never_touched_are_left_out() {
        let packing = Packing::of(vec![(10, 12), (100, 103), (11, 14)]);
        let ranks: Vec<u64> = [0, 10, 13, 14, 50, 100, 102, 103, u64::MAX].map(|page| packing.rank(page)).to_vec();
        assert_eq!(ranks, [0, 0, 3, 4, 4, 4, 6, 7, 7]);
    }
}
