//! The workloads by name, with their parameters: what `--workload postmark:files=20000` means.

use super::entry::{BoxedWorkload, WorkloadEntry};
use super::{Scale, Seed, WorkloadError};
use super::{
    bonnie, data_backup, dbench, fileserver, hot_cold, iozone, kernel_compile, postmark, rnd_write, seq_write, untar,
    videoserver,
};

/// All workloads, in the order in which the documents list them.
pub static WORKLOADS: &[WorkloadEntry] = &[
    seq_write::ENTRY,
    rnd_write::ENTRY,
    fileserver::ENTRY,
    videoserver::ENTRY,
    postmark::ENTRY,
    data_backup::ENTRY,
    bonnie::ENTRY,
    untar::ENTRY,
    iozone::ENTRY,
    dbench::ENTRY,
    kernel_compile::ENTRY,
    hot_cold::ENTRY,
];

/// The workload of this name.
pub fn workload(name: &str) -> Result<&'static WorkloadEntry, WorkloadError> {
    WORKLOADS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<_> = WORKLOADS.iter().map(|entry| entry.name).collect();
        WorkloadError::UnknownWorkload { name: name.to_owned(), known: known.join(", ") }
    })
}

/// Makes a workload from a spec: `name`, or `name:param=value,param=value`.
pub fn build_workload(spec: &str, seed: Seed, scale: Scale) -> Result<BoxedWorkload, WorkloadError> {
    let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let entry = workload(name.trim())?;
    let parts = rest.split(',').map(str::trim).filter(|part| !part.is_empty());
    let given = parts
        .map(|part| match part.split_once('=') {
            Some((param, value)) => Ok((param.trim(), value.trim())),
            None => Err(WorkloadError::BadSpec { spec: spec.to_owned(), part: part.to_owned() }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    entry.build(seed, scale, &entry.params(given)?)
}
