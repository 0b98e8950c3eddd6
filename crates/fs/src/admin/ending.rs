//! The end of a pool.

use std::sync::atomic::Ordering;

use crate::admin::Admin;
use crate::error::Error;
use crate::staging::HANGS;

impl Admin {
    /// Before an unmount, while the tree can be used and asked: files leave memory. With `keep_staged` those that
    /// cannot stay for the next mount; what comes after it follows at the end.
    pub(crate) fn empty_staging(&self, keep_staged: bool) -> Result<(), Error> {
        let files = self.staging.empty_staging();
        if files == 0 || keep_staged {
            return Ok(());
        }
        let branches = self.staging.hanging_branches();
        if branches.is_empty() {
            return Err(Error::StagedLeft { files, why: self.staging.why_files_stay() });
        }
        Err(Error::BranchesHang { files, branches, waited: HANGS })
    }

    /// Closes all branches, so that another daemon may use them.
    pub(crate) fn close_branches(&self) {
        for branch in self.branches.list.load().iter() {
            branch.close();
        }
    }

    /// Ends the pool's threads. A copy under way is dropped; a commit under way is finished.
    pub(crate) fn shut_down(&self) {
        self.context.stop();
        self.branches.wakeup.wake();
        self.branches.levels.wake();
        for node in self.tree.nodes.snapshot() {
            if let Some(file) = node.file()
                && let Some(cancel) = &file.state.read().copying
            {
                cancel.store(true, Ordering::Relaxed);
            }
        }
        self.keep_errors();
        self.migrate.stop();
        self.staging.stop();
        self.write_back.stop_flushers();
        let hanging = self.staging.hanging_branches();
        for branch in self.branches.list.load().iter() {
            if branch.is_online() && !hanging.contains(&branch.spec.name) {
                self.keep_numbers_of(branch);
                self.keep_heat_of(branch);
            }
        }
    }
}
