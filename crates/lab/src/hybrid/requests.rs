//! Requests that are not answered yet.

use rustc_hash::FxHashMap;
use umbrella_model::device::RequestId;
use umbrella_units::Nanos;

/// Requests of a flush; all others are numbered from [`FIRST`].
pub(super) const FLUSH_READ: RequestId = RequestId(0);
pub(super) const FLUSH_WRITE: RequestId = RequestId(1);
pub(super) const FLUSH_SYNC: RequestId = RequestId(2);
const FIRST: u64 = 3;

/// A request that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) arrived: Nanos,
    /// Requests to devices that it waits for.
    parts: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: FxHashMap<u64, Open>,
    count: u64,
}

impl Requests {
    /// A request that arrived then, and waits for `parts` requests to devices. They all have its name.
    pub(super) fn begin(&mut self, arrived: Nanos, parts: u32) -> RequestId {
        let number = FIRST + self.count;
        self.count += 1;
        self.open.insert(number, Open { arrived, parts });
        RequestId(number)
    }

    /// One of its parts is done. Returns when it arrived, if that was the last.
    pub(super) fn done(&mut self, id: RequestId) -> Option<Nanos> {
        let open = self.open.get_mut(&id.0)?;
        open.parts = open.parts.saturating_sub(1);
        if open.parts > 0 {
            return None;
        }
        self.open.remove(&id.0).map(|open| open.arrived)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
