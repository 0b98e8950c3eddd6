//! More methods of [`TestDisks`], for these tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::disk::unmount;
use crate::support::test_disks::TestDisks;
use crate::support::{run, said};

/// A mounted file system; unmounted when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

impl TestDisks {
    /// Writes the configuration `name`.
    pub(crate) fn config(&self, name: &str, content: &str) -> String {
        let path = self.path(&format!("{name}.disk.toml"));
        fs::write(&path, content).expect("the folder can be written");
        text(&path)
    }

    /// What it says, however it ends.
    pub(crate) fn said(&self, args: &[&str]) -> String {
        said(&self.run(args))
    }

    /// The device that a disk is attached to.
    pub(crate) fn attach(&self, disk: &str) -> String {
        self.given(&["attach", disk]).trim().to_owned()
    }

    pub(crate) fn mount(&self, device: &str) -> Mount {
        let at = self.path("mnt");
        fs::create_dir_all(&at).expect("the folder can be written");
        run("mount", [device.as_ref(), at.as_os_str()]);
        Mount(at)
    }
}

/// A path as text.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}
