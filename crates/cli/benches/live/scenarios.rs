//! The scenarios of the dissertation (UmbrellaFS, chapters III and IV) on two emulated devices: files on the disk that
//! suits them, and a write-back policy for each disk.

use std::path::Path;

use anyhow::Result;
use umbrella_lab::workload::BoxedWorkload;
use umbrella_units::{ByteSize, FileId};

use crate::args::Args;
use crate::disk::Image;
use crate::kernel::{Keeper, OrderedBy, WriteBackSettings};
use crate::measure::{DiskOf, Run};
use crate::place::Place;
use crate::report::{Column, KIB, MIB, Report};
use crate::sizes::Sizes;
use crate::stack::{Pool, Stack, System};
use crate::workloads::{READ_ONLY, TwoKinds, TwoSets, of_lab};
use crate::{host, steps};

/// The dissertation's machine.
const MEMORY: ByteSize = ByteSize(2 << 30);
/// The dissertation's devices: five Cheetah 10K.7 as RAID 5, and Samsung's flash drive.
const DISK: &str = "raid5";
const FLASH: &str = "mlc_samsung";
/// One of the five.
const SINGLE_DISK: &str = "cheetah_10k7";
/// Files of each set, and transactions: assumed.
const FILES: u64 = 4_000;
const TRANSACTIONS: u64 = 16_000;
const IO: u64 = 16 << 10;
/// Branches, in the order of the disks.
const BRANCHES: [&str; 2] = ["disk", "flash"];

const COLUMNS: &[Column] = &[
    Column { heading: "disk busy", figure: "busy_seconds", unit: 1.0, digits: 2 },
    Column { heading: "MiB written", figure: "written_bytes", unit: MIB, digits: 1 },
    Column { heading: "MiB read", figure: "read_bytes", unit: MIB, digits: 1 },
    Column { heading: "requests", figure: "requests", unit: 1.0, digits: 0 },
    Column { heading: "KiB each", figure: "request_bytes", unit: KIB, digits: 1 },
    Column { heading: "erases", figure: "erases", unit: 1.0, digits: 0 },
];

/// A way to place files, and the rules that do the same live.
struct Placement {
    name: &'static str,
    default: &'static [&'static str],
    rules: &'static str,
    /// On which disk a file of a directory goes.
    choose: fn(FileId, FileId) -> usize,
}

const PLACEMENTS: &[Placement] = &[
    Placement {
        name: "policy",
        default: &["disk"],
        rules: "[[rule]]\nname = \"what is only read\"\nmatch = [{ glob = \"/2/**\", to = [\"flash\", \"default\", \"any\"] }]\n",
        choose: |_, dir| usize::from(dir == READ_ONLY),
    },
    Placement {
        name: "random",
        default: &["disk"],
        rules: "[[rule]]\nname = \"every second file\"\nmatch = [{ glob = \"/*/*[13579]\", to = [\"flash\", \"default\", \"any\"] }]\n",
        choose: |file, _| (file.0 % 2) as usize,
    },
    Placement { name: "all-flash", default: &["flash"], rules: "", choose: |_, _| 1 },
    Placement { name: "all-disk", default: &["disk"], rules: "", choose: |_, _| 0 },
];

/// Measures one row.
type Row = fn(&Args, Sizes, &Place, &Keeper, &mut Report) -> Result<()>;

/// All rows of this benchmark.
pub(crate) fn run(args: &Args, place: &Place, keeper: &Keeper) -> Result<Report> {
    args.check_only(&["placement", "policies", "two-disks", "disk-and-flash"])?;
    let sizes = args.sizes(MEMORY);
    let mut report = Report::new("scenarios, seconds of the disks' own time", "policy", args.setting(&sizes));
    let rows: [(&str, &str, Row); 4] = [
        ("placement", "what is only read on flash, the rest on RAID 5 (UmbrellaFS, figure 20)", placement),
        ("policies", "random writes to a disk, rewrites of a few files on flash; a policy for each", policies),
        (
            "two-disks",
            "8 sequential and 8 Zipf writers on two disks, half of each on either (UmbrellaFS, figure 34)",
            two_disks,
        ),
        ("disk-and-flash", "the same on a disk and a flash drive (UmbrellaFS, figure 35)", disk_and_flash),
    ];
    for (name, about, row) in rows.into_iter().filter(|(name, ..)| args.wants(name)) {
        report.row(name, about);
        if let Err(error) = row(args, sizes, place, keeper, &mut report) {
            report.add("all", 0, Err(error));
        }
        if host::check().is_err() {
            break;
        }
    }
    report.end(COLUMNS, args.json.as_deref())
}

fn placement(args: &Args, sizes: Sizes, place: &Place, keeper: &Keeper, report: &mut Report) -> Result<()> {
    let steps = || -> BoxedWorkload { Box::new(TwoSets::new(sizes.count(FILES), sizes.count(TRANSACTIONS))) };
    let work = |root: &Path, _: &Stack| steps::run(steps(), root, place.speed).map(|_| 1.0);
    for round in 1..=args.rounds() {
        for Placement { name, default, rules, choose } in PLACEMENTS {
            let images = Image::make_all(place, &BRANCHES, |roots| steps::prepare_apart(steps(), roots, choose))?;
            let pool = Pool { tables: (*rules).to_owned(), default: default.to_vec(), ..Pool::default() };
            let system = System::mount(name, pool);
            let disks = on_both(&images, [DISK, FLASH]);
            let settings = sizes.settings(place, OrderedBy::Kernel);
            let run = Run { system: &system, disks: &disks, settings, work: &work, after: &|_, _| Ok(()) };
            report.add(name, round, run.measure(place, keeper));
            host::check()?;
        }
    }
    Ok(())
}

fn policies(args: &Args, sizes: Sizes, place: &Place, keeper: &Keeper, report: &mut Report) -> Result<()> {
    // In all, three times what may be dirty.
    let writes = sizes.foreground().0 * 3 / 2 / IO;
    let steps =
        || -> BoxedWorkload { Box::new(TwoKinds::new(sizes.count(2000), ByteSize(256 << 10), ByteSize(IO), writes)) };
    let images = Image::make_all(place, &BRANCHES, |roots| {
        steps::prepare_apart(steps(), roots, |_, dir| usize::from(dir != READ_ONLY))
    })?;
    let work = |root: &Path, _: &Stack| steps::run(steps(), root, place.speed).map(|_| 1.0);
    let tables =
        "[[rule]]\nname = \"rewritten\"\nmatch = [{ glob = \"/3/**\", to = [\"flash\", \"default\", \"any\"] }]\n";
    for round in 1..=args.rounds() {
        for (name, policies) in [
            ("policy", ["sweep", "two_queue"]),
            ("kernel-on-both", ["kernel", "kernel"]),
            ("sweep-on-both", ["sweep", "sweep"]),
            ("two-queue-on-both", ["two_queue", "two_queue"]),
        ] {
            let (system, settings) = a_policy_each(name, policies, tables, sizes, place);
            let disks = on_both(&images, [DISK, FLASH]);
            let run = Run { system: &system, disks: &disks, settings, work: &work, after: &|_, _| Ok(()) };
            report.add(name, round, run.measure(place, keeper));
            host::check()?;
        }
    }
    Ok(())
}

fn two_disks(args: &Args, sizes: Sizes, place: &Place, keeper: &Keeper, report: &mut Report) -> Result<()> {
    let either = [("policy", ["two_queue", "two_queue"]), ("two-queue-on-one", ["two_queue", "kernel"])];
    iozone(args, sizes, place, keeper, report, [SINGLE_DISK, SINGLE_DISK], &either)
}

fn disk_and_flash(args: &Args, sizes: Sizes, place: &Place, keeper: &Keeper, report: &mut Report) -> Result<()> {
    let either = [
        ("policy", ["two_queue", "two_queue"]),
        ("two-queue-on-disk", ["two_queue", "kernel"]),
        ("two-queue-on-flash", ["kernel", "two_queue"]),
    ];
    iozone(args, sizes, place, keeper, report, [SINGLE_DISK, FLASH], &either)
}

/// Sequential and Zipf writers on two disks: every second process, of either kind, has its file on the second.
fn iozone(
    args: &Args,
    sizes: Sizes,
    place: &Place,
    keeper: &Keeper,
    report: &mut Report,
    profiles: [&'static str; 2],
    either: &[(&str, [&str; 2])],
) -> Result<()> {
    let spec = format!("iozone:procs=16,writers=8,read=0,file={}", sizes.bytes(128 << 20).0);
    let steps = || of_lab(&spec);
    let tables = "[[rule]]\nname = \"every second file\"\nmatch = [{ glob = \"/*[13579]\", to = [\"flash\", \"default\", \"any\"] }]\n";
    let prepared = steps()?;
    let images = Image::make_all(place, &BRANCHES, |roots| {
        steps::prepare_apart(prepared, roots, |file, _| (file.0 % 2) as usize)
    })?;
    let work = |root: &Path, _: &Stack| steps::run(steps()?, root, place.speed).map(|_| 1.0);
    for round in 1..=args.rounds() {
        for (name, policies) in either.iter().copied().chain([("kernel-on-both", ["kernel", "kernel"])]) {
            let (system, settings) = a_policy_each(name, policies, tables, sizes, place);
            let disks = on_both(&images, profiles);
            let run = Run { system: &system, disks: &disks, settings, work: &work, after: &|_, _| Ok(()) };
            report.add(name, round, run.measure(place, keeper));
            host::check()?;
        }
    }
    Ok(())
}

/// A mount with a policy for the first branch and one for the second, which share what may be dirty.
fn a_policy_each(
    name: &str,
    policies: [&str; 2],
    tables: &str,
    sizes: Sizes,
    place: &Place,
) -> (System, WriteBackSettings) {
    let by = |policy| if policy == "kernel" { OrderedBy::Kernel } else { OrderedBy::Policy };
    let settings = sizes.settings_of_two(place, policies.map(by));
    let lines = |policy| match by(policy) {
        OrderedBy::Kernel => String::new(),
        OrderedBy::Policy => {
            format!("write_back = \"{policy}\"\nwrite_back_limit = \"{}\"\n", settings.limit.0)
        }
    };
    let branches = policies.map(lines).to_vec();
    (System::mount(name, Pool { tables: tables.to_owned(), branches, default: vec!["disk"] }), settings)
}

fn on_both<'a>(images: &'a [Image], profiles: [&'a str; 2]) -> Vec<DiskOf<'a>> {
    images
        .iter()
        .zip(BRANCHES.into_iter().zip(profiles))
        .map(|(image, (name, profile))| DiskOf { name, profile, image })
        .collect()
}
