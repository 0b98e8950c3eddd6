//! How rules want files treated: whether they wait in memory, and whether their data passes the daemon by. A rule's word goes before the branch's.

use umbrella_policy::placement::FileFacts;
use umbrella_policy::placement::spec::{StagingMode, Treatment};

use crate::branch::Branch;
use crate::ground::meta::Meta;
use crate::node::{Node, path_of};
use crate::placement::place::new_facts;
use crate::placement::{NewFile, Placement, settled_facts};

impl Placement {
    /// Whether rules forbid that a new file waits in memory.
    pub(crate) fn is_never_staged(&self, new: &NewFile<'_>) -> bool {
        let rules = &self.rules.load().rules;
        if rules.treats().staging.is_none() {
            return false;
        }
        let path = path_of(new.parent, new.name);
        rules.treatment(&new_facts(&path, new), &self.views(), None).staging == Some(StagingMode::Never)
    }

    /// Whether rules forbid that a file that has these names waits in memory any longer.
    pub(crate) fn must_leave_memory(&self, node: &Node, meta: &Meta, area: &Branch) -> bool {
        let rules = &self.rules.load().rules;
        if rules.treats().staging.is_none() {
            return false;
        }
        let xattrs = self.xattrs(&node.rule_path(), meta, area);
        node.paths().iter().any(|path| {
            let facts = FileFacts { xattrs: xattrs.as_deref(), ..settled_facts(path, meta, meta.btime) };
            rules.treatment(&facts, &self.views(), None).staging == Some(StagingMode::Never)
        })
    }

    /// Whether the data of a file on a branch may pass the daemon by, as far as rules and branch say: as the file is when it is opened.
    pub(crate) fn allows_passthrough(&self, path: impl FnOnce() -> Vec<u8>, meta: &Meta, branch: &Branch) -> bool {
        let rules = &self.rules.load().rules;
        let said =
            if rules.treats().passthrough.is_some() { self.treatment(&path(), meta, branch).passthrough } else { None };
        said.unwrap_or(branch.spec.passthrough)
    }

    fn treatment(&self, path: &[u8], meta: &Meta, branch: &Branch) -> Treatment {
        let xattrs = self.xattrs(path, meta, branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..settled_facts(path, meta, self.born(branch, meta)) };
        self.rules.load().rules.treatment(&facts, &self.views(), Some(&self.resident(branch, meta)))
    }
}
