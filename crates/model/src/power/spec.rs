//! What a device takes from its supply.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul};

use umbrella_units::Nanos;

/// Thousandths of a watt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliwatts(pub u32);

impl Milliwatts {
    /// What it is over that time.
    pub fn over(self, time: Nanos) -> Energy {
        Energy(u128::from(self.0) * u128::from(time.0))
    }
}

impl Mul<u32> for Milliwatts {
    type Output = Milliwatts;

    /// `times` times this power; never wraps.
    fn mul(self, times: u32) -> Milliwatts {
        Milliwatts(self.0.saturating_mul(times))
    }
}

/// An amount of energy in picojoules: a milliwatt for a nanosecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Energy(pub u128);

impl Energy {
    /// In joules.
    pub fn joules(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl Add for Energy {
    type Output = Energy;

    /// Never wraps.
    fn add(self, other: Energy) -> Energy {
        Energy(self.0.saturating_add(other.0))
    }
}

impl Sum for Energy {
    fn sum<I: Iterator<Item = Energy>>(energies: I) -> Energy {
        energies.fold(Energy::default(), Add::add)
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} J", self.joules())
    }
}

/// What a device does, as far as its supply notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    /// It serves something, or writes out what it has buffered.
    Active,
    /// It could.
    Idle,
    /// Its platters are coming to rest.
    SpinningDown,
    /// They stand still.
    Standby,
    /// They are coming to speed.
    SpinningUp,
}

impl PowerState {
    /// All of them.
    pub const ALL: [PowerState; 5] =
        [PowerState::Active, PowerState::Idle, PowerState::SpinningDown, PowerState::Standby, PowerState::SpinningUp];
}

/// Something that takes a time, and power while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// How long it takes.
    pub time: Nanos,
    /// The mean power in that time.
    pub power: Milliwatts,
}

/// What a device takes from its supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerSpec {
    /// While it serves anything: the mean of seeking, reading and writing.
    pub active: Milliwatts,
    /// While it waits, its platters turning.
    pub idle: Milliwatts,
    /// Its motor; `None` for flash, which has none.
    pub spindle: Option<SpindleSpec>,
}

/// The power of a motor that is not on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpindleSpec {
    /// While the platters stand still.
    pub standby: Milliwatts,
    /// From switching the motor off until the platters stand still.
    pub spin_down: Phase,
    /// From switching it on until the disk can be used.
    pub spin_up: Phase,
}

impl PowerSpec {
    /// The power in that state; a device without a motor is idle instead of asleep.
    pub fn power(&self, state: PowerState) -> Milliwatts {
        match (state, &self.spindle) {
            (PowerState::Active, _) => self.active,
            (PowerState::SpinningDown, Some(spindle)) => spindle.spin_down.power,
            (PowerState::Standby, Some(spindle)) => spindle.standby,
            (PowerState::SpinningUp, Some(spindle)) => spindle.spin_up.power,
            (PowerState::Idle, _) | (_, None) => self.idle,
        }
    }

    /// How long a period of idleness has to be so that sleeping through it takes as much energy as idling; longer ones
    /// pay. `None` if none does.
    ///
    /// Going to sleep and waking up, beyond what standing still would take in the time of the spin-down, divided by the
    /// power that is saved.
    pub fn break_even(&self) -> Option<Nanos> {
        let SpindleSpec { standby, spin_down, spin_up } = self.spindle?;
        let saved = self.idle.0.checked_sub(standby.0).filter(|&saved| saved > 0)?;
        let changing = spin_down.power.over(spin_down.time) + spin_up.power.over(spin_up.time);
        let extra = changing.0.saturating_sub(standby.over(spin_down.time).0);
        let time = u64::try_from(extra / u128::from(saved)).unwrap_or(u64::MAX);
        Some(Nanos(time).max(spin_down.time))
    }

    /// The power of `count` devices that do everything together.
    #[must_use]
    pub fn times(self, count: u32) -> PowerSpec {
        let phase = |phase: Phase| Phase { power: phase.power * count, ..phase };
        let spindle = |spindle: SpindleSpec| SpindleSpec {
            standby: spindle.standby * count,
            spin_down: phase(spindle.spin_down),
            spin_up: phase(spindle.spin_up),
        };
        PowerSpec { active: self.active * count, idle: self.idle * count, spindle: self.spindle.map(spindle) }
    }
}
