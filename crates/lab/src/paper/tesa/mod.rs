//! TESA: Huang and Chang, "TESA: a Temporal and Spatial Information Aware Writeback Policy for Home Network-Attached
//! Storage Devices".

use super::Paper;

/// The paper.
pub static PAPER: Paper = Paper {
    name: "tesa",
    title: "TESA: a Temporal and Spatial Information Aware Writeback Policy for Home Network-Attached Storage Devices",
    figures: &[],
};
