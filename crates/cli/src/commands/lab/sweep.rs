//! `umbrella lab sweep`: many runs on a Dask cluster, by the Python package of the lab.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use umbrella_lab::write_back::{Sweep, split_policies};

use crate::text::visible_path;

/// Run every value of parameters on a Dask cluster, and keep the results as Parquet.
///
/// Uses the Python package umbrella_lab, here and on each worker (docs/python.md). Run the same command again to
/// continue an interrupted sweep.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab sweep --cluster tcp://10.0.0.1:8786 --policy zone --workload postmark --sweep zone=2MiB,4MiB,8MiB --results zones
  umbrella lab compare --policy zone --workload postmark --sweep zone=2MiB,4MiB   # on this machine")]
pub(super) struct SweepArgs {
    /// The cluster's scheduler.
    #[arg(long, value_name = "ADDRESS")]
    cluster: String,
    /// A folder for Parquet files, written as runs finish; runs that it contains are not repeated.
    #[arg(long, value_name = "FOLDER")]
    results: PathBuf,
    /// Policies, with parameters if you like: file,zone_segment:alpha=20.
    #[arg(long, value_name = "POLICIES", required = true)]
    policy: Vec<String>,
    /// A recorded trace; the workers get it from here.
    #[arg(long, value_name = "FILE", required_unless_present = "workload", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// A workload, with parameters if you like.
    #[arg(long, value_name = "SPEC")]
    workload: Option<String>,
    /// Every value of a parameter: zone=2MiB,4MiB,8MiB. May be given several times; each is run with each.
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    sweep: Vec<Sweep>,
    /// One value of a parameter for all runs: memory=1GiB. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Sweep>,
    /// The Python that has the package.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

/// Exits with 0 if the package is there, with the cluster's engine.
const CHECK: &str = "import umbrella_lab, distributed";

impl SweepArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        check(&self.python)?;
        let mut command = Command::new(&self.python);
        command.args(["-m", "umbrella_lab", "--cluster", &self.cluster]);
        command.arg("--results").arg(&self.results);
        for policy in self.policy.iter().flat_map(|list| split_policies(list)) {
            command.args(["--policy", &policy]);
        }
        if let Some(trace) = &self.trace {
            command.arg("--trace").arg(trace);
        }
        if let Some(workload) = &self.workload {
            command.args(["--workload", workload]);
        }
        for (option, sweeps) in [("--sweep", &self.sweep), ("--set", &self.set)] {
            for Sweep { name, values } in sweeps {
                command.args([option, &format!("{name}={}", values.join(","))]);
            }
        }
        // Ctrl-C and the exit code are the package's from here on.
        Err(command.exec()).with_context(|| format!("cannot start {}", visible_path(&self.python)))
    }
}

/// Whether the package can be used, before it is handed anything.
fn check(python: &Path) -> anyhow::Result<()> {
    const INSTALL: &str = "pip install './python[pandas,cluster]' in Umbrella's sources, or name the Python that has it: --python PROGRAM";
    let found = Command::new(python).args(["-c", CHECK]).stdin(Stdio::null()).output();
    match found {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => bail!("{} has no umbrella_lab with dask.distributed ({INSTALL})", visible_path(python)),
        Err(error) => Err(error).with_context(|| format!("cannot start {} ({INSTALL})", visible_path(python))),
    }
}
