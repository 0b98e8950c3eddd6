//! A device whose flushes take turns.
//!
//! Of two flushes at once a device may tell only one that something was lost, as Linux tells of a failed write-back only once; the other would return well. So what flushes from several
//! threads does it through this: one flush at a time, and none after one that failed, which fails as that one did.

use std::sync::Arc;

use parking_lot::Mutex;
use umbrella_units::{Lba, SectorRange};

use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::BlockError;

/// See the module.
pub(crate) struct InTurn {
    inner: Arc<dyn BlockDevice>,
    /// Held by whoever flushes; how that failed.
    failed: Mutex<Option<BlockError>>,
}

impl InTurn {
    /// Around that device.
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> InTurn {
        InTurn { inner, failed: Mutex::new(None) }
    }
}

impl BlockDevice for InTurn {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn refresh(&self) -> Result<(), BlockError> {
        self.inner.refresh()
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.inner.write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        let mut failed = self.failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let done = self.inner.flush();
        *failed = done.clone().err();
        done
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.inner.discard(range)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.inner.write_zeroes(range, zeroes, durability)
    }
}
