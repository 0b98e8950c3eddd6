//! The readable remains of the damaged header of the last record: enough to know that there was one, and whether a
//! flush had promised it.
//!
//! If a power cut tore the header, its first sector is whole or absent. Then all fields agree, and the promised mark
//! shows that no flush had promised anything. If damage hit the header, one field may be wrong. If another epoch or
//! mark makes the header whole, that field was the wrong one.

use super::{BLOCK_BYTES, Epoch, LogSector, RecordNo, Uuid, record};

const FLASH_AT: usize = 16;
const EPOCH_AT: usize = 32;
const SEQUENCE_AT: usize = 40;
const PLACE_AT: usize = 48;
const PROMISED_AT: usize = 64;

/// The record that should be there.
#[derive(Debug, Clone, Copy)]
pub(in crate::hybrid) struct ExpectedRecord {
    pub(in crate::hybrid) flash: Uuid,
    /// The last opening that wrote records.
    pub(in crate::hybrid) epoch: Epoch,
    pub(in crate::hybrid) sequence: RecordNo,
    pub(in crate::hybrid) at: LogSector,
}

impl ExpectedRecord {
    /// Whether a block was its header, is damaged, and promised it.
    pub(in crate::hybrid) fn was_promised_in(&self, block: &[u8]) -> bool {
        let sequence = self.sequence.0.to_le_bytes();
        let is_right = [
            block.starts_with(&record::MAGIC),
            field(block, FLASH_AT) == Some(*self.flash.as_bytes()),
            field(block, EPOCH_AT) == Some(self.epoch.0.to_le_bytes()),
            field(block, SEQUENCE_AT) == Some(sequence),
            field(block, PLACE_AT) == Some(self.at.0.to_le_bytes()),
        ];
        if is_whole(block) || is_right.into_iter().filter(|right| *right).count() < is_right.len() - 1 {
            return false;
        }
        let [_, _, is_last, ..] = is_right;
        let is_last = is_last || is_whole_with(block, EPOCH_AT, self.epoch.0.to_le_bytes());
        let promised = field(block, PROMISED_AT).map(u64::from_le_bytes);
        is_last
            && (promised.is_some_and(|promised| promised >= self.sequence.0)
                || is_whole_with(block, PROMISED_AT, sequence))
    }
}

fn field<const N: usize>(block: &[u8], at: usize) -> Option<[u8; N]> {
    block.get(at..)?.first_chunk().copied()
}

fn is_whole(block: &[u8]) -> bool {
    let checksum = block.split_last_chunk::<4>();
    block.len() == BLOCK_BYTES
        && checksum.is_some_and(|(rest, checksum)| crate::checksum::crc32c(rest) == u32::from_le_bytes(*checksum))
}

fn is_whole_with(block: &[u8], at: usize, field: [u8; 8]) -> bool {
    let mut block = block.to_vec();
    block.iter_mut().skip(at).zip(field).for_each(|(to, from)| *to = from);
    is_whole(&block)
}
