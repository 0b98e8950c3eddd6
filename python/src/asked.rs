//! What Python asks to be run: JSON with the names of the command line's options.

use std::sync::Arc;

use serde::Deserialize;
use umbrella_lab::experiment::LabError;
use umbrella_lab::trace::Columns;
use umbrella_lab::write_back::{
    Fit, MOST_RUNS, MachineSpec, ReplayOptions, Sweep, WriteBackCell, WriteBackInput, cells,
};

/// Policies on an input, on a machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// With parameters if you like.
    policies: Vec<String>,
    /// A workload's spec; nothing if a trace is given.
    workload: Option<String>,
    /// Each parameter with its values, in this order.
    sweeps: Vec<(String, Vec<String>)>,
    /// What is not the machine's default, by the names that a sweep has for it.
    machine: Vec<(String, String)>,
    /// Only this device of a trace.
    device: Option<u32>,
    /// Addresses beyond the disk's end begin again at its first block.
    wrap: bool,
}

impl Asked {
    /// All runs, each as it will be; those with a sweep's values say so.
    pub(crate) fn cells(
        &self,
        trace: Option<(&std::path::PathBuf, &Arc<Columns>)>,
    ) -> Result<Vec<WriteBackCell>, LabError> {
        let input = match (trace, &self.workload) {
            (Some((name, columns)), _) => {
                let fit = if self.wrap { Fit::Wrap } else { Fit::Refuse };
                let replay = ReplayOptions { fit, device: self.device, ..ReplayOptions::default() };
                WriteBackInput::columns(name.clone(), Arc::clone(columns), replay)?
            }
            (None, spec) => WriteBackInput::Workload { spec: spec.clone().unwrap_or_default() },
        };
        // One value each: the machine's options are set as a sweep sets them, and named as nothing that was swept.
        let sweep = |(name, values): (String, Vec<String>)| Sweep { name, values };
        let fixed = self.machine.iter().map(|(name, value)| (name.clone(), vec![value.clone()]));
        let sweeps: Vec<Sweep> = fixed.chain(self.sweeps.iter().cloned()).map(sweep).collect();
        let base = WriteBackCell::new(input, MachineSpec::default());
        let mut cells = cells(&base, &self.policies, &sweeps, MOST_RUNS)?;
        for cell in &mut cells {
            cell.machine.swept.retain(|name, _| self.sweeps.iter().any(|(swept, _)| swept == name));
        }
        Ok(cells)
    }
}
