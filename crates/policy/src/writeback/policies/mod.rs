//! The policies, one file each.

pub(super) mod clairvoyant;
pub(super) mod cscan;
pub(super) mod file;
pub(super) mod lrw;
pub(super) mod recency;
mod resume;
pub(super) mod segment;
pub(super) mod sorted;
pub(super) mod stow;
pub(super) mod sweep;
pub(super) mod two_queue;
pub(super) mod two_queue_sorted;
pub(super) mod wasl_segment;
pub(super) mod wasl_segment_zone;
pub(super) mod wasl_zone;
pub(super) mod wow;
pub(super) mod write_minimal;
pub(super) mod zone;
pub(super) mod zone_segment;

use crate::param_info::{ParamInfo, ParamKind};

/// The size of a zone.
const fn zone_param(default: &'static str) -> ParamInfo {
    ParamInfo { name: "zone", kind: ParamKind::Bytes, default, min: "4KiB", max: "64GiB", help: "size of a zone" }
}

/// The size of a write group.
const fn group_param() -> ParamInfo {
    ParamInfo {
        name: "group",
        kind: ParamKind::Bytes,
        default: "1MiB",
        min: "4KiB",
        max: "64GiB",
        help: "size of a write group",
    }
}
