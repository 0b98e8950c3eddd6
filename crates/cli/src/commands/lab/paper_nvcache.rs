//! `umbrella lab paper nvcache`: its runs are of a hybrid disk, on traces that the user names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use umbrella_lab::hybrid::{HybridOutcome, Input};
use umbrella_lab::trace::OpenOptions;
use umbrella_model::device::profile;
use umbrella_reproductions::nvcache::{self, Figure, Judged};

use super::paper::PaperArgs;
use super::rows::{csv, plain};
use super::watch::Bars;
use crate::commands::claims::{Shown, Watts, heading, print_claims, print_count, rows};
use crate::output;
use crate::text::visible_path;

/// Names the folder of the open traces.
pub(super) const FOLDER: &str = "UMBRELLA_TRACES";

/// The week-long traces in the folder that was named.
fn weeks_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = visible_path(folder);
    if !folder.is_dir() {
        bail!("{FOLDER} is {shown}, which is no folder");
    }
    let weeks = nvcache::weeks_of(folder);
    if weeks.is_empty() {
        bail!("{FOLDER} is {shown}, which has none of the week-long traces (unset it to do without)");
    }
    Ok(weeks)
}

impl PaperArgs {
    pub(super) fn run_nvcache(&self) -> anyhow::Result<ExitCode> {
        let figures = nvcache::choose(self.figure.as_deref())?;
        let later = Bars::later()?;
        let inputs = self.inputs()?;
        let judged = nvcache::run(&figures, &inputs, self.effort(), self.threads(), |cells| {
            let name = |cell: &umbrella_lab::hybrid::Cell| {
                let setup = &cell.setup;
                format!("{} {} {}", cell.input.name, setup.when, setup.algorithm)
            };
            Box::new(later.begin_named(cells.iter().map(name).collect()))
        })?;
        let stopped = later.stopped();
        self.give_nvcache(&figures, &inputs, &judged)?;
        if let Some(code) = stopped {
            tell!("interrupted: {} of {} figures are shown", judged.len(), figures.len());
            return Ok(code);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The synthetic week, and the traces that are named, or those of the folder.
    fn inputs(&self) -> anyhow::Result<Vec<Arc<Input>>> {
        let traces: Vec<PathBuf> = match std::env::var_os(FOLDER) {
            _ if !self.traces.is_empty() => self.traces.clone(),
            Some(folder) => weeks_of(folder.as_ref())?,
            None => Vec::new(),
        };
        if traces.is_empty() {
            tell!(
                "only the synthetic week is run: name traces with --trace FILE, or the folder of the open traces in {FOLDER}"
            );
        }
        let inputs = nvcache::inputs(&traces, &OpenOptions::default())?;
        for input in inputs.iter().filter(|input| input.wrapped) {
            tell!("{}: addresses beyond the modelled disk's end begin again at its start", input.name);
        }
        Ok(inputs)
    }

    fn give_nvcache(&self, figures: &[&Figure], inputs: &[Arc<Input>], judged: &[Judged]) -> anyhow::Result<()> {
        if self.csv {
            return Ok(output::print(&csv(judged.iter().flat_map(|figure| &figure.outcomes))?)?);
        }
        let of = |id: &str| figures.iter().find(|figure| figure.id == id);
        let shown: Vec<Shown> = judged
            .iter()
            .map(|judged| Shown {
                figure: judged.figure,
                title: of(judged.figure).map_or("", |figure| figure.title),
                assumed: of(judged.figure).map_or("", |figure| figure.assumed),
                watts: Some(watts_of(&judged.outcomes)),
                claims: &judged.claims,
            })
            .collect();
        if self.json {
            return Ok(output::json_list(&rows(nvcache::NAME, &shown))?);
        }
        for input in inputs {
            let written = input.written();
            let days = input.length.as_secs_f64() / 86_400.0;
            output::line(&format!(
                "{}: {} requests in {days:.1} days, {written} written",
                input.name,
                input.arrivals.len()
            ))?;
        }
        // Energies are worth what the watts are.
        let outcomes = judged.iter().flat_map(|figure| &figure.outcomes);
        let used: BTreeSet<&str> = outcomes.flat_map(|outcome| [outcome.disk.as_str(), &outcome.flash]).collect();
        for profile in used.into_iter().filter_map(|name| profile(name).ok()) {
            output::line(&format!("watts of {}: {}", profile.name, profile.watts))?;
        }
        for (shown, judged) in shown.iter().zip(judged) {
            output::line(&format!("\n{} {}: {}", nvcache::NAME, heading(shown.figure), shown.title))?;
            for table in &judged.tables {
                if !table.title.is_empty() {
                    output::line(&format!("  {}", table.title))?;
                }
                output::line(&plain(table))?;
            }
            print_claims(shown)?;
        }
        let fewer = " (quick: with fewer runs in our own tables; docs/reproductions/nvcache.md has all)";
        print_count(&shown, if self.quick { fewer } else { "" })
    }
}

/// Where the watts of the devices of some runs come from.
fn watts_of(outcomes: &[HybridOutcome]) -> Watts {
    let of = |device: fn(&HybridOutcome) -> (&str, &str)| {
        let used: BTreeSet<(&str, &str)> = outcomes.iter().map(device).collect();
        used.into_iter().map(|(profile, watts)| format!("{profile}: {watts}")).collect::<Vec<_>>().join("; ")
    };
    Watts {
        disk_watts: of(|outcome| (&outcome.disk, &outcome.disk_watts)),
        flash_watts: of(|outcome| (&outcome.flash, &outcome.flash_watts)),
    }
}
