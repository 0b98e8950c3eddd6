//! What the mount refuses, and how.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};

use crate::support::assert_errno;
use crate::support::tree::names;
use crate::{Data, Two};

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags).map_err(io::Error::from)
}

/// Each branch has a folder of this name; at the root of the pool nobody sees it, or makes another.
#[test]
fn the_hidden_folder_is_neither_seen_nor_made() {
    let two = Two::new(Data::Passthrough);
    fs::write(two.join("file"), "x").unwrap();
    fs::create_dir(two.join("dir")).unwrap();
    let hidden = two.join(".umbrella");
    assert!(two.on("a", ".umbrella").exists());
    assert_eq!(names(&two.mount_point()), ["dir", "file"]);
    assert_errno(fs::symlink_metadata(&hidden), libc::ENOENT);
    assert_errno(fs::read_dir(hidden.join("intents")), libc::ENOENT);
    assert_errno(fs::create_dir(&hidden), libc::EPERM);
    assert_errno(File::create(&hidden), libc::EPERM);
    assert_errno(symlink("/", &hidden), libc::EPERM);
    assert_errno(fs::hard_link(two.join("file"), &hidden), libc::EPERM);
    assert_errno(fs::rename(two.join("file"), &hidden), libc::EPERM);
    assert_errno(fs::rename(two.join("dir"), &hidden), libc::EPERM);
    // Below the root it is a name like any other.
    fs::create_dir(two.join("dir/.umbrella")).unwrap();
    assert_eq!(names(&two.join("dir")), [".umbrella"]);
}

#[test]
fn a_whiteout_is_refused() {
    let two = Two::new(Data::Passthrough);
    fs::write(two.join("file"), "x").unwrap();
    assert_errno(rename_with(&two.join("file"), &two.join("other"), RenameFlags::WHITEOUT), libc::EINVAL);
    assert_eq!(names(&two.mount_point()), ["file"]);
}

#[test]
fn flags_of_files_are_not_passed_on() {
    let two = Two::new(Data::Passthrough);
    let file = File::create(two.join("file")).unwrap();
    let mut flags: libc::c_long = 0;
    // SAFETY: the call fills in what the pointer refers to.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) };
    assert_errno(if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }, libc::ENOTTY);
}
