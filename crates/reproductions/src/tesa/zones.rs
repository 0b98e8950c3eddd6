//! Figures 4 to 7: the size of a zone, the threshold alpha, and the two schemes (sections IV-C and IV-D).
//!
//! The text says of the curves that 8 MB and 50 are good under all workloads. So for each workload what they lose to
//! the best value of the same figure is taken, and the largest loss is the claim's measure.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::{MachineSpec, WriteBackCell};

use super::setting::{WORKLOADS, Work, farthest, in_halves, in_readings, most, on_all, rows, zone, zone_segment};
use crate::statistics::mean;
use crate::{Effort, Measured, WriteBackCells};

/// The text names 2 and 8 MB only.
pub(super) const SIZES_ASSUMED: &str = "Zones are 2, 4, 8, 16, 32 and 64 MiB. The text names 2 and 8 MB.";

const SIZES: &[u32] = &[2, 4, 8, 16, 32, 64];
/// Of 8 MB in [`SIZES`].
const EIGHT: usize = 2;

const ALPHAS: &[u32] = &[0, 10, 25, 50, 100, 200];
/// Of 50 in [`ALPHAS`].
const FIFTY: usize = 3;
/// So large that no zone's segments are ever as long.
const ENDLESS: u32 = 1_000_000;

pub(super) fn zone_sizes(effort: Effort) -> WriteBackCells {
    on_all(&SIZES.iter().map(|size| zone(*size)).collect::<Vec<_>>(), effort)
}

pub(super) fn zone_segment_sizes(effort: Effort) -> WriteBackCells {
    on_all(&SIZES.iter().map(|size| zone_segment(50, *size)).collect::<Vec<_>>(), effort)
}

/// Of figures 4 and 5.
pub(super) fn sizes(outcomes: &[Outcome]) -> [(&'static str, f64); 2] {
    let rows: Vec<_> = rows(WORKLOADS.iter().copied(), outcomes, SIZES.len()).collect();
    let over_two = mean(rows.iter().map(|(work, of)| work.gain(&of[EIGHT], &of[0])));
    let good = farthest(rows.iter().map(|(work, of)| lost(*work, of, EIGHT)));
    [("good", good), ("over-2", over_two)]
}

/// What the chosen value loses to the best one; zero or less.
fn lost(work: Work, outcomes: &[Outcome], chosen: usize) -> f64 {
    outcomes.iter().map(|other| work.gain(&outcomes[chosen], other)).fold(0.0, f64::min)
}

pub(super) fn alphas(effort: Effort) -> WriteBackCells {
    let mut policies: Vec<String> = ALPHAS.iter().map(|alpha| zone_segment(*alpha, 8)).collect();
    policies.push(zone_segment(ENDLESS, 8));
    policies.push(zone(8));
    on_all(&policies, effort)
}

pub(super) fn of_alphas(outcomes: &[Outcome]) -> [(&'static str, f64); 3] {
    let rows: Vec<_> = rows(WORKLOADS.iter().copied(), outcomes, ALPHAS.len() + 2).collect();
    let (endless, zone) = (ALPHAS.len(), ALPHAS.len() + 1);
    let good = farthest(rows.iter().map(|(work, of)| lost(*work, &of[..endless], FIFTY)));
    let over_zero = mean(rows.iter().map(|(work, of)| work.gain(&of[FIFTY], &of[0])));
    let retrograde = farthest(rows.iter().map(|(work, of)| work.gain(&of[endless], &of[zone])));
    [("good", good), ("over-0", over_zero), ("endless", retrograde)]
}

/// The two schemes of figure 7.
fn both_schemes() -> [String; 2] {
    [zone(8), zone_segment(50, 8)]
}

/// More file systems on which the two schemes are compared, besides a new one on the whole disk. Each has a part of the
/// disk, and the share that old files take, in percent. They were chosen before the first run of any of them.
const LAYOUTS: [(&str, u32); 6] = [
    ("60GB@start", 0),
    ("60GB@middle", 0),
    ("60GB@end", 0),
    ("60GB@start", 30),
    ("60GB@start", 60),
    ("60GB@start", 90),
];

/// Said beside figure 7.
pub(super) const LAYOUTS_ASSUMED: &str = "As in figure 8. At full size the new inputs are other layouts: a partition of 60 GB at the start, in the middle and at the end of the \
     disk, and the first with old files that take 30, 60 and 90 % of it.";

fn layout_name((partition, aged): (&str, u32)) -> String {
    if aged > 0 { format!("{partition}, {aged} % old files") } else { partition.to_owned() }
}

/// The two readings on the whole disk, then at full size the primary one on each layout.
pub(super) fn schemes(effort: Effort) -> WriteBackCells {
    let mut cells = on_all(&both_schemes(), effort)?;
    if effort == Effort::Quick {
        return Ok(cells);
    }
    let [primary, _] = in_halves(&cells).map(<[WriteBackCell]>::to_vec);
    for (partition, aged_percent) in LAYOUTS {
        let expected = || "60GB@start".to_owned();
        let bad =
            |_| LabError::BadValue { name: "partition".to_owned(), value: partition.to_owned(), expected: expected() };
        let partition = Some(partition.parse().map_err(bad)?);
        cells.extend(
            primary
                .iter()
                .cloned()
                .map(|cell| WriteBackCell { machine: MachineSpec { partition, aged_percent, ..cell.machine }, ..cell }),
        );
    }
    Ok(cells)
}

pub(super) fn measure_schemes(outcomes: &[Outcome]) -> Vec<Measured> {
    let each = both_schemes().len() * WORKLOADS.len();
    let (whole_disk, layouts) = outcomes.split_at((2 * each).min(outcomes.len()));
    let on_layouts = LAYOUTS.into_iter().zip(layouts.chunks_exact(each)).flat_map(|(layout, outcomes)| {
        of_schemes(outcomes).map(|(name, value)| Measured::new(name, value).on(&layout_name(layout)))
    });
    in_readings(whole_disk, of_schemes).into_iter().chain(on_layouts).collect()
}

fn of_schemes(outcomes: &[Outcome]) -> [(&'static str, f64); 2] {
    let gains = || rows(WORKLOADS.iter().copied(), outcomes, 2).map(|(work, of)| work.gain(&of[1], &of[0]));
    [("up-to", most(gains())), ("no-worse", mean(gains()))]
}
