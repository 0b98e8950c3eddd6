//! Whether something of value is where a new pair puts its labels.

use std::fmt;

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};
use uuid::Uuid;

use super::error::{HybridError, Place};
use super::format::{BLOCK_BYTES, State, TAG_SECTORS};
use super::pair::{Half, offered, read_superblock, read_tag};

/// What the start of a device can show that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// ext2, 3 or 4.
    Ext,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// A volume of LVM.
    Lvm,
    /// A member of an array.
    Md,
    /// An encrypted volume.
    Luks,
    /// A partition table.
    Table,
    /// A boot sector, which may have a partition table.
    Boot,
}

impl Signature {
    fn name(self) -> &'static str {
        match self {
            Signature::Ext => "an ext file system",
            Signature::Xfs => "an XFS file system",
            Signature::Btrfs => "a btrfs file system",
            Signature::Lvm => "an LVM volume",
            Signature::Md => "a member of an md array",
            Signature::Luks => "a LUKS volume",
            Signature::Table => "a partition table",
            Signature::Boot => "a partition table or boot sector",
        }
    }
}

/// What is in the way of a new pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// On the flash: the log of this disk.
    LogOf(Uuid),
    /// The log of a disk that is attached to it.
    LogInUse,
    /// On the disk: data that is only whole together with this flash.
    HalfWith(Uuid),
    /// On the flash, what these bytes show; nothing that is known if there are none.
    OnFlash(Option<Signature>),
    /// On the disk, what may use it to its end.
    ToTheEnd(Signature),
    /// Something where the tag would be.
    InPlaceOfTag,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::LogOf(disk) => write!(f, "the log of the disk {disk}"),
            Contents::LogInUse => f.write_str("the log of an attached disk"),
            Contents::HalfWith(flash) => write!(f, "data that belongs together with the flash {flash}"),
            Contents::OnFlash(Some(signature)) | Contents::ToTheEnd(signature) => f.write_str(signature.name()),
            Contents::OnFlash(None) => f.write_str("something that is not known"),
            Contents::InPlaceOfTag => f.write_str("something in its last 8 KiB"),
        }
    }
}

impl Contents {
    /// What to do.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Contents::LogOf(_) | Contents::LogInUse => {
                "end that pair first (`umbrella disk detach --dissolve`; --forget-flash where its disk goes on without it), or say --force"
            }
            Contents::HalfWith(_) => {
                "bring it to the disk first (`umbrella disk detach`; with --forget-flash if the flash is lost)"
            }
            Contents::OnFlash(_) => "everything on it would be overwritten; if it is not needed, say --force",
            Contents::ToTheEnd(_) => {
                "which may need its last 8 KiB: give one of its partitions or volumes, or say --force"
            }
            Contents::InPlaceOfTag => "a tag would be written there; if it is not needed, say --force",
        }
    }
}

/// Where which bytes show it.
const SIGNATURES: &[(usize, &[u8], Signature)] = &[
    (1080, &[0x53, 0xef], Signature::Ext),
    (0, b"XFSB", Signature::Xfs),
    (65_600, b"_BHRfS_M", Signature::Btrfs),
    (512, b"LABELONE", Signature::Lvm),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], Signature::Md),
    (0, b"LUKS\xba\xbe", Signature::Luks),
    (512, b"EFI PART", Signature::Table),
    (510, &[0x55, 0xaa], Signature::Boot),
];
const HEAD_BYTES: usize = 68 << 10;

/// Refuses a disk whose data would be overwritten at its end, and a flash that holds anything.
pub fn refuse_occupied(disk: &Half, flash: &Half) -> Result<(), HybridError> {
    refuse_flash(flash)?;
    refuse_disk(disk)
}

fn refuse_flash(flash: &Half) -> Result<(), HybridError> {
    // One that was never used is left over from a creation that was cut off.
    if let Ok(superblock) = read_superblock(flash)
        && superblock.state == State::Attached
        && superblock.generation > 0
    {
        return Err(HybridError::Occupied { device: flash.name.clone(), contents: Contents::LogOf(superblock.disk) });
    }
    if read_superblock(flash).is_ok() {
        return Ok(());
    }
    let head = head(flash)?;
    let found = signature(&head);
    if found.is_none() && head.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    Err(HybridError::Occupied { device: flash.name.clone(), contents: Contents::OnFlash(found) })
}

fn refuse_disk(disk: &Half) -> Result<(), HybridError> {
    if let Ok(tag) = read_tag(disk) {
        if tag.log_is_empty {
            return Ok(());
        }
        return Err(HybridError::Occupied { device: disk.name.clone(), contents: Contents::HalfWith(tag.flash) });
    }
    let capacity = disk.device.geometry().capacity;
    let kept = offered(capacity);
    let head = head(disk)?;
    if let Some(signature @ (Signature::Lvm | Signature::Md | Signature::Luks | Signature::Table | Signature::Boot)) =
        signature(&head)
    {
        return Err(HybridError::Occupied { device: disk.name.clone(), contents: Contents::ToTheEnd(signature) });
    }
    if let Some(end) = file_system_end(&head)
        && end > kept.0 * SECTOR_BYTES
    {
        return Err(HybridError::TooSmall {
            place: Place::BehindFileSystem(disk.name.clone()),
            found: ByteSize((capacity.0 * SECTOR_BYTES).saturating_sub(end)),
            needed: ByteSize(TAG_SECTORS * SECTOR_BYTES),
        });
    }
    let mut tail = vec![0; ((capacity.0 - kept.0) * SECTOR_BYTES) as usize];
    disk.device.read(Lba(kept.0), &mut tail)?;
    if tail.iter().any(|&byte| byte != 0) {
        return Err(HybridError::Occupied { device: disk.name.clone(), contents: Contents::InPlaceOfTag });
    }
    Ok(())
}

fn head(half: &Half) -> Result<Vec<u8>, HybridError> {
    let bytes = (HEAD_BYTES as u64).min(half.device.geometry().capacity.0 * SECTOR_BYTES);
    let mut head = vec![0; bytes as usize / BLOCK_BYTES * BLOCK_BYTES];
    half.device.read(Lba(0), &mut head)?;
    Ok(head)
}

fn signature(head: &[u8]) -> Option<Signature> {
    let is_there =
        |&&(offset, magic, _): &&(usize, &[u8], Signature)| head.get(offset..offset + magic.len()) == Some(magic);
    SIGNATURES.iter().find(is_there).map(|&(_, _, signature)| signature)
}

fn number<const N: usize>(head: &[u8], offset: usize) -> Option<[u8; N]> {
    head.get(offset..offset + N)?.try_into().ok()
}

/// Where a file system that fills the device from its start ends, in bytes; nothing if none is known.
fn file_system_end(head: &[u8]) -> Option<u64> {
    match signature(head)? {
        Signature::Ext => {
            let blocks = u64::from(u32::from_le_bytes(number(head, 1024 + 4)?));
            let high = u64::from(u32::from_le_bytes(number(head, 1024 + 0x150)?));
            let wide = u32::from_le_bytes(number(head, 1024 + 0x60)?) & 0x80 != 0;
            let block = 1024_u64.checked_shl(u32::from_le_bytes(number(head, 1024 + 24)?))?;
            (blocks + if wide { high << 32 } else { 0 }).checked_mul(block)
        }
        Signature::Xfs => {
            u64::from_be_bytes(number(head, 8)?).checked_mul(u64::from(u32::from_be_bytes(number(head, 4)?)))
        }
        Signature::Btrfs => Some(u64::from_le_bytes(number(head, 65_536 + 0x70)?)),
        // These may use the device up to its end, and keep something there.
        Signature::Lvm | Signature::Md | Signature::Luks | Signature::Table | Signature::Boot => None,
    }
}
