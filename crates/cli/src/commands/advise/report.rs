//! The report about a pool.

use serde::Serialize;
use umbrella_lab::events::Written;

use super::DiskAdviceReport;
use super::apply::Saved;
use super::configuration::Fragment;
use super::placement::PlacementReport;

/// The report about a pool, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct PoolReport {
    pub(super) pool: String,
    pub(super) disks: Vec<DiskReport>,
    pub(super) left_out: Vec<LeftOut>,
    /// What rules for the pool's flash would gain; none without flash beside disks with a motor.
    pub(super) placement: Option<PlacementReport>,
    /// The lines for the pool's configuration, and for the system's.
    pub(super) configuration: Vec<Fragment>,
    /// What `--apply` did; none without it.
    pub(super) applied: Option<Saved>,
}

/// A disk of the pool.
#[derive(Debug, Serialize)]
pub(super) struct DiskReport {
    pub(super) device: String,
    pub(super) branches: Vec<String>,
    /// None: nothing was read or written.
    pub(super) advice: Option<DiskAdviceReport>,
    pub(super) decisions: Vec<Decisions>,
}

/// A branch that is not recorded.
#[derive(Debug, Serialize)]
pub(super) struct LeftOut {
    pub(super) branch: String,
    pub(super) reason: String,
}

/// The decisions of a branch's policy, made again.
#[derive(Debug, Serialize)]
pub(super) struct Decisions {
    pub(super) branch: String,
    pub(super) policy: String,
    /// Why they could not be made again, or what was decided otherwise.
    pub(super) error: Option<String>,
    pub(super) recorded: Written,
    /// The policy that is advised, where it is another.
    pub(super) advised: Option<Chosen>,
}

/// What a policy would have written.
#[derive(Debug, Serialize)]
pub(super) struct Chosen {
    pub(super) policy: String,
    pub(super) written: Written,
}
