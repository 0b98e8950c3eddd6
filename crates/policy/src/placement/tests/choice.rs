//! Lists that are complete, room, draining, branches that are away.

use super::*;

fn list() -> Rules {
    compile(vec![when("all", vec![], to(&["flash", "crypt"]))], &["disk"])
}

fn list_with(offline: Offline) -> Rules {
    let to = DestinationSpec { offline, ..to(&["flash", "crypt"]) };
    compile(vec![when("all", vec![], to)], &["disk"])
}

/// A list that takes the default list, and then whatever is left.
fn open_list() -> Rules {
    compile(vec![when("all", vec![], to(&["flash", "crypt", "default", "any"]))], &["disk"])
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
fn a_branch_that_takes_no_new_files_keeps_those_it_has() {
    let closed = BranchView { creates: false, ..ROOMY };
    let branches = [ROOMY, closed, ROOMY, ROOMY];
    assert_eq!(new(&list(), &branches), Choice::Place(CRYPT), "nothing new comes");
    assert_eq!(choice(&list(), &file("/x"), &branches, Some(FLASH)), Choice::Stay, "what is there stays");
    assert_eq!(choice(&list(), &file("/x"), &branches, Some(DISK)), Choice::Place(CRYPT), "and nothing moves there");
    assert_eq!(list().next_choice(&file("/x"), &[closed; 4], &[], ByteSize(0), &Empty), None);
    let why = list().explain(&file("/x"), &branches, None, &Empty).why;
    assert!(why.starts_with("\"flash\" takes no new files (create = false)"), "{why}");
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
fn a_list_is_complete() {
    assert_eq!(new(&list(), &[ROOMY, FULL, ROOMY, ROOMY]), Choice::Place(CRYPT));
    assert_eq!(new(&list(), &[ROOMY, FULL, FULL, ROOMY]), Choice::NoRoom);
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, FULL, FULL, ROOMY], Some(SPARE)), Choice::NoRoom);
    let default = compile(vec![], &["disk"]);
    assert_eq!(new(&default, &[FULL, ROOMY, ROOMY, ROOMY]), Choice::NoRoom, "the default list too");
}

#[test]
fn default_means_the_default_list_and_any_means_all_other_branches() {
    assert_eq!(new(&open_list(), &[ROOMY, FULL, FULL, ROOMY]), Choice::Place(DISK));
    assert_eq!(new(&open_list(), &[FULL, FULL, FULL, ROOMY]), Choice::Place(SPARE));
    assert_eq!(new(&open_list(), &[FULL; 4]), Choice::NoRoom);
    let listed: Vec<Vec<BranchId>> = open_list().entries()[0].to.iter().map(|slot| slot.members().collect()).collect();
    assert_eq!(listed, [vec![FLASH], vec![CRYPT], vec![DISK], vec![SPARE]]);
}

#[test]
fn any_goes_by_most_free_space() {
    let rules = compile(vec![], &["crypt", "any"]);
    assert_eq!(new(&rules, &[free(5_000), free(6_000), FULL, free(6_000)]), Choice::Place(FLASH), "the first on a tie");
    assert_eq!(new(&rules, &[free(5_000), free(6_000), free(1_000), free(6_000)]), Choice::Place(CRYPT));
}

#[test]
fn without_a_default_list_a_file_goes_anywhere() {
    let rules = compile(vec![], &[]);
    assert_eq!(new(&rules, &[free(5_000), free(6_000), FULL, ROOMY]), Choice::Place(SPARE));
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(FLASH)), Choice::Stay);
}

#[test]
fn a_file_on_any_branch_of_the_default_list_is_in_its_place_by_a_rule_that_names_the_list() {
    let rules = compile(vec![when("all", vec![], to(&["flash", "default"]))], &["disk", "spare"]);
    let full_flash = [ROOMY, FULL, ROOMY, ROOMY];
    assert_eq!(new(&rules, &full_flash), Choice::Place(DISK), "it begins on the first");
    assert_eq!(choice(&rules, &file("/x"), &full_flash, Some(SPARE)), Choice::Stay, "but is not moved there");
    assert_eq!(choice(&rules, &file("/x"), &full_flash, Some(CRYPT)), Choice::Place(DISK));
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(SPARE)), Choice::Place(FLASH));
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
    let rules = compile(vec![when("all", vec![], passing(&["spare"]))], &["disk", "flash"]);
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
fn a_file_at_the_end_of_its_list_waits_there_until_an_earlier_branch_has_room() {
    for home in [DISK, SPARE] {
        assert_eq!(choice(&open_list(), &file("/x"), &[ROOMY, FULL, FULL, ROOMY], Some(DISK)), Choice::Stay);
        assert_eq!(choice(&open_list(), &file("/x"), &[ROOMY, FULL, ROOMY, ROOMY], Some(home)), Choice::Place(CRYPT));
    }
}

#[test]
fn a_branch_that_is_drained_is_left() {
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, DRAINING, ROOMY, ROOMY], Some(FLASH)), Choice::Place(CRYPT));
    assert_eq!(choice(&open_list(), &file("/x"), &[ROOMY, DRAINING, FULL, ROOMY], Some(FLASH)), Choice::Place(DISK));
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, DRAINING, FULL, ROOMY], Some(FLASH)), Choice::NoRoom);
}

#[test]
fn a_file_on_a_branch_that_is_offline_cannot_be_moved() {
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY, ROOMY, ROOMY, OFFLINE], Some(SPARE)), Choice::Stay);
    assert_eq!(choice(&list(), &file("/x"), &[ROOMY; 2], Some(BranchId(77))), Choice::Stay);
}

#[test]
fn with_pass_a_rule_whose_first_branch_is_offline_is_passed_over_and_revives() {
    let rules = list_with(Offline::Pass);
    let away = [ROOMY, OFFLINE, ROOMY, ROOMY];
    assert_eq!(entry(&rules, &file("/x"), &away), "default");
    assert!(rules.inactive(EntryId(0), &away));
    assert_eq!(entry(&rules, &file("/x"), &[ROOMY; 4]), "all");
    assert!(!rules.inactive(EntryId(0), &[ROOMY; 4]));
    assert_eq!(entry(&rules, &file("/x"), &[ROOMY, ROOMY, OFFLINE, ROOMY]), "all", "only the first counts");
}

#[test]
fn with_next_an_entry_that_is_offline_is_skipped_and_nothing_leaks_while_all_are() {
    let rules = list_with(Offline::Next);
    let (one, both) = ([ROOMY, OFFLINE, ROOMY, ROOMY], [ROOMY, OFFLINE, OFFLINE, ROOMY]);
    for away in [one, both] {
        assert_eq!(entry(&rules, &file("/x"), &away), "all");
        assert!(!rules.inactive(EntryId(0), &away));
    }
    assert_eq!(new(&rules, &one), Choice::Place(CRYPT));
    assert!(!rules.is_away(EntryId(0), &one));
    assert_eq!(new(&rules, &both), Choice::NoRoom, "refused, and put nowhere else");
    assert!(rules.is_away(EntryId(0), &both));
    assert_eq!(choice(&rules, &file("/x"), &both, Some(DISK)), Choice::NoRoom);
}

#[test]
fn with_fail_nothing_is_created_or_moved_while_the_first_entry_is_offline() {
    let rules = list_with(Offline::Fail);
    let away = [ROOMY, OFFLINE, ROOMY, ROOMY];
    assert_eq!(entry(&rules, &file("/x"), &away), "all");
    assert_eq!(new(&rules, &away), Choice::NoRoom);
    assert!(rules.is_away(EntryId(0), &away));
    let facts = new_file("/x");
    assert_eq!(rules.next_choice(&facts, &away, &[], ByteSize(0), &Empty), None);
    assert_eq!(choice(&rules, &file("/x"), &away, Some(CRYPT)), Choice::Stay, "it is on its list");
    assert_eq!(choice(&rules, &file("/x"), &away, Some(DISK)), Choice::NoRoom);
    assert!(!rules.is_away(EntryId(0), &[ROOMY, ROOMY, OFFLINE, ROOMY]), "only the first counts");
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
fn the_next_choice_follows_the_list() {
    let rules = open_list();
    let next = |branches: &[BranchView], excluding: &[BranchId]| {
        rules.next_choice(&new_file("/x"), branches, excluding, ByteSize(1000), &Empty)
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
    let next =
        |branches: &[BranchView]| open_list().next_choice(&new_file("/x"), branches, &[FLASH], ByteSize(1000), &Empty);
    assert_eq!(next(&[reserve, ROOMY, FULL, free(1_000)]), Some(SPARE), "room above the reserve comes first");
    assert_eq!(next(&[reserve, ROOMY, FULL, FULL]), Some(DISK));
    assert_eq!(next(&[FULL, ROOMY, FULL, FULL]), None);
}

#[test]
fn the_next_choice_keeps_to_a_complete_list() {
    let rules = list();
    let next = |excluding: &[BranchId]| rules.next_choice(&new_file("/x"), &[ROOMY; 4], excluding, ByteSize(1), &Empty);
    assert_eq!(next(&[FLASH]), Some(CRYPT));
    assert_eq!(next(&[FLASH, CRYPT]), None);
}

/// UmbrellaFS, chapter III: what was accessed today is kept local, so that work continues while the remote is away.
#[test]
fn files_in_use_come_to_the_local_branch_and_return_when_the_remote_is_back() {
    let today = aged(TimeField::Atime, Comparison::Less, 86_400);
    let rules =
        compile(vec![when("today", vec![today], to(&["disk"])), when("rest", vec![], passing(&["spare"]))], &["disk"]);
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
    assert_eq!(choice(&list(), &sparse, &[FULL, free(4096), FULL, FULL], None), Choice::Place(FLASH));
    assert_eq!(choice(&list(), &sparse, &[FULL, free(4095), FULL, FULL], None), Choice::NoRoom);
    let reserved = FileFacts { size: ByteSize(1), occupied: ByteSize(1 << 20), ..file("/x") };
    assert_eq!(choice(&list(), &reserved, &[FULL, free(4096), FULL, FULL], None), Choice::NoRoom);
}

#[test]
fn only_a_list_of_named_branches_forbids_the_others() {
    assert!(list().forbids(EntryId(0), DISK));
    assert!(!list().forbids(EntryId(0), FLASH));
    assert!(!open_list().forbids(EntryId(0), SPARE));
    let ends_with_default = compile(vec![when("all", vec![], to(&["flash", "default"]))], &["disk"]);
    assert!(!ends_with_default.forbids(EntryId(0), SPARE));
    assert!(!list().forbids(EntryId(1), FLASH), "the default list forbids nothing");
}

#[test]
fn a_move_leaves_an_inode_for_its_own_note() {
    let rules = compile(vec![when("all", vec![], to(&["flash", "crypt"]))], &["disk"]);
    let views = |free| {
        let few = BranchView { inodes: Some(Inodes { total: 100, free }), ..ROOMY };
        [ROOMY, few, ROOMY, ROOMY]
    };
    assert_eq!(choice(&rules, &new_file("/x"), &views(1), None), Choice::Place(FLASH), "a new file needs one");
    assert_eq!(choice(&rules, &file("/x"), &views(1), Some(DISK)), Choice::Place(CRYPT));
    assert_eq!(choice(&rules, &file("/x"), &views(2), Some(DISK)), Choice::Place(FLASH));
}
