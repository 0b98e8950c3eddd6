//! How writes cluster: the number of write requests that fall into each 1 MB of the disk within 100 ms.
//!
//! 1 MB is the boundary at which the flash drives of the time had extra costs; 100 ms is the span in which a request
//! scheduler can gather requests. Source: UmbrellaFS, figure 26. Three more things are counted:
//! - requests that begin in another 1 MB than the one before them;
//! - the distance from one request's end to the next one's beginning (TESA figure 9);
//! - sequential writes: runs of requests each of which begins where the last one ended (UmbrellaFS figure 32).

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use umbrella_units::{Extent, Nanos, PAGE_BYTES};

/// Blocks of a boundary window.
const WINDOW_BLOCKS: u64 = (1 << 20) / PAGE_BYTES;
/// How long writes count as belonging together.
const WINDOW_TIME: Nanos = Nanos::from_millis(100);
/// The last class holds everything beyond.
const CLASSES: usize = 6;

/// How many (1 MB, 100 ms) windows got how many write requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCounts {
    /// Windows with 1, 2-4, 5-8, 9-16, 17-32 and more writes.
    pub windows: [u64; CLASSES],
    /// Those with exactly 16.
    #[serde(default)]
    pub sixteen: u64,
}

impl WindowCounts {
    /// Windows with at most 16 writes.
    pub fn up_to_16(&self) -> u64 {
        self.windows[..4].iter().sum()
    }

    /// Windows with fewer than 16 writes.
    pub fn below_16(&self) -> u64 {
        self.up_to_16() - self.sixteen
    }

    /// Windows with more than 16 writes.
    pub fn over_16(&self) -> u64 {
        self.windows[4..].iter().sum()
    }

    fn add(&mut self, writes: u32) {
        let class = match writes {
            0..=1 => 0,
            2..=4 => 1,
            5..=8 => 2,
            9..=16 => 3,
            17..=32 => 4,
            _ => 5,
        };
        self.windows[class] += 1;
        self.sixteen += u64::from(writes == 16);
    }
}

/// Sequential writes: runs of two requests or more, each of which begins where the last one ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequentialWrites {
    /// Runs.
    pub runs: u64,
    /// Requests in them.
    pub requests: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl SequentialWrites {
    /// The mean size of a run, in bytes.
    pub fn mean_bytes(&self) -> f64 {
        super::ratio(self.bytes as f64, self.runs as f64)
    }

    /// `last` is followed by `next`, which continues it; `run` says whether `last` is in a run already.
    fn add(&mut self, last: Extent, next: Extent, run: bool) {
        if !run {
            self.runs += 1;
            self.requests += 1;
            self.bytes += last.blocks * PAGE_BYTES;
        }
        self.requests += 1;
        self.bytes += next.blocks * PAGE_BYTES;
    }
}

/// Watches write requests as they go to the disk.
#[derive(Debug, Clone, Default)]
pub struct WriteWindows {
    began: Nanos,
    writes: FxHashMap<u64, u32>,
    counts: WindowCounts,
    last: Option<Extent>,
    crossings: u64,
    requests: u64,
    distance: u128,
    sequential: SequentialWrites,
    /// Whether the last request continued the one before it.
    in_run: bool,
}

impl WriteWindows {
    /// A write request goes to the disk at `now`.
    pub fn record(&mut self, now: Nanos, extent: Extent) {
        if now - self.began >= WINDOW_TIME {
            self.close();
            self.began = Nanos(now.0 / WINDOW_TIME.0 * WINDOW_TIME.0);
        }
        let window = extent.start.0 / WINDOW_BLOCKS;
        *self.writes.entry(window).or_insert(0) += 1;
        self.requests += 1;
        if let Some(last) = self.last {
            self.crossings += u64::from(last.start.0 / WINDOW_BLOCKS != window);
            self.distance += u128::from(last.end().distance(extent.start));
            let continues = last.end() == extent.start;
            if continues {
                self.sequential.add(last, extent, self.in_run);
            }
            self.in_run = continues;
        }
        self.last = Some(extent);
    }

    /// What was seen, with the window that is still open.
    pub fn counts(&self) -> WindowCounts {
        let mut counts = self.counts;
        self.writes.values().for_each(|writes| counts.add(*writes));
        counts
    }

    /// Requests that began in another 1 MB than the one before.
    pub fn crossings(&self) -> u64 {
        self.crossings
    }

    /// Runs of requests that continue one another.
    pub fn sequential(&self) -> SequentialWrites {
        self.sequential
    }

    /// Mean blocks from the end of a request to the beginning of the next.
    pub fn mean_distance(&self) -> f64 {
        super::ratio(self.distance as f64, self.requests.saturating_sub(1) as f64)
    }

    fn close(&mut self) {
        for writes in std::mem::take(&mut self.writes).into_values() {
            self.counts.add(writes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbrella_units::BlockNo;

    fn write(windows: &mut WriteWindows, millis: u64, start: u64) {
        windows.record(Nanos::from_millis(millis), Extent { start: BlockNo(start), blocks: 2 });
    }

    #[test]
    fn writes_count_together_within_100_ms_and_1_mb_only() {
        let mut windows = WriteWindows::default();
        (0..20).for_each(|at| write(&mut windows, at, at * 2));
        write(&mut windows, 50, 256);
        write(&mut windows, 130, 0);
        write(&mut windows, 260, 0);
        let counts = windows.counts();
        assert_eq!(counts.windows, [3, 0, 0, 0, 1, 0]);
        assert_eq!((counts.up_to_16(), counts.over_16()), (3, 1));
    }

    #[test]
    fn a_crossing_is_a_change_of_the_megabyte_and_distance_goes_from_end_to_beginning() {
        let mut windows = WriteWindows::default();
        write(&mut windows, 0, 0);
        write(&mut windows, 1, 2);
        write(&mut windows, 2, 256);
        write(&mut windows, 3, 0);
        assert_eq!(windows.crossings(), 2);
        assert!((windows.mean_distance() - (0.0 + 252.0 + 258.0) / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_sequential_write_is_a_run_of_requests_that_continue_one_another() {
        let mut windows = WriteWindows::default();
        // Blocks 0 to 5 in three requests, one alone, 20 to 23 in two, one alone.
        for start in [0, 2, 4, 10, 20, 22, 50] {
            write(&mut windows, 0, start);
        }
        let sequential = windows.sequential();
        assert_eq!(sequential, SequentialWrites { runs: 2, requests: 5, bytes: 10 * PAGE_BYTES });
        assert!((sequential.mean_bytes() - 5.0 * PAGE_BYTES as f64).abs() < 1e-9);
    }
}
