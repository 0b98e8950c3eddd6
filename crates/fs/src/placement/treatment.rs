//! How rules want files treated: whether they wait in memory, and whether their data passes the daemon by. A rule's
//! word goes before the branch's.

use std::sync::Arc;

use umbrella_policy::placement::FileFacts;
use umbrella_policy::placement::spec::{StagingMode, Treatment};

use crate::area::{Area, Wait};
use crate::branch::Branch;
use crate::ground::meta::Meta;
use crate::node::{Node, path_of};
use crate::placement::place::new_facts;
use crate::placement::{NewFile, Placement, settled_facts};

impl Placement {
    /// How a new file waits in memory; `None`: it does not.
    pub(crate) fn wait_of(&self, new: &NewFile<'_>, area: &Area) -> Option<Wait> {
        if !self.rules.load().rules.may_stage(area.settings().mode) {
            return None;
        }
        self.wait_by(&new_facts(&path_of(new.parent, new.name), new), area)
    }

    /// As [`Placement::wait_of`], by the facts of the new file.
    pub(crate) fn wait_by(&self, facts: &FileFacts<'_>, area: &Area) -> Option<Wait> {
        let (active, views) = (self.rules.load(), self.views());
        let rules = &active.rules;
        let said = rules.treats().staging.and_then(|_| rules.treatment(facts, &views, None).staging);
        let entry = || rules.deciding_entry(facts, &views, None);
        let (threshold, entry) = match said.unwrap_or(area.settings().mode) {
            StagingMode::Never => return None,
            StagingMode::Always => {
                let entry = entry();
                // What must be nowhere else is not in memory either, which may be swapped out, or keep it for others to
                // find.
                if rules.forbids(entry, area.branch.id) {
                    return None;
                }
                (area.settings().max_file, entry)
            }
            StagingMode::Auto => {
                let outlook = rules.outlook(facts, &views, area.settings().max_file)?;
                (outlook.last_threshold.unwrap_or(area.settings().max_file), entry())
            }
        };
        Some(Wait { threshold, list: Arc::clone(active.lists.get(entry.index())?) })
    }

    /// Whether a file waits in memory that has these attributes, and how: by the strictest word of its names.
    pub(crate) fn staging_mode(&self, node: &Node, meta: &Meta, area: &Area) -> StagingMode {
        let rules = &self.rules.load().rules;
        if rules.treats().staging.is_none() {
            return area.settings().mode;
        }
        let xattrs = self.xattrs(&node.rule_path(), meta, &area.branch);
        let mode = |path: &Vec<u8>| {
            let facts = FileFacts { xattrs: xattrs.as_deref(), ..settled_facts(path, meta, meta.btime) };
            rules.treatment(&facts, &self.views(), None).staging.unwrap_or(area.settings().mode)
        };
        let modes: Vec<StagingMode> = node.paths().iter().map(mode).collect();
        let strictest = [StagingMode::Never, StagingMode::Auto].into_iter().find(|mode| modes.contains(mode));
        strictest.unwrap_or(StagingMode::Always)
    }

    /// Whether the data of a file on a branch may pass the daemon by, as far as rules and branch say: as the file is
    /// when it is opened.
    pub(crate) fn allows_passthrough(&self, path: impl FnOnce() -> Vec<u8>, meta: &Meta, branch: &Branch) -> bool {
        let rules = &self.rules.load().rules;
        let said =
            if rules.treats().passthrough.is_some() { self.treatment(&path(), meta, branch).passthrough } else { None };
        said.unwrap_or(branch.settings().passthrough)
    }

    fn treatment(&self, path: &[u8], meta: &Meta, branch: &Branch) -> Treatment {
        let xattrs = self.xattrs(path, meta, branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.facts(path, meta, branch) };
        self.rules.load().rules.treatment(&facts, &self.views(), Some(&self.resident(branch, meta)))
    }
}
