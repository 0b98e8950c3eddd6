//! `desktop_week`: seven days of one person's desktop, drawn from a seed, for users who have no trace.
//!
//! All figures are assumed; none was fitted to anything.
//!
//! - At any hour, a background: every three minutes or so a few small writes to a journal, a log and an inode, as
//!   daemons cause them.
//! - From Monday to Friday, 9 to 12 and 13 to 17:30, and more slowly on Saturday and Sunday, 19 to 22: actions of the
//!   user. They are half a minute apart on average, with pauses of ten minutes or so. Opening a program reads in runs,
//!   or nothing in half of the cases, since all is in memory. Browsing rewrites small parts of a hot set. Saving a
//!   document makes a few writes, and writes metadata.
//! - Twice a working day a large copy: hundreds of megabytes in sequence, read from one place and written to another.
//! - Each night at three, a job that reads a few thousand small pieces and writes a few hundred.
//!
//! Addresses: metadata and hot data are in the first tenth of 100 GB, programs behind them, documents in the middle,
//! large files in the second half.

use umbrella_units::{BLOCK_SECTORS, Lba, Nanos, SectorRange};

use super::input::{Arrival, Direction, HybridInput};
use crate::workload::{Rng, Seed, Zipf};

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

/// How long it is.
const LENGTH: Nanos = Nanos::from_secs(7 * 86_400);

/// The first sectors of areas.
const JOURNAL: u64 = 2_000_000;
const LOGS: u64 = 2_400_000;
const INODES: u64 = 3_000_000;
const HOT: u64 = 4_000_000;
const PROGRAMS: u64 = 20_000_000;
const DOCUMENTS: u64 = 60_000_000;
const LARGE: u64 = 100_000_000;

/// Sectors of the journal, which is written round and round: 32 MiB.
const JOURNAL_SECTORS: u64 = 65_536;
/// Blocks that are rewritten again and again.
const HOT_BLOCKS: u64 = 20_000;
/// Sectors of one request of a copy: 128 KiB.
const COPIED: u64 = 256;
/// Seconds from one read of a copy to the next, from one round of writes to the next, and that a round takes.
const READ_EVERY: f64 = 0.025;
const WRITTEN_EVERY: f64 = 5.0;
const WRITTEN_IN: f64 = 2.0;

impl HybridInput {
    /// A week of one person's desktop, drawn from a seed.
    pub fn desktop_week(seed: u64) -> HybridInput {
        HybridInput::new("desktop_week", arrivals(seed), LENGTH)
    }
}

fn arrivals(seed: u64) -> Vec<Arrival> {
    let mut week = Week {
        rng: Rng::new(Seed(seed), "desktop_week", 0),
        hot: Zipf::new(HOT_BLOCKS, 1.0),
        journal: 0,
        log: 0,
        large: 0,
        out: Vec::new(),
    };
    week.background();
    for day in 0..7 {
        let start = f64::from(day) * DAY;
        let working = day < 5;
        let hours: &[(f64, f64)] = if working { &[(9.0, 12.0), (13.0, 17.5)] } else { &[(19.0, 22.0)] };
        for &(from, to) in hours {
            week.sitting(start + from * HOUR, start + to * HOUR, if working { 30.0 } else { 90.0 });
        }
        for hour in [10.5, 15.0] {
            if working {
                week.copy(start + hour * HOUR);
            }
        }
        week.night_job(start + 3.0 * HOUR);
    }
    week.out
}

struct Week {
    rng: Rng,
    hot: Zipf,
    /// How far the journal and the log were written, and the large files laid out, in sectors.
    journal: u64,
    log: u64,
    large: u64,
    out: Vec<Arrival>,
}

impl Week {
    fn push(&mut self, seconds: f64, direction: Direction, start: u64, sectors: u64) {
        let at = Nanos((seconds.clamp(0.0, 7.0 * DAY) * 1e9) as u64);
        self.out.push(Arrival { at, direction, range: SectorRange { start: Lba(start), sectors } });
    }

    /// A sample of the exponential distribution with this mean.
    fn pause(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.rng.unit())
    }

    /// A commit of the journal: what it writes first, and the inodes somewhat later.
    fn metadata(&mut self, at: f64, blocks: u64) {
        let sectors = (blocks + 2) * BLOCK_SECTORS;
        if self.journal + sectors > JOURNAL_SECTORS {
            self.journal = 0;
        }
        self.push(at, Direction::Write, JOURNAL + self.journal, sectors);
        self.journal += sectors;
        for _ in 0..blocks {
            let inode = self.hot.draw(&mut self.rng) % 2000;
            let later = at + 5.0 + self.rng.unit();
            self.push(later, Direction::Write, INODES + inode * BLOCK_SECTORS, BLOCK_SECTORS);
        }
    }

    fn background(&mut self) {
        let mut at = 0.0;
        loop {
            at += self.pause(180.0);
            if at >= 7.0 * DAY {
                return;
            }
            // The last block of a log is written again as long as it is not full.
            self.push(at, Direction::Write, LOGS + self.log / 8 * BLOCK_SECTORS, BLOCK_SECTORS);
            self.log += 1 + self.rng.below(4);
            let blocks = 1 + self.rng.below(3);
            self.metadata(at + 0.2, blocks);
        }
    }

    fn sitting(&mut self, from: f64, to: f64, mean: f64) {
        let mut at = from;
        loop {
            at += if self.rng.chance(0.03) { self.pause(600.0) } else { self.pause(mean) };
            if at >= to {
                return;
            }
            match self.rng.below(10) {
                0..=1 => self.open_program(at),
                2..=7 => self.browse(at),
                _ => self.save(at),
            }
        }
    }

    fn open_program(&mut self, mut at: f64) {
        // What was read lately is in memory.
        if self.rng.chance(0.5) {
            return self.metadata(at, 1);
        }
        let program = PROGRAMS + self.rng.below(400) * 40_000;
        for _ in 0..20 + self.rng.below(150) {
            let run = program + self.rng.below(4000) * BLOCK_SECTORS;
            let sectors = BLOCK_SECTORS << self.rng.below(5);
            self.push(at, Direction::Read, run, sectors);
            at += self.pause(0.02);
        }
        self.metadata(at, 2);
    }

    fn browse(&mut self, mut at: f64) {
        if self.rng.chance(0.2) {
            for _ in 0..=self.rng.below(8) {
                let place = HOT + self.rng.below(1_000_000) * BLOCK_SECTORS;
                let sectors = BLOCK_SECTORS << self.rng.below(4);
                self.push(at, Direction::Read, place, sectors);
                at += self.pause(0.05);
            }
        }
        for _ in 0..3 + self.rng.below(25) {
            let block = self.hot.draw(&mut self.rng);
            // Hot blocks lie in groups that are spread out.
            let place = HOT + (block % 100) * 100_000 + block / 100 * BLOCK_SECTORS;
            let sectors = BLOCK_SECTORS << self.rng.below(3);
            self.push(at, Direction::Write, place, sectors);
            at += self.pause(0.1);
        }
        self.metadata(at + 1.0, 2);
    }

    fn save(&mut self, mut at: f64) {
        let document = DOCUMENTS + self.rng.below(2000) * 20_000;
        let mut left = (self.rng.lognormal(400.0, 1.2) as u64).clamp(BLOCK_SECTORS, 20_000);
        let mut place = document;
        while left > 0 {
            let sectors = left.min(COPIED);
            self.push(at, Direction::Write, place, sectors);
            (place, left) = (place + sectors, left - sectors);
            at += 0.01;
        }
        self.metadata(at + 0.5, 3);
    }

    fn copy(&mut self, from: f64) {
        let total = (self.rng.lognormal(600_000.0, 0.7) as u64).clamp(100_000, 4_000_000);
        let (source, target) = (LARGE + self.rng.below(200) * 200_000, LARGE + 45_000_000 + self.large);
        self.large += total;
        let from = from + self.pause(600.0);
        for part in 0..total / COPIED {
            // Some 5 MB a second: from a camera or over a network. What was read in five seconds is then written at
            // once, as page caches do it.
            let read_at = from + part as f64 * READ_EVERY;
            let round = (part as f64 * READ_EVERY / WRITTEN_EVERY).floor();
            let into = (part as f64 * READ_EVERY - round * WRITTEN_EVERY) / WRITTEN_EVERY;
            let written_at = from + (round + 1.0) * WRITTEN_EVERY + into * WRITTEN_IN;
            self.push(read_at, Direction::Read, source + part * COPIED, COPIED);
            self.push(written_at, Direction::Write, target + part * COPIED, COPIED);
            if part.is_multiple_of(200) {
                self.metadata(written_at + 1.0, 1);
            }
        }
    }

    fn night_job(&mut self, mut at: f64) {
        for _ in 0..2000 + self.rng.below(2000) {
            let place = INODES + self.rng.below(200_000) * BLOCK_SECTORS;
            self.push(at, Direction::Read, place, BLOCK_SECTORS);
            at += self.pause(0.03);
        }
        for _ in 0..200 + self.rng.below(300) {
            let place = HOT + self.rng.below(1_000_000) * BLOCK_SECTORS;
            let sectors = BLOCK_SECTORS << self.rng.below(4);
            self.push(at, Direction::Write, place, sectors);
            at += self.pause(0.05);
        }
        self.metadata(at, 3);
    }
}
