use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::record::{HEADER, RECORD, encode, header};
use super::*;

fn key(slot: u16, ino: u64) -> BackingKey {
    BackingKey { slot, foreign_dev: 0, ino }
}

/// The number of a file that never moved.
fn in_place(slot: u64, ino: u64) -> Ino {
    Ino((slot << 48) + ino)
}

fn time(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 5 }
}

/// Hidden folders of some branches.
struct Disks(TempDir);

impl Disks {
    fn new() -> Disks {
        // In memory where possible: thousands of logs are synced here.
        let memory = Path::new("/dev/shm");
        Disks(tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn root(&self, slot: u16) -> PathBuf {
        self.0.path().join(slot.to_string())
    }

    fn log(&self, slot: u16) -> PathBuf {
        self.root(slot).join(".umbrella/inodes")
    }

    fn load(&self, map: &InodeMap, slot: u16) {
        let hidden = self.root(slot).join(".umbrella");
        std::fs::create_dir_all(&hidden).unwrap();
        map.load(slot, File::open(hidden).unwrap().as_fd()).unwrap();
    }

    fn map(&self, slots: &[u16]) -> InodeMap {
        let map = InodeMap::new();
        for &slot in slots {
            self.load(&map, slot);
        }
        map
    }
}

/// A file moved from branch 1, inode 12, to branch 2, inode 40; and its number.
fn moved() -> (Disks, InodeMap, Ino) {
    let disks = Disks::new();
    let map = disks.map(&[1, 2]);
    let number = map.ino(key(1, 12));
    map.moved(key(1, 12), key(2, 40), None);
    (disks, map, number)
}

#[test]
fn a_file_that_never_moved_has_the_number_of_its_place() {
    let map = InodeMap::new();
    assert_eq!(map.ino(key(1, 12)), in_place(1, 12));
    assert_eq!(map.ino(key(3, 12)), in_place(3, 12));
    assert_eq!(map.born(key(1, 12)), None);
}

#[test]
fn no_file_has_the_number_of_the_root_or_none() {
    let map = InodeMap::new();
    for ino in [0, 1] {
        assert!(map.ino(key(0, ino)).0 > 1);
    }
}

#[test]
fn a_moved_file_keeps_number_and_birth_time_and_its_old_inode_gets_another() {
    let map = InodeMap::new();
    let number = map.ino(key(1, 12));
    map.moved(key(1, 12), key(2, 40), Some(time(7)));
    assert_eq!(map.ino(key(2, 40)), number);
    assert_eq!(map.born(key(2, 40)), Some(time(7)));
    let other = map.ino(key(1, 12));
    assert_ne!(other, number);
    assert_eq!(map.ino(key(1, 12)), other, "and keeps it");
    map.moved(key(2, 40), key(3, 8), None);
    assert_eq!((map.ino(key(3, 8)), map.born(key(3, 8))), (number, Some(time(7))));
}

#[test]
fn a_number_is_free_again_when_its_file_is_gone() {
    let map = InodeMap::new();
    let number = map.ino(key(1, 12));
    map.moved(key(1, 12), key(2, 40), None);
    map.forget(key(2, 40));
    assert_eq!(map.ino(key(1, 12)), number);
    assert_eq!(map.ino(key(2, 40)), in_place(2, 40));
}

#[test]
fn copies_of_a_directory_show_one_number_also_when_the_original_is_gone() {
    let map = InodeMap::new();
    let number = map.ino(key(1, 12));
    map.alias(key(1, 12), key(2, 40));
    map.alias(key(1, 12), key(3, 50));
    assert_eq!([map.ino(key(2, 40)), map.ino(key(3, 50))], [number; 2]);
    map.forget(key(1, 12));
    assert_eq!([map.ino(key(2, 40)), map.ino(key(3, 50))], [number; 2]);
    assert_ne!(map.ino(key(1, 12)), number);
}

#[test]
fn a_file_that_was_replaced_behind_the_mount_is_told_by_its_birth_time() {
    let disks = Disks::new();
    let map = disks.map(&[1, 2]);
    let number = map.ino(key(1, 12));
    map.moved(key(1, 12), key(2, 40), Some(time(1)));
    assert_eq!(map.ino_checked(key(2, 40), Some(time(100))), number, "the first look says which file it is");
    let map = disks.map(&[1, 2]);
    assert_eq!(map.ino_checked(key(2, 40), Some(time(100))), number);
    assert_eq!(map.ino_checked(key(2, 40), None), number, "without a birth time nothing can be told");
    assert!(!map.contradicts(key(2, 40), Some(time(100))) && !map.contradicts(key(2, 40), None));
    assert!(map.contradicts(key(2, 40), Some(time(101))) && !map.contradicts(key(1, 12), Some(time(101))));
    assert_eq!(map.ino_checked(key(2, 40), Some(time(101))), in_place(2, 40));
    assert!(!map.contradicts(key(2, 40), Some(time(101))), "the entry is gone");
    assert_eq!(map.born(key(2, 40)), None);
}

#[test]
fn a_move_says_in_one_record_which_file_the_number_is_for() {
    let disks = Disks::new();
    let map = disks.map(&[1, 2]);
    let number = map.ino(key(1, 12));
    map.moved_checked(key(1, 12), key(2, 40), Some(time(1)), Some(time(100)));
    assert!(map.contradicts(key(2, 40), Some(time(101))) && !map.contradicts(key(2, 40), Some(time(100))));
    let map = disks.map(&[1, 2]);
    assert_eq!((map.ino(key(2, 40)), map.born(key(2, 40))), (number, Some(time(1))));
    assert!(map.contradicts(key(2, 40), Some(time(101))) && !map.contradicts(key(2, 40), Some(time(100))));
    map.moved_checked(key(2, 40), key(1, 7), None, None);
    assert_eq!((map.ino(key(1, 7)), map.born(key(1, 7))), (number, Some(time(1))));
    assert!(!map.contradicts(key(1, 7), Some(time(100))), "it is not known");
}

#[test]
fn files_on_foreign_devices_and_with_long_inode_numbers_do_not_collide() {
    let map = InodeMap::new();
    let mut seen = BTreeSet::new();
    for slot in 1..4 {
        for foreign_dev in [0, 35, 36, 0x10_0023] {
            for ino in [2, 256, 257, 1 << 47, 1 << 48, 1 << 60, u64::MAX] {
                let number = map.ino(BackingKey { slot, foreign_dev, ino });
                assert!(seen.insert(number), "{slot} {foreign_dev} {ino}");
                assert_eq!(map.ino(BackingKey { slot, foreign_dev, ino }), number);
            }
        }
    }
}

#[test]
fn more_foreign_devices_than_there_are_indices_still_have_numbers_of_their_own() {
    let map = InodeMap::new();
    let mut seen = BTreeSet::new();
    for foreign_dev in 1..=FOREIGN_DEVICES as u64 + 50 {
        assert!(seen.insert(map.ino(BackingKey { slot: 1, foreign_dev, ino: 256 })));
    }
}

#[test]
fn numbers_outlive_a_remount() {
    let disks = Disks::new();
    let map = disks.map(&[1, 2]);
    let number = map.ino(key(1, 12));
    map.moved(key(1, 12), key(2, 40), Some(time(7)));
    let reused = map.ino(key(1, 12));
    map.alias(key(1, 20), key(2, 50));
    drop(map);
    let map = disks.map(&[2, 1]);
    assert_eq!(map.ino(key(2, 40)), number);
    assert_eq!(map.born(key(2, 40)), Some(time(7)));
    assert_eq!(map.ino(key(1, 12)), reused);
    assert_eq!(map.ino(key(2, 50)), map.ino(key(1, 20)));
}

#[test]
fn a_branch_does_not_give_out_a_number_that_a_file_on_an_absent_branch_has() {
    let (disks, map, number) = moved();
    drop(map);
    let map = disks.map(&[1]);
    assert_ne!(map.ino(key(1, 12)), number);
    disks.load(&map, 2);
    assert_eq!(map.ino(key(2, 40)), number);
}

#[test]
fn a_branch_that_went_and_came_back_has_its_numbers_again() {
    let (disks, map, number) = moved();
    map.unload(2);
    assert_ne!(map.ino(key(1, 12)), number);
    disks.load(&map, 2);
    assert_eq!(map.ino(key(2, 40)), number);
}

#[test]
fn a_branch_that_is_not_written_still_tells_its_numbers() {
    let (disks, map, number) = moved();
    drop(map);
    let map = InodeMap::new();
    let before = std::fs::read(disks.log(2)).unwrap();
    map.load_read_only(2, File::open(disks.root(2)).unwrap().as_fd()).unwrap();
    assert_eq!(map.ino(key(2, 40)), number);
    assert_eq!(std::fs::read(disks.log(2)).unwrap(), before);
    map.load_read_only(3, File::open(disks.0.path()).unwrap().as_fd()).unwrap();
}

#[test]
fn of_two_files_with_one_number_the_one_with_more_moves_keeps_it() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let disks = Disks::new();
        let map = disks.map(&[1, 2, 3]);
        let number = map.ino(key(1, 12));
        map.moved(key(1, 12), key(2, 40), None);
        let before = std::fs::read(disks.log(2)).unwrap();
        map.moved(key(2, 40), key(3, 50), None);
        drop(map);
        // The crash lost the last record of branch 2.
        std::fs::write(disks.log(2), before).unwrap();
        let map = disks.map(&order);
        assert_eq!(map.ino(key(3, 50)), number, "{order:?}");
        assert_ne!(map.ino(key(2, 40)), number, "{order:?}");
    }
}

#[test]
fn a_torn_end_of_the_log_is_cut_off_and_written_over() {
    let (disks, map, number) = moved();
    drop(map);
    let mut bytes = std::fs::read(disks.log(2)).unwrap();
    let whole = bytes.len();
    bytes.extend_from_slice(&[7; 30]);
    std::fs::write(disks.log(2), &bytes).unwrap();
    let map = disks.map(&[1, 2]);
    assert_eq!(map.ino(key(2, 40)), number);
    map.moved(key(1, 13), key(2, 41), None);
    drop(map);
    let bytes = std::fs::read(disks.log(2)).unwrap();
    assert_eq!((bytes.len() - HEADER) % RECORD, 0);
    assert!(bytes.len() > whole);
    assert_eq!(disks.map(&[1, 2]).ino(key(2, 41)), in_place(1, 13));
}

#[test]
fn a_log_that_is_none_is_kept_aside() {
    let disks = Disks::new();
    std::fs::create_dir_all(disks.root(1).join(".umbrella")).unwrap();
    std::fs::write(disks.log(1), "something else entirely").unwrap();
    disks.map(&[1]);
    assert_eq!(std::fs::read(disks.log(1).with_file_name("inodes.damaged")).unwrap(), b"something else entirely");
    decode(&std::fs::read(disks.log(1)).unwrap()).unwrap();
}

#[test]
fn a_log_that_is_a_link_is_not_followed() {
    let disks = Disks::new();
    std::fs::create_dir_all(disks.root(1).join(".umbrella")).unwrap();
    let target = disks.0.path().join("target");
    std::fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, disks.log(1)).unwrap();
    let hidden = File::open(disks.root(1).join(".umbrella")).unwrap();
    assert!(matches!(InodeMap::new().load(1, hidden.as_fd()), Err(InodeMapError::Io(Errno::LOOP))));
    assert_eq!(std::fs::read(&target).unwrap(), b"");
}

#[test]
fn a_log_of_mostly_dead_records_is_rewritten_when_it_is_read() {
    let disks = Disks::new();
    let map = disks.map(&[1, 2]);
    let number = map.ino(key(1, 7));
    map.moved(key(1, 7), key(2, 7), None);
    for ino in 100..1100 {
        map.moved(key(1, ino), key(2, ino), None);
        map.forget(key(2, ino));
    }
    let reused = map.ino(key(1, 7));
    drop(map);
    let size = |slot| std::fs::metadata(disks.log(slot)).unwrap().len();
    assert!(size(1) > 1000 * RECORD as u64 && size(2) > 1000 * RECORD as u64);
    let map = disks.map(&[1, 2]);
    assert!(size(1) < 10 * RECORD as u64 && size(2) < 10 * RECORD as u64);
    assert_eq!((map.ino(key(2, 7)), map.ino(key(1, 7))), (number, reused));
}

#[test]
fn the_bytes_of_the_first_version_stay_as_they_are() {
    let entry =
        InodeEntry { number: 0x0102, hops: 3, shared: true, born: Some(time(-1)), guard: Some(time(9)), evicted: None };
    let bytes = encode(&Record::Assign { dev: 4, ino: 5, entry });
    let hex = header().iter().chain(&bytes).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/inode_map/fixture-v1.hex");
    let kept = std::fs::read_to_string(file).unwrap();
    assert_eq!(hex, kept.trim());
}

#[test]
fn the_mark_of_a_file_that_a_fill_level_moved_is_of_its_change_time_and_outlives_the_mount() {
    let disks = Disks::new();
    let map = disks.map(&[1, 2]);
    map.moved(key(1, 7), key(2, 9), None);
    assert!(!map.is_evicted(key(2, 9), time(5)), "moved, but not by a fill level");
    map.set_evicted(key(2, 9), time(5));
    assert!(map.is_evicted(key(2, 9), time(5)) && !map.is_evicted(key(2, 9), time(6)));
    let again = disks.map(&[1, 2]);
    assert!(again.is_evicted(key(2, 9), time(5)));
    again.moved(key(2, 9), key(1, 8), None);
    assert!(!again.is_evicted(key(1, 8), time(5)), "another move, another place");
}

fn some_record() -> impl Strategy<Value = Record> {
    let some_time =
        || proptest::option::of((any::<i64>(), any::<u32>()).prop_map(|(secs, nanos)| Timestamp { secs, nanos }));
    let entry = (any::<u64>(), any::<u32>(), any::<bool>(), some_time(), some_time(), any::<Option<u32>>()).prop_map(
        |(number, hops, shared, born, guard, evicted)| InodeEntry { number, hops, shared, born, guard, evicted },
    );
    prop_oneof![
        (any::<u64>(), any::<u64>(), entry).prop_map(|(dev, ino, entry)| Record::Assign { dev, ino, entry }),
        (any::<u64>(), any::<u64>()).prop_map(|(dev, ino)| Record::Forget { dev, ino }),
        any::<u64>().prop_map(Record::Lent),
        any::<u64>().prop_map(Record::Returned),
        any::<u64>().prop_map(Record::HighWater),
    ]
}

proptest! {
    #[test]
    fn any_log_reads_as_it_was_written(records in proptest::collection::vec(some_record(), 0..20)) {
        let mut bytes = header().to_vec();
        for record in &records {
            bytes.extend_from_slice(&encode(record));
        }
        let good = bytes.len();
        prop_assert_eq!(decode(&bytes), Ok(Decoded { records, good }));
    }

    #[test]
    fn any_bytes_can_be_given_to_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        let _ = decode(&[&header()[..], &bytes].concat());
    }

    #[test]
    fn a_log_that_says_anything_is_taken_in(records in proptest::collection::vec(some_record(), 0..20)) {
        let map = InodeMap::new();
        map.merge_log(&mut map.holders.lock(), 1, LogSummary::of(1, &records), true);
        for record in &records {
            if let Record::Assign { dev, ino, .. } = *record {
                map.ino(BackingKey { slot: 1, foreign_dev: dev, ino });
            }
        }
    }
}

/// One thing that happens to a pool of three branches.
#[derive(Debug, Clone)]
enum Op {
    Create {
        slot: u16,
        kind: u8,
        directory: bool,
    },
    Move {
        which: usize,
        slot: u16,
    },
    Copy {
        which: usize,
        slot: u16,
    },
    Remove {
        which: usize,
        copy: usize,
    },
    Leave {
        slot: u16,
    },
    Return {
        slot: u16,
    },
    /// The daemon starts again; branches in this order, those that are absent not at all.
    Restart {
        order: [u16; 3],
    },
}

const SLOTS: [u16; 3] = [1, 2, 3];

fn some_op() -> impl Strategy<Value = Op> {
    let slot = || proptest::sample::select(&SLOTS[..]);
    prop_oneof![
        6 => (slot(), 0..6u8, proptest::bool::weighted(0.3))
            .prop_map(|(slot, kind, directory)| Op::Create { slot, kind, directory }),
        6 => (any::<usize>(), slot()).prop_map(|(which, slot)| Op::Move { which, slot }),
        4 => (any::<usize>(), slot()).prop_map(|(which, slot)| Op::Copy { which, slot }),
        5 => (any::<usize>(), any::<usize>()).prop_map(|(which, copy)| Op::Remove { which, copy }),
        1 => slot().prop_map(|slot| Op::Leave { slot }),
        1 => slot().prop_map(|slot| Op::Return { slot }),
        1 => Just([1, 2, 3]).prop_shuffle().prop_map(|order| Op::Restart { order }),
    ]
}

/// A file, or a directory with its copies; the number users saw first.
#[derive(Debug)]
struct Thing {
    keys: Vec<BackingKey>,
    directory: bool,
    kind: u8,
    number: Option<Ino>,
}

struct Model {
    disks: Disks,
    map: InodeMap,
    present: BTreeSet<u16>,
    things: Vec<Thing>,
    /// When each inode that is in use was made, on its branch.
    births: BTreeMap<BackingKey, Timestamp>,
    clock: i64,
}

impl Model {
    fn new() -> Model {
        let disks = Disks::new();
        let map = disks.map(&SLOTS);
        Model { disks, map, present: SLOTS.into(), things: Vec::new(), births: BTreeMap::new(), clock: 0 }
    }

    /// The smallest inode that is free, as ext4 does: reuse is the rule. `kind` makes some foreign and some long.
    fn free_key(&mut self, slot: u16, kind: u8) -> BackingKey {
        let used: BTreeSet<BackingKey> = self.things.iter().flat_map(|it| it.keys.iter().copied()).collect();
        let foreign_dev = if kind == 4 { 77 } else { 0 };
        let first = if kind == 5 { 1 << 55 } else { 12 };
        let mut keys = (first..=u64::MAX).map(|ino| BackingKey { slot, foreign_dev, ino });
        let key = keys.find(|key| !used.contains(key)).unwrap();
        self.clock += 1;
        self.births.insert(key, time(self.clock));
        key
    }

    fn pick(&self, which: usize, directory: bool) -> Option<usize> {
        let able = |it: &Thing| it.directory == directory && it.keys.iter().any(|key| self.present.contains(&key.slot));
        let able: Vec<usize> = (0..self.things.len()).filter(|&at| able(&self.things[at])).collect();
        able.get(which % able.len().max(1)).copied()
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Create { slot, kind, directory } if self.present.contains(&slot) => {
                let keys = vec![self.free_key(slot, kind)];
                self.things.push(Thing { keys, directory, kind, number: None });
            }
            Op::Move { which, slot } if self.present.contains(&slot) => {
                if let Some(at) = self.pick(which, false) {
                    let to = self.free_key(slot, self.things[at].kind);
                    self.map.moved(self.things[at].keys[0], to, Some(time(1)));
                    self.things[at].keys = vec![to];
                }
            }
            Op::Copy { which, slot } if self.present.contains(&slot) => {
                if let Some(at) = self.pick(which, true)
                    && self.things[at].keys.iter().all(|key| key.slot != slot)
                {
                    let copy = self.free_key(slot, self.things[at].kind);
                    let original = self.things[at].keys.iter().find(|key| self.present.contains(&key.slot));
                    self.map.alias(*original.unwrap(), copy);
                    self.things[at].keys.push(copy);
                }
            }
            Op::Remove { which, copy } => {
                if let Some(at) = self.pick(which, copy % 2 == 0) {
                    let copy = copy % self.things[at].keys.len();
                    if self.present.contains(&self.things[at].keys[copy].slot) {
                        self.map.forget(self.things[at].keys.remove(copy));
                    }
                    self.things.retain(|it| !it.keys.is_empty());
                }
            }
            Op::Leave { slot } => {
                self.present.remove(&slot);
                self.map.unload(slot);
            }
            Op::Return { slot } if self.present.insert(slot) => self.disks.load(&self.map, slot),
            Op::Restart { order } => {
                let order: Vec<u16> = order.into_iter().filter(|slot| self.present.contains(slot)).collect();
                self.map = self.disks.map(&order);
            }
            _ => {}
        }
    }

    /// Every number is as it was first seen, and nobody else's.
    fn check(&mut self) {
        let mut seen: BTreeMap<Ino, usize> = BTreeMap::new();
        for (at, thing) in self.things.iter_mut().enumerate() {
            for key in thing.keys.iter().filter(|key| self.present.contains(&key.slot)) {
                let number = self.map.ino_checked(*key, self.births.get(key).copied());
                assert_eq!(*thing.number.get_or_insert(number), number, "{key:?} has another number");
                assert!(number.0 > 1);
                assert_eq!(*seen.entry(number).or_insert(at), at, "two things have number {number}");
            }
        }
        // Also those on absent branches must find their numbers free when they return.
        for (at, thing) in self.things.iter().enumerate() {
            if let Some(number) = thing.number {
                assert_eq!(
                    *seen.entry(number).or_insert(at),
                    at,
                    "a thing on an absent branch lost its number {number}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn numbers_stay_and_are_unique_whatever_happens(ops in proptest::collection::vec(some_op(), 1..80)) {
        let mut model = Model::new();
        for op in &ops {
            model.apply(op);
            model.check();
        }
    }

    #[test]
    fn numbers_are_unique_after_a_crash_that_lost_the_ends_of_logs(
        ops in proptest::collection::vec(some_op(), 1..60),
        lost in [0..2000u64, 0..2000u64, 0..2000u64],
    ) {
        let mut model = Model::new();
        for op in &ops {
            model.apply(op);
            model.check();
        }
        for (slot, lost) in SLOTS.into_iter().zip(lost) {
            model.map.unload(slot);
            let log = File::options().write(true).open(model.disks.log(slot)).unwrap();
            log.set_len(log.metadata().unwrap().len().saturating_sub(lost)).unwrap();
        }
        model.map = model.disks.map(&SLOTS);
        model.present = SLOTS.into();
        // Copies of a directory may have come apart, and files have changed their numbers; no two files have one.
        model.things.retain(|it| !it.directory);
        for thing in &mut model.things {
            thing.number = None;
        }
        model.check();
    }
}

#[test]
fn threads_that_ask_and_move_see_every_file_under_one_number() {
    let map = InodeMap::new();
    let numbers: Vec<Ino> = (0..200).map(|ino| map.ino(key(1, 100 + ino))).collect();
    std::thread::scope(|scope| {
        for part in 0..4u64 {
            let (map, numbers) = (&map, &numbers);
            scope.spawn(move || {
                for at in (part..200).step_by(4) {
                    let from = key(1, 100 + at);
                    map.moved(from, key(2, 500 + at), None);
                    assert_eq!(map.ino(key(2, 500 + at)), numbers[at as usize]);
                    assert_ne!(map.ino(from), numbers[at as usize]);
                }
            });
        }
    });
    let all: BTreeSet<Ino> = (0..200).flat_map(|at| [map.ino(key(1, 100 + at)), map.ino(key(2, 500 + at))]).collect();
    assert_eq!(all.len(), 400);
}
