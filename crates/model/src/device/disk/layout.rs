//! A layout as it was measured of a drive: bands of cylinders with skews of their own, spares, slipped and remapped
//! sectors.

use serde::{Deserialize, Serialize};

/// In which order addresses go over the tracks of a cylinder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrackOrder {
    /// From the first surface to the last in every cylinder.
    Upwards,
    /// Back in every second cylinder; each band begins at the first surface.
    BackAndForthInBand,
    /// Back in every cylinder with an odd number.
    BackAndForth,
}

/// Where sectors are kept in reserve for defective ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spares {
    /// Nowhere, or behind the last address.
    DiskEnd,
    /// A number of tracks at the end of a band.
    BandTracks,
    /// A number of sectors at the end of a band.
    BandEnd,
    /// A number of sectors at the end of a track.
    TrackEnd,
    /// A number of sectors at the end of a range of cylinders.
    RangeEnd,
    /// A number of sectors at the beginning of a cylinder.
    CylinderFront,
}

/// Cylinders with the same number of sectors on each track.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Its first cylinder.
    pub first_cylinder: u32,
    /// Its last one.
    pub last_cylinder: u32,
    /// Sectors on each track, spares included.
    pub sectors_per_track: u32,
    /// Where in the turn its first sector begins, in sectors.
    #[serde(default)]
    pub offset: f64,
    /// How much later the next track of a cylinder begins, in sectors.
    pub track_skew: f64,
    /// How much later the next cylinder begins, in sectors.
    pub cylinder_skew: f64,
    /// Sectors at the front that hold nothing of the user's; spares and slipped sectors do not count.
    #[serde(default)]
    pub reserved: u64,
    /// Spare sectors or tracks, as `SectorLayout::spares` says.
    #[serde(default)]
    pub spares: u32,
    /// Defects that are passed over: numbers within the band, of tracks with `Spares::BandTracks`, else of sectors.
    #[serde(default)]
    pub slipped: Vec<u64>,
    /// Defects, and what holds their data: numbers in the same unit.
    #[serde(default)]
    pub remapped: Vec<(u64, u64)>,
}

/// Where the sectors of a drive lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectorLayout {
    /// Addresses.
    pub sectors: u64,
    /// The order of tracks.
    pub order: TrackOrder,
    /// Where spares are.
    pub spares: Spares,
    /// Cylinders in a range (`Spares::RangeEnd`).
    #[serde(default = "one")]
    pub range_cylinders: u32,
    /// Whether slipped sectors take the place of spares; otherwise they take that of data.
    #[serde(default)]
    pub slips_use_spares: bool,
    /// Outermost first.
    pub bands: Vec<Band>,
}

fn one() -> u32 {
    1
}
