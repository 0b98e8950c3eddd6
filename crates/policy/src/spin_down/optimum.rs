//! `optimum`: told when the next access comes, it sleeps at once exactly if that pays. What any other policy saves is
//! judged by it.

use umbrella_units::Nanos;

use super::costs::Costs;
use super::{SpinDownInfo, Timeout};

pub(super) const INFO: SpinDownInfo = SpinDownInfo {
    name: "optimum",
    summary: "sleeps at once before an idle period longer than the break-even time, else not at all",
    source: "",
    params: &[],
    offline: true,
    build: |_, costs| Box::new(Optimum { costs }),
};

struct Optimum {
    costs: Costs,
}

impl Timeout for Optimum {
    fn timeout(&self, foreseen: Option<Nanos>) -> Option<Nanos> {
        (foreseen? > self.costs.break_even).then_some(Nanos(0))
    }

    fn set_costs(&mut self, costs: Costs) {
        self.costs = costs;
    }
}
