//! `adaptive`: many fixed timeouts are rated by what each would have cost, and the disk follows their weighted mean.
//!
//! Source: Helmbold, Long and Sherrod, "A dynamic disk spin-down technique for mobile computing", MobiCom 1996; with
//! Sconyers in Mobile Networks and Applications 5, 2000. This is their share algorithm, which the NVCache paper used:
//!
//! 1. `n` experts stand for timeouts spread evenly from nothing to the spin-down cost, weighted alike.
//! 2. The timeout is the weighted mean of theirs.
//! 3. After each period of idleness an expert's loss is what its timeout would have cost beyond the optimum, as a share
//!    of the spin-down cost: 0 to 1. Its weight shrinks by `exp(-eta * loss)`.
//! 4. It gives the part `1 - (1 - alpha)^loss` of its remaining weight to a pool that all share evenly. So an expert
//!    that was wrong for long comes back within a few periods once it is right.
//!
//! The papers' abstracts, and that the cost is measured in time of idling, were confirmed; the full texts were not at
//! hand. From memory: experts evenly spread, 25 of them, eta 4, alpha 0.08, and the pool of step 4 (the variable share
//! update of Herbster and Warmuth). Ours: weights add up to 1, and none is below a billionth, so no number of periods
//! makes one vanish.

use umbrella_units::Nanos;

use super::costs::Costs;
use super::{SpinDownInfo, Timeout};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SpinDownInfo = SpinDownInfo {
    name: "adaptive",
    summary: "the mean of many timeouts, weighted by what each would have saved lately",
    source: "Helmbold, Long and Sherrod, MobiCom 1996 (the NVCache paper's choice)",
    params: &[
        ParamInfo {
            name: "experts",
            kind: ParamKind::Number,
            default: "25",
            min: "2",
            max: "1000",
            help: "timeouts that are compared",
        },
        ParamInfo {
            name: "eta",
            kind: ParamKind::Decimal,
            default: "4",
            min: "0.001",
            max: "100",
            help: "how fast a wrong timeout loses weight",
        },
        ParamInfo {
            name: "alpha",
            kind: ParamKind::Decimal,
            default: "0.08",
            min: "0",
            max: "0.999",
            help: "share of its weight that a wrong timeout gives to all",
        },
    ],
    offline: false,
    build: |values, costs| {
        Box::new(Adaptive::new(values.number("experts"), values.decimal("eta"), values.decimal("alpha"), costs))
    },
};

/// No weight is less.
const LEAST_WEIGHT: f64 = 1e-9;

struct Expert {
    timeout: Nanos,
    weight: f64,
}

pub(super) struct Adaptive {
    costs: Costs,
    eta: f64,
    /// The logarithm of `1 - alpha`.
    keep: f64,
    experts: Vec<Expert>,
}

impl Adaptive {
    pub(super) fn new(experts: u64, eta: f64, alpha: f64, costs: Costs) -> Adaptive {
        let count = experts.max(2);
        let weight = 1.0 / count as f64;
        let experts = (0..count).map(|_| Expert { timeout: Nanos(0), weight }).collect();
        let mut adaptive = Adaptive { costs, eta, keep: libm::log(1.0 - alpha), experts };
        adaptive.spread(costs);
        adaptive
    }

    /// Spreads the timeouts evenly from nothing to the spin-down cost.
    fn spread(&mut self, costs: Costs) {
        let steps = self.experts.len() as u128 - 1;
        for (step, expert) in (0..).zip(&mut self.experts) {
            expert.timeout = Nanos((u128::from(costs.break_even.0) * step / steps) as u64);
        }
        self.costs = costs;
    }

    /// The weights, of the shortest timeout first.
    #[cfg(test)]
    pub(super) fn weights(&self) -> Vec<f64> {
        self.experts.iter().map(|expert| expert.weight).collect()
    }

    fn loss(&self, timeout: Nanos, idle: Nanos) -> f64 {
        if self.costs.break_even == Nanos(0) {
            return 0.0;
        }
        let excess = self.costs.of(Some(timeout), idle) - self.costs.least(idle);
        excess.0 as f64 / self.costs.break_even.0 as f64
    }
}

impl Timeout for Adaptive {
    fn timeout(&self, _foreseen: Option<Nanos>) -> Option<Nanos> {
        let mean: f64 = self.experts.iter().map(|expert| expert.weight * expert.timeout.0 as f64).sum();
        Some(Nanos(mean as u64))
    }

    fn learn(&mut self, _timeout: Option<Nanos>, idle: Nanos) {
        let mut pool = 0.0;
        for index in 0..self.experts.len() {
            let loss = self.loss(self.experts[index].timeout, idle);
            let left = self.experts[index].weight * libm::exp(-self.eta * loss);
            let kept = left * libm::exp(self.keep * loss);
            pool += left - kept;
            self.experts[index].weight = kept;
        }
        let share = pool / self.experts.len() as f64;
        let total: f64 = self.experts.iter().map(|expert| expert.weight + share).sum();
        for expert in &mut self.experts {
            expert.weight = ((expert.weight + share) / total).max(LEAST_WEIGHT);
        }
    }

    /// Each expert stands for the same share of the spin-down cost as before.
    fn set_costs(&mut self, costs: Costs) {
        self.spread(costs);
    }
}
