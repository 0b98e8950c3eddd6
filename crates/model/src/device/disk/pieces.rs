//! From a measured layout to the geometry.
//!
//! A band becomes pieces, runs of sectors that lie one behind the other on the media: a slipped sector, spares or the
//! end of the band end a piece. The pieces are the zones of the `Geometry`.
//!
//! Defects are numbers within the band: of tracks where whole tracks are spare, else of sectors. What is reserved at
//! the front is counted as addresses are, without spares and slipped sectors. Source: DiskSim 4.0 reference manual,
//! "slips" and "defects". That both counts begin at the band's first sector is not in the manual; DiskSim does so, and
//! the real drives with such layouts did.

use umbrella_units::Lba;

use super::geometry::{Divisor, Geometry, Switches, TrackTiming, Zone};
use super::layout::{Band, SectorLayout, Spares, TrackOrder};

/// More pieces than any drive needs: what lies behind them is not there.
const MOST_PIECES: usize = 1 << 18;

/// Builds the pieces of a layout.
struct Builder<'a> {
    layout: &'a SectorLayout,
    heads: u32,
    turn: u64,
    switches: Switches,
    first: u64,
    zones: Vec<Zone>,
    /// What is remapped in the band at work, the last first.
    remapped: Vec<(u64, u64)>,
    /// Sectors of one of its defects.
    defect: u64,
    /// How many of its next sectors are reserved.
    reserved: u64,
}

impl Geometry {
    /// The geometry of a measured layout.
    pub(super) fn of_layout(layout: &SectorLayout, heads: u32, turn: u64, switches: Switches) -> Geometry {
        let heads = heads.max(1);
        let (zones, remapped) = (Vec::new(), Vec::new());
        let mut builder = Builder { layout, heads, turn, switches, first: 0, zones, remapped, defect: 1, reserved: 0 };
        for band in &layout.bands {
            builder.band(band);
        }
        let (mut zones, capacity) = (builder.zones, builder.first.max(1));
        if zones.is_empty() {
            let band = Band::default();
            let pace = TrackTiming::of_band(&band, layout.spares, heads, turn, switches);
            zones.push(Zone::of_band(&band, layout.order, pace, (0, 0, 1)));
        }
        let last = layout.bands.iter().map(|band| band.last_cylinder).max().unwrap_or_default();
        let mut geometry = Geometry::of_zones(zones, heads, last.saturating_add(1), capacity, turn);
        geometry.measure_gaps(switches);
        geometry
    }

    /// The time from the end of each piece to the beginning of the next one.
    fn measure_gaps(&mut self, switches: Switches) {
        for index in 1..self.zones.len() {
            let next = self.zones[index].first;
            let (before, after) = (self.place(Lba(next - 1)), self.place(Lba(next)));
            let end = before.angle.0.wrapping_add((self.zones[index - 1].pace.sector_turn >> 16) as u32);
            let gap = after.angle.0.wrapping_sub(end);
            // Rounding may put the beginning a hair before the end.
            let gap = if gap > u32::MAX - (1 << 12) { 0 } else { (u64::from(gap) * self.turn) >> 32 };
            let least = match (before.cylinder == after.cylinder, before.head == after.head) {
                (true, true) => 0,
                (true, false) => switches.head,
                (false, _) => switches.cylinder,
            };
            self.zones[index - 1].gap = at_least(gap, least, self.turn);
        }
    }
}

/// The first time of `time`, `time + turn`, ... that is no shorter than `least`.
fn at_least(time: u64, least: u64, turn: u64) -> u64 {
    time + least.saturating_sub(time).div_ceil(turn.max(1)) * turn
}

impl Builder<'_> {
    fn band(&mut self, band: &Band) {
        let track = u64::from(band.sectors_per_track.max(1));
        let cylinders = u64::from(band.last_cylinder.saturating_sub(band.first_cylinder)) + 1;
        let spares = u64::from(band.spares);
        let per_track = match self.layout.spares {
            Spares::TrackEnd => track.saturating_sub(spares).max(1),
            _ => track,
        };
        let cylinder = u64::from(self.heads) * per_track;
        let all = (cylinder * cylinders).min(u64::from(u32::MAX));
        let size = if self.layout.spares == Spares::BandTracks { track } else { 1 };
        (self.reserved, self.defect) = (band.reserved, size);
        let remapped = band.remapped.iter().map(|&(from, to)| (from.saturating_mul(size), to.saturating_mul(size)));
        self.remapped = remapped.filter(|&(from, to)| from != to && to < all).collect();
        self.remapped.sort_unstable_by(|one, other| other.cmp(one));
        let mut slipped: Vec<u64> = band.slipped.iter().map(|defect| defect.saturating_mul(size)).collect();
        slipped.sort_unstable();
        let (front, back, range) = match self.layout.spares {
            Spares::DiskEnd | Spares::TrackEnd => (0, 0, all),
            Spares::BandTracks => (0, spares * track, all),
            Spares::BandEnd => (0, spares, all),
            Spares::RangeEnd => (0, spares, cylinder * u64::from(self.layout.range_cylinders.max(1))),
            Spares::CylinderFront => (spares, 0, cylinder),
        };
        let pace = TrackTiming::of_band(band, self.layout.spares, self.heads, self.turn, self.switches);
        let mut start = 0;
        let mut slipped = slipped.into_iter().peekable();
        while start < all && self.first < self.layout.sectors && self.zones.len() < MOST_PIECES {
            let end = (start + range.max(1)).min(all);
            let (mut at, stop) = (start + front, end.saturating_sub(back));
            // What slips within the range is made good by its spares.
            let mut spare = if self.layout.slips_use_spares { back } else { 0 };
            let mut stop = stop.max(at);
            while let Some(bad) = slipped.next_if(|&bad| bad < stop) {
                self.piece(band, pace, at, bad);
                at = at.max(bad.saturating_add(size));
                let made_good = size.min(spare);
                (spare, stop) = (spare - made_good, stop + made_good);
            }
            self.piece(band, pace, at, stop.min(end));
            start = end;
        }
    }

    /// Adds the sectors from `at` to `end` of the band, with those that are remapped in their other places.
    fn piece(&mut self, band: &Band, pace: TrackTiming, at: u64, end: u64) {
        let mut at = at;
        while let Some((from, to)) = self.remapped.last().copied().filter(|&(from, _)| from < end) {
            self.remapped.pop();
            if from >= at {
                self.run(band, pace, at, from);
                self.run(band, pace, to, to.saturating_add(self.defect));
                at = from.saturating_add(self.defect);
            }
        }
        self.run(band, pace, at, end);
    }

    /// Adds the sectors from `at` to `end` of the band, where they are not reserved.
    fn run(&mut self, band: &Band, pace: TrackTiming, at: u64, end: u64) {
        let reserved = self.reserved.min(end.saturating_sub(at));
        self.reserved -= reserved;
        let at = at + reserved;
        let sectors = end.saturating_sub(at).min(self.layout.sectors - self.first.min(self.layout.sectors));
        let fits = u32::try_from(at).is_ok() && u32::try_from(sectors).is_ok() && self.zones.len() < MOST_PIECES;
        if sectors > 0 && fits {
            self.zones.push(Zone::of_band(band, self.layout.order, pace, (self.first, at as u32, sectors as u32)));
            self.first += sectors;
        }
    }
}

impl TrackTiming {
    fn of_band(band: &Band, spares: Spares, heads: u32, turn: u64, switches: Switches) -> TrackTiming {
        let physical = u64::from(band.sectors_per_track.max(1));
        let spare = if spares == Spares::TrackEnd { u64::from(band.spares).min(physical - 1) } else { 0 };
        let sector_turn = (1 << 48) / physical;
        let sector_time = (turn << 16) / physical;
        let angle = |sectors: f64| ((sectors.clamp(-1e6, 1e6) * sector_turn as f64 / 65_536.0) as i64) as u32;
        let time = |sectors: f64, least: u64| {
            let skew = (sectors.clamp(0.0, 1e6) + spare as f64) * sector_time as f64 / 65_536.0;
            at_least(skew as u64, least, turn)
        };
        let (head_skew, cylinder_skew) =
            (time(band.track_skew, switches.head), time(band.cylinder_skew, switches.cylinder));
        let passing = (physical - spare) * sector_time;
        let streamed = passing + (((u64::from(heads) - 1) * head_skew + cylinder_skew) << 16) / u64::from(heads);
        TrackTiming {
            track: Divisor::new((physical - spare) as u32),
            sector_turn,
            sector_time,
            streamed_time: streamed / (physical - spare),
            head_skew,
            cylinder_skew,
            head_skew_angle: angle(band.track_skew),
            cylinder_skew_angle: angle(band.cylinder_skew),
        }
    }
}

impl Zone {
    /// The piece of `place`: its first address, its first sector within the band, and how many it has.
    fn of_band(band: &Band, order: TrackOrder, pace: TrackTiming, place: (u64, u32, u32)) -> Zone {
        let (first, skip, sectors) = place;
        let sector = 4_294_967_296.0 / f64::from(band.sectors_per_track.max(1));
        Zone {
            first,
            skip,
            sectors,
            first_cylinder: band.first_cylinder,
            begins: (band.offset.clamp(-1e6, 1e6) * sector) as i64 as u32,
            turns_back: match order {
                TrackOrder::Upwards => None,
                TrackOrder::BackAndForthInBand => Some(0),
                TrackOrder::BackAndForth => Some(band.first_cylinder & 1),
            },
            gap: 0,
            continues: true,
            pace,
        }
    }
}
