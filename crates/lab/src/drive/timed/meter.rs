//! Reads of one block, what they took, and the angles that follow. All of `timed` counts in blocks, the smallest reads
//! of the device.

use umbrella_units::{Lba, Nanos, SplitMix64};

use super::{BatchTime, MOST_UNREADABLE, MeasureError, Plan, ReadError, Timed, TimedReads};

/// How often a block that was in the buffer is tried again.
const TRIES: usize = 6;
/// Reads elsewhere that push a block out of the buffer, at most.
const MOST_EVICTING: usize = 2048;

/// Times reads of a device.
pub(super) struct Meter<'a> {
    device: &'a mut dyn TimedReads,
    pub(super) random: SplitMix64,
    block: u32,
    blocks: u64,
    /// A turn, in nanoseconds; 0 until it is known.
    pub(super) turn: f64,
    /// The time of a block from the buffer, in nanoseconds; `None` if the buffer keeps none.
    hit: Option<Hit>,
    evicting: usize,
    begun: Nanos,
    time: Nanos,
    deadline: Nanos,
    reads: u64,
    unreadable: u64,
}

/// What a block from the buffer takes, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) median: f64,
    /// Nearly all of them take less.
    pub(super) most: f64,
}

/// What the seek to another place takes longer than an answer from the buffer, in nanoseconds.
const LEAST_SEEK: f64 = 400_000.0;
/// Answers from the buffer that take so much longer than most, in nanoseconds, were late; a short seek takes more.
const MOST_SPREAD: f64 = 150_000.0;

impl<'a> Meter<'a> {
    pub(super) fn new(device: &'a mut dyn TimedReads, plan: &Plan) -> Meter<'a> {
        let (block, begun) = (device.block_sectors().max(1), device.now());
        let blocks = device.sectors() / u64::from(block);
        Meter {
            random: SplitMix64::new(plan.seed),
            block,
            blocks,
            turn: 0.0,
            hit: None,
            evicting: 32,
            begun,
            time: plan.time,
            deadline: begun + plan.time,
            reads: 0,
            unreadable: 0,
            device,
        }
    }

    /// Blocks of the device.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Sectors of the device, as far as they are whole blocks.
    pub(super) fn sectors(&self) -> u64 {
        self.blocks * u64::from(self.block)
    }

    /// Sectors of a block.
    pub(super) fn block(&self) -> u32 {
        self.block
    }

    /// What a block from the buffer takes.
    pub(super) fn hit(&self) -> Option<Hit> {
        self.hit
    }

    pub(super) fn set_hit(&mut self, hit: Option<Hit>) {
        self.hit = hit;
    }

    /// Reads so far, and blocks that could not be read.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.reads, self.unreadable)
    }

    pub(super) fn elapsed(&self) -> Nanos {
        self.device.now().since(self.begun)
    }

    /// Makes reads fail once this share of the whole time is over.
    pub(super) fn until(&mut self, share: f64) {
        self.deadline = self.begun + Nanos((self.time.0 as f64 * share) as u64);
    }

    fn check_time(&self) -> Result<(), MeasureError> {
        if self.device.now() > self.deadline { Err(MeasureError::OutOfTime) } else { Ok(()) }
    }

    fn note_unreadable(&mut self, count: u64) -> Result<(), MeasureError> {
        self.unreadable += count;
        if self.unreadable > MOST_UNREADABLE {
            return Err(MeasureError::Failing { count: self.unreadable });
        }
        Ok(())
    }

    /// Reads `blocks` from `at`.
    pub(super) fn read_blocks(&mut self, at: u64, blocks: u64) -> Result<Timed, MeasureError> {
        self.check_time()?;
        self.reads += 1;
        let blocks = blocks.clamp(1, self.blocks);
        let (at, sectors) = (at.min(self.blocks - blocks), (blocks * u64::from(self.block)) as u32);
        match self.device.read(Lba(at * u64::from(self.block)), sectors) {
            Ok(timed) => Ok(timed),
            Err(ReadError::Device(error)) => Err(error.into()),
            Err(ReadError::Unreadable) => {
                self.note_unreadable(1)?;
                Err(MeasureError::Unreadable)
            }
        }
    }

    /// Reads the block `at`.
    pub(super) fn read(&mut self, at: u64) -> Result<Timed, MeasureError> {
        self.read_blocks(at, 1)
    }

    /// Reads `sectors` at each of `count` random places, `depth` at a time.
    pub(super) fn read_together(&mut self, count: usize, sectors: u32, depth: u32) -> Result<BatchTime, MeasureError> {
        self.check_time()?;
        let sectors = sectors.next_multiple_of(self.block);
        let places = self.sectors().saturating_sub(u64::from(sectors)) / u64::from(self.block) + 1;
        let starts: Vec<Lba> = (0..count).map(|_| Lba(self.random.below(places) * u64::from(self.block))).collect();
        self.reads += count as u64;
        match self.device.read_together(&starts, sectors, depth) {
            Ok(together) => self.note_unreadable(together.unreadable).map(|()| together),
            Err(ReadError::Device(error)) => Err(error.into()),
            Err(ReadError::Unreadable) => Err(MeasureError::Unreadable),
        }
    }

    pub(super) fn pause(&mut self, millis: f64) {
        self.device.pause(Nanos((millis * 1e6) as u64));
    }

    /// A random block.
    pub(super) fn anywhere(&mut self) -> u64 {
        self.random.below(self.blocks)
    }

    /// A random block that is not near `at`, and not on the other side of the disk either.
    pub(super) fn away_from(&mut self, at: u64) -> u64 {
        let (near, width) = (self.blocks / 64, self.blocks / 16);
        let distance = near + self.random.below(width);
        if at >= distance { at - distance } else { (at + distance).min(self.blocks - 1) }
    }

    /// Moves the heads away from `at`. Ignores read errors there.
    pub(super) fn seek_away(&mut self, at: u64) -> Result<(), MeasureError> {
        let away = self.away_from(at);
        match self.read(away) {
            Ok(_) | Err(MeasureError::Unreadable) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a response of this length can come from the buffer after a long seek.
    pub(super) fn is_hit_after_seek(&self, response: f64) -> bool {
        self.hit.is_some_and(|hit| response < hit.median + LEAST_SEEK)
    }

    /// The same for the shortest of moves.
    pub(super) fn is_hit(&self, response: f64) -> bool {
        self.hit.is_some_and(|hit| response < (hit.most * 1.1).min(hit.median + MOST_SPREAD) + 20_000.0)
    }

    /// The angle at which the end of a block passes under the head, in turns; from the media.
    pub(super) fn angle(&mut self, at: u64) -> Result<f64, MeasureError> {
        for place in 0..TRIES {
            self.seek_away(at)?;
            let timed = self.read(at)?;
            if !self.is_hit_after_seek(response(timed)) {
                return Ok(self.angle_of(timed.done));
            }
            // Other blocks push it out of the buffer.
            if place > 0 {
                self.evicting = (self.evicting * 2).min(MOST_EVICTING);
            }
            for _ in 0..self.evicting {
                self.seek_away(at)?;
            }
        }
        Err(MeasureError::Buffered)
    }

    /// Where the platters are at a time, in turns.
    pub(super) fn angle_of(&self, at: Nanos) -> f64 {
        (at.0 as f64 / self.turn).fract()
    }
}

/// How long a read took, in nanoseconds.
pub(super) fn response(timed: Timed) -> f64 {
    timed.done.since(timed.sent).0 as f64
}

/// A difference of two angles, from -0.5 to 0.5.
pub(super) fn turned(difference: f64) -> f64 {
    difference - difference.round()
}

/// The value below which `share` of them lie. They are put in order.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(place).copied().unwrap_or_default()
}

/// The one in the middle.
pub(super) fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}
