//! How writes cluster: the number of write requests that fall into each 1 MB of the disk within 100 ms.
//!
//! 1 MB is the boundary at which the flash drives of the day paid extra; 100 ms is what a request scheduler can gather.
//! Source: UmbrellaFS, figure 26. Also counted: requests that begin in another 1 MB than the one before them, and the
//! distance from one request's end to the next one's beginning (TESA figure 9).

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use umbrella_units::{Extent, Nanos, PAGE_BYTES};

/// Blocks of a boundary window.
const WINDOW_BLOCKS: u64 = (1 << 20) / PAGE_BYTES;
/// How long writes count as belonging together.
const WINDOW_TIME: Nanos = Nanos::from_millis(100);
/// The last class holds everything beyond.
const CLASSES: usize = 6;

/// How many (1 MB, 100 ms) windows took so many write requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCounts {
    /// Windows with 1, 2-4, 5-8, 9-16, 17-32 and more writes.
    pub windows: [u64; CLASSES],
}

impl WindowCounts {
    /// Windows with at most 16 writes.
    pub fn up_to_16(&self) -> u64 {
        self.windows[..4].iter().sum()
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
}
