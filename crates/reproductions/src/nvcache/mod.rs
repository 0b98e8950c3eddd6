//! NVCache: the paper on flushing the flash of a hybrid disk. Figures 3 to 5, the statements of section 2.1 about
//! spin-ups, and tables of ours.
//!
//! - `runs.rs`: the runs, and how to find their outcomes.
//! - `cached.rs`: figures 3 and 4; `flushing.rs`: figure 5; `waking.rs`: section 2.1; `ours.rs`: every choice, and the
//!   sweeps.
//!
//! Of the paper's machines, only hplajw has a public week, in 1992. It is another week than the paper's, and stands in
//! for it. Each claim is compared with each trace of the frozen list, and that week is shown beside them.
//! docs/reproductions/nvcache.md has the outcome and explains failures.

mod cached;
mod flushing;
mod ours;
mod runs;
mod waking;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_lab::experiment::LabError;
use umbrella_lab::hybrid::{HybridInput, HybridSetup};
use umbrella_lab::trace::OpenOptions;

use self::flushing::Buffer;
use crate::UnknownPaper;
use crate::on_inputs::{self, InputFigure, no_claims};

/// What it is called here.
pub const NAME: &str = "nvcache";

/// The seed of the synthetic week.
const SEED: u64 = 1;

/// Traces of a week in the folder of the open traces.
const WEEKS: [&str; 5] =
    ["msr_rsrch_1_week", "msr_wdev_1_week", "msr_wdev_3_week", "msr_hm_1_writes90h", "hplajw_1992_week"];

/// A figure of the paper.
pub type FlashFigure = InputFigure<HybridSetup>;
type FlashCells = on_inputs::Cells<HybridSetup>;
type FlashRuns<'a> = on_inputs::Runs<'a, HybridSetup>;

/// All figures, in order.
pub static FIGURES: &[FlashFigure] = &[
    FlashFigure {
        id: "2.1",
        title: "what wakes the disk",
        assumed: waking::ASSUMED,
        cells: waking::cells,
        measure: waking::measure,
        show: waking::show,
    },
    FlashFigure {
        id: "3",
        title: "data cached over the days, infinite flash",
        assumed: cached::DAYS_ASSUMED,
        cells: cached::cells,
        measure: no_claims,
        show: cached::show_days,
    },
    FlashFigure {
        id: "4",
        title: "data cached each time that the disk sleeps, infinite flash",
        assumed: cached::ASSUMED,
        cells: cached::cells,
        measure: cached::measure_sleeps,
        show: cached::show_sleeps,
    },
    FlashFigure {
        id: "5",
        title: "flush time by algorithm, 64 MB of flash, 16 MB of memory",
        assumed: flushing::ASSUMED,
        cells: |inputs, _| flushing::cells(inputs, Buffer::On),
        measure: flushing::measure,
        show: |runs| flushing::show(runs, Buffer::On),
    },
    FlashFigure {
        id: "Unbuffered",
        title: "figure 5 without the disk's own write buffer (ours)",
        assumed: flushing::UNBUFFERED,
        cells: |inputs, _| flushing::cells(inputs, Buffer::Off),
        measure: no_claims,
        show: |runs| flushing::show(runs, Buffer::Off),
    },
    FlashFigure {
        id: "Choices",
        title: "every choice of when, how and when to sleep (ours)",
        assumed: ours::CHOICES_ASSUMED,
        cells: ours::choices,
        measure: no_claims,
        show: ours::show_choices,
    },
    FlashFigure {
        id: "Flash",
        title: "more and less flash (ours)",
        assumed: "",
        cells: ours::flash_sizes,
        measure: no_claims,
        show: ours::show_flash_sizes,
    },
    FlashFigure {
        id: "Memory",
        title: "more and less memory for flushing (ours)",
        assumed: "",
        cells: ours::memory_sizes,
        measure: no_claims,
        show: ours::show_memory_sizes,
    },
];

/// The figures of that number; all when `None`.
pub fn choose(figure: Option<&str>) -> Result<Vec<&'static FlashFigure>, UnknownPaper> {
    crate::choose(NAME, FIGURES, |of| of.id, figure)
}

/// The week-long traces that a folder of open traces has.
pub fn weeks_of(folder: &Path) -> Vec<PathBuf> {
    on_inputs::traces_in(folder, &WEEKS)
}

/// The synthetic week and these traces, laid out on the paper's disk. Inputs of the same name get a number.
pub fn inputs(traces: &[PathBuf], open: &OpenOptions) -> Result<Vec<Arc<HybridInput>>, LabError> {
    let capacity = HybridSetup::default().capacity()?;
    let inputs = vec![HybridInput::desktop_week(SEED)];
    on_inputs::with_traces(
        inputs,
        traces,
        |input| &mut input.name,
        |path| Ok(vec![HybridInput::trace(path, open, capacity)?]),
    )
}
