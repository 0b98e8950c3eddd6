//! Layouts: the first generation of DiskSim's (`dm_layout_g1`).

use umbrella_model::device::disk::{Band, SectorLayout, Spares, TrackOrder};

use super::error::ImportError;
use super::text::{Block, ParvValue, ValueKind};

/// Larger than any number of sectors, tracks or cylinders of a drive of that format.
const MOST: u64 = 1 << 40;

/// The layout of a model block.
pub(super) fn layout(model: &Block) -> Result<SectorLayout, ImportError> {
    let block = model.block("Layout Model")?;
    if block.kind != "dm_layout_g1" {
        let known = "dm_layout_g1";
        return Err(model.unknown("Layout Model", &block.kind, known));
    }
    let (spares, slips_use_spares, range_cylinders) = sparing(block)?;
    let revolutions = revolutions(block)?.unwrap_or(false);
    let Some(ParvValue { kind: ValueKind::List(zones), .. }) = block.get("Zones") else {
        return Err(block.missing("Zones"));
    };
    let bands = zones.iter().map(|zone| match &zone.kind {
        ValueKind::Block(zone) => band(zone, revolutions),
        _ => Err(block.missing("Zones")),
    });
    Ok(SectorLayout {
        sectors: model.count("Block count", MOST)?,
        order: match block.count("LBN-to-PBN mapping scheme", 2)? {
            0 => TrackOrder::Upwards,
            1 => TrackOrder::BackAndForthInBand,
            _ => TrackOrder::BackAndForth,
        },
        spares,
        range_cylinders,
        slips_use_spares,
        bands: bands.collect::<Result<_, _>>()?,
    })
}

/// Where spares are, whether slipped sectors use them, and the cylinders of a range.
fn sparing(block: &Block) -> Result<(Spares, bool, u32), ImportError> {
    let range = block.count_or("Rangesize for sparing", 1 << 24, 1)?.max(1) as u32;
    Ok(match block.count("Sparing scheme used", 10)? {
        0 | 7 => (Spares::DiskEnd, false, 1),
        1 => (Spares::BandTracks, true, 1),
        2 => (Spares::RangeEnd, true, 1),
        3 => (Spares::TrackEnd, false, 1),
        4 => (Spares::RangeEnd, false, 1),
        5 | 6 => (Spares::CylinderFront, false, 1),
        8 => (Spares::RangeEnd, true, range),
        9 => (Spares::BandEnd, true, 1),
        _ => (Spares::BandEnd, false, 1),
    })
}

/// Whether skews are shares of a turn.
fn revolutions(block: &Block) -> Result<Option<bool>, ImportError> {
    match block.text("Skew units") {
        None => Ok(None),
        Some("sectors") => Ok(Some(false)),
        Some("revolutions") => Ok(Some(true)),
        Some(other) => {
            let known = "sectors, revolutions";
            Err(block.unknown("Skew units", other, known))
        }
    }
}

fn band(zone: &Block, in_turns: bool) -> Result<Band, ImportError> {
    let track = zone.count("Blocks per track", 1 << 20)?.max(1) as u32;
    let unit = if revolutions(zone)?.unwrap_or(in_turns) { f64::from(track) } else { 1.0 };
    let skew = |key: &str| zone.number(key).map(|skew| skew.unwrap_or_default() * unit);
    let numbers = |key: &str| -> Result<Vec<u64>, ImportError> {
        Ok(zone.numbers(key)?.iter().map(|&number| number.max(0.0) as u64).collect())
    };
    Ok(Band {
        first_cylinder: zone.count("First cylinder number", 1 << 24)? as u32,
        last_cylinder: zone.count("Last cylinder number", 1 << 24)? as u32,
        sectors_per_track: track,
        offset: skew("Offset of first block")?,
        track_skew: skew("Skew for track switch")?,
        cylinder_skew: skew("Skew for cylinder switch")?,
        reserved: zone.count_or("Empty space at zone front", MOST, 0)?,
        spares: zone.count_or("Number of spares", 1 << 30, 0)? as u32,
        slipped: numbers("slips")?,
        remapped: numbers("defects")?.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
    })
}
