//! Recorded requests, and variants of them.
//!
//! The modelled machines have no chance in them: a trace always gives the same figures. How far these depend on
//! accidents, such as where the platter is, show variants whose requests come up to one turn of a disk later, each
//! before the next one. Source: Alameldeen and Wood, "Variability in architectural simulations of multi-threaded
//! workloads", HPCA 2003 (small random delays make a space of runs).

use std::sync::Arc;

use umbrella_units::{Nanos, SplitMix64};

use crate::trace::{Columns, Skipped, TraceError, TraceReader};

/// A turn at 7,200 a minute.
const TURN: Nanos = Nanos::from_micros(8333);

/// The beginning of a trace, or all of it.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What it is called in results.
    pub name: String,
    /// Its requests.
    pub columns: Arc<Columns>,
    /// Whether the trace continues behind them.
    pub is_cut: bool,
    /// What could not be read.
    pub skipped: Skipped,
}

impl Recording {
    /// Reads the first requests of a trace, `most` at most.
    pub fn read(name: &str, reader: &mut TraceReader, most: usize) -> Result<Recording, TraceError> {
        let columns = Columns::read_some(reader, most)?;
        let is_cut = columns.len() == most && reader.next().transpose()?.is_some();
        Ok(Recording { name: name.to_owned(), columns: Arc::new(columns), is_cut, skipped: reader.skipped() })
    }

    /// From the first request to the last.
    pub fn length(&self) -> Nanos {
        Nanos(self.columns.times.last().copied().unwrap_or(0))
    }

    /// Whether it has a read or a write.
    pub fn has_requests(&self) -> bool {
        const DISCARD: i8 = 2;
        self.columns.ops.iter().any(|op| *op != DISCARD)
    }

    /// The variant of a seed.
    pub fn variant(&self, seed: u64) -> Columns {
        let mut columns = Columns::clone(&self.columns);
        let mut random = SplitMix64::new(seed);
        for place in 0..columns.times.len() {
            let time = columns.times[place];
            let next = columns.times.get(place + 1).copied().unwrap_or(u64::MAX);
            columns.times[place] = time.saturating_add(random.below(TURN.0.min(next - time)));
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::trace::{OpenOptions, from_reader};

    fn recording(times: &[u64]) -> Recording {
        let many = times.len();
        let columns = Columns {
            times: times.to_vec(),
            devices: vec![0; many],
            ops: vec![1; many],
            offsets: vec![0; many],
            sizes: vec![4096; many],
            ..Columns::default()
        };
        Recording { name: "t".to_owned(), columns: Arc::new(columns), is_cut: false, skipped: Skipped::default() }
    }

    #[test]
    fn a_variant_keeps_the_order_and_moves_no_request_by_more_than_a_turn() {
        let times = [0, 0, 5_000, 5_001, 1_000_000_000, 1_020_000_000];
        let recording = recording(&times);
        for seed in super::super::SEEDS {
            let variant = recording.variant(seed).times;
            assert!(variant.is_sorted(), "{variant:?}");
            assert!(variant.iter().zip(times).all(|(new, old)| *new >= old && *new - old < TURN.0), "{variant:?}");
            assert_ne!(variant, times);
            assert_eq!(variant, recording.variant(seed).times, "a seed always gives the same");
        }
        assert_ne!(recording.variant(1).times, recording.variant(2).times);
    }

    #[test]
    fn a_long_trace_is_cut_and_says_so() {
        let lines = (0..10).map(|time| format!("{time},0,W,{},4096,\n", time * 4096));
        let text = "time_us,dev,op,offset_bytes,size_bytes,flags\n".to_owned() + &lines.collect::<String>();
        let open = |most| {
            let mut reader = from_reader(io::Cursor::new(text.clone()), &OpenOptions::default()).expect("a trace");
            let recording = Recording::read("t", &mut reader, most).expect("it can be read");
            (recording.columns.len(), recording.is_cut)
        };
        assert_eq!((open(4), open(10), open(11)), ((4, true), (10, false), (10, false)));
    }
}
