//! MRAM: the master's thesis on a buffer cache of non-volatile memory, with Temporary-ramfs (staging of new files) and the
//! WASL write-back algorithms. Chapter 4: figures 4.1 to 4.12.
//!
//! - `setting.rs`: the machine, what is compared, and what performance is.
//! - `overhead.rs`: figure 4.1; `single.rs`: 4.2 and 4.3; `postmark.rs`: 4.4 to 4.8; `sizes.rs`: 4.9 to 4.12.
//!
//! Most figures are pictures without numbers; what is held against the runs is what the text says of them. The tolerances
//! were fixed after trial runs of single workloads and before a figure was judged: `setting::LARGE`, `setting::SMALL` and `setting::SAME`.
//! docs/reproductions/mram.md has the outcome and says why what fails does.

mod overhead;
mod postmark;
mod setting;
mod single;
mod sizes;
#[cfg(test)]
mod tests;

use self::setting::ASSUMED;
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
        judge: overhead::judge,
    },
    Figure {
        id: "4.2",
        title: "Bonnie++ with a file of 1 GB",
        assumed: ASSUMED,
        cells: single::bonnie,
        judge: single::judge_bonnie,
    },
    Figure {
        id: "4.3",
        title: "a built kernel tree is unpacked",
        assumed: ASSUMED,
        cells: single::untar,
        judge: single::judge_untar,
    },
    Figure {
        id: "4.4",
        title: "PostMark with more and more files: staging and WASL",
        assumed: ASSUMED,
        cells: postmark::small,
        judge: postmark::judge_small,
    },
    Figure {
        id: "4.5",
        title: "files that are deleted while they are staged",
        assumed: ASSUMED,
        cells: postmark::small,
        judge: postmark::judge_deleted,
    },
    Figure {
        id: "4.6",
        title: "blocks between a file's first and last block",
        assumed: postmark::DISTANCE,
        cells: postmark::small,
        judge: postmark::judge_distance,
    },
    Figure {
        id: "4.7",
        title: "PostMark with more and more files: both together",
        assumed: ASSUMED,
        cells: postmark::small,
        judge: postmark::judge_hybrid,
    },
    Figure {
        id: "4.8",
        title: "PostMark with large files",
        assumed: postmark::LARGE_ASSUMED,
        cells: postmark::large,
        judge: postmark::judge_large,
    },
    Figure {
        id: "4.9",
        title: "staging with more and less memory",
        assumed: ASSUMED,
        cells: sizes::staging,
        judge: sizes::judge_staging,
    },
    Figure {
        id: "4.10",
        title: "WASL with more and less memory",
        assumed: ASSUMED,
        cells: sizes::wasl,
        judge: sizes::judge_wasl,
    },
    Figure {
        id: "4.11",
        title: "files that are deleted while they are staged, with 1 GB",
        assumed: ASSUMED,
        cells: sizes::deleted,
        judge: sizes::judge_deleted,
    },
    Figure {
        id: "4.12",
        title: "zone sizes",
        assumed: sizes::ZONES_ASSUMED,
        cells: sizes::zones,
        judge: sizes::judge_zones,
    },
];
