//! The policies, one file each.

pub(super) mod cscan;
pub(super) mod file;
pub(super) mod recency;
pub(super) mod zone;
pub(super) mod zone_segment;

use super::params::{ParamInfo, ParamKind};

/// The size of a zone.
const fn zone_param(default: &'static str) -> ParamInfo {
    ParamInfo { name: "zone", kind: ParamKind::Bytes, default, min: "4KiB", max: "64GiB", help: "size of a zone" }
}
