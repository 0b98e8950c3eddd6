//! TESA: Huang and Chang, "TESA: a Temporal and Spatial Information Aware Writeback Policy for Home Network-Attached
//! Storage Devices". Section IV: figures 4 to 9, table I, and the share of section IV-B.
//!
//! - `setting.rs`: the machine, the six workloads, and the paper's measure of performance.
//! - `zones.rs`: figures 4 to 7, TESA against itself; `policies.rs`: figures 8 and 9, TESA against others;
//!   `flushes.rs`: section IV-B and table I.
//!
//! The figures themselves are pictures without numbers. So the runs are compared with the text about them: the claims
//! of the frozen list. docs/reproductions/tesa.md has the outcome and explains failures.

mod flushes;
mod policies;
mod setting;
#[cfg(test)]
mod tests;
mod zones;

use self::setting::{file, grid, in_readings, on_all, tesa, writing};
use super::{Figure, Paper};

/// The paper.
pub static PAPER: Paper = Paper {
    name: "tesa",
    title: "TESA: a Temporal and Spatial Information Aware Writeback Policy for Home Network-Attached Storage Devices",
    figures: FIGURES,
};

const FIGURES: &[Figure] = &[
    Figure {
        id: "section IV-B",
        title: "why dirty pages are written (policy file)",
        assumed: "Pages that are still dirty when the workload ends do not count. The model has no journal, so \
                  no page is written for a checkpoint.",
        cells: |effort| on_all(&[file()], effort),
        measure: flushes::measure_reasons,
    },
    Figure {
        id: "4",
        title: "zone sizes, zone",
        assumed: zones::SIZES_ASSUMED,
        cells: zones::zone_sizes,
        measure: |outcomes| in_readings(outcomes, zones::sizes),
    },
    Figure {
        id: "5",
        title: "zone sizes, zone_segment",
        assumed: zones::SIZES_ASSUMED,
        cells: zones::zone_segment_sizes,
        measure: |outcomes| in_readings(outcomes, zones::sizes),
    },
    Figure {
        id: "6",
        title: "values of alpha, zone_segment",
        assumed: "Values of alpha are 0, 10, 25, 50, 100, 200 and 1000000. The text names 0 and 50.",
        cells: zones::alphas,
        measure: |outcomes| in_readings(outcomes, zones::of_alphas),
    },
    Figure {
        id: "7",
        title: "zone_segment over zone",
        assumed: zones::LAYOUTS_ASSUMED,
        cells: zones::schemes,
        measure: zones::measure_schemes,
    },
    Figure {
        id: "8",
        title: "TESA (zone_segment) over file, recency and segment",
        assumed: setting::ASSUMED,
        cells: |effort| on_all(&policies::four(), effort),
        measure: |outcomes| in_readings(outcomes, policies::performance),
    },
    Figure {
        id: "9",
        title: "what makes the difference, over the five workloads that write most",
        assumed: "Where the text gives no number, the average of the five workloads is judged. The write-out \
                  after their end does not count.",
        cells: |effort| Ok(grid(writing(), &policies::four(), effort)),
        measure: |outcomes| in_readings(outcomes, policies::factors),
    },
    Figure {
        id: "Table I",
        title: "memory of TESA's structures at most",
        assumed: "The paper counts what TESA adds to the kernel's own lists of dirty pages. We count the whole \
                  index of dirty pages: by page, file, block, segment and zone.",
        cells: |effort| on_all(&[tesa()], effort),
        measure: flushes::measure_memory,
    },
];
