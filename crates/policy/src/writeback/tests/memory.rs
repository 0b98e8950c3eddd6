//! What the index weighs with a million dirty pages.

use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey};

use super::script::policy;
use crate::writeback::{Event, WriteBack, policies};

const PAGES: u64 = 1_000_000;

fn bytes_per_page(name: &str, place: impl Fn(u64) -> (PageKey, BlockNo)) -> f64 {
    let mut policy: WriteBack = policy(name);
    for n in 0..PAGES {
        let (page, block) = place(n);
        policy.on(Nanos(n), Event::Dirty { page, block, active: false });
    }
    assert_eq!(policy.dirty().0, PAGES, "{name}");
    policy.memory().total().0 as f64 / PAGES as f64
}

/// Policies that keep different structures; the others keep the same as one of them.
fn different() -> Vec<&'static str> {
    let kept = |name: &str| {
        let needs = policy(name).needs();
        (needs.blocks, needs.recency.is_some(), needs.files.is_some(), needs.ranks)
    };
    let mut names: Vec<&'static str> = Vec::new();
    for info in policies() {
        if names.iter().all(|name| kept(name) != kept(info.name)) {
            names.push(info.name);
        }
    }
    names
}

fn are_light(names: &[&str], place: impl Fn(u64) -> (PageKey, BlockNo)) {
    take_at_most(64.0, names, place);
}

fn take_at_most(most: f64, names: &[&str], place: impl Fn(u64) -> (PageKey, BlockNo)) {
    for name in names {
        let bytes = bytes_per_page(name, &place);
        assert!(bytes <= most, "{name} takes {bytes:.1} bytes a page");
    }
}

#[test]
fn where_each_page_is_a_file_of_its_own_the_file_has_to_be_kept_too() {
    take_at_most(128.0, &different(), |n| {
        (PageKey { file: FileId(n + 10), index: PageIndex(0) }, BlockNo(n * 7 % 26_214_400))
    });
}

#[test]
fn where_each_page_is_alone_in_8_mib_the_zone_has_to_be_kept_too() {
    take_at_most(96.0, &different(), |n| (PageKey::device(BlockNo(n * 2048)), BlockNo(n * 2048)));
}

#[test]
fn a_million_pages_all_over_100_gib_take_at_most_64_bytes_each() {
    are_light(&different(), |n| {
        let block = BlockNo(n * 15_485_863 % 26_214_400);
        (PageKey::device(block), block)
    });
}

#[test]
fn a_million_pages_of_files_of_64_kib_take_at_most_64_bytes_each() {
    are_light(&["file", "zone_segment", "sweep"], |n| {
        let (file, index) = (n / 16, n % 16);
        (PageKey { file: FileId(file), index: PageIndex(index) }, BlockNo(file * 7_919 % 1_638_400 * 16 + index))
    });
}
