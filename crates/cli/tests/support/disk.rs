//! Throw-away file systems: loop images and tmpfs, unmounted when they are dropped, also after a panic.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{MIB, TIMEOUT, poll, require_root_and_fuse, run, temp_dir};

/// What becomes of changes that only the journal of a dying file system has.
#[derive(Debug, Clone, Copy)]
pub enum Journal {
    /// They get on the disk.
    Written,
    /// They are lost.
    Lost,
}

/// A mounted file system of its own.
#[derive(Debug)]
pub struct Disk {
    dir: TempDir,
    kind: &'static str,
    options: String,
}

impl Disk {
    /// ext4 in a sparse file.
    pub fn ext4(size: u64) -> Self {
        Self::image("ext4", size, &["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,nodiscard"])
    }

    /// ext4 with inodes of 128 bytes: times from 1901 to 2038, in seconds.
    pub fn ext4_with_small_inodes(size: u64) -> Self {
        Self::image("ext4", size, &["-q", "-F", "-m", "0", "-I", "128", "-E", "lazy_itable_init=0,nodiscard"])
    }

    /// xfs whose times end in 2038.
    pub fn xfs_without_bigtime(size: u64) -> Self {
        Self::image("xfs", size.max(300 * MIB), &["-q", "-f", "-m", "bigtime=0"])
    }

    /// xfs in a sparse file; its smallest size is 300 MiB.
    pub fn xfs(size: u64) -> Self {
        Self::image("xfs", size.max(300 * MIB), &["-q", "-f"])
    }

    /// btrfs in a sparse file; its smallest size is about 110 MiB.
    pub fn btrfs(size: u64) -> Self {
        Self::image("btrfs", size.max(128 * MIB), &["-q", "-f", "-M"])
    }

    /// tmpfs of exactly this size.
    pub fn tmpfs(size: u64) -> Self {
        Self::memory(format!("size={size},mode=755"))
    }

    /// tmpfs that also runs out of inodes; its root is one of them.
    pub fn tmpfs_with_inodes(size: u64, inodes: u64) -> Self {
        Self::memory(format!("size={size},nr_inodes={inodes},mode=755"))
    }

    /// Makes a tmpfs large enough to have room for `more` bytes more, at once.
    pub fn has_room_for(&self, more: u64) {
        let resize = || {
            let space = rustix::fs::statvfs(self.path()).unwrap();
            let used = (space.f_blocks - space.f_bfree) * space.f_frsize;
            let (flags, data) = (rustix::mount::MountFlags::empty(), format!("size={}", used + more));
            rustix::mount::mount_remount(self.path(), flags, CString::new(data).unwrap().as_c_str())
        };
        // It is refused when something was written meanwhile.
        let done = (0..100).any(|_| resize().is_ok());
        assert!(done, "{}: the size cannot be changed", self.path().display());
    }

    fn memory(options: String) -> Self {
        require_root_and_fuse();
        let disk = Self { dir: temp_dir("disk"), kind: "tmpfs", options };
        fs::create_dir(disk.path()).unwrap();
        disk.mount();
        disk
    }

    fn image(kind: &'static str, size: u64, mkfs_options: &[&str]) -> Self {
        Self::image_in(temp_dir("disk"), kind, size, mkfs_options)
    }

    /// ext2 in a sparse file in `folder`, which may be as full as a test wants it.
    pub fn ext2_in(folder: &Path, size: u64) -> Self {
        let dir = tempfile::Builder::new().prefix("disk-").tempdir_in(folder).unwrap();
        Self::image_in(dir, "ext2", size, &["-q", "-F", "-m", "0", "-E", "nodiscard"])
    }

    fn image_in(dir: TempDir, kind: &'static str, size: u64, mkfs_options: &[&str]) -> Self {
        require_root_and_fuse();
        let disk = Self { dir, kind, options: "loop".to_owned() };
        File::create(disk.image_path()).unwrap().set_len(size).unwrap();
        let mut args: Vec<_> = mkfs_options.iter().map(OsString::from).collect();
        args.push(disk.image_path().into());
        make_file_system(kind, args);
        fs::create_dir(disk.path()).unwrap();
        disk.mount();
        let _ = fs::remove_dir(disk.path().join("lost+found"));
        disk
    }

    fn image_path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// The device that is mounted.
    pub fn device(&self) -> PathBuf {
        let output = run("findmnt", ["-no".as_ref(), "SOURCE".as_ref(), self.path().as_os_str()]);
        String::from_utf8_lossy(&output.stdout).trim().into()
    }

    /// A file or directory on it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Mounts it (again).
    pub fn mount(&self) {
        let source = if self.kind == "tmpfs" { PathBuf::from("tmpfs") } else { self.image_path() };
        let mounted = poll(TIMEOUT, || {
            let output = Command::new("mount")
                .args(["-t", self.kind, "-o", &self.options])
                .arg(&source)
                .arg(self.path())
                .output()
                .expect("mount can be started");
            // Two tests that ask for a free loop device at the same moment may get the same one.
            output.status.success().then_some(())
        });
        assert!(
            mounted.is_some(),
            "cannot mount {} with {} (loop devices missing?)",
            self.path().display(),
            self.options
        );
    }

    /// Unmounts ext4, has it checked, which changes nothing, and mounts it again.
    #[track_caller]
    pub fn fsck(&self) {
        let unmounted = poll(TIMEOUT, || {
            Command::new("umount")
                .arg(self.path())
                .output()
                .expect("umount can be started")
                .status
                .success()
                .then_some(())
        });
        assert!(unmounted.is_some(), "{} stays busy", self.path().display());
        let output = Command::new("fsck.ext4").arg("-fn").arg(self.image_path()).output().expect("fsck can be started");
        assert!(output.status.success(), "fsck: {}", String::from_utf8_lossy(&output.stdout));
        self.mount();
    }

    /// Takes it away at once, also while it is in use: the mount point stays behind as an empty directory.
    pub fn vanish(&self) {
        run("umount", ["-l".as_ref(), self.path().as_os_str()]);
    }

    /// It dies as with the power (ext4 and xfs): nothing more gets on it. What is in its journal may still.
    pub fn die(&self, journal: Journal) {
        let shutdown = match journal {
            Journal::Written => "shutdown -f",
            Journal::Lost => "shutdown",
        };
        run("xfs_io", ["-x".as_ref(), "-c".as_ref(), shutdown.as_ref(), self.path().as_os_str()]);
    }

    /// A dead one comes back with what was on it, although the dead file system may still be in use.
    pub fn revive(&self) {
        let copy = self.dir.path().join("copy");
        run("cp", ["--sparse=always".as_ref(), self.image_path().as_os_str(), copy.as_os_str()]);
        self.vanish();
        fs::rename(copy, self.image_path()).unwrap();
        self.mount();
    }

    /// From this byte on the device can neither be read nor written.
    pub fn break_from(&self, byte: u64) {
        File::options().write(true).open(self.image_path()).unwrap().set_len(byte).unwrap();
    }

    /// The device is as large as before; what was lost reads as zeros.
    pub fn mend(&self, size: u64) {
        self.break_from(size);
    }

    /// Free bytes for unprivileged users.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Files (not directories) on it whose names do not belong to the pool's own bookkeeping.
    pub fn files(&self) -> Vec<PathBuf> {
        super::tree::files_below(&self.path())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

/// Whether something is mounted exactly there.
pub fn is_mount_point(path: &Path) -> bool {
    let wanted = path.to_string_lossy();
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
        .any(|line| line.split(' ').nth(4).is_some_and(|mounted| mounted == wanted))
}

/// Unmounts; lazily if it stays busy.
pub fn unmount(path: &Path) {
    let gone = poll(Duration::from_secs(10), || {
        if !is_mount_point(path) {
            return Some(());
        }
        let _ = Command::new("umount").arg("-q").arg(path).output();
        (!is_mount_point(path)).then_some(())
    });
    if gone.is_none() {
        let _ = Command::new("umount").arg("-l").arg(path).output();
    }
}

/// Runs `mkfs` for a kind of file system.
///
/// btrfs's looks at the file below each loop device that is mounted, and fails if that lies on a mount whose daemon is
/// gone, as another test's may be. So it sees no mounts.
pub fn make_file_system<S: AsRef<OsStr>>(kind: &str, args: impl IntoIterator<Item = S>) {
    const WITHOUT_MOUNTS: &str = "mount --bind /dev/null /proc/$$/mounts && exec mkfs.btrfs \"$@\"";
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    if kind == "btrfs" {
        let shell = ["--mount", "sh", "-c", WITHOUT_MOUNTS, "mkfs.btrfs"].map(OsString::from);
        run("unshare", shell.into_iter().chain(args));
    } else {
        run(&format!("mkfs.{kind}"), args);
    }
}
