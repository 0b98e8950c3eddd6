//! The two halves, and whether they belong together.
//!
//! Opening, in this order, so that a power cut between any two steps is recognised by the next opening:
//! 1. Both superblocks and both tags are read; the later valid one of each counts.
//! 2. They name each other. The flash's tail is not behind the one that the disk's tag knows. Their epochs are equal,
//!    or the flash is one ahead and says that the tag of that epoch is due: a crash between 4 and 5.
//! 3. The log is read ([`super::recover`]). Fillers take the places of damaged records ([`super::fillers`]).
//! 4. The superblock with the next epoch is written to flash, and flushed. It says that the disk's tag is due.
//! 5. The tag with the same epoch is written to the disk, and flushed.
//! 6. The superblock says that the tag is written, and is flushed. Only now are writes answered, and only now do
//!    possible losses count as reported ([`super::fillers`]): a disk with an earlier tag is an older copy from here on.
//!
//! Superblocks of version 1 do not say 6: there the flash may be one ahead as long as it has no record of that epoch.

use umbrella_policy::flash_cache::LogSector;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

use super::contents::Contents;
use super::error::{HybridError, Location};
use super::format::{
    BLOCK, BLOCK_BYTES, Damage, DiskTag, Epoch, FlashSuperblock, LEAST_LOG, LOG_START, PairState, RecordNo,
    TAG_SECTORS, TagState, VERSION,
};
use super::half::PairHalf;
use crate::device::{BlockDevice, Durability};
use crate::error::BlockError;

/// The smallest flash that can be put before a disk.
pub const LEAST_FLASH: ByteSize = ByteSize((LOG_START.0 + LEAST_LOG) * SECTOR_BYTES);

/// What the label takes at the end of the disk.
pub const LABEL: ByteSize = ByteSize(TAG_SECTORS * SECTOR_BYTES);

/// What the two halves say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels {
    /// The flash.
    pub(super) superblock: FlashSuperblock,
    /// The disk.
    pub(super) tag: DiskTag,
}

/// A new pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The disk.
    pub disk: Uuid,
    /// The flash.
    pub flash: Uuid,
    /// What the hybrid disk offers.
    pub size: ByteSize,
}

/// A device whose blocks are larger than what a copy of a label may take would have the second over the first.
fn refuse_large_blocks(half: &PairHalf) -> Result<(), HybridError> {
    let block = half.device.geometry().logical_block;
    if block as usize > BLOCK_BYTES {
        return Err(HybridError::LargeBlocks { device: half.name.clone(), block });
    }
    Ok(())
}

/// Where the copies of the superblock are on flash.
const SUPERBLOCKS: [Lba; 2] = [Lba(0), Lba(BLOCK)];

/// Where the copies of the tag are on a disk that offers `capacity`.
fn tags(capacity: Lba) -> [Lba; 2] {
    [capacity, Lba(capacity.0 + BLOCK)]
}

/// How much of the beginning of a disk is compared to detect writes to it, in bytes: the superblocks of file systems
/// lie in it.
const HEAD_BYTES: u64 = 128 << 10;

/// Where it is.
pub(super) fn head_range(disk: &PairHalf) -> SectorRange {
    let capacity = offered(disk.device.geometry().capacity);
    SectorRange { start: Lba(0), sectors: capacity.0.min(HEAD_BYTES / SECTOR_BYTES) }
}

/// The checksum of the beginning of a disk: FNV-1a with 64 bits, folded to 32. No CRC: of a block that ends in its own
/// CRC32C, such as a superblock of ext4, the CRC32C is the same whatever is in it.
pub(super) fn head_of(disk: &PairHalf) -> Result<u32, BlockError> {
    let mut head = vec![0; head_range(disk).bytes().0 as usize];
    disk.device.read(Lba(0), &mut head)?;
    let hash = head
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    Ok((hash >> 32) as u32 ^ hash as u32)
}

impl Labels {
    /// What the flash has is only good for the disk as it was left. A log that has nothing need not be asked.
    pub(super) fn refuse_changed_disk(&self, disk: &PairHalf, flash: &PairHalf) -> Result<(), HybridError> {
        if self.tag.log_is_empty {
            return Err(HybridError::OldFlash { disk: disk.name.clone(), flash: flash.name.clone() });
        }
        let Some(head) = self.superblock.head else { return Ok(()) };
        let (disk_name, flash) = (disk.name.clone(), flash.name.clone());
        match head_of(disk) {
            Ok(found) if found == head => Ok(()),
            Ok(_) => Err(HybridError::Changed { disk: disk_name, flash }),
            Err(source) => Err(HybridError::HeadUnreadable { disk: disk_name, flash, source }),
        }
    }

    /// An opening that was cut off leaves the flash one epoch ahead of the disk, and no record of it. If there is one,
    /// the disk is older than it should be. Newer superblocks say it themselves (step 6).
    pub(super) fn refuse_records_of(&self, epoch: Epoch, disk: &PairHalf, flash: &PairHalf) -> Result<(), HybridError> {
        if epoch <= self.tag.epoch {
            return Ok(());
        }
        Err(HybridError::Stale {
            older: disk.name.clone(),
            newer: flash.name.clone(),
            older_epoch: self.tag.epoch,
            newer_epoch: epoch,
        })
    }
}

/// Reads a copy of a label. One that cannot be read is as good as one that is damaged: there is another.
fn read_copy<T>(half: &PairHalf, at: Lba, decode: impl Fn(&[u8]) -> Result<T, Damage>) -> Result<T, Damage> {
    let mut block = vec![0; BLOCK_BYTES];
    half.device.read(at, &mut block).map_err(|error| {
        tracing::warn!(device = half.name, %error, "cannot read a copy of its label");
        Damage::Unreadable
    })?;
    decode(&block)
}

/// The valid one of two copies that has the greater number. `None` if one has an unknown version: it may be the later
/// one.
fn later<T, N: Ord>(
    first: Result<T, Damage>,
    second: Result<T, Damage>,
    number: impl Fn(&T) -> N,
) -> Result<T, (Damage, Damage)> {
    match (first, second) {
        (Err(version @ Damage::Version(_)), other) | (other, Err(version @ Damage::Version(_))) => {
            Err((version, other.err().unwrap_or(version)))
        }
        (Ok(first), Ok(second)) => Ok(if number(&second) > number(&first) { second } else { first }),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(first), Err(second)) => Err((first, second)),
    }
}

/// The superblock of a flash.
pub(super) fn read_superblock(flash: &PairHalf) -> Result<FlashSuperblock, HybridError> {
    let capacity = flash.device.geometry().capacity;
    if capacity.0 < LOG_START.0 + LEAST_LOG {
        return Err(too_small(&flash.name, capacity, Lba(LOG_START.0 + LEAST_LOG)));
    }
    refuse_large_blocks(flash)?;
    let [first, second] = SUPERBLOCKS.map(|at| read_copy(flash, at, FlashSuperblock::decode));
    if let (Ok(first), Ok(second)) = (&first, &second)
        && first.generation == second.generation
        && first != second
    {
        return Err(HybridError::Contradiction { flash: flash.name.clone(), generation: first.generation });
    }
    let superblock = later(first, second, |superblock| superblock.generation)
        .map_err(|(first, second)| HybridError::NoSuperblock { flash: flash.name.clone(), first, second })?;
    if LOG_START.0 + superblock.log_size > capacity.0 {
        let needed = Lba(LOG_START.0 + superblock.log_size);
        return Err(too_small(&flash.name, capacity, needed));
    }
    Ok(superblock)
}

/// Where the tag of a disk of that size begins, which is how much of it is offered.
pub(super) fn offered(disk: Lba) -> Lba {
    Lba(disk.0.saturating_sub(TAG_SECTORS) / BLOCK * BLOCK)
}

/// How far in front of its end a disk is searched for the tag of when it was smaller.
const SEARCHED: u64 = (64 << 20) / SECTOR_BYTES;
/// Blocks of it that are read at once.
const SEARCHED_AT_ONCE: u64 = 256;

/// The flash that has the newest data of a disk, if it is half of a pair whose log is in use. Fails if it may be one
/// and cannot tell: its tag is damaged, of another version, or further in front, where it lies since the disk became
/// larger.
pub fn flash_of(disk: &PairHalf) -> Result<Option<Uuid>, HybridError> {
    let capacity = disk.device.geometry().capacity;
    if offered(capacity).0 == 0 || refuse_large_blocks(disk).is_err() {
        return Ok(None);
    }
    match read_tag(disk) {
        Ok(tag) => Ok((!tag.log_is_empty).then_some(tag.flash)),
        Err(HybridError::NoTag { first: Damage::Magic, second: Damage::Magic, .. }) => match left_behind(disk) {
            None => Ok(None),
            Some(tag) => {
                let bytes = |sectors: Lba| ByteSize(sectors.0 * SECTOR_BYTES);
                let (was, is) = (bytes(Lba(tag.0 + TAG_SECTORS)), bytes(capacity));
                Err(HybridError::DiskGrew { disk: disk.name.clone(), was, is })
            }
        },
        Err(error) => Err(error),
    }
}

/// The disk whose newest data a device may have, if it is the flash of a pair that was used.
pub fn disk_of(flash: &PairHalf) -> Option<Uuid> {
    let superblock = read_superblock(flash).ok()?;
    (superblock.state == PairState::Attached && superblock.generation > 0).then_some(superblock.disk)
}

/// Whether a disk says that it is half of a pair, with data on its flash or without.
pub fn has_tag(disk: &PairHalf) -> bool {
    read_tag(disk).is_ok()
}

/// Where the tag of a disk lies that was smaller, within the last part of it. One that says that it belongs elsewhere
/// is of an image that is stored on the disk; what cannot be read is none.
fn left_behind(disk: &PairHalf) -> Option<Lba> {
    let end = offered(disk.device.geometry().capacity);
    let begin = end.0.saturating_sub(SEARCHED) / BLOCK * BLOCK;
    let mut blocks = Vec::new();
    for at in (begin..end.0).step_by((SEARCHED_AT_ONCE * BLOCK) as usize) {
        let sectors = (SEARCHED_AT_ONCE * BLOCK).min(end.0 - at);
        blocks.resize((sectors * SECTOR_BYTES) as usize, 0);
        if disk.device.read(Lba(at), &mut blocks).is_err() {
            for (at, block) in (at..).step_by(BLOCK as usize).zip(blocks.chunks_mut(BLOCK_BYTES)) {
                if disk.device.read(Lba(at), block).is_err() {
                    block.fill(0);
                }
            }
        }
        let found = (at..).step_by(BLOCK as usize).zip(blocks.chunks(BLOCK_BYTES)).find(|(at, block)| {
            match DiskTag::decode(block) {
                Err(Damage::Magic) => false,
                Ok(tag) => tags(tag.capacity).contains(&Lba(*at)),
                Err(_) => true,
            }
        });
        if let Some((at, _)) = found {
            return Some(Lba(at));
        }
    }
    None
}

/// The tag of a disk.
pub(super) fn read_tag(disk: &PairHalf) -> Result<DiskTag, HybridError> {
    let capacity = disk.device.geometry().capacity;
    let offered = offered(capacity);
    if offered.0 == 0 {
        return Err(too_small(&disk.name, capacity, Lba(TAG_SECTORS + BLOCK)));
    }
    refuse_large_blocks(disk)?;
    let [first, second] = tags(offered).map(|at| read_copy(disk, at, DiskTag::decode));
    let tag = later(first, second, |tag| (tag.epoch, tag.tail_sequence))
        .map_err(|(first, second)| HybridError::NoTag { disk: disk.name.clone(), first, second })?;
    if tag.capacity != offered {
        return Err(too_small(&disk.name, capacity, Lba(tag.capacity.0 + TAG_SECTORS)));
    }
    Ok(tag)
}

/// What is given as the flash is none, but the disk has one: it is lost.
fn lost_flash(error: HybridError, disk: &PairHalf) -> HybridError {
    match (error, read_tag(disk)) {
        (HybridError::NoSuperblock { flash, first: damage @ Damage::Magic, second: Damage::Magic }, Ok(tag)) => {
            HybridError::FlashLost { disk: disk.name.clone(), flash, wanted: tag.flash, damage }
        }
        (error, _) => error,
    }
}

/// What has become of a disk without tag: that lies at the end of the disk as it was.
fn disk_without_tag(
    error: HybridError,
    disk: &PairHalf,
    flash: &PairHalf,
    superblock: &FlashSuperblock,
) -> HybridError {
    let (was, is) = (Lba(superblock.capacity.0 + TAG_SECTORS), disk.device.geometry().capacity);
    let bytes = |sectors: Lba| ByteSize(sectors.0 * SECTOR_BYTES);
    match error {
        HybridError::NoTag { disk, .. } if was < is => HybridError::DiskGrew { disk, was: bytes(was), is: bytes(is) },
        HybridError::NoTag { disk, .. } if is < was => HybridError::DiskCut { disk, was: bytes(was), is: bytes(is) },
        // One that was never opened is left over from a creation that was cut off.
        HybridError::NoTag { disk, first: Damage::Magic, second: Damage::Magic } if superblock.generation > 0 => {
            HybridError::TagGone { disk, flash: flash.name.clone(), wanted: superblock.disk }
        }
        error => error,
    }
}

/// Both, if they belong together (steps 1 and 2).
pub(super) fn read_labels(disk: &PairHalf, flash: &PairHalf) -> Result<Labels, HybridError> {
    let superblock = read_superblock(flash).map_err(|error| lost_flash(error, disk))?;
    if superblock.state == PairState::Detached {
        return Err(HybridError::Detached { flash: flash.name.clone() });
    }
    let tag = read_tag(disk).map_err(|error| disk_without_tag(error, disk, flash, &superblock))?;
    if tag.disk != superblock.disk {
        return Err(HybridError::ForeignDisk {
            disk: disk.name.clone(),
            flash: flash.name.clone(),
            wanted: superblock.disk,
            found: tag.disk,
        });
    }
    if tag.flash != superblock.flash {
        return Err(HybridError::ForeignFlash {
            disk: disk.name.clone(),
            flash: flash.name.clone(),
            wanted: tag.flash,
            found: superblock.flash,
        });
    }
    let opening = superblock.epoch == tag.epoch.next() && superblock.tag != TagState::Written;
    if superblock.epoch != tag.epoch && !opening {
        let flash_is_older = superblock.epoch < tag.epoch;
        let (older, newer) = if flash_is_older { (flash, disk) } else { (disk, flash) };
        return Err(HybridError::Stale {
            older: older.name.clone(),
            newer: newer.name.clone(),
            older_epoch: superblock.epoch.min(tag.epoch),
            newer_epoch: superblock.epoch.max(tag.epoch),
        });
    }
    if superblock.tail_sequence < tag.tail_sequence {
        return Err(HybridError::OldFlash { disk: disk.name.clone(), flash: flash.name.clone() });
    }
    if superblock.capacity != tag.capacity {
        return Err(too_small(&disk.name, tag.capacity, superblock.capacity));
    }
    Ok(Labels { superblock, tag })
}

/// Writes both copies of a superblock, one after the other, each flushed: whichever a crash or damage leaves is enough.
pub(super) fn write_superblock(flash: &dyn BlockDevice, superblock: &FlashSuperblock) -> Result<(), HybridError> {
    write_copies(flash, SUPERBLOCKS, &superblock.encode())
}

/// The same for a tag.
pub(super) fn write_tag(disk: &dyn BlockDevice, tag: &DiskTag) -> Result<(), HybridError> {
    write_copies(disk, tags(tag.capacity), &tag.encode())
}

/// Bytes that one superblock takes with its copies.
pub(super) fn superblock_bytes(flash: &dyn BlockDevice) -> u64 {
    SUPERBLOCKS.len() as u64 * u64::from(flash.geometry().logical_block)
}

fn write_copies(device: &dyn BlockDevice, places: [Lba; 2], sector: &[u8]) -> Result<(), HybridError> {
    let block = device.geometry().logical_block as usize;
    let mut bytes = sector.to_vec();
    bytes.resize(bytes.len().next_multiple_of(block), 0);
    for at in places {
        device.write(at, &bytes, Durability::Cached)?;
        device.flush()?;
    }
    Ok(())
}

/// Makes the two a pair: the superblock, then the tag. What the disk holds stays.
///
/// The caller has made sure that nothing of value is where they go ([`refuse_occupied`](super::refuse_occupied)).
pub fn create(disk: &PairHalf, flash: &PairHalf) -> Result<Created, HybridError> {
    refuse_large_blocks(disk)?;
    refuse_large_blocks(flash)?;
    let disk_capacity = disk.device.geometry().capacity;
    let flash_capacity = flash.device.geometry().capacity;
    let capacity = offered(disk_capacity);
    if capacity.0 == 0 {
        return Err(too_small(&disk.name, disk_capacity, Lba(TAG_SECTORS + BLOCK)));
    }
    let log_size = flash_capacity.0.saturating_sub(LOG_START.0) / BLOCK * BLOCK;
    if log_size < LEAST_LOG {
        return Err(too_small(&flash.name, flash_capacity, Lba(LOG_START.0 + LEAST_LOG)));
    }
    let (flash_id, disk_id) = (Uuid::new_v4(), Uuid::new_v4());
    let superblock = FlashSuperblock {
        version: VERSION,
        flash: flash_id,
        disk: disk_id,
        generation: 0,
        epoch: Epoch(1),
        state: PairState::Attached,
        capacity,
        log_size,
        tail: LogSector(0),
        tail_sequence: RecordNo(1),
        durable: RecordNo(0),
        written: 0,
        head: None,
        tail_epoch: Epoch(1),
        tag: TagState::Due,
        lost: Vec::new(),
        unreported: 0,
    };
    // Between the two copies, the later generation of an older pair must not win.
    wipe(&*flash.device, Lba(0))?;
    write_superblock(&*flash.device, &superblock)?;
    wipe(&*disk.device, capacity)?;
    write_tag(&*disk.device, &DiskTag::of(&superblock))?;
    Ok(Created { disk: disk_id, flash: flash_id, size: ByteSize(capacity.0 * SECTOR_BYTES) })
}

/// Superblocks that an opening writes.
pub(super) const SUPERBLOCKS_AT_OPENING: u64 = 2;

/// Steps 4 to 6; the superblock that is on flash then.
pub(super) fn begin_epoch(
    disk: &PairHalf,
    flash: &PairHalf,
    next: FlashSuperblock,
) -> Result<FlashSuperblock, HybridError> {
    let due = FlashSuperblock { tag: TagState::Due, ..next };
    write_superblock(&*flash.device, &due)?;
    write_tag(&*disk.device, &DiskTag::of(&due))?;
    let written = FlashSuperblock { tag: TagState::Written, unreported: 0, generation: due.generation + 1, ..due };
    write_superblock(&*flash.device, &written)?;
    Ok(written)
}

/// Says on the disk that the log is empty: it is whole without the flash, and the two still belong together.
pub(super) fn note_empty(disk: &PairHalf, superblock: &FlashSuperblock) -> Result<(), HybridError> {
    write_tag(&*disk.device, &DiskTag { log_is_empty: true, ..DiskTag::of(superblock) })
}

/// Takes the pair apart; the log is empty. First the flash says so, then the disk's tag is wiped: in between,
/// [`read_labels`] says that the flash was detached, and doing it again finishes it.
pub(super) fn part(disk: &PairHalf, flash: &PairHalf, superblock: &FlashSuperblock) -> Result<(), HybridError> {
    let detached =
        FlashSuperblock { state: PairState::Detached, generation: superblock.generation + 1, ..superblock.clone() };
    write_superblock(&*flash.device, &detached)?;
    wipe(&*disk.device, superblock.capacity)
}

/// Finishes what a crash interrupted after the flash was detached: wipes the tag of the disk that it belonged to.
pub fn finish_detach(disk: &PairHalf, flash: &PairHalf) -> Result<(), HybridError> {
    let superblock = read_superblock(flash)?;
    if superblock.state == PairState::Attached {
        return Err(HybridError::Occupied { device: flash.name.clone(), contents: Contents::LogInUse });
    }
    match read_tag(disk) {
        Ok(tag) if tag.disk == superblock.disk && tag.flash == superblock.flash => wipe(&*disk.device, tag.capacity),
        Ok(tag) => Err(HybridError::ForeignFlash {
            disk: disk.name.clone(),
            flash: flash.name.clone(),
            wanted: tag.flash,
            found: superblock.flash,
        }),
        Err(HybridError::NoTag { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Takes the mark from a disk whose flash is lost: a plain disk, without what only the flash had.
pub fn forget_flash(disk: &PairHalf) -> Result<(), HybridError> {
    let tag = match read_tag(disk) {
        // It lies where the end of the disk was.
        Err(error @ HybridError::NoTag { .. }) => left_behind(disk).map(|at| Lba(at.0)).ok_or(error)?,
        tag => tag?.capacity,
    };
    wipe(&*disk.device, tag)
}

/// Frees a flash whose disk went on without it, or is about to, so that it can be used again. The contents of its log
/// are given up. The disk has its tag or none, and is as large as it was. Returns whether it was the flash of this
/// disk.
pub fn free_flash(disk: &PairHalf, flash: &PairHalf) -> Result<bool, HybridError> {
    let superblock = read_superblock(flash)?;
    let is_of = match read_tag(disk) {
        Ok(tag) => tag.disk == superblock.disk && tag.flash == superblock.flash,
        Err(error) => matches!(disk_without_tag(error, disk, flash, &superblock), HybridError::TagGone { .. }),
    };
    if is_of && superblock.state == PairState::Attached {
        let generation = superblock.generation + 1;
        write_superblock(&*flash.device, &FlashSuperblock { state: PairState::Detached, generation, ..superblock })?;
    }
    Ok(is_of)
}

/// Zeroes the two blocks of a label.
fn wipe(device: &dyn BlockDevice, at: Lba) -> Result<(), HybridError> {
    let zeroes = vec![0; (TAG_SECTORS * SECTOR_BYTES) as usize];
    device.write(at, &zeroes, Durability::Cached)?;
    device.flush()?;
    Ok(())
}

fn too_small(device: &str, found: Lba, needed: Lba) -> HybridError {
    let bytes = |sectors: Lba| ByteSize(sectors.0.saturating_mul(SECTOR_BYTES));
    HybridError::TooSmall { place: Location::Device(device.to_owned()), found: bytes(found), needed: bytes(needed) }
}
