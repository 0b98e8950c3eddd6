//! Preference lists, room, spilling, draining, branches that are away.

use super::*;

fn list() -> Rules {
    compile(vec![when("all", vec![], to(&["flash", "crypt"]))], &["disk"])
}

fn strict() -> Rules {
    compile(vec![when("all", vec![], only(&["flash", "crypt"]))], &["disk"])
}

fn new(rules: &Rules, branches: &[BranchView]) -> Choice {
    choice(rules, &file("/x"), branches, None)
}

#[test]
fn the_first_branch_with_room_is_taken() {
    assert_eq!(new(&list(), &[ROOMY; 4]), Choice::Place(FLASH));
    assert_eq!(new(&list(), &[ROOMY, FULL, ROOMY, ROOMY]), Choice::Place(CRYPT));
    assert_eq!(new(&list(), &[ROOMY, DRAINING, ROOMY, ROOMY]), Choice::Place(CRYPT));
}

#[test]
fn room_means_that_what_is_kept_free_stays_free() {
    let flash = |free| [ROOMY, BranchView { min_free: ByteSize(500), ..super::free(free) }, ROOMY, ROOMY];
    assert_eq!(new(&list(), &flash(1500)), Choice::Place(FLASH));
    assert_eq!(new(&list(), &flash(1499)), Choice::Place(CRYPT));
    assert_eq!(choice(&list(), &new_file("/x"), &flash(501), None), Choice::Place(FLASH), "a new file has no size yet");
    assert_eq!(choice(&list(), &new_file("/x"), &flash(500), None), Choice::Place(CRYPT));
}

#[test]
fn the_largest_file_and_reserve_do_not_overflow() {
    let flash = BranchView { min_free: ByteSize(u64::MAX), ..free(u64::MAX) };
    assert_eq!(choice(&list(), &sized(u64::MAX), &[FULL, flash, FULL, FULL], None), Choice::Place(FLASH));
    assert_eq!(choice(&list(), &sized(u64::MAX), &[FULL; 4], None), Choice::NoRoom);
}

#[test]
fn a_file_spills_to_the_default_list_and_then_where_most_is_free() {
    assert_eq!(new(&list(), &[ROOMY, FULL, FULL, ROOMY]), Choice::Place(DISK));
    assert_eq!(new(&list(), &[FULL, FULL, FULL, ROOMY]), Choice::Place(SPARE));
    assert_eq!(new(&list(), &[FULL; 4]), Choice::NoRoom);
    let rules = compile(vec![], &["crypt"]);
    assert_eq!(
        new(&rules, &[free(5_000), free(6_000), FULL, free(6_000)]),
        Choice::Place(FLASH),
        "the lower id on a tie"
    );
}

#[test]
fn a_file_that_may_not_spill_has_no_room() {
    assert_eq!(new(&strict(), &[ROOMY, FULL, ROOMY, ROOMY]), Choice::Place(CRYPT));
    assert_eq!(new(&strict(), &[ROOMY, FULL, FULL, ROOMY]), Choice::NoRoom);
    assert_eq!(choice(&strict(), &file("/x"), &[ROOMY, FULL, FULL, ROOMY], Some(SPARE)), Choice::NoRoom);
}

#[test]
fn a_file_stays_on_its_list_unless_an_earlier_branch_has_room_for_it() {
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY; 4], Some(FLASH)), Choice::Stay);
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY; 4], Some(CRYPT)), Choice::Place(FLASH));
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, free(999), ROOMY, ROOMY], Some(CRYPT)), Choice::Stay);
}

#[test]
fn a_file_that_no_rule_names_stays_on_whichever_branch_of_the_default_list_it_is() {
    let rules = compile(vec![], &["disk", "flash", "crypt"]);
    for home in [DISK, FLASH, CRYPT] {
        assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(home)), Choice::Stay);
    }
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(SPARE)), Choice::Place(DISK), "not on the list");
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY, DRAINING, ROOMY, ROOMY], Some(FLASH)), Choice::Place(DISK));
    assert_eq!(new(&rules, &[ROOMY; 4]), Choice::Place(DISK), "it begins on the first");
}

#[test]
fn a_rule_that_is_passed_over_leaves_files_on_the_default_list_where_they_are() {
    let rules = compile(vec![when("all", vec![], to(&["spare"]))], &["disk", "flash"]);
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY, ROOMY, ROOMY, OFFLINE], Some(FLASH)), Choice::Stay);
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(FLASH)), Choice::Place(SPARE));
}

#[test]
fn a_new_file_does_not_begin_on_a_branch_without_a_free_byte() {
    let rules = compile(vec![], &["disk", "flash"]);
    let begin = |disk| choice(&rules, &new_file("/x"), &[disk, ROOMY, ROOMY, ROOMY], None);
    assert_eq!(begin(FULL), Choice::Place(FLASH));
    assert_eq!(begin(free(1)), Choice::Place(DISK));
    assert_eq!(choice(&rules, &new_file("/x"), &[FULL; 4], None), Choice::NoRoom, "`next_choice` is tried then");
}

#[test]
fn a_file_on_an_earlier_branch_never_moves_to_a_later_one() {
    let overfull = BranchView { min_free: ByteSize(1_000), ..FULL };
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, overfull, ROOMY, ROOMY], Some(FLASH)), Choice::Stay);
}

#[test]
fn a_file_that_has_spilled_stays_until_its_list_has_room() {
    for home in [DISK, SPARE] {
        assert_eq!(choice(&list(), &file("/x"), &[ROOMY, FULL, FULL, ROOMY], Some(home)), Choice::Stay);
        assert_eq!(choice(&list(), &file("/x"), &[ROOMY, FULL, ROOMY, ROOMY], Some(home)), Choice::Place(CRYPT));
    }
}

#[test]
fn a_branch_that_is_drained_is_left() {
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, DRAINING, ROOMY, ROOMY], Some(FLASH)), Choice::Place(CRYPT));
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, DRAINING, FULL, ROOMY], Some(FLASH)), Choice::Place(DISK));
    assert_eq!(choice(&strict(), &file("/x"), &[ROOMY, DRAINING, FULL, ROOMY], Some(FLASH)), Choice::NoRoom);
    assert_eq!(choice(&list(), &file("/x"), &[FULL, DRAINING, FULL, FULL], Some(FLASH)), Choice::NoRoom);
}

#[test]
fn a_file_on_a_branch_that_is_offline_cannot_be_moved() {
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, ROOMY, ROOMY, OFFLINE], Some(SPARE)), Choice::Stay);
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY; 2], Some(BranchId(77))), Choice::Stay);
}

#[test]
fn a_rule_whose_first_branch_is_offline_is_passed_over_and_revives() {
    let rules = list();
    let away = [ROOMY, OFFLINE, ROOMY, ROOMY];
    assert_eq!(entry(&rules, &file("/x"), &away), "default");
    assert!(rules.inactive(EntryId(0), &away));
    assert_eq!(entry(&rules, &file("/x"), &[ROOMY; 4]), "all");
    assert!(!rules.inactive(EntryId(0), &[ROOMY; 4]));
    assert_eq!(entry(&rules, &file("/x"), &[ROOMY, ROOMY, OFFLINE, ROOMY]), "all", "only the first counts");
}

#[test]
fn a_rule_that_must_not_spill_is_not_passed_over_when_its_branches_are_offline() {
    let rules = strict();
    for away in [[ROOMY, OFFLINE, OFFLINE, ROOMY], [ROOMY, OFFLINE, ROOMY, ROOMY]] {
        assert_eq!(entry(&rules, &file("/x"), &away), "all");
        assert!(!rules.inactive(EntryId(0), &away));
    }
    assert_eq!(new(&rules, &[ROOMY, OFFLINE, OFFLINE, ROOMY]), Choice::NoRoom, "refused, and put nowhere else");
    assert!(rules.is_away(EntryId(0), &[ROOMY, OFFLINE, OFFLINE, ROOMY]));
    assert_eq!(new(&rules, &[ROOMY, OFFLINE, ROOMY, ROOMY]), Choice::Place(CRYPT), "another branch of its list serves");
    assert!(!rules.is_away(EntryId(0), &[ROOMY, OFFLINE, ROOMY, ROOMY]));
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY, OFFLINE, OFFLINE, ROOMY], Some(DISK)), Choice::NoRoom);
}

#[test]
fn the_default_is_never_passed_over() {
    let rules = compile(vec![], &["disk", "flash"]);
    let away = [OFFLINE, ROOMY, ROOMY, ROOMY];
    assert!(!rules.inactive(EntryId(0), &away));
    assert_eq!(new(&rules, &away), Choice::Place(FLASH));
    assert!(!rules.inactive(EntryId(9), &away), "an entry that is not there");
}

#[test]
fn the_next_choice_follows_the_list_then_the_default_then_the_free_space() {
    let rules = list();
    let next = |branches: &[BranchView], excluding: &[BranchId]| {
        rules.next_choice(&new_file("/x"), branches, excluding, ByteSize(1000))
    };
    assert_eq!(next(&[ROOMY; 4], &[FLASH]), Some(CRYPT));
    assert_eq!(next(&[ROOMY; 4], &[FLASH, CRYPT]), Some(DISK));
    assert_eq!(next(&[ROOMY; 4], &[FLASH, CRYPT, DISK]), Some(SPARE));
    assert_eq!(next(&[ROOMY; 4], &[FLASH, CRYPT, DISK, SPARE]), None);
    assert_eq!(next(&[ROOMY, ROOMY, free(999), ROOMY], &[FLASH]), Some(DISK));
    assert_eq!(next(&[ROOMY, ROOMY, DRAINING, ROOMY], &[FLASH]), Some(DISK));
    assert_eq!(next(&[ROOMY, ROOMY, OFFLINE, ROOMY], &[FLASH]), Some(DISK));
}

#[test]
fn the_next_choice_takes_from_what_is_kept_free_before_it_gives_up() {
    let reserve = BranchView { min_free: ByteSize(5_000), ..free(2_000) };
    let next = |branches: &[BranchView]| list().next_choice(&new_file("/x"), branches, &[FLASH], ByteSize(1000));
    assert_eq!(next(&[reserve, ROOMY, FULL, free(1_000)]), Some(SPARE), "room above the reserve comes first");
    assert_eq!(next(&[reserve, ROOMY, FULL, FULL]), Some(DISK));
    assert_eq!(next(&[FULL, ROOMY, FULL, FULL]), None);
}

#[test]
fn the_next_choice_keeps_to_the_list_where_spilling_is_forbidden() {
    let rules = strict();
    let next = |excluding: &[BranchId]| rules.next_choice(&new_file("/x"), &[ROOMY; 4], excluding, ByteSize(1));
    assert_eq!(next(&[FLASH]), Some(CRYPT));
    assert_eq!(next(&[FLASH, CRYPT]), None);
}

/// UmbrellaFS, chapter III: what was accessed today is kept local, so that work goes on while the remote is away.
#[test]
fn files_in_use_come_to_the_local_branch_and_return_when_the_remote_is_back() {
    let today = Condition::Age {
        of: crate::placement::spec::TimeField::Atime,
        is: Comparison::Less,
        value: Duration::from_secs(86_400),
        hysteresis: Duration::ZERO,
    };
    let rules =
        compile(vec![when("today", vec![today], to(&["disk"])), when("rest", vec![], to(&["spare"]))], &["disk"]);
    let fresh = FileFacts { atime: at(1_086_000), ..file("/x") };
    let away = [ROOMY, ROOMY, ROOMY, OFFLINE];
    assert_eq!(choice(&rules, &fresh, &[ROOMY; 4], Some(SPARE)), Choice::Place(DISK));
    assert_eq!(choice(&rules, &file("/x"), &away, Some(DISK)), Choice::Stay);
    assert_eq!(choice(&rules, &new_file("/y"), &away, None), Choice::Place(DISK));
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(DISK)), Choice::Place(SPARE));
}

#[test]
fn a_file_with_holes_needs_the_room_that_it_occupies() {
    let sparse = FileFacts { size: ByteSize(1 << 30), occupied: ByteSize(4096), ..file("/x") };
    assert_eq!(choice(&strict(), &sparse, &[FULL, free(4096), FULL, FULL], None), Choice::Place(FLASH));
    assert_eq!(choice(&strict(), &sparse, &[FULL, free(4095), FULL, FULL], None), Choice::NoRoom);
    let reserved = FileFacts { size: ByteSize(1), occupied: ByteSize(1 << 20), ..file("/x") };
    assert_eq!(choice(&strict(), &reserved, &[FULL, free(4096), FULL, FULL], None), Choice::NoRoom);
}

#[test]
fn a_file_that_stays_for_want_of_room_has_spilled() {
    let rules = list();
    let spilled = |branches: &[BranchView], resident: Resident| {
        let decision = rules.decide(&file("/x"), branches, Some(&resident));
        assert_eq!(decision.choice, Choice::Stay);
        rules.has_spilled(decision, &file("/x"), branches, &resident)
    };
    let full = [ROOMY, FULL, FULL, ROOMY];
    assert!(spilled(&full, on(DISK)));
    assert!(!spilled(&full, on(CRYPT)), "it is on its list");
    let lately = Resident { since: Some(file("/x").now), min_stay: Duration::from_secs(1), ..on(DISK) };
    assert!(!spilled(&full, lately), "it would stay with room too");
    assert!(!spilled(&[OFFLINE, FULL, FULL, ROOMY], on(DISK)));
}
