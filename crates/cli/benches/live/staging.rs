//! What staging gains: new files that wait in memory until their size and fate are known, against ext4 without a mount.
//!
//! Thresholds as in MRAM (10 and 40 % of a shrunk 512 MB) on all sides; staging may hold as much as may be dirty
//! elsewhere. Besides time: into how many pieces files fall, and how far their first and last block lie apart (MRAM,
//! figure 4.6), just before they are deleted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use clap::Args as ClapArgs;
use umbrella_lab::workload::BoxedWorkload;
use umbrella_units::ByteSize;

use crate::args::Args;
use crate::disk::Image;
use crate::kernel::{Keeper, OrderedBy};
use crate::measure::{DiskOf, Run};
use crate::place::Place;
use crate::prediction::{self, Assumed};
use crate::programs::Postmark;
use crate::report::{Column, Figures, KIB, MIB, Report};
use crate::sizes::Sizes;
use crate::stack::{Pool, Stack, System};
use crate::workloads::{CreateDelete, of_lab};
use crate::{host, layout, steps};

const MRAM_MEMORY: ByteSize = ByteSize(512 << 20);
const DISK: &str = "maxtor_80gb";
/// MRAM's own policy, with segments and zones.
const POLICY: &str = "wasl_segment_zone";
/// How long volatile staging keeps a file, in the disk's own time.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Options of this benchmark.
#[derive(Debug, ClapArgs)]
pub(crate) struct Options {
    /// Numbers of files of postmark, of which the scale takes its share
    #[arg(long, value_name = "N", default_value = "5000,25000,55000", value_delimiter = ',')]
    files: Vec<u64>,
    /// The write-back policy of the systems that have one
    #[arg(long, value_name = "POLICY", default_value = POLICY)]
    policy: String,
    /// Only these systems; native is always among them
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
    systems: Vec<String>,
}

/// A workload.
enum Work {
    Postmark(Postmark),
    /// An archive in memory is unpacked.
    Untar {
        files: u64,
        directories: u64,
        total: ByteSize,
    },
    CreateDelete {
        files: u64,
    },
    /// The lab's, by name.
    OfLab(String),
}

const COLUMNS: &[Column] = &[
    Column { heading: "disk busy", figure: "busy_seconds", unit: 1.0, digits: 2 },
    Column { heading: "pieces", figure: "fragments", unit: 1.0, digits: 2 },
    Column { heading: "blocks apart", figure: "spread_blocks", unit: 1.0, digits: 0 },
    Column { heading: "MiB written", figure: "written_bytes", unit: MIB, digits: 1 },
    Column { heading: "requests", figure: "requests", unit: 1.0, digits: 0 },
    Column { heading: "KiB each", figure: "request_bytes", unit: KIB, digits: 1 },
    Column { heading: "cylinders", figure: "seek_cylinders", unit: 1.0, digits: 0 },
    Column { heading: "flushes", figure: "flushes", unit: 1.0, digits: 0 },
];

/// All rows of this benchmark.
pub(crate) fn run(args: &Args, options: &Options, place: &Place, keeper: &Keeper) -> Result<Report> {
    let sizes = args.sizes(MRAM_MEMORY);
    args.check_only(&["postmark", "untar", "create-empty", "bonnie", "create-delete"])?;
    let setting = args.setting(&sizes);
    let mut report = Report::new("staging, seconds of the disk's own time", "native", setting);
    for (name, about, work) in works(sizes, options) {
        // A row of postmark is asked for by the program's name.
        if !args.wants(name.split('-').next().filter(|first| *first == "postmark").unwrap_or(&name)) {
            continue;
        }
        report.row(&name, about);
        if let Err(error) = row(args, options, place, keeper, &mut report, &work) {
            report.add("all", 0, Err(error));
        }
        if host::check().is_err() {
            break;
        }
    }
    report.end(COLUMNS, args.json.as_deref())
}

fn works(sizes: Sizes, options: &Options) -> Vec<(String, &'static str, Work)> {
    let postmark = |files: &u64| {
        let work = Postmark { files: sizes.count(*files), directories: 0, transactions: sizes.count(200_000) };
        (
            format!("postmark-{files}"),
            "the real one, all files in one directory (MRAM, figure 4.4)",
            Work::Postmark(work),
        )
    };
    let untar =
        Work::Untar { files: sizes.count(21_000), directories: sizes.count(1_100), total: sizes.bytes(540_802_444) };
    let empty = format!("data-backup:files={},total=1B,per-dir=1000000", sizes.count(65_536));
    let bonnie = format!("bonnie:size={},seeks={}", sizes.bytes(1 << 30).0, sizes.count(8_000));
    let create = Work::CreateDelete { files: sizes.count(65_536) };
    options
        .files
        .iter()
        .map(postmark)
        .chain([
            ("untar".to_owned(), "GNU tar unpacks a tree like a built kernel's (MRAM, figure 4.3)", untar),
            ("create-empty".to_owned(), "empty files are made in one directory (MRAM, figure 4.1)", Work::OfLab(empty)),
            (
                "bonnie".to_owned(),
                "one file is written, rewritten and read, as Bonnie++ does it (MRAM, figure 4.2)",
                Work::OfLab(bonnie),
            ),
            ("create-delete".to_owned(), "files of 4 KiB are made, then deleted", create),
        ])
        .collect()
}

impl Work {
    /// The same steps for the lab.
    fn steps(&self) -> Result<BoxedWorkload> {
        match self {
            Work::Postmark(postmark) => of_lab(&postmark.spec()),
            Work::Untar { files, directories, total } => {
                of_lab(&format!("untar:files={files},dirs={directories},total={},archive=false", total.0))
            }
            Work::OfLab(spec) => of_lab(spec),
            Work::CreateDelete { files } => Ok(Box::new(CreateDelete::new(*files, ByteSize(4096)))),
        }
    }

    /// What the run needs besides the image: the archive.
    fn archive(&self, place: &Place) -> Result<Option<PathBuf>> {
        let Work::Untar { .. } = self else { return Ok(None) };
        let (tree, archive) = (place.images().join("tree"), place.images().join("tree.tar"));
        fs::create_dir(&tree)?;
        steps::run(self.steps()?, &tree, place.speed)?;
        host::run(
            Command::new("tar").arg("--create").arg("--file").arg(&archive).arg("--directory").arg(&tree).arg("."),
        )?;
        fs::remove_dir_all(&tree)?;
        Ok(Some(archive))
    }

    fn run(&self, place: &Place, archive: Option<&Path>, root: &Path) -> Result<()> {
        match (self, archive) {
            (Work::Postmark(postmark), _) => postmark.run(root),
            (_, Some(archive)) => {
                let mut tar = Command::new("tar");
                host::run(tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(root)).map(drop)
            }
            _ => steps::run(self.steps()?, root, place.speed).map(drop),
        }
    }
}

fn row(args: &Args, options: &Options, place: &Place, keeper: &Keeper, report: &mut Report, work: &Work) -> Result<()> {
    let sizes = args.sizes(MRAM_MEMORY);
    let systems = systems(place, sizes, options);
    for (system, staging, policy) in [
        ("native", false, prediction::KERNEL),
        ("mount", false, prediction::KERNEL),
        ("policy", false, &options.policy),
        ("staging", true, prediction::KERNEL),
        ("staging+policy", true, &options.policy),
    ] {
        if systems.iter().any(|other| other.name == system) {
            let mut figures = prediction::predict(Assumed { disk: DISK, sizes, staging }, policy, work.steps()?)?;
            figures.insert("cost", figures.get("seconds").copied().unwrap_or_default());
            report.predicted(system, figures);
        }
    }
    let image = Image::make(place, "prepared", |root| steps::prepare(work.steps()?, root))?;
    let disks = [DiskOf { name: "disk", profile: DISK, image: &image }];
    let archive = work.archive(place)?;
    let live = |root: &Path, _: &Stack| work.run(place, archive.as_deref(), root).map(|()| 1.0);
    for round in 1..=args.rounds() {
        for system in &systems {
            let ordered = system.pool.as_ref().is_some_and(|pool| !pool.branches.is_empty());
            let ordered_by = if ordered { OrderedBy::Policy } else { OrderedBy::Kernel };
            let settings = sizes.settings(place, ordered_by);
            let run = Run {
                system,
                disks: &disks,
                settings,
                work: &live,
                after: &|stack, figures| stack.below(0).map_or(Ok(()), |below| layout::look(&below, figures)),
            };
            let mut outcome = run.measure(place, keeper);
            if let (1, Ok(figures), Work::Postmark(postmark)) = (round, &mut outcome, work) {
                // Postmark leaves nothing to look at, so that its layout takes a run of its own.
                let looked = before_deletion(&run, place, keeper, *postmark)?;
                figures.extend(looked.into_iter().filter(|(name, _)| LAYOUT.contains(name)));
            }
            report.add(&system.name, round, outcome);
            host::check()?;
        }
    }
    Ok(())
}

const LAYOUT: [&str; 3] = ["files", "fragments", "spread_blocks"];

/// The same run, cut off where postmark begins to delete what is left.
fn before_deletion(run: &Run<'_>, place: &Place, keeper: &Keeper, postmark: Postmark) -> Result<Figures> {
    let work = |root: &Path, stack: &Stack| postmark.run_until_deletion(root, || stack.sync()).map(|()| 1.0);
    Run { work: &work, ..*run }.measure(place, keeper)
}

fn systems(place: &Place, sizes: Sizes, options: &Options) -> Vec<System> {
    let (background, limit) = (sizes.background().0, sizes.foreground().0);
    let age = place.real(MAX_AGE).as_millis();
    let staging =
        format!("[staging]\nmode = \"always\"\nsize = \"{limit}\"\nmax_file = \"1MiB\"\nmax_age = \"{age}ms\"\n");
    let branch = format!(
        "write_back = \"{}\"\nwrite_back_limit = \"{limit}\"\nwrite_back_background = \"{background}\"\n",
        options.policy
    );
    let staged = Pool { tables: staging.clone(), ..Pool::default() };
    let ordered = Pool { branches: vec![branch.clone()], ..Pool::default() };
    let both = Pool { tables: staging, branches: vec![branch], ..Pool::default() };
    let all = [
        System::native(),
        System::mount("mount", Pool::default()),
        System::mount("policy", ordered),
        System::mount("staging", staged),
        System::mount("staging+policy", both),
    ];
    let wanted =
        |system: &System| system.pool.is_none() || options.systems.is_empty() || options.systems.contains(&system.name);
    all.into_iter().filter(wanted).collect()
}
