//! What a configuration says that a live pool does not do: rules are taken up at once, the rest by the next mount.

use crate::admin::Admin;
use crate::spec::{BranchSpec, PoolSpec};

impl Admin {
    /// The keys that say something else in `new`, rules aside, as people find them in the file. The mount point is not looked at.
    pub(crate) fn keys_not_in_force(&self, new: &PoolSpec) -> Vec<String> {
        let mut keys = pool_keys(&self.context.spec, new);
        let branches = self.branches.list.load();
        let live: Vec<&BranchSpec> = branches
            .iter()
            .filter(|branch| !branch.spec.name.is_empty() && !self.branches.is_staging(branch.id))
            .map(|branch| &branch.spec)
            .collect();
        for branch in &new.branches {
            match live.iter().find(|known| known.name == branch.name) {
                Some(known) => keys.extend(
                    branch_keys(known, branch).into_iter().map(|key| format!("{key} of branch {:?}", branch.name)),
                ),
                None => keys.push(format!("branch {:?}, which is new", branch.name)),
            }
        }
        let gone = live.iter().filter(|known| new.branches.iter().all(|branch| branch.name != known.name));
        keys.extend(gone.map(|known| format!("branch {:?}, which is missing", known.name)));
        keys
    }
}

fn pool_keys(old: &PoolSpec, new: &PoolSpec) -> Vec<String> {
    let keys = [
        (old.on_branch_error != new.on_branch_error, "on_branch_error"),
        (old.directories != new.directories, "directories"),
        (old.cache_timeout != new.cache_timeout, "cache_timeout"),
        (old.probe_interval != new.probe_interval, "probe_interval"),
        (old.probe_timeout != new.probe_timeout, "probe_timeout"),
        (old.threads != new.threads, "threads"),
        (old.transport != new.transport, "transport"),
        (old.enforce.window != new.enforce.window, "window of [enforce]"),
        (old.enforce.bandwidth != new.enforce.bandwidth, "bandwidth of [enforce]"),
        (old.staging != new.staging, "[staging]"),
    ];
    changed(&keys).map(str::to_owned).collect()
}

fn branch_keys(old: &BranchSpec, new: &BranchSpec) -> Vec<&'static str> {
    let keys = [
        (old.path != new.path, "path"),
        (old.min_free != new.min_free, "min_free"),
        (old.headroom != new.headroom, "headroom"),
        (old.read_only != new.read_only, "read_only"),
        (old.create != new.create, "create"),
        (old.max_files != new.max_files, "max_files"),
        (old.hide != new.hide, "hide"),
        (old.optional != new.optional, "optional"),
        (old.require_mount != new.require_mount, "require_mount"),
        (old.min_stay != new.min_stay, "min_stay"),
        (old.passthrough != new.passthrough, "passthrough"),
        (old.write_back != new.write_back, "write_back"),
    ];
    changed(&keys).collect()
}

fn changed<'k>(keys: &'k [(bool, &'static str)]) -> impl Iterator<Item = &'static str> + 'k {
    keys.iter().filter(|(differs, _)| *differs).map(|(_, key)| *key)
}
