//! Loop devices of losetup(8).

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::run;

/// A loop device on a file; taken away when it is dropped.
#[derive(Debug)]
pub struct Looped(String);

impl Looped {
    pub fn on(file: &Path) -> Looped {
        let args: [&OsStr; 3] = ["--find".as_ref(), "--show".as_ref(), file.as_os_str()];
        let output = run("losetup", args);
        Looped(String::from_utf8(output.stdout).expect("text").trim().to_owned())
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The same as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}
