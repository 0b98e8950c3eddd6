//! `rent_to_buy`: the timeout that would have been the cheapest for the last periods of idleness.
//!
//! Idling is renting, sleeping is buying. If the periods are drawn from one distribution, the timeout with the least
//! mean cost over those seen is soon nearly the best there is. Source: Krishnan, Long and Vitter, "Adaptive disk
//! spindown via optimal rent-to-buy in probabilistic environments", Algorithmica 23, 1999: candidates are rated on past
//! periods and the cheapest is taken. The abstract and that outline were confirmed, the full text was not at hand. Ours
//! are:
//!
//! - only the last `window` periods count, so that habits may change;
//! - candidates are the lengths of those periods, up to twice the break-even time; of equals the longest, which spins
//!   the disk down least often;
//! - pauses shorter than a hundredth of the break-even time belong to one burst of work: they are not counted, and
//!   always waited for;
//! - **a guarantee**: it waits for the break-even time as long as it knows few periods, and whenever it has spent
//!   `credit` spin-downs more than twice the optimum. That wait never costs more than twice the optimum. So however
//!   badly the past predicts the future, all periods together cost at most twice the optimum and `credit` spin-downs.

use std::collections::VecDeque;

use umbrella_units::Nanos;

use super::costs::Costs;
use super::{SpinDownInfo, Timeout};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SpinDownInfo = SpinDownInfo {
    name: "rent_to_buy",
    summary: "the timeout that was cheapest for the last idle periods; never costs more than twice the optimum for \
        long",
    source: "Krishnan, Long and Vitter, Algorithmica 23, 1999",
    params: &[
        ParamInfo {
            name: "window",
            kind: ParamKind::Number,
            default: "100",
            min: "10",
            max: "10000",
            help: "periods of idleness that are remembered",
        },
        ParamInfo {
            name: "credit",
            kind: ParamKind::Number,
            default: "8",
            min: "1",
            max: "1000",
            help: "spin-downs by which it may exceed twice the optimum",
        },
    ],
    offline: false,
    build: |values, costs| Box::new(RentToBuy::new(values.number("window"), values.number("credit"), costs)),
};

/// Periods that have to be known before the past is followed.
const LEAST_PERIODS: usize = 10;

struct RentToBuy {
    costs: Costs,
    window: usize,
    /// The least timeout, and the shortest period that counts.
    shortest: Nanos,
    /// The last periods in their order, and by length.
    recent: VecDeque<Nanos>,
    sorted: Vec<Nanos>,
    /// The cheapest timeout for them.
    cheapest: Nanos,
    /// What may still be lost against twice the optimum.
    credit: Nanos,
    most_credit: Nanos,
}

impl RentToBuy {
    fn new(window: u64, credit: u64, costs: Costs) -> RentToBuy {
        let window = usize::try_from(window).unwrap_or(usize::MAX);
        let credit = Nanos(costs.break_even.0.saturating_mul(credit));
        RentToBuy {
            costs,
            window,
            shortest: Nanos(costs.break_even.0 / 100),
            recent: VecDeque::new(),
            sorted: Vec::new(),
            cheapest: costs.break_even,
            credit,
            most_credit: credit,
        }
    }

    fn remember(&mut self, idle: Nanos) {
        if self.recent.len() >= self.window
            && let Some(oldest) = self.recent.pop_front()
        {
            let at = self.sorted.partition_point(|&other| other < oldest);
            self.sorted.remove(at);
        }
        self.recent.push_back(idle);
        let at = self.sorted.partition_point(|&other| other < idle);
        self.sorted.insert(at, idle);
        self.cheapest = self.find_cheapest();
    }

    /// Cost: O(window).
    fn find_cheapest(&self) -> Nanos {
        let break_even = u128::from(self.costs.break_even.0);
        let cost = |timeout: Nanos, waited_out: u128, left: usize| {
            waited_out + left as u128 * (u128::from(timeout.0) + break_even)
        };
        let mut best = (cost(self.shortest, 0, self.sorted.len()), self.shortest);
        let longest = self.costs.break_even + self.costs.break_even;
        let mut waited_out = 0;
        for (index, &timeout) in self.sorted.iter().enumerate().take_while(|&(_, &timeout)| timeout <= longest) {
            waited_out += u128::from(timeout.0);
            let here = cost(timeout, waited_out, self.sorted.len() - index - 1);
            if here <= best.0 {
                best = (here, timeout);
            }
        }
        best.1
    }
}

impl Timeout for RentToBuy {
    fn timeout(&self, _foreseen: Option<Nanos>) -> Option<Nanos> {
        // No timeout up to twice the break-even time loses more than one spin-down in one period.
        let trusted = self.recent.len() >= LEAST_PERIODS && self.credit >= self.costs.break_even;
        Some(if trusted { self.cheapest } else { self.costs.break_even })
    }

    fn learn(&mut self, timeout: Option<Nanos>, idle: Nanos) {
        let least = self.costs.least(idle);
        self.credit = (self.credit + least + least - self.costs.of(timeout, idle)).min(self.most_credit);
        if idle >= self.shortest {
            self.remember(idle);
        }
    }

    /// The periods are rated anew; of the credit it has the same share as before.
    fn set_costs(&mut self, costs: Costs) {
        let scaled = |credit: Nanos| {
            let scaled =
                u128::from(credit.0) * u128::from(costs.break_even.0) / u128::from(self.costs.break_even.0.max(1));
            Nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
        };
        (self.credit, self.most_credit) = (scaled(self.credit), scaled(self.most_credit));
        (self.costs, self.shortest) = (costs, Nanos(costs.break_even.0 / 100));
        self.cheapest = if self.sorted.is_empty() { costs.break_even } else { self.find_cheapest() };
    }
}
