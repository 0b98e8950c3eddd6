//! Many callers at once, while the disk falls asleep and the log is drained.

use super::*;

const CALLERS: u64 = 6;
const EACH: u64 = 400;

/// Each caller has sectors of its own and knows what they hold.
#[test]
fn callers_with_sectors_of_their_own_find_what_they_wrote() {
    for seed in 0..6 {
        let pair = Pair::new(CALLERS * EACH);
        let algorithm = Algorithm::ALL[seed as usize % 5];
        let hybrid = pair.open(by_hand(algorithm));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let hybrid = &hybrid;
                    scope.spawn(move || {
                        let mut random = StdRng::seed_from_u64(seed * 100 + caller);
                        let mut truth = vec![0_u8; EACH as usize];
                        for round in 0..300_u32 {
                            let start = random.random_range(0..EACH);
                            let count = random.random_range(1..=40).min(EACH - start);
                            let at = caller * EACH + start;
                            let own = &mut truth[start as usize..(start + count) as usize];
                            if random.random_bool(0.7) {
                                let byte = random.random();
                                hybrid.write(Lba(at), &fill(byte, count), Durability::Cached).expect("it is written");
                                own.fill(byte);
                            } else {
                                let found = read(hybrid, at, count);
                                let expected: Vec<u8> = own.iter().flat_map(|&byte| fill(byte, 1)).collect();
                                assert!(found == expected, "seed {seed}, caller {caller}, round {round}");
                            }
                            if random.random_bool(0.05) {
                                hybrid.flush().expect("it is flushed");
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut random = StdRng::seed_from_u64(seed);
                while !stop.load(Ordering::SeqCst) {
                    match random.random_range(0..4) {
                        0 => hybrid.drain().expect("it is drained"),
                        1 => hybrid.wake().expect("it wakes"),
                        _ => hybrid.sleep().expect("it sleeps"),
                    }
                    std::thread::sleep(std::time::Duration::from_micros(random.random_range(0..2000)));
                }
            });
            let results: Vec<_> = callers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::SeqCst);
            for result in results {
                result.expect("no caller failed");
            }
        });
        assert_eq!(pair.sleeping_disk.disturbed(), 0, "seed {seed}");
        let before = read(&hybrid, 0, CALLERS * EACH);
        drop(hybrid);
        assert!(read(&pair.open(by_hand(algorithm)), 0, CALLERS * EACH) == before, "seed {seed}");
    }
}

/// Of writes to the same sectors at the same time either may win; but once none is under way, the winner stays.
#[test]
fn of_two_writes_at_once_one_wins_and_stays() {
    let pair = Pair::new(64);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    for round in 0..300_u32 {
        if round % 3 == 0 {
            hybrid.sleep().expect("it sleeps");
        }
        std::thread::scope(|scope| {
            for byte in [1, 2, 3] {
                let hybrid = &hybrid;
                scope.spawn(move || hybrid.write(Lba(8), &fill(byte, 16), Durability::Cached).expect("it is written"));
            }
            scope.spawn(|| hybrid.drain().expect("it is drained"));
        });
        let winner = read(&hybrid, 8, 16);
        assert!([1, 2, 3].iter().any(|&byte| winner == fill(byte, 16)), "round {round}: a mixture");
        hybrid.drain().expect("it is drained");
        assert!(read(&hybrid, 8, 16) == winner, "round {round}: another one after draining");
    }
    assert_eq!(pair.sleeping_disk.disturbed(), 0);
}
