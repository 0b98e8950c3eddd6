//! A device in memory: for tests, and as a disk that forgets.

use parking_lot::RwLock;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::BlockError;

/// A device in memory. Flushing does nothing, since there is nothing to lose.
#[derive(Debug)]
pub struct Memory {
    geometry: Geometry,
    bytes: RwLock<Vec<u8>>,
}

impl Memory {
    /// Zeroes, as many as fit into whole sectors of `size`.
    pub fn new(size: ByteSize) -> Memory {
        let sectors = size.0 / SECTOR_BYTES;
        Memory::from_bytes(vec![0; (sectors * SECTOR_BYTES) as usize])
    }

    /// These bytes; what is behind the last whole sector is cut off.
    pub fn from_bytes(mut bytes: Vec<u8>) -> Memory {
        let sectors = bytes.len() as u64 / SECTOR_BYTES;
        bytes.truncate((sectors * SECTOR_BYTES) as usize);
        let geometry = Geometry {
            capacity: Lba(sectors),
            logical_block: SECTOR_BYTES as u32,
            physical_block: 4096,
            rotational: false,
            queue_depth: 1,
        };
        Memory { geometry, bytes: RwLock::new(bytes) }
    }

    /// All that it holds.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

fn span(range: SectorRange) -> std::ops::Range<usize> {
    (range.start.0 * SECTOR_BYTES) as usize..(range.end().0 * SECTOR_BYTES) as usize
}

impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry.check(at, buffer.len())?;
        buffer.copy_from_slice(&self.bytes.read()[span(range)]);
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], _durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry.check(at, data.len())?;
        self.bytes.write()[span(range)].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry.check_range(range)
    }

    fn write_zeroes(&self, range: SectorRange, _zeroes: Zeroes, _durability: Durability) -> Result<(), BlockError> {
        self.geometry.check_range(range)?;
        self.bytes.write()[span(range)].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_beyond_the_end() {
        let memory = Memory::new(ByteSize(8 * SECTOR_BYTES + 5));
        memory.write(Lba(7), &[7; 512], Durability::Cached).expect("the last sector exists");
        let mut two = [1; 1024];
        memory.read(Lba(6), &mut two).expect("both exist");
        assert_eq!((&two[..512], &two[512..]), (&[0; 512][..], &[7; 512][..]));
        assert!(matches!(memory.read(Lba(7), &mut two), Err(BlockError::BeyondEnd { .. })));
        assert!(matches!(
            memory.write(Lba(u64::MAX), &[0; 512], Durability::Cached),
            Err(BlockError::BeyondEnd { .. })
        ));
        assert!(matches!(memory.read(Lba(0), &mut [0; 100]), Err(BlockError::Unaligned { .. })));
        let all = SectorRange { start: Lba(0), sectors: 8 };
        memory.write_zeroes(all, Zeroes::Unmap, Durability::Through).expect("it exists");
        assert_eq!(memory.to_bytes(), vec![0; 4096]);
    }
}
