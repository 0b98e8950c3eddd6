//! Real programs as workloads.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::host;
use crate::place::Place;

/// What the real postmark does; sizes of files are its defaults, as in TESA and MRAM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Postmark {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) transactions: u64,
}

impl Postmark {
    /// The same for the lab.
    pub(crate) fn spec(&self) -> String {
        let Self { files, directories, transactions } = self;
        format!("postmark:files={files},dirs={directories},transactions={transactions}")
    }

    /// What postmark reads from its standard input.
    pub(crate) fn script(&self, root: &Path) -> String {
        let Self { files, directories, transactions } = self;
        format!(
            "set location {}\nset number {files}\nset subdirectories {directories}\nset transactions {transactions}\n\
             set read 4096\nset write 4096\nset buffering false\nrun\nquit\n",
            root.display()
        )
    }

    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let output = host::run_with_input(&mut Command::new("postmark"), &self.script(root))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // It ends with success also when it could not do its work.
        let complaint = text.lines().find(|line| line.contains("Error") || line.contains("Cannot"));
        ensure!(complaint.is_none(), "postmark: {}", complaint.unwrap_or_default());
        ensure!(text.contains("transactions"), "postmark did not report");
        Ok(())
    }
}

impl Postmark {
    /// Runs it up to where it begins to delete what is left; then `look`s, and ends it.
    pub(crate) fn run_until_deletion(&self, root: &Path, look: impl FnOnce() -> Result<()>) -> Result<()> {
        host::run_until(&mut Command::new("postmark"), &self.script(root), "Deleting files", look)
    }
}

/// The real dbench with Debian's load file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dbench {
    pub(crate) clients: u64,
    /// In the disk's own time.
    pub(crate) duration: Duration,
}

impl Dbench {
    /// The same for the lab.
    pub(crate) fn spec(&self) -> String {
        format!("dbench:clients={},duration={}s", self.clients, self.duration.as_secs())
    }

    /// How many gigabytes the clients read and wrote; dbench tells the rate.
    pub(crate) fn run(&self, place: &Place, root: &Path) -> Result<f64> {
        let seconds = place.real(self.duration).as_secs().max(2);
        let mut command = Command::new("dbench");
        command.arg("-t").arg(seconds.to_string()).arg("-D").arg(root).arg(self.clients.to_string());
        let output = host::run(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line =
            text.lines().find_map(|line| line.strip_prefix("Throughput ")).context("dbench told no throughput")?;
        let rate: f64 = line.split(' ').next().unwrap_or_default().parse().context("dbench told no number")?;
        ensure!(rate > 0.0, "dbench did nothing");
        Ok(rate * seconds as f64 / 1000.0)
    }
}
