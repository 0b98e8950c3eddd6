//! Branches on real file systems: mounts that are missing, swapped, read-only or hung, and what each file system can
//! keep.
//!
//! Needs root, for loop devices and mounts. Whatever a test mounts it unmounts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use umbrella_fs::branch::{Branch, BranchError, ProbeResult, StateDir};
use umbrella_fs::control::protocol::{Abilities, BranchState};
use umbrella_fs::spec::BranchSpec;
use umbrella_units::BranchId;

const SOON: Duration = Duration::from_secs(60);

/// A folder for mounts, which are undone before it is removed, the newest first.
struct Bench {
    dir: tempfile::TempDir,
    mounts: Vec<PathBuf>,
}

impl Bench {
    fn new() -> Bench {
        assert!(rustix::process::geteuid().is_root(), "these tests mount file systems: run them as root");
        Bench { dir: tempfile::tempdir().unwrap(), mounts: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn state(&self) -> Arc<StateDir> {
        StateDir::open(&self.dir.path().join("state"), Path::new("/srv/pool")).unwrap()
    }

    fn branch(&self, name: &str) -> Arc<Branch> {
        self.branch_with(name, |_| {})
    }

    fn branch_with(&self, name: &str, change: impl FnOnce(&mut BranchSpec)) -> Arc<Branch> {
        let mut spec = BranchSpec::new(name, self.path(name));
        change(&mut spec);
        Branch::new(BranchId(0), spec, self.state())
    }

    fn bind(&mut self, from: &Path, name: &str) {
        let to = self.path(name);
        rustix::mount::mount_bind(from, &to).unwrap();
        self.mounts.push(to);
    }

    fn tmpfs(&mut self, name: &str) {
        let to = self.path(name);
        rustix::mount::mount("none", &to, "tmpfs", MountFlags::empty(), None).unwrap();
        self.mounts.push(to);
    }

    /// A new file system in a file, mounted through a loop device that goes with the mount.
    fn image(&mut self, name: &str, make: &[&str]) {
        let image = self.dir.path().join(format!("{name}.img"));
        std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
        run(Command::new(make[0]).args(&make[1..]).arg(&image));
        self.mount_image(name, &image);
    }

    fn mount_image(&mut self, name: &str, image: &Path) {
        let to = self.path(name);
        // Two that ask for a free loop device at the same moment may get the same one.
        let deadline = Instant::now() + SOON;
        let mount = || Command::new("mount").args(["-o", "loop"]).arg(image).arg(&to).output().unwrap();
        let mut mounted = mount();
        while !mounted.status.success() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            mounted = mount();
        }
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        self.mounts.push(to);
    }

    fn unmount(&mut self, name: &str) {
        let at = self.path(name);
        rustix::mount::unmount(&at, UnmountFlags::DETACH).unwrap();
        self.mounts.retain(|other| *other != at);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for mount in self.mounts.iter().rev() {
            let _ = rustix::mount::unmount(mount, UnmountFlags::DETACH);
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn reason(branch: &Branch) -> String {
    match branch.branch_state() {
        BranchState::Offline { reason, .. } => reason,
        BranchState::Online => panic!("the branch is online"),
    }
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_branch_whose_mount_is_missing_is_offline_and_its_mount_point_stays_empty() {
    let mut bench = Bench::new();
    bench.tmpfs("disk");
    let branch = bench.branch("disk");
    branch.bring_online().unwrap();
    assert!(branch.online().unwrap().is_mount);
    drop(branch);
    bench.unmount("disk");
    let branch = bench.branch("disk");
    assert!(matches!(branch.bring_online(), Err(BranchError::NotMounted { .. })));
    let path = bench.path("disk");
    let expected =
        format!("\"{}\" is not mounted (the directory is there but is not the branch): mount it", path.display());
    assert_eq!(reason(&branch), expected);
    assert_eq!(entries(&path), 0);
}

#[test]
fn a_mount_that_vanishes_and_returns_takes_its_branch_along() {
    let mut bench = Bench::new();
    let store = bench.path("store");
    bench.bind(&store, "disk");
    let branch = bench.branch("disk");
    branch.bring_online().unwrap();
    let uuid = branch.online().unwrap().uuid;
    assert_eq!(branch.probe(SOON), ProbeResult::Healthy);
    bench.unmount("disk");
    assert!(matches!(branch.probe(SOON), ProbeResult::WentOffline { reason } if reason.contains("is not mounted")));
    assert!(matches!(branch.probe(SOON), ProbeResult::StillOffline { .. }));
    assert_eq!(entries(&bench.path("disk")), 0);
    bench.bind(&store, "disk");
    assert_eq!(branch.probe(SOON), ProbeResult::CameBack);
    assert_eq!(branch.online().unwrap().uuid, uuid);
}

#[test]
fn another_file_system_mounted_over_a_branch_takes_it_offline() {
    let mut bench = Bench::new();
    let store = bench.path("store");
    bench.bind(&store, "disk");
    let branch = bench.branch("disk");
    branch.bring_online().unwrap();
    bench.unmount("disk");
    bench.tmpfs("disk");
    let ProbeResult::WentOffline { .. } = branch.probe(SOON) else { panic!("it is another file system") };
    let ProbeResult::StillOffline { reason } = branch.probe(SOON) else { panic!("it stays another") };
    assert!(reason.contains("holds another file system than before (it has no marker"), "{reason}");
    assert_eq!(entries(&bench.path("disk")), 0, "nothing is written to it");
}

#[test]
fn two_swapped_mounts_are_both_refused() {
    let mut bench = Bench::new();
    let stores = [bench.path("store-a"), bench.path("store-b")];
    bench.bind(&stores[0], "a");
    bench.bind(&stores[1], "b");
    for name in ["a", "b"] {
        bench.branch(name).bring_online().unwrap();
    }
    bench.unmount("a");
    bench.unmount("b");
    bench.bind(&stores[1], "a");
    bench.bind(&stores[0], "b");
    for name in ["a", "b"] {
        let error = bench.branch(name).bring_online().unwrap_err();
        assert!(matches!(error, BranchError::Another { .. }), "{error}");
    }
}

#[test]
fn a_required_mount_may_be_a_bind_mount_and_a_plain_directory_is_none() {
    let mut bench = Bench::new();
    let store = bench.path("store");
    bench.bind(&store, "bound");
    let required = |spec: &mut BranchSpec| spec.require_mount = Some(true);
    bench.branch_with("bound", required).bring_online().unwrap();
    let error = bench.branch_with("plain", required).bring_online().unwrap_err();
    assert!(matches!(error, BranchError::NotMounted { .. }));
}

#[test]
fn a_mount_need_not_return_where_the_configuration_says_so() {
    let mut bench = Bench::new();
    let store = bench.path("disk");
    bench.bind(&store, "disk");
    bench.branch("disk").bring_online().unwrap();
    bench.unmount("disk");
    assert!(matches!(bench.branch("disk").bring_online(), Err(BranchError::NotMounted { .. })));
    bench.branch_with("disk", |spec| spec.require_mount = Some(false)).bring_online().unwrap();
}

#[test]
fn the_clone_of_a_disk_is_refused() {
    let mut bench = Bench::new();
    bench.image("disk", &["mkfs.ext4", "-q", "-F"]);
    let branch = bench.branch("disk");
    branch.bring_online().unwrap();
    rustix::fs::syncfs(branch.online().unwrap().root()).unwrap();
    let clone = bench.dir.path().join("clone.img");
    std::fs::copy(bench.dir.path().join("disk.img"), &clone).unwrap();
    bench.mount_image("clone", &clone);
    let second = {
        let mut spec = BranchSpec::clone(&branch.settings());
        spec.name = "clone".to_owned();
        spec.path = bench.path("clone");
        // Of the same pool: the memory is shared.
        Branch::new(BranchId(1), spec, bench.state())
    };
    let error = second.bring_online().unwrap_err();
    assert!(matches!(&error, BranchError::Twin { other, .. } if other == "disk"), "{error}");
}

#[test]
fn a_file_system_that_turns_read_only_stays_online_and_gets_nothing_new() {
    let mut bench = Bench::new();
    bench.image("disk", &["mkfs.ext4", "-q", "-F"]);
    let path = bench.path("disk");
    let branch = bench.branch("disk");
    branch.bring_online().unwrap();
    assert!(branch.view().writable);
    let remount = |flags| rustix::mount::mount_remount(&path, flags, "").unwrap();
    remount(MountFlags::RDONLY);
    assert_eq!(branch.probe(SOON), ProbeResult::Writable(false));
    assert_eq!(branch.probe(SOON), ProbeResult::Healthy);
    assert!(branch.view().online && !branch.view().writable && branch.status().read_only);
    remount(MountFlags::empty());
    assert_eq!(branch.probe(SOON), ProbeResult::Writable(true));

    branch.take_offline("test".to_owned());
    remount(MountFlags::RDONLY);
    branch.bring_online().unwrap();
    assert!(branch.online().unwrap().hidden.is_none() && !branch.view().writable);
    remount(MountFlags::empty());
    assert_eq!(branch.probe(SOON), ProbeResult::CameBack, "with a hidden folder now");
    assert!(branch.view().writable);
}

#[test]
fn a_formatted_disk_is_not_the_branch_that_was_on_it() {
    let mut bench = Bench::new();
    bench.image("disk", &["mkfs.ext4", "-q", "-F"]);
    bench.branch_with("disk", |spec| spec.read_only = true).bring_online().unwrap();
    bench.unmount("disk");
    bench.image("disk", &["mkfs.ext4", "-q", "-F"]);
    let branch = bench.branch_with("disk", |spec| spec.read_only = true);
    let error = branch.bring_online().unwrap_err();
    assert!(matches!(&error, BranchError::Another { found, .. } if found.contains("file system id")), "{error}");
}

fn abilities(bench: &Bench, name: &str, fs_type: &str) -> Abilities {
    let branch = bench.branch(name);
    branch.bring_online().unwrap();
    let online = branch.online().unwrap();
    assert_eq!(online.fs_type, fs_type);
    assert!(!online.guarded);
    assert_eq!(entries(&bench.path(name).join(".umbrella/tmp")), 0);
    assert_eq!(branch.status().fs_type, fs_type);
    online.abilities
}

const ALL: Abilities = Abilities { passthrough: false, ..Abilities::ALL };

#[test]
fn ext4_xfs_btrfs_and_tmpfs_keep_everything() {
    let mut bench = Bench::new();
    bench.image("ext4", &["mkfs.ext4", "-q", "-F"]);
    bench.image("xfs", &["mkfs.xfs", "-q"]);
    // It looks at the files below all loop devices that are mounted, and fails where another test's daemon is gone.
    let without_mounts = "mount --bind /dev/null /proc/$$/mounts && exec mkfs.btrfs \"$@\"";
    bench.image("btrfs", &["unshare", "--mount", "sh", "-c", without_mounts, "mkfs.btrfs", "-q"]);
    for name in ["ext4", "xfs", "btrfs"] {
        assert_eq!(abilities(&bench, name, name), ALL, "{name}");
    }
    bench.tmpfs("tmpfs");
    assert_eq!(abilities(&bench, "tmpfs", "tmpfs"), ALL);
}

#[test]
fn ext4_with_small_inodes_and_no_extras_is_found_out() {
    let mut bench = Bench::new();
    bench.image("old", &["mkfs.ext4", "-q", "-F", "-I", "128", "-O", "^ext_attr"]);
    let found = abilities(&bench, "old", "ext4");
    assert_eq!(found, Abilities { nanoseconds: false, ..found });
    assert!(found.holes && found.hard_links && found.ownership);
}

#[test]
fn a_daemon_that_stops_answering_takes_its_branch_offline_and_gives_it_back() {
    let mut bench = Bench::new();
    let (store, far) = (bench.path("store"), bench.path("far"));
    let Some(mut daemon) = FuseDaemon::start(&store, &far) else {
        panic!("mergerfs is needed for this test (apt install mergerfs)");
    };
    bench.mounts.push(far);
    let branch = bench.branch("far");
    branch.bring_online().unwrap();
    assert!(branch.online().unwrap().guarded);
    assert!(branch.online().unwrap().fs_type.starts_with("fuse"));
    branch.io(|online| rustix::fs::fstatvfs(online.root())).unwrap();

    branch.set_timeout(Duration::from_millis(500));
    daemon.stop();
    let hung = branch.io(|online| rustix::fs::fstatvfs(online.root()).map(drop));
    assert_eq!(hung, Err(rustix::io::Errno::TIMEDOUT));
    assert!(matches!(branch.probe(Duration::from_millis(300)), ProbeResult::StillOffline { .. }));
    branch.set_timeout(SOON);

    daemon.signal(rustix::process::Signal::CONT);
    assert_eq!(branch.probe(SOON), ProbeResult::CameBack);
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    assert!(matches!(branch.probe(SOON), ProbeResult::WentOffline { .. }));
}

struct FuseDaemon(std::process::Child);

impl FuseDaemon {
    fn start(from: &Path, to: &Path) -> Option<FuseDaemon> {
        let mut daemon = FuseDaemon(Command::new("mergerfs").arg("-f").args([from, to]).spawn().ok()?);
        let parent = std::fs::metadata(from).ok()?;
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline && daemon.0.try_wait().ok()?.is_none() {
            use std::os::unix::fs::MetadataExt;
            if std::fs::metadata(to).ok()?.dev() != parent.dev() {
                return Some(daemon);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Returns when all its threads have stopped: until then one of them may answer.
    fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let deadline = Instant::now() + SOON;
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
        };
        while !std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().all(is_stopped) {
            assert!(Instant::now() < deadline, "the daemon does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for FuseDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
