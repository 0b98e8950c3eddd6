//! Descriptors of branches, closed where nobody waits.
//!
//! To close a file of a network or FUSE file system may mean to ask its server, and to wait. So the last share of a descriptor of a
//! guarded branch gives it to the closer of that life of the branch: one thread, which comes with the first descriptor and goes when it
//! has had nothing to do for a while. While it hangs, further descriptors queue. On a local branch a descriptor is closed here and now.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Closers of one branch, all its lives together. A life has one; those of earlier lives are here only while they hang.
const MAX_IN_BRANCH: usize = 8;
/// A closer with nothing to do ends after this.
const IDLE: Duration = Duration::from_secs(2);

/// A descriptor of something on a branch.
#[derive(Debug)]
pub struct BranchFd {
    /// Taken once, by `drop`.
    fd: ManuallyDrop<OwnedFd>,
    /// `None`: closing does not wait.
    closer: Option<Arc<Closer>>,
}

impl BranchFd {
    pub(super) fn new(fd: OwnedFd, closer: Option<&Arc<Closer>>) -> BranchFd {
        BranchFd { fd: ManuallyDrop::new(fd), closer: closer.cloned() }
    }
}

impl AsFd for BranchFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for BranchFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for BranchFd {
    fn drop(&mut self) {
        // SAFETY: taken here only, and nothing uses the field afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Some(closer) = &self.closer {
            closer.close(fd);
        }
    }
}

/// Closes descriptors of one life of a guarded branch.
#[derive(Debug)]
pub(super) struct Closer {
    shared: Arc<Shared>,
    in_branch: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    fds: Vec<OwnedFd>,
    running: bool,
}

impl Closer {
    /// `in_branch` counts the closers of all lives of the branch.
    pub(super) fn new(in_branch: Arc<AtomicUsize>) -> Closer {
        Closer { shared: Arc::default(), in_branch }
    }

    fn close(&self, fd: OwnedFd) {
        let mut queue = self.shared.queue.lock();
        queue.fds.push(fd);
        if queue.running {
            self.shared.wake.notify_one();
        } else {
            queue.running = self.start();
        }
    }

    /// Starts the thread, if the branch may have another. If not, the next descriptor tries again.
    fn start(&self) -> bool {
        if self.in_branch.fetch_add(1, Ordering::Relaxed) >= MAX_IN_BRANCH {
            self.in_branch.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let (shared, in_branch) = (Arc::clone(&self.shared), Arc::clone(&self.in_branch));
        let work = move || {
            shared.work();
            in_branch.fetch_sub(1, Ordering::Relaxed);
        };
        let started = std::thread::Builder::new().name("branch-close".to_owned()).spawn(work).is_ok();
        if !started {
            self.in_branch.fetch_sub(1, Ordering::Relaxed);
        }
        started
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        if !queue.running && !queue.fds.is_empty() {
            queue.running = self.start();
        }
        if !queue.running {
            // Closers of this branch hang already, as many as there may be: left open until the daemon ends.
            queue.fds.drain(..).for_each(std::mem::forget);
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(fd) = queue.fds.pop() {
                drop(queue);
                drop(fd);
                queue = self.queue.lock();
            } else if self.wake.wait_for(&mut queue, IDLE).timed_out() && queue.fds.is_empty() {
                queue.running = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn open_closer() -> Arc<Closer> {
        Arc::new(Closer::new(Arc::default()))
    }

    /// A descriptor, and what tells when it is closed.
    fn watched() -> (OwnedFd, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        (writer.into(), reader)
    }

    #[test]
    fn a_descriptor_is_closed_with_its_last_share() {
        for closer in [None, Some(open_closer())] {
            let (fd, mut reader) = watched();
            let first = Arc::new(BranchFd::new(fd, closer.as_ref()));
            let second = Arc::clone(&first);
            drop(first);
            rustix::io::write(&*second, b"x").unwrap();
            drop(second);
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"x");
        }
    }

    #[test]
    fn descriptors_of_a_life_that_is_over_are_closed() {
        let closer = open_closer();
        let (fd, mut reader) = watched();
        let held = BranchFd::new(fd, Some(&closer));
        drop(closer);
        drop(held);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_branch_whose_closers_all_hang_gets_no_more_of_them_and_closes_nothing() {
        let in_branch = Arc::new(AtomicUsize::new(MAX_IN_BRANCH));
        let closer = Arc::new(Closer::new(Arc::clone(&in_branch)));
        let (fd, mut reader) = watched();
        let number = fd.as_raw_fd();
        drop(BranchFd::new(fd, Some(&closer)));
        drop(closer);
        assert_eq!(in_branch.load(Ordering::Relaxed), MAX_IN_BRANCH);
        // SAFETY: it was left open on purpose, and nobody else has the number.
        drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
}
