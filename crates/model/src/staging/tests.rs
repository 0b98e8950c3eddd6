use proptest::prelude::*;
use umbrella_units::{ByteSize, FileId, PAGE_BYTES};

use super::{Config, Staged, StagedFile, Staging};

const DIR: FileId = FileId(1);
const MIB: ByteSize = ByteSize(1 << 20);

fn with_files(sizes: &[u64]) -> Staging {
    let mut staging = Staging::new(Config::default());
    for (file, &size) in (10..).zip(sizes) {
        staging.create(FileId(file), DIR);
        staging.write(FileId(file), ByteSize(size));
    }
    staging
}

#[test]
fn a_file_of_just_the_threshold_stays_and_one_byte_more_leaves() {
    let mut staging = with_files(&[0]);
    assert_eq!(staging.write(FileId(10), MIB), Staged::Kept);
    assert_eq!(staging.write(FileId(10), ByteSize(MIB.0 + 1)), Staged::Transform);
    assert_eq!(staging.leave(FileId(10)), Some(StagedFile { dir: DIR, size: ByteSize(MIB.0 + 1) }));
    assert_eq!(staging.write(FileId(10), MIB), Staged::Elsewhere);
    assert_eq!(staging.pages(), 0);
}

#[test]
fn pressure_takes_the_least_recently_used_files_until_the_pages_are_there() {
    let mut staging = with_files(&[3 * PAGE_BYTES, 2 * PAGE_BYTES, 1, 4 * PAGE_BYTES]);
    staging.touch(FileId(10));
    assert_eq!(staging.pressure(3), [FileId(11), FileId(12)]);
    assert_eq!(staging.pressure(4), [FileId(11), FileId(12), FileId(13)]);
    assert_eq!(staging.pressure(0), []);
    assert_eq!(staging.pressure(u64::MAX).len(), 4);
    assert_eq!(staging.pages(), 10, "they stay until they leave");
}

#[test]
fn a_deleted_file_is_gone_and_a_file_that_left_is_none_of_ours() {
    let mut staging = with_files(&[PAGE_BYTES, PAGE_BYTES]);
    assert!(staging.delete(FileId(10)));
    assert!(!staging.delete(FileId(10)));
    staging.leave(FileId(11));
    assert!(!staging.delete(FileId(11)));
    assert_eq!((staging.pages(), staging.files()), (0, 0));
}

#[test]
fn creating_a_staged_file_again_changes_nothing() {
    let mut staging = with_files(&[PAGE_BYTES]);
    staging.create(FileId(10), FileId(5));
    assert_eq!(staging.leave(FileId(10)), Some(StagedFile { dir: DIR, size: ByteSize(PAGE_BYTES) }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Against a list in order of use.
    #[test]
    fn order_and_pages_are_those_of_a_plain_list(steps in prop::collection::vec((0u8..5, 1u64..9, 0u64..40_000), 1..200)) {
        let mut staging = Staging::new(Config { threshold: ByteSize(30_000) });
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (kind, file, size) in steps {
            let at = list.iter().position(|&(of, _)| of == file);
            match kind {
                0 => {
                    staging.create(FileId(file), DIR);
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
                    prop_assert_eq!(staging.leave(FileId(file)).map(|staged| staged.size.0), left);
                }
            }
            prop_assert_eq!(staging.pages(), list.iter().map(|&(_, size)| size.div_ceil(PAGE_BYTES)).sum::<u64>());
            let order: Vec<FileId> = list.iter().map(|&(file, _)| FileId(file)).collect();
            let all = staging.pressure(u64::MAX);
            prop_assert_eq!(all, order);
        }
    }
}
