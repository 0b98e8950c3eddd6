//! How numbers are laid out, so that ranges cannot meet. The two highest bits say which range:
//!
//! - `00` a file in its place: slot (14 bits), inode number on the branch (48 bits). Nothing needs to be stored.
//! - `01` a file on a foreign device of a branch: that device's index (14 bits), inode number (48 bits). The index is a
//!   hash of slot and device, the next free one on a collision, so it is nearly always the same at the next mount.
//! - `10` a number made up: slot that made it (14 bits), counter (48 bits).
//! - `11` a hash of slot, device and inode number, for inode numbers of more than 48 bits.

use umbrella_units::mix64;

use super::BackingKey;

/// Bits of an inode number that fit below slot or index.
const LOW: u32 = 48;
const LOW_MASK: u64 = (1 << LOW) - 1;
const INDEX_MASK: u64 = 0x3fff;
const FOREIGN: u64 = 0b01 << 62;
const FRESH: u64 = 0b10 << 62;
const HASHED: u64 = 0b11 << 62;

/// How many foreign devices have numbers of their own.
pub(super) const FOREIGN_DEVICES: usize = INDEX_MASK as usize + 1;

/// A number, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    /// `00`, with the slot.
    Place(u16),
    /// `01` or `11`.
    Foreign,
    /// `10`, with slot and counter.
    Fresh(u16, u64),
}

/// The number of a file in its place; `None` when it does not fit, or would be 0 or the root's 1.
pub(super) fn place(key: BackingKey) -> Option<u64> {
    let slot = u64::from(key.slot);
    let fits = key.foreign_dev == 0 && key.ino <= LOW_MASK && slot <= INDEX_MASK;
    let number = slot << LOW | key.ino;
    (fits && number > 1).then_some(number)
}

/// The number of a file on the foreign device with this index.
pub(super) fn foreign(index: u16, ino: u64) -> Option<u64> {
    (ino <= LOW_MASK).then_some(FOREIGN | (u64::from(index) & INDEX_MASK) << LOW | ino)
}

/// Where the search for a device's index begins.
pub(super) fn first_index(slot: u16, device: u64) -> u16 {
    (mix64(device ^ u64::from(slot) << 48) & INDEX_MASK) as u16
}

/// A made-up number.
pub(super) fn fresh(slot: u16, counter: u64) -> u64 {
    FRESH | (u64::from(slot) & INDEX_MASK) << LOW | counter & LOW_MASK
}

/// The number of a file whose inode number is too long.
pub(super) fn hashed(key: BackingKey) -> u64 {
    HASHED | mix64(mix64(key.ino) ^ mix64(key.foreign_dev ^ u64::from(key.slot) << 48).rotate_left(17))
}

/// Which range a number is of.
pub(super) fn range(number: u64) -> Range {
    let index = (number >> LOW & INDEX_MASK) as u16;
    match number & HASHED {
        0 => Range::Place(index),
        FRESH => Range::Fresh(index, number & LOW_MASK),
        _ => Range::Foreign,
    }
}
