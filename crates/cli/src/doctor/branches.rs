//! How the branches of a pool are mounted, and on what.

use std::path::Path;

use umbrella_fs::branch::cover::is_covered;
use umbrella_fs::spec::BranchSpec;

use super::Diagnostic;
use crate::mounts::{self, MountInfo};
use crate::storage::{self, Storage};
use crate::text::{quoted, visible_path};

/// Looks at every branch that answers.
pub(crate) fn items(branches: &[BranchSpec]) -> Vec<Diagnostic> {
    let mut items = Vec::new();
    for branch in branches {
        let path = mounts::resolve(&branch.path);
        // The check of the configuration reports a branch that does not answer. Of a hidden branch only the cover could
        // be seen.
        if !mounts::is_responsive(&path, std::time::Duration::from_secs(2)) || is_covered(&path) {
            continue;
        }
        if let Some((at, mounted)) = mounts::above(&path) {
            items.extend(of_mount(branch, &at, &mounted));
        }
        items.extend(storage::inspect(&path).ok().and_then(|storage| of_storage(branch, &storage)));
    }
    items
}

fn about(branch: &BranchSpec) -> String {
    format!("branch {}", quoted(&branch.name))
}

fn of_mount(branch: &BranchSpec, at: &Path, mounted: &MountInfo) -> Vec<Diagnostic> {
    let has = |option: &str| mounted.options.iter().any(|known| known == option);
    let at = visible_path(at);
    let mut items = Vec::new();
    if has("ro") && !branch.read_only {
        let text = format!("{at} is mounted read-only, as Linux does after a disk error");
        let todo =
            format!("check `dmesg`, repair the file system, and mount it again; or set `read_only = true` ({at})");
        items.push(Diagnostic::problem(about(branch), text).todo(todo));
    }
    if has("nosuid") || has("noexec") {
        let which = ["nosuid", "noexec"].into_iter().filter(|option| has(option)).collect::<Vec<_>>().join(",");
        let text = format!(
            "{at} is mounted {which}, so programs on this branch behave differently from those on \
            others"
        );
        items.push(
            Diagnostic::remark(about(branch), text)
                .todo("mount all branches alike; for the whole tree, give the option to the pool"),
        );
    }
    if has("sync") {
        let text = format!("{at} is mounted sync: every write waits for the disk");
        items.push(Diagnostic::remark(about(branch), text).todo(format!("mount -o remount,async {at}")));
    }
    items
}

fn of_storage(branch: &BranchSpec, storage: &Storage) -> Option<Diagnostic> {
    let is_meant = branch.require_mount == Some(false);
    (storage.is_on_root && !is_meant).then(|| {
        let text = format!("{} is on the system's own disk, which its files can fill", visible_path(&storage.path));
        Diagnostic::remark(about(branch), text)
            .todo("mount the branch's disk there, or set `require_mount = false` if this is intended")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch() -> BranchSpec {
        BranchSpec::new("disk1", "/mnt/disk1")
    }

    fn mounted(options: &str) -> MountInfo {
        let options = options.split(',').map(str::to_owned).collect();
        MountInfo { kind: "ext4".to_owned(), source: "/dev/sda1".to_owned(), options, device: 1 }
    }

    #[test]
    fn a_disk_that_became_read_only_is_a_problem_unless_it_is_meant_so() {
        let of = |branch: &BranchSpec, options| of_mount(branch, Path::new("/mnt/disk1"), &mounted(options));
        let found = of(&branch(), "ro,relatime");
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("read-only"));
        assert_eq!(of(&BranchSpec { read_only: true, ..branch() }, "ro"), []);
        assert_eq!(of(&branch(), "rw,noatime,nodev"), []);
        assert_eq!(of(&branch(), "rw,nosuid,noexec,sync").len(), 2);
    }
}
