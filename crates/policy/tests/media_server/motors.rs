//! The motors of the disks: each stands still when nobody has used it for twenty minutes.

const IDLE: u64 = 20 * 60;

/// One disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Motor {
    spins_until: u64,
    pub(crate) spin_ups: u64,
    pub(crate) spinning_secs: u64,
}

impl Motor {
    /// It is used from then on for `secs` seconds. Uses come in the order of their beginning.
    pub(crate) fn used(&mut self, at: u64, secs: u64) {
        let until = at + secs + IDLE;
        if at >= self.spins_until {
            self.spin_ups += 1;
            self.spinning_secs += until - at;
        } else {
            self.spinning_secs += until.saturating_sub(self.spins_until);
        }
        self.spins_until = self.spins_until.max(until);
    }
}

#[test]
fn uses_that_overlap_are_one_spin_up() {
    let mut motor = Motor::default();
    motor.used(10_000, 100);
    motor.used(10_050, 10);
    motor.used(11_000, 100);
    assert_eq!((motor.spin_ups, motor.spinning_secs), (1, 11_100 + IDLE - 10_000));
    motor.used(20_000, 0);
    assert_eq!(motor.spin_ups, 2);
}
