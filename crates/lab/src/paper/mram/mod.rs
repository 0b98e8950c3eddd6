//! MRAM: Temporary-ramfs and WASL for a non-volatile buffer cache.

use super::Paper;

/// The paper.
pub static PAPER: Paper =
    Paper { name: "mram", title: "MRAM-based buffer cache: Temporary-ramfs and WASL", figures: &[] };
