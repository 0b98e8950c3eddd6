//! Rules and branches are bound by name: rules speak of names, the tree of ids, and a branch that is removed and added
//! again has another id. So the rules in force keep their names, those of removed branches too, and are bound anew when
//! a branch joins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use umbrella_policy::placement::spec::{ANY, RulesSpec};
use umbrella_policy::placement::{EntryInfo, RuleError, Rules, Slot};
use umbrella_units::BranchId;

use crate::branch::Branch;
use crate::error::Error;
use crate::placement::Placement;
use crate::spec::STAGING;
use crate::warning::WarningSubject;

/// Rules in force, with their counters.
pub(crate) struct ActiveRules {
    pub(crate) rules: Rules,
    pub(crate) hits: Vec<AtomicU64>,
    /// By entry the free space at which its warning of a full list ends; 0: there is none.
    pub(crate) full: Vec<AtomicU64>,
    /// By group the member that got its last file; more than any id: none did.
    pub(crate) last_used: Vec<AtomicU32>,
    /// By entry the branches of its list.
    pub(crate) lists: Vec<Arc<[BranchId]>>,
    spec: RulesSpec,
    /// Which branch each name means; a removed one keeps its name until another has it.
    names: BTreeMap<String, BranchId>,
}

impl ActiveRules {
    /// Binds rules to branches; an error where they name one that is not there.
    pub(crate) fn bind(spec: RulesSpec, branches: &[Arc<Branch>]) -> Result<ActiveRules, RuleError> {
        ActiveRules::compile(spec, names_of(branches).collect())
    }

    /// The same rules, with the branches that there are now; the counters go on.
    fn rebind(&self, branches: &[Arc<Branch>]) -> Result<ActiveRules, RuleError> {
        let mut names = self.names.clone();
        names.extend(names_of(branches));
        Ok(ActiveRules { hits: self.counted(), ..ActiveRules::compile(self.spec.clone(), names)? })
    }

    /// The counters, for rules in the same order.
    fn counted(&self) -> Vec<AtomicU64> {
        self.hits.iter().map(|hits| AtomicU64::new(hits.load(Ordering::Relaxed))).collect()
    }

    fn compile(spec: RulesSpec, names: BTreeMap<String, BranchId>) -> Result<ActiveRules, RuleError> {
        let mut in_order: Vec<(String, BranchId)> = names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        in_order.sort_by_key(|(_, id)| *id);
        let rules = Rules::compile(&spec, &in_order)?;
        let hits = rules.entries().iter().map(|_| AtomicU64::new(0)).collect();
        let full = rules.entries().iter().map(|_| AtomicU64::new(0)).collect();
        let last_used = rules.groups().iter().map(|_| AtomicU32::new(u32::MAX)).collect();
        let members = |entry: &EntryInfo| entry.to.iter().flat_map(Slot::members).collect();
        let lists = rules.entries().iter().map(members).collect();
        Ok(ActiveRules { rules, hits, full, last_used, lists, spec, names })
    }

    /// As they were written.
    pub(crate) fn spec(&self) -> &RulesSpec {
        &self.spec
    }

    /// What a branch was called that is in the pool no more.
    fn former_name(&self, id: BranchId) -> Option<&str> {
        self.names.iter().find(|(_, of)| **of == id).map(|(name, _)| name.as_str())
    }
}

fn names_of(branches: &[Arc<Branch>]) -> impl Iterator<Item = (String, BranchId)> {
    // No list means the staging area, not even one of all branches.
    let named = branches.iter().filter(|branch| !branch.spec.name.is_empty() && branch.spec.name != STAGING);
    named.map(|branch| (branch.spec.name.clone(), branch.id))
}

impl Placement {
    /// Replaces the rules. Their counters begin at zero.
    pub(crate) fn reload_rules(&self, spec: &RulesSpec) -> Result<(), Error> {
        let _epochs = self.branches.known_epochs.lock();
        let rules = ActiveRules::bind(spec.clone(), &self.branches.list.load())?;
        let before = self.rules.swap(Arc::new(rules));
        for entry in before.rules.entries() {
            self.context.clear_warning(&WarningSubject::List(entry.name.clone()));
        }
        Ok(())
    }

    /// Files that no rule names may go to this branch too, after those of the default list.
    pub(crate) fn append_to_default(&self, branch: &str) -> Result<(), Error> {
        let _epochs = self.branches.known_epochs.lock();
        let active = self.rules.load();
        let default = &active.spec.default;
        if default.is_empty() || default.iter().any(|name| name == branch || name == ANY) {
            return Ok(());
        }
        let spec =
            RulesSpec { default: [&active.spec.default[..], &[branch.to_owned()]].concat(), ..active.spec.clone() };
        let hits = active.counted();
        self.rules.store(Arc::new(ActiveRules { hits, ..ActiveRules::compile(spec, active.names.clone())? }));
        Ok(())
    }

    /// Whether a branch that is about to be added could be a member of a group.
    pub(crate) fn may_join(&self, branch: &str, group: &str) -> Result<(), Error> {
        let active = self.rules.load();
        let spec = with_member(&active.spec, branch, group)?;
        let mut names = active.names.clone();
        let new = BranchId(self.branches.list.load().len() as u16);
        names.insert(branch.to_owned(), new);
        let rules = ActiveRules::compile(spec, names)?.rules;
        if rules.groups().iter().any(|known| known.name == group && known.members.contains(&new)) {
            return Ok(());
        }
        Err(Error::LeftOutOfGroup { name: branch.to_owned(), group: group.to_owned() })
    }

    /// Makes a branch a member of a group.
    pub(crate) fn append_to_group(&self, branch: &str, group: &str) -> Result<(), Error> {
        let _epochs = self.branches.known_epochs.lock();
        let active = self.rules.load();
        let spec = with_member(&active.spec, branch, group)?;
        let hits = active.counted();
        self.rules.store(Arc::new(ActiveRules { hits, ..ActiveRules::compile(spec, active.names.clone())? }));
        Ok(())
    }

    /// A branch joined: rules that name it mean it.
    pub(crate) fn rebind_rules(&self) {
        self.forget_full();
        match self.rules.load().rebind(&self.branches.list.load()) {
            Ok(rules) => self.rules.store(Arc::new(rules)),
            Err(error) => {
                tracing::error!(%error, "cannot bind the rules to the new list of branches: they keep the old one");
            }
        }
    }

    /// What a branch is called, or was before it was removed.
    pub(crate) fn branch_name(&self, id: BranchId) -> String {
        let called = self.branches.get(id).map_or_else(|_| id.to_string(), |branch| branch.spec.name.clone());
        match self.removed_name(id) {
            Some(name) => format!("{name} (removed)"),
            None => called,
        }
    }

    /// The former name of a branch that was removed.
    pub(crate) fn removed_name(&self, id: BranchId) -> Option<String> {
        let removed = self.branches.get(id).is_ok_and(|branch| branch.spec.name.is_empty());
        removed.then(|| self.rules.load().former_name(id).unwrap_or("a branch").to_owned())
    }

    /// An entry of a list, for people.
    pub(crate) fn slot_name(&self, slot: &Slot) -> String {
        match self.removed_from(slot) {
            Some(name) => format!("{name} (removed)"),
            None => slot.name.clone(),
        }
    }

    /// The name of the branch that an entry of a list means, if it was removed.
    pub(crate) fn removed_from(&self, slot: &Slot) -> Option<String> {
        slot.branch().and_then(|id| self.removed_name(id)).filter(|name| *name == slot.name)
    }

    /// Branches that rules name and that are in the pool no more.
    pub(crate) fn removed_in_rules(&self) -> Vec<String> {
        let active = self.rules.load();
        let slots = active.rules.entries().iter().flat_map(|entry| &entry.to);
        let names: std::collections::BTreeSet<_> = slots.filter_map(|slot| self.removed_from(slot)).collect();
        names.into_iter().collect()
    }
}

/// Rules in which a group names a branch.
fn with_member(spec: &RulesSpec, branch: &str, group: &str) -> Result<RulesSpec, Error> {
    let mut spec = spec.clone();
    let known = spec.groups.iter().map(|group| group.name.clone()).collect();
    let Some(found) = spec.groups.iter_mut().find(|known| known.name == group) else {
        return Err(Error::UnknownGroup { name: group.to_owned(), is_branch: false, known });
    };
    if !found.branches.iter().any(|name| name == branch) {
        found.branches.push(branch.to_owned());
    }
    Ok(spec)
}
