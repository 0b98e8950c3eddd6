//! A device of a pair.

use std::sync::Arc;

use crate::device::BlockDevice;
use crate::flush_serializer::FlushSerializer;

/// A device of a pair, with the name that users know it by.
#[derive(Clone)]
pub struct Half {
    /// Its name in messages.
    pub name: String,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

impl Half {
    /// The same, with flushes that take turns.
    pub(super) fn with_serialized_flushes(self) -> Half {
        Half { device: Arc::new(FlushSerializer::new(self.device)), ..self }
    }
}
