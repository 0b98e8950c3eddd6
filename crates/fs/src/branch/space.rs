//! How much room a branch has. This is asked often, so figures are kept for a moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::StatVfs;
use umbrella_policy::placement::{BranchView, Inodes};
use umbrella_units::ByteSize;

use super::{Branch, Online};
use crate::ground::locks::{RankedMutex, rank};

/// How old a figure of [`Branch::space`] may be.
const SPACE_AGE: Duration = Duration::from_millis(100);
/// How long a caller waits for a newer value from a branch that may hang.
const SHORT_WAIT: Duration = Duration::from_millis(50);
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
    /// What was made on the branch when the reading of `value` began.
    pub(super) made: u64,
    /// Counts calls of `invalidate_space`, so that a reading that began before one is not taken for fresh.
    pub(super) changes: u64,
    /// `changes` when the reading of `value` began: one that began earlier and ends later does not replace it.
    pub(super) value_began: u64,
    pub(super) refreshing: bool,
    /// How often the file system was asked.
    #[cfg(test)]
    pub(super) readings: u64,
}

/// A reading that is under way. However it ends, the next may begin.
struct SpaceReading {
    cache: Arc<RankedMutex<rank::BranchSpace, CachedSpace>>,
    /// When it began.
    changes: u64,
    made: u64,
    found: Option<StatVfs>,
}

impl SpaceReading {
    fn of(mut self, online: &Online) -> rustix::io::Result<()> {
        self.found = Some(rustix::fs::fstatvfs(online.root())?);
        Ok(())
    }
}

impl Drop for SpaceReading {
    fn drop(&mut self) {
        let mut cache = self.cache.lock();
        cache.refreshing = false;
        if let Some(stat) = self.found.take()
            && self.changes >= cache.value_began
        {
            (cache.value_began, cache.made) = (self.changes, self.made);
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
        if cache.changes == self.changes {
            cache.read_at = Some(Instant::now());
        }
    }
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

    /// Asks the file system. Where an older figure is known no caller waits long for a branch that may hang. The call
    /// notes what it finds when it returns; no other thread asks until then.
    fn read_space(&self) -> Space {
        let (changes, is_known) = {
            #[cfg_attr(not(test), expect(unused_mut, reason = "only tests count"))]
            let mut cache = self.space.lock();
            #[cfg(test)]
            {
                cache.readings += 1;
            }
            (cache.changes, cache.value.total.0 > 0)
        };
        let made = self.made.load(Ordering::Relaxed);
        let reading = SpaceReading { cache: Arc::clone(&self.space), changes, made, found: None };
        let read = move |online: &Online| reading.of(online);
        match self.online() {
            Some(online) if is_known && online.workers.is_some() => {
                let theirs = Arc::clone(&online);
                let called = online.workers.as_ref().map(|workers| workers.call(SHORT_WAIT, move || read(&theirs)));
                if let Some(Ok(result)) = called {
                    let _ = self.watch(&online, result);
                }
            }
            // It counts as an error of the branch there.
            _ => drop(self.io(read)),
        }
        self.space.lock().value
    }

    /// The next [`Branch::space`] asks the file system.
    pub fn invalidate_space(&self) {
        let mut cache = self.space.lock();
        cache.read_at = None;
        cache.changes += 1;
    }

    /// As [`Branch::invalidate_space`], for a new life of the branch: a reading of the last one may hang for ever.
    pub(super) fn forget_space(&self) {
        self.invalidate_space();
        self.space.lock().refreshing = false;
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
        let view = self.view_with(self.space());
        // Of what was made since the files were counted some may be gone.
        let is_full = view.inodes.is_some_and(|inodes| inodes.free == 0);
        if is_full && self.created_since() > 0 { self.view_now() } else { view }
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
            creates: self.settings().create,
            min_free: self.settings().min_free.of(space.total),
            inodes: self.inodes(space),
        }
    }

    /// A file or directory was made here.
    pub fn note_made(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// What was made here since the room was looked at.
    fn created_since(&self) -> u64 {
        self.made.load(Ordering::Relaxed).saturating_sub(self.space.lock().made)
    }

    /// Its inodes, no more than `max_files`. What was made since they were counted is in use, too.
    pub(crate) fn inodes(&self, space: Space) -> Option<Inodes> {
        let counted = (space.files_total > 0).then_some(Inodes { total: space.files_total, free: space.files_free });
        let most = |inodes: Inodes, max: u64| {
            let in_use = inodes.total.saturating_sub(inodes.free).saturating_add(self.created_since());
            let left = max.saturating_sub(in_use);
            Inodes { total: inodes.total.min(max), free: inodes.free.min(left) }
        };
        counted.map(|inodes| self.settings().max_files.map_or(inodes, |max| most(inodes, max)))
    }

    /// As [`Branch::inodes`], as if `files` fewer inodes were in use.
    pub(crate) fn inodes_without(&self, files: u64) -> Option<Inodes> {
        let space = self.space();
        self.inodes(Space { files_free: space.files_free.saturating_add(files), ..space })
    }

    /// Whether new files may come, as far as that does not depend on room.
    pub fn takes_new(&self) -> bool {
        self.settings().create && self.is_writable() && !self.draining()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(cache: &Arc<RankedMutex<rank::BranchSpace, CachedSpace>>, free: u64) -> SpaceReading {
        let mut found = rustix::fs::statvfs("/").unwrap();
        (found.f_frsize, found.f_bavail) = (1, free);
        SpaceReading { cache: Arc::clone(cache), changes: cache.lock().changes, made: 0, found: Some(found) }
    }

    #[test]
    fn a_reading_that_began_earlier_does_not_replace_a_newer_one() {
        let cache = Arc::new(RankedMutex::new(CachedSpace::default()));
        let first = reading(&cache, 1);
        cache.lock().changes += 1;
        let second = reading(&cache, 2);
        drop(second);
        cache.lock().read_at = None;
        cache.lock().changes += 1;
        drop(first);
        assert_eq!(cache.lock().value.free, ByteSize(2));
    }

    #[test]
    fn a_reading_that_something_changed_meanwhile_is_better_than_an_older_one() {
        let cache = Arc::new(RankedMutex::new(CachedSpace::default()));
        drop(reading(&cache, 1));
        let second = reading(&cache, 2);
        cache.lock().changes += 1;
        drop(second);
        assert_eq!(cache.lock().value.free, ByteSize(2));
    }
}
