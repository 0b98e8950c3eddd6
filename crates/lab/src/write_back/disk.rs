//! How large the disks are, for those who have to choose one.

use umbrella_model::device::profiles::{Options, Profile, profiles};
use umbrella_units::{ByteSize, SECTOR_BYTES};

/// A disk's size.
pub fn capacity(profile: &Profile) -> ByteSize {
    ByteSize(profile.build(&Options::default()).capacity().0 * SECTOR_BYTES)
}

/// The names of the disks of such a size, with commas between them.
pub(super) fn disks_of(fits: impl Fn(ByteSize) -> bool) -> String {
    let all = profiles();
    let names: Vec<&str> = all.iter().filter(|profile| fits(capacity(profile))).map(|profile| profile.name).collect();
    names.join(", ")
}
