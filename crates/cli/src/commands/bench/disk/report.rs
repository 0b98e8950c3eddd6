//! What was measured, for people.

use std::fmt::Write;

use umbrella_lab::drive::timed::{
    BufferTimings, DiskTimings, FlashTimings, FoundBy, Measurement, QueueTimings, RotatingTimings,
};
use umbrella_model::device::disk::ReadAheadTo;
use umbrella_units::{ByteSize, SECTOR_BYTES};

use crate::text::count;

/// Zones and seeks that are shown; JSON has all of them.
const SHOWN: usize = 12;

/// The report on a disk.
pub(super) fn text(name: &str, timings: &DiskTimings) -> String {
    let mut text = format!("{name}: {}, {} in {:.0} s\n", timings.size, count(timings.reads, "read"), timings.seconds);
    let wrote = match (&timings.rotating, &timings.flash) {
        (Some(found), _) => rotating(&mut text, found, &timings.cut_short),
        (None, Some(found)) => flash(&mut text, found),
        (None, None) => Ok(()),
    };
    let wrote = wrote.and_then(|()| cut_short(&mut text, &timings.cut_short));
    let wrote = wrote.and_then(|()| match timings.unreadable {
        0 => Ok(()),
        unreadable => writeln!(text, "could not be read: {}; back up this disk", count(unreadable, "block")),
    });
    // Writing into a string does not fail.
    debug_assert!(wrote.is_ok());
    text
}

fn rotating(text: &mut String, found: &RotatingTimings, cut_short: &[Measurement]) -> std::fmt::Result {
    writeln!(text, "rotation       {:.4} ms a turn, {} rpm", found.turn_ms, found.rpm)?;
    let heads = match found.heads.found_by {
        FoundBy::Skews => "by the skews of tracks",
        FoundBy::Moves => "by head switches",
        FoundBy::NotFound if cut_short.contains(&Measurement::Heads) => "not measured: each track counts as a cylinder",
        FoundBy::NotFound => "not found: each track counts as a cylinder",
    };
    writeln!(text, "heads          {} ({heads}), {} cylinders", found.heads.count, found.cylinders)?;
    if let Some(switch) = found.head_switch_ms {
        writeln!(text, "head switch    {switch:.3} ms")?;
    }
    let complete = if found.zones_complete { "" } else { " (time ran out: not all borders are exact)" };
    writeln!(text, "zones          {}{complete}", found.zones.len())?;
    writeln!(text, "  first sector  sectors/track  track skew  cylinder skew     MB/s")?;
    for zone in spread(&found.zones) {
        let track = f64::from(zone.sectors_per_track);
        let heads = f64::from(found.heads.count);
        let turns = (track * heads + zone.track_skew * (heads - 1.0) + zone.cylinder_skew) / track;
        let rate = track * heads * SECTOR_BYTES as f64 / (turns * found.turn_ms) / 1e3;
        writeln!(
            text,
            "{:>14}{:>15}{:>12.1}{:>15.1}{rate:>9.1}",
            zone.start, zone.sectors_per_track, zone.track_skew, zone.cylinder_skew
        )?;
    }
    if !found.seeks.is_empty() {
        writeln!(text, "seeks, by cylinders")?;
    }
    for seek in spread(&found.seeks) {
        writeln!(text, "{:>14}{:>12.3} ms", seek.cylinders, seek.ms)?;
    }
    if found.buffer.hit_ms.is_some() || !cut_short.contains(&Measurement::Buffer) {
        buffer(text, &found.buffer)?;
    }
    queue(text, &found.queue)
}

/// What the time did not suffice for.
fn cut_short(text: &mut String, steps: &[Measurement]) -> std::fmt::Result {
    let names: Vec<&str> = steps.iter().copied().map(name).collect();
    if names.is_empty() {
        return Ok(());
    }
    writeln!(text, "not measured, or only in part, because time ran out: {}; give more --time", names.join(", "))
}

fn name(step: Measurement) -> &'static str {
    match step {
        Measurement::Rotation => "rotation",
        Measurement::Zones => "zones",
        Measurement::Heads => "heads and skews",
        Measurement::Seeks => "seeks",
        Measurement::Buffer => "buffer",
        Measurement::Queue => "reads in a queue",
        Measurement::Flash => "reads by size and queue depth",
    }
}

fn buffer(text: &mut String, found: &BufferTimings) -> std::fmt::Result {
    let Some(hit) = found.hit_ms else { return writeln!(text, "buffer         answers no read") };
    writeln!(text, "buffer         answers in {hit:.3} ms")?;
    if let (Some(to), Some(sectors)) = (found.read_ahead, found.read_ahead_sectors) {
        let to = match to {
            ReadAheadTo::Nowhere => "nothing",
            ReadAheadTo::TrackEnd => "to the end of the track, at most",
            ReadAheadTo::CylinderEnd => "to the end of the cylinder, at most",
            ReadAheadTo::SegmentEnd | ReadAheadTo::NextTrackEnd => "up to",
        };
        writeln!(text, "reads ahead    {to} {}", ByteSize(u64::from(sectors) * SECTOR_BYTES))?;
    }
    if let (Some(segments), Some(sectors)) = (found.segments, found.segment_sectors) {
        let size = ByteSize(u64::from(sectors) * SECTOR_BYTES);
        writeln!(text, "keeps          {} of {size} each", count(u64::from(segments), "stream"))?;
    }
    Ok(())
}

fn queue(text: &mut String, found: &QueueTimings) -> std::fmt::Result {
    if found.depths.is_empty() {
        return Ok(());
    }
    writeln!(text, "random reads a second, by queue depth")?;
    for timing in &found.depths {
        writeln!(text, "{:>14}{:>12.0}", timing.depth, timing.reads_per_second)?;
    }
    Ok(())
}

fn flash(text: &mut String, found: &FlashTimings) -> std::fmt::Result {
    writeln!(text, "no rotation found: the disk has no platters, or a cache answers for them")?;
    writeln!(text, "random reads one at a time, by size")?;
    for latency in &found.latencies {
        let size = ByteSize(latency.bytes).to_string();
        writeln!(text, "{size:>14}   median {:.3} ms   99 % below {:.3} ms", latency.median_ms, latency.p99_ms)?;
    }
    if let Some(rate) = found.sequential_bytes_per_second {
        writeln!(text, "sequential     {:.1} MB/s", rate / 1e6)?;
    }
    queue(text, &found.queue)
}

/// At most [`SHOWN`] of them, evenly spread, with the first and the last.
fn spread<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let shown = all.len().min(SHOWN);
    (0..shown).filter_map(move |number| all.get(number * (all.len() - 1) / (shown - 1).max(1)))
}
