//! The rows of the table: what is measured together (a group), in which unit, and what we aim for.
//!
//! Aims of metadata rows were set beforehand, near what a minimal server over io_uring cost, one that does nothing but
//! answer.

use anyhow::{Result, bail};

use crate::system::{Rules, Stack, System};
use crate::work::{self, Lab, Samples};

/// What a sample of a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds for the whole work or one operation of it; lower is better.
    Seconds,
    /// Bytes a second; higher is better.
    Throughput,
    /// How many times what one client does several do at once; higher is better, and no ratio to native.
    SpeedUp,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Ratio to native that is good enough; of a speed-up, itself.
    pub(crate) aim: Option<f64>,
}

/// Rows that come from one run of one workload.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) rules: Rules,
    /// Rows about rules: only where there are any, and native to compare with.
    pub(crate) about_rules: bool,
    /// From the UmbrellaFS dissertation; runs only if asked for (`--only papers`).
    pub(crate) of_paper: bool,
    /// Adds a sample for each row; what it has added before an error counts.
    pub(crate) work: Work,
    pub(crate) rows: &'static [Row],
}

impl Group {
    pub(crate) fn runs_on(&self, system: System) -> bool {
        !self.about_rules || system == System::Native || system.has_rules()
    }
}

const fn time(name: &'static str, aim: f64) -> Row {
    Row { name, unit: Unit::Seconds, aim: Some(aim) }
}

const fn aimless(name: &'static str) -> Row {
    Row { name, unit: Unit::Seconds, aim: None }
}

const fn data(name: &'static str) -> Row {
    Row { name, unit: Unit::Throughput, aim: Some(0.97) }
}

const fn speed_up(name: &'static str, aim: f64) -> Row {
    Row { name, unit: Unit::SpeedUp, aim: Some(aim) }
}

type Work = fn(&Lab, &Stack, &mut Samples) -> Result<()>;

/// A group for which rules do not matter.
const fn plain(name: &'static str, about: &'static str, work: Work, rows: &'static [Row]) -> Group {
    Group { name, about, rules: Rules::None, about_rules: false, of_paper: false, work, rows }
}

const fn about_rules(name: &'static str, about: &'static str, rules: Rules, work: Work, rows: &'static [Row]) -> Group {
    Group { name, about, rules, about_rules: true, of_paper: false, work, rows }
}

/// A group of the dissertation.
const fn paper(name: &'static str, about: &'static str, rules: Rules, work: Work, rows: &'static [Row]) -> Group {
    Group { of_paper: true, ..about_rules(name, about, rules, work, rows) }
}

pub(crate) const GROUPS: &[Group] = &[
    plain(
        "postmark",
        "postmark: 12,500 files of 8-64 KiB, 200 directories, 25,000 transactions; blocks of 512 and 4,096 bytes",
        work::postmark::run,
        &[time("postmark-512", 1.8), time("postmark-4096", 2.2)],
    ),
    plain(
        "data",
        "fio: 2 GiB file; sequential 1 MiB, random 4 KiB, page cache and O_DIRECT",
        work::data::run,
        &[
            data("seq-write"),
            data("seq-read-warm"),
            data("seq-read-cold"),
            data("rand-read"),
            data("rand-write"),
            data("rand-read-direct"),
            data("rand-write-direct"),
        ],
    ),
    plain(
        "files",
        "20,000 files of 1 KiB in 20 directories, one call after the other",
        work::files::run,
        &[
            time("create", 2.8),
            time("stat-warm", 1.0),
            time("stat-cold", 3.5),
            time("ls-cold", 2.0),
            time("ls-warm", 0.9),
            time("read-warm", 5.0),
            time("rename", 2.5),
            time("unlink", 1.7),
        ],
    ),
    plain(
        "many",
        "30,000 empty files in one directory: `ls -l`, `rm -r`",
        work::many::run,
        &[time("ls-l-cold", 2.5), time("ls-l-warm", 1.5), time("rm-r", 2.5)],
    ),
    plain(
        "clients",
        "20,000 files of 1 KiB by one, two and four clients at once, each in a directory of its own",
        work::clients::run,
        &[speed_up("two-clients", 1.6), speed_up("four-clients", 1.0)],
    ),
    plain(
        "computing",
        "5,000 files of 1 KiB by a client that computes for 50 us between its calls; without that time",
        work::computing::run,
        &[time("create-computing", 2.8), time("stat-cold-computing", 3.5)],
    ),
    plain(
        "tree",
        "untar and find of the crates of the registry that this workspace depends on",
        work::tree::run,
        &[time("untar", 3.0), aimless("find-cold"), aimless("find-warm")],
    ),
    about_rules(
        "rules-1",
        "creating 5,000 files under 1 rule",
        Rules::Unmatched(1),
        |lab, stack, samples| work::rules::run(lab, stack, "create-1-rule", samples),
        &[time("create-1-rule", 2.8)],
    ),
    about_rules(
        "rules-32",
        "creating 5,000 files under 32 rules",
        Rules::Unmatched(32),
        |lab, stack, samples| work::rules::run(lab, stack, "create-32-rules", samples),
        &[time("create-32-rules", 2.8)],
    ),
    about_rules(
        "rules-1000",
        "creating 5,000 files under 1,000 rules",
        Rules::Unmatched(1000),
        |lab, stack, samples| work::rules::run(lab, stack, "create-1000-rules", samples),
        &[time("create-1000-rules", 2.8)],
    ),
    about_rules(
        "most-free-4",
        "creating 5,000 files in a group of 4 branches with `spread = \"most-free\"`",
        Rules::MostFree(4),
        |lab, stack, samples| work::rules::run(lab, stack, "create-most-free-4", samples),
        &[time("create-most-free-4", 2.8)],
    ),
    about_rules(
        "most-free-24",
        "the same with 24 branches",
        Rules::MostFree(24),
        |lab, stack, samples| work::rules::run(lab, stack, "create-most-free-24", samples),
        &[time("create-most-free-24", 2.8)],
    ),
    about_rules(
        "open-close",
        "opening and closing 5,000 known files of 1 KiB, without a rule on heat",
        Rules::None,
        |lab, stack, samples| work::heat::run(lab, stack, "open-close", samples),
        &[aimless("open-close")],
    ),
    about_rules(
        "open-close-heat",
        "the same under a rule on heat: each open is counted",
        Rules::Heat,
        |lab, stack, samples| work::heat::run(lab, stack, "open-close-heat", samples),
        &[aimless("open-close-heat")],
    ),
    about_rules(
        "small",
        "creating 3,000 files of 1 KiB under a rule that sends small files to the second branch, and until all are there",
        Rules::SmallFiles,
        work::small::run,
        &[time("create-small", 2.0), aimless("create-small-placed")],
    ),
    about_rules(
        "oscillation",
        "2,000 files of 8 KiB cross a size rule at 8 KiB by 1 KiB, there and back",
        Rules::BySize { hysteresis_kib: 0 },
        work::oscillation::run,
        &[aimless("append"), aimless("append-moved"), aimless("truncate"), aimless("truncate-moved")],
    ),
    about_rules(
        "oscillation-hysteresis",
        "the same with a hysteresis of 2 KiB: they cross it once, then nothing moves",
        Rules::BySize { hysteresis_kib: 2 },
        work::oscillation::run_with_band,
        &[aimless("append-hysteresis"), aimless("truncate-hysteresis")],
    ),
    paper(
        "postmark-inode",
        "figure 16: postmark under 32 rules on inodes, of which the last matches",
        Rules::ByInode(32),
        |lab, stack, samples| work::postmark::time(lab, stack, "postmark-inode-32", 512, samples),
        &[time("postmark-inode-32", 1.03)],
    ),
    paper(
        "postmark-name",
        "figure 16: postmark under 32 rules on names that match in part",
        Rules::ByName(32),
        |lab, stack, samples| work::postmark::time(lab, stack, "postmark-name-32", 512, samples),
        &[time("postmark-name-32", 1.03)],
    ),
    paper(
        "overflow",
        "figure 17: postmark where the first branch of the rule's list is full",
        Rules::Overflow,
        |lab, stack, samples| work::postmark::time(lab, stack, "postmark-overflow", 512, samples),
        &[time("postmark-overflow", 1.03)],
    ),
    paper(
        "compile-inode-1",
        "figure 14: a program of 200 sources is compiled and installed under 1 rule on inodes",
        Rules::ByInode(1),
        |lab, stack, samples| work::paper::compile(lab, stack, "compile-inode-1", samples),
        &[aimless("compile-inode-1")],
    ),
    paper(
        "compile-inode-32",
        "figure 14: the same under 32 rules on inodes",
        Rules::ByInode(32),
        |lab, stack, samples| work::paper::compile(lab, stack, "compile-inode-32", samples),
        &[aimless("compile-inode-32")],
    ),
    paper(
        "compile-name-1",
        "figure 15: the same under 1 rule on names",
        Rules::ByName(1),
        |lab, stack, samples| work::paper::compile(lab, stack, "compile-name-1", samples),
        &[aimless("compile-name-1")],
    ),
    paper(
        "compile-name-32",
        "figure 15: the same under 32 rules on names",
        Rules::ByName(32),
        |lab, stack, samples| work::paper::compile(lab, stack, "compile-name-32", samples),
        &[aimless("compile-name-32")],
    ),
    paper(
        "encrypted-tenth",
        "figure 22: postmark where a rule puts a tenth of the directories on an encrypted branch (gocryptfs)",
        Rules::Encrypted { all: false },
        |lab, stack, samples| work::postmark::time(lab, stack, "postmark-encrypted-tenth", 4096, samples),
        &[aimless("postmark-encrypted-tenth")],
    ),
    paper(
        "encrypted-all",
        "figure 22: the same where all branches are encrypted",
        Rules::Encrypted { all: true },
        |lab, stack, samples| work::postmark::time(lab, stack, "postmark-encrypted-all", 4096, samples),
        &[aimless("postmark-encrypted-all")],
    ),
];

/// All groups of the dissertation.
const PAPERS: &str = "papers";

/// Groups with at least one of the wanted rows. When none is named: all but those of the dissertation.
pub(crate) fn select(only: &[String]) -> Result<Vec<&'static Group>> {
    let known = |name: &str| {
        name == PAPERS || GROUPS.iter().any(|group| group.name == name || group.rows.iter().any(|row| row.name == name))
    };
    let unknown: Vec<&str> = only.iter().map(String::as_str).filter(|name| !known(name)).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = GROUPS
            .iter()
            .flat_map(|group| std::iter::once(group.name).chain(group.rows.iter().map(|row| row.name)))
            .collect();
        bail!("no such row: {}; known are {}", unknown.join(", "), names.join(", "));
    }
    Ok(GROUPS.iter().filter(|group| group.rows.iter().any(|row| is_wanted(group, row, only))).collect())
}

/// Whether the row was asked for, by its name or its group's.
pub(crate) fn is_wanted(group: &Group, row: &Row, only: &[String]) -> bool {
    let is_named = |name: &String| name == group.name || name == row.name || (group.of_paper && name == PAPERS);
    if only.is_empty() { !group.of_paper } else { only.iter().any(is_named) }
}

pub(crate) fn print_list() {
    for group in GROUPS {
        println!("{}: {}", group.name, group.about);
        for row in group.rows {
            println!("  {}", row.name);
        }
    }
}
