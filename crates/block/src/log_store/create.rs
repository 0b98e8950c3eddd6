//! Making a store.
//!
//! 1. Both copies of the superblock that may be there are written over with zeroes, and flushed: there is no store
//!    then.
//! 2. The first checkpoint is written: payload, flush, header, flush. The second area's header is zeroed before.
//! 3. Second copy of the superblock, first copy, flush. The store exists then.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use umbrella_policy::PolicyError;
use umbrella_policy::log_layout::{Layout, Room, SchemeInfo, SegmentNo, Shape as LogShape, Stream};
use umbrella_units::{BLOCK_SECTORS, BlockNo, ByteSize, Lba};
use uuid::Uuid;

use super::buffer::CHUNK_BLOCKS;
use super::checkpoint::{Progress, first_image};
use super::core::AfterCheckpoint;
use super::engine::Options;
use super::error::LogStoreError;
use super::footprint::{memory_of_machine, refuse_without_memory};
use super::format::{
    Area, BLOCK_BYTES, Blocks, CheckpointHeader, Compat, FormatError, Generation, Incompat, PLACE_BITS, Scheme, Shape,
    Superblock, UnixSeconds, area_segments,
};
use super::named::NamedDevice;
use super::recover::settings;
use crate::device::{BlockDevice, Durability};

/// How a new store is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// Where blocks are placed, as `name:param=value`.
    pub scheme: String,
    /// Bytes of a segment, a power of two; nothing for what suits the size of the device.
    pub segment: Option<ByteSize>,
    /// Thousandths of the space that are kept spare so that cleaning is cheap.
    pub spare: u32,
    /// Whether what is on the device may be overwritten.
    pub force: bool,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions { scheme: "r_lfs:regions=3".to_owned(), segment: None, spare: 100, force: false }
    }
}

/// Where segments begin: behind both copies of the superblock.
pub(super) const FIRST: BlockNo = BlockNo(512);
/// The smallest segment that is chosen by itself.
const LEAST_SEGMENT: u64 = 256 << 10;
/// The segment of all but very small and very large stores.
const USUAL_SEGMENT: u64 = 2 << 20;
/// The largest segment.
const MOST_SEGMENT: u64 = 256 << 20;
/// Segments that a store should have at most, unless they would be too large.
const MOST_SEGMENTS: u64 = 1 << 18;
/// The largest device: all of its blocks can be named in the map.
pub const MOST_BYTES: ByteSize = ByteSize((1 << PLACE_BITS) * BLOCK_BYTES as u64);

impl CreateOptions {
    /// Fails if a store cannot be made like that on a device of that name and size.
    pub fn fits(&self, name: &str, size: ByteSize) -> Result<(), LogStoreError> {
        plan(name, BlockNo(size.0 / BLOCK_BYTES as u64), self).map(drop)
    }
}

/// Makes a store on a device; everything on it is lost.
pub fn create(device: Arc<dyn BlockDevice>, name: &str, options: &CreateOptions) -> Result<Superblock, LogStoreError> {
    create_with(device, name, options, &mut |_, _| {})
}

/// The same; `progress` gets the number of bytes written of the first checkpoint, and that of all its bytes. The
/// checkpoint is nearly all that is written.
pub fn create_with(
    device: Arc<dyn BlockDevice>,
    name: &str,
    options: &CreateOptions,
    progress: Progress<'_>,
) -> Result<Superblock, LogStoreError> {
    let named = NamedDevice::new(name, device);
    let geometry = named.device.geometry();
    if geometry.logical_block as usize > BLOCK_BYTES {
        return Err(LogStoreError::LargeBlocks { device: named.name, block: geometry.logical_block });
    }
    if !options.force {
        refuse_occupied(&named)?;
    }
    let superblock = plan(&named.name, geometry.capacity.block(), options)?;
    refuse_without_memory(&named.name, &superblock.shape, memory_of_machine())?;
    let format = |source| named.format(source);
    let zeroes = [0; BLOCK_BYTES];
    let write = |at: BlockNo, block: &[u8]| named.device.write(Lba(at.0 * BLOCK_SECTORS), block, Durability::Cached);
    for copy in Superblock::COPIES {
        write(copy, &zeroes)?;
    }
    for area in superblock.areas {
        write(superblock.device_block(superblock.first_place(area.first)), &zeroes)?;
    }
    named.flush()?;
    let settings = settings(&named, &superblock, Options::default())?;
    let layout = Layout::new(settings, |segment| superblock.is_system(segment));
    first_image(&superblock, &layout, AfterCheckpoint::InOrder).write_with(&named, progress)?;
    let block = superblock.encode().map_err(format)?;
    let [first, second] = Superblock::COPIES;
    write(second, &block)?;
    write(first, &block)?;
    named.flush()?;
    Ok(superblock)
}

/// What the store will be like.
fn plan(name: &str, capacity: BlockNo, options: &CreateOptions) -> Result<Superblock, LogStoreError> {
    let device = || name.to_owned();
    let scheme_error = |source: PolicyError| LogStoreError::Scheme { device: device(), source: Box::new(source) };
    let spec = options.scheme.parse().map_err(scheme_error)?;
    let streams = SchemeInfo::make_for_disk(&spec).map_err(scheme_error)?.streams();
    let bytes = capacity.0.saturating_mul(BLOCK_BYTES as u64);
    if bytes > MOST_BYTES.0 {
        return Err(LogStoreError::TooLarge { device: device(), found: ByteSize(bytes), most: MOST_BYTES });
    }
    let segment = options.segment.map_or_else(|| segment_for(bytes), |segment| segment.0);
    let segment_blocks = u32::try_from(segment / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
    let segments = capacity.0.saturating_sub(FIRST.0) / u64::from(segment_blocks.max(1));
    let segments = u32::try_from(segments).unwrap_or(u32::MAX);
    let format = |source| LogStoreError::Format { device: device(), source: Box::new(source) };
    let shape = size(segment_blocks, segments, streams, options.spare).transpose().map_err(format)?;
    let Some((shape, area)) = shape else {
        let needed =
            (1..=1 << 20).find(|more| matches!(size(segment_blocks, *more, streams, options.spare), Some(Ok(_))));
        let needed = ByteSize(
            (FIRST.0 + u64::from(needed.unwrap_or(u32::MAX)) * u64::from(segment_blocks)) * BLOCK_BYTES as u64,
        );
        let (found, segment) = (ByteSize(bytes), ByteSize(segment));
        return Err(LogStoreError::TooSmall { device: device(), found, needed, segment });
    };
    let middle = segments / 2;
    let areas =
        [Area { first: SegmentNo(middle - area), segments: area }, Area { first: SegmentNo(middle), segments: area }];
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Superblock {
        compat: Compat(0),
        incompat: Incompat::ALL,
        generation: Generation(1),
        store: Uuid::new_v4(),
        created: UnixSeconds(created),
        shape,
        first: FIRST,
        areas,
        scheme: Scheme::new(&options.scheme).map_err(format)?,
        pending_loss: None,
    })
}

/// The shape of a store of `segments` segments, and the number of segments of each checkpoint area. `None` if there are
/// too few.
pub(super) fn size(
    segment_blocks: u32,
    segments: u32,
    streams: u8,
    spare: u32,
) -> Option<Result<(Shape, u32), FormatError>> {
    // The areas depend on what is promised, and that on the areas: those for all blocks are enough.
    let blocks = u64::from(segments) * u64::from(segment_blocks);
    if blocks == 0 {
        return None;
    }
    let whole = match Shape::new(segment_blocks, segments, Blocks(blocks), Stream(streams)) {
        Ok(whole) => whole,
        Err(error) => return Some(Err(error)),
    };
    let area = u32::try_from(area_segments(&whole)).ok()?;
    let room = Room {
        shape: LogShape { segments, segment_blocks },
        system: area.checked_mul(2)?,
        streams: streams + 1,
        chunk: Some(CHUNK_BLOCKS.min(segment_blocks)),
        map: true,
    };
    let advertised = room.advertised(spare)?;
    Some(Shape::new(segment_blocks, segments, Blocks(advertised), Stream(streams)).map(|shape| (shape, area)))
}

/// Segments large enough to be written at the disk's full rate, at least some hundred of them, and not more than can be
/// kept account of in memory.
fn segment_for(bytes: u64) -> u64 {
    let usual = (bytes / 512).next_power_of_two().clamp(LEAST_SEGMENT, USUAL_SEGMENT);
    usual.max(bytes.div_ceil(MOST_SEGMENTS).next_power_of_two()).min(MOST_SEGMENT)
}

/// Blocks on either side of the middle of a device in which checkpoints of a store are looked for that has lost its
/// superblocks.
const AROUND_THE_MIDDLE: u64 = (32 << 20) / BLOCK_BYTES as u64;
/// Blocks of them that are read at once.
const PIECE: u64 = 256;

/// Refuses a device whose beginning is not empty, or that has checkpoints of a store: it can be salvaged without its
/// superblocks.
fn refuse_occupied(named: &NamedDevice) -> Result<(), LogStoreError> {
    let bytes = (named.device.geometry().capacity.block().0 * BLOCK_BYTES as u64).min(128 << 10) as usize;
    let mut head = vec![0; bytes];
    named.device.read(Lba(0), &mut head)?;
    let foreign = |at: BlockNo| -> Result<bool, LogStoreError> {
        let mut block = [0; BLOCK_BYTES];
        if at < named.device.geometry().capacity.block() {
            named.device.read(Lba(at.0 * BLOCK_SECTORS), &mut block)?;
        }
        Ok(block.iter().any(|byte| *byte != 0))
    };
    let [_, second] = Superblock::COPIES;
    if head.iter().any(|byte| *byte != 0) || foreign(second)? || has_checkpoint(named)? {
        return Err(LogStoreError::Occupied { device: named.name.clone() });
    }
    Ok(())
}

fn has_checkpoint(named: &NamedDevice) -> Result<bool, LogStoreError> {
    let end = named.device.geometry().capacity.block().0;
    let middle = end / 2;
    let (from, to) = (middle.saturating_sub(AROUND_THE_MIDDLE), end.min(middle + AROUND_THE_MIDDLE));
    let mut blocks = vec![0; PIECE as usize * BLOCK_BYTES];
    for first in (from..to).step_by(PIECE as usize) {
        blocks.resize((to - first).min(PIECE) as usize * BLOCK_BYTES, 0);
        named.device.read(Lba(first * BLOCK_SECTORS), &mut blocks)?;
        if blocks.chunks_exact(BLOCK_BYTES).any(CheckpointHeader::is_one) {
            return Ok(true);
        }
    }
    Ok(false)
}
