//! Disks that fail: the branch is called failing, wherever the error was met, and no other branch is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::support::bad_disk::BadDisk;
use crate::support::disk::{Disk, make_file_system, unmount};
use crate::support::looped::Looped;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, bytes, errno, eventually, run, temp_dir};

const SIZE: u64 = 64 * MIB;
const FILM: u64 = 40 * MIB;

/// A pool of two disks; on the first lies a film, of whose disk the end is broken.
struct Broken {
    a: Disk,
    b: Disk,
    pool: Pool,
}

impl Broken {
    fn new(keys: &str) -> Broken {
        let (a, b) = (Disk::ext4(SIZE), Disk::ext4(SIZE));
        let pool = Pool::builder().branch_with("a", a.path(), keys).branch("b", b.path()).mount();
        fs::write(pool.join("film"), bytes(1, FILM)).unwrap();
        fs::write(pool.on("b", "other"), b"whole").unwrap();
        pool.say(["sync"]);
        let (film, byte) = (pool.on("a", "film"), last_extent(&pool.on("a", "film")));
        a.break_from(byte);
        forget_pages(&film);
        Broken { a, b, pool }
    }

    /// The end of the film, read through the pool past the page cache.
    fn read_end(&self) -> io::Result<()> {
        forget_pages(&self.pool.join("film"));
        forget_pages(&self.pool.on("a", "film"));
        File::open(self.pool.join("film"))?.read_exact_at(&mut [0; 4096], FILM - 4096)
    }

    fn is_failing(&self, branch: &str) -> bool {
        self.pool.branch_status(branch).failing
    }
}

/// Where the last part of a file lies on its disk.
fn last_extent(file: &Path) -> u64 {
    let told = run("filefrag", ["-e".as_ref(), "-b512".as_ref(), file.as_os_str()]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let extent = told.lines().rfind(|line| line.contains("..")).unwrap_or_else(|| panic!("{told}"));
    let first = extent.split(':').nth(2).unwrap().split("..").next().unwrap().trim();
    first.parse::<u64>().unwrap_or_else(|error| panic!("{error}: {extent}")) * 512
}

fn forget_pages(file: &Path) {
    rustix::fs::fadvise(File::open(file).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// What the kernel says when a read of this device fails, as a program may write it into the log.
fn fake_line(device: &Path) -> String {
    let name = device.file_name().unwrap().to_string_lossy().into_owned();
    format!("<3>I/O error, dev {name}, sector 8 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2")
}

#[test]
fn a_daemon_that_may_not_read_the_kernels_log_says_that_errors_may_be_missing() {
    let disk = Disk::ext4(32 * MIB);
    let warned = |pool: &Pool| pool.status().warnings.iter().any(|warning| warning.contains("CAP_SYSLOG"));
    let pool = Pool::builder().branch("a", disk.path());
    let mut pool = pool.launched_by(["setpriv", "--bounding-set", "-syslog"]).mount();
    let is_restricted = fs::read_to_string("/proc/sys/kernel/dmesg_restrict").unwrap().trim() == "1";
    assert_eq!(warned(&pool), is_restricted, "{:?}", pool.status().warnings);
    pool.stop();
    let pool = Pool::builder().branch("a", disk.path()).mount();
    assert!(!warned(&pool), "{:?}", pool.status().warnings);
}

#[test]
fn a_branch_whose_reads_fail_in_passthrough_is_failing_and_no_other_is() {
    let mut broken = Broken::new("headroom = 0");
    let pool = &broken.pool;
    // Not the kernel said this.
    File::options().write(true).open("/dev/kmsg").unwrap().write_all(fake_line(&broken.b.device()).as_bytes()).unwrap();
    let open = File::open(pool.join("film")).unwrap();
    assert_eq!(pool.status().open_passthrough, 1, "the daemon does not see the read");
    eventually("the branch is failing", || {
        assert_eq!(broken.read_end().unwrap_err().raw_os_error(), Some(libc::EIO));
        broken.is_failing("a")
    });
    drop(open);
    let errors = pool.branch_status("a").errors;
    assert!(errors.kernel_log > 0 && errors.last.contains("I/O error, dev loop"), "{errors:?}");
    assert!(!broken.is_failing("b"), "{:?}", pool.branch_status("b"));
    assert!(pool.is_online("a"));
    assert_eq!(pool.metric("umbrella_branches_failing_count"), 1);
    assert_eq!(fs::read(pool.join("other")).unwrap(), b"whole");
    let said = pool.say(["status"]);
    assert!(said.contains("online, FAILING") && said.contains("warning: branch \"a\" is failing"), "{said}");
    eventually("the log says so", || pool.log().contains("branch \"a\" is failing"));

    // So it is after a remount, until somebody says that the disk is mended.
    broken.a.mend(SIZE);
    broken.pool.remount();
    assert!(broken.is_failing("a"));
    broken.pool.say(["branch", "clear-errors", "a"]);
    assert!(!broken.is_failing("a") && !broken.pool.say(["status"]).contains("failing"));
    broken.pool.remount();
    assert!(!broken.is_failing("a"));
    let unknown = broken.pool.umbrella(["branch", "clear-errors", "c"]);
    assert!(!unknown.status.success() && text(&unknown).contains("no branch is called"), "{}", text(&unknown));
}

#[test]
fn errors_of_the_daemons_own_calls_are_counted_until_the_disk_is_replaced() {
    let broken = Broken::new("passthrough = false");
    eventually("a read of the daemon fails", || {
        assert_eq!(broken.read_end().unwrap_err().raw_os_error(), Some(libc::EIO));
        broken.pool.branch_status("a").errors.reads > 0
    });
    assert!(broken.is_failing("a") && broken.pool.is_online("a") && !broken.is_failing("b"));
    assert!(broken.pool.metric("umbrella_branch_read_errors_count") > 0);

    let new = Disk::ext4(16 * MIB);
    broken.pool.say(["branch".as_ref(), "replace".as_ref(), "--force".as_ref(), "a".as_ref(), new.path().as_os_str()]);
    assert!(!broken.is_failing("a"), "{:?}", broken.pool.branch_status("a"));
    broken.a.mend(SIZE);
}

#[test]
fn a_disk_whose_bad_sectors_hit_the_marker_is_failing_and_is_drained() {
    let (a, b) = (BadDisk::ext4(SIZE), Disk::ext4(SIZE));
    let mut pool = Pool::builder().branch_with("a", a.path(), "passthrough = false").branch("b", b.path()).mount();
    fs::write(pool.join("letter"), b"dear reader").unwrap();
    fs::write(pool.join("film"), bytes(2, MIB)).unwrap();
    pool.say(["sync"]);
    let (marker, film) = (pool.on("a", ".umbrella/branch.json"), pool.on("a", "film"));
    a.break_file(&marker);
    a.break_file(&film);
    let read_film = || {
        forget_pages(&pool.join("film"));
        fs::read(pool.join("film"))
    };
    eventually("the branch is failing", || {
        assert_eq!(read_film().unwrap_err().raw_os_error(), Some(libc::EIO));
        pool.branch_status("a").failing
    });
    // Each failed read has the branch looked at.
    for _ in 0..20 {
        assert_eq!(read_film().unwrap_err().raw_os_error(), Some(libc::EIO));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(pool.is_online("a"), "{:?}", pool.branch_status("a"));
    }
    let said = pool.umbrella(["branch", "drain", "a"]);
    assert!(!said.status.success() && text(&said).contains("film"), "the film cannot be saved: {}", text(&said));
    assert_eq!(fs::read(pool.on("b", "letter")).unwrap(), b"dear reader");
    assert!(film.exists() && !pool.on("b", "film").exists());

    // Errors that come after the counts were reset count.
    pool.say(["branch", "clear-errors", "a"]);
    eventually("the branch is failing again", || {
        assert!(read_film().is_err());
        pool.branch_status("a").failing
    });

    // The next mount knows the disk by its file system.
    pool.say(["branch", "clear-errors", "a"]);
    forget_pages(&marker);
    pool.remount();
    let status = pool.branch_status("a");
    assert!(pool.is_online("a") && status.errors.reads > 0, "{status:?}");
    // The kernel's line about the same read may come after it.
    let last = &status.errors.last;
    assert!(last.contains("branch.json") || last.starts_with("I/O error, dev loop"), "{status:?}");
}

#[test]
fn a_disk_of_which_nothing_can_be_read_is_offline_and_is_not_drained() {
    let (a, b) = (BadDisk::ext4(SIZE), Disk::ext4(SIZE));
    let builder = Pool::builder().branch_with("a", a.path(), "passthrough = false").branch("b", b.path());
    let pool = builder.keys("probe_interval = \"200ms\"").mount();
    fs::write(pool.join("here"), b"1").unwrap();
    pool.say(["sync"]);
    a.break_file(&pool.on("a", "here"));
    forget_pages(&pool.join("here"));
    a.die();
    eventually("the branch is offline", || {
        let _ = fs::read(pool.join("here"));
        !pool.is_online("a")
    });
    let said = pool.umbrella(["branch", "drain", "a"]);
    assert!(!said.status.success() && text(&said).contains("no file can be moved from it"), "{}", text(&said));
    assert!(!pool.branch_status("a").draining, "{:?}", pool.branch_status("a"));
}

#[test]
fn an_error_that_a_file_system_finds_in_itself_is_counted() {
    let (a, b) = (Disk::ext4(16 * MIB), Disk::ext4(16 * MIB));
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).keys("probe_interval = \"1s\"").mount();
    let device = a.device();
    let ext4 = Path::new("/sys/fs/ext4").join(device.file_name().unwrap());
    fs::write(ext4.join("trigger_fs_error"), "a test").unwrap();
    eventually("its branch is failing", || pool.branch_status("a").errors.file_system > 0);
    eventually("its log has it too", || pool.branch_status("a").errors.kernel_log > 0);
    assert!(pool.branch_status("a").failing && !pool.branch_status("b").failing);
    assert!(pool.branch_status("a").errors.last.contains("EXT4-fs error"), "{:?}", pool.branch_status("a").errors);
}

/// A btrfs that keeps all on both of its devices, mounted by a node that is gone.
struct Mirrored {
    folder: tempfile::TempDir,
    looped: [Looped; 2],
}

impl Mirrored {
    fn new() -> Mirrored {
        let folder = temp_dir("mirrored");
        let [at, node] = ["mnt", "node"].map(|name| folder.path().join(name));
        fs::create_dir(&at).unwrap();
        let looped = ["one", "two"].map(|name| {
            let image = folder.path().join(name);
            File::create(&image).and_then(|file| file.set_len(256 * MIB)).unwrap();
            Looped::on(&image)
        });
        let [one, two] = looped.each_ref().map(|device| device.path().as_os_str());
        let options = ["-q", "-f", "-d", "raid1", "-m", "raid1"].map(OsStr::new);
        make_file_system("btrfs", options.into_iter().chain([one, two]));
        let number = fs::metadata(one).unwrap().rdev();
        let [major, minor] = [rustix::fs::major(number), rustix::fs::minor(number)].map(|number| number.to_string());
        run("mknod", [node.as_os_str(), "b".as_ref(), major.as_ref(), minor.as_ref()]);
        run("mount", [node.as_path(), at.as_path()]);
        fs::remove_file(node).unwrap();
        Mirrored { folder, looped }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// Nothing of the second device can be read any more.
    fn break_second(&self) {
        File::options().write(true).open(self.folder.path().join("two")).unwrap().set_len(0).unwrap();
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

#[test]
fn errors_of_any_device_of_a_btrfs_count_also_when_the_node_that_was_mounted_is_gone() {
    let (a, b) = (Mirrored::new(), Disk::btrfs(128 * MIB));
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).default(&["a"]).mount();
    let content = bytes(3, 8 * MIB);
    fs::write(pool.join("film"), &content).unwrap();
    pool.say(["sync"]);
    let mut rounds = 0;
    eventually("the branch is failing", || {
        // The kernel leaves lines out of its log when there are many, and btrfs mends what it could not read: so again.
        a.break_second();
        for file in [pool.on("a", "film"), pool.join("film")] {
            forget_pages(&file);
        }
        // Which device is read depends on whether the reader's process id is even. The other one has what cannot be
        // read.
        rounds += 1;
        (0..rounds % 3).for_each(|_| drop(run("true", [""; 0])));
        // What another process keeps from being forgotten goes as well.
        if rounds % 8 == 0 {
            fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        }
        assert_eq!(run("cat", [pool.join("film")]).stdout, content);
        pool.branch_status("a").errors.kernel_log > 0
    });
    let errors = pool.branch_status("a").errors;
    let second = a.looped[1].path().file_name().unwrap().to_str().unwrap();
    assert!(errors.last.contains(second), "{errors:?}");
    assert!(pool.is_online("a") && !pool.branch_status("b").failing);
}

/// A listing does what the configuration says. Nothing is taken for absent, and no directory for empty.
#[test]
fn a_directory_of_which_one_copy_cannot_be_read_loses_nothing() {
    for on_error in ["skip", "fail"] {
        let (a, b) = (BadDisk::ext4(SIZE), Disk::ext4(SIZE));
        let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";
        let builder = Pool::builder().branch_with("a", a.path(), "passthrough = false").branch("b", b.path());
        let keys = format!("cache_timeout = \"0s\"\non_branch_error = {on_error:?}");
        let pool = builder.default(&["a"]).rules(rules).keys(&keys).mount();
        fs::create_dir(pool.join("dir")).unwrap();
        fs::write(pool.join("dir/on-a"), b"a").unwrap();
        fs::write(pool.join("dir/on.b"), b"b").unwrap();
        pool.settle_closed();
        pool.say(["sync"]);
        a.break_dir(&pool.on("a", "dir"));

        let list = || fs::read_dir(pool.join("dir")).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let listed = list().map(|names| names.into_iter().map(|name| name.file_name()).collect::<Vec<_>>());
        match on_error {
            "skip" => assert_eq!(listed.unwrap(), ["on.b"]),
            _ => assert_eq!(errno(&listed), libc::EIO),
        }
        assert_eq!(errno(&fs::read(pool.join("dir/on-a"))), libc::EIO, "{on_error}");
        assert_eq!(errno(&File::create_new(pool.join("dir/on-a"))), libc::EIO, "{on_error}");
        assert_eq!(errno(&fs::remove_dir_all(pool.join("dir"))), libc::EIO, "{on_error}");
        eventually("the branch is failing", || pool.branch_status("a").failing);
        assert!(pool.is_online("a") && !pool.branch_status("b").failing);
        assert!(pool.on("a", "dir").is_dir());

        a.mend();
        assert_eq!(fs::read(pool.join("dir/on-a")).unwrap(), b"a", "{on_error}");
    }
}
