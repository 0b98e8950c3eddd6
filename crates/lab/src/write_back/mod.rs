//! The machine of the papers on write-back: programs, a page cache, a policy that chooses which dirty pages to write,
//! one disk.
//!
//! The same input under several policies, and under several values of any parameter ([`cells`]). `machine` has the
//! event loop; here is how a run is described, checked and built.

mod cell;
mod disk;
mod replay;
mod sweep;

pub use cell::{MachineSpec, WriteBackInput};
pub use disk::{Partition, PartitionPosition, capacity};
pub(crate) use replay::areas;
pub use replay::{BadReplaySpeed, Fit, ReplayOptions, ReplaySpeed};
pub use sweep::{MOST_RUNS, MOST_SHOWN, Sweep, cells, split_policies};

/// A run of a [`MachineSpec`].
pub type WriteBackCell = crate::experiment::Cell<MachineSpec>;
