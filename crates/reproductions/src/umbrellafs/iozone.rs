//! IOzone with 2, 4 and 8 Zipf writers of 16 processes (figures 23 to 26), and spread over two drives (34 and 35).

use umbrella_lab::machine::Allocation;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::MachineSpec;
use umbrella_units::ByteSize;

use super::runs::{self, MAGNETIC, MLC, PlacementRuns, SCHEMES, SLC};
use super::{Effort, Measured, SLIGHT, WriteBackCells};

pub(super) const ASSUMED: &str = "Files have 256 MiB and Zipf's theta is 1; the text gives neither. Time runs until the last process has \
     finished.";

pub(super) const PAIR_ASSUMED: &str = "Each drive has half of the memory to itself. The dissertation's two drives shared one page cache and its \
     thresholds, so their influence on each other is missing here: on two equal disks, one alone gains half of \
     what both gain. Times are added, as in the dissertation.";

pub(super) const LOG_ASSUMED: &str = "All writes go to the head of a log, which is never cleaned. ext2's metadata stand in for NILFS' own. \
     Sorting and marking cost no processor time. Otherwise as in figure 23.";

/// Share of the sizes in a quick run.
const QUICK: f64 = 0.2;

/// Zipf writers of the 16 processes.
const WRITERS: [u32; 3] = [2, 4, 8];

fn workload(writers: u32) -> String {
    format!("iozone:writers={writers}")
}

pub(super) fn cells(effort: Effort, disk: &str) -> WriteBackCells {
    let cells = WRITERS.map(|writers| runs::compared(effort, QUICK, &[disk], &workload(writers)));
    Ok(cells.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

/// The text gives the time of `two_queue` with 8 Zipf writers. It says of all runs except one that they are not slower,
/// and that both ways gain with the share of Zipf writers, so with each step.
pub(super) fn measure(disk: &str, outcomes: &[Outcome]) -> Vec<Measured> {
    let time = |policy, writers: u32| PlacementRuns::new(outcomes, disk, &workload(writers)).time(policy);
    let mut measured = times(disk, outcomes);
    for policy in ["two_queue", "sorted"] {
        for pair in WRITERS.windows(2) {
            let [few, many] = [pair[0], pair[1]];
            let gained = time(policy, many) - time(policy, few);
            measured.push(Measured::new(format!("{policy}.{many}-over-{few}"), gained));
        }
    }
    measured
}

/// Time against the unmodified kernel's, of each scheme with each number of writers.
fn times(disk: &str, outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |writers: u32| {
        let input = workload(writers);
        SCHEMES.map(|policy| {
            Measured::new(format!("{policy}.{writers}"), PlacementRuns::new(outcomes, disk, &input).time(policy))
        })
    };
    WRITERS.into_iter().flat_map(of).collect()
}

/// The same on a log-structured file system.
pub(super) fn log_cells(effort: Effort, disk: &str) -> WriteBackCells {
    let mut cells = cells(effort, disk)?;
    for cell in &mut cells {
        cell.machine.allocation = Allocation::Log;
    }
    Ok(cells)
}

/// "No significant improvement, and in most cases a slight penalty": about as fast each, and more than half of them
/// slower.
pub(super) fn measure_log(disk: &str, outcomes: &[Outcome]) -> Vec<Measured> {
    let mut measured = times(disk, outcomes);
    let slower = measured.iter().filter(|time| time.value() >= SLIGHT).count();
    let share = 100.0 * slower as f64 / measured.len().max(1) as f64;
    measured.push(Measured::new("most", share));
    measured
}

/// With 8 Zipf writers windows with less than 16 writes are "dramatically reduced", those with more increase; with 4
/// and 2 the results are "similar, although less dramatic".
pub(super) fn measure_windows(outcomes: &[Outcome]) -> Vec<Measured> {
    let of = |writers: u32, policy: &str| {
        let input = workload(writers);
        let runs = PlacementRuns::new(outcomes, SLC, &input);
        let fewer = runs.change(policy, |outcome| outcome.at_finish.windows.below_16() as f64);
        let over = |outcome: &Outcome| outcome.at_finish.windows.over_16() as f64;
        let more = runs.of(policy, over) - runs.of(super::runs::LINUX, over);
        [("small", fewer), ("large", more)]
            .map(|(name, value)| Measured::new(format!("{policy}.{writers}.{name}"), value))
    };
    WRITERS.iter().flat_map(|writers| SCHEMES.iter().flat_map(|policy| of(*writers, policy))).collect()
}

/// Eight processes a drive, four of them Zipf writers.
const HALF: &str = "iozone:procs=8,writers=4";

pub(super) fn pair_cells(effort: Effort, disks: [&str; 2]) -> WriteBackCells {
    let on = |disk: &str| {
        let machine = MachineSpec { memory: ByteSize(1 << 30), ..runs::machine(disk) };
        ["file", "two_queue"].map(|policy| runs::cell(effort, QUICK, machine.clone(), HALF, policy))
    };
    Ok(disks.into_iter().flat_map(on).collect())
}

/// Time with these policies on these disks against `file` on both, in percent.
fn pair(outcomes: &[Outcome], of: [(&str, &str); 2]) -> f64 {
    let time = |disk: &str, policy: &str| PlacementRuns::new(outcomes, disk, HALF).of(policy, |outcome| outcome.time_s);
    let sum: f64 = of.iter().map(|(disk, policy)| time(disk, policy)).sum();
    let base: f64 = of.iter().map(|(disk, _)| time(disk, "file")).sum();
    100.0 * (sum / base - 1.0)
}

pub(super) fn measure_two_disks(outcomes: &[Outcome]) -> Vec<Measured> {
    let both = pair(outcomes, [(MAGNETIC, "two_queue"), (MAGNETIC, "two_queue")]);
    let one = pair(outcomes, [(MAGNETIC, "two_queue"), (MAGNETIC, "file")]);
    vec![Measured::new("both", both), Measured::new("one", one)]
}

pub(super) fn measure_mixed_pair(outcomes: &[Outcome]) -> Vec<Measured> {
    let both = pair(outcomes, [(MAGNETIC, "two_queue"), (MLC, "two_queue")]);
    let flash = pair(outcomes, [(MAGNETIC, "file"), (MLC, "two_queue")]);
    let disk = pair(outcomes, [(MAGNETIC, "two_queue"), (MLC, "file")]);
    vec![Measured::new("both", both), Measured::new("samsung", flash), Measured::new("magnetic", disk)]
}
