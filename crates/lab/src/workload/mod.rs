//! Workloads: what clients ask of a file system, one step after the other, from a seed.
//!
//! One file a workload; [`WORKLOADS`] lists them with their parameters, [`build_workload`] makes one from a spec.

mod bonnie;
mod data_backup;
mod dbench;
mod dbench_load;
mod draw;
mod entry;
mod error;
mod fileserver;
mod hot_cold;
mod iozone;
mod kernel_compile;
mod kinds;
mod params;
mod postmark;
mod registry;
mod rnd_write;
mod script;
mod seq_write;
mod tree;
mod untar;
mod videoserver;

pub use draw::Seed;
pub(crate) use draw::{Rng, Zipf};
pub use entry::{BoxedWorkload, WorkloadEntry};
pub use error::WorkloadError;
pub use params::{Param, ParamKind, ParamValue, Params, Scale};
pub use registry::{WORKLOADS, build_workload, workload};

use umbrella_units::{ByteSize, FileId, Nanos};

/// One client of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// One file operation. Files and directories are numbered by the workload, never reused, from 1; directory 1 is the
/// root and always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOperation {
    /// Makes a directory.
    Mkdir {
        /// The new directory.
        dir: FileId,
        /// Where it is.
        parent: FileId,
    },
    /// Makes an empty file.
    Create {
        /// The new file.
        file: FileId,
        /// Its directory.
        dir: FileId,
    },
    /// Writes bytes; beyond the end the file grows.
    Write {
        /// The file.
        file: FileId,
        /// The first byte.
        offset: ByteSize,
        /// How many.
        size: ByteSize,
    },
    /// Reads bytes; none when only the attributes are looked at.
    Read {
        /// The file.
        file: FileId,
        /// The first byte.
        offset: ByteSize,
        /// How many.
        size: ByteSize,
    },
    /// Cuts or extends the file.
    Truncate {
        /// The file.
        file: FileId,
        /// Its new size.
        size: ByteSize,
    },
    /// Removes a file, or an empty directory.
    Delete {
        /// Which one.
        file: FileId,
    },
    /// Waits until the file is on disk.
    Fsync {
        /// Which one.
        file: FileId,
    },
    /// Waits until everything is on disk.
    Sync,
    /// Does something that costs no I/O: computing, or waiting for a person.
    Think {
        /// For how long.
        time: Nanos,
    },
    /// The client begins another phase; results are also kept by phase.
    Phase {
        /// Its name.
        name: &'static str,
    },
}

/// A workload: files that exist before it begins, and clients that each do one step after the other.
pub trait Workload {
    /// The next step of setting up: what is on disk, and in no cache, before time begins. `None` when all is there.
    fn prepare(&mut self) -> Option<FileOperation> {
        None
    }

    /// How many clients there are.
    fn clients(&self) -> u32 {
        1
    }

    /// The client's next step at `now`, asked for when its last one is done. `None`: it has finished.
    fn next(&mut self, client: ClientId, now: Nanos) -> Option<FileOperation>;

    /// When the step that [`Workload::next`] just gave was due, if that was before it was asked for: response times
    /// count from there. Only a replayed trace has such times.
    fn due(&self, _client: ClientId) -> Option<Nanos> {
        None
    }

    /// How much of the workload is done, 0 to 1, where it can tell.
    fn progress(&self, _now: Nanos) -> Option<f64> {
        None
    }

    /// What the user should know about this run, for example that a stand-in was used for a file that is missing.
    fn warnings(&self) -> &[String] {
        &[]
    }
}
