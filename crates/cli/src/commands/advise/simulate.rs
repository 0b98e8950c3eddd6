//! The runs of an advice.

use std::process::ExitCode;

use anyhow::bail;
use thiserror::Error;
use umbrella_lab::advice::sleep::{self, SleepAdvice};
use umbrella_lab::advice::write_back::{self, Baseline};
use umbrella_lab::advice::{Recording, SEEDS};
use umbrella_lab::experiment::{self, Cell, Machine};
use umbrella_units::ByteSize;

use super::{DiskAdviceReport, Simulated, configuration};
use crate::commands::lab::values::threads;
use crate::commands::lab::watch::{Bars, EarlyInterrupt};
use crate::text::count;

/// Ctrl-C ended the runs: how the program ends.
#[derive(Debug, Error)]
#[error("interrupted")]
pub(super) struct Interrupted(pub(super) ExitCode);

/// Makes runs, with bars, until Ctrl-C.
pub(super) struct Simulator {
    later: EarlyInterrupt,
    memory: ByteSize,
    threads: Option<u32>,
}

impl Simulator {
    /// Ctrl-C ends the runs after this.
    pub(super) fn new(memory: ByteSize, threads: Option<u32>) -> anyhow::Result<Simulator> {
        Ok(Simulator { later: Bars::catch_interrupts()?, memory, threads })
    }

    /// What to set for a disk that is asked for this, and has that write-back policy today.
    pub(super) fn report(
        &self,
        recordings: &[Recording],
        disk: &str,
        policy: &str,
    ) -> anyhow::Result<DiskAdviceReport> {
        let today = Baseline { disk, memory: self.memory, policy };
        let cells = write_back::plan(recordings, today)?;
        report!("write-back: {}", count(cells.len() as u64, "run"));
        let Some(write_back) = write_back::evaluate(&self.outcomes(&cells)?, today) else {
            bail!("nothing was simulated")
        };
        let again = write_back::plan_again(recordings, disk, &write_back)?;
        let confirmed = write_back::confirm(&write_back, &self.outcomes(&again)?);
        let sleep = self.sleep(recordings, disk)?;
        Ok(DiskAdviceReport {
            traces: recordings.iter().map(Simulated::of).collect(),
            disk: disk.to_owned(),
            memory: self.memory,
            seeds: SEEDS,
            configuration: configuration::fragments(&write_back, &sleep),
            write_back,
            confirmed,
            sleep,
        })
    }

    fn sleep(&self, recordings: &[Recording], disk: &str) -> anyhow::Result<SleepAdvice> {
        if let Some(refusal) = sleep::refusal(recordings, disk)? {
            return Ok(refusal);
        }
        let (runs, cells): (Vec<_>, Vec<_>) = sleep::plan(recordings, disk)?.into_iter().unzip();
        report!("flash and sleep: {}", count(cells.len() as u64, "run"));
        let outcomes = self.outcomes(&cells)?;
        let runs: Vec<_> = runs.into_iter().zip(outcomes).collect();
        let Some(judged) = sleep::evaluate(&runs) else { bail!("nothing was simulated") };
        Ok(SleepAdvice::Judged(Box::new(judged)))
    }

    /// Refuses to continue after Ctrl-C.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.later.stopped().map_or(Ok(()), |code| Err(Interrupted(code).into()))
    }

    /// What comes of these runs.
    pub(super) fn outcomes<M: Machine>(&self, cells: &[Cell<M>]) -> anyhow::Result<Vec<M::Outcome>> {
        let bars = self.later.begin(cells);
        let outcomes = experiment::run(cells, threads(self.threads), &bars)?.unless_failed()?;
        match bars.finish() {
            Some(code) => Err(Interrupted(code).into()),
            None => Ok(outcomes.into_iter().flatten().collect()),
        }
    }
}
