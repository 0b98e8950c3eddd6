//! A control group with little memory, of either version.

use std::fs;
use std::path::{Path, PathBuf};

/// Taken away when it is dropped, which nobody may be in any more.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// A group that may have this much memory.
    pub fn with_memory(bytes: u64) -> Self {
        let top = Path::new("/sys/fs/cgroup");
        let (top, key) = if top.join("memory/cgroup.procs").exists() {
            (top.join("memory"), "memory.limit_in_bytes")
        } else {
            // Refused where it is on already and somebody is in the group, as in a container.
            let _ = fs::write(top.join("cgroup.subtree_control"), "+memory");
            (top.to_owned(), "memory.max")
        };
        let folder = tempfile::Builder::new().prefix("umbrella-test-").tempdir_in(&top);
        // It is no folder that could be emptied.
        let group = Self(folder.unwrap_or_else(|error| panic!("a control group for memory is needed: {error}")).keep());
        fs::write(group.path().join(key), bytes.to_string())
            .unwrap_or_else(|error| panic!("the control group has no {key}: {error}"));
        group
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = super::poll(super::TIMEOUT, || fs::remove_dir(&self.0).ok()).ok_or("somebody is in it") {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}
