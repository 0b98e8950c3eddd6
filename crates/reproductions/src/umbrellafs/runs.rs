//! The runs that the figures consist of, and how two of them compare.

use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::{MachineSpec, WriteBackCell, WriteBackInput};
use umbrella_units::ByteSize;

use super::{Effort, Measured, WriteBackCells};
use crate::kernel;

/// Seagate Cheetah 10K.7, 73 GB.
pub(super) const MAGNETIC: &str = "cheetah_10k7";
/// Samsung MCBOE32G8APR, 32 GB.
pub(super) const MLC: &str = "mlc_samsung";
/// Memoright MR25.2-032S, 32 GB.
pub(super) const SLC: &str = "slc_memoright";
/// All three, in the order of the figures.
pub(super) const DRIVES: [&str; 3] = [MAGNETIC, MLC, SLC];

/// The unmodified kernel.
pub(super) const LINUX: &str = "file";
/// What the dissertation compares with it.
pub(super) const SCHEMES: [&str; 3] = ["two_queue", "sorted", "two_queue_sorted"];
/// All four.
pub(super) const POLICIES: [&str; 4] = [LINUX, "two_queue", "sorted", "two_queue_sorted"];

const SEED: u64 = 1;

/// The dissertation's machine with one test drive: Dell Optiplex GX620, 2 GB, Linux 2.6.24.
pub(super) fn machine(disk: &str) -> MachineSpec {
    MachineSpec {
        disk: disk.to_owned(),
        memory: ByteSize(2 << 30),
        background_percent: 5,
        foreground_percent: 10,
        ..MachineSpec::default()
    }
}

/// A workload under a policy; a quick one at `quick` of its size.
pub(super) fn cell(effort: Effort, quick: f64, machine: MachineSpec, workload: &str, policy: &str) -> WriteBackCell {
    let policy = if POLICIES.contains(&policy) { kernel::by_files(policy) } else { policy.to_owned() };
    let machine = MachineSpec { policy, seed: SEED, scale: effort.scale(quick), ..machine };
    WriteBackCell::new(WriteBackInput::Workload { spec: workload.to_owned() }, machine)
}

/// A workload under all four policies on each of the drives.
pub(super) fn compared(effort: Effort, quick: f64, drives: &[&str], workload: &str) -> WriteBackCells {
    let on = |drive: &str| POLICIES.map(|policy| cell(effort, quick, machine(drive), workload, policy));
    Ok(drives.iter().flat_map(|drive| on(drive)).collect())
}

/// Another reading of the text: the word for it, and the workload's parameter that makes it so.
#[derive(Clone, Copy)]
pub(super) struct Other {
    key: &'static str,
    param: &'static str,
}

/// IOzone's processes that go in order only write.
pub(super) const NO_READS: Other = Other { key: "no-reads", param: "read=0" };
/// A flush of dbench does nothing.
pub(super) const NO_FSYNC: Other = Other { key: "no-fsync", param: "flush=false" };

/// These runs, and then the same in another reading.
pub(super) fn in_both(cells: WriteBackCells, other: Other) -> WriteBackCells {
    let primary = cells?;
    let changed = |cell: &WriteBackCell| {
        let spec = cell.input.name();
        let separator = if spec.contains(':') { ',' } else { ':' };
        let spec = format!("{spec}{separator}{}", other.param);
        WriteBackCell::new(WriteBackInput::Workload { spec }, cell.machine.clone())
    };
    Ok(primary.iter().cloned().chain(primary.iter().map(changed)).collect())
}

/// What the outcomes of [`in_both`] come to.
pub(super) fn measure_both(
    outcomes: &[Outcome],
    other: Other,
    measure: impl Fn(&[Outcome]) -> Vec<Measured>,
) -> Vec<Measured> {
    let (primary, changed) = outcomes.split_at(outcomes.len() / 2);
    let changed = measure(changed).into_iter().map(|measured| measured.in_reading(other.key));
    measure(primary).into_iter().chain(changed).collect()
}

/// Outcomes, found by what was run.
#[derive(Clone, Copy)]
pub(super) struct PlacementRuns<'a> {
    outcomes: &'a [Outcome],
    disk: &'a str,
    input: &'a str,
}

impl<'a> PlacementRuns<'a> {
    /// The runs on `disk` whose input begins with `input`.
    pub(super) fn new(outcomes: &'a [Outcome], disk: &'a str, input: &'a str) -> PlacementRuns<'a> {
        PlacementRuns { outcomes, disk, input }
    }

    /// A figure of the run under `policy`; not a number when there was no such run, which no claim survives.
    pub(super) fn of(&self, policy: &str, figure: impl Fn(&Outcome) -> f64) -> f64 {
        let wanted = |outcome: &&Outcome| {
            let of = &outcome.setting;
            kernel::name(&of.policy) == policy && of.disk == self.disk && of.input.starts_with(self.input)
        };
        self.outcomes.iter().find(wanted).map_or(f64::NAN, figure)
    }

    /// By how much the figure differs under `policy` from the unmodified kernel's, in percent; not at all where both
    /// are zero.
    pub(super) fn change(&self, policy: &str, figure: impl Fn(&Outcome) -> f64 + Copy) -> f64 {
        let (base, value) = (self.of(LINUX, figure), self.of(policy, figure));
        if base == 0.0 && value == 0.0 { 0.0 } else { 100.0 * (value / base - 1.0) }
    }

    /// The same for the time.
    pub(super) fn time(&self, policy: &str) -> f64 {
        self.change(policy, |outcome| outcome.time_s)
    }
}

/// A drive in the names of claims.
pub(super) fn short(disk: &str) -> &'static str {
    match disk {
        MAGNETIC => "magnetic",
        MLC => "samsung",
        SLC => "memoright",
        _ => "drive",
    }
}
