//! Files that a fill level moved, and that have not changed since: kept with their numbers.
//!
//! A file is known by its change time when its move was done. Whatever changes it (data, size, owner, mode, attributes,
//! a name) changes that time, also past the mount, and the mark counts no more. A mark that a crash loses lets a rule
//! bring the file back once.

use umbrella_units::Timestamp;

use super::{BackingKey, InodeMap, assign, place_of};

impl InodeMap {
    /// A fill level has moved the file to where it is. Call it after [`InodeMap::moved`], with the change time that it
    /// has there.
    pub fn set_evicted(&self, key: BackingKey, changed: Timestamp) {
        self.shard(key.slot).change(|state, records| {
            if let Some(entry) = state.entries.get_mut(&place_of(key)) {
                entry.evicted = Some(sum(changed));
                records.push(assign(key, *entry));
            }
        });
    }

    /// Whether a fill level moved it there, perhaps long ago. Cheap.
    pub fn was_evicted(&self, key: BackingKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.evicted.is_some())
    }

    /// Whether a fill level moved the file there, and it has not changed since.
    pub fn is_evicted(&self, key: BackingKey, changed: Timestamp) -> bool {
        self.entry(key).and_then(|entry| entry.evicted).is_some_and(|mark| mark == sum(changed))
    }
}

/// Checksum of a time: a record has no room for the time itself.
pub(super) fn sum(time: Timestamp) -> u32 {
    let seconds = crc32c::crc32c(&time.secs.to_le_bytes());
    crc32c::crc32c_append(seconds, &time.nanos.to_le_bytes())
}
