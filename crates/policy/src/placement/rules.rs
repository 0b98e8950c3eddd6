//! Compiled rules and the decision: which entry a file falls under, and which branch of that entry's list it belongs
//! on.
//!
//! An entry is what can decide: a metadata rule, a pattern of the name table, or the default list. The first rule that
//! matches wins. An entry with `offline = "pass"` is inactive while the first of its list is offline: it is passed
//! over, and revives when the branch returns. What only the default list decides stays on whichever of its branches it
//! is.

use smallvec::SmallVec;
use umbrella_units::{BranchId, ByteSize};

use super::condition::{Test, Verdict};
use super::evict::Evict;
use super::expression::Expression;
use super::facts::{BranchView, FileFacts, Inodes, Resident, view};
use super::glob::Glob;
use super::group::Group;
use super::name_table::NameTable;
use super::slot::Slot;
use super::spec::{EvictOrder, Offline, PathPart, StagingMode, Treatment};
use crate::heat::Opens;

/// An index into [`Rules::entries`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

impl EntryId {
    /// The entry's place in a slice that holds one item an entry.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One thing that can decide: a metadata rule, a pattern of the name table, or the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// The rule's name; for a pattern, the table's name and the pattern; `default` for the default list.
    pub name: String,
    /// Order of preference; complete.
    pub to: Vec<Slot>,
    /// What it does while entries of its list are offline.
    pub offline: Offline,
    /// A rule's list without `default` and `any`: its files are to be on these branches only, not in the staging area
    /// either.
    pub is_strict: bool,
    /// The heat from which the rule wants files: it fetches them back also after a fill level sent them away.
    pub warm_from: Option<Opens>,
}

/// Where a file belongs, and what says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The deciding entry.
    pub entry: EntryId,
    /// What it comes to.
    pub choice: Choice,
}

/// What a decision comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It is where it may be and should be.
    Stay,
    /// It belongs on this branch; a new file is created here.
    Place(BranchId),
    /// No branch of its list has room; a file that exists stays where it is, which is not on its list.
    NoRoom,
}

/// The entry that a file falls under.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchedEntry {
    pub(super) entry: EntryId,
    /// Only a hysteresis makes it match: the file stays where it is, but would not come here.
    pub(super) by_band: bool,
}

impl MatchedEntry {
    pub(super) fn without_hysteresis(entry: EntryId) -> MatchedEntry {
        MatchedEntry { entry, by_band: false }
    }
}

/// Views of branches and groups.
pub(super) type Views = SmallVec<[BranchView; 16]>;

/// A branch or group about which nothing is known.
const AWAY: BranchView = BranchView {
    online: false,
    writable: false,
    creates: false,
    total: ByteSize(0),
    free: ByteSize(0),
    min_free: ByteSize(0),
    inodes: None,
};

/// All rules of a pool, compiled.
#[derive(Debug, Clone)]
pub struct Rules {
    /// As they were written: the first that matches wins.
    pub(super) ordered: Vec<Rule>,
    pub(super) entries: Vec<EntryInfo>,
    pub(super) groups: Vec<Group>,
    pub(super) evicts: Vec<Evict>,
    /// Names of branches and groups.
    pub(super) names: Vec<(BranchId, String)>,
    /// For conditions the groups are behind the branches, from this id on; none where no condition names a group.
    pub(super) first_group_id: Option<u16>,
    pub(super) asked: Asked,
    /// Names of extended attributes that the rules look at.
    pub(super) xattrs: Vec<String>,
    /// What any of them says of how files are treated.
    pub(super) treats: Treatment,
    /// What any of them says of waiting in memory.
    pub(super) staging_modes: Vec<StagingMode>,
    /// One of them asks for what a new file does not have yet.
    pub(super) need_late_facts: bool,
}

/// The facts of files that any rule uses, so that callers collect no others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Asked {
    /// The directories that a file is in.
    pub paths: bool,
    /// The names of a file, or how many it has.
    pub names: bool,
    /// The last access.
    pub access_times: bool,
    /// How often it was opened.
    pub heat: bool,
    /// The size, for where a file belongs.
    pub sizes: bool,
}

impl Asked {
    pub(super) fn of(rules: &[Rule], evicts: &[Evict]) -> Asked {
        let is_of_heat = |evict: &Evict| evict.order == EvictOrder::Coldest || evict.only.mentions(Test::is_of_heat);
        let mut asked = Asked { heat: evicts.iter().any(is_of_heat), ..Asked::default() };
        for rule in rules {
            match rule {
                Rule::Names(_) => (asked.paths, asked.names) = (true, true),
                Rule::When(ConditionalEntry { condition, .. }) | Rule::Treat(Treat { condition, .. }) => {
                    asked.sizes |= matches!(rule, Rule::When(_)) && condition.mentions(Test::is_of_size);
                    for test in condition.tests() {
                        asked.paths |= matches!(test, Test::Path { of: PathPart::Path, .. });
                        asked.names |= matches!(test, Test::Extension { .. } | Test::Links { .. } | Test::Path { .. });
                        asked.access_times |= test.is_of_access_time();
                        asked.heat |= test.is_of_heat();
                    }
                }
            }
        }
        asked
    }
}

/// The names of extended attributes that rules and fill levels look at, each once.
pub(super) fn xattrs_of(rules: &[Rule], evicts: &[Evict]) -> Vec<String> {
    let conditions = rules.iter().filter_map(|rule| match rule {
        Rule::When(ConditionalEntry { condition, .. }) | Rule::Treat(Treat { condition, .. }) => Some(condition),
        Rule::Names(_) => None,
    });
    let conditions = conditions.chain(evicts.iter().map(|evict| &evict.only));
    let named = conditions.flat_map(Expression::tests).filter_map(|test| match test {
        Test::Xattr { name, .. } => Some(name.to_string()),
        _ => None,
    });
    let mut names: Vec<String> = named.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A rule, or the name table.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    When(ConditionalEntry),
    Treat(Treat),
    Names(Names),
}

/// A rule that says how files are treated and not where they belong.
#[derive(Debug, Clone)]
pub(super) struct Treat {
    pub(super) name: String,
    pub(super) condition: Expression,
    pub(super) treatment: Treatment,
}

impl Treat {
    pub(super) fn matches(&self, facts: &FileFacts<'_>, branches: &[BranchView]) -> bool {
        // It has no branches of its own that a file could stay on.
        self.condition.holds(&|test| test.verdict(facts, branches, false) == Verdict::Holds)
    }
}

#[derive(Debug, Clone)]
pub(super) struct ConditionalEntry {
    pub(super) entry: EntryId,
    pub(super) has_band: bool,
    pub(super) condition: Expression,
    pub(super) treatment: Treatment,
}

#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The table's name.
    pub(super) name: String,
    /// Entry of its first pattern; the others follow.
    pub(super) first_entry: u32,
    /// As they were written.
    pub(super) globs: Vec<(String, Glob)>,
    pub(super) table: NameTable,
}

impl Names {
    pub(super) fn entry(&self, pattern: u32) -> EntryId {
        EntryId(self.first_entry + pattern)
    }
}

impl Rules {
    /// What they look at.
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// The names of the extended attributes that they look at; others need not be read.
    pub fn xattrs(&self) -> &[String] {
        &self.xattrs
    }

    /// Whether what this entry decides may depend on the size of a file: it or an earlier rule asks for it.
    pub fn asks_for_size(&self, entry: EntryId) -> bool {
        self.ordered.iter().any(|rule| match rule {
            Rule::When(when) => when.entry <= entry && when.condition.mentions(Test::is_of_size),
            Rule::Treat(_) | Rule::Names(_) => false,
        })
    }

    /// The heat from which any rule wants files.
    pub fn warm_from(&self) -> Option<Opens> {
        self.entries.iter().filter_map(|entry| entry.warm_from).min()
    }

    /// Whether an entry fetches warm files.
    pub fn promotes(&self, entry: EntryId) -> bool {
        self.entries.get(entry.index()).is_some_and(|info| info.warm_from.is_some())
    }

    /// What can decide, in order: each metadata rule, each pattern of the name table, the default last.
    pub fn entries(&self) -> &[EntryInfo] {
        &self.entries
    }

    /// The groups, in the order in which they were written.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether an entry is passed over because the first of its list is offline.
    pub fn inactive(&self, entry: EntryId, branches: &[BranchView]) -> bool {
        self.entries
            .get(entry.index())
            .filter(|info| info.offline == Offline::Pass)
            .and_then(|info| info.to.first())
            .is_some_and(|first| !first.is_online(branches))
    }

    /// Whether nothing can be created by an entry because branches of its list are offline.
    pub fn is_away(&self, entry: EntryId, branches: &[BranchView]) -> bool {
        self.entries.get(entry.index()).is_some_and(|info| match info.offline {
            Offline::Fail => info.blocked(branches),
            Offline::Next | Offline::Pass => !info.to.iter().any(|slot| slot.is_online(branches)),
        })
    }

    /// What conditions look at: the branches and, where one names a group, the groups behind them.
    pub(super) fn for_conditions<'v>(&self, branches: &'v [BranchView], buffer: &'v mut Views) -> &'v [BranchView] {
        let Some(first) = self.first_group_id else { return branches };
        buffer.extend(branches.iter().copied());
        buffer.resize(usize::from(first), AWAY);
        for group in &self.groups {
            let members = group.members.iter().filter_map(|id| view(branches, *id)).filter(|view| view.online);
            buffer.push(members.fold(AWAY, |sum, member| BranchView {
                online: true,
                writable: sum.writable || member.writable,
                creates: sum.creates || member.creates,
                total: ByteSize(sum.total.0.saturating_add(member.total.0)),
                free: ByteSize(sum.free.0.saturating_add(member.free.0)),
                min_free: ByteSize(sum.min_free.0.saturating_add(member.min_free.0)),
                inodes: Inodes::sum(sum.inodes, member.inodes),
            }));
        }
        buffer
    }

    /// Whether a file's place may change with its last access: a rule that asks for that is reached, and all else that
    /// it asks for holds.
    pub fn depends_on_access_time(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> bool {
        let mut buffer = Views::new();
        let branches = self.for_conditions(branches, &mut buffer);
        for rule in self.ordered.iter().filter(|_| self.asked.access_times) {
            match rule {
                Rule::When(when) if when.condition.mentions(Test::is_of_access_time) => {
                    let with_hysteresis = self.hysteresis_applies(when, branches, resident);
                    // A hysteresis only makes it hold for more.
                    let may_hold = when.condition.holds(&|test| {
                        test.is_of_access_time() || test.verdict(facts, branches, with_hysteresis) == Verdict::Holds
                    });
                    if may_hold && !self.inactive(when.entry, branches) {
                        return true;
                    }
                }
                Rule::When(_) | Rule::Treat(_) | Rule::Names(_) => {
                    if self.decided_by(rule, facts, branches, resident).is_some() {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Of the names of one file the one that decides for all: the first in alphabetical order whose rule's list is
    /// strict, else the first.
    pub fn deciding_name<'a, I>(
        &self,
        names: I,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> Option<&'a [u8]>
    where
        I: IntoIterator<Item = &'a [u8]>,
    {
        let is_lenient = |path: &'a [u8]| {
            let found = self.entry_for(&FileFacts { path, ..*facts }, branches, resident);
            self.entries.get(found.entry.index()).is_none_or(|entry| !entry.is_strict)
        };
        names.into_iter().min_by_key(|path| (is_lenient(path), *path))
    }

    /// The entry that decides where a file belongs.
    pub fn deciding_entry(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> EntryId {
        self.entry_for(facts, branches, resident).entry
    }

    /// The entry that a file falls under.
    pub(super) fn entry_for(
        &self,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> MatchedEntry {
        let mut buffer = Views::new();
        let branches = self.for_conditions(branches, &mut buffer);
        let found = self.ordered.iter().find_map(|rule| self.decided_by(rule, facts, branches, resident));
        found.unwrap_or(MatchedEntry::without_hysteresis(self.default_entry()))
    }

    /// The entry of one rule, or of one name table, that a file falls under.
    pub(super) fn decided_by(
        &self,
        rule: &Rule,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> Option<MatchedEntry> {
        match rule {
            Rule::When(when) => self.matches(when, facts, branches, resident),
            Rule::Treat(_) => None,
            Rule::Names(names) => {
                let usable = |pattern| !self.inactive(names.entry(pattern), branches);
                let pattern = names.table.find(facts.path, usable)?;
                Some(MatchedEntry::without_hysteresis(names.entry(pattern)))
            }
        }
    }

    pub(super) fn default_entry(&self) -> EntryId {
        EntryId(self.entries.len() as u32 - 1)
    }

    /// Whether the hystereses of a rule count for a file. They do if it is on a branch that the rule's list names, and
    /// not on one that it has to leave in any case.
    pub(super) fn hysteresis_applies(
        &self,
        when: &ConditionalEntry,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> bool {
        let may_stay = |branch| view(branches, branch).is_none_or(|view| view.writable || !view.online);
        let listed = |branch| {
            let named = self.entries[when.entry.index()].to.iter().filter(|slot| slot.id.is_some());
            named.clone().any(|slot| slot.contains(branch))
        };
        when.has_band && resident.is_some_and(|resident| listed(resident.branch) && may_stay(resident.branch))
    }

    pub(super) fn matches(
        &self,
        when: &ConditionalEntry,
        facts: &FileFacts<'_>,
        branches: &[BranchView],
        resident: Option<&Resident>,
    ) -> Option<MatchedEntry> {
        let holds = |with_hysteresis| {
            when.condition.holds(&|test| test.verdict(facts, branches, with_hysteresis) == Verdict::Holds)
        };
        let without_hysteresis = holds(false);
        let by_band = !without_hysteresis && self.hysteresis_applies(when, branches, resident) && holds(true);
        let matched = (without_hysteresis || by_band) && !self.inactive(when.entry, branches);
        matched.then_some(MatchedEntry { entry: when.entry, by_band })
    }
}
