//! From rules as they were written to [`Rules`]: names become ids, patterns are compiled, mistakes become errors.

use umbrella_units::BranchId;

use super::condition::{BadCondition, Test};
use super::error::RuleError;
use super::expression::Expression;
use super::glob::Glob;
use super::name_table::NameTable;
use super::rules::{Asked, EntryId, EntryInfo, Names, Rule, Rules, When, xattrs_of};
use super::spec::{Condition, DestinationSpec, NameEntrySpec, RuleKindSpec, RulesSpec, Treatment};
use super::treatment::Treat;

/// Name of the default list in entries and errors.
pub(super) const DEFAULT: &str = "default";

type Resolve<'a> = &'a dyn Fn(&str) -> Option<BranchId>;

impl Rules {
    /// Compiles rules. `resolve` gives the id of a branch name.
    pub fn compile(spec: &RulesSpec, resolve: Resolve<'_>) -> Result<Rules, RuleError> {
        compile(spec, resolve)
    }
}

fn compile(spec: &RulesSpec, resolve: Resolve<'_>) -> Result<Rules, RuleError> {
    let mut compiler = Compiler { spec, resolve, entries: Vec::new() };
    let mut ordered = Vec::with_capacity(spec.rules.len());
    let mut table: Option<&str> = None;
    for rule in &spec.rules {
        ordered.push(match &rule.kind {
            RuleKindSpec::When { conditions, to } => {
                let treatment = rule.treatment;
                Rule::When(When { treatment, ..compiler.when(&rule.name, conditions, to)? })
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
    if spec.default.is_empty() {
        return Err(RuleError::EmptyDefault);
    }
    let to = compiler.branches(DEFAULT, &spec.default)?;
    compiler.entry(DEFAULT.to_owned(), to, true);
    let names = known_names(spec, resolve);
    Ok(Rules {
        asked: Asked::of(&ordered),
        xattrs: xattrs_of(&ordered),
        treats: spec.rules.iter().map(|rule| rule.treatment).fold(Treatment::default(), Treatment::or),
        ordered,
        entries: compiler.entries,
        names,
    })
}

struct Compiler<'a> {
    spec: &'a RulesSpec,
    resolve: Resolve<'a>,
    entries: Vec<EntryInfo>,
}

impl Compiler<'_> {
    fn when(&mut self, rule: &str, conditions: &[Condition], to: &DestinationSpec) -> Result<When, RuleError> {
        let condition = self.condition(rule, conditions)?;
        let (entry, first) = self.destination(rule, rule.to_owned(), to)?;
        Ok(When { entry, first, has_band: condition.mentions(Test::has_band), condition, treatment: Treatment::default() })
    }

    fn condition(&self, rule: &str, conditions: &[Condition]) -> Result<Expression, RuleError> {
        Expression::compile(conditions, self.resolve).map_err(|bad| match bad {
            BadCondition::UnknownBranch(branch) => self.unknown(rule, branch),
            BadCondition::BadComparison(condition) => RuleError::BadComparison { rule: rule.to_owned(), condition },
            BadCondition::BadGlob(glob, reason) => {
                RuleError::BadGlob { rule: rule.to_owned(), glob: glob.to_owned(), reason }
            }
            BadCondition::TooDeep => RuleError::TooDeep { rule: rule.to_owned() },
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
            self.destination(rule, format!("{rule}: {}", pattern.glob), &pattern.to)?;
        }
        let table = NameTable::new(&globs);
        Ok(Names { name: rule.to_owned(), first_entry, globs, table })
    }

    fn destination(
        &mut self,
        rule: &str,
        name: String,
        to: &DestinationSpec,
    ) -> Result<(EntryId, BranchId), RuleError> {
        let branches = self.branches(rule, &to.branches)?;
        let Some(&first) = branches.first() else {
            return Err(RuleError::EmptyDestination { rule: name });
        };
        Ok((self.entry(name, branches, to.spill), first))
    }

    fn entry(&mut self, name: String, to: Vec<BranchId>, spill: bool) -> EntryId {
        self.entries.push(EntryInfo { name, to, spill });
        EntryId(self.entries.len() as u32 - 1)
    }

    fn branches(&self, rule: &str, names: &[String]) -> Result<Vec<BranchId>, RuleError> {
        let mut ids = Vec::with_capacity(names.len());
        for name in names {
            let id = (self.resolve)(name).ok_or_else(|| self.unknown(rule, name))?;
            if ids.contains(&id) {
                return Err(RuleError::DuplicateBranch { rule: rule.to_owned(), branch: name.clone() });
            }
            ids.push(id);
        }
        Ok(ids)
    }

    fn unknown(&self, rule: &str, branch: &str) -> RuleError {
        let known = known_names(self.spec, self.resolve).into_iter().map(|(_, name)| name).collect();
        RuleError::UnknownBranch { rule: rule.to_owned(), branch: branch.to_owned(), known }
    }
}

/// Branch names that the rules use and that exist, in order of first use.
fn known_names(spec: &RulesSpec, resolve: Resolve<'_>) -> Vec<(BranchId, String)> {
    let mut known: Vec<(BranchId, String)> = Vec::new();
    let mut note = |name: &String| {
        if let Some(id) = resolve(name)
            && !known.iter().any(|(other, _)| *other == id)
        {
            known.push((id, name.clone()));
        }
    };
    spec.default.iter().for_each(&mut note);
    for rule in &spec.rules {
        match &rule.kind {
            RuleKindSpec::When { conditions, to } => {
                to.branches.iter().for_each(&mut note);
                named_in(conditions).for_each(&mut note);
            }
            RuleKindSpec::Treat { conditions } => named_in(conditions).for_each(&mut note),
            RuleKindSpec::Names(patterns) => {
                patterns.iter().flat_map(|pattern| &pattern.to.branches).for_each(&mut note);
            }
        }
    }
    known
}

/// Branches that conditions name.
fn named_in(conditions: &[Condition]) -> impl Iterator<Item = &String> {
    Condition::leaves(conditions).into_iter().filter_map(|condition| match condition {
        Condition::Space { branch, .. } | Condition::Online { branch, .. } => Some(branch),
        _ => None,
    })
}
