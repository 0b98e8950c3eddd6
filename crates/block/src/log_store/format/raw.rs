//! Fields of a block, one behind the other.

use umbrella_units::ByteSize;
use uuid::Uuid;

use super::checksum::Checksum;
use super::error::{Field, FormatError, Limit, Structure};
use super::{BLOCK_BYTES, SegmentNo, VERSION};
use crate::device::is_zero;

/// The bytes of a block.
pub type Block = [u8; BLOCK_BYTES];

/// What stands for no segment.
const NO_SEGMENT: u32 = u32::MAX;

/// Takes field after field from a structure.
pub(super) struct FieldReader<'a> {
    structure: Structure,
    /// Up to the checksum.
    fields: &'a [u8],
    at: usize,
    /// Where the fields begin in the block.
    base: usize,
    /// Behind the checksum.
    tail: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// A block that begins with `magic` and has the checksum of all other bytes at `checksum_at`. It is behind the
    /// magic.
    pub(super) fn open(
        structure: Structure,
        bytes: &'a [u8],
        magic: &[u8],
        checksum_at: usize,
    ) -> Result<FieldReader<'a>, FormatError> {
        let block = whole(structure, bytes, BLOCK_BYTES as u64)?;
        if !block.starts_with(magic) {
            return Err(FormatError::Foreign { structure });
        }
        let (fields, rest) = block.split_at_checked(checksum_at).unwrap_or((block, &[]));
        let Some((stored, tail)) = rest.split_first_chunk::<4>() else {
            return Err(truncated(structure, checksum_at as u64 + 4, block));
        };
        let (stored, computed) = (Checksum(u32::from_le_bytes(*stored)), Checksum::of(fields).append(tail));
        if stored != computed {
            return Err(FormatError::Checksum { structure, stored, computed });
        }
        Ok(FieldReader { structure, fields, at: magic.len(), base: 0, tail })
    }

    /// Bytes without magic and checksum.
    pub(super) fn plain(structure: Structure, fields: &'a [u8]) -> FieldReader<'a> {
        FieldReader { structure, fields, at: 0, base: 0, tail: &[] }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.saturating_add(count);
        let bytes = self.fields.get(self.at..end).ok_or(truncated(self.structure, end as u64, self.fields))?;
        self.at = end;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let bytes = self.bytes(N)?;
        bytes.first_chunk().copied().ok_or(truncated(self.structure, self.at as u64, self.fields))
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        self.take().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn uuid(&mut self) -> Result<Uuid, FormatError> {
        self.take().map(Uuid::from_bytes)
    }

    pub(super) fn segment(&mut self) -> Result<Option<SegmentNo>, FormatError> {
        self.u32().map(|number| (number != NO_SEGMENT).then_some(SegmentNo(number)))
    }

    /// The next `count` bytes are zero.
    pub(super) fn reserved(&mut self, count: usize) -> Result<(), FormatError> {
        let start = self.base + self.at;
        let bytes = self.bytes(count)?;
        zeroes(self.structure, bytes, start)
    }

    /// Goes on behind the checksum; nothing more before it is used.
    pub(super) fn behind_checksum(mut self) -> Result<FieldReader<'a>, FormatError> {
        self.reserved(self.fields.len().saturating_sub(self.at))?;
        let base = self.base + self.fields.len() + 4;
        Ok(FieldReader { fields: self.tail, at: 0, base, tail: &[], ..self })
    }

    /// Nothing more is used.
    pub(super) fn finish(self) -> Result<(), FormatError> {
        let rest = self.behind_checksum()?;
        zeroes(rest.structure, rest.fields, rest.base)
    }

    /// The version is the one known here.
    pub(super) fn known(&self, found: u32) -> Result<(), FormatError> {
        let structure = self.structure;
        match found {
            VERSION => Ok(()),
            0 => Err(out_of_range(structure, Field::Version, 0, Limit::AtLeast(1))),
            _ => Err(FormatError::NewerVersion { structure, found, known: VERSION }),
        }
    }
}

/// Puts field behind field into a block. What does not fit is not written: the fields of a structure are fewer than a
/// block has.
pub(super) struct Writer {
    block: Block,
    at: usize,
}

impl Writer {
    pub(super) fn new(magic: &[u8]) -> Writer {
        let mut writer = Writer { block: [0; BLOCK_BYTES], at: 0 };
        writer.bytes(magic);
        writer
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for (to, from) in self.block.iter_mut().skip(self.at).zip(bytes) {
            *to = *from;
        }
        self.skip(bytes.len());
    }

    pub(super) fn u8(&mut self, number: u8) {
        self.bytes(&[number]);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn uuid(&mut self, uuid: Uuid) {
        self.bytes(uuid.as_bytes());
    }

    pub(super) fn segment(&mut self, segment: Option<SegmentNo>) {
        self.u32(segment.map_or(NO_SEGMENT, |segment| segment.0));
    }

    /// Goes on behind the checksum.
    pub(super) fn behind_checksum(&mut self, checksum_at: usize) {
        debug_assert!(self.at <= checksum_at, "the checksum lies behind the fields before it");
        self.at = checksum_at + 4;
    }

    /// Leaves `count` bytes zero.
    pub(super) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    /// The block, with the checksum of all other bytes at `checksum_at`.
    pub(super) fn seal(mut self, checksum_at: usize) -> Block {
        if let Some((fields, rest)) = self.block.split_at_mut_checked(checksum_at)
            && let Some((checksum, tail)) = rest.split_first_chunk_mut::<4>()
        {
            *checksum = Checksum::of(fields).append(tail).0.to_le_bytes();
        }
        self.block
    }
}

/// The first `needed` bytes.
pub(super) fn whole(structure: Structure, bytes: &[u8], needed: u64) -> Result<&[u8], FormatError> {
    let count = usize::try_from(needed).ok();
    count.and_then(|count| bytes.get(..count)).ok_or(truncated(structure, needed, bytes))
}

fn truncated(structure: Structure, needed: u64, bytes: &[u8]) -> FormatError {
    FormatError::Truncated { structure, needed: ByteSize(needed), present: ByteSize(bytes.len() as u64) }
}

fn zeroes(structure: Structure, bytes: &[u8], start: usize) -> Result<(), FormatError> {
    if is_zero(bytes) {
        return Ok(());
    }
    let at = bytes.iter().take_while(|byte| **byte == 0).count();
    Err(FormatError::Reserved { structure, offset: (start + at) as u64 })
}

pub(super) fn out_of_range(structure: Structure, field: Field, value: u64, limit: Limit) -> FormatError {
    FormatError::OutOfRange { structure, field, value, limit }
}

/// An error unless the value is within the limit.
pub(super) fn check(structure: Structure, field: Field, value: u64, limit: Limit) -> Result<(), FormatError> {
    let within = match limit {
        Limit::AtMost(limit) => value <= limit,
        Limit::AtLeast(limit) => value >= limit,
        Limit::Exactly(limit) => value == limit,
        Limit::Not(limit) => value != limit,
        Limit::PowerOfTwo(least, most) => value.is_power_of_two() && value >= least && value <= most,
    };
    if within { Ok(()) } else { Err(out_of_range(structure, field, value, limit)) }
}
