//! Many callers at once, while chunks are written, segments cleaned and checkpoints made.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Each thread has blocks of its own, which it writes, discards and reads; what it reads is what it wrote last.
fn hold_their_own(map_memory: ByteSize, rounds: u32) {
    const THREADS: u64 = 4;
    let device = made(80, "r_lfs");
    let options = Options { map_memory, checkpoint_every: ByteSize(1 << 20), ..Options::default() };
    let store = open(&device, options);
    let blocks = sectors_of(&store) / 8;
    let stop = AtomicBool::new(false);
    let held: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        let noise = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.checkpoint().expect("there is room");
                store.flush().expect("memory does not fail");
                std::thread::yield_now();
            }
        });
        let own = |thread: u64| {
            move || {
                let mut random = StdRng::seed_from_u64(thread);
                let mut truth = vec![0_u32; (blocks / THREADS) as usize];
                for round in 1..=rounds {
                    let nth = random.random_range(0..blocks / THREADS);
                    let at = (nth * THREADS + thread) * 8;
                    match random.random_range(0..10) {
                        0 => {
                            store.discard(range(at, 8)).expect("it is discarded");
                            truth[nth as usize] = 0;
                        }
                        1..8 => {
                            store.write(Lba(at), &content(round), Durability::Cached).expect("there is room");
                            truth[nth as usize] = round;
                        }
                        8 => {
                            let mut whole = content(truth[nth as usize]);
                            whole[512..1024].fill(0x11);
                            store.write(Lba(at + 1), &whole[512..1024], Durability::Cached).expect("there is room");
                            assert!(read(store, at, 8) == whole, "block {nth} of thread {thread}");
                            store.write(Lba(at), &content(round), Durability::Through).expect("there is room");
                            truth[nth as usize] = round;
                        }
                        _ => {
                            assert!(
                                read(store, at, 8) == content(truth[nth as usize]),
                                "block {nth} of thread {thread}"
                            );
                        }
                    }
                }
                truth
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(own(thread))).collect();
        let held = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        stop.store(true, Ordering::Relaxed);
        noise.join().expect("no panic");
        held
    });
    assert!(store.stats().segments_cleaned > 0, "the cleaner had nothing to do");
    store.flush().expect("memory does not fail");
    drop(store);
    let store = open(&device, options);
    for (thread, truth) in (0..).zip(&held) {
        for (nth, number) in (0..).zip(truth) {
            let at = (nth * THREADS + thread) * 8;
            assert!(read(&store, at, 8) == content(*number), "block {nth} of thread {thread}, reopened");
        }
    }
}

#[test]
fn callers_at_once_read_what_they_wrote() {
    hold_their_own(ByteSize(1 << 20), 3000);
}

#[test]
fn callers_at_once_read_what_they_wrote_with_little_memory_for_the_map() {
    hold_their_own(ByteSize(1), 1500);
}
