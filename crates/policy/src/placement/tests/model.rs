//! Decisions compared with the obvious ones: a model that walks the rules as they are written.

mod conditions;

use proptest::prelude::*;

use super::*;
use crate::placement::glob::naive;
use crate::placement::spec::TimeField;
use conditions::{holds, kinds};

/// A pattern of the name table: its parts, and its text in the rules.
type Pattern = Vec<naive::Part>;

#[derive(Debug, Clone)]
struct World {
    spec: RulesSpec,
    patterns: Vec<Pattern>,
    branches: Vec<BranchView>,
    files: Vec<File>,
}

#[derive(Debug, Clone)]
struct File {
    path: Vec<u8>,
    numbers: [u32; 9],
    settled: bool,
    kind: FileKind,
    home: Option<Resident>,
    xattrs: Option<Vec<Xattr>>,
}

impl File {
    fn facts(&self) -> FileFacts<'_> {
        let [size, uid, gid, mode, links, atime, mtime, ctime, btime] = self.numbers;
        FileFacts {
            path: &self.path,
            kind: self.kind,
            size: ByteSize(size.into()),
            occupied: ByteSize((size / 2).into()),
            uid,
            gid,
            mode: [0o444, 0o644, 0o755, 0o555, 0o4711][mode as usize % 5],
            links,
            atime: at(atime.into()),
            mtime: at(mtime.into()),
            ctime: at(ctime.into()),
            // The smallest number stands for one that is not known.
            btime: (btime > 0).then(|| at(btime.into())),
            now: at(6),
            stage: if self.settled { Stage::Settled } else { Stage::New },
            xattrs: self.xattrs.as_deref(),
        }
    }
}

mod naively {
    use super::*;

    pub(super) fn decide(world: &World, facts: &FileFacts<'_>, home: Option<&Resident>) -> Decision {
        let (entry, list, spill, by_band) = deciding(world, facts, home);
        if by_band && home.is_some_and(|home| world.branches[home.branch.index()].writable) {
            return Decision { entry: EntryId(entry as u32), choice: Choice::Stay };
        }
        // What only the default list decides stays on any open branch of it.
        let by_default = entry == default_entry(world);
        let stays = |home: &Resident| {
            let view = &world.branches[home.branch.index()];
            list.contains(&home.branch.index()) && view.online && view.writable
        };
        if by_default && home.is_some_and(stays) {
            return Decision { entry: EntryId(entry as u32), choice: Choice::Stay };
        }
        Decision { entry: EntryId(entry as u32), choice: choose(world, &list, spill, facts, home) }
    }

    /// The default list comes after all rules and patterns.
    fn default_entry(world: &World) -> usize {
        let entries = |rule: &RuleSpec| match &rule.kind {
            RuleKindSpec::When { .. } => 1,
            RuleKindSpec::Treat { .. } => 0,
            RuleKindSpec::Names(patterns) => patterns.len(),
        };
        world.spec.rules.iter().map(entries).sum()
    }

    /// The number of the deciding entry, its list, whether it may spill, and whether it matches by its hysteresis only.
    fn deciding(world: &World, facts: &FileFacts<'_>, home: Option<&Resident>) -> (usize, Vec<usize>, bool, bool) {
        let ids = |names: &[String]| -> Vec<usize> {
            names.iter().map(|name| NAMES.iter().position(|known| known == name).unwrap()).collect()
        };
        let mut entry = 0;
        for rule in &world.spec.rules {
            match &rule.kind {
                RuleKindSpec::When { conditions, to } => {
                    let list = ids(&to.branches);
                    let leaves = |home: &Resident| {
                        let view = &world.branches[home.branch.index()];
                        view.online && !view.writable
                    };
                    let at_home = home.is_some_and(|home| list.contains(&home.branch.index()) && !leaves(home));
                    let all = |home| conditions.iter().all(|condition| holds(condition, facts, &world.branches, home));
                    if all(at_home) && (!to.spill || world.branches[list[0]].online) {
                        return (entry, list, to.spill, !all(false));
                    }
                    entry += 1;
                }
                RuleKindSpec::Treat { .. } => {}
                RuleKindSpec::Names(entries) => {
                    let mut matching: Vec<usize> = (0..entries.len())
                        .filter(|index| naive::matches(&world.patterns[*index], facts.path))
                        .filter(|index| {
                            let to = &entries[*index].to;
                            !to.spill || world.branches[ids(&to.branches)[0]].online
                        })
                        .collect();
                    // Stable, so the earlier stays first on a tie.
                    matching.sort_by_key(|index| std::cmp::Reverse(entries[*index].glob.len()));
                    matching.sort_by_key(|index| naive::wildcards(&world.patterns[*index]));
                    matching.sort_by_key(|index| std::cmp::Reverse(naive::literals(&world.patterns[*index])));
                    if let Some(&index) = matching.first() {
                        return (entry + index, ids(&entries[index].to.branches), entries[index].to.spill, false);
                    }
                    entry += entries.len();
                }
            }
        }
        (entry, ids(&world.spec.default), true, false)
    }

    fn choose(world: &World, list: &[usize], spill: bool, facts: &FileFacts<'_>, home: Option<&Resident>) -> Choice {
        let need = if facts.stage == Stage::New { 0 } else { facts.occupied.0 };
        let room = |id: usize| {
            let view = &world.branches[id];
            view.online && view.writable && view.has_inode() && view.free.0 >= view.min_free.0 + need.max(1)
        };
        let mut at_home = None;
        if let Some(home) = home {
            let view = &world.branches[home.branch.index()];
            let lately = home.since.is_some_and(|since| since.age(facts.now) < home.min_stay);
            let may_be_there = spill || list.contains(&home.branch.index());
            if !view.online || (view.writable && lately && may_be_there) {
                return Choice::Stay;
            }
            at_home = view.writable.then_some(home.branch.index());
        }
        let place = |id: usize| Choice::Place(BranchId(id as u16));
        let listed = list.iter().copied().find(|&id| room(id) || at_home == Some(id));
        match (listed, at_home) {
            (Some(id), Some(home)) if id == home => Choice::Stay,
            (Some(id), _) => place(id),
            (None, _) if !spill => Choice::NoRoom,
            (None, Some(_)) => Choice::Stay,
            (None, None) => {
                let default = world.spec.default.iter().map(|name| resolve(name).unwrap().index());
                let mut any: Vec<usize> = (0..world.branches.len()).collect();
                any.sort_by_key(|id| std::cmp::Reverse(world.branches[*id].free));
                default.chain(any).find(|&id| room(id)).map_or(Choice::NoRoom, place)
            }
        }
    }
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::sample::subsequence(NAMES.map(str::to_owned).to_vec(), 1..=4).prop_shuffle()
}

fn destinations() -> impl Strategy<Value = DestinationSpec> {
    (names(), any::<bool>()).prop_map(|(branches, spill)| DestinationSpec { branches, spill })
}

/// Rules with one name table, in which every pattern can be read.
fn specs() -> impl Strategy<Value = (RulesSpec, Vec<Pattern>)> {
    let metadata = || prop::collection::vec((prop::collection::vec(conditions::trees(), 0..3), destinations()), 0..4);
    let readable = naive::patterns()
        .prop_filter("must be readable", |pattern| crate::placement::glob::Glob::new(&naive::text(pattern)).is_ok());
    let patterns = prop::collection::vec((readable, destinations()), 0..8);
    (metadata(), patterns, metadata(), names()).prop_map(|(before, patterns, after, default)| {
        let rule = |(index, (conditions, to))| when(&format!("rule {index}"), conditions, to);
        let mut rules: Vec<RuleSpec> = before.into_iter().enumerate().map(rule).collect();
        let (patterns, lists): (Vec<Pattern>, Vec<DestinationSpec>) = patterns.into_iter().unzip();
        let entries = patterns.iter().zip(lists).map(|(pattern, to)| NameEntrySpec { glob: naive::text(pattern), to });
        rules.push(RuleSpec { name: "names".to_owned(), kind: RuleKindSpec::Names(entries.collect()), treatment: Treatment::default() });
        rules.extend(after.into_iter().enumerate().map(rule));
        (RulesSpec { rules, default }, patterns)
    })
}

fn views() -> impl Strategy<Value = Vec<BranchView>> {
    let inodes = prop::option::of((0u64..4).prop_map(|free| Inodes { total: 4, free }));
    let view = (prop::bool::weighted(0.8), prop::bool::weighted(0.8), 0u64..8, 0u64..3, inodes).prop_map(
        |(online, writable, free, min_free, inodes)| BranchView {
            online,
            writable,
            total: ByteSize(8),
            free: ByteSize(free),
            min_free: ByteSize(min_free),
            inodes,
        },
    );
    prop::collection::vec(view, 4)
}

fn residents() -> impl Strategy<Value = Option<Resident>> {
    let resident = (0u16..4, prop::option::of(0i64..8), 0u64..4).prop_map(|(branch, since, min_stay)| Resident {
        branch: BranchId(branch),
        since: since.map(at),
        min_stay: Duration::from_secs(min_stay),
    });
    prop::option::of(resident)
}

fn files() -> impl Strategy<Value = Vec<File>> {
    let lasting = (prop::bool::weighted(0.8), kinds(), conditions::xattrs());
    let file = (naive::paths(), prop::array::uniform9(0u32..8), lasting, residents())
        .prop_map(|(path, numbers, (settled, kind, xattrs), home)| File { path, numbers, settled, kind, home, xattrs });
    prop::collection::vec(file, 1..10)
}

fn worlds() -> impl Strategy<Value = World> {
    (specs(), views(), files()).prop_map(|((spec, patterns), branches, files)| World {
        spec,
        patterns,
        branches,
        files,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn decisions_are_those_of_the_model(world in worlds()) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        for file in &world.files {
            let decision = rules.decide(&file.facts(), &world.branches, file.home.as_ref());
            prop_assert_eq!(decision, naively::decide(&world, &file.facts(), file.home.as_ref()), "{:?}", file);
        }
    }

    #[test]
    fn explained_decisions_are_the_same_and_end_with_the_deciding_rule(world in worlds()) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        for file in &world.files {
            let explained = rules.explain(&file.facts(), &world.branches, file.home.as_ref());
            prop_assert_eq!(explained.decision, rules.decide(&file.facts(), &world.branches, file.home.as_ref()));
            let (last, others) = explained.steps.split_last().unwrap();
            prop_assert!(last.matched && others.iter().all(|step| !step.matched));
            prop_assert_eq!(&last.rule, &rules.entries()[explained.decision.entry.index()].name);
            prop_assert!(explained.steps.iter().all(|step| !step.reason.is_empty()) && !explained.why.is_empty());
        }
    }

    #[test]
    fn a_read_moves_only_files_that_depend_on_access_times(world in worlds(), atime in 0u32..8) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        let asks = world.spec.rules.iter().any(|rule| matches!(&rule.kind, RuleKindSpec::When { conditions, .. }
            if Condition::leaves(conditions).iter().any(|condition| matches!(condition, Condition::Age { of: TimeField::Atime, .. }))));
        for file in &world.files {
            let decide = |facts: &FileFacts<'_>| rules.decide(facts, &world.branches, file.home.as_ref());
            let depends = rules.depends_on_access_time(&file.facts(), &world.branches, file.home.as_ref());
            let read = FileFacts { atime: at(atime.into()), ..file.facts() };
            prop_assert!(depends || decide(&file.facts()) == decide(&read), "{:?}", file);
            prop_assert!(asks || !depends, "no rule asks for access times");
        }
    }

    #[test]
    fn no_file_falls_under_a_rule_that_is_out_of_reach(world in worlds()) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        let unreachable = rules.unreachable();
        let never: Vec<&str> = unreachable.iter().filter(|one| !one.only_as_fallback).map(|one| one.rule.as_str()).collect();
        let ever: Vec<&str> = unreachable.iter().map(|one| one.rule.as_str()).collect();
        for file in &world.files {
            let entry = rules.decide(&file.facts(), &world.branches, file.home.as_ref()).entry;
            let name = rules.entries()[entry.index()].name.as_str();
            // Names may repeat in these rules; only a name that stands once is told for sure.
            if rules.entries().iter().filter(|info| info.name == name).count() == 1 {
                prop_assert!(!never.contains(&name), "{} decides, {:?}", name, unreachable);
                if world.branches.iter().all(|branch| branch.online) {
                    prop_assert!(!ever.contains(&name), "{} decides with all online, {:?}", name, unreachable);
                }
            }
        }
    }

    #[test]
    fn where_a_file_was_placed_it_stays(world in worlds()) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        for file in &world.files {
            let facts = FileFacts { stage: Stage::Settled, ..file.facts() };
            if let Choice::Place(branch) = rules.decide(&facts, &world.branches, file.home.as_ref()).choice {
                // Once there it fills the branch; conditions on space may then speak against it, sizes may not.
                if !asks_for_space(&world.spec) {
                    let mut after = world.branches.clone();
                    after[branch.index()].free.0 -= facts.occupied.0;
                    let again = rules.decide(&facts, &after, Some(&on(branch))).choice;
                    prop_assert_eq!(again, Choice::Stay, "after {:?}", branch);
                }
            }
        }
    }

    #[test]
    fn the_next_choice_is_open_has_room_and_is_not_excluded(world in worlds(), excluding in prop::collection::vec((0u16..4).prop_map(BranchId), 0..4), need in 0u64..8) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        for file in &world.files {
            let entry = rules.decide(&file.facts(), &world.branches, None).entry;
            let info = &rules.entries()[entry.index()];
            let fits = |id: &BranchId| {
                let view = &world.branches[id.index()];
                view.online && view.writable && view.has_inode() && view.free.0 >= need && !excluding.contains(id) && (info.spill || info.to.contains(id))
            };
            match rules.next_choice(&file.facts(), &world.branches, &excluding, ByteSize(need)) {
                Some(branch) => prop_assert!(fits(&branch)),
                None => prop_assert!(!(0..4).map(BranchId).any(|id| fits(&id))),
            }
        }
    }

    #[test]
    fn any_facts_and_views_are_decided(world in worlds(), size in any::<u64>(), secs in any::<i64>(), now in any::<i64>(), views in prop::collection::vec((any::<bool>(), any::<bool>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..6), branch in any::<u16>(), path in prop::collection::vec(any::<u8>(), 0..30)) {
        let rules = Rules::compile(&world.spec, &resolve).unwrap();
        let views: Vec<BranchView> = views.into_iter().map(|(online, writable, total, free, min_free)| BranchView { online, writable, total: ByteSize(total), free: ByteSize(free), min_free: ByteSize(min_free), inodes: None }).collect();
        let facts = FileFacts { path: &path, size: ByteSize(size), occupied: ByteSize(size), atime: at(secs), now: at(now), ..file("/") };
        let resident = Resident { branch: BranchId(branch), since: Some(at(secs)), min_stay: Duration::MAX };
        rules.explain(&facts, &views, Some(&resident));
        rules.explain(&facts, &views, Some(&Resident { branch: BranchId(branch % 6), since: None, ..resident }));
        rules.next_choice(&facts, &views, &[BranchId(0)], ByteSize(size));
    }
}

fn asks_for_space(spec: &RulesSpec) -> bool {
    spec.rules.iter().any(|rule| match &rule.kind {
        RuleKindSpec::When { conditions, .. } => {
            Condition::leaves(conditions).iter().any(|one| matches!(one, Condition::Space { .. }))
        }
        RuleKindSpec::Treat { .. } | RuleKindSpec::Names(_) => false,
    })
}
