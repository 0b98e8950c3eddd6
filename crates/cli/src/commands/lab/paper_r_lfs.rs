//! `umbrella lab paper r-lfs`: its runs are of a log-structured store, on traces that the user names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use umbrella_lab::experiment::LabError;
use umbrella_lab::log_store::{Cell, Input};
use umbrella_lab::trace::OpenOptions;
use umbrella_reproductions::r_lfs::{self, Figure, Judged};

use super::paper::PaperArgs;
use super::paper_nvcache::FOLDER;
use super::rows::{csv, plain};
use super::watch::Bars;
use crate::commands::claims::{Shown, heading, print_claims, print_count, rows};
use crate::output;

/// The figure of the prototype.
const LIVE_FIGURE: &str = "7";

impl PaperArgs {
    pub(super) fn run_r_lfs(&self) -> anyhow::Result<ExitCode> {
        if self.figure.as_deref() == Some(LIVE_FIGURE) {
            bail!("figure {LIVE_FIGURE} is measured on a mounted file system: umbrella bench r-lfs (needs root)");
        }
        let figures = r_lfs::choose(self.figure.as_deref())?;
        let later = Bars::later()?;
        let inputs = self.logs_inputs()?;
        let judged = r_lfs::run(&figures, &inputs, self.effort(), self.threads(), |cells| {
            let name = |cell: &Cell| {
                let setup = &cell.setup;
                format!("{} {} {} {}%", cell.input.name, setup.scheme, setup.victim.name(), setup.utilisation.0)
            };
            Box::new(later.begin_named(cells.iter().map(name).collect()))
        })?;
        let stopped = later.stopped();
        self.give_r_lfs(&figures, &inputs, &judged)?;
        if let Some(code) = stopped {
            tell!("interrupted: {} of {} figures are shown", judged.len(), figures.len());
            return Ok(code);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The synthetic inputs, and the traces that are named, or those of the folder.
    fn logs_inputs(&self) -> Result<Vec<Arc<Input>>, LabError> {
        let traces: Vec<PathBuf> = match std::env::var_os(FOLDER) {
            _ if !self.traces.is_empty() => self.traces.clone(),
            Some(folder) if !self.quick => r_lfs::traces_of(folder.as_ref()),
            _ => Vec::new(),
        };
        if traces.is_empty() && !self.quick {
            tell!(
                "only synthetic inputs are run: name traces with --trace FILE, or the folder of the open traces in {FOLDER}"
            );
        }
        r_lfs::inputs(&traces, &OpenOptions::default(), self.effort())
    }

    fn give_r_lfs(&self, figures: &[&Figure], inputs: &[Arc<Input>], judged: &[Judged]) -> anyhow::Result<()> {
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
                watts: None,
                claims: &judged.claims,
            })
            .collect();
        if self.json {
            return Ok(output::json_list(&rows(r_lfs::NAME, &shown))?);
        }
        for input in inputs {
            output::line(&format!(
                "{}: {} requests, {} blocks of data at most, {} a segment",
                input.name,
                input.len(),
                input.most_live().0,
                input.segment_blocks()
            ))?;
        }
        for (shown, judged) in shown.iter().zip(judged) {
            output::line(&format!("\n{} {}: {}", r_lfs::NAME, heading(shown.figure), shown.title))?;
            for table in &judged.tables {
                output::line(&format!("  {}", table.title))?;
                output::line(&plain(table))?;
            }
            print_claims(shown)?;
        }
        let less = match (self.quick, self.traces.is_empty()) {
            (false, _) => "",
            (true, true) => {
                " (quick: with less data, and without the open traces; docs/reproductions/r-lfs.md has all)"
            }
            (true, false) => " (quick: with less data)",
        };
        print_count(&shown, less)
    }
}
