//! `fixed`: always the same timeout, as disks and power managers have it.

use umbrella_units::Nanos;

use super::{SpinDownInfo, Timeout};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SpinDownInfo = SpinDownInfo {
    name: "fixed",
    summary: "always sleeps after the same idle time",
    source: "",
    params: &[ParamInfo {
        name: "timeout",
        kind: ParamKind::Duration,
        default: "10m",
        min: "0",
        max: "30d",
        help: "idleness before the disk sleeps",
    }],
    offline: false,
    build: |values, _| Box::new(Fixed { timeout: values.duration("timeout") }),
};

struct Fixed {
    timeout: Nanos,
}

impl Timeout for Fixed {
    fn timeout(&self, _foreseen: Option<Nanos>) -> Option<Nanos> {
        Some(self.timeout)
    }
}
