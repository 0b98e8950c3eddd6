//! `umbrella lab paper r-lfs`: its runs are of a log-structured store, on traces that the user names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use umbrella_lab::experiment::LabError;
use umbrella_lab::log_store::LogInput;
use umbrella_lab::trace::OpenOptions;
use umbrella_reproductions::{on_inputs, r_lfs};

use super::paper::PaperArgs;
use super::paper_nvcache::FOLDER;
use super::watch::Bars;

/// The figure of the prototype.
const LIVE_FIGURE: &str = "7";

impl PaperArgs {
    pub(super) fn run_r_lfs(&self) -> anyhow::Result<ExitCode> {
        if self.figure.as_deref() == Some(LIVE_FIGURE) {
            bail!("figure {LIVE_FIGURE} is measured on a mounted file system: umbrella bench r-lfs (needs root)");
        }
        let figures = r_lfs::choose(self.figure.as_deref())?;
        let later = Bars::catch_interrupts()?;
        let inputs = self.logs_inputs()?;
        let judged = on_inputs::run(r_lfs::NAME, &figures, &inputs, self.effort(), self.threads(), |cells| {
            Box::new(later.begin(cells))
        })?;
        let stopped = later.stopped();
        let less = match (self.quick, self.traces.is_empty()) {
            (false, _) => "",
            (true, true) => {
                " (quick: with less data, and without the open traces; docs/reproductions/r-lfs.md has all)"
            }
            (true, false) => " (quick: with less data)",
        };
        self.print_figures_on_inputs(
            r_lfs::NAME,
            &judged,
            None,
            inputs.iter().map(|input| describe_input(input)),
            less,
        )?;
        Ok(PaperArgs::ended(stopped, judged.len(), figures.len()))
    }

    /// The synthetic inputs, and the traces that are named, or those of the folder.
    fn logs_inputs(&self) -> Result<Vec<Arc<LogInput>>, LabError> {
        let traces: Vec<PathBuf> = match std::env::var_os(FOLDER) {
            _ if !self.traces.is_empty() => self.traces.clone(),
            Some(folder) if !self.quick => r_lfs::traces_of(folder.as_ref()),
            _ => Vec::new(),
        };
        if traces.is_empty() && !self.quick {
            report!(
                "running only synthetic inputs: for more, name traces with --trace FILE, or set {FOLDER} to the \
                folder of the open traces"
            );
        }
        r_lfs::inputs(&traces, &OpenOptions::default(), self.effort())
    }
}

/// What an input is.
fn describe_input(input: &LogInput) -> String {
    let (requests, blocks, segment) = (input.len(), input.most_live().0, input.segment_blocks());
    format!("{}: {requests} requests, {blocks} blocks of data at most, {segment} a segment", input.name)
}
