use rustix::fs::{AtFlags, chmodat, chownat};

use super::*;

fn clone(from: &Path, to: &Path) -> Result<bool, RelocateError> {
    let (from, parent) = (open(from), open(to.parent().unwrap()));
    clone_dir_durably(from.as_fd(), parent.as_fd(), to.file_name().unwrap(), &ALL)
}

fn dressed(path: &Path) {
    fs::create_dir(path).unwrap();
    chownat(CWD, path, Some(rustix::fs::Uid::from_raw(11)), Some(rustix::fs::Gid::from_raw(12)), AtFlags::empty())
        .unwrap();
    set_xattr(path, "user.a", b"b");
    set_xattr(path, ACL, &acl());
    set_xattr(path, "system.posix_acl_default", &acl());
    chmodat(CWD, path, Mode::from_raw_mode(0o3750), AtFlags::empty()).unwrap();
    set_times(path, (1, 2), (3, 4));
}

/// Directories of two file systems differ in size.
fn look_of(path: &Path) -> Snapshot {
    Snapshot { size: 0, ..snapshot(path) }
}

#[test]
fn a_cloned_directory_looks_like_the_first() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=1m"));
    let (from, to) = (source.path().join("dir"), target.path().join("dir"));
    dressed(&from);
    set_times(target.path(), (5, 6), (7, 8));
    assert_eq!(clone(&from, &to), Ok(true));
    assert_eq!(look_of(&to), look_of(&from));
    assert_eq!(snapshot(target.path()).mtime, (7, 8), "the parent looks untouched");
    assert_eq!(clone(&from, &to), Ok(false));
    assert_eq!(look_of(&to), look_of(&from));
}

#[test]
fn a_directory_inherits_nothing_that_the_first_does_not_have() {
    let source = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    let (from, to) = (source.path().join("dir"), target.path().join("dir"));
    fs::create_dir(&from).unwrap();
    set_xattr(target.path(), "system.posix_acl_default", &acl());
    chmodat(CWD, target.path(), Mode::from_raw_mode(0o2755), AtFlags::empty()).unwrap();
    assert_eq!(clone(&from, &to), Ok(true));
    assert_eq!(look_of(&to), look_of(&from));
}

#[test]
fn attributes_that_are_gone_from_one_directory_go_from_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    dressed(&to);
    set_xattr(&to, "user.umbrella.branch", b"mine");
    let lost = sync_dir_attrs(open(&from).as_fd(), open(&to).as_fd(), &ALL).unwrap();
    assert_eq!(lost, []);
    assert_eq!(snapshot(&to).xattrs, [(OsString::from("user.umbrella.branch"), b"mine".to_vec())]);
    assert_eq!(Snapshot { xattrs: Vec::new(), ..look_of(&to) }, look_of(&from));
}

#[test]
fn a_file_in_the_place_of_a_directory_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("from")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("from", dir.path().join("link")).unwrap();
    for name in ["file", "link"] {
        assert_eq!(clone(&dir.path().join("from"), &dir.path().join(name)), Err(RelocateError::NotDirectory));
    }
}

#[test]
fn equal_directories_are_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    dressed(&from);
    clone(&from, &to).unwrap();
    let before = Fingerprint::of_fd(open(&to).as_fd()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(15));
    clone(&from, &to).unwrap();
    assert_eq!(Fingerprint::of_fd(open(&to).as_fd()).unwrap(), before);
}

#[test]
fn what_a_branch_cannot_keep_of_a_directory_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let target = Tmpfs::new(c"size=64k");
    let (from, to) = (dir.path().join("from"), target.path().join("to"));
    dressed(&from);
    fs::create_dir(&to).unwrap();
    let without = Abilities { ownership: false, ..ALL };
    assert_eq!(sync_dir_attrs(open(&from).as_fd(), open(&to).as_fd(), &without), Ok(vec![Loss::Ownership]));
    assert_eq!(snapshot(&to).owner, (0, 0));
}

#[test]
fn a_directory_that_cannot_be_looked_at_is_not_taken_for_one_that_is_synced() {
    use rustix::fs::ABS;

    use crate::relocate::commit::ParentTimes;
    let dir = tempfile::tempdir().unwrap();
    let sound = open(dir.path());
    // Every call on it fails, as on a directory of a disk that died.
    let times = ParentTimes::of([sound.as_fd(), ABS, sound.as_fd(), ABS]);
    assert_eq!((times.len(), times.sync()), (2, Err(rustix::io::Errno::BADF)));
    times.restore();
}
