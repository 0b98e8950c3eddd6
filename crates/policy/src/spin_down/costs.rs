use umbrella_units::Nanos;

/// What sleeping costs. All costs are in time of idling: the energy that the disk takes beyond what it takes asleep,
/// divided by the power that it saves by sleeping. So idling for a second costs a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// What going to sleep and waking up costs once; a period of idleness that is longer pays for sleeping through it.
    pub break_even: Nanos,
}

impl Costs {
    /// What a period of `idle` costs with this timeout: idling until the timeout, and then a spin-down.
    pub fn of(self, timeout: Option<Nanos>, idle: Nanos) -> Nanos {
        match timeout {
            Some(timeout) if timeout < idle => timeout + self.break_even,
            _ => idle,
        }
    }

    /// What it costs at least.
    pub fn least(self, idle: Nanos) -> Nanos {
        idle.min(self.break_even)
    }
}
