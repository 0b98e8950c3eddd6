//! Where a sector is: cylinder, head, and the angle at which it passes under the head.
//!
//! Sectors fill a track, then the other tracks of the cylinder, then the next cylinder inwards. Each track begins a little later in the turn
//! than the one before it (skew), by as much as the switch takes, so that a long transfer goes on without losing a turn.
//! Angles are fractions of a turn in 32 bits, so that they wrap by themselves; divisions by constants are multiplications by
//! a reciprocal (exact below 2^32: Lemire, Kaser, Kurz, "Faster remainder by direct computation", 2019).

use umbrella_units::{Lba, Nanos, SECTOR_BYTES};

use super::spec::{DiskSpec, Rate};

/// A fraction of a turn: `2^32` is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Angle(pub u32);

/// Where a sector begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Counted from the outside.
    pub cylinder: u32,
    /// The surface.
    pub head: u32,
    /// Where in the turn.
    pub angle: Angle,
}

/// A divisor that is known beforehand.
#[derive(Debug, Clone, Copy)]
struct Divisor {
    divisor: u32,
    reciprocal: u64,
}

impl Divisor {
    fn new(divisor: u32) -> Divisor {
        let divisor = divisor.max(1);
        Divisor { divisor, reciprocal: (u64::MAX / u64::from(divisor)).wrapping_add(1) }
    }

    /// Quotient and remainder.
    #[inline]
    fn split(self, value: u32) -> (u32, u32) {
        if self.divisor == 1 {
            return (value, 0);
        }
        let quotient = ((u128::from(self.reciprocal) * u128::from(value)) >> 64) as u32;
        (quotient, value - quotient * self.divisor)
    }
}

#[derive(Debug, Clone, Copy)]
struct Zone {
    first: u64,
    sectors: u32,
    first_cylinder: u32,
    track: Divisor,
    /// A sector's share of a turn, times 2^48.
    sector_turn: u64,
    /// A sector's time in nanoseconds, times 2^16.
    sector_time: u64,
    /// The same with track switches shared out.
    streamed_time: u64,
}

/// The layout of a disk's sectors.
#[derive(Debug, Clone)]
pub struct Geometry {
    zones: Box<[Zone]>,
    heads: Divisor,
    cylinders: u32,
    capacity: u64,
    turn: u64,
    turns_per_nano: u64,
    head_skew: u64,
    cylinder_skew: u64,
    head_skew_angle: u32,
    cylinder_skew_angle: u32,
}

/// Sectors per track that give the sustained `rate`.
fn sectors_per_track(rate: Rate, period: f64) -> u32 {
    (rate.0 as f64 / SECTOR_BYTES as f64 * period / 1e9).round().max(1.0) as u32
}

impl Geometry {
    /// The layout that gives the data sheet's capacity and rates.
    pub fn new(spec: &DiskSpec) -> Geometry {
        let turn = 60_000_000_000 / u64::from(spec.rpm.max(1));
        let heads = spec.heads.max(1);
        let cylinder_skew = spec.cylinder_switch.max(spec.write_seek.track_to_track).0;
        let head_skew = spec.head_switch.0;
        let skew = (f64::from(heads - 1) * head_skew as f64 + cylinder_skew as f64) / f64::from(heads);
        let period = turn as f64 + skew;
        let outer = f64::from(sectors_per_track(spec.outer_rate, period));
        let inner = f64::from(sectors_per_track(spec.inner_rate, period)).min(outer);

        let capacity = (spec.capacity.0 / SECTOR_BYTES).max(1);
        let zones = u64::from(spec.zones.max(1)).max(capacity >> 31);
        let per_cylinder = f64::from(heads) * f64::midpoint(outer, inner);
        let cylinders_each = ((capacity as f64 / per_cylinder / zones as f64).ceil() as u32).max(1);

        let mut table = Vec::with_capacity(zones as usize);
        let (mut first, mut first_cylinder) = (0_u64, 0_u32);
        let mut index = 0_u64;
        while first < capacity {
            let along = if zones > 1 { (index as f64 / (zones - 1) as f64).min(1.0) } else { 0.5 };
            let track = (outer + (inner - outer) * along).round().max(1.0) as u32;
            let whole = u64::from(cylinders_each) * u64::from(heads) * u64::from(track);
            let sectors = whole.min(capacity - first).min(u64::from(u32::MAX)) as u32;
            let per_track = u64::from(track);
            table.push(Zone {
                first,
                sectors,
                first_cylinder,
                track: Divisor::new(track),
                sector_turn: (1 << 48) / per_track,
                sector_time: (turn << 16) / per_track,
                streamed_time: (period * 65_536.0) as u64 / per_track,
            });
            first += u64::from(sectors);
            first_cylinder += sectors.div_ceil(track).div_ceil(heads);
            index += 1;
        }
        let turns_per_nano = (u128::from(u64::MAX) / u128::from(turn)) as u64;
        let angle = |time: u64| (time.wrapping_mul(turns_per_nano) >> 32) as u32;
        Geometry {
            zones: table.into(),
            heads: Divisor::new(heads),
            cylinders: first_cylinder,
            capacity,
            turn,
            turns_per_nano,
            head_skew,
            cylinder_skew,
            head_skew_angle: angle(head_skew),
            cylinder_skew_angle: angle(cylinder_skew),
        }
    }

    /// How many cylinders there are.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// How many sectors there are.
    pub fn capacity(&self) -> Lba {
        Lba(self.capacity)
    }

    /// The time of one turn.
    pub fn turn(&self) -> Nanos {
        Nanos(self.turn)
    }

    /// Sectors on the track that holds `lba`.
    pub fn track_sectors(&self, lba: Lba) -> u32 {
        self.zone(lba.0).track.divisor
    }

    /// The first sector of every zone, outermost first.
    pub fn zone_starts(&self) -> impl Iterator<Item = Lba> + '_ {
        self.zones.iter().map(|zone| Lba(zone.first))
    }

    #[inline]
    fn zone_index(&self, lba: u64) -> usize {
        self.zones.partition_point(|zone| zone.first <= lba).saturating_sub(1)
    }

    #[inline]
    fn zone(&self, lba: u64) -> &Zone {
        &self.zones[self.zone_index(lba)]
    }

    /// Where the sector begins; one beyond the end is where the last one is.
    #[inline]
    pub fn place(&self, lba: Lba) -> Place {
        let lba = lba.0.min(self.capacity - 1);
        let zone = self.zone(lba);
        let (track, sector) = zone.track.split((lba - zone.first) as u32);
        let (cylinder, head) = self.heads.split(track);
        let skew = track.wrapping_sub(cylinder).wrapping_mul(self.head_skew_angle);
        let skew = skew.wrapping_add(cylinder.wrapping_mul(self.cylinder_skew_angle));
        let along = ((u64::from(sector) * zone.sector_turn) >> 16) as u32;
        Place { cylinder: zone.first_cylinder + cylinder, head, angle: Angle(skew.wrapping_add(along)) }
    }

    /// How long it takes to pass over `sectors` from `lba`, switches of track included, once the first is under the head.
    #[inline]
    pub fn transfer(&self, lba: Lba, sectors: u64) -> Nanos {
        let mut at = lba.0.min(self.capacity - 1);
        let mut left = sectors.min(self.capacity - at);
        let mut index = self.zone_index(at);
        let mut time = 0;
        loop {
            let zone = &self.zones[index];
            let offset = (at - zone.first) as u32;
            let here = left.min(u64::from(zone.sectors - offset)) as u32;
            time += self.within(zone, offset, here);
            left -= u64::from(here);
            if left == 0 {
                return Nanos(time);
            }
            at += u64::from(here);
            index += 1;
            time += self.cylinder_skew;
        }
    }

    #[inline]
    fn within(&self, zone: &Zone, offset: u32, sectors: u32) -> u64 {
        let passing = (u64::from(sectors) * zone.sector_time) >> 16;
        let (track, sector) = zone.track.split(offset);
        let last = sector + sectors.saturating_sub(1);
        if last < zone.track.divisor {
            return passing;
        }
        let (tracks, _) = zone.track.split(last);
        let (_, head) = self.heads.split(track);
        let (cylinders, _) = self.heads.split(head + tracks);
        passing + u64::from(tracks - cylinders) * self.head_skew + u64::from(cylinders) * self.cylinder_skew
    }

    /// About how many sectors pass in `time` from `lba`, switches of track included, not beyond its zone.
    #[inline]
    pub fn passed(&self, lba: Lba, time: Nanos) -> u64 {
        let zone = self.zone(lba.0);
        // At most a few hours: what is longer has passed the whole zone.
        let time = time.0.min(1 << 44);
        let left = (zone.first + u64::from(zone.sectors)).saturating_sub(lba.0);
        ((time << 16) / zone.streamed_time.max(1)).min(left)
    }

    /// How long until `angle` passes under the heads, at `now`. Having missed it by less than an eighth of a sector counts as hitting it.
    #[inline]
    pub fn wait(&self, angle: Angle, now: Nanos) -> Nanos {
        const GRACE: u32 = 1 << 19;
        let position = (now.0.wrapping_mul(self.turns_per_nano) >> 32) as u32;
        let ahead = angle.0.wrapping_sub(position);
        if ahead > u32::MAX - GRACE {
            return Nanos(0);
        }
        Nanos((u64::from(ahead) * self.turn) >> 32)
    }
}
