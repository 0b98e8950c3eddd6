//! The counters and the state of a store.

use std::sync::atomic::Ordering;

use umbrella_policy::log_layout::{Layout, SegmentNo, State};
use umbrella_units::{ByteSize, Nanos, PAGE_BYTES};

use super::engine::LogStore;

/// A region of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegionStats {
    /// Segments in it.
    pub segments: u32,
    /// How many of them are free.
    pub free: u32,
    /// Live bytes in it.
    pub live: ByteSize,
    /// Segments in it that belong to another region's stream.
    pub guests: u32,
}

/// The counters and the state of a store. Counters run since the store was made, where nothing else is said.
#[derive(Debug, Clone, PartialEq)]
pub struct LogStoreStats {
    /// What is promised to the user.
    pub size: ByteSize,
    /// What of it is in use.
    pub live: ByteSize,
    /// Bytes of a segment.
    pub segment: ByteSize,
    /// All segments.
    pub segments: u32,
    /// Free ones.
    pub free_segments: u32,
    /// Empty ones, which the next checkpoint makes free.
    pub emptied_segments: u32,
    /// Free ones that only the cleaner may use.
    pub reserve_segments: u32,
    /// The regions, from the edges of the disk to its middle; one where there are none.
    pub regions: Vec<RegionStats>,
    /// Bytes that the user wrote.
    pub written: ByteSize,
    /// Bytes that the cleaner moved.
    pub copied: ByteSize,
    /// Bytes of map pages written.
    pub map_written: ByteSize,
    /// Bytes of chunk headers written.
    pub headers_written: ByteSize,
    /// Bytes that the cleaner read.
    pub cleaner_read: ByteSize,
    /// Bytes discarded.
    pub discarded: ByteSize,
    /// All bytes written to the log for each byte that the user wrote; 0 before the first.
    pub write_amplification: f64,
    /// Segments cleaned.
    pub segments_cleaned: u64,
    /// Victims since the opening, by the tenths of them that were live.
    pub victims: [u64; 11],
    /// Bytes that the disk's arm passed over between requests since the opening.
    pub seek_distance: ByteSize,
    /// Flushes by the user.
    pub flushes: u64,
    /// Checkpoints since the opening.
    pub checkpoints: u64,
    /// Requests to read since the opening.
    pub reads: u64,
    /// Requests to write since the opening.
    pub writes: u64,
    /// Pages of the map in memory, in bytes.
    pub map_memory: ByteSize,
    /// Pages of the map read since the opening.
    pub map_reads: u64,
    /// Writes that were held back since the opening.
    pub slowed: u64,
    /// How long, added up over all of them.
    pub slowed_time: Nanos,
    /// Segments that could not be read and are not cleaned.
    pub damaged_segments: u32,
    /// Reads since the opening that were refused, as a block was not what was written, or might not be.
    pub damaged_reads: u64,
    /// Bytes that are lost to damage, and cannot be read until they are written again.
    pub lost: ByteSize,
    /// Chunks that were found after the last checkpoint at the opening.
    pub replayed: u64,
    /// What was damaged at the opening, or was repaired since, in words.
    pub repaired: Vec<String>,
    /// Why writes are refused, if they are.
    pub refuses_writes: Option<String>,
}

impl LogStore {
    /// Its counters and its state.
    pub fn stats(&self) -> LogStoreStats {
        let shared = &*self.shared;
        let state = shared.state.lock();
        let (core, counts) = (&state.core, &state.counts);
        let bytes = |blocks: u64| ByteSize(blocks * PAGE_BYTES);
        let counters = core.counters;
        let regions = regions(&core.layout);
        let live = regions.iter().map(|region| region.live.0).sum::<u64>();
        let pages = core.index.iter().flatten().count() as u64;
        let (free_segments, reserve_segments) = core.layout.free();
        let log = counters.user_blocks + counters.copied_blocks + counters.map_blocks + counters.header_blocks;
        LogStoreStats {
            size: bytes(core.superblock.shape.advertised().0),
            live: ByteSize(live.saturating_sub(pages * PAGE_BYTES)),
            segment: bytes(u64::from(core.superblock.shape.segment_blocks())),
            segments: core.superblock.shape.segments(),
            free_segments,
            emptied_segments: emptied(&core.layout),
            reserve_segments,
            regions,
            written: bytes(counters.user_blocks),
            copied: bytes(counters.copied_blocks),
            map_written: bytes(counters.map_blocks),
            headers_written: bytes(counters.header_blocks),
            cleaner_read: bytes(counters.cleaner_reads),
            discarded: bytes(counters.discarded_blocks),
            write_amplification: if counters.user_blocks == 0 { 0.0 } else { log as f64 / counters.user_blocks as f64 },
            segments_cleaned: counters.cleaned_segments,
            victims: counts.victims,
            seek_distance: bytes(shared.travelled.load(Ordering::Relaxed)),
            flushes: counters.flushes,
            checkpoints: counts.checkpoints,
            reads: counts.reads,
            writes: counts.writes,
            map_memory: bytes(core.map.present() as u64),
            map_reads: counts.map_reads,
            slowed: counts.slowed,
            slowed_time: Nanos(u64::try_from(counts.slowed_time.as_nanos()).unwrap_or(u64::MAX)),
            damaged_segments: state.damaged.len() as u32,
            damaged_reads: counts.damaged_reads,
            repaired: counts.repaired.clone(),
            lost: bytes(core.map.lost()),
            replayed: counts.replayed,
            refuses_writes: state.poisoned.as_ref().map(ToString::to_string),
        }
    }
}

fn emptied(layout: &Layout) -> u32 {
    layout.table().iter().map(|segment| u32::from(segment.state == State::Cleaned)).sum()
}

fn regions(layout: &Layout) -> Vec<RegionStats> {
    let mut regions = vec![RegionStats::default(); layout.regions()];
    for (number, segment) in (0..).map(SegmentNo).zip(layout.table()) {
        let place = layout.region(number);
        let is_guest = layout.regions() > 1
            && segment.live > 0
            && usize::from(segment.stream.0).min(layout.regions() - 1) != place;
        let Some(region) = regions.get_mut(place) else { continue };
        region.segments += 1;
        region.free += u32::from(segment.state == State::Free);
        region.live.0 += u64::from(segment.live) * PAGE_BYTES;
        region.guests += u32::from(is_guest);
    }
    regions
}
