//! MRAM: the master's thesis on a buffer cache of non-volatile memory, with Temporary-ramfs (staging of new files) and
//! the WASL write-back algorithms. Chapter 4: figures 4.1 to 4.12.
//!
//! - `setting.rs`: the machine, the compared methods, and the measure of performance.
//! - `overhead.rs`: figure 4.1; `single.rs`: 4.2 and 4.3; `postmark.rs`: 4.4 to 4.8; `sizes.rs`: 4.9 to 4.12.
//!
//! Most figures are pictures without numbers. So the runs are compared with the text about them: the claims of the
//! frozen list. docs/reproductions/mram.md has the outcome and explains failures.

mod overhead;
mod postmark;
mod setting;
mod single;
mod sizes;
#[cfg(test)]
mod tests;

use self::setting::{ASSUMED, Method, all_methods};
use super::{Figure, Paper};

/// The paper.
pub static PAPER: Paper =
    Paper { name: "mram", title: "MRAM-based buffer cache: Temporary-ramfs and WASL", figures: FIGURES };

const FIGURES: &[Figure] = &[
    Figure {
        id: "4.1",
        title: "what staging costs when files are only created",
        assumed: overhead::ASSUMED,
        cells: overhead::cells,
        measure: overhead::measure,
    },
    Figure {
        id: "4.2",
        title: "Bonnie++ with a file of 1 GB",
        assumed: ASSUMED,
        cells: |effort| Ok(all_methods("bonnie", effort)),
        measure: single::measure_bonnie,
    },
    Figure {
        id: "4.3",
        title: "a built kernel tree is unpacked",
        assumed: ASSUMED,
        cells: |effort| Ok(all_methods("untar", effort)),
        measure: single::measure_untar,
    },
    Figure {
        id: "4.4",
        title: "PostMark with more and more files: staging and WASL",
        assumed: ASSUMED,
        cells: postmark::small,
        measure: postmark::measure_small,
    },
    Figure {
        id: "4.5",
        title: "files that are deleted while they are staged",
        assumed: ASSUMED,
        cells: postmark::small,
        measure: postmark::measure_deleted,
    },
    Figure {
        id: "4.6",
        title: "blocks between a file's first and last block",
        assumed: postmark::DISTANCE,
        cells: postmark::small,
        measure: postmark::measure_distance,
    },
    Figure {
        id: "4.7",
        title: "PostMark with more and more files: both together",
        assumed: ASSUMED,
        cells: postmark::small,
        measure: postmark::measure_hybrid,
    },
    Figure {
        id: "4.8",
        title: "PostMark with large files",
        assumed: postmark::LARGE_ASSUMED,
        cells: postmark::large,
        measure: postmark::measure_large,
    },
    Figure {
        id: "4.9",
        title: "staging with more and less memory",
        assumed: ASSUMED,
        cells: |effort| sizes::against(Method::Staging, effort),
        measure: sizes::measure_staging,
    },
    Figure {
        id: "4.10",
        title: "WASL with more and less memory",
        assumed: ASSUMED,
        cells: |effort| sizes::against(Method::Wasl, effort),
        measure: sizes::measure_wasl,
    },
    Figure {
        id: "4.11",
        title: "files that are deleted while they are staged, with 1 GB",
        assumed: ASSUMED,
        cells: sizes::deleted,
        measure: sizes::measure_deleted,
    },
    Figure {
        id: "4.12",
        title: "zone sizes",
        assumed: sizes::ZONES_ASSUMED,
        cells: sizes::zones,
        measure: sizes::measure_zones,
    },
];
