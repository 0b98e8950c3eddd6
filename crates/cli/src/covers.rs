//! Branches that are hidden: access to what lies below the empty directory at their path, and checks that the directory
//! is not taken for the branch.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use umbrella_fs::branch::cover::{self, Cover};
use umbrella_fs::spec::BranchSpec;

use crate::advice::command;
use crate::mounts;
use crate::text::visible_path;

/// Fails if a pool hides this path, because the directory would appear empty.
pub(crate) fn refuse_covered(path: &Path) -> anyhow::Result<()> {
    let path = mounts::resolve(path);
    match cover::all().into_iter().find(|cover| cover.path == path) {
        Some(Cover { pool, .. }) => bail!(
            "{} is hidden by the pool at {}: unmount the pool first ({})",
            visible_path(&path),
            visible_path(&pool),
            command(["unmount", &pool.to_string_lossy()])
        ),
        None => Ok(()),
    }
}

/// Makes the contents of covered branches visible to this process: it gets its own mount namespace, without the covers.
/// Other processes, and threads that run already, see no change. Fails where the kernel refuses the namespace.
pub(crate) fn uncover_for_this_process(branches: &[BranchSpec]) -> anyhow::Result<()> {
    let covers = cover::all();
    let is_covered = |path: &PathBuf| covers.iter().any(|cover| cover.path == *path);
    let hidden: Vec<PathBuf> = branches.iter().map(|branch| mounts::resolve(&branch.path)).filter(is_covered).collect();
    if hidden.is_empty() {
        return Ok(());
    }
    uncover_in_own_namespace(&hidden).with_context(|| {
        let shown: Vec<String> = hidden.iter().map(|path| visible_path(path)).collect();
        format!("{}: hidden by a mounted pool; unmount the pool first, or run this as root", shown.join(", "))
    })
}

fn uncover_in_own_namespace(paths: &[PathBuf]) -> std::io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    // What is unmounted elsewhere goes here too, and nothing that happens here is seen elsewhere.
    let nothing = None::<&Path>;
    nix::mount::mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing)?;
    Ok(paths.iter().try_for_each(|path| cover::uncover_path(path))?)
}
