//! IOzone with 2, 4 and 8 Zipf writers of 16 processes (figures 23 to 26), and spread over two drives (34 and 35).

use umbrella_lab::experiment::LabError;
use umbrella_lab::machine::Allocation;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::{MachineSpec, WriteBackCell};
use umbrella_units::ByteSize;

use super::runs::{self, MAGNETIC, MLC, Runs, SCHEMES, SLC};
use super::{Claim, DRAMATIC, Effort, Expect, LITTLE, SIZE, SLIGHT, VISIBLE};

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

pub(super) fn cells(effort: Effort, disk: &str) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(WRITERS.iter().flat_map(|writers| runs::compared(effort, QUICK, &[disk], &workload(*writers))).collect())
}

/// The text gives the time of `two_queue` with 8 Zipf writers, says of all runs but one that they are not slower, and that
/// both ways gain with the share of Zipf writers, so with each step.
pub(super) fn judge(figure: &str, disk: &str, outcomes: &[Outcome]) -> Vec<Claim> {
    let inputs = WRITERS.map(|writers| (writers, workload(writers)));
    let mut claims = Vec::new();
    for (writers, input) in &inputs {
        for policy in SCHEMES {
            let (published, expect) = match (policy, writers, disk) {
                ("two_queue", 8, MAGNETIC) => (-11.0, SIZE),
                ("two_queue", 8, MLC) => (-43.0, SIZE),
                ("two_queue", 8, SLC) => (-34.0, SIZE),
                ("sorted", 2, MAGNETIC) => (0.3, LITTLE),
                _ => (0.0, Expect::AtMost),
            };
            let said = if expect == Expect::AtMost { "not slower than file" } else { "time against file" };
            let claim = format!("{policy}, {writers} Zipf writers: {said}");
            let measured = Runs::new(outcomes, disk, input).time(policy);
            claims.push(Claim::new(figure, claim, "%", published, measured, expect));
        }
    }
    for policy in ["two_queue", "sorted"] {
        for ((few, before), (many, after)) in inputs.iter().zip(&inputs[1..]) {
            let gained = Runs::new(outcomes, disk, after).time(policy) - Runs::new(outcomes, disk, before).time(policy);
            let claim = format!("{policy}: better with {many} Zipf writers than with {few}");
            claims.push(Claim::new(figure, claim, "points", -VISIBLE, gained, Expect::AtMost));
        }
    }
    claims
}

/// The same on a log-structured file system.
pub(super) fn log_cells(effort: Effort, disk: &str) -> Result<Vec<WriteBackCell>, LabError> {
    let mut cells = cells(effort, disk)?;
    for cell in &mut cells {
        cell.machine.allocation = Allocation::Log;
    }
    Ok(cells)
}

/// "No significant improvement, and in most cases a slight penalty": about as fast each, and more than half of them slower.
pub(super) fn judge_log(figure: &str, disk: &str, outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for writers in WRITERS {
        let input = workload(writers);
        for policy in SCHEMES {
            let claim = format!("{policy}, {writers} Zipf writers on a log: about as fast as file");
            let measured = Runs::new(outcomes, disk, &input).time(policy);
            claims.push(Claim::new(figure, claim, "%", 0.0, measured, LITTLE));
        }
    }
    let slower = claims.iter().filter(|claim| claim.measured >= SLIGHT).count();
    let share = 100.0 * slower as f64 / claims.len().max(1) as f64;
    // More than half of nine runs: five.
    let most = "of all runs on a log, those that are slower than file";
    claims.push(Claim::new(figure, most, "% of the runs", 50.0 + VISIBLE, share, Expect::AtLeast));
    claims
}

pub(super) fn window_cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    Ok(WRITERS.iter().flat_map(|writers| runs::compared(effort, QUICK, &[SLC], &workload(*writers))).collect())
}

/// With 8 Zipf writers windows with up to 16 writes are "dramatically reduced", those with more increase; with 4 and 2 the results
/// are "similar, although less dramatic".
pub(super) fn judge_windows(outcomes: &[Outcome]) -> Vec<Claim> {
    let of = |writers: u32, policy: &str| {
        let input = workload(writers);
        let runs = Runs::new(outcomes, SLC, &input);
        let fewer = runs.change(policy, |outcome| outcome.at_finish.windows.up_to_16() as f64);
        let over = |outcome: &Outcome| outcome.at_finish.windows.over_16() as f64;
        let more = runs.of(policy, over) - runs.of(super::runs::LINUX, over);
        let less = if writers == 8 { DRAMATIC } else { VISIBLE };
        let claim = |text: &str, unit, published, measured, expect| {
            Claim::new("26", format!("{policy}, {writers} Zipf writers: {text}"), unit, published, measured, expect)
        };
        [
            claim("fewer windows with up to 16 writes", "%", -less, fewer, Expect::AtMost),
            claim("more windows with over 16 writes", "windows", VISIBLE, more, Expect::AtLeast),
        ]
    };
    WRITERS.iter().rev().flat_map(|writers| SCHEMES.iter().flat_map(|policy| of(*writers, policy))).collect()
}

/// Eight processes a drive, four of them Zipf writers.
const HALF: &str = "iozone:procs=8,writers=4";

pub(super) fn pair_cells(effort: Effort, disks: [&str; 2]) -> Result<Vec<WriteBackCell>, LabError> {
    let on = |disk: &str| {
        let machine = MachineSpec { memory: ByteSize(1 << 30), ..runs::machine(disk) };
        ["file", "two_queue"].map(|policy| runs::cell(effort, QUICK, machine.clone(), HALF, policy))
    };
    Ok(disks.into_iter().flat_map(on).collect())
}

/// Time with these policies on these disks against `file` on both, in percent.
fn pair(outcomes: &[Outcome], of: [(&str, &str); 2]) -> f64 {
    let time = |disk: &str, policy: &str| Runs::new(outcomes, disk, HALF).of(policy, |outcome| outcome.time_s);
    let sum: f64 = of.iter().map(|(disk, policy)| time(disk, policy)).sum();
    let base: f64 = of.iter().map(|(disk, _)| time(disk, "file")).sum();
    100.0 * (sum / base - 1.0)
}

pub(super) fn judge_two_disks(outcomes: &[Outcome]) -> Vec<Claim> {
    let both = pair(outcomes, [(MAGNETIC, "two_queue"), (MAGNETIC, "two_queue")]);
    let one = pair(outcomes, [(MAGNETIC, "two_queue"), (MAGNETIC, "file")]);
    vec![
        Claim::new("34", "two_queue on both disks: time against file", "%", -9.0, both, SIZE),
        Claim::new("34", "two_queue on one disk: time against file", "%", -7.0, one, SIZE),
    ]
}

pub(super) fn judge_mixed_pair(outcomes: &[Outcome]) -> Vec<Claim> {
    let both = pair(outcomes, [(MAGNETIC, "two_queue"), (MLC, "two_queue")]);
    let flash = pair(outcomes, [(MAGNETIC, "file"), (MLC, "two_queue")]);
    let disk = pair(outcomes, [(MAGNETIC, "two_queue"), (MLC, "file")]);
    vec![
        Claim::new("35", "two_queue on both drives: time against file", "%", -8.0, both, SIZE),
        Claim::new("35", "two_queue on the Samsung drive: time against file", "%", -9.0, flash, SIZE),
        Claim::new("35", "two_queue on the magnetic disk: time against file", "%", -8.0, disk, SIZE),
    ]
}
