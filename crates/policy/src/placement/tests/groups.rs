//! Groups: their members, how a member is chosen, and what keeps a directory together.

use std::collections::BTreeMap;

use super::*;
use crate::placement::spec::{Narrow, Spread, SpreadOrder, TogetherFull};

/// A world in which some branches have some directories.
#[derive(Default)]
pub(super) struct World {
    held: BTreeMap<(&'static str, BranchId), DirUsage>,
    last: Option<BranchId>,
    random_number: u64,
}

impl World {
    pub(super) fn with(mut self, dir: &'static str, branch: BranchId, bytes: u64, files: u64) -> World {
        self.held.insert((dir, branch), DirUsage { bytes: ByteSize(bytes), files });
        self
    }
}

impl Surroundings for World {
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool {
        self.held.keys().any(|(known, on)| *on == branch && known.as_bytes() == dir)
    }

    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        let found = self.held.iter().find(|((known, on), _)| *on == branch && known.as_bytes() == dir);
        found.map(|(_, held)| *held).unwrap_or_default()
    }

    fn last_used(&self, _: usize) -> Option<BranchId> {
        self.last
    }

    fn random_number(&self) -> u64 {
        self.random_number
    }
}

/// A pool whose files go to the group "all" of disk, flash and crypt.
fn spread_by(order: SpreadOrder) -> Rules {
    grouped(GroupSpec { spread: Spread { narrow: None, order }, ..group("all", &["disk", "flash", "crypt"]) })
}

fn narrowed_by(narrow: Narrow) -> Rules {
    let spread = Spread { narrow: Some(narrow), order: SpreadOrder::MostFree };
    grouped(GroupSpec { spread, ..group("all", &["disk", "flash", "crypt"]) })
}

fn kept_together(together_full: TogetherFull) -> Rules {
    let together = owned(&["/TV/*/*", "/Music/*"]);
    grouped(GroupSpec { together, together_full, ..group("all", &["disk", "flash", "crypt"]) })
}

fn grouped(group: GroupSpec) -> Rules {
    try_grouped(vec![group], &["all"]).unwrap()
}

fn try_grouped(groups: Vec<GroupSpec>, default: &[&str]) -> Result<Rules, RuleError> {
    Rules::compile(&RulesSpec { rules: Vec::new(), default: owned(default), groups, evicts: Vec::new() }, &names())
}

fn place(rules: &Rules, path: &str, branches: &[BranchView], world: &World) -> Choice {
    rules.decide(&new_file(path), branches, None, world).choice
}

fn sizes(sizes: [(u64, u64); 3]) -> [BranchView; 4] {
    let [a, b, c] = sizes.map(|(free, total)| BranchView { total: ByteSize(total), ..super::free(free) });
    [a, b, c, ROOMY]
}

#[test]
fn each_order_chooses_by_its_own_figure() {
    use SpreadOrder::{HighWater, InOrder, LeastFree, LeastUsed, MostFree, MostFreeShare};
    // Free, size: used is 500, 100 and 950.
    let branches = sizes([(300, 800), (200, 300), (250, 1200)]);
    let cases = [
        (MostFree, DISK),
        (MostFreeShare, FLASH),
        (LeastFree, FLASH),
        (LeastUsed, FLASH),
        (InOrder, DISK),
        (HighWater, DISK),
    ];
    for (order, expected) in cases {
        assert_eq!(place(&spread_by(order), "/x", &branches, &World::default()), Choice::Place(expected), "{order:?}");
    }
}

#[test]
fn the_first_in_order_wins_a_tie() {
    use SpreadOrder::{HighWater, LeastFree, LeastUsed, MostFree, MostFreeShare};
    for order in [MostFree, MostFreeShare, LeastFree, LeastUsed, HighWater] {
        assert_eq!(place(&spread_by(order), "/x", &[ROOMY; 4], &World::default()), Choice::Place(DISK), "{order:?}");
    }
}

#[test]
fn a_member_without_room_or_that_takes_nothing_new_is_not_chosen() {
    let rules = spread_by(SpreadOrder::LeastFree);
    for first in [FULL, OFFLINE, DRAINING, BranchView { min_free: ByteSize(2), ..free(2) }] {
        let branches = [first, free(7), free(5), ROOMY];
        assert_eq!(place(&rules, "/x", &branches, &World::default()), Choice::Place(CRYPT));
    }
    assert_eq!(
        place(&rules, "/x", &[FULL, FULL, FULL, ROOMY], &World::default()),
        Choice::NoRoom,
        "spare is no member"
    );
}

#[test]
fn the_high_water_mark_falls_by_halves_of_the_largest_member() {
    let rules = spread_by(SpreadOrder::HighWater);
    let chosen = |frees: [u64; 3]| {
        let [a, b, c] = frees;
        place(&rules, "/x", &sizes([(a, 800), (b, 400), (c, 1000)]), &World::default())
    };
    assert_eq!(chosen([800, 400, 1000]), Choice::Place(DISK), "above 500");
    assert_eq!(chosen([500, 400, 1000]), Choice::Place(CRYPT), "the first is not above 500 any more");
    assert_eq!(chosen([500, 400, 500]), Choice::Place(DISK), "above 250");
    assert_eq!(chosen([250, 400, 250]), Choice::Place(FLASH));
    assert_eq!(chosen([1, 1, 1]), Choice::Place(DISK));
}

#[test]
fn in_turn_means_the_next_with_room_after_the_one_that_got_the_last_file() {
    let rules = spread_by(SpreadOrder::RoundRobin);
    let after = |last, branches: &[BranchView]| place(&rules, "/x", branches, &World { last, ..World::default() });
    assert_eq!(after(None, &[ROOMY; 4]), Choice::Place(DISK));
    assert_eq!(after(Some(DISK), &[ROOMY; 4]), Choice::Place(FLASH));
    assert_eq!(after(Some(CRYPT), &[ROOMY; 4]), Choice::Place(DISK));
    assert_eq!(after(Some(DISK), &[ROOMY, FULL, ROOMY, ROOMY]), Choice::Place(CRYPT));
    assert_eq!(after(Some(SPARE), &[ROOMY; 4]), Choice::Place(DISK), "one that is no member any more");
}

#[test]
fn chance_reaches_every_member_and_free_space_weighs() {
    let branches = [free(100), free(600), free(300), ROOMY];
    let count = |order, member| {
        let rules = spread_by(order);
        let draw = |n: u64| World { random_number: n * (u64::MAX / 1000), ..World::default() };
        (0..1000).filter(|n| place(&rules, "/x", &branches, &draw(*n)) == Choice::Place(member)).count()
    };
    for member in [DISK, FLASH, CRYPT] {
        assert!((330..=336).contains(&count(SpreadOrder::Random, member)));
    }
    let by_free = [DISK, FLASH, CRYPT].map(|member| count(SpreadOrder::RandomByFree, member));
    for (found, expected) in by_free.into_iter().zip([100, 600, 300]) {
        assert!(found.abs_diff(expected) <= 3, "{by_free:?}");
    }
}

#[test]
fn members_that_have_the_directory_come_first() {
    let world = World::default().with("/a", DISK, 0, 0).with("/a", FLASH, 0, 0).with("/a/b", FLASH, 0, 0);
    let most_on_crypt = [free(7), free(8), free(9), ROOMY];
    for narrow in [Narrow::SamePath, Narrow::OnlySamePath, Narrow::NearestPath] {
        let rules = narrowed_by(narrow);
        assert_eq!(place(&rules, "/a/x", &most_on_crypt, &world), Choice::Place(FLASH), "{narrow:?}");
        assert_eq!(place(&rules, "/x", &most_on_crypt, &world), Choice::Place(CRYPT), "all have the topmost");
        assert_eq!(place(&rules, "/new/x", &most_on_crypt, &world), Choice::Place(CRYPT), "none has it");
    }
}

#[test]
fn each_word_says_what_happens_when_members_with_the_directory_are_full() {
    let world = World::default().with("/a", DISK, 0, 0).with("/a/b", FLASH, 0, 0);
    let full_flash = [free(7), FULL, free(9), ROOMY];
    let answer = |narrow| place(&narrowed_by(narrow), "/a/b/x", &full_flash, &world);
    assert_eq!(answer(Narrow::SamePath), Choice::Place(CRYPT));
    assert_eq!(answer(Narrow::OnlySamePath), Choice::NoRoom);
    assert_eq!(answer(Narrow::NearestPath), Choice::Place(DISK), "it has the directory above");
}

#[test]
fn a_member_that_takes_no_new_files_still_has_its_directories() {
    let world = World::default().with("/a/b", FLASH, 0, 0);
    let answer = |narrow, flash| place(&narrowed_by(narrow), "/a/b/x", &[free(7), flash, free(9), ROOMY], &world);
    let no_new = BranchView { creates: false, ..free(8) };
    assert_eq!(answer(Narrow::SamePath, no_new), Choice::Place(CRYPT));
    assert_eq!(answer(Narrow::OnlySamePath, no_new), Choice::NoRoom);
    let draining = BranchView { writable: false, ..free(8) };
    assert_eq!(answer(Narrow::OnlySamePath, draining), Choice::Place(CRYPT), "what is emptied holds nobody back");
}

#[test]
fn what_min_free_keeps_is_not_for_files_that_may_be_on_the_same_path_only() {
    let world = World::default().with("/a/b", FLASH, 0, 0);
    let below_min_free = BranchView { min_free: ByteSize(9), ..free(5) };
    let next = |narrow| {
        let views = [below_min_free; 4];
        narrowed_by(narrow).next_choice(&new_file("/a/b/x"), &views, &[], ByteSize(0), &world)
    };
    assert_eq!(next(Narrow::SamePath), Some(FLASH), "no branch has more");
    assert_eq!(next(Narrow::OnlySamePath), None);
}

#[test]
fn a_directory_goes_to_the_member_that_holds_most_of_it() {
    let rules = kept_together(TogetherFull::Spill);
    let world = World::default().with("/TV/Show/S1", FLASH, 100, 1).with("/TV/Show/S1", CRYPT, 90, 9);
    let more_elsewhere = [free(9_000), free(7), free(8), ROOMY];
    assert_eq!(place(&rules, "/TV/Show/S1/e2.mkv", &more_elsewhere, &world), Choice::Place(FLASH));
    assert_eq!(
        place(&rules, "/TV/Show/S1/extras/e2.mkv", &more_elsewhere, &world),
        Choice::Place(FLASH),
        "at all depths"
    );
    assert_eq!(place(&rules, "/TV/Show/S2/e1.mkv", &more_elsewhere, &world), Choice::Place(DISK), "another season");
    assert_eq!(place(&rules, "/TV/Show/poster.jpg", &more_elsewhere, &world), Choice::Place(DISK), "above a season");
    let begun = World::default().with("/Music/Album", CRYPT, 0, 1);
    assert_eq!(place(&rules, "/Music/Album/2.flac", &more_elsewhere, &begun), Choice::Place(CRYPT), "just begun");
}

#[test]
fn the_topmost_directory_that_matches_is_kept_together() {
    let together = owned(&["/*/*", "/*"]);
    let rules = grouped(GroupSpec { together, ..group("all", &["disk", "flash"]) });
    assert_eq!(rules.groups()[0].kept_together(b"/a/b/c"), Some(&b"/a"[..]));
    assert_eq!(rules.groups()[0].kept_together(b"/a"), None, "a file is no directory");
}

#[test]
fn a_directory_that_is_begun_may_use_what_is_kept_free() {
    let rules = kept_together(TogetherFull::NoRoom);
    let world = World::default().with("/Music/Album", FLASH, 5, 1);
    let flash = |free| [ROOMY, BranchView { min_free: ByteSize(50_000), ..super::free(free) }, ROOMY, ROOMY];
    let settled = |branches: &[BranchView]| rules.decide(&file("/Music/Album/2"), branches, None, &world).choice;
    assert_eq!(settled(&flash(1_000)), Choice::Place(FLASH));
    assert_eq!(settled(&flash(999)), Choice::NoRoom);
    assert_eq!(
        place(&rules, "/Music/Other/1", &flash(1_000), &world),
        Choice::Place(DISK),
        "not for other directories"
    );
}

#[test]
fn a_file_of_a_directory_whose_member_is_full_goes_elsewhere_or_nowhere() {
    let world = World::default().with("/Music/Album", FLASH, 5, 1);
    let full_flash = [ROOMY, FULL, ROOMY, ROOMY];
    let answer = |full| place(&kept_together(full), "/Music/Album/2", &full_flash, &world);
    assert_eq!(answer(TogetherFull::Spill), Choice::Place(DISK));
    assert_eq!(answer(TogetherFull::NoRoom), Choice::NoRoom);
    let next = |full| {
        let rules = kept_together(full);
        rules.next_choice(&new_file("/Music/Album/2"), &[ROOMY; 4], &[FLASH], ByteSize(1), &world)
    };
    assert_eq!(next(TogetherFull::Spill), Some(DISK), "a writer found it full");
    assert_eq!(next(TogetherFull::NoRoom), None);
}

#[test]
fn nothing_is_moved_between_the_members_of_a_group() {
    let rules = kept_together(TogetherFull::Spill);
    let world = World::default().with("/Music/Album", FLASH, 500, 9);
    for home in [DISK, FLASH, CRYPT] {
        let decided = rules.decide(&file("/Music/Album/2"), &[free(1), ROOMY, ROOMY, ROOMY], Some(&on(home)), &world);
        assert_eq!(decided.choice, Choice::Stay);
    }
    let from_outside = rules.decide(&file("/Music/Album/2"), &[ROOMY; 4], Some(&on(SPARE)), &world);
    assert_eq!(from_outside.choice, Choice::Place(FLASH), "it joins its directory");
    assert!(rules.is_as_good(from_outside, CRYPT) && !rules.is_as_good(from_outside, SPARE));
}

#[test]
fn preference_is_between_the_entries_of_a_list() {
    let rules = vec![when("all", vec![], to(&["flash", "hdds"]))];
    let groups = vec![group("hdds", &["disk", "crypt"])];
    let rules =
        Rules::compile(&RulesSpec { rules, default: Vec::new(), groups, evicts: Vec::new() }, &names()).unwrap();
    let flash_full = [free(5_000), FULL, free(6_000), ROOMY];
    assert_eq!(choice(&rules, &file("/x"), &flash_full, None), Choice::Place(CRYPT));
    assert_eq!(choice(&rules, &file("/x"), &flash_full, Some(DISK)), Choice::Stay);
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY; 4], Some(CRYPT)), Choice::Place(FLASH));
    assert_eq!(choice(&rules, &file("/x"), &[ROOMY, DRAINING, ROOMY, ROOMY], Some(DISK)), Choice::Stay);
}

#[test]
fn members_are_named_matched_taken_from_groups_and_left_out() {
    let members = |branches: &[&str]| {
        let groups = vec![group("g", branches), group("metal", &["disk", "spare"])];
        try_grouped(groups, &["any"]).unwrap().groups()[0].members.clone()
    };
    assert_eq!(members(&["spare", "disk"]), [SPARE, DISK], "in the order in which they are written");
    assert_eq!(members(&["*s*"]), [DISK, FLASH, SPARE]);
    assert_eq!(members(&["crypt", "*"]), [CRYPT, DISK, FLASH, SPARE]);
    assert_eq!(members(&["metal", "flash", "spare"]), [DISK, SPARE, FLASH]);
    assert_eq!(members(&["*", "!disk"]), [FLASH, CRYPT, SPARE]);
    assert_eq!(members(&["!metal", "*", "!fl*"]), [CRYPT]);
}

#[test]
fn a_group_that_cannot_be_is_an_error() {
    let wrong = |groups: Vec<GroupSpec>| try_grouped(groups, &["any"]).unwrap_err();
    let g = || "g".to_owned();
    let item = |item: &str| item.to_owned();
    let known = vec![item("disk"), item("flash"), item("crypt"), item("spare")];
    let unknown = RuleError::UnknownMember { group: g(), item: item("dsik"), known: known.clone() };
    assert_eq!(wrong(vec![group("g", &["dsik"])]), unknown);
    let nothing = RuleError::MatchesNothing { group: g(), item: item("hdd*"), known };
    assert!(nothing.to_string().ends_with("(known here: \"disk\", \"flash\", \"crypt\", \"spare\")"), "{nothing}");
    assert_eq!(wrong(vec![group("g", &["hdd*"])]), nothing);
    assert_eq!(
        wrong(vec![group("g", &["disk", "!flash"])]),
        RuleError::LeavesNothingOut { group: g(), item: item("!flash") }
    );
    assert_eq!(wrong(vec![group("g", &[])]), RuleError::EmptyGroup { group: g() });
    assert_eq!(wrong(vec![group("g", &["disk", "!disk"])]), RuleError::EmptyGroup { group: g() });
    assert_eq!(wrong(vec![group("g", &["g"])]), RuleError::GroupInItself { group: g(), item: g() });
    assert_eq!(
        wrong(vec![group("g", &["h"]), group("h", &["disk", "g"])]),
        RuleError::GroupInItself { group: g(), item: item("h") }
    );
    assert_eq!(wrong(vec![group("disk", &["flash"])]), RuleError::NameTaken { group: item("disk") });
    assert_eq!(wrong(vec![group("any", &["flash"])]), RuleError::ReservedName { name: item("any") });
    assert!(matches!(wrong(vec![group("g", &["d[isk"])]), RuleError::BadMembers { .. }));
    let together = GroupSpec { together: owned(&["/TV/"]), ..group("g", &["disk"]) };
    assert!(matches!(wrong(vec![together]), RuleError::BadTogether { .. }));
    let both = Rules::compile_groups(&[group("g", &["x"]), group("h", &["y"])], &names()).unwrap_err();
    assert_eq!(both.len(), 2, "every mistake is reported");
}

#[test]
fn conditions_look_at_a_group_as_a_whole() {
    let free_of_group = |of, is, value| space("all", of, is, Amount::Bytes(ByteSize(value)));
    let holds = |condition, branches: &[BranchView]| {
        let rules = vec![when("it", vec![condition], to(&["spare"]))];
        let groups = vec![group("other", &["spare"]), group("all", &["disk", "flash"])];
        let rules =
            Rules::compile(&RulesSpec { rules, default: Vec::new(), groups, evicts: Vec::new() }, &names()).unwrap();
        entry(&rules, &file("/x"), branches) == "it"
    };
    let views = [free(300), free(400), ROOMY, ROOMY];
    assert!(holds(free_of_group(SpaceField::Free, Comparison::Equal, 700), &views));
    assert!(holds(free_of_group(SpaceField::Used, Comparison::Equal, 2_000_000 - 700), &views));
    let one_away = [OFFLINE, free(400), ROOMY, ROOMY];
    assert!(holds(free_of_group(SpaceField::Free, Comparison::Equal, 400), &one_away), "of those that can be asked");
    assert!(holds(online("all", true), &one_away), "any member");
    assert!(!holds(online("all", false), &one_away));
    let all_away = [OFFLINE, OFFLINE, ROOMY, ROOMY];
    assert!(holds(online("all", false), &all_away));
    assert!(!holds(free_of_group(SpaceField::Free, Comparison::Less, 1), &all_away), "nothing is known");
}

#[test]
fn a_file_may_move_between_what_its_own_list_calls_equal() {
    let groups = || vec![group("fast", &["flash", "crypt"]), group("all", &["disk", "flash", "spare"])];
    let compile = |to: &[&str]| {
        let rules = vec![when("r", vec![path(PathPart::Name, &["*.avi"])], super::to(to))];
        let spec = RulesSpec { rules, default: owned(&["disk", "spare"]), groups: groups(), evicts: Vec::new() };
        Rules::compile(&spec, &names()).unwrap()
    };
    let equals = |to: &[&str], path: &'static str, resident: Resident| {
        compile(to).equals(&file(path), &[ROOMY; 4], &resident, &Empty)
    };
    assert_eq!(equals(&["fast", "all"], "/x.avi", on(FLASH)), [FLASH, CRYPT], "the first entry that has it");
    assert_eq!(equals(&["fast", "all"], "/x.avi", on(DISK)), [], "it belongs elsewhere");
    assert_eq!(equals(&["flash", "crypt"], "/x.avi", on(FLASH)), [FLASH], "a list is an order of preference");
    assert_eq!(equals(&["fast"], "/x", on(DISK)), [DISK, SPARE], "the default list is none");
    let held = Resident { since: Some(file("/x").now), min_stay: Duration::from_secs(60), ..on(FLASH) };
    assert_eq!(equals(&["fast"], "/x.avi", held), []);
}

#[test]
fn a_choice_in_a_group_is_explained() {
    let rules = kept_together(TogetherFull::Spill);
    let world = World::default().with("/Music/Album", FLASH, 5, 1);
    let why = |path: &'static str, branches: &[BranchView]| rules.explain(&new_file(path), branches, None, &world).why;
    assert_eq!(
        why("/Music/Album/2", &[ROOMY; 4]),
        "\"flash\" of \"all\" holds most of /Music/Album, which is kept together"
    );
    assert_eq!(why("/Music/Other/2", &[ROOMY; 4]), "\"disk\" of \"all\" has most free space");
    let strict = kept_together(TogetherFull::NoRoom);
    let full_flash = [ROOMY, FULL, ROOMY, ROOMY];
    assert_eq!(
        strict.explain(&new_file("/Music/Album/2"), &full_flash, None, &world).why,
        "\"flash\" of \"all\" holds most of its directory and is full, and the file may be nowhere else (together_spill = false)"
    );
}
