//! Records that a power cut left behind what was lost, and other leftovers: they must never count again.

use super::*;

/// Two records that were not flushed; of them the power cut left only the second.
fn with_a_leftover() -> Pair {
    let (pair, hybrid) = sleeping_pair(1000);
    hybrid.write(Lba(0), &fill(1, 8), Durability::Cached).expect("to the log");
    hybrid.write(Lba(100), &fill(2, 8), Durability::Cached).expect("to the log");
    drop(hybrid);
    pair.flash.device.write(LOG_START, &fill(0, 16), Durability::Cached).expect("memory");
    pair
}

#[test]
fn a_leftover_does_not_become_the_first_record_of_an_emptied_log() {
    let pair = with_a_leftover();
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(read(&hybrid, 100, 8), fill(0, 8), "what came before it was lost");
    hybrid.write(Lba(100), &fill(9, 8), Durability::Through).expect("to the disk");
    hybrid.sleep().expect("it sleeps");
    // As long as the one that was lost: the log continues where the leftover is.
    hybrid.write(Lba(200), &fill(3, 8), Durability::Through).expect("to the log");
    hybrid.drain().expect("it is drained");
    hybrid.close().expect("it can be closed");
    assert_eq!(pair.checked().records, 0);
    assert_eq!(read(&pair.open(by_hand(Algorithm::Whole)), 100, 8), fill(9, 8), "not what the leftover held");
}

#[test]
fn a_leftover_does_not_follow_a_record_that_was_written_in_the_place_of_what_was_lost() {
    let pair = with_a_leftover();
    let hybrid = pair.asleep();
    hybrid.write(Lba(200), &fill(3, 8), Durability::Through).expect("to the log");
    drop(hybrid);
    assert_eq!(pair.checked().records, 1);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!((read(&hybrid, 100, 8), read(&hybrid, 200, 8)), (fill(0, 8), fill(3, 8)));
}

#[test]
fn a_disk_put_back_from_a_copy_is_noticed_though_the_log_was_emptied_since() {
    let (pair, hybrid) = sleeping_pair(1000);
    hybrid.write(Lba(100), &fill(2, 8), Durability::Through).expect("to the log");
    hybrid.close().expect("it can be closed");
    let copy = Memory::from_bytes(pair.sleeping_disk.inner.to_bytes());
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.drain().expect("it is drained");
    hybrid.close().expect("it can be closed");
    let opened = Pair::of(copy, pair.flash.device).try_open(by_hand(Algorithm::Whole)).map(|_| ());
    assert!(matches!(opened, Err(HybridError::Stale { .. })), "what was drained is not on the copy: {opened:?}");
}
