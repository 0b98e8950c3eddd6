//! Whether something of value is where a new pair puts its labels.

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

use super::contents::{Contents, Signature};
use super::error::{HybridError, Location};
use super::format::{BLOCK_BYTES, LOG_START, TAG_SECTORS};
use super::half::PairHalf;
use super::pair::{disk_of, offered, read_superblock, read_tag};
use crate::device::is_zero;

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
/// How much of where the log begins shows whether there is one.
const LOG_BYTES: usize = 64 << 10;

/// Refuses a disk whose data would be overwritten at its end, and a flash that holds anything.
pub fn refuse_occupied(disk: &PairHalf, flash: &PairHalf) -> Result<(), HybridError> {
    refuse_flash(flash)?;
    refuse_disk(disk)
}

fn refuse_flash(flash: &PairHalf) -> Result<(), HybridError> {
    // One that was never used is left over from a creation that was cut off.
    if let Some(disk) = disk_of(flash) {
        return Err(HybridError::Occupied { device: flash.name.clone(), contents: Contents::LogOf(disk) });
    }
    if read_superblock(flash).is_ok() {
        return Ok(());
    }
    let head = head(flash)?;
    let found = signature(&head);
    // A log may be left of a pair whose label was overwritten.
    let mut log = vec![0; LOG_BYTES];
    flash.device.read(LOG_START, &mut log)?;
    if found.is_none() && is_zero(&head) && is_zero(&log) {
        return Ok(());
    }
    Err(HybridError::Occupied { device: flash.name.clone(), contents: Contents::OnFlash(found) })
}

fn refuse_disk(disk: &PairHalf) -> Result<(), HybridError> {
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
            place: Location::BehindFileSystem(disk.name.clone()),
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

fn head(half: &PairHalf) -> Result<Vec<u8>, HybridError> {
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

/// The end of a file system that fills the device from its start, in bytes; `None` if it is not known.
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
