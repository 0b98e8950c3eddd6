//! UmbrellaFS: the dissertation's page-cache write-back (chapter IV) and optimality study.

use super::Paper;

/// The paper.
pub static PAPER: Paper =
    Paper { name: "umbrellafs", title: "UmbrellaFS, chapter IV and V: page-cache write-back", figures: &[] };
