//! Figure 5: how long flushing takes, by algorithm, in total and on each medium.

use std::sync::Arc;

use umbrella_policy::flash_cache::{Algorithm, When};

use super::Table;
use super::runs::{EACH_AND_FULL, PAPERS, Runs, cells as all_of, less, setup as paper_setup, share};
use crate::hybrid::{Cell, FlushFigures, Input, Setup};
use crate::paper::{Claim, Effort, Expect};

pub(super) const ASSUMED: &str = "flushing counts from the moment at which the disk spins until its data is durable, with what the requests of others \
     in its way took; what is in the log at the end of the trace is flushed and counted too; a time is the disk's or the flash's \
     while something is asked of it, so with two buffers both together exceed the total; `whole` is ours";

/// "As much as": the best of all, within so much.
const AS_MUCH_AS: Expect = Expect::Within { points: 10.0 };

/// What "faster", "higher" or "lower" takes, in percent.
const SOME: f64 = 1.0;

pub(super) const UNBUFFERED: &str =
    "the paper does not say whether the disk's own write buffer was on; figure 5 leaves it on, as disks come";

/// Whether the disk has its write buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buffer {
    On,
    Off,
}

fn setup(when: When, algorithm: Algorithm, buffer: Buffer) -> Setup {
    Setup { write_cache: (buffer == Buffer::Off).then_some(false), ..paper_setup(when, algorithm) }
}

fn all(inputs: &[Arc<Input>], buffer: Buffer) -> Vec<Cell> {
    let of = |&when: &When| Algorithm::ALL.map(|algorithm| setup(when, algorithm, buffer));
    all_of(inputs, &EACH_AND_FULL.iter().flat_map(of).collect::<Vec<_>>())
}

pub(super) fn cells(inputs: &[Arc<Input>], _: Effort) -> Vec<Cell> {
    all(inputs, Buffer::On)
}

pub(super) fn unbuffered(inputs: &[Arc<Input>], _: Effort) -> Vec<Cell> {
    all(inputs, Buffer::Off)
}

/// Of one input.
struct Times<'a> {
    runs: &'a Runs<'a>,
    input: &'a Input,
    buffer: Buffer,
}

impl Times<'_> {
    fn of(&self, when: When, algorithm: Algorithm) -> FlushFigures {
        let setup = setup(when, algorithm, self.buffer);
        self.runs.of(self.input, &setup).map_or_else(FlushFigures::default, |outcome| outcome.flushes)
    }

    /// By how many percent `full` is below `each`.
    fn cut(&self, algorithm: Algorithm) -> f64 {
        less(self.of(When::Each, algorithm).time_s, self.of(When::Full, algorithm).time_s)
    }
}

fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

pub(super) fn judge(runs: &Runs<'_>) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut most = 0.0_f64;
    for input in runs.inputs() {
        let times = Times { runs, input, buffer: Buffer::On };
        claims.extend(judge_one(&times));
        for when in EACH_AND_FULL {
            let of = |algorithm| times.of(when, algorithm).time_s;
            most = most.max(less(of(Algorithm::Alg1), of(Algorithm::Alg4)));
        }
    }
    let text = "ordering and merging (alg4 against alg1) cut the flush time by as much as, best of all";
    claims.push(Claim::new("5", text, "%", 90.0, most, AS_MUCH_AS));
    claims
}

fn judge_one(times: &Times<'_>) -> Vec<Claim> {
    let claim = |text: &str, unit: &str, published, measured, expect| {
        Claim::new("5", format!("{}: {text}", times.input.name), unit, published, measured, expect)
    };
    let cut = |algorithm: Algorithm| {
        let text = format!("{algorithm}: full instead of each cuts the flush time by more than");
        claim(&text, "%", 75.0, times.cut(algorithm), Expect::AtLeast)
    };
    let mut claims: Vec<Claim> = PAPERS.map(cut).into();
    let faster = least(PAPERS.map(|algorithm| times.cut(algorithm)));
    claims.push(claim("full is faster than each, least over the algorithms", "%", SOME, faster, Expect::AtLeast));
    let disks = EACH_AND_FULL.iter().flat_map(|&when| PAPERS.map(|algorithm| times.of(when, algorithm)));
    let dominates = least(disks.map(|of| share(of.disk_s, of.disk_s + of.flash_s)));
    claims.push(claim("the disk's share of both media's time, least over all", "%", 50.0, dominates, Expect::AtLeast));
    let [one, two] = [Algorithm::Alg1, Algorithm::Alg2].map(|algorithm| times.of(When::Each, algorithm));
    let more = |of: fn(&FlushFigures) -> f64| -less(of(&one), of(&two));
    let each = "each: alg2 against alg1";
    claims.push(claim(&format!("{each}, total: no better"), "%", 0.0, more(|of| of.time_s), Expect::AtLeast));
    claims.push(claim(&format!("{each}, disk: more"), "%", SOME, more(|of| of.disk_s), Expect::AtLeast));
    claims.push(claim(&format!("{each}, flash: less"), "%", -SOME, more(|of| of.flash_s), Expect::AtMost));
    claims
}

pub(super) fn show(runs: &Runs<'_>) -> Vec<Table> {
    show_with(runs, Buffer::On)
}

pub(super) fn show_unbuffered(runs: &Runs<'_>) -> Vec<Table> {
    show_with(runs, Buffer::Off)
}

fn show_with(runs: &Runs<'_>, buffer: Buffer) -> Vec<Table> {
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
    let table = |input: &Input| {
        let times = Times { runs, input, buffer };
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
