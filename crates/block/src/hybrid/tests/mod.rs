//! What the tests of the hybrid disk share, and those of single operations.

mod concurrent;
mod contradictions;
mod corruptions;
mod crash;
mod drain;
mod faults;
mod fixtures;
mod fuzz;
mod keeper;
mod label;
mod labels_lost;
mod last_record;
mod leftovers;
mod lost_sectors;
mod marks;
mod model;
mod salvage;
mod under_way;
mod verify;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger, Percent};
use umbrella_policy::spin_down::SpinDown;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::format::{Epoch, LEAST_LOG, LOG_START, RecordNo, TAG_SECTORS};
use super::pair::read_superblock;
use super::*;
use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::BlockError;
use crate::fault::{Faulty, Plan, Rule};
use crate::memory::Memory;
use crate::record::Overlay;
use crate::spindle::{Power, Spindle};
use crate::testing::{Coarse, check_crash_states, each_crash_state, fill, flip, range, read, until};

/// A disk that must not be touched while it sleeps; touches are counted.
pub(super) struct SleepingDisk<D> {
    inner: D,
    asleep: AtomicBool,
    disturbed: AtomicU64,
}

impl<D> SleepingDisk<D> {
    pub(super) fn new(inner: D) -> Arc<SleepingDisk<D>> {
        Arc::new(SleepingDisk { inner, asleep: AtomicBool::new(false), disturbed: AtomicU64::new(0) })
    }

    pub(super) fn disturbed(&self) -> u64 {
        self.disturbed.load(Ordering::SeqCst)
    }

    fn inner(&self) -> &D {
        if self.asleep.load(Ordering::SeqCst) {
            self.disturbed.fetch_add(1, Ordering::SeqCst);
        }
        &self.inner
    }
}

impl<D: BlockDevice> BlockDevice for SleepingDisk<D> {
    crate::forward!(inner: geometry);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.inner().read(at, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.inner().write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.inner().flush()
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.inner().discard(range)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.inner().write_zeroes(range, zeroes, durability)
    }
}

impl<D: Send + Sync> Spindle for SleepingDisk<D> {
    fn standby(&self) -> Result<(), BlockError> {
        self.asleep.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn wake(&self) -> Result<(), BlockError> {
        self.asleep.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn power(&self) -> Result<Power, BlockError> {
        Ok(if self.asleep.load(Ordering::SeqCst) { Power::Standby } else { Power::Spinning })
    }
}

pub(super) fn half(name: &str, device: Arc<dyn BlockDevice>) -> PairHalf {
    PairHalf { name: name.to_owned(), device }
}

pub(super) fn sectors(count: u64) -> ByteSize {
    ByteSize(count * SECTOR_BYTES)
}

pub(super) fn flash_of(log: u64) -> Memory {
    Memory::new(sectors(LOG_START.0 + log))
}

/// Drains only on demand, or when the log is full.
pub(super) fn by_hand(algorithm: Algorithm) -> Options {
    Options {
        when: FlushTrigger::Full,
        algorithm,
        memory: ByteSize(256 << 10),
        drain_share: Percent(100),
        ..Options::default()
    }
}

/// A pair in memory.
pub(super) struct Pair<D = Memory> {
    pub(super) sleeping_disk: Arc<SleepingDisk<D>>,
    pub(super) disk: PairHalf,
    pub(super) flash: PairHalf,
}

impl Pair {
    /// With the smallest log.
    pub(super) fn new(disk: u64) -> Pair {
        Pair::created(Memory::new(sectors(disk + TAG_SECTORS)), Arc::new(flash_of(LEAST_LOG)))
    }
}

impl<D: BlockDevice + 'static> Pair<D> {
    /// Two devices as they are.
    pub(super) fn of(disk: D, flash: Arc<dyn BlockDevice>) -> Pair<D> {
        let sleeping_disk = SleepingDisk::new(disk);
        Pair { disk: half("disk", sleeping_disk.clone()), flash: half("flash", flash), sleeping_disk }
    }

    /// Two devices that become a pair.
    pub(super) fn created(disk: D, flash: Arc<dyn BlockDevice>) -> Pair<D> {
        let pair = Pair::of(disk, flash);
        create(&pair.disk, &pair.flash).expect("an empty pair can be made");
        pair
    }

    /// The same disk before another flash.
    pub(super) fn with_flash(&self, flash: Arc<dyn BlockDevice>) -> Pair<D> {
        Pair { sleeping_disk: self.sleeping_disk.clone(), disk: self.disk.clone(), flash: half("flash", flash) }
    }

    /// A copy that may change. What it was made of must not.
    pub(super) fn copy(&self) -> Pair<Overlay> {
        Pair::of(copy_of(&self.disk), Arc::new(copy_of(&self.flash)))
    }

    pub(super) fn open(&self, options: Options) -> Hybrid {
        self.try_open(options).expect("the pair can be opened")
    }

    pub(super) fn try_open(&self, options: Options) -> Result<Hybrid, HybridError> {
        Hybrid::open(self.disk.clone(), self.flash.clone(), self.sleeping_disk.clone(), options, None)
    }

    /// Open, with a thread that puts the disk to sleep and drains the log.
    pub(super) fn kept(&self, options: Options, spin_down: SpinDown) -> Hybrid {
        Hybrid::open(self.disk.clone(), self.flash.clone(), self.sleeping_disk.clone(), options, Some(spin_down))
            .expect("the pair can be opened")
    }

    /// Open, with a disk that sleeps.
    pub(super) fn asleep(&self) -> Hybrid {
        let hybrid = self.open(by_hand(Algorithm::Whole));
        hybrid.sleep().expect("it sleeps");
        hybrid
    }

    pub(super) fn checked(&self) -> PairReport {
        check(&self.disk, &self.flash).expect("it is a pair")
    }

    pub(super) fn damaged(&self) -> DamagedPair {
        DamagedPair::open(self.disk.clone(), self.flash.clone()).expect("it is a pair")
    }

    /// Turns over a bit of a sector of the log.
    pub(super) fn flip(&self, sector: u64, byte: usize) {
        flip(&*self.flash.device, ((LOG_START.0 + sector) * SECTOR_BYTES) as usize + byte);
    }
}

/// A new pair that is open, with a disk that sleeps.
pub(super) fn sleeping_pair(disk: u64) -> (Pair, Hybrid) {
    let pair = Pair::new(disk);
    let hybrid = pair.asleep();
    (pair, hybrid)
}

/// A copy that may change. The half itself must not.
fn copy_of(half: &PairHalf) -> Overlay {
    Overlay::new(half.device.clone())
}

/// Such a copy whose calls follow a rule.
fn faulty_copy_of(half: &PairHalf, rule: Rule) -> Faulty<Overlay> {
    Faulty::new(copy_of(half), Plan::new(1).rule(rule))
}

/// All that a half holds.
fn contents(half: &PairHalf) -> Vec<u8> {
    read(&*half.device, 0, half.device.geometry().capacity.0)
}

/// The same half as it is now.
fn backup_of(half: &PairHalf) -> PairHalf {
    PairHalf { device: Arc::new(Memory::from_bytes(contents(half))), ..half.clone() }
}

#[test]
fn while_the_disk_sleeps_writes_and_their_reads_do_not_touch_it() {
    let pair = Pair::new(1000);
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    hybrid.write(Lba(0), &fill(1, 8), Durability::Cached).expect("to the disk");
    hybrid.sleep().expect("it can sleep");
    hybrid.write(Lba(4), &fill(2, 8), Durability::Through).expect("to the log");
    hybrid.write_zeroes(range(6, 2), Zeroes::Unmap, Durability::Cached).expect("to the log");
    hybrid.flush().expect("the log is flushed");
    hybrid.discard(range(100, 5)).expect("not worth waking it");
    assert_eq!(read(&hybrid, 4, 4), [fill(2, 2), fill(0, 2)].concat());
    assert_eq!((pair.sleeping_disk.disturbed(), hybrid.stats().disk), (0, Motion::Asleep));
    assert_eq!(hybrid.at_risk(), [range(4, 8)]);
    // This one needs the disk.
    assert_eq!(read(&hybrid, 0, 14), [fill(1, 4), fill(2, 2), fill(0, 2), fill(2, 4), fill(0, 2)].concat());
    let stats = hybrid.stats();
    assert_eq!((stats.disk, stats.spin_ups, stats.reads_that_woke, stats.reads_from_log), (Motion::Spinning, 1, 1, 1));
    assert_eq!((stats.writes, stats.writes_to_log, pair.sleeping_disk.disturbed()), (3, 2, 0));
}

#[test]
fn a_write_to_a_spinning_disk_goes_past_the_log_unless_the_log_has_older_data() {
    let (pair, hybrid) = sleeping_pair(1000);
    hybrid.write(Lba(10), &fill(1, 10), Durability::Cached).expect("to the log");
    hybrid.wake().expect("it wakes");
    hybrid.write(Lba(50), &fill(2, 10), Durability::Cached).expect("to the disk");
    hybrid.write(Lba(19), &fill(3, 10), Durability::Cached).expect("to the log");
    assert_eq!(hybrid.at_risk(), [range(10, 19)]);
    assert_eq!(hybrid.stats().writes_to_log, 2);
    hybrid.drain().expect("it can be drained");
    assert_eq!(hybrid.at_risk(), []);
    hybrid.write(Lba(19), &fill(4, 1), Durability::Cached).expect("to the disk");
    assert_eq!(hybrid.stats().writes_to_log, 2);
    assert_eq!(
        read(&pair.sleeping_disk.inner, 9, 21),
        [fill(0, 1), fill(1, 9), fill(4, 1), fill(3, 9), fill(0, 1)].concat()
    );
}

#[test]
fn what_is_in_the_log_is_there_after_the_next_opening() {
    let (pair, hybrid) = sleeping_pair(1000);
    hybrid.write(Lba(0), &fill(7, 900), Durability::Cached).expect("to the log");
    hybrid.write(Lba(5), &fill(8, 1), Durability::Cached).expect("to the log");
    hybrid.close().expect("it can be closed");
    let hybrid = pair.open(by_hand(Algorithm::Whole));
    assert_eq!(read(&hybrid, 0, 901), [fill(7, 5), fill(8, 1), fill(7, 894), fill(0, 1)].concat());
    let report = pair.checked();
    assert_eq!((report.records, report.torn, report.damage), (2, false, None));
    assert_eq!(report.only_in_log, [range(0, 900)]);
}

#[test]
fn a_write_larger_than_a_record_is_several() {
    let (_pair, hybrid) = sleeping_pair(9000);
    hybrid.write(Lba(1), &fill(7, 5000), Durability::Through).expect("to the log");
    assert_eq!(hybrid.stats().records, 3);
    assert!(read(&hybrid, 0, 5002) == [fill(0, 1), fill(7, 5000), fill(0, 1)].concat());
}

#[test]
fn of_a_long_write_the_part_that_the_log_knows_nothing_of_goes_to_the_disk() {
    let (_pair, hybrid) = sleeping_pair(9000);
    hybrid.write(Lba(2500), &fill(1, 1), Durability::Cached).expect("to the log");
    hybrid.wake().expect("it wakes");
    hybrid.write(Lba(0), &fill(2, 5000), Durability::Through).expect("to both");
    assert_eq!(hybrid.at_risk(), [range(2048, 2048)]);
    assert!(read(&hybrid, 0, 5000) == fill(2, 5000));
}

#[test]
fn a_pair_that_is_dissolved_leaves_a_plain_disk() {
    let pair = Pair::new(1000);
    let hybrid = pair.open(by_hand(Algorithm::Alg4));
    hybrid.sleep().expect("it can sleep");
    hybrid.write(Lba(3), &fill(9, 30), Durability::Cached).expect("to the log");
    hybrid.dissolve().expect("it can be detached");
    assert_eq!(read(&pair.sleeping_disk.inner, 3, 30), fill(9, 30));
    assert_eq!(read(&pair.sleeping_disk.inner, 1000, TAG_SECTORS), fill(0, TAG_SECTORS));
    assert!(matches!(pair.try_open(Options::default()), Err(HybridError::Detached { .. })));
    refuse_occupied(&pair.disk, &pair.flash).expect("both are free again");
    create(&pair.disk, &pair.flash).expect("and can be joined again");
    assert_eq!(read(&pair.open(Options::default()), 3, 30), fill(9, 30));
}

#[test]
fn a_pair_that_is_detached_stays_one_and_its_disk_may_be_used_alone() {
    let pair = Pair::new(1000);
    let hybrid = pair.open(by_hand(Algorithm::Alg4));
    hybrid.sleep().expect("it can sleep");
    hybrid.write(Lba(3), &fill(9, 30), Durability::Cached).expect("to the log");
    assert_eq!(super::flash_of(&pair.disk).expect("it has a tag"), Some(read_superblock(&pair.flash).unwrap().flash));
    hybrid.detach().expect("it can be detached");
    assert_eq!(read(&pair.sleeping_disk.inner, 3, 30), fill(9, 30));
    assert_eq!(super::flash_of(&pair.disk).expect("it has a tag"), None, "the disk is whole alone");
    pair.sleeping_disk.inner.write(Lba(0), &fill(7, 8), Durability::Cached).expect("memory");
    check(&pair.disk, &pair.flash).expect("they still belong together");
    let hybrid = pair.open(by_hand(Algorithm::Alg4));
    assert_eq!(read(&hybrid, 0, 33), [fill(7, 8), fill(9, 25)].concat(), "what was written to it alone counts");
    hybrid.sleep().expect("it can sleep");
    hybrid.write(Lba(0), &fill(1, 1), Durability::Cached).expect("to the log");
    drop(hybrid);
    assert!(super::flash_of(&pair.disk).expect("it has a tag").is_some(), "not any more");
}

#[test]
fn an_empty_log_keeps_no_disk_from_another_flash_but_an_older_copy_is_refused() {
    let pair = Pair::new(1000);
    pair.open(by_hand(Algorithm::Whole)).detach().expect("it can be detached");
    let old = backup_of(&pair.disk);
    pair.open(by_hand(Algorithm::Whole)).detach().expect("it can be detached");
    let opened =
        Hybrid::open(old, pair.flash.clone(), pair.sleeping_disk.clone(), Options::default(), None).map(|_| ());
    assert!(matches!(opened, Err(HybridError::Stale { .. })), "{opened:?}");
    let other = half("other", Arc::new(flash_of(LEAST_LOG)));
    refuse_occupied(&pair.disk, &other).expect("nothing of it is on a flash");
    assert!(matches!(refuse_occupied(&pair.disk, &pair.flash), Err(HybridError::Occupied { .. })));
    create(&pair.disk, &other).expect("it gets another flash");
}

#[test]
fn a_disk_that_was_put_back_after_an_opening_that_logged_nothing_is_refused() {
    let pair = Pair::new(1000);
    pair.open(Options::default()).close().expect("it can be closed");
    let old = backup_of(&pair.disk);
    // The disk spins: the log gets nothing.
    let hybrid = pair.open(Options::default());
    hybrid.write(Lba(5), &fill(2, 1), Durability::Through).expect("to the disk");
    hybrid.close().expect("it can be closed");
    let opened = Hybrid::open(old.clone(), pair.flash.clone(), pair.sleeping_disk.clone(), Options::default(), None);
    match opened.map(|_| ()) {
        Err(HybridError::Stale { older_epoch: Epoch(2), newer_epoch: Epoch(3), .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(check(&old, &pair.flash), Err(HybridError::Stale { .. })));
    assert_eq!(read(&pair.open(Options::default()), 5, 1), fill(2, 1), "its own disk is opened");
}

#[test]
fn only_the_two_halves_of_one_pair_are_opened() {
    let (one, other) = (Pair::new(1000), Pair::new(1000));
    let open = |disk: &Pair, flash: &Pair| {
        Hybrid::open(disk.disk.clone(), flash.flash.clone(), disk.sleeping_disk.clone(), Options::default(), None)
            .map(|_| ())
    };
    assert!(matches!(open(&one, &other), Err(HybridError::ForeignDisk { .. })));
    let empty = half("empty", Arc::new(flash_of(LEAST_LOG)));
    let opened = Hybrid::open(one.disk.clone(), empty, one.sleeping_disk.clone(), Options::default(), None);
    assert!(matches!(opened.map(|_| ()), Err(HybridError::FlashLost { .. })));
    // A flash that was joined with another disk since.
    let report = refuse_occupied(&one.disk, &other.flash);
    assert!(matches!(report, Err(HybridError::Occupied { .. })));
    create(&one.disk, &other.flash).expect("forced");
    assert!(matches!(open(&one, &one), Err(HybridError::ForeignDisk { .. })));
    assert!(matches!(open(&other, &other), Err(HybridError::ForeignDisk { .. })));
    open(&one, &other).expect("they are a pair now");
}

#[test]
fn a_half_that_was_put_back_from_a_copy_is_refused() {
    let pair = Pair::new(1000);
    let (old_flash, old_disk) = (backup_of(&pair.flash), backup_of(&pair.disk));
    drop(pair.open(Options::default()));
    drop(pair.open(Options::default()));
    let stale = |disk: PairHalf, flash: PairHalf| {
        let opened = Hybrid::open(disk, flash, pair.sleeping_disk.clone(), Options::default(), None);
        match opened.map(|_| ()) {
            Err(HybridError::Stale { older, older_epoch, newer_epoch, .. }) => (older, older_epoch, newer_epoch),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(stale(pair.disk.clone(), old_flash), ("flash".to_owned(), Epoch(1), Epoch(3)));
    assert_eq!(stale(old_disk, pair.flash.clone()), ("disk".to_owned(), Epoch(1), Epoch(3)));
    pair.open(Options::default());
}

#[test]
fn what_is_too_small_or_too_large_is_said() {
    let small = half("small", Arc::new(Memory::new(sectors(LOG_START.0 + LEAST_LOG - 8))));
    let pair = Pair::new(1000);
    assert!(matches!(create(&pair.disk, &small), Err(HybridError::TooSmall { .. })));
    assert!(matches!(
        create(&half("tiny", Arc::new(Memory::new(sectors(16)))), &pair.flash),
        Err(HybridError::TooSmall { .. })
    ));
    let hybrid = pair.open(Options::default());
    assert_eq!(hybrid.geometry().capacity, Lba(1000));
    assert!(matches!(hybrid.write(Lba(1000), &fill(1, 1), Durability::Cached), Err(BlockError::BeyondEnd { .. })));
    assert!(matches!(hybrid.read(Lba(999), &mut fill(1, 2)), Err(BlockError::BeyondEnd { .. })));
}

#[test]
fn a_flash_that_holds_anything_is_not_overwritten() {
    let pair = Pair::new(1000);
    let flash = flash_of(LEAST_LOG);
    flash.write(Lba(17), &fill(3, 1), Durability::Cached).expect("memory");
    let disk = half("disk", Arc::new(Memory::new(sectors(1000))));
    let refused = refuse_occupied(&disk, &half("flash", Arc::new(flash))).expect_err("somebody may need it");
    assert!(refused.to_string().contains("unknown data"), "{refused}");
    let table = Memory::new(sectors(1000));
    table.write(Lba(0), &[&[0; 510][..], &[0x55, 0xaa]].concat(), Durability::Cached).expect("memory");
    let refused = refuse_occupied(&half("disk", Arc::new(table)), &half("flash", Arc::new(flash_of(LEAST_LOG))));
    assert!(refused.is_err_and(|refused| refused.to_string().contains("give one of its partitions")));
    // The remains of a creation that was cut off are no reason to refuse the next one.
    refuse_occupied(&disk, &pair.flash).expect("never used");
}

#[test]
fn a_file_system_that_reaches_into_the_place_of_the_tag_is_not_overwritten() {
    let disk = Memory::new(sectors(2048));
    let mut superblock = fill(0, 2);
    superblock[4..8].copy_from_slice(&1024_u32.to_le_bytes());
    superblock[56..58].copy_from_slice(&[0x53, 0xef]);
    disk.write(Lba(2), &superblock, Durability::Cached).expect("there is room");
    let disk = half("disk", Arc::new(disk));
    let flash = half("flash", Arc::new(flash_of(LEAST_LOG)));
    let refused = refuse_occupied(&disk, &flash).expect_err("it fills the disk");
    assert!(refused.to_string().contains("shrink the file system first"), "{refused}");
    superblock[4..8].copy_from_slice(&1016_u32.to_le_bytes());
    disk.device.write(Lba(2), &superblock, Durability::Cached).expect("there is room");
    refuse_occupied(&disk, &flash).expect("it ends before the tag");
}
