//! Which of two copies counts.

use super::*;

fn of_generation(generation: u64) -> Superblock {
    Superblock { generation: Generation(generation), ..store() }
}

const FOREIGN: FormatError = FormatError::Foreign { structure: Structure::Superblock };
const UNREADABLE: FormatError = FormatError::Unreadable { structure: Structure::Superblock };
const NEWER: FormatError = FormatError::NewerVersion { structure: Structure::Superblock, found: 2, known: 1 };

fn chosen(generation: u64, repair: Option<u64>) -> Chosen {
    Chosen { superblock: of_generation(generation), repair: repair.map(BlockNo) }
}

#[test]
fn the_higher_generation_counts_and_the_other_copy_is_repaired() {
    assert_eq!(choose(Ok(of_generation(5)), Ok(of_generation(5))), Ok(chosen(5, None)));
    assert_eq!(choose(Ok(of_generation(6)), Ok(of_generation(5))), Ok(chosen(6, Some(256))));
    assert_eq!(choose(Ok(of_generation(5)), Ok(of_generation(6))), Ok(chosen(6, Some(0))));
}

#[test]
fn a_damaged_copy_is_repaired_from_the_other() {
    for damage in [FOREIGN, UNREADABLE, Superblock::parse(&[], LARGE).expect_err("it is empty")] {
        assert_eq!(choose(Ok(of_generation(5)), Err(damage)), Ok(chosen(5, Some(256))));
        assert_eq!(choose(Err(damage), Ok(of_generation(5))), Ok(chosen(5, Some(0))));
    }
    let mut torn = encoded_store();
    torn[200] ^= 1;
    assert_eq!(choose(Superblock::parse(&torn, LARGE), Ok(of_generation(4))), Ok(chosen(4, Some(0))));
}

#[test]
fn without_a_whole_copy_there_is_no_store() {
    assert_eq!(choose(Err(FOREIGN), Err(FOREIGN)), Err(ChooseError::Foreign));
    let damaged = Err(ChooseError::Damaged { first: FOREIGN, second: UNREADABLE });
    assert_eq!(choose(Err(FOREIGN), Err(UNREADABLE)), damaged);
}

#[test]
fn a_copy_that_a_newer_program_wrote_is_not_overruled_by_an_older_one() {
    let newer = |copy| Err(ChooseError::Unusable { copy, source: NEWER });
    assert_eq!(choose(Err(NEWER), Ok(of_generation(5))), newer(0));
    assert_eq!(choose(Ok(of_generation(5)), Err(NEWER)), newer(1));
    assert_eq!(choose(Err(UNREADABLE), Err(NEWER)), newer(1));
}

#[test]
fn a_store_that_was_grown_is_not_opened_at_its_old_size_on_a_shorter_device() {
    let small = Superblock::parse(&encoded_store(), Lba(8)).expect_err("the device ends");
    let refused = choose(Err(small), Ok(of_generation(4)));
    assert_eq!(refused, Err(ChooseError::Unusable { copy: 0, source: small }));
}

#[test]
fn copies_of_two_stores_are_both_named() {
    let other = Superblock { store: Uuid::from_u128(9), ..of_generation(7) };
    let two = choose(Ok(store()), Ok(other.clone()));
    assert_eq!(two, Err(ChooseError::TwoStores { first: store().store, second: other.store }));
}

#[test]
fn copies_of_one_generation_may_not_differ() {
    let other = Superblock { created: UnixSeconds(1), ..store() };
    assert_eq!(choose(Ok(store()), Ok(other)), Err(ChooseError::Contradiction { generation: Generation(5) }));
}
