//! Test programs from elsewhere: `pjdfstest` and `fsx`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::tools::tool;
use crate::support::{KIB, MIB, number_from_env, ordered_write_back, temp_dir};
use crate::{Data, Two};

/// What one run of `pjdfstest` said.
#[derive(Debug)]
struct Verdict {
    failed: BTreeSet<String>,
    skipped: BTreeSet<String>,
    passed: usize,
    output: String,
}

/// Everything that Linux has is switched on; the second file system serves the tests that expect EXDEV.
fn pjdfstest(path: &Path, other: &Path) -> Verdict {
    let config = temp_dir("pjdfstest");
    let file = config.path().join("pjdfstest.toml");
    fs::write(
        &file,
        "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
         [settings]\nnaptime = 0.01\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n",
    )
    .unwrap();
    let output =
        Command::new(tool("pjdfstest")).arg("-c").arg(&file).arg("-s").arg(other).arg("-p").arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let cases = |verdict: &str| {
        text.lines()
            .filter(|line| !line.starts_with(char::is_whitespace))
            .filter_map(|line| line.strip_suffix(verdict))
            .map(|name| name.trim().to_owned())
            .collect::<BTreeSet<_>>()
    };
    let verdict = Verdict {
        failed: cases("FAILED"),
        skipped: cases("skipped"),
        passed: cases(" ok").len(),
        output: text.clone(),
    };
    assert!(verdict.passed > 300, "pjdfstest ran: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    verdict
}

fn pjdfstest_passes_as_on_plain_ext4(data: Data) {
    let two = Two::new(data);
    pjdfstest_passes_as_on(&two.plain.path(), &two.mount_point());
}

/// No test fails, and none is skipped that is not skipped on plain ext4.
pub(super) fn pjdfstest_passes_as_on(plain: &Path, mount: &Path) {
    let other = Disk::tmpfs(16 * MIB);
    let expected = pjdfstest(plain, &other.path());
    assert_eq!(expected.failed, BTreeSet::new(), "plain ext4 passes");
    let actual = pjdfstest(mount, &other.path());
    assert_eq!(actual.failed, BTreeSet::new(), "{}", actual.output);
    // The C library knows the largest number of links of a few file systems, and of FUSE it does not; see
    // `names::a_file_has_as_many_names_as_its_branch_allows`.
    let unknown = BTreeSet::from(["link::link_count_max".to_owned()]);
    let skipped = &(&actual.skipped - &expected.skipped) - &unknown;
    assert_eq!(skipped, BTreeSet::new(), "skipped here and not on plain ext4");
    assert!(actual.passed + 1 >= expected.passed, "{} passed, on plain ext4 {}", actual.passed, expected.passed);
}

#[test]
fn pjdfstest_passes_with_passthrough() {
    pjdfstest_passes_as_on_plain_ext4(Data::Passthrough);
}

#[test]
fn pjdfstest_passes_without_passthrough() {
    pjdfstest_passes_as_on_plain_ext4(Data::Mediated);
}

#[test]
fn pjdfstest_passes_with_ordered_write_back() {
    pjdfstest_passes_as_on_plain_ext4(Data::Ordered);
}

/// Every operation that fsx knows, so that none is left out; closes are rarer because each may move the file.
const FSX: &str = "flen = 262144\n\
    [opsize]\nmin = 0\nmax = 65536\nalign = 1\n\
    [weights]\nclose_open = 2\ninvalidate = 1\nmapread = MAPREAD\nmapwrite = 10\nread = 10\nwrite = 10\ntruncate = 10\nfsync = 1\n\
    fdatasync = 1\nposix_fallocate = 4\npunch_hole = 6\nsendfile = 4\nposix_fadvise = 1\ncopy_file_range = 4\n";

/// What fsx does between a close and the next open of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BetweenOpens {
    Nothing,
    /// It waits long enough for the file to move: a file that is open again for writing stays. strace makes it wait.
    Waits {
        ms: u64,
    },
}

/// Whether fsx reads through mappings too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MappedReads {
    None,
    Some,
}

/// Whole runs of fsx that a test asks for, two at a time.
const FSX_RUNS: usize = 10;
/// Seeds that may end early on the way to them.
const FSX_EARLY_ENDS: u64 = 30;

/// How a run of fsx ended that found no fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FsxRun {
    Whole,
    /// It asked for what no file system gives, and stopped there.
    EndedEarly,
}

/// Ten whole runs, with the seeds from 1 on. `UMBRELLA_FSX_OPS` sets the number of operations of each.
fn fsx(pool: &Pool, between: BetweenOpens, reads: MappedReads) {
    let operations = number_from_env("UMBRELLA_FSX_OPS", 10_000);
    let folder = temp_dir("fsx");
    let seeds = AtomicU64::new(1);
    let half = || {
        let mut whole = 0;
        while whole < FSX_RUNS / 2 {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            assert!(seed <= FSX_RUNS as u64 + FSX_EARLY_ENDS, "too many runs of fsx ended early");
            let run = fsx_once(pool, folder.path(), seed, operations, between, reads);
            whole += usize::from(run == FsxRun::Whole);
        }
    };
    thread::scope(|scope| {
        for half in [scope.spawn(half), scope.spawn(half)] {
            half.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

pub(super) fn fsx_once(
    pool: &Pool,
    folder: &Path,
    seed: u64,
    operations: u64,
    between: BetweenOpens,
    reads: MappedReads,
) -> FsxRun {
    let config = folder.join(format!("fsx-{seed}.toml"));
    // fsx leaves what it mapped for reading mapped, and what is mapped stays where it is.
    let mapread = if reads == MappedReads::None { "0" } else { "10" };
    fs::write(&config, FSX.replace("MAPREAD", mapread)).unwrap();
    let file = pool.join(format!("file-{seed}"));
    let mut command = match between {
        BetweenOpens::Nothing => Command::new(tool("fsx")),
        BetweenOpens::Waits { ms } => {
            let mut strace = Command::new("strace");
            strace.args(["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=openat"]);
            strace.args(["-e", &format!("inject=openat:delay_enter={ms}ms")]).arg(tool("fsx"));
            strace
        }
    };
    let output = command
        .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-f"])
        .arg(&config)
        .arg("-P")
        .arg(folder)
        .arg(&file)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = said.lines().collect();
    // Now and then it asks for a posix_fallocate of nothing, which every file system refuses; what it did before was
    // right.
    let asked_for_nothing =
        lines.last().is_some_and(|line| line.contains("POSIX_FALLOCATE") && line.contains(" 0x0 bytes"));
    if asked_for_nothing {
        eprintln!("fsx -N {operations} -S {seed} ended early");
        fs::remove_file(&file).unwrap();
        return FsxRun::EndedEarly;
    }
    let end = lines[lines.len().saturating_sub(40)..].join("\n");
    assert!(output.status.success(), "fsx -N {operations} -S {seed} failed ({}):\n{end}", output.status);
    fs::remove_file(&file).unwrap();
    FsxRun::Whole
}

/// Runs take as long as their operations.
fn fsx_limit() -> Duration {
    Duration::from_secs(1200 + number_from_env("UMBRELLA_FSX_OPS", 10_000) / 50)
}

fn fsx_over_a_size_rule(keys: &str, reads: MappedReads) {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(64 * MIB)];
    let pool = Pool::builder()
        .branch_with("small", disks[0].path(), keys)
        .branch_with("large", disks[1].path(), keys)
        .default(&["small"])
        .rules("[[rule]]\nname = \"large files\"\nwhen = { size = \">= 128KiB\" }\nto = [\"large\", \"default\", \"any\"]\n")
        .limit(fsx_limit())
        .mount();
    // How long is long enough depends on this machine.
    for ms in [40, 200, 800] {
        fsx(&pool, BetweenOpens::Waits { ms }, reads);
        if pool.moves() > 100 {
            break;
        }
    }
    assert!(pool.moves() > 100, "files crossed the rule's border: {} moves", pool.moves());
}

#[test]
fn fsx_passes_where_a_size_rule_moves_the_file_at_close() {
    fsx_over_a_size_rule("passthrough = false", MappedReads::None);
}

#[test]
fn fsx_passes_where_a_size_rule_moves_the_file_at_close_with_passthrough() {
    fsx_over_a_size_rule("passthrough = true\nheadroom = 0", MappedReads::None);
}

#[test]
fn pjdfstest_passes_with_new_files_staged() {
    pjdfstest_passes_as_on_plain_ext4(Data::Staged);
}

#[test]
fn pjdfstest_passes_with_new_files_staged_and_ordered_write_back() {
    pjdfstest_passes_as_on_plain_ext4(Data::Both);
}

#[test]
fn fsx_passes_where_the_file_leaves_staging_under_it() {
    fsx_over_staging("passthrough = false");
}

#[test]
fn fsx_passes_where_the_file_leaves_staging_under_it_with_ordered_write_back() {
    fsx_over_staging(&ordered_write_back());
}

fn fsx_over_staging(keys: &str) {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(64 * MIB)];
    let pool = Pool::builder()
        .branch_with("small", disks[0].path(), keys)
        .branch_with("large", disks[1].path(), keys)
        .default(&["small"])
        .rules("[[rule]]\nname = \"large files\"\nwhen = { size = \">= 128KiB\" }\nto = [\"large\", \"default\", \"any\"]\n")
        .keys("[staging]\nmode = \"always\"\nmax_file = \"160 KiB\"\nmax_age = \"20 ms\"")
        .limit(fsx_limit())
        .mount();
    // Each run's file leaves once: many short ones.
    let folder = temp_dir("fsx");
    let seeds = number_from_env("UMBRELLA_FSX_OPS", 10_000) / 100;
    let left = || pool.metric("umbrella_staging_left_count");
    // The quicker this machine, the more is done in the moment in which a file waits.
    let mut operations = 300;
    for seed in 1..=seeds {
        fsx_once(&pool, folder.path(), seed, operations, BetweenOpens::Nothing, MappedReads::Some);
        if seed % 5 == 0 && left() < seed / 2 {
            operations = (operations * 2).min(10_000);
        }
    }
    // What was too quick in the beginning.
    for seed in seeds + 1..=2 * seeds {
        if left() >= seeds / 2 {
            break;
        }
        fsx_once(&pool, folder.path(), seed, operations, BetweenOpens::Nothing, MappedReads::Some);
    }
    let left = left();
    assert!(left >= seeds / 2, "{left} of {seeds} files left staging while fsx ran");
}

#[test]
fn fsx_passes_where_a_size_rule_moves_the_file_at_close_with_ordered_write_back() {
    fsx_over_a_size_rule(&ordered_write_back(), MappedReads::None);
}

#[test]
fn fsx_passes_where_the_first_branch_overflows() {
    let tiny = Disk::tmpfs(192 * KIB);
    let large = Disk::ext4(64 * MIB);
    let pool = Pool::builder().branch("tiny", tiny.path()).branch("large", large.path()).limit(fsx_limit()).mount();
    fsx(&pool, BetweenOpens::Nothing, MappedReads::Some);
    assert!(pool.moves() > 5, "files overflowed: {} moves", pool.moves());
    let back = pool.branch_status("tiny").files_moved_in;
    assert!(back < pool.moves() / 2, "files move back only when another one has left room: {back} of {}", pool.moves());
    let left: [Vec<PathBuf>; 2] = [tiny.files(), large.files()];
    assert_eq!(left, [Vec::<PathBuf>::new(), Vec::new()], "nothing is left behind");
}
