//! Whether something of value is where a new pair puts its labels.

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

use super::error::HybridError;
use super::format::{BLOCK_BYTES, State, TAG_SECTORS};
use super::pair::{Half, offered, read_superblock, read_tag};

/// What the start of a device can show that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signature {
    Ext,
    Xfs,
    Btrfs,
    Lvm,
    Md,
    Luks,
    Table,
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
        return Err(HybridError::Occupied {
            device: flash.name.clone(),
            what: format!("the log of the disk {}", superblock.disk),
            remedy: "detach it from that disk first (`umbrella disk detach`)",
        });
    }
    if read_superblock(flash).is_ok() {
        return Ok(());
    }
    let head = head(flash)?;
    let what = match signature(&head) {
        Some(signature) => signature.name(),
        None if head.iter().any(|&byte| byte != 0) => "something that is not known",
        None => return Ok(()),
    };
    Err(HybridError::Occupied {
        device: flash.name.clone(),
        what: what.to_owned(),
        remedy: "everything on it would be overwritten; if it is not needed, say --force",
    })
}

fn refuse_disk(disk: &Half) -> Result<(), HybridError> {
    if let Ok(tag) = read_tag(disk) {
        return Err(HybridError::Occupied {
            device: disk.name.clone(),
            what: format!("data that belongs together with the flash {}", tag.flash),
            remedy: "detach it from that flash first (`umbrella disk detach`)",
        });
    }
    let capacity = disk.device.geometry().capacity;
    let kept = offered(capacity);
    let head = head(disk)?;
    if let Some(signature @ (Signature::Lvm | Signature::Md | Signature::Luks | Signature::Table | Signature::Boot)) =
        signature(&head)
    {
        return Err(HybridError::Occupied {
            device: disk.name.clone(),
            what: signature.name().to_owned(),
            remedy: "which may need its last 8 KiB: give one of its partitions or volumes, or say --force",
        });
    }
    if let Some(end) = file_system_end(&head)
        && end > kept.0 * SECTOR_BYTES
    {
        return Err(HybridError::TooSmall {
            what: format!("the place behind the file system on {} (shrink the file system first)", disk.name),
            found: ByteSize((capacity.0 * SECTOR_BYTES).saturating_sub(end)),
            needed: ByteSize(TAG_SECTORS * SECTOR_BYTES),
        });
    }
    let mut tail = vec![0; ((capacity.0 - kept.0) * SECTOR_BYTES) as usize];
    disk.device.read(Lba(kept.0), &mut tail)?;
    if tail.iter().any(|&byte| byte != 0) {
        return Err(HybridError::Occupied {
            device: disk.name.clone(),
            what: "something in its last 8 KiB".to_owned(),
            remedy: "a tag would be written there; if it is not needed, say --force",
        });
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
