//! From timings to a profile that the model reads. What reads cannot show is assumed, and the profile says so.

use std::collections::BTreeSet;

use umbrella_model::device::disk::{Band, BufferRules, ReadAheadTo, SectorLayout, Spares, TrackOrder, WriteBack};

use super::super::profile::{Commands, DriveProfile, FIGURES, ProfileError, Sources};
use super::heads::FoundBy;
use super::{BufferTimings, RotatingTimings};

/// What such drives usually have, where the time was over too early.
const USUAL_SEGMENTS: u32 = 16;
const USUAL_SEGMENT_SECTORS: u32 = 1024;
const USUAL_DEPTH: u32 = 32;
/// The command is on its way so long before the heads move, in milliseconds, where no buffer shows it.
const USUAL_OVERHEAD: f64 = 0.1;

impl RotatingTimings {
    /// The disk as a profile of that name.
    pub fn profile(&self, name: &str) -> Result<DriveProfile, ProfileError> {
        let turn_ms = 60_000.0 / f64::from(self.rpm.max(1));
        // A skew lets a stream continue without losing a turn, so nothing that happens at it takes longer.
        let longest = |skew: fn(&super::Zone) -> f64| {
            let turns = self.zones.iter().map(|zone| skew(zone) / f64::from(zone.sectors_per_track.max(1)));
            (turns.fold(f64::INFINITY, f64::min) * turn_ms * (1.0 - 1e-4) - 1e-6).max(0.0)
        };
        let (track_skew, cylinder_skew) = (longest(|zone| zone.track_skew), longest(|zone| zone.cylinder_skew));
        let mut seeks: Vec<(u32, f64)> = self.seeks.iter().map(|seek| (seek.cylinders, seek.ms)).collect();
        if seeks.is_empty() {
            seeks.push((1, cylinder_skew));
        }
        if let Some((1, time)) = seeks.first_mut() {
            *time = time.min(cylinder_skew);
        }
        let profile = DriveProfile {
            name: name.to_owned(),
            rpm: self.rpm,
            heads: self.heads.count,
            cylinders: self.cylinders,
            head_switch_ms: self.head_switch_ms.unwrap_or(track_skew).min(track_skew),
            write_settle_ms: 0.0,
            settles_again: false,
            queue_depth: self.queue.enough().unwrap_or(USUAL_DEPTH),
            sources: self.sources(),
            commands: self.buffer.commands(),
            buffer: self.buffer.rules(),
            seeks,
            layout: self.layout(),
        };
        profile.check()?;
        Ok(profile)
    }

    fn layout(&self) -> SectorLayout {
        let bands = self.zones.iter().map(|zone| {
            let cylinder = u64::from(zone.sectors_per_track) * u64::from(self.heads.count);
            let last = zone.first_cylinder + zone.cylinders.max(1) - 1;
            Band {
                first_cylinder: zone.first_cylinder,
                last_cylinder: last,
                sectors_per_track: zone.sectors_per_track,
                offset: zone.offset,
                track_skew: zone.track_skew,
                cylinder_skew: zone.cylinder_skew,
                spares: (cylinder * u64::from(zone.cylinders)).saturating_sub(zone.sectors) as u32,
                ..Band::default()
            }
        });
        SectorLayout {
            sectors: self.sectors,
            order: TrackOrder::Upwards,
            spares: Spares::BandEnd,
            range_cylinders: 1,
            slips_use_spares: false,
            bands: bands.collect(),
        }
    }

    fn sources(&self) -> Sources {
        let assumed = |figure: &str| match figure {
            "write_settle_ms" | "settles_again" => true,
            "heads" => self.heads.found_by == FoundBy::NotFound,
            "head_switch_ms" => self.head_switch_ms.is_none(),
            "queue_depth" => self.queue.enough().is_none(),
            "seeks" => self.seeks.is_empty(),
            "buffer" => self.buffer.segments.is_none(),
            "commands" => self.buffer.hit_ms.is_none(),
            _ => false,
        };
        let (guessed, measured): (BTreeSet<String>, BTreeSet<String>) =
            FIGURES.map(str::to_owned).into_iter().partition(|figure| assumed(figure));
        // Reads do not show what writes take; they are taken to be alike.
        let of_writes =
            ["commands.write_hit_ms", "commands.write_miss_ms", "commands.write_sector_ms", "buffer.write_back"];
        let assumed = guessed.into_iter().chain(of_writes.map(str::to_owned)).collect();
        Sources { measured, assumed, ..Sources::default() }
    }
}

impl BufferTimings {
    fn commands(&self) -> Commands {
        let sector = self.sector_ms.unwrap_or_default();
        let overhead = self.hit_ms.map_or(USUAL_OVERHEAD, |hit| (hit - sector).max(0.0));
        Commands {
            read_hit_ms: [overhead; 2],
            read_miss_ms: [overhead; 2],
            write_hit_ms: [overhead; 2],
            write_miss_ms: [overhead; 2],
            read_sector_ms: sector,
            write_sector_ms: sector,
            ..Commands::default()
        }
    }

    fn rules(&self) -> BufferRules {
        let read_ahead_sectors = self.read_ahead_sectors.unwrap_or(USUAL_SEGMENT_SECTORS);
        BufferRules {
            // One more, for what is written.
            segments: self.segments.map_or(USUAL_SEGMENTS, |streams| streams + 1),
            segment_sectors: self.segment_sectors.unwrap_or(USUAL_SEGMENT_SECTORS).max(read_ahead_sectors),
            read_ahead: self.read_ahead.unwrap_or(ReadAheadTo::SegmentEnd),
            read_ahead_sectors,
            keeps_requested: true,
            read_ahead_after_hits: self.read_ahead != Some(ReadAheadTo::Nowhere),
            keeps_passing: self.keeps_passing.unwrap_or(false),
            reads_written: true,
            any_order: self.any_order.unwrap_or(false),
            write_back: WriteBack::OneStream,
        }
    }
}
