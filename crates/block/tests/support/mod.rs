//! What the tests of this folder share.
#![allow(dead_code)] // Each test program uses a part of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use umbrella_block::BlockDevice;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice};
use umbrella_block::serve::loop_file::LoopFile;

/// Runs a program, which must be there and end well; its standard output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = start(program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?} failed: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program, which must be there, at most ten minutes, without any input.
pub(crate) fn start(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    let output = command.args(["-k", "5", "600", program]).args(arguments).stdin(std::process::Stdio::null()).output();
    let output = output.expect("timeout(1) runs");
    assert_ne!(output.status.code(), Some(127), "{program} is missing: scripts/setup.sh installs it");
    output
}

/// A mounted file system; unmounted when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn new(device: &Path, at: &Path, options: &[&str]) -> Mount {
        let paths = [device.to_str().expect("UTF-8"), at.to_str().expect("UTF-8")];
        run("mount", &[options, &paths[..]].concat());
        Mount(at.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = self.0.to_str().expect("UTF-8");
        let unmounted = start("umount", &[path]);
        if !unmounted.status.success() {
            start("umount", &["--lazy", path]);
        }
    }
}

/// Bytes that look random and are the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut bytes = vec![0; length];
    rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// A device as a loop device. Fields are dropped in order: first the loop device, then the file below it.
pub(crate) struct Disk {
    pub(crate) device: LoopDevice,
    pub(crate) file: LoopFile,
    _folder: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, options: &AttachOptions) -> Disk {
        let folder = tempfile::tempdir().expect("a folder");
        let file = LoopFile::mount(device, folder.path(), options.access).expect("the file is mounted");
        let device = LoopDevice::attach(&file.path(), options).expect("it is attached");
        Disk { device, file, _folder: folder }
    }

    pub(crate) fn path(&self) -> &str {
        self.device.path().to_str().expect("UTF-8")
    }

    pub(crate) fn queue(&self, setting: &str) -> String {
        let name = self.device.path().file_name().expect("a name").to_str().expect("UTF-8");
        fs::read_to_string(format!("/sys/block/{name}/queue/{setting}")).expect("sysfs").trim().to_owned()
    }

    pub(crate) fn take_apart(mut self) {
        self.device.detach().expect("nobody uses it");
        self.file.unmount().expect("nobody uses it");
    }
}
