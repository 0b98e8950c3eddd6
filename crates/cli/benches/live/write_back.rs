//! Write-back policies against the kernel's own write-back on the same mount, with the same allowance of dirty pages.
//!
//! Both sides have TESA's thresholds (10 and 40 % of a shrunk gigabyte); on a policy's side the kernel's own are out of
//! the way. Costs are until everything is on disk.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use umbrella_lab::workload::BoxedWorkload;
use umbrella_units::ByteSize;

use crate::args::Args;
use crate::disk::Image;
use crate::kernel::{Keeper, OrderedBy};
use crate::measure::{DiskOf, Run};
use crate::place::Place;
use crate::prediction::{self, Assumed};
use crate::programs::{Dbench, FileServer, Postmark};
use crate::report::{Column, Figures, KIB, MIB, Report};
use crate::sizes::Sizes;
use crate::stack::{Pool, Stack, System};
use crate::steps;
use crate::workloads::{First, RandomFiles, of_lab};

/// Bytes written, as a multiple of what may be dirty. With this factor the end, where both sides write the rest, is a
/// small part.
const TIMES_DIRTY: u64 = 5;
const IO: u64 = 16 << 10;
/// TESA, section IV: the memory of the machine.
const TESA_MEMORY: ByteSize = ByteSize(1 << 30);
const POLICIES: &str = "file,recency,segment,zone,zone_segment,two_queue,sorted,cscan,sweep";

/// Options of this benchmark.
#[derive(Debug, ClapArgs)]
pub(crate) struct Options {
    /// Policies, with parameters if you like
    #[arg(long, value_name = "POLICIES", default_value = POLICIES, value_delimiter = ',')]
    policies: Vec<String>,
    /// Profiles of disks (umbrella lab list disks)
    #[arg(long, value_name = "DISKS", default_value = "deskstar_500gb,mlc_samsung", value_delimiter = ',')]
    disks: Vec<String>,
    /// Leave out what the lab says
    #[arg(long)]
    no_lab: bool,
}

/// Does the work below the path; how much was done.
type Program = fn(&Place, Sizes, &Path) -> Result<f64>;

/// A workload.
struct Work {
    name: &'static str,
    about: &'static str,
    /// For the lab, and for the live run where no program does it; what it prepares is in the image. Nothing where the
    /// lab has no such load.
    steps: Option<fn(Sizes) -> Result<BoxedWorkload>>,
    program: Option<Program>,
    /// How much of the work the lab has done, from its figures: 1, where it is always the same.
    done: fn(&Figures) -> f64,
}

fn same(_: &Figures) -> f64 {
    1.0
}

/// Number of calls of `io` bytes.
fn calls(sizes: Sizes, io: u64) -> u64 {
    (sizes.foreground().0 * TIMES_DIRTY / io).max(1)
}

fn first(sizes: Sizes, io: u64, spec: &str) -> Result<BoxedWorkload> {
    Ok(Box::new(First { of: of_lab(spec)?, left: calls(sizes, io) }))
}

fn postmark(sizes: Sizes) -> Postmark {
    Postmark { files: sizes.count(100_000), directories: sizes.count(100), transactions: sizes.count(200_000) }
}

fn dbench(sizes: Sizes) -> Dbench {
    Dbench { clients: sizes.count(100), duration: Duration::from_secs(sizes.count(300)) }
}

const WORKS: &[Work] = &[
    Work {
        name: "rnd-files",
        about: "16 KiB at random places of files of 256 KiB",
        steps: Some(|sizes| {
            Ok(Box::new(RandomFiles::new(sizes.count(4000), ByteSize(256 << 10), ByteSize(IO), calls(sizes, IO))))
        }),
        program: None,
        done: same,
    },
    Work {
        name: "rnd-write",
        about: "16 KiB at random places of one file (TESA)",
        steps: Some(|sizes| first(sizes, IO, &format!("rnd-write:file={},duration=1h", sizes.bytes(2 << 30).0))),
        program: None,
        done: same,
    },
    Work {
        name: "postmark",
        about: "the real one (TESA)",
        steps: Some(|sizes| of_lab(&postmark(sizes).spec())),
        program: Some(|_, sizes, root| postmark(sizes).run(root).map(|()| 1.0)),
        done: same,
    },
    Work {
        name: "fileserver",
        about: "filebench's file server, 50 threads (TESA)",
        // A step moves 64 KiB, more or less.
        steps: Some(|sizes| {
            first(sizes, 64 << 10, &format!("fileserver:files={},duration=1h", sizes.count(10_000).max(100)))
        }),
        program: None,
        done: same,
    },
    Work {
        name: "fileserver-fio",
        about: "10 writers and readers of many files (fio)",
        steps: None,
        program: Some(|_, sizes, root| {
            FileServer { files: sizes.count(10_000), bytes: sizes.foreground().0 * TIMES_DIRTY }.run(root).map(|()| 1.0)
        }),
        done: same,
    },
    Work {
        name: "dbench",
        about: "the real one with Debian's load; time for a gigabyte",
        steps: Some(|sizes| of_lab(&dbench(sizes).spec())),
        program: Some(|place, sizes, root| dbench(sizes).run(place, root)),
        done: |figures| figures.get("bytes").copied().unwrap_or_default() / 1e9,
    },
    Work {
        name: "seq-write",
        about: "4 KiB appends to one file (TESA)",
        steps: Some(|sizes| first(sizes, 4 << 10, "seq-write:duration=1h")),
        program: None,
        done: same,
    },
    Work {
        name: "data-backup",
        about: "a tree of files is copied in (TESA)",
        steps: Some(|sizes| {
            of_lab(&format!("data-backup:files={},total={}", sizes.count(18_630), sizes.bytes(649 << 20).0))
        }),
        program: None,
        done: same,
    },
    Work {
        name: "iozone",
        about: "16 writers with files of their own, 8 of them at Zipf places (UmbrellaFS, figures 23 to 25)",
        steps: Some(|sizes| of_lab(&format!("iozone:procs=16,writers=8,read=0,file={}", sizes.bytes(64 << 20).0))),
        program: None,
        done: same,
    },
];

const COLUMNS: &[Column] = &[
    Column { heading: "disk busy", figure: "busy_seconds", unit: 1.0, digits: 2 },
    Column { heading: "requests", figure: "requests", unit: 1.0, digits: 0 },
    Column { heading: "KiB each", figure: "request_bytes", unit: KIB, digits: 1 },
    Column { heading: "MiB apart", figure: "distance_bytes", unit: MIB, digits: 1 },
    Column { heading: "cylinders", figure: "seek_cylinders", unit: 1.0, digits: 0 },
    Column { heading: "dirty MiB", figure: "most_dirty_bytes", unit: MIB, digits: 1 },
];

/// All rows of this benchmark.
pub(crate) fn run(args: &Args, options: &Options, place: &Place, keeper: &Keeper) -> Result<Report> {
    args.check_only(&WORKS.iter().map(|work| work.name).collect::<Vec<_>>())?;
    let setting = args.setting(&args.sizes(TESA_MEMORY));
    let mut report = Report::new("write-back, seconds of the disk's own time", "kernel", setting);
    for profile in &options.disks {
        for work in WORKS.iter().filter(|work| args.wants(work.name)) {
            report.row(&format!("{} on {profile}", work.name), work.about);
            let measured = row(args, options, place, keeper, &mut report, profile, work);
            if let Err(error) = measured {
                report.add("all", 0, Err(error));
            }
            if crate::host::check().is_err() {
                break;
            }
        }
    }
    report.end(COLUMNS, args.json.as_deref())
}

fn row(
    args: &Args,
    options: &Options,
    place: &Place,
    keeper: &Keeper,
    report: &mut Report,
    profile: &str,
    work: &Work,
) -> Result<()> {
    let sizes = args.sizes(TESA_MEMORY);
    let systems = systems(sizes, &options.policies);
    let steps = || work.steps.map(|steps| steps(sizes)).transpose();
    if !options.no_lab {
        let assumed = Assumed { disk: profile, sizes, staging: false };
        for (name, policy) in [("kernel", prediction::KERNEL)]
            .into_iter()
            .chain(options.policies.iter().map(|name| (name.as_str(), name.as_str())))
        {
            let Some(workload) = steps()? else { continue };
            let mut figures = prediction::predict(assumed, policy, workload)?;
            let seconds = figures.get("seconds").copied().unwrap_or_default();
            figures.insert("cost", seconds / (work.done)(&figures));
            report.predicted(name, figures);
        }
    }
    let image = Image::make(place, "prepared", |root| steps()?.map_or(Ok(()), |steps| steps::prepare(steps, root)))?;
    let disks = [DiskOf { name: "disk", profile, image: &image }];
    let live = |root: &Path, _: &Stack| match work.program {
        Some(program) => program(place, sizes, root),
        None => steps::run(steps()?.context("nothing to do")?, root, place.speed).map(|_| 1.0),
    };
    for round in 1..=args.rounds() {
        for system in &systems {
            let ordered_by = if system.has_flusher() { OrderedBy::Policy } else { OrderedBy::Kernel };
            let settings = sizes.settings(place, ordered_by);
            let run = Run { system, disks: &disks, settings, work: &live, after: &|_, _| Ok(()) };
            let outcome = run.measure(place, keeper);
            report.add(&system.name, round, outcome);
            crate::host::check()?;
        }
    }
    Ok(())
}

/// The file system alone, the mount as it comes, the mount whose daemon is between as under a policy, and the mount
/// with each policy.
fn systems(sizes: Sizes, policies: &[String]) -> Vec<System> {
    let (background, limit) = (sizes.background().0, sizes.foreground().0);
    let ordered = |policy: &String| {
        let branch = format!(
            "write_back = \"{policy}\"\nwrite_back_limit = \"{limit}\"\nwrite_back_background = \"{background}\"\n"
        );
        System::mount(policy, Pool { branches: vec![branch], ..Pool::default() })
    };
    let kernel = System::mount("kernel", Pool::default());
    let mediated = Pool { branches: vec!["passthrough = false\n".to_owned()], ..Pool::default() };
    [System::native(), kernel, System::mount("mediated", mediated)]
        .into_iter()
        .chain(policies.iter().map(ordered))
        .collect()
}
