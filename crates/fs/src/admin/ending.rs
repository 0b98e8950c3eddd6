//! The end of a pool.

use std::sync::atomic::Ordering;

use crate::admin::Admin;

impl Admin {
    /// Lets go of all branches: from now on another daemon may have them.
    pub(crate) fn close_branches(&self) {
        for branch in self.branches.list.load().iter() {
            branch.close();
        }
    }

    /// Ends the pool's threads. A copy under way is dropped; a commit under way is finished.
    pub(crate) fn shut_down(&self) {
        self.context.stop();
        self.branches.attention.call();
        self.branches.levels.call();
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
