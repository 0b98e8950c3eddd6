//! Threads for calls that may last: they exist while they have work.
//!
//! Calls to a branch that may never return are made here, so that their callers do return. A call that takes too long
//! is left to its thread, and the caller goes on with an error. Threads are counted per branch over all its lives, so
//! that a branch that hangs again and again cannot use up the machine.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ground::locks::{Condvar, LeafMutex, rank};

/// How many threads there may be at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadLimits {
    /// Of one pool.
    pub(crate) in_pool: usize,
    /// Of their owner, with all the pools it had whose threads still hang.
    pub(crate) in_all: usize,
}

/// Calls to a branch that are answered soon. Some take longer, where one directory of a network or FUSE file system is
/// busy, and the others must not wait for those.
pub(crate) const CALLS: ThreadLimits = ThreadLimits { in_pool: 64, in_all: 192 };
/// Copies of files. More than the mover and the enforcer could ask for at once, unless some of them hang.
pub(crate) const COPIES: ThreadLimits = ThreadLimits { in_pool: 24, in_all: 32 };

/// A thread with nothing to do ends after this.
const IDLE: Duration = Duration::from_secs(20);
/// How often a waiting caller looks whether the pool was closed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It took too long. It may still happen.
    TimedOut,
    /// The branch went offline. It may still happen if it had begun.
    Closed,
    /// Too many threads hang already.
    Exhausted,
    /// The machine gives the daemon no thread.
    NoThread,
}

/// Makes a call apart from its caller, which waits for it while `wait` returns true. The argument of `wait` says
/// whether the call waits for a thread. Without threads of its own the call is made here.
pub(crate) fn call_apart<T: Send + 'static>(
    workers: Option<&Workers>,
    call: impl FnOnce() -> T + Send + 'static,
    mut wait: impl FnMut(bool) -> bool,
) -> Result<T, Lost> {
    let Some(workers) = workers else { return Ok(call()) };
    workers.call_while(call, |turn| wait(matches!(turn, CallStage::Queued { .. })).then_some(POLL_INTERVAL))
}

/// Where a call is that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStage {
    /// Behind others. `progress`: how many of those have ended.
    Queued { progress: u64 },
    /// On its thread.
    Running,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    queue: LeafMutex<rank::WorkersQueue, JobQueue>,
    in_all: Arc<AtomicUsize>,
    most: ThreadLimits,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    /// What wakes each thread that has nothing to do. The last one gets the next call, so that the others end although
    /// there are a few calls all the time.
    idle: Vec<Arc<Condvar>>,
    live: usize,
    finished: u64,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("live", &self.queue.lock().live).finish_non_exhaustive()
    }
}

/// Where the result of one call is put.
struct Slot<T> {
    state: LeafMutex<rank::WorkersCall, CallState<T>>,
    ready: Condvar,
}

enum CallState<T> {
    Queued,
    Running,
    Done(std::thread::Result<T>),
    Abandoned,
}

impl Workers {
    /// A pool without threads yet; `in_all` counts the threads of all pools of its owner.
    pub(crate) fn new(in_all: Arc<AtomicUsize>, most: ThreadLimits) -> Workers {
        Workers { shared: Arc::new(Shared { queue: LeafMutex::default(), in_all, most }) }
    }

    /// Runs `call` on a thread of the pool and waits at most `timeout` for it. A call that is queued behind others
    /// waits on as long as those come to an end. A panic in `call` is the caller's.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        timeout: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let mut deadline = Instant::now() + timeout;
        let mut finished = self.shared.queue.lock().finished;
        self.call_while(call, |turn| {
            let now = Instant::now();
            if now < deadline {
                return Some(deadline - now);
            }
            let CallStage::Queued { progress } = turn else { return None };
            if progress == finished {
                return None;
            }
            finished = progress;
            deadline = now + timeout;
            Some(timeout)
        })
    }

    /// As [`Workers::call`]; waits as long as `wait` says how long, and asks it again and again.
    pub(crate) fn call_while<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
        wait: impl FnMut(CallStage) -> Option<Duration>,
    ) -> Result<T, Lost> {
        let slot = Arc::new(Slot { state: LeafMutex::new(CallState::Queued), ready: Condvar::new() });
        let filled = Arc::clone(&slot);
        self.submit(Box::new(move || {
            {
                let mut state = filled.state.lock();
                if matches!(*state, CallState::Abandoned) {
                    return;
                }
                *state = CallState::Running;
            }
            let result = catch_unwind(AssertUnwindSafe(call));
            let mut state = filled.state.lock();
            // An abandoned result is dropped here, on the thread that may hang.
            if !matches!(*state, CallState::Abandoned) {
                *state = CallState::Done(result);
                filled.ready.notify_one();
            }
        }))?;
        self.wait(&slot, wait)
    }

    fn wait<T>(&self, slot: &Slot<T>, mut wait: impl FnMut(CallStage) -> Option<Duration>) -> Result<T, Lost> {
        let mut state = slot.state.lock();
        loop {
            if let CallState::Done(_) = *state {
                let CallState::Done(result) = std::mem::replace(&mut *state, CallState::Abandoned) else {
                    return Err(Lost::Closed);
                };
                return result.map_err(|panic| resume_unwind(panic));
            }
            let (closed, progress) = {
                let queue = self.shared.queue.lock();
                (queue.closed, queue.finished)
            };
            if closed {
                *state = CallState::Abandoned;
                return Err(Lost::Closed);
            }
            let turn =
                if matches!(*state, CallState::Queued) { CallStage::Queued { progress } } else { CallStage::Running };
            let Some(left) = wait(turn) else {
                *state = CallState::Abandoned;
                return Err(Lost::TimedOut);
            };
            slot.ready.wait_for(&mut state, left.min(POLL_INTERVAL));
        }
    }

    /// Ends the pool: callers get [`Lost::Closed`], threads end as soon as their calls return.
    pub(crate) fn close(&self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        let jobs = std::mem::take(&mut queue.jobs);
        for thread in queue.idle.drain(..) {
            thread.notify_one();
        }
        drop(queue);
        // What a job holds may do anything when it is dropped.
        drop(jobs);
    }

    /// Has a thread make a call, for which no thread waits. A panic in it ends nothing else.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Lost> {
        let mut queue = self.shared.queue.lock();
        if queue.closed {
            return Err(Lost::Closed);
        }
        if let Some(thread) = queue.idle.pop() {
            thread.notify_one();
        } else if queue.live < self.shared.most.in_pool {
            match self.shared.start() {
                Ok(()) => queue.live += 1,
                Err(lost) if queue.live == 0 => return Err(lost),
                Err(_) => {}
            }
        }
        queue.jobs.push_back(job);
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Starts a thread, if there may be another.
    fn start(self: &Arc<Self>) -> Result<(), Lost> {
        if self.in_all.fetch_add(1, Ordering::Relaxed) >= self.most.in_all {
            self.in_all.fetch_sub(1, Ordering::Relaxed);
            return Err(Lost::Exhausted);
        }
        let shared = Arc::clone(self);
        let work = move || {
            shared.work();
            shared.in_all.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("io".to_owned()).spawn(work).is_err() {
            self.in_all.fetch_sub(1, Ordering::Relaxed);
            return Err(Lost::NoThread);
        }
        Ok(())
    }

    fn work(&self) {
        let wake = Arc::new(Condvar::new());
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                // The panic hook reports it when it happens; a caller that waits for a result catches it itself.
                let _panic = catch_unwind(AssertUnwindSafe(job));
                queue = self.queue.lock();
                queue.finished += 1;
                continue;
            }
            if queue.closed {
                break;
            }
            queue.idle.push(Arc::clone(&wake));
            wake.wait_for(&mut queue, IDLE);
            // A thread that is still among the idle was not woken.
            if let Some(at) = queue.idle.iter().position(|thread| Arc::ptr_eq(thread, &wake)) {
                queue.idle.remove(at);
                break;
            }
        }
        queue.live -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    const MANY: usize = 40;
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn workers() -> Workers {
        Workers::new(Arc::default(), ThreadLimits { in_pool: MANY, in_all: MANY })
    }

    /// As many calls at once as there may be threads.
    fn burst(workers: &Workers) {
        let all = Arc::new(Barrier::new(MANY + 1));
        for _ in 0..MANY {
            let all = Arc::clone(&all);
            workers.submit(Box::new(move || _ = all.wait())).unwrap();
        }
        all.wait();
    }

    #[test]
    fn a_few_calls_do_not_keep_many_threads_awake() {
        let workers = workers();
        burst(&workers);
        while workers.shared.queue.lock().idle.len() < MANY {
            std::thread::yield_now();
        }
        let used: HashSet<_> =
            (0..1000).map(|_| workers.call(TIMEOUT, || std::thread::current().id()).unwrap()).collect();
        assert!(used.len() < MANY / 2, "{} of {MANY} threads made them", used.len());
    }

    #[test]
    fn more_calls_than_threads_are_all_made_and_closing_ends_the_threads() {
        let workers = workers();
        for _ in 0..3 {
            burst(&workers);
        }
        let made = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 * MANY {
            let made = Arc::clone(&made);
            workers.submit(Box::new(move || _ = made.fetch_add(1, Ordering::Relaxed))).unwrap();
        }
        while made.load(Ordering::Relaxed) < 10 * MANY {
            std::thread::yield_now();
        }
        workers.close();
        assert_eq!(workers.call(TIMEOUT, || ()), Err(Lost::Closed));
        while workers.shared.in_all.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}
