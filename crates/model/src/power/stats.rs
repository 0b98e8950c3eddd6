//! How long a device was in which state.

use umbrella_units::Nanos;

use super::{Energy, PowerSpec, PowerState};

/// What a device's motor did, summed over its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PowerStats {
    /// By state, in the order of [`PowerState::ALL`].
    times: [Nanos; 5],
    /// How often the motor was switched on.
    pub spin_ups: u64,
    /// How often it was switched off.
    pub spin_downs: u64,
    /// Requests that had to wait for the motor.
    pub delayed: u64,
}

impl PowerStats {
    pub(super) fn add(&mut self, state: PowerState, time: Nanos) {
        let sum = &mut self.times[state as usize];
        *sum = *sum + time;
    }

    /// How long the device was in that state.
    pub fn time_in(&self, state: PowerState) -> Nanos {
        self.times[state as usize]
    }

    /// What it took in that state.
    pub fn energy_in(&self, state: PowerState, spec: &PowerSpec) -> Energy {
        spec.power(state).over(self.time_in(state))
    }

    /// What it took in all.
    pub fn energy(&self, spec: &PowerSpec) -> Energy {
        PowerState::ALL.into_iter().map(|state| self.energy_in(state, spec)).sum()
    }
}
