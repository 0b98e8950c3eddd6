//! Finds the layout of a store when both copies of its superblock are damaged. It uses the checkpoints: their headers
//! lie at the beginning of their areas, and hold everything except the length of segments.
//!
//! For each length of segments, the areas are assumed where checkpoints were found. A guess counts if the whole
//! checkpoint fits: its table marks exactly these segments as the areas.

use std::collections::BTreeMap;

use umbrella_policy::log_layout::{SchemeInfo, SegmentNo};
use umbrella_units::BlockNo;
use uuid::Uuid;

use super::create::FIRST;
use super::format::{
    Area, BLOCK_BYTES, Blocks, CheckpointHeader, Compat, Generation, Incompat, Payload, Scheme, SegmentState, Shape,
    Stream, Superblock, UnixSeconds, area_segments,
};
use super::named::NamedDevice;

/// Blocks that are read at once.
const PIECE: u64 = 256;
/// Blocks of a segment, as powers of two.
const SEGMENT_BITS: std::ops::RangeInclusive<u32> = 4..=16;

/// The most headers and the most payloads that are tried: a device may hold images of other stores.
const MOST_FOUND: usize = 4096;
const MOST_TRIED: u32 = 1024;

/// A block that looks like the header of a checkpoint.
struct CheckpointBlock {
    at: BlockNo,
    bytes: Vec<u8>,
}

/// A superblock that fits the checkpoints that are found, if there is one.
///
/// Cost: the whole device is read, and at most [`MOST_TRIED`] payloads.
pub(super) fn guess(named: &NamedDevice) -> Option<Superblock> {
    let found = checkpoints(named);
    // The two areas lie beside each other: the next header of the same store is the other one's.
    let mut later: BTreeMap<Uuid, &CheckpointBlock> = BTreeMap::new();
    let mut pairs = Vec::new();
    for first in found.iter().rev() {
        let Some((store, ..)) = CheckpointHeader::identity(&first.bytes) else { continue };
        pairs.extend(later.insert(store, first).map(|second| (first, Some(second))));
    }
    let alone = found.iter().map(|only| (only, None));
    let mut left = MOST_TRIED;
    pairs.into_iter().rev().chain(alone).find_map(|(first, second)| {
        SEGMENT_BITS.into_iter().find_map(|bits| fitting(named, 1 << bits, (first, second), &mut left))
    })
}

fn checkpoints(named: &NamedDevice) -> Vec<CheckpointBlock> {
    let end = named.device.geometry().capacity.block().0;
    let mut found = Vec::new();
    let mut piece = vec![0; PIECE as usize * BLOCK_BYTES];
    for start in (FIRST.0..end).step_by(PIECE as usize) {
        let blocks = PIECE.min(end - start);
        piece.resize(blocks as usize * BLOCK_BYTES, 0);
        if named.block(BlockNo(start), &mut piece).is_err() {
            for (nth, block) in (0..).zip(piece.chunks_mut(BLOCK_BYTES)) {
                if named.block(BlockNo(start + nth), block).is_err() {
                    block.fill(0);
                }
            }
        }
        for (nth, block) in (0..).zip(piece.chunks(BLOCK_BYTES)) {
            let is_aligned = (start + nth - FIRST.0).is_multiple_of(1 << SEGMENT_BITS.start());
            if is_aligned && found.len() < MOST_FOUND && CheckpointHeader::is_one(block) {
                found.push(CheckpointBlock { at: BlockNo(start + nth), bytes: block.to_vec() });
            }
        }
    }
    found
}

/// The superblock of a store with segments of this length, if these are its checkpoints.
fn fitting(
    named: &NamedDevice,
    segment_blocks: u32,
    (first, second): (&CheckpointBlock, Option<&CheckpointBlock>),
    left: &mut u32,
) -> Option<Superblock> {
    let (store, segments, advertised, streams) = CheckpointHeader::identity(&first.bytes)?;
    let shape = Shape::new(segment_blocks, segments, Blocks(advertised), Stream(streams)).ok()?;
    let segment_at = |at: BlockNo| {
        let from = at.0.checked_sub(FIRST.0).filter(|from| from % u64::from(segment_blocks) == 0)?;
        u32::try_from(from / u64::from(segment_blocks)).ok()
    };
    let start = segment_at(first.at)?;
    let areas = if let Some(second) = second {
        let length = segment_at(second.at)?.checked_sub(start)?;
        [area(start, length), area(start + length, length)]
    } else {
        // They lie beside each other, as large as a checkpoint of all blocks.
        let all = Shape::new(segment_blocks, segments, shape.places(), Stream(streams)).ok()?;
        let length = u32::try_from(area_segments(&all)).ok()?;
        let middle = segments / 2;
        [area(middle.checked_sub(length)?, length), area(middle, length)]
    };
    let superblock = superblock(store, shape, areas)?;
    superblock.check().ok()?;
    superblock.check_capacity(named.device.geometry().capacity).ok()?;
    let header = CheckpointHeader::parse(&first.bytes, &superblock).ok()?;
    let is_there = areas.iter().any(|area| superblock.device_block(superblock.first_place(area.first)) == first.at);
    *left = left.checked_sub(1)?;
    let mut payload = vec![0; usize::try_from(header.payload.bytes.0).ok()?.next_multiple_of(BLOCK_BYTES)];
    named.block(BlockNo(first.at.0 + 1), &mut payload).ok()?;
    let payload = Payload::parse(&payload, &header, &superblock).ok()?;
    let mut table = (0..).map(SegmentNo).zip(payload.segments());
    let fits = table.all(|(number, row)| (row.state == SegmentState::System) == superblock.is_system(number));
    (is_there && fits).then_some(superblock)
}

fn area(first: u32, segments: u32) -> Area {
    Area { first: SegmentNo(first), segments }
}

fn superblock(store: Uuid, shape: Shape, areas: [Area; 2]) -> Option<Superblock> {
    // Nothing is placed any more; but it must be one with as many streams.
    let streams = shape.map_stream().0;
    let named = umbrella_policy::log_layout::schemes_for_disks().map(|info| info.name.to_owned());
    let scheme = named.chain([format!("r_lfs:regions={streams}")]).find(|text| {
        let made = text.parse().ok().and_then(|spec| SchemeInfo::make_for_disk(&spec).ok());
        made.is_some_and(|scheme| scheme.streams() == streams)
    })?;
    Some(Superblock {
        compat: Compat(0),
        incompat: Incompat::ALL,
        generation: Generation(0),
        store,
        created: UnixSeconds(0),
        shape,
        first: FIRST,
        areas,
        scheme: Scheme::new(&scheme).ok()?,
        pending_loss: None,
    })
}
