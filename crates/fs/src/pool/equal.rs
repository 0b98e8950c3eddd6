//! Copies of a directory are equal in mode and owner.
//!
//! Those that the pool made differ only when one was offline while the others were changed: the one that changed last decides. Those that
//! were on the branches before may have been closed for a reason: none is opened.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::Pool;
use super::lookup::Found;
use crate::error::OpError;
use crate::meta::Meta;
use crate::node::Node;

impl Pool {
    /// Makes the copies of a directory equal in mode and owner. Whether it is less open now than it was found.
    pub(super) fn equalise(&self, parent: &Arc<Node>, name: &OsStr, found: &Found) -> bool {
        let mut numbers = found.at.iter().map(|(at, meta)| self.inodes.ino(Pool::inode_key(&at.online, meta)));
        let first = numbers.next();
        // Copies that the pool made have the number of their original.
        if numbers.all(|number| Some(number) == first) {
            heal(found, name);
            return false;
        }
        self.tighten(parent, found, name)
    }

    /// Copies of a directory that nobody made here (they were on the branches before) and that differ in mode: all get what all of them
    /// allow, as somebody may have closed one for a reason. Whether any was changed.
    fn tighten(&self, parent: &Arc<Node>, found: &Found, name: &OsStr) -> bool {
        const STICKY: u32 = 0o1000;
        let allowed = found.at.iter().fold(0o777, |all, (_, meta)| all & meta.perm);
        let sticky = found.at.iter().fold(0, |any, (_, meta)| any | meta.perm & STICKY);
        let mut changed = false;
        for (at, meta) in &found.at {
            let wanted = allowed | sticky | meta.perm & 0o6000;
            if meta.perm & 0o7777 == wanted || at.branch.spec.read_only {
                continue;
            }
            match at.descend(name).and_then(|copy| copy.as_file().chmod(wanted)) {
                Ok(()) => changed = true,
                Err(error) => {
                    tracing::info!(branch = %at.branch.spec.name, %error, "a directory's copy could not be made like the others");
                }
            }
        }
        if changed {
            let path = String::from_utf8_lossy(&crate::node::path_of(parent, name)).into_owned();
            let modes = found.at.iter().map(|(at, meta)| format!("{} {:04o}", at.branch.spec.name, meta.perm & 0o7777));
            let modes = modes.collect::<Vec<_>>().join(", ");
            self.warn(
                format!("modes {path}"),
                format!(
                    "{path} was open to different people on its branches ({modes}); it has mode {:04o} on all of them now, and chmod through the pool changes it everywhere",
                    allowed | sticky
                ),
            );
        }
        changed
    }
}

/// Copies of a directory that differ in mode or owner (one was offline when the others were changed) become equal to the one that
/// changed last. What was found is named by the directories above.
fn heal(found: &Found, name: &OsStr) {
    let of = |meta: &Meta| (meta.perm, meta.uid, meta.gid);
    let Some((above, wanted)) = found.at.iter().max_by_key(|(_, meta)| meta.ctime) else { return };
    for (at, meta) in &found.at {
        if of(meta) == of(wanted) || at.branch.spec.read_only {
            continue;
        }
        let healed = above.descend(name).and_then(|newest| {
            let copy = at.descend(name)?;
            crate::relocate::sync_dir_attrs(newest.fd.as_fd(), copy.fd.as_fd(), &at.branch.abilities())
                .map_err(|error| OpError::Sys(error.errno()))?;
            if meta.mtime <= wanted.mtime {
                return Ok(());
            }
            // Its entries changed later, if not its mode: the directory must not look older than before.
            copy.as_file().set_times(super::dirs::times_of(meta))
        });
        if let Err(error) = healed {
            tracing::info!(branch = %at.branch.spec.name, %error, "a directory's copy could not be made like the others");
        }
    }
}
