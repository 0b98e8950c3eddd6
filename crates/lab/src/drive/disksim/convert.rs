//! From DiskSim's blocks to a profile.

use umbrella_model::device::disk::{BufferRules, ReadAheadTo, WriteBack};

use super::super::profile::{Commands, DriveProfile, ExtraDisconnect, FIGURES, Sources};
use super::error::ImportError;
use super::text::Block;
use super::{ParameterFiles, layout, seek};

/// The one drive among `blocks`.
pub(super) fn drive(blocks: &[Block], files: &mut ParameterFiles) -> Result<DriveProfile, ImportError> {
    let disks: Vec<&Block> = blocks.iter().filter(|block| block.kind == "disksim_disk").collect();
    let disk = match *disks.as_slice() {
        [] => return Err(ImportError::NoDisk),
        [disk] => disk,
        [_, second, ..] => {
            return Err(ImportError::ManyDisks { line: second.line.clone(), count: disks.len() });
        }
    };
    let model = disk.block("Model")?;
    let mechanics = model.block("Mechanical Model")?;
    let layout = layout::layout(model)?;
    // Some files count one cylinder less than their bands have.
    let last = layout.bands.iter().map(|band| band.last_cylinder).max().unwrap_or_default();
    let cylinders = (model.count("Number of cylinders", 1 << 24)? as u32).max(last.saturating_add(1));
    let drive = DriveProfile {
        name: disk.name.clone(),
        rpm: mechanics.count("Rotation speed (in rpms)", 1_000_000)? as u32,
        heads: model.count("Number of data surfaces", 256)? as u32,
        cylinders,
        head_switch_ms: mechanics.millis("Head switch time")?,
        write_settle_ms: mechanics.millis("Add. write settling delay")?,
        queue_depth: disk.count_or("Max queue length", 256, 1)?.max(1) as u32,
        settles_again: true,
        sources: sources(),
        commands: commands(disk, blocks)?,
        buffer: buffer(disk)?,
        seeks: seek::curve(mechanics, cylinders, |name, line| files.beside(name, line))?,
        layout,
    };
    drive.check().map_err(|source| ImportError::Profile { line: disk.line.clone(), source })?;
    Ok(drive)
}

/// The format holds what was measured; it says nothing about settling.
fn sources() -> Sources {
    let (assumed, measured) = FIGURES.map(str::to_owned).into_iter().partition(|figure| figure == "settles_again");
    Sources { measured, assumed, ..Sources::default() }
}

/// The longest time of a sector, by disk, controllers and buses.
fn sector(disk: &Block, blocks: &[Block], key: &str) -> Result<f64, ImportError> {
    let on_disk = disk.millis("Bulk sector transfer time")?;
    blocks.iter().try_fold(on_disk, |longest, block| {
        Ok(match block.kind.as_str() {
            "disksim_bus" => longest.max(block.millis(key)?),
            "disksim_ctlr" => longest.max(block.millis("Bulk sector transfer time")?),
            _ => longest,
        })
    })
}

fn commands(disk: &Block, blocks: &[Block]) -> Result<Commands, ImportError> {
    let scale = disk.number("Time scale for overheads")?.unwrap_or(1.0);
    // A negative overhead, which makes up for another one in a fit, is none.
    let time = |key: &str| disk.millis(key).map(|millis| (millis * scale).max(0.0));
    let always = time("Per-request overhead time")?;
    let after = |name: &str| -> Result<[f64; 2], ImportError> {
        Ok([always + time(&format!("{name} over. after read"))?, always + time(&format!("{name} over. after write"))?])
    };
    let (prepare, reselect) = (time("Data preparation overhead")?, time("First reselect overhead")?);
    let leaves_bus = disk.count_or("Never disconnect", 1, 0)? == 0;
    let reselect = if leaves_bus { reselect } else { 0.0 };
    let mut commands = Commands {
        read_hit_ms: after("Read hit")?,
        read_miss_ms: after("Read miss")?,
        write_hit_ms: after("Write hit")?,
        write_miss_ms: after("Write miss")?,
        write_seek_delay_ms: 0.0,
        write_positioning_ms: time("Minimum seek delay")?,
        read_prepare_ms: prepare,
        read_resume_ms: prepare + reselect,
        write_prepare_ms: prepare,
        read_done_ms: time("Read completion overhead")?,
        write_done_ms: reselect + time("Write completion overhead")?,
        read_sector_ms: sector(disk, blocks, "Read block transfer time")?,
        write_sector_ms: sector(disk, blocks, "Write block transfer time")?,
        read_share: disk.number("High (read) water mark")?.unwrap_or_default(),
        extra_disconnect: None,
    };
    if leaves_bus && disk.count_or("Extra write disconnect", 1, 0)? == 1 {
        commands.extra_disconnect = Some(ExtraDisconnect {
            overhead_ms: always + time("Extradisc command overhead")?,
            seek_delay_ms: time("Extradisc seek delta")?,
            prepare_ms: time("Extradisc disconnect overhead")?
                + time("Extradisc inter-disconnect delay")?
                + reselect
                + prepare,
            done_ms: time("Other reselect overhead")? + time("Write completion overhead")?,
        });
    }
    Ok(commands)
}

fn buffer(disk: &Block) -> Result<BufferRules, ImportError> {
    let yes = |key: &str, default: u64| disk.count_or(key, 2, default).map(|value| value > 0);
    let caches = yes("Enable caching in buffer", 1)?;
    Ok(BufferRules {
        segments: disk.count("Number of buffer segments", 65_536)? as u32,
        segment_sectors: disk.count("Segment size (in blks)", 1 << 30)? as u32,
        read_ahead: match disk.count_or("Buffer continuous read", 4, 0)? {
            _ if !caches => ReadAheadTo::Nowhere,
            0 => ReadAheadTo::Nowhere,
            1 => ReadAheadTo::TrackEnd,
            2 => ReadAheadTo::CylinderEnd,
            3 => ReadAheadTo::SegmentEnd,
            _ => ReadAheadTo::NextTrackEnd,
        },
        read_ahead_sectors: disk.count_or("Maximum read-ahead (blks)", 1 << 30, 0)? as u32,
        keeps_requested: disk.number("Read-ahead over requested")?.unwrap_or_default() <= 0.0,
        read_ahead_after_hits: yes("Read-ahead on idle hit", 0)?,
        keeps_passing: yes("Read any free blocks", 0)?,
        reads_written: yes("Allow read hits on write data", 0)?,
        any_order: yes("Immediate buffer read", 0)?,
        write_back: if caches && yes("Fast write level", 0)? { WriteBack::OneStream } else { WriteBack::Never },
    })
}
