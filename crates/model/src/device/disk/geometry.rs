//! Where a sector is: cylinder, head, and the angle at which it passes under the head.
//!
//! Sectors fill a track, then the other tracks of the cylinder, then the next cylinder inwards. Each track begins a
//! little later in the turn than the one before it (skew). The skew is as long as the switch takes, so that a long
//! transfer continues without losing a turn. Angles are fractions of a turn in 32 bits, so that they wrap by
//! themselves. Divisions by constants are multiplications by a reciprocal (exact below 2^32: Lemire, Kaser, Kurz,
//! "Faster remainder by direct computation", 2019).

use umbrella_units::{Lba, Nanos, SECTOR_BYTES};

use super::spec::{DiskSpec, Rate};

/// A fraction of a turn: `2^32` is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Angle(pub u32);

/// Where a sector begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorAddress {
    /// Counted from the outside.
    pub cylinder: u32,
    /// The surface.
    pub head: u32,
    /// Where in the turn.
    pub angle: Angle,
}

/// A divisor that is known beforehand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Divisor {
    divisor: u32,
    reciprocal: u64,
}

impl Divisor {
    pub(super) fn new(divisor: u32) -> Divisor {
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

/// How fast tracks pass, and how they are shifted against each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackTiming {
    pub(super) track: Divisor,
    /// A sector's share of a turn, times 2^48.
    pub(super) sector_turn: u64,
    /// A sector's time in nanoseconds, times 2^16.
    pub(super) sector_time: u64,
    /// The same with track switches shared out.
    pub(super) streamed_time: u64,
    /// From the end of a track to the beginning of the next one of the cylinder, and of the next cylinder.
    pub(super) head_skew: u64,
    pub(super) cylinder_skew: u64,
    pub(super) head_skew_angle: u32,
    pub(super) cylinder_skew_angle: u32,
}

/// Sectors that lie one behind the other on tracks of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zone {
    pub(super) first: u64,
    /// The place of the first one, in sectors from that of the band.
    pub(super) skip: u32,
    pub(super) sectors: u32,
    pub(super) first_cylinder: u32,
    /// Where in the turn the band begins.
    pub(super) begins: u32,
    /// What makes the number of a cylinder odd on which tracks go backwards.
    pub(super) turns_back: Option<u32>,
    /// From its end to the beginning of the next one.
    pub(super) gap: u64,
    /// Whether reading ahead continues behind its end.
    pub(super) continues: bool,
    pub(super) pace: TrackTiming,
}

/// The layout of a disk's sectors.
#[derive(Debug, Clone)]
pub struct Geometry {
    pub(super) zones: Box<[Zone]>,
    heads: Divisor,
    cylinders: u32,
    capacity: u64,
    pub(super) turn: u64,
    turns_per_nano: u64,
}

/// How long the heads take from one track to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Switches {
    pub(super) head: u64,
    pub(super) cylinder: u64,
}

/// Sectors per track that give the sustained `rate`.
fn sectors_per_track(rate: Rate, period: f64) -> u32 {
    (rate.0 as f64 / SECTOR_BYTES as f64 * period / 1e9).round().max(1.0) as u32
}

fn turns_per_nano(turn: u64) -> u64 {
    (u128::from(u64::MAX) / u128::from(turn.max(1))) as u64
}

impl Geometry {
    /// The layout that was measured, else the one that gives the data sheet's capacity and rates.
    pub fn new(spec: &DiskSpec) -> Geometry {
        let turn = 60_000_000_000 / u64::from(spec.rpm.max(1));
        let cylinder = spec.cylinder_switch.max(spec.write_seek.track_to_track).0;
        let switches = Switches { head: spec.head_switch.0, cylinder };
        match &spec.measured.layout {
            Some(layout) => Geometry::of_layout(layout, spec.heads, turn, switches),
            None => Geometry::of_data_sheet(spec, turn, switches),
        }
    }

    fn of_data_sheet(spec: &DiskSpec, turn: u64, switches: Switches) -> Geometry {
        let heads = spec.heads.max(1);
        let Switches { head: head_skew, cylinder: cylinder_skew } = switches;
        let skew = (f64::from(heads - 1) * head_skew as f64 + cylinder_skew as f64) / f64::from(heads);
        let period = turn as f64 + skew;
        let outer = f64::from(sectors_per_track(spec.outer_rate, period));
        let inner = f64::from(sectors_per_track(spec.inner_rate, period)).min(outer);

        let capacity = (spec.capacity.0 / SECTOR_BYTES).max(1);
        let zones = u64::from(spec.zones.max(1)).max(capacity >> 31);
        let per_cylinder = f64::from(heads) * f64::midpoint(outer, inner);
        let cylinders_each = ((capacity as f64 / per_cylinder / zones as f64).ceil() as u32).max(1);
        let turns_per_nano = turns_per_nano(turn);
        let angle = |time: u64| (time.wrapping_mul(turns_per_nano) >> 32) as u32;

        let mut table = Vec::with_capacity(zones as usize);
        let (mut first, mut first_cylinder) = (0_u64, 0_u32);
        let mut index = 0_u64;
        while first < capacity {
            let along = if zones > 1 { (index as f64 / (zones - 1) as f64).min(1.0) } else { 0.5 };
            let track = (outer + (inner - outer) * along).round().max(1.0) as u32;
            let whole = u64::from(cylinders_each) * u64::from(heads) * u64::from(track);
            let sectors = whole.min(capacity - first).min(u64::from(u32::MAX)) as u32;
            let per_track = u64::from(track);
            let pace = TrackTiming {
                track: Divisor::new(track),
                sector_turn: (1 << 48) / per_track,
                sector_time: (turn << 16) / per_track,
                streamed_time: (period * 65_536.0) as u64 / per_track,
                head_skew,
                cylinder_skew,
                head_skew_angle: angle(head_skew),
                cylinder_skew_angle: angle(cylinder_skew),
            };
            let gap = cylinder_skew;
            let whole_band = Zone {
                first,
                skip: 0,
                sectors,
                first_cylinder,
                begins: 0,
                turns_back: None,
                gap,
                continues: false,
                pace,
            };
            table.push(whole_band);
            first += u64::from(sectors);
            first_cylinder += sectors.div_ceil(track).div_ceil(heads);
            index += 1;
        }
        Geometry::of_zones(table, heads, first_cylinder, capacity, turn)
    }

    /// Of zones that hold all of `capacity`.
    pub(super) fn of_zones(zones: Vec<Zone>, heads: u32, cylinders: u32, capacity: u64, turn: u64) -> Geometry {
        let heads = Divisor::new(heads);
        Geometry { zones: zones.into(), heads, cylinders, capacity, turn, turns_per_nano: turns_per_nano(turn) }
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
        self.zone(lba.0).pace.track.divisor
    }

    /// The first sector that lies on the track of `lba`, of those one behind the other.
    pub(super) fn track_start(&self, lba: u64) -> u64 {
        let zone = self.zone(lba);
        let at = lba.saturating_sub(zone.first);
        let (_, sector) = zone.pace.track.split(at as u32 + zone.skip);
        lba - at.min(u64::from(sector))
    }

    /// The sector behind the last one on the track of `lba`.
    pub(super) fn track_end(&self, lba: u64) -> u64 {
        let zone = self.zone(lba);
        let start = self.track_start(lba);
        let (_, skipped) = zone.pace.track.split((start - zone.first.min(start)) as u32 + zone.skip);
        (start + u64::from(zone.pace.track.divisor - skipped)).min(zone.first + u64::from(zone.sectors))
    }

    /// The sector behind the last one of the cylinder of `lba`.
    pub(super) fn cylinder_end(&self, lba: u64) -> u64 {
        let zone = self.zone(lba);
        let (track, sector) = zone.pace.track.split(lba.saturating_sub(zone.first) as u32 + zone.skip);
        let (_, head) = self.heads.split(track);
        let tracks_left = u64::from(self.heads.divisor - head);
        let left = tracks_left * u64::from(zone.pace.track.divisor) - u64::from(sector);
        (lba + left).min(zone.first + u64::from(zone.sectors))
    }

    /// Whether both lie on one track.
    pub(super) fn same_track(&self, one: u64, other: u64) -> bool {
        let (one, other) = (self.place(Lba(one)), self.place(Lba(other)));
        (one.cylinder, one.head) == (other.cylinder, other.head)
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
    pub fn place(&self, lba: Lba) -> SectorAddress {
        let lba = lba.0.min(self.capacity - 1);
        let zone = self.zone(lba);
        let Zone { pace, .. } = zone;
        let (track, sector) = pace.track.split((lba - zone.first) as u32 + zone.skip);
        let (cylinder, head) = self.heads.split(track);
        let skew = track.wrapping_sub(cylinder).wrapping_mul(pace.head_skew_angle);
        let skew = skew.wrapping_add(cylinder.wrapping_mul(pace.cylinder_skew_angle)).wrapping_add(zone.begins);
        let along = ((u64::from(sector) * pace.sector_turn) >> 16) as u32;
        let backwards = zone.turns_back.is_some_and(|odd| (cylinder ^ odd) & 1 == 1);
        let head = if backwards { self.heads.divisor - 1 - head } else { head };
        SectorAddress { cylinder: zone.first_cylinder + cylinder, head, angle: Angle(skew.wrapping_add(along)) }
    }

    /// How long it takes to pass over `sectors` from `lba`, switches of track included, once the first is under the
    /// head.
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
            time += self.within(zone, offset + zone.skip, here);
            left -= u64::from(here);
            if left == 0 {
                return Nanos(time);
            }
            at += u64::from(here);
            index += 1;
            time += zone.gap;
        }
    }

    #[inline]
    fn within(&self, zone: &Zone, offset: u32, sectors: u32) -> u64 {
        let pace = &zone.pace;
        let passing = (u64::from(sectors) * pace.sector_time) >> 16;
        let (track, sector) = pace.track.split(offset);
        let last = sector + sectors.saturating_sub(1);
        if last < pace.track.divisor {
            return passing;
        }
        let (tracks, _) = pace.track.split(last);
        let (_, head) = self.heads.split(track);
        let (cylinders, _) = self.heads.split(head + tracks);
        passing + u64::from(tracks - cylinders) * pace.head_skew + u64::from(cylinders) * pace.cylinder_skew
    }

    /// About how many sectors pass in `time` from `lba`, switches of track included.
    ///
    /// Not beyond its zone where the layout is a data sheet's.
    #[inline]
    pub fn passed(&self, lba: Lba, time: Nanos) -> u64 {
        // At most a few hours: what is longer has passed the whole zone.
        let mut time = time.0.min(1 << 44);
        let (mut index, mut at) = (self.zone_index(lba.0), lba.0);
        loop {
            let zone = &self.zones[index];
            let left = (zone.first + u64::from(zone.sectors)).saturating_sub(at);
            let streamed = zone.pace.streamed_time.max(1);
            let passed = ((time << 16) / streamed).min(left);
            at += passed;
            let spent = ((passed * streamed) >> 16) + zone.gap;
            if passed < left || !zone.continues || index + 1 == self.zones.len() || spent >= time {
                return at - lba.0;
            }
            (time, index) = (time - spent, index + 1);
        }
    }

    /// How long until `angle` passes under the heads, at `now`. Having missed it by less than an eighth of a sector
    /// counts as hitting it.
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
