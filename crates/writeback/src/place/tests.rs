//! Places known and expected, against a file system that is a list.

use proptest::prelude::*;
use umbrella_units::Pages;

use super::*;
use crate::file::PageRange;

fn mapped(first: u64, pages: u64, block: u64) -> Mapped {
    Mapped { pages: PageRange { first: PageIndex(first), pages: Pages(pages) }, block: BlockNo(block) }
}

fn promises() -> Promises {
    Promises::new(Geometry::Ext4 { inodes: 100, blocks: 1000 })
}

const ALL: PageIndex = PageIndex(u64::MAX);

#[test]
fn a_page_lies_where_its_extent_does() {
    let mut places = Places::default();
    places.record_places(PageIndex(0), ALL, &[mapped(0, 4, 100), mapped(4, 4, 500)], Nanos(0));
    let at = |places: &mut Places, page| places.block_of(FileId(1), PageIndex(page), &mut promises()).0;
    assert_eq!([0, 3, 4, 7].map(|page| at(&mut places, page)), [100, 103, 500, 503]);
}

#[test]
fn a_page_without_a_place_is_expected_behind_the_last_that_has_one() {
    let mut places = Places::default();
    places.record_places(PageIndex(0), ALL, &[mapped(0, 4, 100)], Nanos(0));
    assert_eq!(places.block_of(FileId(1), PageIndex(9), &mut promises()), BlockNo(109));
}

#[test]
fn files_without_any_place_are_expected_side_by_side_where_their_inodes_are() {
    let mut promises = promises();
    let mut place = |file| Places::default().block_of(FileId(file), PageIndex(2), &mut promises).0;
    assert_eq!([place(201), place(202), place(1)], [2002, 2018, 2]);
}

#[test]
fn the_file_system_is_asked_again_only_when_it_may_know_more() {
    let mut places = Places::default();
    let (page, soon) = (PageIndex(9), Nanos::from_millis(10));
    assert_eq!(places.first_unmapped(page, soon), Some(PageIndex(0)));
    places.record_places(PageIndex(0), ALL, &[mapped(0, 4, 100)], Nanos(0));
    assert_eq!(places.first_unmapped(page, soon), None);
    assert_eq!(places.first_unmapped(page, Nanos::from_secs(9)), Some(PageIndex(0)));
    places.written_back();
    assert_eq!(places.first_unmapped(page, soon), Some(PageIndex(0)));
    assert_eq!(places.first_unmapped(PageIndex(3), soon), None, "what has a place keeps it");
}

#[test]
fn a_file_that_was_cut_has_no_place_behind_its_end() {
    let mut places = Places::default();
    places.record_places(PageIndex(0), ALL, &[mapped(0, 4, 100), mapped(4, 4, 500)], Nanos(0));
    places.cut(PageIndex(2));
    assert_eq!(places.extents(), [mapped(0, 2, 100)]);
}

#[test]
fn in_a_file_in_many_pieces_any_page_is_found_with_two_questions_at_most() {
    const MOST: usize = 128;
    // Each second page is a hole.
    let disk: Vec<Mapped> = (0..50_000).map(|at| mapped(2 * at, 1, 1000 + 7 * at)).collect();
    let mut places = Places::default();
    for page in (0..1000).map(|at| at * 7919 % 50_000) {
        let mut questions = 0;
        while let Some(from) = places.first_unmapped(PageIndex(2 * page), Nanos(0)) {
            questions += 1;
            assert!(questions <= 2, "page {page}");
            let first = disk.partition_point(|extent| extent.pages.end() <= from);
            let found = &disk[first..(first + MOST).min(disk.len())];
            let to = if found.len() == MOST { found[MOST - 1].pages.end() } else { ALL };
            places.record_places(from, to, found, Nanos(0));
        }
        assert_eq!(places.block_of(FileId(1), PageIndex(2 * page), &mut promises()), BlockNo(1000 + 7 * page));
    }
}

proptest! {
    /// Queries in any order, with at most `most` extents an answer, find the place of each page that has one.
    #[test]
    fn every_page_is_found_where_it_is(
        lengths in prop::collection::vec((1u64..40, any::<bool>()), 1..60),
        asked in prop::collection::vec(0u64..1500, 1..40),
        most in 1usize..8,
    ) {
        let mut disk = Vec::new();
        let (mut page, mut block) = (0, 1000);
        for (length, hole) in lengths {
            if !hole {
                disk.push(mapped(page, length, block));
                block += length + 7;
            }
            page += length;
        }
        let mut places = Places::default();
        for page in asked.into_iter().map(PageIndex) {
            for _ in 0..400 {
                let Some(from) = places.first_unmapped(page, Nanos(0)) else { break };
                let found: Vec<Mapped> = disk.iter().filter(|extent| extent.pages.end() > from).take(most).copied().collect();
                let to = if found.len() == most { found[most - 1].pages.end() } else { ALL };
                places.record_places(from, to, &found, Nanos(0));
            }
            let owner = disk.iter().find(|extent| (extent.pages.first..extent.pages.end()).contains(&page));
            let block = places.block_of(FileId(1), page, &mut promises());
            if let Some(owner) = owner {
                prop_assert_eq!(block.0, owner.block.0 + page.0 - owner.pages.first.0);
            }
            let firsts: Vec<u64> = places.extents().iter().map(|extent| extent.pages.first.0).collect();
            prop_assert!(firsts.is_sorted_by(|a, b| a < b), "{:?}", firsts);
        }
    }
}
