//! Groups, compiled: names, patterns and other groups become one set of branches, in order.

use umbrella_units::BranchId;

use super::error::RuleError;
use super::glob::{Glob, GlobError};
use super::spec::{ANY, DEFAULT, GroupSpec, Spread, TogetherFull};

/// Branches of equal worth.
#[derive(Debug, Clone)]
pub struct Group {
    /// As it was written.
    pub name: String,
    /// Never empty. Their order breaks ties.
    pub members: Vec<BranchId>,
    /// How a member is chosen.
    pub spread: Spread,
    /// Directories that stay together.
    pub(super) together: Vec<Glob>,
    /// What becomes of a file when the member that holds its directory is full.
    pub together_full: TogetherFull,
}

impl Group {
    /// The directory that a file is kept together with: the topmost one above it that a pattern matches.
    pub fn kept_together<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let above = || (1..path.len()).filter(|&end| path[end] == b'/').map(|end| &path[..end]);
        above().find(|dir| self.together.iter().any(|pattern| pattern.matches(dir)))
    }
}

/// A pattern of names: `disk*`.
#[derive(Debug, Clone)]
pub struct NamePattern(Glob);

impl NamePattern {
    /// Whether a text is a pattern, and no name.
    pub fn is_one(text: &str) -> bool {
        text.contains(['*', '?', '[', '{'])
    }

    /// Reads a pattern. It has no slash.
    pub fn new(text: &str) -> Result<NamePattern, GlobError> {
        Glob::new(text).map(NamePattern)
    }

    /// Whether it matches a whole name.
    pub fn matches(&self, name: &str) -> bool {
        // A pattern without a slash is one of the last component of a path.
        self.0.matches(&[b"/", name.as_bytes()].concat())
    }
}

/// The names that rules may use.
#[derive(Debug)]
pub(super) struct KnownNames<'a> {
    pub(super) branches: &'a [(String, BranchId)],
    pub(super) groups: Vec<Group>,
}

impl KnownNames<'_> {
    pub(super) fn branch(&self, name: &str) -> Option<BranchId> {
        self.branches.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
    }

    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.name == name)
    }

    /// The id of the first group: conditions look at groups as at branches, behind the last of those.
    pub(super) fn first_group_id(&self) -> u16 {
        self.branches.iter().map(|(_, id)| id.0 + 1).max().unwrap_or(0)
    }

    /// The id of a branch or group, for conditions.
    pub(super) fn id(&self, name: &str) -> Option<BranchId> {
        let of_group = |group: usize| BranchId(self.first_group_id() + group as u16);
        self.branch(name).or_else(|| self.group(name).map(of_group))
    }

    /// All names, branches first.
    pub(super) fn names(&self) -> Vec<String> {
        let branches = self.branches.iter().map(|(name, _)| name.clone());
        branches.chain(self.groups.iter().map(|group| group.name.clone())).collect()
    }
}

/// Compiles all groups; every mistake is reported, in order.
pub(super) fn compile<'a>(
    specs: &[GroupSpec],
    branches: &'a [(String, BranchId)],
) -> Result<KnownNames<'a>, Vec<RuleError>> {
    let (mut groups, mut errors) = (Vec::with_capacity(specs.len()), Vec::new());
    for (index, spec) in specs.iter().enumerate() {
        let mut resolver = Resolver { specs, branches, under_way: vec![index] };
        match group(&mut resolver, spec) {
            Ok(group) => groups.push(group),
            Err(error) => errors.push(error),
        }
        let taken = branches.iter().any(|(name, _)| *name == spec.name)
            || specs.iter().take(index).any(|earlier| earlier.name == spec.name);
        if taken {
            errors.push(RuleError::NameTaken { group: spec.name.clone() });
        }
        if [DEFAULT, ANY].contains(&spec.name.as_str()) {
            errors.push(RuleError::ReservedName { name: spec.name.clone() });
        }
    }
    if errors.is_empty() { Ok(KnownNames { branches, groups }) } else { Err(errors) }
}

fn group(resolver: &mut Resolver<'_>, spec: &GroupSpec) -> Result<Group, RuleError> {
    let together = spec.together.iter().map(|text| {
        let bad = |reason| RuleError::BadTogether { group: spec.name.clone(), glob: text.clone(), reason };
        Glob::new(text).map_err(bad)
    });
    Ok(Group {
        members: resolver.members(spec)?,
        together: together.collect::<Result<_, _>>()?,
        name: spec.name.clone(),
        spread: spec.spread,
        together_full: spec.together_full,
    })
}

struct Resolver<'a> {
    specs: &'a [GroupSpec],
    branches: &'a [(String, BranchId)],
    /// Groups whose members are being looked for, the outermost first.
    under_way: Vec<usize>,
}

impl Resolver<'_> {
    fn members(&mut self, spec: &GroupSpec) -> Result<Vec<BranchId>, RuleError> {
        let is_name = |item: &str| self.branches.iter().any(|(name, _)| name == item);
        let (out, within): (Vec<&String>, Vec<&String>) =
            spec.branches.iter().partition(|item| item.starts_with('!') && !is_name(item));
        let mut members = Vec::new();
        for item in within {
            for id in self.resolve_item(spec, item, item)? {
                if !members.contains(&id) {
                    members.push(id);
                }
            }
        }
        for item in out {
            let leaves = self.resolve_item(spec, item, item.trim_start_matches('!').trim_start())?;
            let before = members.len();
            members.retain(|id| !leaves.contains(id));
            if members.len() == before {
                return Err(RuleError::LeavesNothingOut { group: spec.name.clone(), item: item.clone() });
            }
        }
        if members.is_empty() {
            return Err(RuleError::EmptyGroup { group: spec.name.clone() });
        }
        Ok(members)
    }

    /// The branches that a name or a pattern stands for. `item`: how it is written in the group.
    fn resolve_item(&mut self, spec: &GroupSpec, item: &str, name: &str) -> Result<Vec<BranchId>, RuleError> {
        if let Some((_, id)) = self.branches.iter().find(|(known, _)| known == name) {
            return Ok(vec![*id]);
        }
        let specs = self.specs;
        if let Some(index) = specs.iter().position(|other| other.name == name) {
            if self.under_way.contains(&index) {
                return Err(RuleError::GroupInItself { group: spec.name.clone(), item: item.to_owned() });
            }
            self.under_way.push(index);
            // A mistake of the other group is reported there.
            let members = self.members(&specs[index]);
            self.under_way.pop();
            return members.map_err(|error| match error {
                RuleError::GroupInItself { .. } => {
                    RuleError::GroupInItself { group: spec.name.clone(), item: item.to_owned() }
                }
                other => other,
            });
        }
        if !NamePattern::is_one(name) {
            let mut known: Vec<String> = self.branches.iter().map(|(name, _)| name.clone()).collect();
            known.extend(specs.iter().map(|group| group.name.clone()).filter(|known| *known != spec.name));
            return Err(RuleError::UnknownMember { group: spec.name.clone(), item: item.to_owned(), known });
        }
        let bad = |reason| RuleError::BadMembers { group: spec.name.clone(), item: item.to_owned(), reason };
        let pattern = NamePattern::new(name).map_err(bad)?;
        let matching = self.branches.iter().filter(|(name, _)| pattern.matches(name));
        let found: Vec<BranchId> = matching.map(|(_, id)| *id).collect();
        if found.is_empty() {
            let known = self.branches.iter().map(|(name, _)| name.clone()).collect();
            return Err(RuleError::MatchesNothing { group: spec.name.clone(), item: item.to_owned(), known });
        }
        Ok(found)
    }
}
