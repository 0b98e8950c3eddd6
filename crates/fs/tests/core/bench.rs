//! Branches to test on: two directories and a tmpfs that is soon full. All is unmounted and removed at the end.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use umbrella_fs::control::protocol::{TransportKind, TransportStatus};
use umbrella_fs::pool::{Kernel, OpenRequest, Pool};
use umbrella_fs::spec::{
    AccessTimes, BranchSpec, DirectoryRule, EnforceSpec, OnBranchError, PoolSpec, StagingSpec, Transport,
};
use umbrella_fs::{NodeId, PassthroughToken};
use umbrella_policy::placement::spec::{
    Comparison, Condition, DestinationSpec, Offline, RuleKindSpec, RuleSpec, RulesSpec, StagingMode, Treatment,
};
use umbrella_policy::schedule::Schedule;
use umbrella_units::{Amount, ByteSize};

/// In the order of the configuration.
pub(crate) const BRANCHES: [&str; 3] = ["fast", "slow", "tiny"];
/// Files above this move from `fast` to `slow` under most of the rules.
pub(crate) const BIG: u64 = 4096;
/// Room on `tiny`.
const TINY_KIB: u32 = 512;

/// How files are opened.
pub(crate) const READ: OpenRequest = OpenRequest {
    read: true,
    write: false,
    append: false,
    truncate: false,
    exclusive: false,
    durable: false,
    drop_set_id: false,
};
pub(crate) const WRITE: OpenRequest = OpenRequest { write: true, ..READ };
pub(crate) const CREATE: OpenRequest = OpenRequest { exclusive: true, ..WRITE };

/// Where the branches are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The file system of the temporary directory, which may use inode numbers again at once.
    Disk,
    /// A tmpfs: fast.
    Memory,
}

/// See the module.
pub(crate) struct Bench {
    pub(crate) root: PathBuf,
    /// Removed at the end; `None` in a child process, which only uses it.
    pub(crate) dir: Option<tempfile::TempDir>,
    pub(crate) mounts: Vec<PathBuf>,
    /// Where new files are staged.
    pub(crate) staging: Option<StagingSpec>,
}

/// A small staging area in memory; larger files than most do not stay there.
pub(crate) fn small_area() -> StagingSpec {
    let size = Some(Amount::Bytes(ByteSize(4 << 20)));
    StagingSpec { mode: StagingMode::Always, size, max_file: ByteSize(48 << 10), ..StagingSpec::default() }
}

impl Bench {
    pub(crate) fn staged(ground: Ground, staging: StagingSpec) -> Bench {
        let mut bench = Bench::new(ground);
        bench.staging = Some(staging);
        bench
    }

    pub(crate) fn new(ground: Ground) -> Bench {
        assert!(rustix::process::geteuid().is_root(), "these tests mount file systems: run them as root");
        let dir = tempfile::tempdir().unwrap();
        let mut bench = Bench { root: dir.path().to_owned(), dir: Some(dir), mounts: Vec::new(), staging: None };
        if ground == Ground::Memory {
            bench.tmpfs(&bench.root(), "size=256m");
        }
        for name in ["fast", "slow", "tiny", "tiny.store", "state"] {
            std::fs::create_dir(bench.root().join(name)).unwrap();
        }
        bench.tmpfs(&bench.root().join("tiny.store"), &format!("size={TINY_KIB}k"));
        bench.bind_tiny();
        bench
    }

    fn tmpfs(&mut self, at: &Path, options: &str) {
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("none", at, "tmpfs", MountFlags::empty(), Some(options.as_c_str())).unwrap();
        self.mounts.push(at.to_owned());
    }

    fn bind_tiny(&mut self) {
        let at = self.branch(2);
        rustix::mount::mount_bind(self.root().join("tiny.store"), &at).unwrap();
        self.mounts.push(at);
    }

    /// The folder that holds everything.
    pub(crate) fn root(&self) -> PathBuf {
        self.root.clone()
    }

    /// A branch's directory.
    pub(crate) fn branch(&self, branch: usize) -> PathBuf {
        self.root().join(BRANCHES[branch])
    }

    /// Takes a branch away: the tmpfs is unmounted, a directory gets another name.
    pub(crate) fn take_away(&mut self, branch: usize) {
        let at = self.branch(branch);
        if branch == 2 {
            rustix::mount::unmount(&at, UnmountFlags::DETACH).unwrap();
            self.mounts.retain(|mount| *mount != at);
        } else {
            std::fs::rename(&at, self.root().join("away")).unwrap();
        }
    }

    /// Gives it back.
    pub(crate) fn give_back(&mut self, branch: usize) {
        if branch == 2 {
            self.bind_tiny();
        } else {
            std::fs::rename(self.root().join("away"), self.branch(branch)).unwrap();
        }
    }

    /// Mounts the pool, so to speak.
    pub(crate) fn assemble(&self, rules: usize) -> Arc<Pool> {
        assemble(&self.root(), rules, self.staging.clone())
    }

    /// Where files can be: the branches, in order, and the staging area while there is one.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let areas = std::fs::read_dir(self.root().join("state/staging")).into_iter().flatten();
        let trees = areas.map(|area| area.unwrap().path().join("tree")).filter(|tree| tree.is_dir());
        (0..BRANCHES.len()).map(|branch| self.branch(branch)).chain(trees).collect()
    }
}

/// What a place is called.
pub(crate) fn place_name(place: usize) -> &'static str {
    BRANCHES.get(place).copied().unwrap_or("(staging)")
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.dir.is_none() {
            return;
        }
        for area in self.places().iter().skip(BRANCHES.len()).filter_map(|tree| tree.parent()) {
            let _ = rustix::mount::unmount(area, UnmountFlags::DETACH);
        }
        for mount in self.mounts.iter().rev() {
            let _ = rustix::mount::unmount(mount, UnmountFlags::DETACH);
        }
        drop(self.dir.take());
    }
}

/// The pool over the branches in a bench's folder.
pub(crate) fn assemble(root: &Path, rules: usize, staging: Option<StagingSpec>) -> Arc<Pool> {
    let headroom = Some(Amount::Bytes(ByteSize(256 << 10)));
    let branch = |name: &&str| BranchSpec { optional: true, headroom, ..BranchSpec::new(*name, root.join(name)) };
    let spec = PoolSpec {
        mount: PathBuf::from("/srv/model"),
        branches: BRANCHES.iter().map(branch).collect(),
        rules: rule_set(rules),
        on_branch_error: OnBranchError::Skip,
        directories: DirectoryRule::Safe,
        cache_timeout: Duration::ZERO,
        heat: None,
        enforce: EnforceSpec { window: Schedule::default(), bandwidth: None },
        probe_interval: Duration::from_secs(1),
        probe_timeout: Duration::from_secs(10),
        threads: 2,
        transport: Transport::Auto,
        staging,
        access_times: AccessTimes::default(),
    };
    Pool::assemble(spec, &root.join("state"), &[]).unwrap()
}

/// How many sets of rules there are.
pub(crate) const RULE_SETS: usize = 4;

/// Rules to mount with or to change to.
pub(crate) fn rule_set(number: usize) -> RulesSpec {
    let size = |is| Condition::Size { is, value: ByteSize(BIG), hysteresis: ByteSize(0) };
    let extension = |name: &str| Condition::Extension { any_of: vec![name.to_owned()], negated: false };
    // What no rule names stays where it is on a default list of several. A last rule for all files is an order of
    // preference instead.
    let rest = |to: &str| when_all("rest", Vec::new(), to);
    let (rules, default): (_, &[&str]) = match number % RULE_SETS {
        0 => (vec![when("big", size(Comparison::Greater), "slow"), rest("fast")], &["any"]),
        1 => (vec![when("small", size(Comparison::LessOrEqual), "fast")], &["slow", "fast", "tiny"]),
        2 => (
            vec![
                when("users", Condition::Uid { is: Comparison::Equal, value: 1000 }, "slow"),
                when("logs", extension("log"), "tiny"),
                rest("fast"),
            ],
            &["any"],
        ),
        _ => (vec![when("logs", extension("log"), "slow")], &["tiny", "fast", "slow"]),
    };
    RulesSpec {
        rules,
        default: default.iter().map(|&name| name.to_owned()).collect(),
        groups: Vec::new(),
        evicts: Vec::new(),
    }
}

/// Whether a set of rules sends nothing to the branch that is soon full.
pub(crate) fn has_room_always(rules: usize) -> bool {
    rules % RULE_SETS < 2
}

fn when(name: &str, condition: Condition, to: &str) -> RuleSpec {
    when_all(name, vec![condition], to)
}

/// A rule that prefers a branch, and takes any other where that is full or away.
fn when_all(name: &str, conditions: Vec<Condition>, to: &str) -> RuleSpec {
    let to = DestinationSpec { branches: vec![to.to_owned(), "any".to_owned()], offline: Offline::Next };
    let kind = RuleKindSpec::When { conditions, to };
    RuleSpec { name: name.to_owned(), kind, treatment: Treatment::default() }
}

/// The kernel's side of a mount that nobody has mounted.
pub(crate) struct FakeKernel {
    /// Called whenever the kernel is to forget something: of one node, or all names.
    pub(crate) forgets: Box<dyn Fn(Option<NodeId>) + Send + Sync>,
    /// What comes of a registration for passthrough, which is not given without.
    pub(crate) register: Option<Box<dyn Fn() -> std::io::Result<PassthroughToken> + Send + Sync>>,
}

impl Kernel for FakeKernel {
    fn drop_attributes(&self, node: NodeId) {
        (self.forgets)(Some(node));
    }

    fn drop_contents(&self, node: NodeId) {
        (self.forgets)(Some(node));
    }

    fn drop_names(&self) {
        (self.forgets)(None);
    }

    fn gives_passthrough(&self) -> bool {
        self.register.is_some()
    }

    fn register(&self, _: BorrowedFd<'_>) -> std::io::Result<PassthroughToken> {
        self.register.as_ref().map_or(Err(std::io::ErrorKind::Unsupported.into()), |register| register())
    }

    fn is_mounted(&self) -> bool {
        true
    }

    fn transport(&self) -> TransportStatus {
        TransportStatus { kind: TransportKind::Dev, reason: None }
    }

    fn keep_threads(&self, _: usize) {}

    fn shortage(&self) -> Option<String> {
        None
    }
}
