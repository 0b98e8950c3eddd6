//! What a map page may say.

use super::*;

fn parse(words: &[(usize, u64)], page: u64) -> Result<MapPage, FormatError> {
    let mut block = [0; BLOCK_BYTES];
    for (entry, word) in words {
        block[entry * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    MapPage::parse(&block, &store().shape, MapPageNo(page))
}

#[test]
fn an_entry_takes_eight_bytes_in_memory_too() {
    assert_eq!(size_of::<Option<MapEntry>>(), 8);
}

#[test]
fn an_entry_holds_any_place_of_40_bits_and_stamp_of_24() {
    for (place, stamp) in [(0, 0), (0, 0xff_ffff), ((1 << 40) - 2, 0), ((1 << 40) - 2, 0xff_ffff), (2, 1)] {
        let entry = entry(place, stamp);
        assert_eq!((entry.place(), entry.stamp()), (LogBlock(place), Stamp(stamp)));
    }
    assert_eq!(field(MapEntry::new(LogBlock((1 << 40) - 1), Stamp(0))), Field::Place);
    assert_eq!(field(MapEntry::new(LogBlock(u64::MAX), Stamp(0))), Field::Place);
    assert_eq!(field(MapEntry::new(LogBlock(0), Stamp(1 << 24))), Field::Stamp);
}

#[test]
fn an_index_entry_takes_eight_bytes_and_holds_any_place() {
    assert_eq!(size_of::<Option<IndexEntry>>(), 8);
    for place in [0, 1, 1023, (1 << 40) - 2] {
        assert_eq!(page_at(place).place(), LogBlock(place));
    }
    assert_eq!(field(IndexEntry::new(LogBlock((1 << 40) - 1), Checksum(0))), Field::Place);
}

#[test]
fn an_index_entry_knows_its_page_from_others_and_from_what_it_was() {
    let (old, entry) = (map_page(), page_at(17));
    let encoded = |page: &MapPage, number| page.encode(&store().shape, MapPageNo(number)).expect("it can be read");
    let mut new = old.clone();
    new.set(BlockNo(513), None);
    assert_eq!(entry.verify(&encoded(&old, 1)), Ok(()));
    for other in [encoded(&new, 1), encoded(&MapPage::default(), 1), [0xff; BLOCK_BYTES]] {
        assert!(matches!(entry.verify(&other), Err(FormatError::Checksum { structure: Structure::MapPage, .. })));
    }
}

#[test]
fn an_entry_is_forgotten_when_its_block_is_unmapped() {
    let mut page = map_page();
    assert_eq!(page.get(BlockNo(513)), Some(entry(1023, 0xff_ffff)));
    assert_eq!(page.get(BlockNo(514)), None);
    assert_eq!(page.set(BlockNo(513), None), Some(entry(1023, 0xff_ffff)));
    assert_eq!(page.get(BlockNo(513)), None);
    let mapped: Vec<_> = page.mapped(MapPageNo(1)).collect();
    assert_eq!(mapped, [(BlockNo(512), entry(0, 0)), (BlockNo(699), entry(17, 0xab_cdef))]);
}

#[test]
fn places_lie_in_the_log() {
    assert!(parse(&[(511, 1024)], 0).is_ok());
    assert_eq!(field(parse(&[(511, 1025)], 0)), Field::MapPlace(511));
    assert_eq!(field(parse(&[(7, (1 << 40) - 1)], 0)), Field::MapPlace(7));
}

#[test]
fn a_stamp_without_a_place_is_refused() {
    assert_eq!(field(parse(&[(3, 5 << 40)], 0)), Field::MapPlace(3));
}

#[test]
fn behind_the_last_logical_block_nothing_is_mapped() {
    assert!(parse(&[(187, 1)], 1).is_ok());
    assert_eq!(field(parse(&[(188, 1)], 1)), Field::MapPlace(188));
    assert!(parse(&[(188, 1)], 0).is_ok());
    assert_eq!(field(parse(&[], 2)), Field::MapPage);
    assert_eq!(field(parse(&[], u64::MAX)), Field::MapPage);
}

#[test]
fn a_page_that_would_not_be_read_is_not_written() {
    let mut page = map_page();
    page.set(BlockNo(700), Some(entry(0, 0)));
    assert_eq!(field(page.encode(&store().shape, MapPageNo(1))), Field::MapPlace(188));
}
