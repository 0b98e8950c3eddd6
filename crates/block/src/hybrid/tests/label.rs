//! What the superblock says of a pair that is open: how the disk begins, and how much was written to the flash.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A write to the disk by a program that does not know of its flash.
fn change(pair: &Pair) {
    pair.sleeping_disk.inner.write(Lba(2), &fill(7, 1), Durability::Cached).expect("memory");
}

/// A disk larger than its beginning that sleeps, with data that only its flash has.
fn asleep() -> (Pair, Hybrid) {
    let pair = Pair::new(1000);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.write(Lba(0), &fill(1, 8), Durability::Cached).expect("to the disk");
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(100), &fill(2, 8), Durability::Through).expect("to the log");
    (pair, hybrid)
}

fn refused(pair: &Pair) -> bool {
    let opened = pair.try_open(Options::default()).map(|_| ());
    let checked = check(&pair.disk, &pair.flash);
    assert_eq!(matches!(checked, Err(HybridError::Changed { .. })), opened.is_err(), "{opened:?}");
    matches!(opened, Err(HybridError::Changed { .. }))
}

#[test]
fn after_a_crash_of_a_disk_that_slept_it_is_recognised_that_it_was_written_to_without_its_flash() {
    let (pair, hybrid) = asleep();
    drop(hybrid);
    change(&pair);
    assert!(refused(&pair));
}

#[test]
fn after_a_crash_of_a_disk_that_was_woken_it_is_recognised_until_its_beginning_was_written() {
    let (pair, hybrid) = asleep();
    hybrid.wake().expect("it wakes");
    hybrid.write(Lba(500), &fill(3, 8), Durability::Cached).expect("to the disk");
    drop(hybrid);
    change(&pair);
    assert!(refused(&pair));

    for write in [
        (|hybrid| hybrid.write(Lba(250), &fill(3, 8), Durability::Cached)) as fn(&Hybrid) -> Result<(), BlockError>,
        |hybrid| hybrid.write_zeroes(range(210, 100), Zeroes::Unmap, Durability::Cached),
        |hybrid| hybrid.discard(range(255, 5)),
    ] {
        let (pair, hybrid) = asleep();
        hybrid.write(Lba(200), &fill(2, 1), Durability::Through).expect("to the log");
        hybrid.wake().expect("it wakes");
        write(&hybrid).expect("to the disk");
        drop(hybrid);
        // As a crash may leave it: nobody knows which of the writes arrived.
        change(&pair);
        assert!(!refused(&pair), "nothing says how it should begin");
    }
}

#[test]
fn a_drain_that_changes_the_beginning_and_is_cut_off_is_no_change_by_another_user() {
    let (pair, hybrid) = asleep();
    hybrid.drain().expect("the disk is well");
    drop(hybrid);
    assert_eq!(read(&pair.open(by_hand(Algorithm::Whole)), 100, 8), fill(2, 8));
    let (pair, hybrid) = asleep();
    let superblock = read(&*pair.flash.device, 0, 16);
    hybrid.drain().expect("the disk is well");
    // The label of before the drain: it must have been forgotten before anything was written.
    let forgotten = read(&*pair.flash.device, 0, 16);
    assert_ne!(superblock, forgotten);
    assert_eq!(read_superblock(&pair.flash).expect("it is one").head, None);
}

#[test]
fn each_time_it_falls_asleep_the_beginning_is_noted_anew() {
    let (pair, hybrid) = asleep();
    hybrid.wake().expect("it wakes");
    hybrid.write(Lba(3), &fill(5, 8), Durability::Cached).expect("to the disk");
    hybrid.sleep().expect("it sleeps");
    drop(hybrid);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(read(&hybrid, 3, 8), fill(5, 8), "nobody else changed it");
    hybrid.sleep().expect("it sleeps");
    drop(hybrid);
    change(&pair);
    assert!(refused(&pair));
}

#[test]
fn after_a_crash_with_nothing_on_flash_a_changed_disk_is_opened() {
    let (pair, hybrid) = sleeping_pair(1000);
    drop(hybrid);
    change(&pair);
    assert_eq!(read(&pair.open(Options::default()), 2, 1), fill(7, 1));
}

/// Flash that counts what is written to it, and read.
struct Counted {
    inner: Memory,
    written: AtomicU64,
    read: AtomicU64,
}

impl Counted {
    fn new(log: u64) -> Arc<Counted> {
        Arc::new(Counted { inner: flash_of(log), written: AtomicU64::new(0), read: AtomicU64::new(0) })
    }
}

impl BlockDevice for Counted {
    crate::forward!(inner: geometry, flush, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.read.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        self.inner.read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.written.fetch_add(data.len() as u64, Ordering::SeqCst);
        self.inner.write(at, data, durability)
    }
}

#[test]
fn what_lies_behind_the_end_of_the_log_is_looked_through_once() {
    let log = 8 * LEAST_LOG;
    let counted = Counted::new(log);
    let pair = Pair::created(Memory::new(sectors(1000 + TAG_SECTORS)), counted.clone());
    drop(pair.open(by_hand(Algorithm::Whole)));
    counted.read.store(0, Ordering::SeqCst);
    drop(pair.open(by_hand(Algorithm::Whole)));
    let (read, log) = (counted.read.load(Ordering::SeqCst), log * SECTOR_BYTES);
    assert!((log..log * 3 / 2).contains(&read), "{read} bytes of a log of {log}");
}

#[test]
fn what_was_written_to_the_flash_is_counted_to_the_byte_and_a_crash_forgets_none_of_it() {
    let counted = Counted::new(LEAST_LOG);
    let pair = Pair::created(Memory::new(sectors(1000 + TAG_SECTORS)), counted.clone());
    counted.written.store(0, Ordering::SeqCst);
    let is_counted = |hybrid: &Hybrid| {
        assert_eq!(hybrid.stats().flash_written, ByteSize(counted.written.load(Ordering::SeqCst)));
    };
    for round in 0..4 {
        let hybrid = pair.open(by_hand(Algorithm::Whole));
        is_counted(&hybrid);
        hybrid.sleep().expect("it sleeps");
        hybrid.write(Lba(0), &fill(1, 20), Durability::Through).expect("to the log");
        hybrid.write(Lba(100), &fill(1, 3), Durability::Cached).expect("to the log");
        hybrid.wake().expect("it wakes");
        // The superblock is written with records behind what it calls durable.
        hybrid.write(Lba(400), &fill(1, 3), Durability::Cached).expect("to the disk");
        hybrid.write(Lba(101), &fill(1, 3), Durability::Cached).expect("to the log");
        is_counted(&hybrid);
        if round == 2 {
            hybrid.drain().expect("the disk is well");
            is_counted(&hybrid);
        }
        if round == 1 {
            hybrid.close().expect("it can be closed");
        }
    }
}

#[test]
fn a_block_that_ends_in_its_own_crc_is_seen_to_change() {
    // As the superblock of ext4 does, with a CRC of the kind that is used everywhere.
    let block = |seed: u8| {
        let mut block = fill(seed, 2);
        let crc = crc32c::crc32c_append(0, &block[..1020]);
        block[1020..].copy_from_slice(&crc.to_le_bytes());
        block
    };
    assert_eq!(crc32c::crc32c(&block(1)), crc32c::crc32c(&block(9)), "what such a CRC says of all of them");
    let pair = Pair::new(1000);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.write(Lba(2), &block(1), Durability::Cached).expect("to the disk");
    hybrid.sleep().expect("it sleeps");
    hybrid.write(Lba(100), &fill(2, 8), Durability::Through).expect("to the log");
    drop(hybrid);
    pair.disk.device.write(Lba(2), &block(9), Durability::Through).expect("as a mount of the disk alone");
    assert!(refused(&pair));
}

#[test]
fn a_flash_put_back_from_before_a_drain_of_the_same_opening_is_recognised() {
    for in_order in [true, false] {
        let (pair, hybrid) = sleeping_pair(1000);
        hybrid.write(Lba(500), &fill(1, 8), Durability::Through).expect("to the log");
        let copy = contents(&pair.flash);
        hybrid.drain().expect("to the disk");
        hybrid.write(Lba(500), &fill(2, 8), Durability::Through).expect("to the disk");
        if in_order {
            hybrid.close().expect("it ends");
        } else {
            drop(hybrid);
        }
        pair.flash.device.write(Lba(0), &copy, Durability::Through).expect("memory");
        let opened = pair.try_open(Options::default()).map(|_| ());
        assert!(matches!(opened, Err(HybridError::OldFlash { .. } | HybridError::Stale { .. })), "{opened:?}");
        assert!(matches!(
            check(&pair.disk, &pair.flash),
            Err(HybridError::OldFlash { .. } | HybridError::Stale { .. })
        ));
    }
}
