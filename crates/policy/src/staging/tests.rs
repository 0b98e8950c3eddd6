use proptest::prelude::*;
use umbrella_units::{ByteSize, FileId, Nanos, PAGE_BYTES, Pages};

use super::{Config, RETRY, Staged, StagedFile, Staging};

const DIR: FileId = FileId(1);
const NOW: Nanos = Nanos(0);
const MIB: ByteSize = ByteSize(1 << 20);

fn with_files(sizes: &[u64]) -> Staging {
    let mut staging = Staging::new(Config::default());
    for (file, &size) in (10..).zip(sizes) {
        staging.create(NOW, FileId(file), DIR);
        staging.write(FileId(file), ByteSize(size));
    }
    staging
}

#[test]
fn a_file_of_just_the_threshold_stays_and_one_byte_more_leaves() {
    let mut staging = with_files(&[0]);
    assert_eq!(staging.write(FileId(10), MIB), Staged::Kept);
    assert_eq!(staging.write(FileId(10), ByteSize(MIB.0 + 1)), Staged::Transform);
    assert_eq!(staging.remove(FileId(10)), Some(StagedFile { dir: DIR, size: ByteSize(MIB.0 + 1) }));
    assert_eq!(staging.write(FileId(10), MIB), Staged::Elsewhere);
    assert_eq!(staging.pages(), Pages(0));
}

#[test]
fn pressure_takes_the_least_recently_used_files_until_the_pages_are_there() {
    let mut staging = with_files(&[3 * PAGE_BYTES, 2 * PAGE_BYTES, 1, 4 * PAGE_BYTES]);
    staging.touch(FileId(10));
    assert_eq!(staging.pressure(Pages(3)), [FileId(11), FileId(12)]);
    assert_eq!(staging.pressure(Pages(4)), [FileId(11), FileId(12), FileId(13)]);
    assert_eq!(staging.pressure(Pages(0)), []);
    assert_eq!(staging.pressure(Pages(u64::MAX)).len(), 4);
    assert_eq!(staging.pages(), Pages(10), "they stay until they leave");
}

#[test]
fn a_write_inside_a_file_leaves_its_size() {
    let mut staging = with_files(&[3 * PAGE_BYTES]);
    assert_eq!(staging.extend(FileId(10), ByteSize(1)), Staged::Kept);
    assert_eq!(staging.pages(), Pages(3));
    assert_eq!(staging.extend(FileId(10), ByteSize(MIB.0 + 1)), Staged::Transform);
    assert_eq!(staging.extend(FileId(11), ByteSize(1)), Staged::Elsewhere);
}

#[test]
fn a_deleted_file_is_gone_and_a_file_that_left_is_none_of_ours() {
    let mut staging = with_files(&[PAGE_BYTES, PAGE_BYTES]);
    assert!(staging.delete(FileId(10)));
    assert!(!staging.delete(FileId(10)));
    staging.remove(FileId(11));
    assert!(!staging.delete(FileId(11)));
    assert_eq!((staging.pages(), staging.files()), (Pages(0), 0));
}

#[test]
fn creating_a_staged_file_again_changes_nothing() {
    let mut staging = with_files(&[PAGE_BYTES]);
    staging.create(NOW, FileId(10), FileId(5));
    assert_eq!(staging.remove(FileId(10)), Some(StagedFile { dir: DIR, size: ByteSize(PAGE_BYTES) }));
}

fn aged(seconds: u64) -> Staging {
    Staging::new(Config { max_age: Nanos::from_secs(seconds), ..Config::default() })
}

#[test]
fn files_leave_by_age_the_oldest_first_and_use_makes_none_younger() {
    let mut staging = aged(30);
    for file in 1..=3 {
        staging.create(Nanos::from_secs(file), FileId(file), DIR);
    }
    staging.write(FileId(1), MIB);
    assert_eq!(staging.expired(Nanos::from_secs(30)), []);
    assert_eq!(staging.expired(Nanos::from_secs(31)), [FileId(1)]);
    staging.remove(FileId(2));
    assert_eq!(staging.expired(Nanos::from_secs(99)), [FileId(1), FileId(3)]);
    assert_eq!(with_files(&[1]).expired(Nanos(u64::MAX - 1)), [], "where memory keeps its contents nothing is too old");
}

#[test]
fn what_could_not_leave_is_tried_again_soon_and_does_not_grow_younger() {
    let mut staging = aged(30);
    staging.create(Nanos(0), FileId(1), DIR);
    staging.create(Nanos(0), FileId(2), DIR);
    let later = Nanos::from_secs(30);
    assert_eq!(staging.expired(later), [FileId(1), FileId(2)]);
    staging.postpone(later, FileId(1));
    assert_eq!(staging.expired(later), [FileId(2)]);
    assert_eq!(staging.pressure(Pages(u64::MAX)), [FileId(2), FileId(1)]);
    assert_eq!(staging.expired(later + RETRY), [FileId(2), FileId(1)]);
    staging.create(later, FileId(3), DIR);
    staging.postpone(later, FileId(3));
    assert_eq!(staging.expired(Nanos::from_secs(59)).len(), 2, "one that was not due yet keeps its time");
}

#[test]
fn files_that_wait_leave_no_later_than_another_age_wants() {
    let mut staging = aged(30);
    staging.create(Nanos(0), FileId(1), DIR);
    staging.configure(Nanos::from_secs(10), Config { max_age: Nanos::from_secs(5), threshold: ByteSize(7) });
    assert_eq!(staging.config().threshold, ByteSize(7));
    assert_eq!(staging.expired(Nanos::from_secs(14)), []);
    assert_eq!(staging.expired(Nanos::from_secs(15)), [FileId(1)]);
    staging.create(Nanos::from_secs(15), FileId(2), DIR);
    staging.configure(Nanos::from_secs(15), Config::default());
    assert_eq!(staging.expired(Nanos::from_secs(20)), [FileId(1), FileId(2)], "a longer age keeps nothing longer");
}

#[test]
fn a_file_scheduled_to_leave_now_is_due_at_once() {
    let mut staging = aged(30);
    staging.create(Nanos(0), FileId(1), DIR);
    staging.create(Nanos(0), FileId(2), DIR);
    staging.schedule_destage_now(FileId(2));
    assert_eq!(staging.expired(Nanos(0)), [FileId(2)]);
    let mut kept = with_files(&[1]);
    kept.schedule_destage_now(FileId(10));
    assert_eq!(kept.expired(Nanos(0)), [FileId(10)], "also where memory keeps its contents");
}

#[test]
fn a_number_used_again_has_the_age_of_its_new_file() {
    let mut staging = aged(30);
    staging.create(Nanos(0), FileId(1), DIR);
    staging.create(Nanos(0), FileId(2), DIR);
    staging.remove(FileId(2));
    staging.create(Nanos::from_secs(20), FileId(2), DIR);
    assert_eq!(staging.expired(Nanos::from_secs(30)), [FileId(1)]);
}

#[test]
fn ages_of_files_that_left_do_not_pile_up() {
    let mut staging = aged(30);
    staging.create(Nanos(0), FileId(1), DIR);
    for file in 2..10_000 {
        staging.create(Nanos(file), FileId(file), DIR);
        staging.remove(FileId(file));
    }
    assert_eq!(staging.due.len(), 1);
    assert_eq!(staging.expired(Nanos::from_secs(30)), [FileId(1)]);
}

#[test]
fn a_file_that_is_to_leave_by_a_time_leaves_then_or_before() {
    let mut staging = Staging::new(Config { max_age: Nanos::from_secs(30), ..Config::default() });
    for file in [1, 2] {
        staging.create(Nanos::from_secs(0), FileId(file), DIR);
    }
    staging.schedule_destage(FileId(1), Nanos::from_secs(2));
    staging.schedule_destage(FileId(1), Nanos::from_secs(40));
    assert_eq!(staging.expired(Nanos::from_secs(1)), []);
    assert_eq!(staging.expired(Nanos::from_secs(2)), [FileId(1)]);
    assert_eq!(staging.expired(Nanos::from_secs(30)), [FileId(1), FileId(2)]);
}

#[test]
fn a_file_may_have_a_threshold_of_its_own_below_the_others() {
    let mut staging = Staging::new(Config { threshold: ByteSize(100), ..Config::default() });
    for file in [1, 2] {
        staging.create(NOW, FileId(file), DIR);
    }
    staging.bound(FileId(1), ByteSize(10));
    staging.bound(FileId(2), ByteSize(1000));
    assert_eq!(staging.write(FileId(1), ByteSize(10)), Staged::Kept);
    assert_eq!(staging.write(FileId(1), ByteSize(11)), Staged::Transform);
    assert_eq!(
        [1, 2, 3].map(|file| staging.threshold_of(FileId(file)).map(|size| size.0)),
        [Some(10), Some(100), None]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Against a list in order of use.
    #[test]
    fn order_and_pages_are_those_of_a_plain_list(steps in prop::collection::vec((0u8..5, 1u64..9, 0u64..40_000), 1..200)) {
        let mut staging = Staging::new(Config { threshold: ByteSize(30_000), max_age: Nanos::NEVER });
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (kind, file, size) in steps {
            let at = list.iter().position(|&(of, _)| of == file);
            match kind {
                0 => {
                    staging.create(NOW, FileId(file), DIR);
                    if at.is_none() {
                        list.push((file, 0));
                    }
                }
                1 | 2 => {
                    let expected = match at {
                        None => Staged::Elsewhere,
                        Some(at) => {
                            list.remove(at);
                            list.push((file, size));
                            if size > 30_000 { Staged::Transform } else { Staged::Kept }
                        }
                    };
                    prop_assert_eq!(staging.write(FileId(file), ByteSize(size)), expected);
                }
                3 => {
                    staging.touch(FileId(file));
                    if let Some(at) = at {
                        let used = list.remove(at);
                        list.push(used);
                    }
                }
                _ => {
                    let left = at.map(|at| list.remove(at).1);
                    prop_assert_eq!(staging.remove(FileId(file)).map(|staged| staged.size.0), left);
                }
            }
            prop_assert_eq!(staging.pages().0, list.iter().map(|&(_, size)| size.div_ceil(PAGE_BYTES)).sum::<u64>());
            let order: Vec<FileId> = list.iter().map(|&(file, _)| FileId(file)).collect();
            let all = staging.pressure(Pages(u64::MAX));
            prop_assert_eq!(all, order);
        }
    }
}
