//! What the mount refuses, and how.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use crate::support::assert_errno;
use crate::support::tree::names;
use crate::{Data, Two};

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
