//! Whiteouts, and the pool as the upper layer of overlayfs.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

use super::support::MIB;
use super::support::disk::{Disk, unmount};
use super::support::pool::Pool;
use super::support::tree::names;
use super::support::{errno, run, temp_dir};
use super::{Data, Two};

fn leave_whiteout(from: &Path, to: &Path) -> std::io::Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::WHITEOUT).map_err(Into::into)
}

#[track_caller]
fn assert_whiteout(path: &Path) {
    let meta = fs::symlink_metadata(path).unwrap();
    assert!(meta.file_type().is_char_device() && meta.rdev() == 0, "{} is a whiteout", path.display());
}

#[test]
fn a_rename_leaves_a_whiteout_where_it_is_asked_to() {
    for data in [Data::Passthrough, Data::Staged] {
        let two = Two::new(data);
        for root in [two.mount_point(), two.plain.path().clone()] {
            let path = |name: &str| root.join(name);
            fs::write(path("file"), "x").unwrap();
            leave_whiteout(&path("file"), &path("other")).unwrap();
            assert_whiteout(&path("file"));
            assert_eq!(fs::read_to_string(path("other")).unwrap(), "x");
            fs::remove_file(path("file")).unwrap();
            fs::create_dir(path("dir")).unwrap();
            leave_whiteout(&path("dir"), &path("later")).unwrap();
            assert_whiteout(&path("dir"));
            fs::write(path("replaced"), "old").unwrap();
            leave_whiteout(&path("other"), &path("replaced")).unwrap();
            assert_whiteout(&path("other"));
            assert_eq!(fs::read_to_string(path("replaced")).unwrap(), "x");
            let exchanged = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
            let refused = rustix::fs::renameat_with(CWD, path("replaced"), CWD, path("later"), exchanged);
            assert_eq!(refused, Err(rustix::io::Errno::INVAL));
        }
    }
}

#[test]
fn a_rename_over_two_branches_leaves_one_whiteout() {
    let two = Two::new(Data::Passthrough);
    fs::write(two.join("file"), "new").unwrap();
    fs::write(two.join("old.b"), "old").unwrap();
    leave_whiteout(&two.join("file"), &two.join("old.b")).unwrap();
    assert_whiteout(&two.join("file"));
    assert_eq!(fs::read_to_string(two.join("old.b")).unwrap(), "new");
    fs::create_dir(two.join("dir")).unwrap();
    fs::write(two.join("dir/on-a"), "a").unwrap();
    fs::write(two.join("dir/on.b"), "b").unwrap();
    leave_whiteout(&two.join("dir"), &two.join("later")).unwrap();
    assert_whiteout(&two.join("dir"));
    assert_eq!(names(&two.join("later")), ["on-a", "on.b"]);
    assert_eq!(two.found_on("dir").len(), 1);
}

/// An overlay whose upper layer lies in a pool.
struct Overlay {
    dir: tempfile::TempDir,
}

impl Overlay {
    fn new() -> Overlay {
        let dir = temp_dir("overlay");
        for name in ["lower", "merged"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Overlay { dir }
    }

    fn lower(&self) -> PathBuf {
        self.dir.path().join("lower")
    }

    fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join("merged").join(name)
    }

    #[track_caller]
    fn mount(&self, pool: &Pool) {
        let (upper, work) = (pool.join("upper"), pool.join("work"));
        let options =
            format!("lowerdir={},upperdir={},workdir={}", self.lower().display(), upper.display(), work.display());
        run(
            "mount",
            [
                "-t".as_ref(),
                "overlay".as_ref(),
                "overlay".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                self.join("").as_os_str(),
            ],
        );
    }

    fn unmount(&self) {
        unmount(&self.dir.path().join("merged"));
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.unmount();
    }
}

#[test]
fn the_pool_is_the_upper_layer_of_an_overlay() {
    let disks = [Disk::ext4(64 * MIB), Disk::xfs(300 * MIB)];
    let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"] }]\n";
    let builder = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path()).default(&["a"]);
    let mut pool = builder.rules(rules).mount();
    for name in ["upper", "work"] {
        fs::create_dir(pool.join(name)).unwrap();
    }
    let overlay = Overlay::new();
    let lower = overlay.lower();
    for name in ["grown", "gone", "moved.b", "linked", "mode"] {
        fs::write(lower.join(name), "lower").unwrap();
    }
    for name in ["emptied", "replaced", "kept"] {
        fs::create_dir(lower.join(name)).unwrap();
        fs::write(lower.join(name).join("old"), "lower").unwrap();
    }
    overlay.mount(&pool);
    // Copy up, whiteout, opaque directory, rename, hard link, a file without a name.
    fs::write(overlay.join("grown"), "upper").unwrap();
    fs::set_permissions(overlay.join("mode"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(overlay.join("gone")).unwrap();
    fs::rename(overlay.join("moved.b"), overlay.join("moved")).unwrap();
    fs::hard_link(overlay.join("linked"), overlay.join("link")).unwrap();
    fs::remove_dir_all(overlay.join("replaced")).unwrap();
    fs::create_dir(overlay.join("replaced")).unwrap();
    fs::write(overlay.join("replaced/new.b"), "upper").unwrap();
    fs::remove_file(overlay.join("emptied/old")).unwrap();
    fs::create_dir(overlay.join("made")).unwrap();
    fs::write(overlay.join("made/file.b"), "upper").unwrap();
    fs::rename(overlay.join("made"), overlay.join("made-again")).unwrap();
    let unnamed = rustix::fs::open(overlay.join("kept"), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap();
    rustix::io::write(&unnamed, b"x").unwrap();
    drop(unnamed);
    let look = || {
        let root = names(&overlay.join(""));
        assert_eq!(root, ["emptied", "grown", "kept", "link", "linked", "made-again", "mode", "moved", "replaced"]);
        for (path, text) in [("grown", "upper"), ("moved", "lower"), ("link", "lower"), ("replaced/new.b", "upper")] {
            assert_eq!(fs::read_to_string(overlay.join(path)).unwrap(), text, "{path}");
        }
        assert_eq!(names(&overlay.join("replaced")), ["new.b"], "opaque: nothing of the lower layer");
        assert_eq!(names(&overlay.join("emptied")), [""; 0]);
        assert_eq!(names(&overlay.join("made-again")), ["file.b"]);
        assert_eq!(names(&overlay.join("kept")), ["old"]);
        let meta = |name| fs::metadata(overlay.join(name)).unwrap();
        assert_eq!(meta("mode").mode() & 0o777, 0o640);
        assert_eq!(meta("link").nlink(), 2);
        fs::write(overlay.join("link"), "both").unwrap();
        assert_eq!(fs::read_to_string(overlay.join("linked")).unwrap(), "both");
        fs::write(overlay.join("linked"), "lower").unwrap();
        assert_eq!(errno(&File::open(overlay.join("gone"))), libc::ENOENT);
    };
    look();
    assert_whiteout(&pool.join("upper/gone"));
    assert_whiteout(&pool.join("upper/moved.b"));
    overlay.unmount();
    pool.remount();
    overlay.mount(&pool);
    look();
    overlay.unmount();
}
