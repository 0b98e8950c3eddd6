//! How much room a branch has: asked often, so that a figure may be a little old.

use std::time::{Duration, Instant};

use umbrella_policy::placement::{BranchView, Inodes};
use umbrella_units::ByteSize;

use super::Branch;

/// How old a figure of [`Branch::space`] may be.
const SPACE_AGE: Duration = Duration::from_millis(100);
/// Least headroom of a branch whose configuration names none.
const LEAST_HEADROOM: u64 = 1 << 30;

/// Room on a branch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Size.
    pub total: ByteSize,
    /// Free for unprivileged users.
    pub free: ByteSize,
    /// Free, with what is kept for root.
    pub free_for_root: ByteSize,
    /// Inodes the file system has; 0 when it does not count them.
    pub files_total: u64,
    /// Free inodes for unprivileged users.
    pub files_free: u64,
}

#[derive(Debug, Default)]
pub(super) struct CachedSpace {
    pub(super) value: Space,
    pub(super) read_at: Option<Instant>,
    /// Counts calls of `invalidate_space`, so that a reading that began before one is not taken for fresh.
    pub(super) changes: u64,
    pub(super) refreshing: bool,
}

impl Branch {
    /// Room on the branch, at most 100 ms old; older while the branch does not answer, and zero before it ever did.
    pub fn space(&self) -> Space {
        {
            let mut cache = self.space.lock();
            let fresh = cache.read_at.is_some_and(|at| at.elapsed() < SPACE_AGE);
            if fresh || (cache.refreshing && cache.value.total.0 > 0) {
                return cache.value;
            }
            cache.refreshing = true;
        }
        self.read_space()
    }

    fn read_space(&self) -> Space {
        let changes = self.space.lock().changes;
        let read = self.io(|online| rustix::fs::fstatvfs(online.root()));
        let mut cache = self.space.lock();
        cache.refreshing = false;
        let is_newest = cache.changes == changes;
        if let Ok(stat) = read
            && (is_newest || cache.read_at.is_none())
        {
            let block = stat.f_frsize.max(1);
            cache.value = Space {
                total: ByteSize(stat.f_blocks.saturating_mul(block)),
                free: ByteSize(stat.f_bavail.saturating_mul(block)),
                free_for_root: ByteSize(stat.f_bfree.saturating_mul(block)),
                files_total: stat.f_files,
                files_free: stat.f_favail,
            };
        }
        // Also after a failure: an offline branch is not asked again for each file.
        if is_newest {
            cache.read_at = Some(Instant::now());
        }
        cache.value
    }

    /// The next [`Branch::space`] asks the file system.
    pub fn invalidate_space(&self) {
        let mut cache = self.space.lock();
        cache.read_at = None;
        cache.changes += 1;
    }

    /// As [`Branch::space`], asked now; of a branch that may hang, what is known.
    pub fn space_now(&self) -> Space {
        if self.online.load().as_ref().is_some_and(|online| !online.guarded) {
            self.invalidate_space();
            return self.read_space();
        }
        self.space()
    }

    /// What placement wants to know.
    pub fn view(&self) -> BranchView {
        self.view_with(self.space())
    }

    /// As [`Branch::view`], with [`Branch::space_now`].
    pub fn view_now(&self) -> BranchView {
        self.view_with(self.space_now())
    }

    fn view_with(&self, space: Space) -> BranchView {
        let online = self.is_online();
        BranchView {
            online,
            writable: online && self.is_writable() && !self.draining(),
            total: space.total,
            free: space.free,
            min_free: self.settings().min_free.of(space.total),
            inodes: (space.files_total > 0).then_some(Inodes { total: space.files_total, free: space.files_free }),
        }
    }

    /// Below this much free space nothing is opened in passthrough for writing.
    pub fn headroom(&self) -> ByteSize {
        let total = self.space().total;
        let wanted = match self.settings().headroom {
            Some(amount) => amount.of(total),
            None => ByteSize((total.0 / 10).max(LEAST_HEADROOM)),
        };
        wanted.max(self.settings().min_free.of(total))
    }
}
