//! From rules as they were written to [`Rules`]: names become ids, patterns are compiled, mistakes become errors.

use std::cell::Cell;

use smallvec::SmallVec;
use umbrella_units::BranchId;

use super::condition::{BadCondition, Test};
use super::error::RuleError;
use super::evict::Evict;
use super::expression::Expression;
use super::glob::Glob;
use super::group::{self, Group, KnownNames};
use super::name_table::NameTable;
use super::rules::{Asked, ConditionalEntry, EntryId, EntryInfo, Names, Rule, Rules, Treat, xattrs_of};
use super::slot::{Set, Slot};
use super::spec::{
    ANY, Condition, DEFAULT, DestinationSpec, EvictSpec, GroupSpec, NameEntrySpec, Offline, RuleKindSpec, RulesSpec,
    Treatment,
};

impl Rules {
    /// Compiles rules for the branches of these names, in order; says what is wrong first.
    pub fn compile(spec: &RulesSpec, branches: &[(String, BranchId)]) -> Result<Rules, RuleError> {
        compile(spec, branches)
    }

    /// Groups with their members, in the order given; or all that is wrong with them.
    pub fn compile_groups(groups: &[GroupSpec], branches: &[(String, BranchId)]) -> Result<Vec<Group>, Vec<RuleError>> {
        group::compile(groups, branches).map(|known| known.groups)
    }
}

fn compile(spec: &RulesSpec, branches: &[(String, BranchId)]) -> Result<Rules, RuleError> {
    let known = group::compile(&spec.groups, branches).map_err(|mut errors| errors.remove(0))?;
    let mut compiler =
        RuleCompiler { known: &known, default: Vec::new(), entries: Vec::new(), asks_groups: Cell::new(false) };
    compiler.default = compiler.default_list(&spec.default)?;
    let mut ordered = Vec::with_capacity(spec.rules.len());
    let mut table: Option<&str> = None;
    for rule in &spec.rules {
        ordered.push(match &rule.kind {
            RuleKindSpec::When { conditions, to } => {
                let treatment = rule.treatment;
                Rule::When(ConditionalEntry { treatment, ..compiler.when(&rule.name, conditions, to)? })
            }
            RuleKindSpec::Treat { conditions } => Rule::Treat(Treat {
                name: rule.name.clone(),
                condition: compiler.condition(&rule.name, conditions)?,
                treatment: rule.treatment,
            }),
            RuleKindSpec::Names(patterns) => {
                if let Some(first) = table.replace(&rule.name) {
                    return Err(RuleError::SecondNameTable { rule: rule.name.clone(), first: first.to_owned() });
                }
                Rule::Names(compiler.names(&rule.name, patterns)?)
            }
        });
    }
    let to = std::mem::take(&mut compiler.default);
    compiler.entry(EntryInfo {
        name: DEFAULT.to_owned(),
        to,
        offline: Offline::Next,
        is_strict: false,
        warm_from: None,
    });
    let evicts = spec.evicts.iter().map(|evict| compiler.evict(evict)).collect::<Result<Vec<_>, _>>()?;
    let first_group_id = compiler.asks_groups.get().then(|| known.first_group_id());
    let entries = compiler.entries;
    let names = known.names().into_iter().filter_map(|name| Some((known.id(&name)?, name))).collect();
    Ok(Rules {
        asked: Asked::of(&ordered, &evicts),
        xattrs: xattrs_of(&ordered, &evicts),
        treats: spec.rules.iter().map(|rule| rule.treatment).fold(Treatment::default(), Treatment::or),
        staging_modes: spec.rules.iter().filter_map(|rule| rule.treatment.staging).collect(),
        need_late_facts: ordered
            .iter()
            .any(|rule| matches!(rule, Rule::When(when) if when.condition.mentions(Test::is_late))),
        ordered,
        entries,
        names,
        first_group_id,
        groups: known.groups,
        evicts,
    })
}

struct RuleCompiler<'a> {
    known: &'a KnownNames<'a>,
    default: Vec<Slot>,
    entries: Vec<EntryInfo>,
    /// A condition names a group.
    asks_groups: Cell<bool>,
}

impl RuleCompiler<'_> {
    fn when(
        &mut self,
        rule: &str,
        conditions: &[Condition],
        to: &DestinationSpec,
    ) -> Result<ConditionalEntry, RuleError> {
        let condition = self.condition(rule, conditions)?;
        let entry = self.destination(rule, None, to)?;
        self.entries[entry.index()].warm_from = condition.tests().into_iter().filter_map(Test::warm_from).min();
        let treatment = Treatment::default();
        Ok(ConditionalEntry { entry, has_band: condition.mentions(Test::has_band), condition, treatment })
    }

    fn condition(&self, rule: &str, conditions: &[Condition]) -> Result<Expression, RuleError> {
        let resolve = |name: &str| {
            self.asks_groups.set(self.asks_groups.get() || self.known.branch(name).is_none());
            self.known.id(name)
        };
        Expression::compile(conditions, &resolve).map_err(|bad| match bad {
            BadCondition::UnknownBranch(branch) => self.unknown(rule, branch),
            BadCondition::BadComparison(condition) => RuleError::BadComparison { rule: rule.to_owned(), condition },
            BadCondition::BadGlob(glob, reason) => {
                RuleError::BadGlob { rule: rule.to_owned(), glob: glob.to_owned(), reason }
            }
            BadCondition::TooDeep => RuleError::TooDeep { rule: rule.to_owned() },
        })
    }

    /// A fill level: its marks in order, and branches to go to other than its own.
    fn evict(&self, spec: &EvictSpec) -> Result<Evict, RuleError> {
        let name = || format!("evict of {}", spec.of);
        let members: Vec<BranchId> =
            self.set(&spec.of).ok_or_else(|| self.unknown(&name(), &spec.of))?.members.to_vec();
        if !spec.are_marks_in_order() {
            return Err(RuleError::EvictMarks { of: spec.of.clone(), above: spec.above, until: spec.until });
        }
        let mut to = Vec::with_capacity(spec.to.len());
        for name_of_other in &spec.to {
            let set = self.set(name_of_other).ok_or_else(|| self.unknown(&name(), name_of_other))?;
            if set.members.iter().all(|id| members.contains(id)) {
                return Err(RuleError::EvictToItself { of: spec.of.clone(), to: name_of_other.clone() });
            }
            to.push(set);
        }
        Ok(Evict {
            of: spec.of.clone(),
            members,
            above: spec.above,
            until: spec.until,
            order: spec.order,
            window: spec.window.clone(),
            to,
            only: self.condition(&name(), &spec.only)?,
            min_age: spec.min_age,
        })
    }

    fn names(&mut self, rule: &str, patterns: &[NameEntrySpec]) -> Result<Names, RuleError> {
        let first_entry = self.entries.len() as u32;
        let mut globs = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let glob = Glob::new(&pattern.glob).map_err(|reason| RuleError::BadGlob {
                rule: rule.to_owned(),
                glob: pattern.glob.clone(),
                reason,
            })?;
            globs.push((pattern.glob.clone(), glob));
            self.destination(rule, Some(&pattern.glob), &pattern.to)?;
        }
        let table = NameTable::new(&globs);
        Ok(Names { name: rule.to_owned(), first_entry, globs, table })
    }

    /// The entry of a rule, or of a pattern of the name table.
    fn destination(&mut self, rule: &str, pattern: Option<&str>, to: &DestinationSpec) -> Result<EntryId, RuleError> {
        let name = pattern.map_or_else(|| rule.to_owned(), |pattern| format!("{rule}: {pattern}"));
        let slots = self.slots(rule, &to.branches)?;
        if slots.is_empty() {
            return Err(RuleError::EmptyDestination { rule: name });
        }
        let is_strict = slots.iter().all(|slot| slot.id.is_some());
        Ok(self.entry(EntryInfo { name, to: slots, offline: to.offline, is_strict, warm_from: None }))
    }

    fn entry(&mut self, info: EntryInfo) -> EntryId {
        self.entries.push(info);
        EntryId(self.entries.len() as u32 - 1)
    }

    fn default_list(&self, names: &[String]) -> Result<Vec<Slot>, RuleError> {
        if names.iter().any(|name| name == DEFAULT) {
            return Err(RuleError::DefaultInDefault);
        }
        if names.is_empty() {
            return self.slots(DEFAULT, &[ANY.to_owned()]);
        }
        self.slots(DEFAULT, names)
    }

    fn slots(&self, rule: &str, names: &[String]) -> Result<Vec<Slot>, RuleError> {
        let mut slots: Vec<Slot> = Vec::with_capacity(names.len());
        for name in names {
            if slots.iter().any(|slot| slot.name == *name) {
                return Err(RuleError::DuplicateBranch { rule: rule.to_owned(), branch: name.clone() });
            }
            let sets = match name.as_str() {
                DEFAULT => self.default.iter().flat_map(|slot| slot.sets.iter().cloned()).collect(),
                ANY => SmallVec::from_iter([self.left(&slots)]),
                name => SmallVec::from_iter([self.set(name).ok_or_else(|| self.unknown(rule, name))?]),
            };
            let id = self.known.id(name).filter(|_| ![DEFAULT, ANY].contains(&name.as_str()));
            slots.push(Slot { name: name.clone(), id, sets });
        }
        Ok(slots)
    }

    /// The branches that a list has not named yet.
    fn left(&self, slots: &[Slot]) -> Set {
        let ids = self.known.branches.iter().map(|(_, id)| *id);
        Set { members: ids.filter(|id| !slots.iter().any(|slot| slot.contains(*id))).collect(), group: None }
    }

    fn set(&self, name: &str) -> Option<Set> {
        if let Some(id) = self.known.branch(name) {
            return Some(Set { members: SmallVec::from_iter([id]), group: None });
        }
        let group = self.known.group(name)?;
        let members = self.known.groups.get(group)?.members.iter().copied().collect();
        Some(Set { members, group: Some(group) })
    }

    fn unknown(&self, rule: &str, branch: &str) -> RuleError {
        RuleError::UnknownBranch { rule: rule.to_owned(), branch: branch.to_owned(), known: self.known.names() }
    }
}
