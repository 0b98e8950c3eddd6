//! Extended attributes of a directory that all its copies have.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{XattrFlags, removexattr, setxattr};
use rustix::io::Errno;

use super::error::ErrorContext;
use super::{Loss, RelocateError, attrs};
use crate::branch::Abilities;
use crate::ground::fd_path::proc_path;

/// Attributes that say something about a branch itself.
const OF_THE_BRANCH: [&str; 2] = ["user.umbrella.", "trusted.umbrella."];

/// Gives a directory these attributes and no others; adds to `lost` what it cannot keep.
pub(super) fn apply_xattrs(
    to: BorrowedFd<'_>,
    wanted: &attrs::Xattrs,
    abilities: &Abilities,
    lost: &mut Vec<Loss>,
) -> Result<(), RelocateError> {
    let mut present = attrs::xattrs(to).doing("read extended attributes")?;
    present.retain(is_of_the_directory);
    let path = proc_path(to);
    for (name, _) in present.iter().filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name)) {
        if removexattr(&path, name.as_os_str()).is_err() {
            note(lost, loss_of(name));
        }
    }
    for (name, value) in wanted.iter().filter(|attribute| !present.contains(attribute)) {
        let able = if attrs::is_acl(name) { abilities.acl } else { abilities.xattr };
        match setxattr(&path, name.as_os_str(), value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) if able => return Err(RelocateError::NoSpace),
            Err(_) => note(lost, loss_of(name)),
        }
    }
    Ok(())
}

/// Whether all copies have it, as users gave it to the directory.
pub(super) fn is_of_the_directory((name, _): &(OsString, Vec<u8>)) -> bool {
    let of_the_branch = OF_THE_BRANCH.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()));
    !of_the_branch && !attrs::of_the_file_system(name)
}

fn loss_of(name: &OsStr) -> Loss {
    if attrs::is_acl(name) { Loss::Acl } else { Loss::Xattr(name.to_owned()) }
}

pub(super) fn note(lost: &mut Vec<Loss>, loss: Loss) {
    if !lost.contains(&loss) {
        lost.push(loss);
    }
}
