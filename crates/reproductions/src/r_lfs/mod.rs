//! R-LFS: the paper on a log whose regions are laid out as an organ pipe. Figures 3 to 6, the simulator's, and tables of ours.
//!
//! - `runs.rs`: what is run, and how its outcomes are found again.
//! - `cleaning.rs`: figures 3 and 4; `seeks.rs`: figures 5 and 6; `schemes.rs`: every placement scheme.
//!
//! The paper's traces are not public: each claim is held against each input that there is. Tolerances were fixed before the first run.
//! docs/reproductions/r-lfs.md has the outcome and says why what fails does.

mod cleaning;
mod runs;
mod schemes;
mod seeks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_lab::experiment::LabError;
use umbrella_lab::log_store::{self, Cell, Input, LogOutcome, ObserveLog, Percent};
use umbrella_lab::result::Table;
use umbrella_lab::trace::OpenOptions;
use umbrella_lab::workload::Seed;
use umbrella_units::Pages;

use super::{Claim, Effort, UnknownPaper, shared, told_apart};
use runs::Cells;
pub use runs::Runs;

/// What it is called here.
pub const NAME: &str = "r-lfs";

const SEED: Seed = Seed(1);

/// Traces in the folder of the open traces that have enough data; of one experiment that was run twice, the first.
const TRACES: [&str; 6] = [
    "msr_rsrch_1_week",
    "msr_hm_1_writes90h",
    "msr_cut_80w_243s",
    "umass_financial1_head10k",
    "java_fs_ext4",
    "ycsb_rocksdb_1",
];

/// One figure or table.
pub struct Figure {
    /// Its number or name.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What had to be assumed, or cannot be compared; empty when nothing.
    pub assumed: &'static str,
    /// The runs that it needs.
    cells: fn(&[Arc<Input>], Effort) -> Cells,
    /// What they say of the paper's claims.
    judge: fn(&Runs<'_>) -> Vec<Claim>,
    /// What they came to.
    show: fn(&Runs<'_>) -> Vec<Table>,
}

/// What a figure came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The figure's number or name.
    pub figure: &'static str,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its runs.
    pub outcomes: Vec<LogOutcome>,
}

fn no_claims(_: &Runs<'_>) -> Vec<Claim> {
    Vec::new()
}

/// All figures, in order.
pub static FIGURES: &[Figure] = &[
    Figure {
        id: "3",
        title: "blocks copied by the cleaner (figures 3 and 4: traces hplajw and snake)",
        assumed: cleaning::ASSUMED,
        cells: cleaning::cells,
        judge: cleaning::judge,
        show: cleaning::show,
    },
    Figure {
        id: "5",
        title: "seek distance (figures 5 and 6: traces hplajw and snake)",
        assumed: seeks::ASSUMED,
        cells: seeks::cells,
        judge: seeks::judge,
        show: seeks::show,
    },
    Figure {
        id: "Schemes",
        title: "every placement scheme, the log 80 % full (ours)",
        assumed: schemes::ASSUMED,
        cells: schemes::cells,
        judge: no_claims,
        show: schemes::show,
    },
    Figure {
        id: "Utilisation",
        title: "every scheme, the fuller the log (ours)",
        assumed: schemes::SWEEP_ASSUMED,
        cells: schemes::sweep_cells,
        judge: no_claims,
        show: schemes::show_sweep,
    },
];

/// The figures of that number; all when `None`. Figures 4 and 6 are shown with 3 and 5.
pub fn choose(figure: Option<&str>) -> Result<Vec<&'static Figure>, UnknownPaper> {
    // The paper has a figure for each trace; ours stand for both.
    let figure = figure.map(|figure| match figure {
        "4" => "3",
        "6" => "5",
        other => other,
    });
    super::choose(NAME, FIGURES, |of| of.id, figure)
}

/// The traces that a folder of open traces has.
pub fn traces_of(folder: &Path) -> Vec<PathBuf> {
    let paths = TRACES.iter().map(|name| folder.join(format!("{name}.csv.gz")));
    paths.filter(|path| path.is_file()).collect()
}

/// The synthetic inputs and these traces. Two of one name are told apart by a number.
pub fn inputs(traces: &[PathBuf], open: &OpenOptions, effort: Effort) -> Result<Vec<Arc<Input>>, LabError> {
    let blocks = match effort {
        Effort::Full => Pages(1 << 17),
        Effort::Quick => Pages(1 << 13),
    };
    let writes = 8 * blocks.0;
    let reads = Percent(50);
    let local = |x, y, requests, reads| Input::hot_cold((Percent(x), Percent(y)), blocks, requests, reads, SEED);
    let mut inputs = vec![
        local(90, 10, 2 * writes, reads)?,
        local(80, 20, 2 * writes, reads)?,
        local(90, 10, writes, Percent(0))?,
        Input::zipf(0.99, blocks, writes, SEED)?,
    ];
    for path in traces {
        let mut input = Input::trace(path, open)?;
        input.name = told_apart(&input.name, inputs.iter().map(|other| other.name.as_str()));
        inputs.push(input);
    }
    Ok(inputs.into_iter().map(Arc::new).collect())
}

/// Runs the figures on these inputs, `threads` runs at a time. Runs that figures share are run once. Figures whose runs were not all finished, because
/// the observer stopped them, are left out.
pub fn run(
    figures: &[&'static Figure],
    inputs: &[Arc<Input>],
    effort: Effort,
    threads: usize,
    observe: impl FnOnce(&[Cell]) -> Box<dyn ObserveLog>,
) -> Result<Vec<Judged>, LabError> {
    let cells = figures.iter().map(|figure| (figure.cells)(inputs, effort)).collect::<Result<Vec<_>, _>>()?;
    let (all, places) = shared(cells, Cell::identity);
    let observer = observe(&all);
    let outcomes = log_store::run(&all, threads, &*observer)?;
    let judged = figures.iter().zip(places).filter_map(|(figure, places)| {
        let run = |place: &usize| outcomes[*place].as_ref().map(|outcome| (&all[*place], outcome));
        let runs = Runs::new(inputs, places.iter().map(run).collect::<Option<Vec<_>>>()?);
        Some(Judged {
            figure: figure.id,
            claims: (figure.judge)(&runs),
            tables: (figure.show)(&runs),
            outcomes: runs.outcomes().cloned().collect(),
        })
    });
    Ok(judged.collect())
}
