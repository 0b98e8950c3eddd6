//! File systems of a test's own, in files; unmounted when they are dropped, also after a panic.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A mounted file system.
pub(crate) struct Disk {
    dir: TempDir,
}

impl Disk {
    pub(crate) fn ext4() -> Disk {
        Disk::new("ext4", 256 * MIB, &["-q", "-F", "-E", "lazy_itable_init=0,nodiscard"])
    }

    pub(crate) fn xfs() -> Disk {
        Disk::new("xfs", 320 * MIB, &["-q", "-f"])
    }

    pub(crate) fn btrfs() -> Disk {
        Disk::new("btrfs", 512 * MIB, &["-q", "-f"])
    }

    fn new(kind: &str, size: u64, options: &[&str]) -> Disk {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts file systems: run it as root (`make test` does)"
        );
        let base = std::env::var_os("UMBRELLA_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let dir = tempfile::Builder::new().prefix("umbrella-bpf-").tempdir_in(base).expect("a folder");
        let disk = Disk { dir };
        let image = disk.dir.path().join("image");
        File::create(&image).and_then(|file| file.set_len(size)).expect("an image");
        let options = options.iter().map(OsStr::new).chain([image.as_os_str()]);
        run(&format!("mkfs.{kind}"), options);
        fs::create_dir(disk.path()).expect("a mount point");
        let mount = || {
            let mut command = Command::new("mount");
            command.args(["-t", kind, "-o", "loop"]).arg(&image).arg(disk.path());
            command.output().expect("mount can be started").status.success()
        };
        // Two tests that ask for a free loop device at the same moment may get the same one.
        assert!(eventually(Duration::from_secs(30), mount), "cannot mount {} (loop devices missing?)", image.display());
        disk
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A folder for locks, not on the disk.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let umount = |option: &[&str]| Command::new("umount").args(option).arg(self.path()).output();
        let gone = || !is_mounted(&self.path()) || umount(&[]).is_ok_and(|output| output.status.success());
        if !eventually(Duration::from_secs(5), gone) {
            umount(&["-l"]).ok();
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|at| Path::new(at) == path))
}

fn run<'a>(program: &str, args: impl IntoIterator<Item = &'a OsStr>) {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program} cannot be started ({error}): run `make setup` first"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether it becomes true within this time.
pub(crate) fn eventually(most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if begun.elapsed() > most {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Pages of a file that are dirty, one by one, as cachestat(2) says.
pub(crate) fn dirty_pages(path: &Path) -> Vec<u64> {
    let file = File::open(path).expect("opens");
    let pages = file.metadata().expect("has a size").len().div_ceil(4096);
    (0..pages).filter(|page| dirty_in(&file, *page, 1) > 0).collect()
}

/// How many pages of a file are dirty.
pub(crate) fn dirty_count(path: &Path) -> u64 {
    let file = File::open(path).expect("opens");
    let pages = file.metadata().expect("has a size").len().div_ceil(4096);
    dirty_in(&file, 0, pages)
}

fn dirty_in(file: &File, first: u64, pages: u64) -> u64 {
    use std::os::fd::AsRawFd;
    if pages == 0 {
        return 0;
    }
    let range = [first * 4096, pages * 4096];
    let mut found = [0_u64; 5];
    // SAFETY: reads two numbers, fills five.
    let result = unsafe { libc::syscall(451, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
    assert_eq!(result, 0, "cachestat: {}", std::io::Error::last_os_error());
    found[1]
}
