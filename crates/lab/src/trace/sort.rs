//! Sorts a trace whose records are further out of order than a reader's window reaches.

use umbrella_units::Nanos;

use super::error::TraceError;
use super::order::{Ordered, Placed, Window};
use super::problem::Position;
use super::{OpenOptions, Record, Strictness, TimeOrigin};

/// Records of a sorted trace.
#[derive(Debug)]
pub struct Sorted {
    /// In the order of time, equal times in the order of the file.
    pub records: Vec<Record>,
    /// How many were left out for a corrupt time.
    pub corrupt_times: u64,
}

/// Sorts records that come in any order (read with [`super::Order::File`]) in memory: 64 bytes each, at most `limit` of
/// them. Times are judged, and counted, as `options` say.
pub fn sort(
    records: impl Iterator<Item = Result<Record, TraceError>>,
    options: &OpenOptions,
    limit: usize,
) -> Result<Sorted, TraceError> {
    let mut all = Vec::new();
    for record in records {
        if all.len() == limit {
            return Err(TraceError::TooManyToSort { limit });
        }
        all.push(record?);
    }
    all.sort_by_key(|record| record.time);
    let mut window = Window::new(0, options.max_gap);
    let mut corrupt_times = 0;
    let mut sorted = Vec::with_capacity(all.len());
    let mut waiting = all.into_iter().enumerate();
    loop {
        let next = waiting.next();
        let last = next.is_none();
        if let Some((number, record)) = next {
            let position = Position { line: number as u64 + 1, byte: 0 };
            window.push(Placed { record, position }).map_err(|late| TraceError::Unsorted {
                position,
                time: late.time,
                latest: late.latest,
            })?;
        }
        while let Some(ordered) = window.pop(last) {
            match ordered {
                Ordered::Record(record) => sorted.push(record),
                Ordered::LoneTime(..) if options.strictness != Strictness::Strict => corrupt_times += 1,
                Ordered::LoneTime(position, gap) | Ordered::Jump(position, gap) => {
                    return Err(TraceError::TimeJump { position, gap });
                }
            }
        }
        if last {
            break;
        }
    }
    if options.origin == TimeOrigin::FirstRecord {
        let origin = sorted.first().map_or(Nanos(0), |record| record.time);
        for record in &mut sorted {
            record.time = record.time - origin;
        }
    }
    Ok(Sorted { records: sorted, corrupt_times })
}
