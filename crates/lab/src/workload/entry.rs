//! What there is to know of a workload, and how it is made.

use super::{Param, Params, Scale, Seed, Workload, WorkloadError};

/// A workload that can be sent to another thread.
pub type BoxedWorkload = Box<dyn Workload + Send>;

/// A workload that can be asked for.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadEntry {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// What a scale below 1 shrinks.
    pub scales: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    pub(super) build: fn(Seed, Scale, &Params) -> Result<BoxedWorkload, WorkloadError>,
}

impl WorkloadEntry {
    /// Its parameters, with these given and the rest as by default.
    pub fn params<'a>(&self, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Params, WorkloadError> {
        Params::new(self.name, self.params, given)
    }

    /// Makes it. The parameters are of [`WorkloadEntry::params`].
    pub fn build(&self, seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
        assert_eq!(params.workload(), self.name, "parameters of another workload");
        (self.build)(seed, scale, params)
    }
}
