//! Fill levels: when they begin and end, what leaves, and where it goes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::model::{GROUPS, asks_for_space, specs};
use super::*;
use crate::placement::spec::{EvictOrder, EvictSpec, Spread};

const fn percent(share: u32) -> Amount {
    Amount::MilliPercent(share * 1000)
}

fn evict(of: &str, above: u32, until: u32) -> EvictSpec {
    EvictSpec::new(of, percent(above), percent(until))
}

fn with(rules: Vec<RuleSpec>, evicts: Vec<EvictSpec>) -> Rules {
    let groups = vec![group("disks", &["disk", "spare"])];
    Rules::compile(&RulesSpec { rules, default: owned(&["disks"]), groups, evicts }, &names()).unwrap()
}

/// `flash` first, then one of the disks.
fn flash_first() -> RuleSpec {
    when("flash first", vec![path(PathPart::Path, &["/new/**"])], to(&["flash", "disks"]))
}

fn leaving(rules: &Rules, facts: &FileFacts<'_>, views: &[BranchView], resident: &Resident) -> Leaving {
    rules.leaving((&rules.evicts()[0], Urgency::Level), facts, views, resident, &Empty)
}

fn used(share: u64) -> BranchView {
    free(1_000_000 - share * 10_000)
}

#[test]
fn it_begins_above_its_high_mark_and_ends_at_its_low_mark() {
    let rules = with(vec![], vec![evict("flash", 80, 70)]);
    let evict = &rules.evicts()[0];
    let level = |share| evict.level(&[ROOMY, used(share), ROOMY, ROOMY]).unwrap();
    assert_eq!(evict.begins(level(80), true), None);
    assert_eq!(evict.begins(level(81), true), Some(Urgency::Level));
    assert_eq!(evict.begins(level(81), false), None, "outside of its hours");
    assert_eq!(evict.excess(level(81)), ByteSize(110_000));
    assert_eq!(evict.excess(level(70)), ByteSize(0));
}

#[test]
fn below_min_free_it_begins_at_any_hour_and_frees_what_is_missing() {
    let rules = with(vec![], vec![evict("flash", 95, 90)]);
    let evict = &rules.evicts()[0];
    let short = BranchView { min_free: ByteSize(200_000), ..used(85) };
    let level = evict.level(&[ROOMY, short, ROOMY, ROOMY]).unwrap();
    assert_eq!(evict.begins(level, false), Some(Urgency::Short));
    assert_eq!(evict.excess(level), ByteSize(50_000));
}

#[test]
fn the_level_of_a_group_is_that_of_all_members_together() {
    let rules = with(vec![], vec![evict("disks", 80, 70)]);
    let evict = &rules.evicts()[0];
    let level = |a, b| evict.level(&[used(a), ROOMY, ROOMY, used(b)]).unwrap();
    assert_eq!(evict.begins(level(95, 60), true), None);
    assert_eq!(evict.excess(level(95, 75)), ByteSize(300_000));
}

#[test]
fn a_group_with_a_member_offline_goes_by_the_others() {
    let rules = with(vec![flash_first()], vec![evict("disks", 80, 70)]);
    let evict = &rules.evicts()[0];
    let level = evict.level(&[used(95), ROOMY, ROOMY, OFFLINE]).unwrap();
    assert_eq!((level.total, level.used), (ByteSize(1_000_000), ByteSize(950_000)));
    assert_eq!(evict.excess(level), ByteSize(250_000));
    assert_eq!(evict.level(&[OFFLINE, ROOMY, ROOMY, OFFLINE]), None, "nothing is known of any");
    let mut views = [used(60), ROOMY, ROOMY, OFFLINE];
    rules.limit_arrivals(&mut views);
    assert_eq!(views[0].free.0 - views[0].min_free.0, 100_000, "so much comes until the low mark");
}

#[test]
fn explain_names_the_low_mark_that_keeps_a_file_out() {
    let rules = with(vec![flash_first()], vec![evict("flash", 80, 70)]);
    let why = |share, resident: Option<BranchId>| {
        let views = [ROOMY, used(share), ROOMY, ROOMY];
        rules.explain(&file("/new/a"), &views, resident.map(on).as_ref(), &Empty).why
    };
    assert_eq!(
        why(70, Some(DISK)),
        "\"flash\" takes files from elsewhere only until 70% of \"flash\" are used (evict): 0 B left, 1000 B needed; \
         it is on \"disk\" of \"disks\""
    );
    assert_eq!(why(70, None), "\"flash\" has room (292.9 KiB free)", "a new file comes up to min_free");
    let full = why(100, Some(DISK));
    assert!(full.starts_with("\"flash\" has no room (0 B free"), "{full}");
}

#[test]
fn a_file_leaves_for_what_follows_in_its_own_list() {
    let rules = with(vec![flash_first()], vec![evict("flash", 80, 70)]);
    let views = [ROOMY, used(90), ROOMY, used(10)];
    assert_eq!(leaving(&rules, &file("/new/a"), &views, &on(FLASH)), Leaving::To(SPARE));
    let full = [FULL, used(90), ROOMY, FULL];
    assert_eq!(leaving(&rules, &file("/new/a"), &full, &on(FLASH)), Leaving::NoRoom);
}

#[test]
fn a_file_whose_list_names_nothing_else_may_not_leave() {
    let only = when("secrets", vec![path(PathPart::Path, &["/secret/**"])], to(&["flash"]));
    let rules = with(vec![only], vec![EvictSpec { to: owned(&["disks"]), ..evict("flash", 80, 70) }]);
    let views = [ROOMY, used(90), ROOMY, ROOMY];
    assert_eq!(leaving(&rules, &file("/secret/a"), &views, &on(FLASH)), Leaving::Nowhere);
}

#[test]
fn a_file_that_only_a_hysteresis_holds_leaves_for_no_branch_where_it_does_not() {
    let large = size_with_hysteresis(Comparison::GreaterOrEqual, 5, 1);
    let rules = |list: &[&str]| {
        let spec = RulesSpec {
            rules: vec![when("large", vec![large.clone()], to(list))],
            default: owned(&["flash"]),
            evicts: vec![evict("flash", 0, 0)],
            ..RulesSpec::default()
        };
        Rules::compile(&spec, &names()).unwrap()
    };
    let leaves = |list, bytes| leaving(&rules(list), &sized(bytes), &[ROOMY, used(90), ROOMY, ROOMY], &on(FLASH));
    assert_eq!(leaves(&["flash", "any"], 5), Leaving::To(DISK));
    assert_eq!(leaves(&["flash", "any"], 4), Leaving::Nowhere, "on another branch the default list counts");
    assert_eq!(leaves(&["flash", "spare"], 4), Leaving::To(SPARE), "there the hysteresis holds it too");
}

#[test]
fn to_orders_and_narrows_what_the_list_allows() {
    let wide = when("wide", vec![], to(&["flash", "crypt", "disks"]));
    let evict = EvictSpec { to: owned(&["spare", "disk"]), ..evict("flash", 80, 70) };
    let rules = with(vec![wide], vec![evict]);
    let views = [ROOMY, used(90), ROOMY, ROOMY];
    assert_eq!(leaving(&rules, &file("/a"), &views, &on(FLASH)), Leaving::To(SPARE));
    assert_eq!(leaving(&rules, &file("/a"), &[ROOMY, used(90), ROOMY, FULL], &on(FLASH)), Leaving::To(DISK));
    assert_eq!(
        leaving(&rules, &file("/a"), &[FULL, used(90), ROOMY, FULL], &on(FLASH)),
        Leaving::NoRoom,
        "not to crypt"
    );
}

#[test]
fn min_stay_holds_a_file_unless_there_is_less_than_min_free() {
    let rules = with(vec![flash_first()], vec![evict("flash", 80, 70)]);
    let views = [ROOMY, used(90), ROOMY, ROOMY];
    let came = Resident { since: Some(at(1_086_399)), min_stay: Duration::from_secs(3600), ..on(FLASH) };
    assert_eq!(leaving(&rules, &file("/new/a"), &views, &came), Leaving::Held);
    let urgent = (&rules.evicts()[0], Urgency::Short);
    assert!(matches!(rules.leaving(urgent, &file("/new/a"), &views, &came, &Empty), Leaving::To(_)));
}

#[test]
fn the_stay_that_a_rule_wants_holds_a_file_too() {
    let stay = Treatment { min_stay: Some(Duration::from_secs(3600)), ..Treatment::default() };
    let rules = with(vec![RuleSpec { treatment: stay, ..flash_first() }], vec![evict("flash", 80, 70)]);
    let views = [ROOMY, used(90), ROOMY, ROOMY];
    let came = Resident { since: Some(at(1_086_399)), ..on(FLASH) };
    assert_eq!(leaving(&rules, &file("/new/a"), &views, &came), Leaving::Held);
    assert_eq!(rules.equals(&file("/new/a"), &views, &came, &Empty), []);
}

#[test]
fn only_and_min_age_select_the_files_that_it_evicts() {
    let spec = EvictSpec {
        only: vec![path(PathPart::Path, &["/new/**"])],
        min_age: Duration::from_secs(86_400),
        ..evict("flash", 80, 70)
    };
    let rules = with(vec![flash_first()], vec![spec]);
    let speaks = |facts: &FileFacts<'_>| rules.is_evictable(&rules.evicts()[0], facts, &[ROOMY; 4]);
    assert!(speaks(&file("/new/a")) && !speaks(&file("/old/a")));
    assert!(!speaks(&FileFacts { mtime: at(1_000_001), ..file("/new/a") }), "a second too young");
}

#[test]
fn each_order_evicts_its_own_first_file() {
    let young = FileFacts { mtime: at(9), atime: at(1), size: ByteSize(5), ..file("/young") };
    let old = FileFacts { mtime: at(3), atime: at(2), size: ByteSize(4), ..file("/old") };
    let first = |order| {
        let rules = with(vec![], vec![EvictSpec { order, ..evict("flash", 80, 70) }]);
        let key = |facts| rules.evicts()[0].key(facts);
        if key(&young) < key(&old) { "young" } else { "old" }
    };
    assert_eq!(first(EvictOrder::Oldest), "old");
    assert_eq!(first(EvictOrder::LeastRecentlyUsed), "young");
    assert_eq!(first(EvictOrder::Largest), "young");
}

#[test]
fn the_coldest_leaves_first_and_among_those_the_oldest() {
    let rules = with(vec![], vec![EvictSpec { order: EvictOrder::Coldest, ..evict("flash", 80, 70) }]);
    let key = |heat: u64, mtime: i64| {
        rules.evicts()[0].key(&FileFacts { heat: Opens(heat), mtime: super::at(mtime), ..file("/x") })
    };
    assert!(rules.asked().heat);
    assert!(key(1, 3) < key(2, i64::MIN) && key(0, i64::MAX) < key(1, 3), "heat before age");
    assert!(key(1, 3) < key(1, 4), "of those that are as cold, the oldest");
    assert!(key(u64::MAX, 0) > key(Opens::MAX.0 - 1, i64::MAX));
}

/// Warm files come to `flash`.
fn warm(list: &[&str]) -> RuleSpec {
    let heat = Condition::Heat { is: Comparison::Greater, value: Opens(5), hysteresis: Opens(2) };
    when("warm", vec![heat], to(list))
}

fn heated(heat: u64) -> FileFacts<'static> {
    let bytes = ByteSize(60_000);
    FileFacts { heat: Opens(heat), size: bytes, occupied: bytes, ..file("/a") }
}

#[test]
fn a_file_that_heats_up_returns_also_after_a_fill_level_moved_it() {
    let rules = with(vec![warm(&["flash", "disks"])], vec![evict("flash", 80, 70)]);
    let views = [ROOMY, used(10), ROOMY, ROOMY];
    let there = Resident { is_evicted: true, is_opened: true, ..on(DISK) };
    let decide = |heat, resident: &Resident| rules.decide(&heated(heat), &views, Some(resident), &Empty).choice;
    assert_eq!(decide(5, &there), Choice::Stay);
    assert_eq!(decide(6, &there), Choice::Place(FLASH));
    assert_eq!(decide(4, &on(FLASH)), Choice::Stay, "within the hysteresis");
    assert!(matches!(decide(3, &on(FLASH)), Choice::Place(DISK | SPARE)), "beyond it");
    let held = Resident { since: Some(at(1_086_399)), min_stay: Duration::from_secs(3600), ..there };
    assert_eq!(decide(6, &held), Choice::Stay, "min_stay holds it");
    let unopened = Resident { is_opened: false, ..there };
    assert_eq!(decide(6, &unopened), Choice::Stay, "it was warm before it left");
    let why = rules.explain(&heated(6), &views, Some(&unopened), &Empty).why;
    assert!(why.ends_with("stays until it changes or is opened"), "{why}");
    assert_eq!(rules.warm_from(), Some(Opens(5)));
}

#[test]
fn a_file_that_heats_up_comes_only_up_to_the_low_mark() {
    for list in [&["flash", "disks"][..], &["flash"]] {
        let rules = with(vec![warm(list)], vec![evict("flash", 80, 70)]);
        let at_level = |share| choice(&rules, &heated(6), &[ROOMY, used(share), ROOMY, ROOMY], Some(DISK));
        assert_eq!(at_level(60), Choice::Place(FLASH));
        assert_ne!(at_level(65), Choice::Place(FLASH), "it would pass the low mark");
    }
}

#[test]
fn a_rule_that_wants_cold_files_fetches_nothing_back() {
    let cold = Condition::Heat { is: Comparison::Less, value: Opens(2), hysteresis: Opens(0) };
    let rules = with(vec![when("cold", vec![cold], to(&["flash", "disks"]))], vec![evict("flash", 80, 70)]);
    let there = Resident { is_evicted: true, ..on(DISK) };
    let views = [ROOMY, used(10), ROOMY, ROOMY];
    assert_eq!(rules.decide(&heated(1), &views, Some(&there), &Empty).choice, Choice::Stay);
    assert_eq!(rules.warm_from(), None);
}

#[test]
fn what_is_kept_together_stops_at_the_low_mark_too() {
    let together = GroupSpec { together: owned(&["/*"]), ..group("disks", &["disk", "spare"]) };
    let spec = RulesSpec {
        rules: vec![flash_first()],
        default: owned(&["disks"]),
        groups: vec![together],
        evicts: vec![evict("flash", 80, 70), evict("disk", 80, 70)],
    };
    let rules = Rules::compile(&spec, &names()).unwrap();
    let level = (&rules.evicts()[0], Urgency::Level);
    let on_disk = groups::World::default().with("/new", DISK, 0, 1);
    let target = |share| {
        let views = [used(share), used(90), ROOMY, ROOMY];
        rules.leaving(level, &file("/new/a"), &views, &on(FLASH), &on_disk)
    };
    assert_eq!(target(60), Leaving::To(DISK), "it holds the directory");
    assert_eq!(target(75), Leaving::To(SPARE), "it is above its low mark");
}

#[test]
fn what_a_fill_level_moved_stays_until_it_changes() {
    let rules = with(vec![flash_first()], vec![evict("flash", 80, 70)]);
    let views = [ROOMY, used(10), ROOMY, ROOMY];
    let there = Resident { is_evicted: true, ..on(DISK) };
    let decide = |resident: &Resident| rules.decide(&file("/new/a"), &views, Some(resident), &Empty).choice;
    assert_eq!(decide(&there), Choice::Stay);
    assert_eq!(decide(&on(DISK)), Choice::Place(FLASH), "changed since");
    let why = rules.explain(&file("/new/a"), &views, Some(&there), &Empty).why;
    assert!(why.contains("too full (evict)"), "{why}");
    let elsewhere = Resident { is_evicted: true, ..on(CRYPT) };
    assert_eq!(decide(&elsewhere), Choice::Place(FLASH), "its list does not name where it is");
}

#[test]
fn a_rule_brings_files_to_a_branch_only_up_to_its_low_mark() {
    let rules = with(vec![flash_first()], vec![evict("flash", 80, 70)]);
    let at_level =
        |share, facts: &FileFacts<'_>| choice(&rules, facts, &[ROOMY, used(share), ROOMY, ROOMY], Some(DISK));
    let large = FileFacts { size: ByteSize(60_000), occupied: ByteSize(60_000), ..file("/new/a") };
    assert_eq!(at_level(60, &large), Choice::Place(FLASH));
    assert_eq!(at_level(65, &large), Choice::Stay, "it would pass the low mark");
    let created = rules.decide(&new_file("/new/b"), &[ROOMY, used(79), ROOMY, ROOMY], None, &Empty).choice;
    assert_eq!(created, Choice::Place(FLASH), "new files come up to min_free");
    assert_eq!(
        choice(&rules, &large, &[ROOMY, used(75), ROOMY, ROOMY], Some(CRYPT)),
        Choice::Place(FLASH),
        "misplaced"
    );
}

#[test]
fn what_contradicts_itself_is_refused() {
    let refused = |spec: EvictSpec| {
        let groups = vec![group("disks", &["disk", "spare"])];
        Rules::compile(&RulesSpec { evicts: vec![spec], groups, ..RulesSpec::default() }, &names()).err()
    };
    assert!(matches!(refused(evict("flash", 70, 80)), Some(RuleError::EvictMarks { .. })));
    assert!(matches!(refused(evict("flash", 101, 80)), Some(RuleError::EvictMarks { .. })));
    let mixed = EvictSpec::new("flash", percent(80), Amount::Bytes(ByteSize(1)));
    assert!(matches!(refused(mixed), Some(RuleError::EvictMarks { .. })));
    let itself = |of, to: &[&str]| refused(EvictSpec { to: owned(to), ..evict(of, 80, 70) });
    assert!(matches!(itself("flash", &["flash"]), Some(RuleError::EvictToItself { .. })));
    assert!(matches!(itself("disks", &["spare"]), Some(RuleError::EvictToItself { .. })));
    assert!(matches!(itself("disk", &["nowhere"]), Some(RuleError::UnknownBranch { .. })));
    assert_eq!(itself("disk", &["disks"]), None, "a group with other members");
    assert_eq!(refused(evict("flash", 0, 0)), None, "all leaves");
}

proptest! {
    #[test]
    fn a_selection_frees_no_more_than_needed_by_more_than_one_file(
        sizes in prop::collection::vec((0i128..50, 0u64..100), 0..60), need in 0u64..2000, most in 1usize..40
    ) {
        let mut selection = Selection::new(ByteSize(need), most);
        for (index, (key, frees)) in sizes.iter().enumerate() {
            selection.offer(*key, ByteSize(*frees), index);
        }
        let total = selection.frees().0;
        let chosen: Vec<usize> = selection.into_sorted().collect();
        prop_assert!(chosen.len() <= most);
        prop_assert_eq!(chosen.iter().map(|at| sizes[*at].1).sum::<u64>(), total);
        // The best, in order, and only as many as it takes.
        let mut sorted: Vec<usize> = (0..sizes.len()).collect();
        sorted.sort_by_key(|at| (sizes[*at].0, *at));
        prop_assert!(chosen.iter().zip(&sorted).all(|(chosen, best)| chosen == best), "{chosen:?} of {sorted:?}");
        if let Some(last) = chosen.last() {
            prop_assert!(total - sizes[*last].1 < need.max(1), "the last was not needed");
        }
        prop_assert!(total >= need || chosen.len() == most || chosen.len() == sizes.len(), "more was there");
    }
}

/// A pool in a model: files with sizes on branches, moved by what the rules and the fill levels say.
struct World {
    rules: Rules,
    /// Branch, bytes, whether a fill level moved it.
    files: Vec<(BranchId, u64, bool)>,
    /// By file.
    heats: Vec<u64>,
    /// By file: opened since a fill level moved it.
    opened: Vec<bool>,
    sizes: [u64; 4],
    moves: BTreeMap<usize, Moves>,
    /// Heat changes, and with it what rules say.
    cools: bool,
    /// By group, its member that got a file last.
    last_used: RefCell<BTreeMap<usize, BranchId>>,
    drawn: Cell<u64>,
}

/// How often a file moved, and by what.
#[derive(Debug, Clone, Copy, Default)]
struct Moves {
    by_rules: u32,
    by_levels: u32,
}

impl Moves {
    fn all(self) -> u32 {
        self.by_rules + self.by_levels
    }
}

impl World {
    /// Files as branch, bytes and heat, none of which was moved yet.
    fn new(rules: Rules, files: Vec<(u16, u64, u64)>, sizes: [u64; 4]) -> World {
        let heats = files.iter().map(|file| file.2).collect();
        let opened = vec![false; files.len()];
        let files = files.into_iter().map(|(branch, bytes, _)| (BranchId(branch), bytes, false)).collect();
        let (last_used, drawn) = (RefCell::default(), Cell::new(0));
        World { rules, files, heats, opened, sizes, moves: BTreeMap::new(), cools: false, last_used, drawn }
    }

    fn views(&self) -> Vec<BranchView> {
        let used = |id: u16| self.files.iter().filter(|file| file.0 == BranchId(id)).map(|file| file.1).sum::<u64>();
        let view = |(id, total): (u16, &u64)| BranchView {
            total: ByteSize(*total),
            free: ByteSize(total.saturating_sub(used(id))),
            ..ROOMY
        };
        (0u16..).zip(&self.sizes).map(view).collect()
    }

    fn facts<'p>(&self, at: usize, path: &'p str) -> FileFacts<'p> {
        let bytes = ByteSize(self.files[at].1);
        let heat = Opens(self.heats[at]);
        FileFacts { size: bytes, occupied: bytes, heat, mtime: super::at(at as i64), ..file(path) }
    }

    fn resident(&self, at: usize) -> Resident {
        let (branch, _, is_evicted) = self.files[at];
        Resident { is_evicted, is_opened: self.opened[at], ..on(branch) }
    }

    fn go(&mut self, at: usize, to: BranchId, is_evicted: bool) {
        let (from, bytes, was_evicted) = self.files[at];
        assert_ne!(from, to);
        // Another fill level may send it on.
        assert!(
            !was_evicted || is_evicted || self.opened[at] || self.cools,
            "{} left {from} for {to} after a fill level had moved it",
            path_of(at)
        );
        self.files[at] = (to, bytes, is_evicted);
        self.opened[at] &= !is_evicted;
        let moves = self.moves.entry(at).or_default();
        *(if is_evicted { &mut moves.by_levels } else { &mut moves.by_rules }) += 1;
        for (index, group) in self.rules.groups().iter().enumerate() {
            if group.members.contains(&to) {
                self.last_used.borrow_mut().insert(index, to);
            }
        }
    }

    /// One walk of the enforcer.
    fn enforce(&mut self) {
        for at in 0..self.files.len() {
            let path = path_of(at);
            let decision = self.rules.decide(&self.facts(at, &path), &self.views(), Some(&self.resident(at)), &*self);
            if let Choice::Place(to) = decision.choice {
                self.go(at, to, false);
            }
        }
    }

    /// Each fill level once, file by file, until it ends.
    fn evict(&mut self) {
        for index in 0..self.rules.evicts().len() {
            let evict = self.rules.evicts()[index].clone();
            let Some(level) = evict.level(&self.views()) else { continue };
            if evict.begins(level, true).is_none() {
                continue;
            }
            let mut order: Vec<usize> = (0..self.files.len()).collect();
            order.sort_by_key(|at| evict.key(&self.facts(*at, &path_of(*at))));
            for at in order {
                let views = self.views();
                let excess = evict.level(&views).map(|level| evict.excess(level));
                if excess.is_none_or(|excess| excess.0 == 0) {
                    break;
                }
                let (path, resident) = (path_of(at), self.resident(at));
                if !evict.members.contains(&resident.branch) {
                    continue;
                }
                let facts = self.facts(at, &path);
                let leaving = self.rules.leaving((&evict, Urgency::Level), &facts, &views, &resident, &*self);
                if let Leaving::To(to) = leaving {
                    self.go(at, to, true);
                }
            }
        }
    }
}

impl World {
    /// The most moves of one file.
    fn most(&self, count: fn(Moves) -> u32) -> u32 {
        self.moves.values().map(|moves| count(*moves)).max().unwrap_or(0)
    }

    /// Each move of a file had a reason of its own: an entry of a list, which may be full at first and have room later,
    /// or a fill level. One move by a rule and one by a fill level are not enough. A file whose first entry is full
    /// goes to the next, and to the first when others have left that. Where one fill level sent it, it may be in the
    /// way of another.
    fn moved_no_more_than_needed(&self) -> Result<(), TestCaseError> {
        let longest = self.rules.entries().iter().map(|entry| entry.to.len()).max().unwrap_or(0) as u32;
        let (by_rules, by_levels) = (self.most(|moves| moves.by_rules), self.most(|moves| moves.by_levels));
        prop_assert!(by_rules <= longest, "{} moves of one file by lists of {} entries", by_rules, longest);
        let levels = self.rules.evicts().len() as u32;
        prop_assert!(by_levels <= levels, "{} moves of one file by {} fill levels", by_levels, levels);
        Ok(())
    }

    /// Walks and fill levels until nothing moves.
    fn rest(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..30 {
            let before = self.files.clone();
            self.enforce();
            self.evict();
            if before == self.files {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("files never come to rest"))
    }
}

/// What is where in this world.
impl Surroundings for World {
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool {
        self.usage_below(dir, branch) > DirUsage::default()
    }

    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        let is_below = |path: &[u8]| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"));
        let here = self.files.iter().enumerate().filter(|(_, file)| file.0 == branch);
        let below = here.filter(|(at, _)| is_below(path_of(*at).as_bytes()));
        below.fold(DirUsage::default(), |held, (_, file)| DirUsage {
            bytes: ByteSize(held.bytes.0 + file.1),
            files: held.files + 1,
        })
    }

    fn last_used(&self, group: usize) -> Option<BranchId> {
        self.last_used.borrow().get(&group).copied()
    }

    fn random_number(&self) -> u64 {
        self.drawn
            .set(self.drawn.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        self.drawn.get()
    }
}

fn path_of(at: usize) -> String {
    format!("/{}/{at}", ["a", "b", "c"][at % 3])
}

fn some_list() -> impl Strategy<Value = Vec<&'static str>> {
    let names = ["disk", "flash", "crypt", "spare", "g", "h"];
    Just(names.to_vec())
        .prop_shuffle()
        .prop_flat_map(|names| (1..4usize).prop_map(move |count| names[..count].to_vec()))
}

fn some_heat() -> impl Strategy<Value = Condition> {
    let is = prop::sample::select(vec![Comparison::Less, Comparison::Greater, Comparison::GreaterOrEqual]);
    (is, 0u64..10, 0u64..4).prop_map(|(is, value, hysteresis)| Condition::Heat {
        is,
        value: Opens(value),
        hysteresis: Opens(hysteresis),
    })
}

fn some_rules() -> impl Strategy<Value = RulesSpec> {
    let rule = |dir: &'static str| {
        (some_list(), prop::option::of(some_heat())).prop_map(move |(list, heat)| {
            let path = path(PathPart::Path, &[&format!("/{dir}/**")]);
            when(dir, [path].into_iter().chain(heat).collect(), to(&list))
        })
    };
    let evict = (
        prop::sample::select(vec!["disk", "flash", "crypt", "spare", "g"]),
        0u32..100,
        0u32..100,
        prop::option::of(some_list()),
        any::<bool>(),
    )
        .prop_map(|(of, one, other, to, coldest)| {
            let spec = super::evict::evict(of, one.max(other), one.min(other));
            let order = if coldest { EvictOrder::Coldest } else { EvictOrder::Oldest };
            EvictSpec { to: to.map(|to| owned(&to)).unwrap_or_default(), order, ..spec }
        });
    let evicts = prop::collection::vec(evict, 0..4);
    let members = prop::sample::subsequence(NAMES.to_vec(), 1..4);
    (rule("a"), rule("b"), some_list(), members.clone(), members, evicts).prop_map(|(a, b, default, g, h, evicts)| {
        let in_order = Spread { order: spec::SpreadOrder::MostFree, ..Spread::default() };
        let groups =
            vec![GroupSpec { spread: in_order, ..group("g", &g) }, GroupSpec { spread: in_order, ..group("h", &h) }];
        RulesSpec { rules: vec![a, b], default: owned(&default), groups, evicts }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// A rule moves a file to an entry with room, and to the first of its list once that has room too. A fill level
    /// moves it at most once after that. Nothing undoes that, and all come to rest.
    #[test]
    fn rules_and_fill_levels_never_fight(
        spec in some_rules(),
        files in prop::collection::vec((0u16..4, 1u64..30_000, 0u64..12), 0..40),
        cooling in 1u64..5,
        sizes in prop::array::uniform4(50_000u64..400_000),
    ) {
        let Ok(rules) = Rules::compile(&spec, &names()) else { return Ok(()) };
        let mut world = World::new(rules, files, sizes);
        for _ in 0..20 {
            world.enforce();
            world.evict();
        }
        let settled = world.files.clone();
        for _ in 0..3 {
            world.evict();
            world.enforce();
        }
        prop_assert_eq!(&settled, &world.files, "they never come to rest");
        world.moved_no_more_than_needed()?;
        // All cool: each threshold may send a file on once, and then there is rest again.
        world.moves.clear();
        world.cools = true;
        for round in 0..40 {
            let all = if round < 12 { cooling } else { 0 };
            world.heats.iter_mut().for_each(|heat| *heat = heat.saturating_sub(all));
            world.enforce();
            world.evict();
        }
        let settled = world.files.clone();
        world.enforce();
        world.evict();
        prop_assert_eq!(&settled, &world.files, "they never come to rest once they are cold");
        let most = world.most(Moves::all);
        prop_assert!(most <= 6, "{most} moves of one file that cools");
    }

    /// A fill level and a rule on warm files want the same branch. A file that the level sent away is fetched by the
    /// rule only after another open of it. After each open all come to rest.
    #[test]
    fn a_warm_file_goes_to_and_fro_only_as_often_as_it_is_opened(
        spec in some_rules(),
        files in prop::collection::vec((0u16..4, 1u64..30_000, 0u64..12), 1..30),
        opens in prop::collection::vec((any::<prop::sample::Index>(), 1u64..4), 0..30),
        sizes in prop::array::uniform4(50_000u64..400_000),
    ) {
        let Ok(rules) = Rules::compile(&spec, &names()) else { return Ok(()) };
        let mut world = World::new(rules, files, sizes);
        world.rest()?;
        for (file, times) in opens {
            let at = file.index(world.files.len());
            world.heats[at] += times;
            world.opened[at] = true;
            world.rest()?;
        }
    }
}

/// Fill levels of branches and groups, whose files go anywhere or to some.
fn some_levels() -> impl Strategy<Value = Vec<EvictSpec>> {
    let all: Vec<&'static str> = [&NAMES[..], &GROUPS[..]].concat();
    let orders = vec![EvictOrder::Oldest, EvictOrder::Largest, EvictOrder::LeastRecentlyUsed, EvictOrder::Coldest];
    let level = (
        prop::sample::select(all.clone()),
        0u32..100,
        0u32..100,
        prop::option::of(prop::sample::subsequence(all, 1..4).prop_shuffle()),
        prop::sample::select(orders),
    );
    let level = level.prop_map(|(of, one, other, to, order)| {
        let to = to.map(|to| owned(&to)).unwrap_or_default();
        EvictSpec { order, to, ..evict(of, one.max(other), one.min(other)) }
    });
    prop::collection::vec(level, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    /// Any rules, groups and conditions, except conditions on space, which moves change.
    #[test]
    fn a_file_that_does_not_change_goes_up_its_list_and_leaves_for_a_fill_level(
        (spec, _) in specs(),
        evicts in some_levels(),
        files in prop::collection::vec((0u16..4, 1u64..8, 0u64..8), 0..40),
        sizes in prop::array::uniform4(15u64..100),
    ) {
        if asks_for_space(&spec) {
            return Ok(());
        }
        let Ok(rules) = Rules::compile(&RulesSpec { evicts, ..spec }, &names()) else { return Ok(()) };
        let mut world = World::new(rules, files, sizes);
        world.rest()?;
        world.moved_no_more_than_needed()?;
    }
}
