//! Decisions compared with the obvious ones: a model that walks the rules as they are written.

mod conditions;

use proptest::prelude::*;

use super::*;
use crate::placement::glob::naive;
use crate::placement::spec::{Narrow, Spread, SpreadOrder, TogetherFull};
use conditions::{holds, kinds};

/// A pattern of the name table: its parts, and its text in the rules.
pub(super) type Pattern = Vec<naive::Part>;

#[derive(Debug, Clone)]
struct World {
    spec: RulesSpec,
    patterns: Vec<Pattern>,
    branches: Vec<BranchView>,
    files: Vec<File>,
    around: Around,
}

/// A world in which what is where follows from a seed.
#[derive(Debug, Clone, Copy)]
struct Around {
    seed: u64,
}

impl Around {
    fn number(self, dir: &[u8], branch: BranchId) -> u64 {
        let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        let sum = dir.iter().fold(self.seed ^ (u64::from(branch.0 + 1) << 40), mix);
        (sum ^ (sum >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32
    }
}

impl Surroundings for Around {
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool {
        self.number(dir, branch).is_multiple_of(3)
    }

    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        let number = self.number(dir, branch);
        DirUsage { bytes: ByteSize(number % 3), files: (number >> 8) % 3 }
    }

    fn last_used(&self, group: usize) -> Option<BranchId> {
        let number = self.number(b"turn", BranchId(group as u16));
        (!number.is_multiple_of(5)).then(|| BranchId((number % 5 - 1) as u16))
    }

    fn random_number(&self) -> u64 {
        self.number(b"draw", BranchId(0)) << 32
    }
}

#[derive(Debug, Clone)]
struct File {
    path: Vec<u8>,
    numbers: [u32; 10],
    stage: Stage,
    kind: FileKind,
    home: Option<Resident>,
    xattrs: Option<Vec<Xattr>>,
}

impl File {
    fn facts(&self) -> FileFacts<'_> {
        let [size, uid, gid, mode, links, atime, mtime, ctime, btime, heat] = self.numbers;
        FileFacts {
            path: &self.path,
            kind: self.kind,
            size: ByteSize(size.into()),
            occupied: ByteSize((size / 2).into()),
            uid,
            gid,
            mode: [0o444, 0o644, 0o755, 0o555, 0o4711][mode as usize % 5],
            // A file that is placed has a name.
            links: links.max(1),
            atime: at(atime.into()),
            mtime: at(mtime.into()),
            ctime: at(ctime.into()),
            // The smallest number stands for one that is not known.
            btime: (btime > 0).then(|| at(btime.into())),
            heat: Opens(heat.into()),
            now: at(6),
            stage: self.stage,
            xattrs: self.xattrs.as_deref(),
        }
    }
}

mod naively {
    use super::*;

    pub(super) fn decide(world: &World, facts: &FileFacts<'_>, home: Option<&Resident>) -> Decision {
        let deciding = deciding(world, facts, home);
        let entry = EntryId(deciding.entry as u32);
        if deciding.by_band && home.is_some_and(|home| world.branches[home.branch.index()].writable) {
            return Decision { entry, choice: Choice::Stay };
        }
        // What only the default list decides stays on any open branch of it.
        let by_default = deciding.entry == default_entry(world);
        let slots = slots(world, &deciding.to.branches);
        let stays = |home: &Resident| {
            let view = &world.branches[home.branch.index()];
            lists(&slots, home.branch.index()) && view.online && view.writable
        };
        if by_default && home.is_some_and(stays) {
            return Decision { entry, choice: Choice::Stay };
        }
        Decision { entry, choice: choose(world, &deciding, &slots, facts, home) }
    }

    /// What decides: the number of the entry, its list, and whether it matches by its hysteresis only.
    struct Deciding {
        entry: usize,
        to: DestinationSpec,
        by_band: bool,
    }

    /// Branches of equal worth, and the group that they are.
    type Equals<'w> = (Vec<usize>, Option<usize>, Option<&'w GroupSpec>);

    fn branch(name: &str) -> Option<usize> {
        NAMES.iter().position(|known| *known == name)
    }

    /// The entries of a list; `default` has one set for each of its own.
    pub(super) fn slots<'w>(world: &'w World, names: &[String]) -> Vec<Vec<Equals<'w>>> {
        let mut slots: Vec<Vec<Equals<'w>>> = Vec::new();
        for name in names {
            let named: Vec<usize> = slots.iter().flatten().flat_map(|set| set.0.clone()).collect();
            slots.push(match name.as_str() {
                "any" => vec![((0..NAMES.len()).filter(|id| !named.contains(id)).collect(), None, None)],
                "default" => self::slots(world, &default(world)).into_iter().flatten().collect(),
                name => match world.spec.groups.iter().position(|group| group.name == name) {
                    Some(index) => {
                        let group = &world.spec.groups[index];
                        let members = group.branches.iter().map(|name| branch(name).unwrap()).collect();
                        vec![(members, Some(index), Some(group))]
                    }
                    None => vec![(vec![branch(name).unwrap()], None, None)],
                },
            });
        }
        slots
    }

    fn default(world: &World) -> Vec<String> {
        if world.spec.default.is_empty() { owned(&["any"]) } else { world.spec.default.clone() }
    }

    fn lists(slots: &[Vec<Equals<'_>>], id: usize) -> bool {
        slots.iter().flatten().any(|set| set.0.contains(&id))
    }

    fn is_online(world: &World, slot: &[Equals<'_>]) -> bool {
        slot.iter().any(|set| set.0.iter().any(|id| world.branches[*id].online))
    }

    /// Whether a rule is passed over.
    fn passes(world: &World, to: &DestinationSpec) -> bool {
        to.offline == Offline::Pass && !is_online(world, &slots(world, &to.branches)[0])
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

    fn deciding(world: &World, facts: &FileFacts<'_>, home: Option<&Resident>) -> Deciding {
        let mut entry = 0;
        for rule in &world.spec.rules {
            match &rule.kind {
                RuleKindSpec::When { conditions, to } => {
                    let leaves = |home: &Resident| {
                        let view = &world.branches[home.branch.index()];
                        view.online && !view.writable
                    };
                    let named: Vec<String> = to
                        .branches
                        .iter()
                        .filter(|name| !["any", "default"].contains(&name.as_str()))
                        .cloned()
                        .collect();
                    let named = slots(world, &named);
                    let at_home = home.is_some_and(|home| lists(&named, home.branch.index()) && !leaves(home));
                    let all = |home| {
                        conditions.iter().all(|condition| holds(condition, facts, &|name| find(world, name), home))
                    };
                    if all(at_home) && !passes(world, to) {
                        return Deciding { entry, to: to.clone(), by_band: !all(false) };
                    }
                    entry += 1;
                }
                RuleKindSpec::Treat { .. } => {}
                RuleKindSpec::Names(entries) => {
                    let mut matching: Vec<usize> = (0..entries.len())
                        .filter(|index| naive::matches(&world.patterns[*index], facts.path))
                        .filter(|index| !passes(world, &entries[*index].to))
                        .collect();
                    // Stable, so the earlier stays first on a tie.
                    matching.sort_by_key(|index| std::cmp::Reverse(entries[*index].glob.len()));
                    matching.sort_by_key(|index| naive::wildcards(&world.patterns[*index]));
                    matching.sort_by_key(|index| std::cmp::Reverse(naive::literals(&world.patterns[*index])));
                    if let Some(&index) = matching.first() {
                        let to = entries[index].to.clone();
                        return Deciding { entry: entry + index, to, by_band: false };
                    }
                    entry += entries.len();
                }
            }
        }
        let to = DestinationSpec { branches: default(world), offline: Offline::Next };
        Deciding { entry, to, by_band: false }
    }

    /// A branch, or the online members of a group together.
    fn find(world: &World, name: &str) -> BranchView {
        let away = BranchView { online: false, total: ByteSize(0), free: ByteSize(0), inodes: None, ..ROOMY };
        let members = slots(world, &[name.to_owned()]).remove(0).remove(0).0;
        let online = members.iter().map(|id| world.branches[*id]).filter(|view| view.online);
        online.fold(away, |sum, one| BranchView {
            online: true,
            total: ByteSize(sum.total.0 + one.total.0),
            free: ByteSize(sum.free.0 + one.free.0),
            inodes: sum
                .inodes
                .into_iter()
                .chain(one.inodes)
                .reduce(|a, b| Inodes { total: a.total + b.total, free: a.free + b.free }),
            ..one
        })
    }

    fn choose(
        world: &World,
        deciding: &Deciding,
        slots: &[Vec<Equals<'_>>],
        facts: &FileFacts<'_>,
        home: Option<&Resident>,
    ) -> Choice {
        let mut at_home = None;
        if let Some(home) = home {
            let view = &world.branches[home.branch.index()];
            let lately = home.since.is_some_and(|since| since.age(facts.now) < home.min_stay);
            let is_strict = !deciding.to.branches.iter().any(|name| name == "any" || name == "default")
                && deciding.entry != default_entry(world);
            let must_leave = is_strict && !lists(slots, home.branch.index());
            if !view.online || (view.writable && lately && !must_leave) {
                return Choice::Stay;
            }
            at_home = view.writable.then_some(home.branch.index());
        }
        let nowhere = match at_home {
            Some(home) if lists(slots, home) => Choice::Stay,
            _ => Choice::NoRoom,
        };
        if deciding.to.offline == Offline::Fail && !is_online(world, &slots[0]) {
            return nowhere;
        }
        for slot in slots {
            if at_home.is_some_and(|home| slot.iter().any(|set| set.0.contains(&home))) {
                return Choice::Stay;
            }
            for set in slot {
                match among(world, set, facts, home.is_some()) {
                    Ok(Some(id)) => return Choice::Place(BranchId(id as u16)),
                    Ok(None) => {}
                    Err(()) => return nowhere,
                }
            }
        }
        nowhere
    }

    /// The member of a set that takes a file; an error: none may.
    fn among(
        world: &World,
        (members, index, group): &Equals<'_>,
        facts: &FileFacts<'_>,
        moves: bool,
    ) -> Result<Option<usize>, ()> {
        let around = &world.around;
        let need = if facts.stage == Stage::Settled { facts.occupied.0 } else { 0 };
        let view = |id: usize| &world.branches[id];
        let id = |id: usize| BranchId(id as u16);
        let open: Vec<usize> = members.iter().copied().filter(|id| view(*id).takes_new()).collect();
        // A move takes another inode while it lasts.
        let has_inode = |id: usize| view(id).inodes.is_none_or(|inodes| inodes.free > u64::from(moves));
        let roomy = |id: &usize| has_inode(*id) && view(*id).free.0 >= view(*id).min_free.0 + need.max(1);
        let mut candidates: Vec<usize> = open.iter().copied().filter(roomy).collect();
        let Some(group) = group else {
            candidates.sort_by_key(|id| std::cmp::Reverse(view(*id).free));
            return Ok(candidates.first().copied());
        };
        let dirs: Vec<Vec<u8>> = (0..facts.path.len())
            .filter(|end| *end > 0 && facts.path[*end] == b'/')
            .map(|end| facts.path[..end].to_vec())
            .collect();
        // Patterns of these groups count components.
        let depth = group.together.iter().map(|pattern| pattern.matches('/').count()).min();
        if let Some(dir) = depth.and_then(|depth| dirs.get(depth - 1)) {
            let mut holders: Vec<usize> =
                open.iter().copied().filter(|one| around.usage_below(dir, id(*one)) > DirUsage::default()).collect();
            holders.sort_by_key(|one| std::cmp::Reverse(around.usage_below(dir, id(*one))));
            if let Some(&holder) = holders.first() {
                if has_inode(holder) && view(holder).free.0 >= need.max(1) {
                    return Ok(Some(holder));
                }
                if group.together_full == TogetherFull::NoRoom {
                    return Err(());
                }
            }
        }
        if let (Some(narrow), Some(own)) = (group.spread.narrow, dirs.last()) {
            let having = |dir: &Vec<u8>, of: &[usize]| -> Vec<usize> {
                of.iter().copied().filter(|one| around.has_directory(id(*one), dir)).collect()
            };
            let found = having(own, &candidates);
            if !found.is_empty() {
                candidates = found;
            } else if narrow == Narrow::OnlySamePath
                && having(own, members).iter().any(|id| view(*id).online && view(*id).writable)
            {
                return Err(());
            } else if narrow == Narrow::NearestPath
                && let Some(found) =
                    dirs.iter().rev().map(|dir| having(dir, &candidates)).find(|found| !found.is_empty())
            {
                candidates = found;
            }
        }
        if candidates.len() < 2 {
            return Ok(candidates.first().copied());
        }
        let used = |id: &usize| view(*id).total.0 - view(*id).free.0;
        match group.spread.order {
            SpreadOrder::InOrder => {}
            // All branches of this model have one size.
            SpreadOrder::MostFree | SpreadOrder::MostFreeShare => {
                candidates.sort_by_key(|id| std::cmp::Reverse(view(*id).free));
            }
            SpreadOrder::LeastFree => candidates.sort_by_key(|id| view(*id).free),
            SpreadOrder::LeastUsed => candidates.sort_by_key(used),
            SpreadOrder::RoundRobin => {
                let place = |id: &usize| members.iter().position(|member| member == id).unwrap();
                let last = around.last_used(index.unwrap()).map(BranchId::index);
                if let Some(last) = last.filter(|last| members.contains(last)) {
                    candidates.sort_by_key(|id| (place(id) <= place(&last), place(id)));
                }
            }
            SpreadOrder::Random => {
                let place = (u128::from(around.random_number()) * candidates.len() as u128) >> 64;
                return Ok(Some(candidates[place as usize]));
            }
            SpreadOrder::RandomByFree => {
                let tickets: Vec<usize> = candidates
                    .iter()
                    .flat_map(|id| std::iter::repeat_n(*id, view(*id).free.0.max(1) as usize))
                    .collect();
                let place = (u128::from(around.random_number()) * tickets.len() as u128) >> 64;
                return Ok(Some(tickets[place as usize]));
            }
            SpreadOrder::HighWater => {
                let mut mark = open.iter().map(|id| view(*id).total.0).max().unwrap_or(0);
                while mark > 0 {
                    mark /= 2;
                    if let Some(above) = candidates.iter().find(|id| view(**id).free.0 > mark) {
                        return Ok(Some(*above));
                    }
                }
            }
        }
        Ok(candidates.first().copied())
    }
}

/// Names of the groups of these worlds.
pub(super) const GROUPS: [&str; 2] = ["all", "some"];

fn names(words: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
    let all: Vec<String> = [&NAMES[..], &GROUPS[..], words].concat().into_iter().map(str::to_owned).collect();
    prop::sample::subsequence(all, least..=4).prop_shuffle()
}

fn groups() -> impl Strategy<Value = Vec<GroupSpec>> {
    use SpreadOrder::{
        HighWater, InOrder, LeastFree, LeastUsed, MostFree, MostFreeShare, Random, RandomByFree, RoundRobin,
    };
    let orders =
        vec![MostFree, MostFreeShare, LeastFree, LeastUsed, InOrder, RoundRobin, Random, RandomByFree, HighWater];
    let narrow = prop::sample::select(vec![Narrow::SamePath, Narrow::OnlySamePath, Narrow::NearestPath]);
    let group = || {
        (
            prop::sample::subsequence(NAMES.map(str::to_owned).to_vec(), 1..=4).prop_shuffle(),
            prop::option::of(narrow.clone()),
            prop::sample::select(orders.clone()),
            prop::collection::vec(1usize..4, 0..3),
            any::<bool>(),
        )
    };
    (group(), group()).prop_map(|both| {
        let groups = [both.0, both.1].into_iter().zip(GROUPS);
        groups
            .map(|((branches, narrow, order, depths, spills), name)| GroupSpec {
                name: name.to_owned(),
                branches,
                spread: Spread { narrow, order },
                together: depths.into_iter().map(|depth| "/*".repeat(depth)).collect(),
                together_full: if spills { TogetherFull::Spill } else { TogetherFull::NoRoom },
            })
            .collect()
    })
}

fn destinations() -> impl Strategy<Value = DestinationSpec> {
    let offline = prop::sample::select(vec![Offline::Next, Offline::Pass, Offline::Fail]);
    (names(&["default", "any"], 1), offline).prop_map(|(branches, offline)| DestinationSpec { branches, offline })
}

/// Rules with one name table, in which every pattern can be read.
pub(super) fn specs() -> impl Strategy<Value = (RulesSpec, Vec<Pattern>)> {
    let metadata = || prop::collection::vec((prop::collection::vec(conditions::trees(), 0..3), destinations()), 0..4);
    let readable = naive::patterns()
        .prop_filter("must be readable", |pattern| crate::placement::glob::Glob::new(&naive::text(pattern)).is_ok());
    let patterns = prop::collection::vec((readable, destinations()), 0..8);
    let default = names(&["any"], 0);
    (metadata(), patterns, metadata(), default, groups()).prop_map(|(before, patterns, after, default, groups)| {
        let rule = |(index, (conditions, to))| when(&format!("rule {index}"), conditions, to);
        let mut rules: Vec<RuleSpec> = before.into_iter().enumerate().map(rule).collect();
        let (patterns, lists): (Vec<Pattern>, Vec<DestinationSpec>) = patterns.into_iter().unzip();
        let entries = patterns.iter().zip(lists).map(|(pattern, to)| NameEntrySpec { glob: naive::text(pattern), to });
        rules.push(RuleSpec {
            name: "names".to_owned(),
            kind: RuleKindSpec::Names(entries.collect()),
            treatment: Treatment::default(),
        });
        rules.extend(after.into_iter().enumerate().map(rule));
        (RulesSpec { rules, default, groups, evicts: Vec::new() }, patterns)
    })
}

fn views() -> impl Strategy<Value = Vec<BranchView>> {
    let inodes = prop::option::of((0u64..4).prop_map(|free| Inodes { total: 4, free }));
    let may = (prop::bool::weighted(0.8), prop::bool::weighted(0.8));
    let view = (prop::bool::weighted(0.8), may, 0u64..8, 0u64..3, inodes).prop_map(
        |(online, (writable, creates), free, min_free, inodes)| BranchView {
            online,
            writable,
            creates,
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
        is_evicted: false,
        is_opened: false,
    });
    prop::option::of(resident)
}

fn files() -> impl Strategy<Value = Vec<File>> {
    let guessed = Stage::Guessed(SizePeers::Directory);
    let stages = prop_oneof![8 => Just(Stage::Settled), 1 => Just(Stage::New), 1 => Just(guessed)];
    let lasting = (stages, kinds(), conditions::xattrs());
    let file = (naive::paths(), prop::array::uniform10(0u32..8), lasting, residents())
        .prop_map(|(path, numbers, (stage, kind, xattrs), home)| File { path, numbers, stage, kind, home, xattrs });
    prop::collection::vec(file, 1..10)
}

fn worlds() -> impl Strategy<Value = World> {
    (specs(), views(), files(), any::<u64>()).prop_map(|((spec, patterns), branches, files, seed)| World {
        spec,
        patterns,
        branches,
        files,
        around: Around { seed },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn decisions_are_those_of_the_model(world in worlds()) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        for file in &world.files {
            let decision = rules.decide(&file.facts(), &world.branches, file.home.as_ref(), &world.around);
            prop_assert_eq!(decision, naively::decide(&world, &file.facts(), file.home.as_ref()), "{:?}", file);
        }
    }

    #[test]
    fn explained_decisions_are_the_same_and_end_with_the_deciding_rule(world in worlds()) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        for file in &world.files {
            let explained = rules.explain(&file.facts(), &world.branches, file.home.as_ref(), &world.around);
            prop_assert_eq!(explained.decision, rules.decide(&file.facts(), &world.branches, file.home.as_ref(), &world.around));
            let (last, others) = explained.steps.split_last().unwrap();
            prop_assert!(last.matched && others.iter().all(|step| !step.matched));
            prop_assert_eq!(&last.rule, &rules.entries()[explained.decision.entry.index()].name);
            prop_assert!(explained.steps.iter().all(|step| !step.reason.is_empty()) && !explained.why.is_empty());
        }
    }

    #[test]
    fn a_read_moves_only_files_that_depend_on_access_times(world in worlds(), atime in 0u32..8) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        let asks = world.spec.rules.iter().any(|rule| matches!(&rule.kind, RuleKindSpec::When { conditions, .. }
            if Condition::leaves(conditions).iter().any(|condition| matches!(condition, Condition::Age { of: TimeField::Atime, .. }))));
        for file in &world.files {
            let decide = |facts: &FileFacts<'_>| rules.decide(facts, &world.branches, file.home.as_ref(), &world.around);
            let depends = rules.depends_on_access_time(&file.facts(), &world.branches, file.home.as_ref());
            let read = FileFacts { atime: at(atime.into()), ..file.facts() };
            prop_assert!(depends || decide(&file.facts()) == decide(&read), "{:?}", file);
            prop_assert!(asks || !depends, "no rule asks for access times");
        }
    }

    #[test]
    fn no_file_falls_under_a_rule_that_is_out_of_reach(world in worlds()) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        let unreachable = rules.unreachable();
        let never: Vec<&str> = unreachable.iter().filter(|one| !one.only_as_fallback).map(|one| one.rule.as_str()).collect();
        let ever: Vec<&str> = unreachable.iter().map(|one| one.rule.as_str()).collect();
        for file in &world.files {
            let entry = rules.decide(&file.facts(), &world.branches, file.home.as_ref(), &world.around).entry;
            let name = rules.entries()[entry.index()].name.as_str();
            // Names may repeat in these rules; only a name that occurs once identifies a rule for sure.
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
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        for file in &world.files {
            let facts = FileFacts { stage: Stage::Settled, ..file.facts() };
            if let Choice::Place(branch) = rules.decide(&facts, &world.branches, file.home.as_ref(), &world.around).choice {
                // Once there it fills the branch; conditions on space may then speak against it, sizes may not.
                if !asks_for_space(&world.spec) {
                    let mut after = world.branches.clone();
                    after[branch.index()].free.0 -= facts.occupied.0;
                    let again = rules.decide(&facts, &after, Some(&on(branch)), &world.around).choice;
                    prop_assert_eq!(again, Choice::Stay, "after {:?}", branch);
                }
            }
        }
    }

    #[test]
    fn no_rule_moves_a_file_again_that_moved_between_equals(world in worlds()) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        for file in world.files.iter().filter(|_| !asks_for_space(&world.spec)) {
            let facts = FileFacts { stage: Stage::Settled, ..file.facts() };
            let Some(home) = &file.home else { continue };
            let equals = rules.equals(&facts, &world.branches, home, &world.around);
            for branch in equals.into_iter().filter(|branch| world.branches[branch.index()].open()) {
                let again = rules.decide(&facts, &world.branches, Some(&on(branch)), &world.around).choice;
                prop_assert_eq!(again, Choice::Stay, "{:?} went to {:?}", home, branch);
            }
        }
    }

    #[test]
    fn the_next_choice_is_open_has_room_and_is_not_excluded(world in worlds(), excluding in prop::collection::vec((0u16..4).prop_map(BranchId), 0..4), need in 0u64..8) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        for file in &world.files {
            let entry = rules.decide(&file.facts(), &world.branches, None, &world.around).entry;
            let info = &rules.entries()[entry.index()];
            let fits = |id: &BranchId| {
                let view = &world.branches[id.index()];
                view.takes_new() && view.has_inode() && view.free.0 >= need && !excluding.contains(id) && info.contains(*id)
            };
            // One that keeps directories together, or waits for its first branch, may refuse although there is room.
            let refuses = |slot: &Slot| world.spec.groups.iter().any(|group| {
                let named = slot.name == group.name || slot.name == "default" && world.spec.default.contains(&group.name);
                named && (group.together_full == TogetherFull::NoRoom || group.spread.narrow == Some(Narrow::OnlySamePath))
            });
            let may_refuse = info.offline == Offline::Fail || info.to.iter().any(refuses);
            match rules.next_choice(&file.facts(), &world.branches, &excluding, ByteSize(need), &world.around) {
                Some(branch) => prop_assert!(fits(&branch)),
                None => prop_assert!(may_refuse || !(0..4).map(BranchId).any(|id| fits(&id))),
            }
        }
    }

    #[test]
    fn any_facts_and_views_are_decided(world in worlds(), size in any::<u64>(), secs in any::<i64>(), now in any::<i64>(), views in prop::collection::vec((any::<bool>(), any::<bool>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..6), branch in any::<u16>(), path in prop::collection::vec(any::<u8>(), 0..30)) {
        let rules = Rules::compile(&world.spec, &super::names()).unwrap();
        let views: Vec<BranchView> = views.into_iter().map(|(online, writable, total, free, min_free)| BranchView { online, writable, creates: !writable || free % 3 > 0, total: ByteSize(total), free: ByteSize(free), min_free: ByteSize(min_free), inodes: None }).collect();
        let facts = FileFacts { path: &path, size: ByteSize(size), occupied: ByteSize(size), atime: at(secs), now: at(now), ..file("/") };
        let resident = Resident { branch: BranchId(branch), since: Some(at(secs)), min_stay: Duration::MAX, is_evicted: false, is_opened: false };
        rules.explain(&facts, &views, Some(&resident), &world.around);
        rules.explain(&facts, &views, Some(&Resident { branch: BranchId(branch % 6), since: None, ..resident }), &world.around);
        rules.next_choice(&facts, &views, &[BranchId(0)], ByteSize(size), &world.around);
    }
}

pub(super) fn asks_for_space(spec: &RulesSpec) -> bool {
    spec.rules.iter().any(|rule| match &rule.kind {
        RuleKindSpec::When { conditions, .. } => {
            Condition::leaves(conditions).iter().any(|one| matches!(one, Condition::Space { .. }))
        }
        RuleKindSpec::Treat { .. } | RuleKindSpec::Names(_) => false,
    })
}
