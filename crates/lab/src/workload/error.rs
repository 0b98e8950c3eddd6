//! What can be wrong with a workload that a user asks for. Every message says what would have been right.

use std::path::PathBuf;

use thiserror::Error;

use crate::suggest;

/// A workload that cannot be made.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// Nobody knows the name.
    #[error("there is no workload {name:?}{} (known: {known})", suggest(name, known))]
    UnknownWorkload {
        /// What was asked for.
        name: String,
        /// The names there are, separated by commas.
        known: String,
    },
    /// The workload has no such parameter.
    #[error("{workload} has no parameter {param:?}{} (known: {known})", suggest(param, known))]
    UnknownParam {
        /// The workload.
        workload: &'static str,
        /// What was given.
        param: String,
        /// The parameters it has, separated by commas.
        known: String,
    },
    /// A parameter is given twice.
    #[error("{workload}: {param} is given twice")]
    Repeated {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        param: &'static str,
    },
    /// A value cannot be read, or is out of range.
    #[error("{workload}: {value:?} is not valid for {param} (give {wanted})")]
    BadValue {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        param: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        wanted: String,
    },
    /// Parameters that contradict each other.
    #[error("{workload}: {reason}")]
    Contradiction {
        /// The workload.
        workload: &'static str,
        /// Which ones, and how they would fit.
        reason: &'static str,
    },
    /// A spec that is not `name` or `name:param=value,param=value`.
    #[error(
        "{spec:?} is not a workload: {part:?} should be param=value (for example \"postmark:files=20000,low=500\")"
    )]
    BadSpec {
        /// What was given.
        spec: String,
        /// The part that cannot be read.
        part: String,
    },
    /// A scale that is no number from a millionth to 1.
    #[error("{value:?} is not a scale (give a number from 0.000001 to 1)")]
    BadScale {
        /// What was given.
        value: String,
    },
    /// The load file cannot be read.
    #[error("{workload}: cannot read the load file {path}: {source}")]
    LoadFile {
        /// The workload.
        workload: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The load file makes no sense.
    #[error("{workload}: {path} is not a load file of dbench: {source}")]
    Load {
        /// The workload.
        workload: &'static str,
        /// Which file.
        path: PathBuf,
        /// Where, and why.
        source: LoadError,
    },
}

/// An error in a load file.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A line makes no sense.
    #[error("line {line}: {reason}: {text:?}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The cause.
        reason: &'static str,
        /// The line, or its beginning.
        text: String,
    },
    /// The load has no work.
    #[error("none of its calls succeeded (NT_STATUS_OK)")]
    NoCall,
}
