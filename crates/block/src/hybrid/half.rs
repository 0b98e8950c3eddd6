//! A device of a pair.

use std::sync::Arc;

use crate::device::BlockDevice;
use crate::flush_serializer::FlushSerializer;

/// A device of a pair, with the name that users know it by.
#[derive(Clone)]
pub struct PairHalf {
    /// Its name in messages.
    pub name: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

impl PairHalf {
    /// The same, with flushes that take turns.
    pub(super) fn with_serialized_flushes(self) -> PairHalf {
        PairHalf { device: Arc::new(FlushSerializer::new(self.device)), ..self }
    }
}
