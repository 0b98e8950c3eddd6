//! Descriptors of branches, closed where no caller waits.
//!
//! Closing a file of a network or FUSE file system may have to wait for its server. So the last owner of a descriptor
//! of a guarded branch hands it to the branch's closers. These threads start when there is something to close, and end
//! after a while without work.
//!
//! Only one thread at a time closes the descriptors of one life of the branch. While it hangs, they queue; descriptors
//! of other lives are closed as usual. On a local branch a descriptor is closed at once, by its last owner.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::ground::locks::{Condvar, LeafMutex, rank};

/// Threads of one branch. More than one only while those of earlier lives hang.
const MOST: usize = 8;
/// A closer with nothing to do ends after this.
const IDLE: Duration = Duration::from_secs(2);

/// A descriptor of something on a branch.
#[derive(Debug)]
pub struct BranchFd {
    /// Taken once, by `drop`.
    fd: ManuallyDrop<OwnedFd>,
    /// `None`: closing does not wait.
    closer: Option<Closer>,
}

impl BranchFd {
    pub(super) fn new(fd: OwnedFd, closer: Option<&Closer>) -> BranchFd {
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

/// Where the descriptors of one life of a guarded branch go.
#[derive(Debug, Clone)]
pub(super) struct Closer {
    closers: Arc<Closers>,
    life: u64,
}

impl Closer {
    fn close(&self, fd: OwnedFd) {
        self.closers.close(self.life, fd);
    }
}

/// The closers of a branch, for all its lives.
#[derive(Debug, Default)]
pub(super) struct Closers {
    state: LeafMutex<rank::Closers, CloserState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct CloserState {
    /// Lives with something to close, or that are closing.
    lives: Vec<Life>,
    last_life: u64,
    threads: usize,
    idle: usize,
}

#[derive(Debug)]
struct Life {
    number: u64,
    fds: Vec<OwnedFd>,
    /// A thread closes one of them.
    busy: bool,
}

impl CloserState {
    /// A descriptor of a life that no thread is at, which the caller now is.
    fn take(&mut self) -> Option<(u64, OwnedFd)> {
        let life = self.lives.iter_mut().find(|life| life.is_ready())?;
        let fd = life.fds.pop()?;
        life.busy = true;
        Some((life.number, fd))
    }

    fn done(&mut self, life: u64) {
        if let Some(done) = self.lives.iter_mut().find(|it| it.number == life) {
            done.busy = false;
        }
        self.lives.retain(|it| it.busy || !it.fds.is_empty());
    }
}

impl Life {
    fn is_ready(&self) -> bool {
        !self.busy && !self.fds.is_empty()
    }
}

impl Closers {
    /// For a new life of the branch.
    pub(super) fn begin_life(self: &Arc<Self>) -> Closer {
        let mut state = self.state.lock();
        state.last_life += 1;
        Closer { closers: Arc::clone(self), life: state.last_life }
    }

    fn close(self: &Arc<Self>, life: u64, fd: OwnedFd) {
        let mut state = self.state.lock();
        match state.lives.iter_mut().find(|it| it.number == life) {
            Some(known) => known.fds.push(fd),
            None => state.lives.push(Life { number: life, fds: vec![fd], busy: false }),
        }
        self.call_for(&mut state);
    }

    /// Sees to it that a thread comes for a life that is ready, if there may be one more.
    fn call_for(self: &Arc<Self>, state: &mut CloserState) {
        if !state.lives.iter().any(Life::is_ready) {
            return;
        }
        if state.idle > 0 {
            self.wake.notify_one();
        } else if state.threads < MOST {
            let closers = Arc::clone(self);
            let started = std::thread::Builder::new().name("branch-close".to_owned()).spawn(move || closers.work());
            // Without one, the next descriptor tries again.
            state.threads += usize::from(started.is_ok());
        }
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            if let Some((life, fd)) = state.take() {
                // This one may hang.
                self.call_for(&mut state);
                drop(state);
                drop(fd);
                state = self.state.lock();
                state.done(life);
                continue;
            }
            state.idle += 1;
            let waited = self.wake.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && !state.lives.iter().any(Life::is_ready) {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _};

    use super::*;

    /// A descriptor, and what tells when it is closed.
    fn watched() -> (OwnedFd, PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        (writer.into(), reader)
    }

    fn wait_until_closed(mut reader: PipeReader) {
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_descriptor_is_closed_with_its_last_share() {
        let closers = Arc::<Closers>::default();
        for closer in [None, Some(closers.begin_life())] {
            let (fd, mut reader) = watched();
            let first = Arc::new(BranchFd::new(fd, closer.as_ref()));
            let second = Arc::clone(&first);
            drop(first);
            rustix::io::write(&*second, b"x").unwrap();
            drop((second, closer));
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            assert_eq!(all, b"x");
        }
    }

    #[test]
    fn many_lives_that_end_at_once_have_few_threads_and_leave_nothing_open() {
        let closers = Arc::<Closers>::default();
        let (fds, readers): (Vec<_>, Vec<_>) = (0..4 * MOST)
            .map(|_| {
                let (fd, reader) = watched();
                (BranchFd::new(fd, Some(&closers.begin_life())), reader)
            })
            .unzip();
        drop(fds);
        assert!(closers.state.lock().threads <= MOST);
        readers.into_iter().for_each(wait_until_closed);
    }

    #[test]
    fn a_life_that_hangs_keeps_what_is_its_own_and_nothing_of_the_next_life() {
        let closers = Arc::<Closers>::default();
        let (hung, next) = (closers.begin_life(), closers.begin_life());
        let busy = Life { number: hung.life, fds: Vec::new(), busy: true };
        closers.state.lock().lives.push(busy);
        let (fd, waits) = watched();
        drop(BranchFd::new(fd, Some(&hung)));
        let (fd, reader) = watched();
        drop(BranchFd::new(fd, Some(&next)));
        wait_until_closed(reader);
        let queued = closers.state.lock().lives.iter().map(|life| life.fds.len()).sum::<usize>();
        assert_eq!(queued, 1, "it waits for its turn");

        closers.state.lock().done(hung.life);
        let (fd, reader) = watched();
        drop(BranchFd::new(fd, Some(&hung)));
        wait_until_closed(reader);
        wait_until_closed(waits);
    }
}
