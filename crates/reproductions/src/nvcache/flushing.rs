//! Figure 5: how long flushing takes, by algorithm, in total and on each medium.

use std::sync::Arc;

use umbrella_lab::experiment::Cell;
use umbrella_lab::hybrid::{FlushFigures, HybridInput, HybridSetup};
use umbrella_lab::result::Table;
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger};

use super::runs::{EACH_AND_FULL, PAPERS, alone, less, setup as paper_setup, share};
use super::{FlashCells, FlashRuns, NAME};
use crate::Measured;
use crate::frozen::is_frozen_input;

pub(super) const ASSUMED: &str = "A flush counts from the moment the disk spins until its data are durable, with the requests of others \
     that delay it. What is in the log at the end of the trace is flushed and counted too. A device's time is \
     the time in which it has a request; with two buffers both together exceed the total. `whole` is our own \
     algorithm.";

/// What "faster", "higher" or "lower" takes, in percent.
const SOME: f64 = 1.0;

pub(super) const UNBUFFERED: &str =
    "the paper does not say whether the disk's own write buffer was on; figure 5 leaves it on, as disks come";

/// Whether the disk has its write buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    On,
    Off,
}

fn setup(when: FlushTrigger, algorithm: Algorithm, buffer: Buffer) -> HybridSetup {
    HybridSetup { write_cache: (buffer == Buffer::Off).then_some(false), ..paper_setup(when, algorithm) }
}

pub(super) fn cells(inputs: &[Arc<HybridInput>], buffer: Buffer) -> FlashCells {
    let of = |&when: &FlushTrigger| Algorithm::ALL.map(|algorithm| setup(when, algorithm, buffer));
    Ok(Cell::grid(inputs, &EACH_AND_FULL.iter().flat_map(of).collect::<Vec<_>>()))
}

/// How a flush is timed; the text does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timing {
    /// Beside the trace's requests.
    Queued,
    /// With the devices to itself.
    Alone,
}

/// The flush times of one input.
struct Times<'a> {
    runs: &'a FlashRuns<'a>,
    input: &'a HybridInput,
    buffer: Buffer,
    timing: Timing,
}

impl Times<'_> {
    fn of(&self, when: FlushTrigger, algorithm: Algorithm) -> FlushFigures {
        let setup = setup(when, algorithm, self.buffer);
        let flushes = self.runs.of(self.input, &setup).map_or_else(FlushFigures::default, |outcome| outcome.flushes);
        if self.timing == Timing::Alone { alone(flushes) } else { flushes }
    }

    /// By how many percent `alg4` is below one that neither sorts nor merges, at most.
    fn ordering_cuts(&self) -> f64 {
        let plain = PAPERS.into_iter().filter(|algorithm| *algorithm != Algorithm::Alg4);
        let cuts = plain.flat_map(|plain| {
            EACH_AND_FULL.map(|when| less(self.of(when, plain).time_s, self.of(when, Algorithm::Alg4).time_s))
        });
        cuts.fold(0.0, f64::max)
    }

    /// By how many percent the sectors flushed with `full` are below those with `each`, both merged.
    fn merging_cuts(&self) -> f64 {
        let [each, full] = EACH_AND_FULL.map(|when| self.of(when, Algorithm::Alg4).written_bytes as f64);
        less(each, full)
    }

    /// By how many percent the writes to the disk are fewer with merging than without.
    fn fewer_writes(&self, when: FlushTrigger) -> f64 {
        less(self.of(when, Algorithm::Alg1).writes as f64, self.of(when, Algorithm::Alg4).writes as f64)
    }

    /// By how many percent each medium is busy for less time with `full` than with `each`.
    fn spared(&self, algorithm: Algorithm) -> [f64; 2] {
        let [each, full] = EACH_AND_FULL.map(|when| self.of(when, algorithm));
        [less(each.flash_s, full.flash_s), less(each.disk_s, full.disk_s)]
    }

    /// By how many percent `full` is below `each`.
    fn cut(&self, algorithm: Algorithm) -> f64 {
        less(self.of(FlushTrigger::Each, algorithm).time_s, self.of(FlushTrigger::Full, algorithm).time_s)
    }
}

/// How many percent of the cases are so.
fn of_all(cases: impl IntoIterator<Item = bool>) -> f64 {
    let (so, all) = cases.into_iter().fold((0_u32, 0_u32), |(so, all), case| (so + u32::from(case), all + 1));
    if all == 0 { 0.0 } else { 100.0 * f64::from(so) / f64::from(all) }
}

/// What the text says of figure 5, and the conclusion of it, of the frozen inputs together and of each other one alone.
/// How flushes are timed matters to times only.
pub(super) fn measure(runs: &FlashRuns<'_>) -> Vec<Measured> {
    let queued = timed(runs, Timing::Queued);
    let alone = timed(runs, Timing::Alone).into_iter().filter(|measured| !COUNTS.contains(&measured.name()));
    queued.into_iter().chain(alone.map(|measured| measured.in_reading("alone"))).collect()
}

/// Claims about counts, which are the same however flushes are timed.
const COUNTS: [&str; 2] = ["merging", "sectors"];

fn timed(runs: &FlashRuns<'_>, timing: Timing) -> Vec<Measured> {
    let of = |input| Times { runs, input, buffer: Buffer::On, timing };
    let (frozen, new): (Vec<_>, Vec<_>) =
        runs.inputs().map(of).partition(|times| is_frozen_input(NAME, "5", &times.input.name));
    let together = figures_of(&frozen).map(|(name, value)| Measured::new(name, value));
    let each = new.iter().flat_map(|times| {
        figures_of(std::slice::from_ref(times)).map(|(name, value)| Measured::new(name, value).on(&times.input.name))
    });
    together.into_iter().chain(each).collect()
}

/// "Can" and "as much as" are of the best case, the rest is of most cases.
fn figures_of(inputs: &[Times<'_>]) -> [(&'static str, f64); 10] {
    let cuts: Vec<f64> = inputs.iter().flat_map(|times| PAPERS.map(|algorithm| times.cut(algorithm))).collect();
    let best = cuts.iter().copied().fold(0.0, f64::max);
    let disks = inputs.iter().flat_map(|times| {
        EACH_AND_FULL.into_iter().flat_map(move |when| PAPERS.map(|algorithm| times.of(when, algorithm)))
    });
    let dominates = of_all(disks.map(|of| share(of.disk_s, of.disk_s + of.flash_s) > 50.0));
    let two_against_one = |of: fn(&FlushFigures) -> f64| {
        inputs.iter().map(move |times| {
            let [one, two] =
                [Algorithm::Alg1, Algorithm::Alg2].map(|algorithm| of(&times.of(FlushTrigger::Each, algorithm)));
            -less(one, two)
        })
    };
    let spared = inputs.iter().flat_map(|times| PAPERS.into_iter().flat_map(|algorithm| times.spared(algorithm)));
    let merged = inputs.iter().flat_map(|times| EACH_AND_FULL.map(|when| times.fewer_writes(when)));
    [
        ("can", best),
        ("full-faster", of_all(cuts.iter().map(|cut| *cut > SOME))),
        ("media", of_all(spared.map(|less| less > SOME))),
        ("disk-dominates", dominates),
        ("alg1", of_all(two_against_one(|of| of.time_s).map(|more| more > SOME))),
        ("alg2-disk", of_all(two_against_one(|of| of.disk_s).map(|more| more > SOME))),
        ("alg2-flash", of_all(two_against_one(|of| of.flash_s).map(|more| more < -SOME))),
        ("ordering", inputs.iter().map(Times::ordering_cuts).fold(0.0, f64::max)),
        ("merging", of_all(merged.map(|fewer| fewer > SOME))),
        ("sectors", inputs.iter().map(Times::merging_cuts).fold(0.0, f64::max)),
    ]
}

pub(super) fn show(runs: &FlashRuns<'_>, buffer: Buffer) -> Vec<Table> {
    let head = [
        "algorithm",
        "each: total s",
        "flash s",
        "disk s",
        "flushes",
        "writes",
        "full: total s",
        "flash s",
        "disk s",
        "flushes",
        "writes",
        "full cuts",
    ];
    let table = |input: &HybridInput| {
        let times = Times { runs, input, buffer, timing: Timing::Queued };
        let row = |algorithm: Algorithm| {
            let mut row = vec![algorithm.name().to_owned()];
            for when in EACH_AND_FULL {
                let of = times.of(when, algorithm);
                row.extend([of.time_s, of.flash_s, of.disk_s].map(|seconds| format!("{seconds:.1}")));
                row.extend([of.count, of.writes].map(|count| count.to_string()));
            }
            row.push(format!("{:.1} %", times.cut(algorithm)));
            row
        };
        let rows = Algorithm::ALL.map(row).into();
        Table { title: input.name.clone(), head: head.map(str::to_owned).to_vec(), rows }
    };
    runs.inputs().map(table).collect()
}
