//! When a disk may sleep: how long to wait, once nothing is left to do, before its motor is switched off.
//!
//! Sleeping saves power and costs a spin-up. It pays when the disk is left alone for longer than the break-even time
//! ([`Costs`]). That is not known when a period of idleness begins. So a policy chooses a timeout, and learns from how
//! long the period then was. A [`SpinDown`] measures the periods and asks the policy; the same object decides live and
//! in the lab.

mod adaptive;
mod costs;
mod fixed;
mod never;
mod optimum;
mod registry;
mod rent_to_buy;

#[cfg(test)]
mod tests;

use std::fmt;

use umbrella_units::Nanos;

use crate::error::PolicyError;
use crate::param_info::ParamInfo;
use crate::params::{ParamValues, Params, Spec};

pub use costs::Costs;
pub use registry::{find_spin_down, spin_downs};

/// Chooses timeouts.
pub trait Timeout: Send {
    /// How long to wait before sleeping, in a period of idleness that begins now; `None`: do not sleep. `foreseen` is
    /// how long it will be, which only the lab can tell.
    fn timeout(&self, foreseen: Option<Nanos>) -> Option<Nanos>;

    /// Learns from a period of idleness that has ended: the timeout that it had, and how long it was.
    fn learn(&mut self, _timeout: Option<Nanos>, _idle: Nanos) {}

    /// Sets the cost of sleeping. What was learned stays.
    fn set_costs(&mut self, _costs: Costs) {}
}

/// What there is to know of a spin-down policy.
#[derive(Debug, Clone, Copy)]
pub struct SpinDownInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper that it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
    /// Whether it has to know the future, which only the lab can.
    pub offline: bool,
    /// Makes one.
    pub build: fn(&ParamValues, Costs) -> Box<dyn Timeout>,
}

/// A period of idleness that is not over.
#[derive(Debug, Clone, Copy)]
struct Idle {
    since: Nanos,
    timeout: Option<Nanos>,
    /// The latest time that was reported in it.
    latest: Nanos,
    /// Whether the clock went back in it, so that its length is unknown.
    broken: bool,
}

/// A policy with the period that it decides on.
///
/// A clock that goes back begins the period anew, and nothing is learned from it; one that leaps ahead makes a long
/// period.
pub struct SpinDown {
    info: &'static SpinDownInfo,
    policy: Box<dyn Timeout>,
    idle: Option<Idle>,
    next: Option<Nanos>,
}

impl fmt::Debug for SpinDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinDown").field("policy", &self.info.name).field("idle", &self.idle).finish_non_exhaustive()
    }
}

impl SpinDown {
    /// The policy of this name with these parameters, for a disk with these costs, which is busy.
    pub fn new(name: &str, params: &Params, costs: Costs) -> Result<SpinDown, PolicyError> {
        let info = find_spin_down(name)?;
        let policy = (info.build)(&params.check(info.name, info.params)?, costs);
        Ok(SpinDown { info, policy, idle: None, next: None })
    }

    /// The policy that a text like `fixed:timeout=10m` names.
    pub fn parse(text: &str, costs: Costs) -> Result<SpinDown, PolicyError> {
        let spec: Spec = text.parse()?;
        SpinDown::new(&spec.name, &spec.params, costs)
    }

    /// The disk itself is needed at `now`, asleep or not. Ends the period of idleness, if one is under way.
    pub fn accessed(&mut self, now: Nanos) {
        self.next = None;
        let Some(idle) = self.idle.take() else { return };
        if !idle.broken && now >= idle.latest {
            self.policy.learn(idle.timeout, now - idle.since);
        }
    }

    /// The disk has nothing to do at `now`. Returns when it may sleep if it is not accessed before; `None`: it stays
    /// awake. The first call after an access begins the period; to call again changes nothing unless the clock went
    /// back.
    pub fn idle(&mut self, now: Nanos) -> Option<Nanos> {
        let (policy, next) = (&self.policy, self.next);
        let begin = |broken| {
            let timeout = policy.timeout(next.map(|next| next.since(now)));
            Idle { since: now, timeout, latest: now, broken }
        };
        let idle = self.idle.get_or_insert_with(|| begin(false));
        if now < idle.latest {
            *idle = begin(true);
        }
        idle.latest = now;
        let (since, timeout) = (idle.since, idle.timeout?);
        Some(since + timeout).filter(|&at| at != Nanos::NEVER)
    }

    /// Sleeping costs this, as was found out meanwhile: for periods that begin from now on.
    pub fn set_costs(&mut self, costs: Costs) {
        self.policy.set_costs(costs);
    }

    /// The disk will next be accessed at `next`; call it before the period begins.
    pub fn set_next_access(&mut self, next: Nanos) {
        self.next = Some(next);
    }

    /// The policy's name.
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// The policy's entry in the registry.
    pub fn info(&self) -> &'static SpinDownInfo {
        self.info
    }
}
