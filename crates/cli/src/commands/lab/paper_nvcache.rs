//! `umbrella lab paper nvcache`: its runs are of a hybrid disk, on traces that the user names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use umbrella_lab::hybrid::{HybridInput, HybridOutcome, HybridSetup};
use umbrella_lab::trace::OpenOptions;
use umbrella_model::device::profile;
use umbrella_reproductions::{Judged, nvcache, on_inputs};

use super::paper::PaperArgs;
use super::watch::Bars;
use crate::commands::claims::WattSources;
use crate::text::visible_path;

/// Names the folder of the open traces.
pub(super) const FOLDER: &str = "UMBRELLA_TRACES";

/// The week-long traces in the folder.
fn week_traces(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = visible_path(folder);
    if !folder.is_dir() {
        bail!("{FOLDER} is {shown}, which is not a directory");
    }
    let weeks = nvcache::weeks_of(folder);
    if weeks.is_empty() {
        bail!("{FOLDER} is {shown}, which contains none of the week-long traces (unset it to run without them)");
    }
    Ok(weeks)
}

impl PaperArgs {
    pub(super) fn run_nvcache(&self) -> anyhow::Result<ExitCode> {
        let figures = nvcache::choose(self.figure.as_deref())?;
        let later = Bars::catch_interrupts()?;
        let inputs = self.inputs()?;
        let judged = on_inputs::run(nvcache::NAME, &figures, &inputs, self.effort(), self.threads(), |cells| {
            Box::new(later.begin(cells))
        })?;
        let stopped = later.stopped();
        let fewer = " (quick: with fewer runs in our own tables; docs/reproductions/nvcache.md has all)";
        let less = if self.quick { fewer } else { "" };
        self.print_figures_on_inputs(nvcache::NAME, &judged, Some(watts_of), describe_inputs(&inputs, &judged), less)?;
        Ok(PaperArgs::ended(stopped, judged.len(), figures.len()))
    }

    /// The synthetic week, and the traces that are named, or those of the folder.
    fn inputs(&self) -> anyhow::Result<Vec<Arc<HybridInput>>> {
        let traces: Vec<PathBuf> = match std::env::var_os(FOLDER) {
            _ if !self.traces.is_empty() => self.traces.clone(),
            Some(folder) => week_traces(folder.as_ref())?,
            None => Vec::new(),
        };
        if traces.is_empty() {
            report!(
                "running only the synthetic week: for more, name traces with --trace FILE, or set {FOLDER} to the \
                folder of the open traces"
            );
        }
        let inputs = nvcache::inputs(&traces, &OpenOptions::default())?;
        for input in inputs.iter().filter(|input| input.wrapped) {
            report!("{}: addresses beyond the modelled disk's end begin again at its start", input.name);
        }
        Ok(inputs)
    }
}

/// A line for each input, and for each device.
fn describe_inputs(inputs: &[Arc<HybridInput>], judged: &[Judged<HybridSetup>]) -> Vec<String> {
    let of_input = |input: &Arc<HybridInput>| {
        let days = input.length.as_secs_f64() / 86_400.0;
        let (requests, written) = (input.arrivals.len(), input.written());
        format!("{}: {requests} requests in {days:.1} days, {written} written", input.name)
    };
    // Energies are worth what the watts are.
    let outcomes = judged.iter().flat_map(|figure| &figure.outcomes);
    let used: BTreeSet<&str> = outcomes.flat_map(|outcome| [outcome.disk.as_str(), &outcome.flash]).collect();
    let profiles = used.into_iter().filter_map(|name| profile(name).ok());
    let watts = profiles.map(|profile| format!("watts of {}: {}", profile.name, profile.watts));
    inputs.iter().map(of_input).chain(watts).collect()
}

/// Where the watts of the devices of some runs come from.
fn watts_of(outcomes: &[HybridOutcome]) -> WattSources {
    let of = |device: fn(&HybridOutcome) -> (&str, &str)| {
        let used: BTreeSet<(&str, &str)> = outcomes.iter().map(device).collect();
        used.into_iter().map(|(profile, watts)| format!("{profile}: {watts}")).collect::<Vec<_>>().join("; ")
    };
    WattSources {
        disk_watts: of(|outcome| (&outcome.disk, &outcome.disk_watts)),
        flash_watts: of(|outcome| (&outcome.flash, &outcome.flash_watts)),
    }
}
