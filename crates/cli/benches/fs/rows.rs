//! The rows of the table: what is measured together (a group), in which unit, and what we aim for.
//!
//! Aims of metadata rows are what the best FUSE file system could cost here: a mirror without rules or branches that answers from the kernel's caches and has files passed through.

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
}

/// One row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Ratio to native that is good enough.
    pub(crate) aim: Option<f64>,
}

/// Rows that come from one run of one workload.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) rules: Rules,
    /// Rows about rules: only where there are any, and native to compare with.
    pub(crate) about_rules: bool,
    /// Adds a sample for each row; what it has added before an error counts.
    pub(crate) work: fn(&Lab, &Stack, &mut Samples) -> Result<()>,
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

pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: "postmark",
        about: "postmark: 12,500 files of 8-64 KiB, 200 directories, 25,000 transactions; blocks of 512 and 4,096 bytes",
        rules: Rules::None,
        about_rules: false,
        work: work::postmark::run,
        rows: &[time("postmark-512", 2.1), time("postmark-4096", 3.0)],
    },
    Group {
        name: "data",
        about: "fio: 2 GiB file; sequential 1 MiB, random 4 KiB, page cache and O_DIRECT",
        rules: Rules::None,
        about_rules: false,
        work: work::data::run,
        rows: &[
            data("seq-write"),
            data("seq-read-warm"),
            data("seq-read-cold"),
            data("rand-read"),
            data("rand-write"),
            data("rand-read-direct"),
            data("rand-write-direct"),
        ],
    },
    Group {
        name: "files",
        about: "20,000 files of 1 KiB in 20 directories, one call after the other",
        rules: Rules::None,
        about_rules: false,
        work: work::files::run,
        rows: &[
            time("create", 4.0),
            time("stat-warm", 1.0),
            time("stat-cold", 6.4),
            time("ls-cold", 2.3),
            time("ls-warm", 0.9),
            time("read-warm", 9.3),
            time("rename", 3.8),
            time("unlink", 2.5),
        ],
    },
    Group {
        name: "tree",
        about: "untar and find of the sources this workspace depends on",
        rules: Rules::None,
        about_rules: false,
        work: work::tree::run,
        rows: &[aimless("untar"), aimless("find-cold"), aimless("find-warm")],
    },
    Group {
        name: "rules-1",
        about: "creating 5,000 files under 1 rule",
        rules: Rules::Unmatched(1),
        about_rules: true,
        work: work::rules::run_1,
        rows: &[time("create-1-rule", 4.0)],
    },
    Group {
        name: "rules-32",
        about: "creating 5,000 files under 32 rules",
        rules: Rules::Unmatched(32),
        about_rules: true,
        work: work::rules::run_32,
        rows: &[time("create-32-rules", 4.0)],
    },
    Group {
        name: "rules-1000",
        about: "creating 5,000 files under 1,000 rules",
        rules: Rules::Unmatched(1000),
        about_rules: true,
        work: work::rules::run_1000,
        rows: &[time("create-1000-rules", 4.0)],
    },
    Group {
        name: "oscillation",
        about: "2,000 files of 8 KiB cross a size rule at 8 KiB by 1 KiB, there and back",
        rules: Rules::BySize { band_kib: 0 },
        about_rules: true,
        work: work::oscillation::run,
        rows: &[aimless("append"), aimless("append-moved"), aimless("truncate"), aimless("truncate-moved")],
    },
    Group {
        name: "oscillation-band",
        about: "the same with a band of 2 KiB: they cross it once, then nothing moves",
        rules: Rules::BySize { band_kib: 2 },
        about_rules: true,
        work: work::oscillation::run_with_band,
        rows: &[aimless("append-band"), aimless("truncate-band")],
    },
];

/// Groups with at least one of the wanted rows; all of them when none is named.
pub(crate) fn select(only: &[String]) -> Result<Vec<&'static Group>> {
    let known =
        |name: &str| GROUPS.iter().any(|group| group.name == name || group.rows.iter().any(|row| row.name == name));
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
    only.is_empty() || only.iter().any(|name| name == group.name || name == row.name)
}

pub(crate) fn print_list() {
    for group in GROUPS {
        println!("{}: {}", group.name, group.about);
        for row in group.rows {
            println!("  {}", row.name);
        }
    }
}
