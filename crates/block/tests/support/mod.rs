//! What the tests of this folder share.
#![allow(dead_code)] // Each test program uses a part of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// Runs a program, which must be there, at most two minutes, without any input.
pub(crate) fn start(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    let output = command.args(["-k", "5", "120", program]).args(arguments).stdin(std::process::Stdio::null()).output();
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
