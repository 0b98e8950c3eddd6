//! Every figure of a disk: one table with name, meaning and source.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_block::emulated::Meter;
use umbrella_block::hybrid::HybridStats;
use umbrella_block::log_store::LogStoreStats;
use umbrella_block::serve::{Traffic, nbd};
use umbrella_units::{ByteSize, Nanos};

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Figure {
    Count(u64),
    Real(f64),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Count(count) => write!(f, "{count}"),
            Figure::Real(real) => write!(f, "{real:.3}"),
        }
    }
}

/// What figures come from; what a disk does not have it has no figures of.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) cache: Option<HybridStats>,
    pub(crate) log: Option<LogStoreStats>,
    /// What this machine asked of the disk that is attached to it.
    pub(crate) here: Traffic,
    /// The figures of an emulated disk.
    pub(crate) disk: Option<Meter>,
    /// The figures of emulated flash.
    pub(crate) flash: Option<Meter>,
    /// Reads of the disk that failed.
    pub(crate) disk_failed_reads: u64,
    /// Failed reads of the flash, if there is one.
    pub(crate) flash_failed_reads: Option<u64>,
    /// How long a hybrid disk took to spin up the last time.
    pub(crate) spin_up_time: Option<Duration>,
}

type Read = fn(&nbd::Stats, &Sources) -> Option<Figure>;

const TABLE: &[(&str, &str, Read)] = &[
    ("umbrella_disk_clients_count", "NBD connections now (gauge)", |nbd, _| count(nbd.connections)),
    ("umbrella_disk_clients_accepted_count", "NBD connections since the start", |nbd, _| count(nbd.accepted)),
    ("umbrella_disk_clients_refused_count", "NBD connections refused because too many were open", |nbd, _| {
        count(nbd.turned_away)
    }),
    ("umbrella_disk_reads_count", "reads by NBD clients and this machine", |nbd, s| count(nbd.reads + s.here.reads)),
    ("umbrella_disk_read_bytes", "bytes read by NBD clients and this machine", |nbd, s| {
        count(nbd.read_bytes + s.here.read.0)
    }),
    ("umbrella_disk_writes_count", "writes by NBD clients and this machine", |nbd, s| {
        count(nbd.writes + s.here.writes)
    }),
    ("umbrella_disk_written_bytes", "bytes written by NBD clients and this machine", |nbd, s| {
        count(nbd.written_bytes + s.here.written.0)
    }),
    (
        "umbrella_disk_write_distance_bytes",
        "from the end of each write of this machine to the beginning of the next, summed",
        |_, s| bytes(s.here.write_distance),
    ),
    ("umbrella_disk_flushes_count", "flushes by NBD clients and this machine", |nbd, s| {
        count(nbd.flushes + s.here.flushes)
    }),
    ("umbrella_disk_others_count", "other requests of NBD clients and this machine", |nbd, s| {
        count(nbd.others + s.here.others)
    }),
    ("umbrella_disk_failed_reads_count", "reads of the disk itself that failed", |_, s| count(s.disk_failed_reads)),
    ("umbrella_cache_flash_failed_reads_count", "reads of the flash that failed", |_, s| count(s.flash_failed_reads?)),
    (
        "umbrella_cache_flash_damaged_reads_count",
        "reads of the flash that returned other data than was written",
        |_, s| count(s.cache.as_ref()?.damaged_reads),
    ),
    ("umbrella_cache_used_bytes", "bytes of the log that may not be overwritten (gauge)", |_, s| {
        bytes(s.cache.as_ref()?.log_used)
    }),
    ("umbrella_cache_size_bytes", "bytes of the log", |_, s| bytes(s.cache.as_ref()?.log_size)),
    ("umbrella_cache_cached_bytes", "bytes whose newest data is only on flash (gauge)", |_, s| {
        bytes(s.cache.as_ref()?.cached)
    }),
    (
        "umbrella_cache_flash_written_bytes",
        "bytes ever written to the flash, crashes and superblocks included: its wear",
        |_, s| bytes(s.cache.as_ref()?.flash_written),
    ),
    ("umbrella_cache_laps_count", "how often the log was written from one end to the other", |_, s| {
        Some(Figure::Real(s.cache.as_ref()?.log_laps))
    }),
    ("umbrella_cache_records_count", "records written to the log", |_, s| count(s.cache.as_ref()?.records)),
    ("umbrella_cache_reads_count", "reads", |_, s| count(s.cache.as_ref()?.reads)),
    ("umbrella_cache_hits_count", "reads that needed nothing of the disk", |_, s| {
        count(s.cache.as_ref()?.reads_from_log)
    }),
    ("umbrella_cache_wakes_count", "reads that had to wake the disk", |_, s| count(s.cache.as_ref()?.reads_that_woke)),
    ("umbrella_cache_writes_count", "writes", |_, s| count(s.cache.as_ref()?.writes)),
    ("umbrella_cache_logged_count", "writes that went to the log", |_, s| count(s.cache.as_ref()?.writes_to_log)),
    ("umbrella_cache_drains_count", "times the log was drained", |_, s| count(s.cache.as_ref()?.drains)),
    ("umbrella_cache_drained_bytes", "bytes brought from flash to the disk", |_, s| bytes(s.cache.as_ref()?.drained)),
    ("umbrella_cache_drain_seconds", "time spent draining", |_, s| seconds(s.cache.as_ref()?.drain_time)),
    ("umbrella_cache_slowed_count", "writes held back because the log was filling up", |_, s| {
        count(s.cache.as_ref()?.slowed)
    }),
    ("umbrella_cache_slowed_seconds", "for how long, summed over the writers that waited", |_, s| {
        seconds(s.cache.as_ref()?.slowed_time)
    }),
    ("umbrella_spindle_ups_count", "times the disk was woken", |_, s| count(s.cache.as_ref()?.spin_ups)),
    ("umbrella_spindle_downs_count", "times it was put to sleep", |_, s| count(s.cache.as_ref()?.spin_downs)),
    ("umbrella_spindle_asleep_seconds", "time that it slept", |_, s| seconds(s.cache.as_ref()?.asleep)),
    ("umbrella_spindle_spin_up_seconds", "how long it took to wake it the last time, measured (gauge)", |_, s| {
        Some(Figure::Real(s.spin_up_time?.as_secs_f64()))
    }),
    ("umbrella_log_size_bytes", "bytes that the log store promises (gauge)", |_, s| bytes(s.log.as_ref()?.size)),
    ("umbrella_log_live_bytes", "bytes of them in use (gauge)", |_, s| bytes(s.log.as_ref()?.live)),
    ("umbrella_log_segments_count", "segments of the log (gauge)", |_, s| count(s.log.as_ref()?.segments.into())),
    ("umbrella_log_free_segments_count", "free ones (gauge)", |_, s| count(s.log.as_ref()?.free_segments.into())),
    ("umbrella_log_reserve_segments_count", "free ones that only the cleaner may use (gauge)", |_, s| {
        count(s.log.as_ref()?.reserve_segments.into())
    }),
    ("umbrella_log_damaged_segments_count", "segments that cannot be read, and are not cleaned (gauge)", |_, s| {
        count(s.log.as_ref()?.damaged_segments.into())
    }),
    ("umbrella_log_damaged_reads_count", "reads refused because a checksum was wrong or not known", |_, s| {
        count(s.log.as_ref()?.damaged_reads)
    }),
    (
        "umbrella_log_lost_bytes",
        "bytes lost to damage, which cannot be read until they are written again (gauge)",
        |_, s| bytes(s.log.as_ref()?.lost),
    ),
    ("umbrella_log_written_bytes", "bytes written by users since the store was made", |_, s| {
        bytes(s.log.as_ref()?.written)
    }),
    ("umbrella_log_copied_bytes", "bytes that the cleaner moved since then", |_, s| bytes(s.log.as_ref()?.copied)),
    ("umbrella_log_map_written_bytes", "bytes of the map written since then", |_, s| {
        bytes(s.log.as_ref()?.map_written)
    }),
    ("umbrella_log_headers_written_bytes", "bytes of headers written since then", |_, s| {
        bytes(s.log.as_ref()?.headers_written)
    }),
    ("umbrella_log_write_amplification_ratio", "all that was written since then, for each byte by users", |_, s| {
        Some(Figure::Real(s.log.as_ref()?.write_amplification))
    }),
    ("umbrella_log_cleaner_read_bytes", "bytes that the cleaner read since then", |_, s| {
        bytes(s.log.as_ref()?.cleaner_read)
    }),
    ("umbrella_log_discarded_bytes", "bytes discarded by users since then", |_, s| bytes(s.log.as_ref()?.discarded)),
    ("umbrella_log_cleaned_segments_count", "segments cleaned since then", |_, s| {
        count(s.log.as_ref()?.segments_cleaned)
    }),
    ("umbrella_log_flushes_count", "flushes by users since then", |_, s| count(s.log.as_ref()?.flushes)),
    ("umbrella_log_reads_count", "reads", |_, s| count(s.log.as_ref()?.reads)),
    ("umbrella_log_writes_count", "writes", |_, s| count(s.log.as_ref()?.writes)),
    ("umbrella_log_seek_distance_bytes", "how far the arm went between requests, in bytes passed over", |_, s| {
        bytes(s.log.as_ref()?.seek_distance)
    }),
    ("umbrella_log_checkpoints_count", "checkpoints made", |_, s| count(s.log.as_ref()?.checkpoints)),
    ("umbrella_log_map_memory_bytes", "memory for the map (gauge)", |_, s| bytes(s.log.as_ref()?.map_memory)),
    ("umbrella_log_map_reads_count", "pages of the map read because they were not in memory", |_, s| {
        count(s.log.as_ref()?.map_reads)
    }),
    ("umbrella_log_slowed_count", "writes held back so that cleaning keeps up", |_, s| count(s.log.as_ref()?.slowed)),
    ("umbrella_log_slowed_seconds", "for how long, summed over the writers that waited", |_, s| {
        seconds(s.log.as_ref()?.slowed_time)
    }),
    (
        "umbrella_log_replayed_chunks_count",
        "chunks found behind the last checkpoint when the store was opened",
        |_, s| count(s.log.as_ref()?.replayed),
    ),
    ("umbrella_emulated_disk_served_count", "requests that the emulated disk served", |_, s| {
        count(s.disk.as_ref()?.served)
    }),
    ("umbrella_emulated_disk_energy_joules", "energy that it took, reckoned with watts (see `watts`)", |_, s| {
        Some(Figure::Real(s.disk.as_ref()?.energy().joules()))
    }),
    ("umbrella_emulated_disk_clock_seconds", "its own time since the start", |_, s| seconds(s.disk.as_ref()?.now)),
    ("umbrella_emulated_disk_busy_seconds", "time of that in which it served anything", |_, s| {
        seconds(s.disk.as_ref()?.device.busy)
    }),
    ("umbrella_emulated_disk_seeks_count", "times that its heads moved", |_, s| count(s.disk.as_ref()?.device.seeks)),
    ("umbrella_emulated_disk_seek_cylinders_count", "cylinders that they travelled", |_, s| {
        count(s.disk.as_ref()?.device.seek_cylinders)
    }),
    ("umbrella_emulated_disk_crossings_count", "writes to flash in another 1 MB than the one before", |_, s| {
        count(s.disk.as_ref()?.device.boundary_crossings)
    }),
    ("umbrella_emulated_disk_erases_count", "erase operations of flash", |_, s| count(s.disk.as_ref()?.device.erases)),
    ("umbrella_emulated_flash_served_count", "requests that the emulated flash served", |_, s| {
        count(s.flash.as_ref()?.served)
    }),
    ("umbrella_emulated_flash_energy_joules", "energy that it took, reckoned with watts (see `watts`)", |_, s| {
        Some(Figure::Real(s.flash.as_ref()?.energy().joules()))
    }),
];

#[expect(clippy::unnecessary_wraps, reason = "a column of the table, where others have none")]
fn count(number: u64) -> Option<Figure> {
    Some(Figure::Count(number))
}

fn bytes(size: ByteSize) -> Option<Figure> {
    count(size.0)
}

#[expect(clippy::unnecessary_wraps, reason = "a column of the table, where others have none")]
fn seconds(time: Nanos) -> Option<Figure> {
    Some(Figure::Real(time.as_secs_f64()))
}

/// All figures that there are, by name.
pub(crate) fn figures(nbd: &nbd::Stats, sources: &Sources) -> BTreeMap<String, Figure> {
    TABLE.iter().filter_map(|(name, _, read)| Some(((*name).to_owned(), read(nbd, sources)?))).collect()
}

/// What a figure means, and its place among the others.
pub(crate) fn meaning(name: &str) -> Option<(usize, &'static str)> {
    let place = TABLE.iter().position(|(known, ..)| *known == name)?;
    Some((place, TABLE.get(place)?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_figure_and_no_other() {
        let page = include_str!("../../../../docs/disk.md");
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `umbrella_")).collect();
        let table: Vec<String> = TABLE.iter().map(|(name, meaning, _)| format!("| `{name}` | {meaning} |")).collect();
        assert_eq!(documented, table);
    }
}
