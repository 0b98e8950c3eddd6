//! A drive's profile in a file: what was measured of it, in TOML. For each figure it says where it comes from.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbrella_model::device::disk::{
    self, BufferRules, CommandGaps, CommandTimes, DiskSpec, Measured, Rate, SectorLayout, SeekTimes,
};
use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES};

/// The largest profile that is read, in bytes.
const LARGEST: usize = 16 << 20;
/// No drive has more.
const MOST_HEADS: u32 = 256;
const MOST_CYLINDERS: u32 = 1 << 24;
const MOST_BANDS: usize = 4096;

/// Milliseconds in a file.
type Millis = f64;

/// Where the figures come from. Each figure and table of the profile is named once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sources {
    /// Measured of a real drive.
    pub measured: BTreeSet<String>,
    /// From the maker's documents.
    pub datasheet: BTreeSet<String>,
    /// From nowhere: what such drives usually have.
    pub assumed: BTreeSet<String>,
}

/// What commands and the bus take, in milliseconds. Two numbers: after a read, after a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Commands {
    /// Until data flows, for a read from the buffer.
    pub read_hit_ms: [Millis; 2],
    /// Until the heads move, for a read from the media.
    pub read_miss_ms: [Millis; 2],
    /// Until data flows, for a write that completes in the buffer.
    pub write_hit_ms: [Millis; 2],
    /// Until the heads may move, for a write that completes on the media.
    pub write_miss_ms: [Millis; 2],
    /// What a write's heads wait longer than that.
    pub write_seek_delay_ms: Millis,
    /// From then on until a write that does not continue the one before reaches the media, at the earliest.
    pub write_positioning_ms: Millis,
    /// Before the data of a read flows from the buffer.
    pub read_prepare_ms: Millis,
    /// The same where data had to come from the media.
    pub read_resume_ms: Millis,
    /// Before the data of a write flows.
    pub write_prepare_ms: Millis,
    /// Behind a read's data.
    pub read_done_ms: Millis,
    /// Behind a write's data.
    pub write_done_ms: Millis,
    /// A sector on the bus, to the host.
    pub read_sector_ms: Millis,
    /// A sector on the bus, from the host.
    pub write_sector_ms: Millis,
    /// The share of a read that is in the buffer before it goes over the bus, from 0 to 1.
    pub read_share: f64,
    /// What is different for a write that follows a write elsewhere, where the drive then leaves the bus before it
    /// takes the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_disconnect: Option<ExtraDisconnect>,
}

/// A write that leaves the bus once more; in milliseconds. Each value replaces that of another write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtraDisconnect {
    /// In place of `write_miss_ms`.
    pub overhead_ms: Millis,
    /// In place of `write_seek_delay_ms`.
    pub seek_delay_ms: Millis,
    /// In place of `write_prepare_ms`.
    pub prepare_ms: Millis,
    /// In place of `write_done_ms`.
    pub done_ms: Millis,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveProfile {
    /// What it is called.
    pub name: String,
    /// Turns a minute.
    pub rpm: u32,
    /// Surfaces that hold data.
    pub heads: u32,
    /// Tracks on each surface.
    pub cylinders: u32,
    /// From one surface to another one of the same cylinder.
    pub head_switch_ms: Millis,
    /// What settling for a write takes longer than for a read.
    #[serde(default)]
    pub write_settle_ms: Millis,
    /// Whether the heads settle again on the cylinder where they are: before a write, and before a read that follows
    /// one.
    #[serde(default)]
    pub settles_again: bool,
    /// Commands that it takes at once.
    pub queue_depth: u32,
    /// Where the figures come from.
    pub sources: Sources,
    /// What commands and the bus take.
    pub commands: Commands,
    /// What is kept in the buffer.
    pub buffer: BufferRules,
    /// Distances in cylinders, rising, and their times in milliseconds.
    pub seeks: Vec<(u32, Millis)>,
    /// Where the sectors lie.
    pub layout: SectorLayout,
}

/// An error in a profile.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is not such a file.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// It is too large.
    #[error("the profile is larger than {LARGEST} bytes")]
    TooLarge,
    /// A figure that no drive has.
    #[error("{figure}: {value} is out of range ({range})")]
    Figure {
        /// Which one.
        figure: &'static str,
        /// What it says.
        value: f64,
        /// What it may be.
        range: String,
    },
    /// A source is missing, or there are two.
    #[error("sources: {figure:?} must be in exactly one of measured, datasheet and assumed, but is in {count}")]
    Source {
        /// The figure.
        figure: String,
        /// How many lists name it.
        count: usize,
    },
    /// The bands overlap or are not in order.
    #[error("layout.bands: the band from cylinder {cylinder} must begin behind the previous one, and end on the drive")]
    Bands {
        /// Where the band begins.
        cylinder: u32,
    },
    /// The distances are not in order.
    #[error("seeks: distance {distance} must be larger than the one before it")]
    Seeks {
        /// Which one.
        distance: u32,
    },
}

/// The figures of every profile; each has a source.
pub(super) const FIGURES: [&str; 11] = [
    "rpm",
    "heads",
    "cylinders",
    "head_switch_ms",
    "write_settle_ms",
    "settles_again",
    "queue_depth",
    "commands",
    "buffer",
    "seeks",
    "layout",
];

impl DriveProfile {
    /// Reads the profile in a file.
    pub fn open(path: &Path) -> Result<DriveProfile, ProfileError> {
        let mut text = String::new();
        File::open(path)?.take(LARGEST as u64 + 1).read_to_string(&mut text)?;
        DriveProfile::parse(&text)
    }

    /// Reads a profile.
    pub fn parse(text: &str) -> Result<DriveProfile, ProfileError> {
        if text.len() > LARGEST {
            return Err(ProfileError::TooLarge);
        }
        let drive: DriveProfile = toml::from_str(text)?;
        drive.check()?;
        Ok(drive)
    }

    /// The file that says it.
    pub fn to_toml(&self) -> String {
        // A struct of numbers, lists and names has a form in TOML.
        toml::to_string(self).unwrap_or_default()
    }

    /// What no drive has is refused here, so that the model may rely on it.
    pub(super) fn check(&self) -> Result<(), ProfileError> {
        within("rpm", f64::from(self.rpm), 60.0, 1e6)?;
        within("heads", f64::from(self.heads), 1.0, f64::from(MOST_HEADS))?;
        within("cylinders", f64::from(self.cylinders), 1.0, f64::from(MOST_CYLINDERS))?;
        within("head_switch_ms", self.head_switch_ms, 0.0, 1e4)?;
        within("write_settle_ms", self.write_settle_ms, -1e4, 1e4)?;
        within("queue_depth", f64::from(self.queue_depth), 1.0, 256.0)?;
        within("seeks", self.seeks.len() as f64, 1.0, 65_536.0)?;
        let mut before = 0;
        for &(distance, millis) in &self.seeks {
            within("seeks", millis, 0.0, 6e4)?;
            if distance <= before {
                return Err(ProfileError::Seeks { distance });
            }
            before = distance;
        }
        self.commands.check()?;
        within("buffer.segments", f64::from(self.buffer.segments), 0.0, 65_536.0)?;
        self.check_bands()?;
        self.check_sources()
    }

    fn check_bands(&self) -> Result<(), ProfileError> {
        within("layout.bands", self.layout.bands.len() as f64, 1.0, MOST_BANDS as f64)?;
        within("layout.sectors", self.layout.sectors as f64, 1.0, 1e15)?;
        within("layout.range_cylinders", f64::from(self.layout.range_cylinders), 1.0, f64::from(MOST_CYLINDERS))?;
        let mut next = 0;
        for band in &self.layout.bands {
            let inside = next <= band.first_cylinder && band.first_cylinder <= band.last_cylinder;
            if !inside || band.last_cylinder >= self.cylinders {
                return Err(ProfileError::Bands { cylinder: band.first_cylinder });
            }
            next = band.last_cylinder + 1;
            within("sectors_per_track", f64::from(band.sectors_per_track), 1.0, 1e6)?;
            for sectors in [band.offset, band.track_skew, band.cylinder_skew] {
                within("offset or skew", sectors, -1e6, 1e6)?;
            }
        }
        Ok(())
    }

    fn check_sources(&self) -> Result<(), ProfileError> {
        let Sources { measured, datasheet, assumed } = &self.sources;
        let lists = [measured, datasheet, assumed];
        let all: BTreeSet<&str> =
            lists.iter().flat_map(|list| list.iter().map(String::as_str)).chain(FIGURES).collect();
        for figure in all {
            let count = lists.iter().filter(|list| list.contains(figure)).count();
            if count != 1 {
                return Err(ProfileError::Source { figure: figure.to_owned(), count });
            }
        }
        Ok(())
    }

    /// What the model needs of it.
    pub fn spec(&self) -> DiskSpec {
        let seek = |add: f64| self.seek_times(add);
        let per_second = |sectors: u32| Rate(u64::from(sectors) * SECTOR_BYTES * u64::from(self.rpm) / 60);
        let tracks = |of: Option<u32>| of.unwrap_or(1);
        let outer = tracks(self.layout.bands.first().map(|band| band.sectors_per_track));
        let inner = tracks(self.layout.bands.last().map(|band| band.sectors_per_track));
        DiskSpec {
            capacity: ByteSize(self.layout.sectors * SECTOR_BYTES),
            rpm: self.rpm,
            heads: self.heads,
            zones: self.layout.bands.len() as u32,
            outer_rate: per_second(outer),
            inner_rate: per_second(inner),
            read_seek: seek(0.0),
            write_seek: seek(self.write_settle_ms),
            head_switch: nanos(self.head_switch_ms),
            cylinder_switch: seek(0.0).track_to_track,
            overhead: nanos(0.5),
            interface: Rate::from_mb(5),
            cache: ByteSize(256 << 10),
            read_segments: 2,
            write_runs: 1,
            write_cache: false,
            queue_depth: self.queue_depth,
            age_limit: Nanos::from_millis(500),
            measured: Measured {
                layout: Some(self.layout.clone()),
                seeks: Some(self.seeks.iter().map(|&(distance, millis)| (distance, nanos(millis))).collect()),
                write_settle: (self.write_settle_ms * 1e6).round() as i64,
                settles_again: self.settles_again,
                commands: Some(self.commands.times()),
                buffer: Some(self.buffer),
            },
        }
    }

    /// The data sheet that the curve of seeks would have.
    fn seek_times(&self, add: f64) -> SeekTimes {
        let stroke = self.cylinders.max(2) - 1;
        let (mut sum, mut weights) = (0.0, 0.0);
        for step in 1..=256 {
            let distance = (f64::from(stroke) * f64::from(step) / 256.0).max(1.0);
            let weight = f64::from(self.cylinders) - distance;
            sum += weight * self.seek(distance);
            weights += weight;
        }
        SeekTimes {
            track_to_track: nanos(self.seek(1.0) + add),
            average: nanos(sum / weights + add),
            full_stroke: nanos(self.seek(f64::from(stroke)) + add),
        }
    }

    /// The time for a distance, in milliseconds.
    fn seek(&self, distance: f64) -> Millis {
        let next = self.seeks.partition_point(|&(at, _)| f64::from(at) < distance);
        match (next.checked_sub(1).and_then(|before| self.seeks.get(before)), self.seeks.get(next)) {
            (Some(&(from, low)), Some(&(to, high))) => {
                low + (high - low) * (distance - f64::from(from)) / f64::from(to - from)
            }
            (Some(&(_, millis)), None) | (None, Some(&(_, millis))) => millis,
            (None, None) => 0.0,
        }
    }
}

impl Commands {
    fn check(&self) -> Result<(), ProfileError> {
        let after = [self.read_hit_ms, self.read_miss_ms, self.write_hit_ms, self.write_miss_ms].concat();
        let times = [
            self.write_seek_delay_ms,
            self.write_positioning_ms,
            self.read_prepare_ms,
            self.read_resume_ms,
            self.write_prepare_ms,
            self.read_done_ms,
            self.write_done_ms,
            self.read_sector_ms,
            self.write_sector_ms,
        ];
        let extra = self.extra_disconnect.unwrap_or_default();
        let extra = [extra.overhead_ms, extra.seek_delay_ms, extra.prepare_ms, extra.done_ms];
        after.into_iter().chain(times).chain(extra).try_for_each(|millis| within("commands", millis, 0.0, 6e4))?;
        within("commands.read_share", self.read_share, 0.0, 1.0)
    }

    fn times(&self) -> CommandTimes {
        let after = |[read, write]: [Millis; 2]| CommandGaps { read: nanos(read), write: nanos(write) };
        CommandTimes {
            read_hit: after(self.read_hit_ms),
            read_miss: after(self.read_miss_ms),
            write_hit: after(self.write_hit_ms),
            write_miss: after(self.write_miss_ms),
            write_seek_delay: nanos(self.write_seek_delay_ms),
            write_positioning: nanos(self.write_positioning_ms),
            read_prepare: nanos(self.read_prepare_ms),
            read_resume: nanos(self.read_resume_ms),
            write_prepare: nanos(self.write_prepare_ms),
            read_done: nanos(self.read_done_ms),
            write_done: nanos(self.write_done_ms),
            read_sector: nanos(self.read_sector_ms),
            write_sector: nanos(self.write_sector_ms),
            read_share: (self.read_share * 1000.0) as u16,
            extra_disconnect: self.extra_disconnect.map(ExtraDisconnect::times),
        }
    }
}

impl ExtraDisconnect {
    fn times(self) -> disk::ExtraDisconnect {
        disk::ExtraDisconnect {
            overhead: nanos(self.overhead_ms),
            seek_delay: nanos(self.seek_delay_ms),
            prepare: nanos(self.prepare_ms),
            done: nanos(self.done_ms),
        }
    }
}

fn nanos(millis: Millis) -> Nanos {
    Nanos((millis.max(0.0) * 1e6).round() as u64)
}

fn within(figure: &'static str, value: f64, least: f64, most: f64) -> Result<(), ProfileError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(ProfileError::Figure { figure, value, range: format!("{least} to {most}") })
}
