use std::path::{Path, PathBuf};

use thiserror::Error;
use umbrella_model::device::profiles::UnknownProfile;
use umbrella_model::scheduler::UnknownScheduler;
use umbrella_policy::writeback::WriteBackError;
use umbrella_units::ByteSize;

use crate::drive::ProfileError;
use crate::log_store::LogError;
use crate::machine::RunError;
use crate::suggest;
use crate::trace::TraceError;
use crate::workload::WorkloadError;

/// Why an experiment has no outcome.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum LabError {
    #[error(transparent)]
    Policy(#[from] WriteBackError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error("{}", of_trace(path, source))]
    Trace { path: PathBuf, source: TraceError },
    #[error("{}: the trace changed during the replay (run it again, on a copy if writes continue)", path.display())]
    TraceChanged { path: PathBuf },
    #[error("{}: the trace has no device {device}: it has {devices} (numbered from 0)", path.display())]
    NoSuchDevice { path: PathBuf, device: u32, devices: usize },
    #[error(transparent)]
    Disk(#[from] UnknownProfile),
    #[error("{}: {source}", path.display())]
    Drive { path: PathBuf, source: ProfileError },
    #[error(transparent)]
    Scheduler(#[from] UnknownScheduler),
    #[error("{policy} on {input}: {source}")]
    Run { policy: String, input: String, source: RunError },
    #[error("{input} reaches to {end}, beyond the end of {disk} at {capacity}")]
    // `larger` lists the disks that are large enough.
    BeyondEnd { input: String, end: ByteSize, disk: String, capacity: ByteSize, larger: String },
    #[error("cannot sweep {name:?}{} (known: {known})", suggest(name, known))]
    UnknownSweep { name: String, known: String },
    #[error("{name} is swept twice")]
    SweptTwice { name: String },
    #[error("{spec:?} is not a sweep: write NAME=VALUE,VALUE,… (for example zone=2MiB,4MiB,8MiB)")]
    BadSweep { spec: String },
    #[error("{name} {value:?}: {expected}")]
    BadValue { name: String, value: String, expected: String },
    #[error("this makes more than {most} runs, the limit: sweep fewer values at a time")]
    TooManyRuns { most: usize },
}

/// An error in a trace; some errors of traces name the file themselves.
fn of_trace(path: &Path, source: &TraceError) -> String {
    match source {
        TraceError::Open { .. } | TraceError::NotAFile { .. } => source.to_string(),
        _ => format!("{}: {source}", path.display()),
    }
}
