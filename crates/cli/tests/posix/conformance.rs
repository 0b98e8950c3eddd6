//! Programs that load a file system and check what they get back, on a pool where files wait in memory, overflow and
//! move by rules while they run.
//!
//! `make test` runs each for a moment, `make test-conformance` for `UMBRELLA_CONFORMANCE_SECONDS` each. After each of
//! them:
//!
//! - The program found nothing wrong, and the log has no error.
//! - Files were staged, moved and overflowed.
//! - No file was lost or changed, also after another mount.
//! - Each file lies on one branch alone, and fsck finds the branches clean.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::suites::{BetweenOpens, FsxRun, MappedReads, fsx_once, pjdfstest_passes_as_on};
use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::tree::{self, Times};
use crate::support::{KIB, MIB, bytes, number_from_env, temp_dir};

/// How long each program runs.
fn seconds() -> u64 {
    number_from_env("UMBRELLA_CONFORMANCE_SECONDS", 3)
}

/// A pool whose first branch is soon full, with files that were there before.
struct Loaded {
    pool: Pool,
    disks: [Disk; 3],
    before: tree::Tree,
}

/// Beside what the programs write.
const KEPT: &str = "kept";

impl Loaded {
    fn new() -> Loaded {
        let disks = [Disk::ext4(12 * MIB), Disk::ext4(1024 * MIB), Disk::ext4(1024 * MIB)];
        let pool = Pool::builder()
            .branches([("tiny", disks[0].path()), ("spare", disks[1].path()), ("large", disks[2].path())])
            .default(&["tiny", "spare"])
            .rules("[[rule]]\nname = \"large files\"\nwhen = { size = \">= 128KiB\" }\nto = [\"large\", \"default\", \"any\"]\n")
            .keys("[staging]\nmode = \"always\"\nmax_file = \"160 KiB\"\nmax_age = \"20 ms\"")
            .limit(Duration::from_secs(1200 + 20 * seconds()))
            .mount();
        fs::create_dir(pool.join(KEPT)).unwrap();
        for number in 0..60 {
            fs::write(pool.join(KEPT).join(format!("file-{number}")), bytes(number, number * 9 * KIB)).unwrap();
        }
        let before = tree::snapshot(&pool.join(KEPT), Times::Kept);
        Loaded { pool, disks, before }
    }

    /// A new folder for a program.
    fn folder(&self) -> PathBuf {
        let folder = self.pool.join("load");
        fs::create_dir(&folder).unwrap();
        folder
    }

    /// All but the root itself, whose time changes where the pool keeps its own files.
    fn whole_tree(&self) -> tree::Tree {
        let mut all = tree::snapshot(&self.pool.mount_point(), Times::Kept);
        all.remove(Path::new(""));
        all
    }

    /// What has to hold after every load.
    #[track_caller]
    fn expect_well(mut self) {
        self.pool.settle_closed();
        self.pool.say(["sync"]);
        self.pool.settle();
        for done in ["umbrella_staging_left_count", "umbrella_relocations_done_count", "umbrella_overflows_done_count"]
        {
            assert!(self.pool.metric(done) > 0, "{done} is 0: the load reached too little");
        }
        assert_eq!(self.pool.metric("umbrella_relocations_failed_count"), 0, "{}", self.pool.log());
        assert_eq!(tree::snapshot(&self.pool.join(KEPT), Times::Kept), self.before, "nobody's files are as they were");
        let all = self.whole_tree();
        let mut shown = tree::files_below(&self.pool.mount_point());
        self.pool.stop();
        let mut kept: Vec<_> = self.disks.iter().flat_map(Disk::files).collect();
        shown.sort();
        kept.sort();
        assert_eq!(kept, shown, "each file is on one branch, and nothing else is");
        self.disks.iter().for_each(Disk::fsck);
        self.pool.start();
        tree::assert_same(&all, &self.whole_tree(), "after another mount");
        self.pool.stop();
        let log = self.pool.log();
        let bad: Vec<_> = log.lines().filter(|line| line.contains("ERROR") || line.contains("panicked")).collect();
        assert!(bad.is_empty(), "the log has errors: {bad:#?}");
    }
}

/// Runs a program that `make setup` installs; fails with what it said unless it found everything right.
#[track_caller]
fn passes(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error} (run `make setup`)"));
    let said = text(&output);
    let lines: Vec<_> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(60)..].join("\n");
    assert!(output.status.success(), "{command:?} failed ({}):\n{end}", output.status);
    output
}

#[test]
#[ignore = "make test runs it on other pools; make test-conformance runs it here"]
fn pjdfstest_passes_on_a_pool_under_all_of_it() {
    let loaded = Loaded::new();
    let plain = Disk::ext4(64 * MIB);
    let folder = loaded.folder();
    overflow(&folder);
    pjdfstest_passes_as_on(&plain.path(), &folder);
    loaded.expect_well();
}

/// Fills the first branch with small files, and lets some of them grow there: they overflow, and half of them move on
/// by the rule.
fn overflow(folder: &Path) {
    let path = |number: u64| folder.join(format!("small-{number}"));
    for number in 0..110 {
        let mut file = File::create(path(number)).unwrap();
        file.write_all(&bytes(number, 100 * KIB)).unwrap();
        // Out of staging, at once.
        file.sync_all().unwrap();
    }
    for number in 0..40 {
        let grown = if number % 2 == 0 { 16 * KIB } else { 64 * KIB };
        File::options().append(true).open(path(number)).unwrap().write_all(&bytes(number, grown)).unwrap();
    }
}

#[test]
fn fsx_passes_on_a_pool_under_all_of_it() {
    let loaded = Loaded::new();
    let folder = temp_dir("fsx");
    overflow(&loaded.folder());
    let operations = 400 + 50 * seconds();
    let mut whole = 0;
    for seed in 1..=10 {
        let run = fsx_once(&loaded.pool, folder.path(), seed, operations, BetweenOpens::Nothing, MappedReads::Some);
        whole += usize::from(run == FsxRun::Whole);
    }
    assert!(whole >= 4, "too many runs of fsx ended early");
    loaded.expect_well();
}

/// Kinds of stressors of stress-ng that work on files in a folder.
const STRESSORS: [&str; 41] = [
    "access",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dnotify",
    "dup",
    "fallocate",
    "fanotify",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "open",
    "rename",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];

/// A program that sees no mount of other tests: stress-ng syncs each that it sees, and theirs may have failed.
fn alone(pool: &Pool, program: &str) -> Command {
    const SCRIPT: &str = "own=$1; below=$2; shift 2
        findmnt --noheadings --list --output TARGET | tac | while read -r mount; do
            case $mount in \"$own\") ;; \"$below\"/*) umount --lazy --no-canonicalize \"$mount\" ;; esac
        done
        exec \"$@\"";
    let (own, below) = (pool.mount_point(), std::env::temp_dir());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "alone"]).args([&own, &below]).arg(program);
    command
}

#[test]
fn stress_ng_passes_on_a_pool_under_all_of_it() {
    let loaded = Loaded::new();
    let folder = loaded.folder();
    overflow(&folder);
    let mut command = alone(&loaded.pool, "stress-ng");
    command.args(["--verify", "--timeout", &seconds().to_string(), "--hdd-bytes", "4m", "--fallocate-bytes", "4m"]);
    command.args(["--copy-file-bytes", "128m", "--sync-file-bytes", "4m"]).arg("--temp-path").arg(&folder);
    for stressor in STRESSORS {
        command.args([&format!("--{stressor}"), "1"]);
    }
    let said = text(&passes(&mut command));
    // How long its inotify stressor waits for an event is no promise of a file system; that the event comes is a test
    // of its own.
    let waited = |line: &str| line.contains("inotify") && line.contains("timed waiting");
    let failed = |line: &&str| line.contains(" fail: ") && !waited(line);
    assert_eq!(said.lines().find(failed), None, "{said}");
    loaded.expect_well();
}

#[test]
fn fio_reads_back_what_it_wrote_on_a_pool_under_all_of_it() {
    let loaded = Loaded::new();
    let folder = loaded.folder();
    // fio leaves files of its own where it is started.
    let elsewhere = temp_dir("fio");
    // Whole blocks of each job in each of its files.
    let size = format!("{}k", 1536 * (seconds() / 3).clamp(1, 8));
    let job = |options: &[&str]| {
        let mut command = Command::new("fio");
        command.arg("--directory").arg(&folder).args(["--verify=crc32c", "--verify_fatal=1", "--end_fsync=1"]);
        command.args(["--numjobs=2", "--size", &size, "--allrandrepeat=1"]).args(options);
        command.current_dir(elsewhere.path());
        passes(&mut command);
    };
    let jobs: [&[&str]; 5] = [
        &["--name=psync", "--ioengine=psync", "--rw=randwrite", "--bsrange=512-64k", "--nrfiles=12"],
        &["--name=mapped", "--ioengine=mmap", "--rw=randwrite", "--bs=4k", "--nrfiles=24"],
        &[
            "--name=direct",
            "--ioengine=libaio",
            "--iodepth=8",
            "--direct=1",
            "--rw=randwrite",
            "--bs=4k",
            "--nrfiles=6",
        ],
        &["--name=synced", "--ioengine=sync", "--rw=write", "--bs=2k", "--fsync=8", "--fallocate=none", "--nrfiles=48"],
        &[
            "--name=vectors",
            "--ioengine=pvsync2",
            "--rw=randwrite",
            "--bs=8k",
            "--nrfiles=12",
            "--openfiles=3",
            "--fallocate=keep",
        ],
    ];
    for options in jobs {
        job(options);
    }
    overflow(&folder);
    // Again, after whatever was moved has been moved.
    loaded.pool.settle_closed();
    for options in jobs {
        job(&[options, &["--verify_only=1"]].concat());
    }
    loaded.expect_well();
}

#[test]
fn bonnie_passes_on_a_pool_under_all_of_it() {
    let loaded = Loaded::new();
    let folder = loaded.folder();
    let rounds = seconds().div_ceil(20).to_string();
    passes(
        Command::new("bonnie++")
            .args(["-q", "-f", "-u", "root", "-r", "4", "-s", "8", "-n", "1:65536:512:4", "-x", &rounds, "-d"])
            .arg(&folder),
    );
    overflow(&folder);
    loaded.expect_well();
}

#[test]
fn dbench_passes_on_a_pool_under_all_of_it() {
    let loaded = Loaded::new();
    let folder = loaded.folder();
    passes(
        Command::new("dbench")
            .args(["-c", "/usr/share/dbench/client.txt", "-t", &seconds().to_string(), "-x", "-D"])
            .arg(&folder)
            .arg("3"),
    );
    overflow(&folder);
    loaded.expect_well();
}
