//! Copies of fillers in front of the log, see [`super::super::fillers`].
//!
//! ```text
//! 8 KiB    label, 512 bytes used: magic, version, generation of the superblock, number of copies, CRC32C of the copies
//! 12 KiB   the copies, a block each
//! ```

use super::{BLOCK_BYTES, Damage, Header, begin, open, seal};

const MAGIC: [u8; 8] = *b"UMBCOPYS";
const LABEL_BYTES: usize = 512;
/// The number of copies that the area has room for.
pub(in crate::hybrid) const MOST_COPIES: usize = 15;

/// The copies as they are written, with the label in front; at most [`MOST_COPIES`].
pub(in crate::hybrid) fn encode_copies(generation: u64, fillers: &[Header]) -> Vec<u8> {
    let copies: Vec<u8> = fillers.iter().flat_map(Header::encode).collect();
    let mut label = begin(MAGIC);
    label.extend_from_slice(&generation.to_le_bytes());
    label.extend_from_slice(&(fillers.len() as u32).to_le_bytes());
    label.extend_from_slice(&crate::checksum::crc32c(&copies).to_le_bytes());
    let mut bytes = seal(label, LABEL_BYTES);
    bytes.resize(BLOCK_BYTES, 0);
    bytes.extend_from_slice(&copies);
    bytes
}

/// Reads them, and the generation of the superblock that they belong to.
pub(in crate::hybrid) fn decode_copies(bytes: &[u8]) -> Result<(u64, Vec<Header>), Damage> {
    let mut fields = open(bytes, LABEL_BYTES, MAGIC)?;
    let (generation, count, checksum) = (fields.u64()?, fields.u32()? as usize, fields.u32()?);
    if count > MOST_COPIES {
        return Err(Damage::Field);
    }
    let copies = bytes.get(BLOCK_BYTES..(1 + count) * BLOCK_BYTES).ok_or(Damage::Field)?;
    if crate::checksum::crc32c(copies) != checksum {
        return Err(Damage::Checksum);
    }
    let copies = copies.chunks_exact(BLOCK_BYTES).map(Header::decode).collect::<Result<_, _>>()?;
    Ok((generation, copies))
}
