//! `never`: the disk stays awake.

use umbrella_units::Nanos;

use super::{SpinDownInfo, Timeout};

pub(super) const INFO: SpinDownInfo = SpinDownInfo {
    name: "never",
    summary: "the disk stays awake",
    source: "",
    params: &[],
    offline: false,
    build: |_, _| Box::new(Never),
};

struct Never;

impl Timeout for Never {
    fn timeout(&self, _foreseen: Option<Nanos>) -> Option<Nanos> {
        None
    }
}
