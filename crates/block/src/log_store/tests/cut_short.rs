//! Power cuts and kills while threads write, flush, clean, make checkpoints and grow the store. Which moments are met
//! is left to chance; what must hold at each is not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::every_call::{FailingDisk, Failure};
use super::*;
use crate::error::BlockError;

/// What was written to a block, in order: numbers, 0 where it was discarded. All from `durable` on may be found.
#[derive(Debug, Clone)]
struct History {
    values: Vec<u32>,
    durable: usize,
}

type Truth = Vec<Mutex<Vec<History>>>;

/// What may be found at a moment: from the first on, up to the last.
struct Moment {
    device: Arc<dyn BlockDevice>,
    durable: Vec<Vec<usize>>,
    values: Vec<Vec<Vec<u32>>>,
    label: String,
}

/// A disk that is looked at every now and then: what would be there if it ended now.
struct Watched {
    inner: Arc<FailingDisk>,
    calls: AtomicU64,
    truth: Arc<Truth>,
    moments: Mutex<Vec<Moment>>,
}

const EVERY: u64 = 47;
const MOST: usize = 24;

impl Watched {
    fn look(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if !call.is_multiple_of(EVERY) || self.moments.lock().len() >= MOST {
            return;
        }
        let each = |of: fn(&History) -> usize| -> Vec<Vec<usize>> {
            self.truth.iter().map(|own| own.lock().iter().map(of).collect()).collect()
        };
        let durable = each(|history| history.durable);
        // In turn: a kill, which leaves what the kernel has, and a power cut.
        let killed = (call / EVERY).is_multiple_of(2);
        let device = if killed { self.inner.cached() } else { self.inner.medium() };
        let values = self.truth.iter().map(|own| own.lock().iter().map(|history| history.values.clone()).collect());
        let label = format!("{} at call {call}", if killed { "killed" } else { "cut" });
        self.moments.lock().push(Moment { device, durable, values: values.collect(), label });
    }
}

impl BlockDevice for Watched {
    crate::forward!(inner: geometry, read, discard, write_zeroes);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.look();
        self.inner.write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.look();
        let done = self.inner.flush();
        // Others write meanwhile; that is not flushed.
        std::thread::sleep(Duration::from_micros(300));
        self.look();
        done
    }
}

const THREADS: u64 = 3;

/// Changes blocks of its own: every [`THREADS`]th.
fn change(store: &LogStore, truth: &Mutex<Vec<History>>, thread: u64, blocks: u64, rounds: u32) {
    let mut random = StdRng::seed_from_u64(thread);
    for number in 1..=rounds {
        let hot = random.random_bool(0.6);
        let nth = random.random_range(0..if hot { blocks / 8 } else { blocks });
        let at = (nth * THREADS + thread) * 8;
        let note = |value: u32| {
            let mut own = truth.lock();
            own[nth as usize].values.push(value);
            own[nth as usize].values.len() - 1
        };
        match random.random_range(0..40) {
            0 => {
                note(0);
                store.discard(range(at, 8)).expect("it is discarded");
            }
            1 => {
                let entry = note(number);
                store.write(Lba(at), &content(number), Durability::Through).expect("there is room");
                truth.lock()[nth as usize].durable = entry;
            }
            2 => {
                let until: Vec<usize> = truth.lock().iter().map(|history| history.values.len() - 1).collect();
                store.flush().expect("the disk does not fail");
                for (history, until) in truth.lock().iter_mut().zip(until) {
                    history.durable = history.durable.max(until);
                }
            }
            _ => {
                note(number);
                store.write(Lba(at), &content(number), Durability::Cached).expect("there is room");
            }
        }
    }
}

#[test]
fn whenever_it_ends_while_threads_work_what_was_flushed_is_there() {
    let inner = FailingDisk::new(&enlarged(&*made(70, "r_lfs"), 12), (u64::MAX, Failure::Once));
    let own = |blocks: u64| Mutex::new(vec![History { values: vec![0], durable: 0 }; blocks as usize]);
    let small: Arc<dyn BlockDevice> = inner.clone();
    let blocks = sectors_of(&open(&small, by_hand())) / 8 / THREADS;
    let truth: Arc<Truth> = Arc::new((0..THREADS).map(|_| own(blocks)).collect());
    let calls = AtomicU64::new(0);
    let watched = Arc::new(Watched { inner, calls, truth: Arc::clone(&truth), moments: Mutex::default() });
    let device: Arc<dyn BlockDevice> = watched.clone();
    let options = Options { threads: true, checkpoint_every: ByteSize(1 << 20), ..Options::default() };
    let store = open(&device, options);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, truth, stop) = (&store, &truth, &stop);
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            store.grow().expect("it grows");
            while !stop.load(Ordering::Relaxed) {
                store.checkpoint().expect("there is room");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let threads = (0..THREADS)
            .map(|thread| scope.spawn(move || change(store, &truth[thread as usize], thread, blocks, 1500)));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(store.stats().segments_cleaned > 0, "the cleaner had nothing to do");
    drop(store);
    let moments = std::mem::take(&mut *watched.moments.lock());
    assert!(moments.len() > 8, "{} moments", moments.len());
    for moment in moments {
        let Moment { device, durable, values, label } = moment;
        let store = try_open(&device, OpenMode::ReadWrite);
        let store = store.unwrap_or_else(|error| panic!("{label}: {error}"));
        for (thread, (durable, values)) in (0..).zip(durable.iter().zip(&values)) {
            for (nth, (durable, values)) in (0..).zip(durable.iter().zip(values)) {
                let block = nth * THREADS + thread;
                let held = read(&store, block * 8, 8);
                let may_be = values.get(*durable..).unwrap_or_default();
                assert!(
                    may_be.iter().any(|value| held == content(*value)),
                    "{label}: block {block} is none of {may_be:?}"
                );
            }
        }
    }
}
