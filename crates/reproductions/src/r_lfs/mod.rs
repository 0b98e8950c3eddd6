//! R-LFS: the paper on a log whose regions are laid out as an organ pipe. Figures 3 to 6, the simulator's, and tables
//! of ours.
//!
//! - `runs.rs`: the runs, and how to find their outcomes.
//! - `cleaning.rs`: figures 3 and 4; `seeks.rs`: figures 5 and 6; `schemes.rs`: every placement scheme.
//!
//! Of the paper's traces only hplajw has a public part: one week of 1992, where the paper has two months. Each claim is
//! compared with each input of the frozen list, and that week is shown beside them. A trace is run twice: each of its
//! disks as a log of its own (the primary reading), and all as one log. docs/reproductions/r-lfs.md has the outcome and
//! explains failures.

mod cleaning;
mod runs;
mod schemes;
mod seeks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_lab::experiment::LabError;
use umbrella_lab::log_store::{LogError, LogInput, LogSetup, Percent};
use umbrella_lab::trace::OpenOptions;
use umbrella_lab::workload::Seed;
use umbrella_units::Pages;

use crate::on_inputs::{self, InputFigure, no_claims};
use crate::{Effort, UnknownPaper};

/// What it is called here.
pub const NAME: &str = "r-lfs";

const SEED: Seed = Seed(1);

/// Traces in the folder of the open traces that have enough data; of one experiment that was run twice, the first.
const TRACES: [&str; 7] = [
    "msr_rsrch_1_week",
    "msr_hm_1_writes90h",
    "msr_cut_80w_243s",
    "umass_financial1_head10k",
    "java_fs_ext4",
    "ycsb_rocksdb_1",
    "hplajw_1992_week",
];

/// A figure of the paper.
pub type LogFigure = InputFigure<LogSetup>;
type LogCells = on_inputs::Cells<LogSetup>;
type LogRuns<'a> = on_inputs::Runs<'a, LogSetup>;

/// All figures, in order.
pub static FIGURES: &[LogFigure] = &[
    LogFigure {
        id: "3",
        title: "blocks copied by the cleaner (figures 3 and 4: traces hplajw and snake)",
        assumed: cleaning::ASSUMED,
        cells: cleaning::cells,
        measure: cleaning::measure,
        show: cleaning::show,
    },
    LogFigure {
        id: "5",
        title: "seek distance (figures 5 and 6: traces hplajw and snake)",
        assumed: seeks::ASSUMED,
        cells: seeks::cells,
        measure: seeks::measure,
        show: seeks::show,
    },
    LogFigure {
        id: "Schemes",
        title: "every placement scheme, the log 80 % full (ours)",
        assumed: schemes::ASSUMED,
        cells: schemes::cells,
        measure: no_claims,
        show: schemes::show,
    },
    LogFigure {
        id: "Utilisation",
        title: "every scheme, the fuller the log (ours)",
        assumed: schemes::SWEEP_ASSUMED,
        cells: schemes::sweep_cells,
        measure: no_claims,
        show: schemes::show_sweep,
    },
];

/// The figures of that number; all when `None`. Figures 4 and 6 are shown with 3 and 5.
pub fn choose(figure: Option<&str>) -> Result<Vec<&'static LogFigure>, UnknownPaper> {
    // The paper has a figure for each trace; ours stand for both.
    let figure = figure.map(|figure| match figure {
        "4" => "3",
        "6" => "5",
        other => other,
    });
    crate::choose(NAME, FIGURES, |of| of.id, figure)
}

/// The traces that a folder of open traces has.
pub fn traces_of(folder: &Path) -> Vec<PathBuf> {
    on_inputs::traces_in(folder, &TRACES)
}

/// The synthetic inputs and these traces. Inputs of the same name get a number.
pub fn inputs(traces: &[PathBuf], open: &OpenOptions, effort: Effort) -> Result<Vec<Arc<LogInput>>, LabError> {
    let blocks = match effort {
        Effort::Full => Pages(1 << 17),
        Effort::Quick => Pages(1 << 13),
    };
    let writes = 8 * blocks.0;
    let reads = Percent(50);
    let local = |x, y, requests, reads| LogInput::hot_cold((Percent(x), Percent(y)), blocks, requests, reads, SEED);
    let inputs = vec![
        local(90, 10, 2 * writes, reads)?,
        local(80, 20, 2 * writes, reads)?,
        local(90, 10, writes, Percent(0))?,
        LogInput::zipf(0.99, blocks, writes, SEED)?,
    ];
    on_inputs::with_traces(
        inputs,
        traces,
        |input| &mut input.name,
        |path| {
            // Small traces touch too few blocks for a log; their disks may have enough.
            let joined = match LogInput::trace(path, open) {
                Err(LabError::Log(LogError::TooSmall { .. })) => None,
                joined => Some(joined?),
            };
            Ok(joined.into_iter().chain(LogInput::disks(path, open)?).collect())
        },
    )
}
