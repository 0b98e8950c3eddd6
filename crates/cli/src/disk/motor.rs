//! A motor whose spin-up is timed: when sleeping pays depends on the time that a disk takes to spin up, and on its
//! watts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use umbrella_block::BlockError;
use umbrella_block::spindle::{Power, Spindle};
use umbrella_policy::spin_down::Costs;

/// The cost of sleeping for a disk with this spin-up time.
type SleepCost = Box<dyn Fn(Duration) -> Option<Costs> + Send + Sync>;

/// See the module.
pub(crate) struct TimedMotor {
    inner: Arc<dyn Spindle>,
    took: Mutex<Option<Duration>>,
    reckoned: SleepCost,
}

impl TimedMotor {
    /// Around that motor. `reckoned` says what sleeping costs with a spin-up of some length.
    pub(crate) fn new(
        inner: Arc<dyn Spindle>,
        reckoned: impl Fn(Duration) -> Option<Costs> + Send + Sync + 'static,
    ) -> TimedMotor {
        TimedMotor { inner, took: Mutex::new(None), reckoned: Box::new(reckoned) }
    }

    /// How long it took the last time that it stood still before.
    pub(crate) fn spin_up_time(&self) -> Option<Duration> {
        *self.took.lock()
    }
}

impl Spindle for TimedMotor {
    fn standby(&self) -> Result<(), BlockError> {
        self.inner.standby()
    }

    fn wake(&self) -> Result<(), BlockError> {
        // One that turns, or was on its way, says nothing of the time that it takes.
        let stood_still = self.inner.power().is_ok_and(|power| power == Power::Standby);
        let begun = Instant::now();
        self.inner.wake()?;
        if stood_still {
            *self.took.lock() = Some(begun.elapsed());
        }
        Ok(())
    }

    fn power(&self) -> Result<Power, BlockError> {
        self.inner.power()
    }

    fn costs(&self) -> Option<Costs> {
        (self.reckoned)(self.spin_up_time()?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use umbrella_units::Nanos;

    use super::*;

    const SPIN_UP: Duration = Duration::from_millis(30);

    /// Takes its time to spin up.
    #[derive(Default)]
    struct Slow(AtomicBool);

    impl Spindle for Slow {
        fn standby(&self) -> Result<(), BlockError> {
            self.0.store(true, Ordering::SeqCst);
            Ok(())
        }

        fn wake(&self) -> Result<(), BlockError> {
            if self.0.swap(false, Ordering::SeqCst) {
                std::thread::sleep(SPIN_UP);
            }
            Ok(())
        }

        fn power(&self) -> Result<Power, BlockError> {
            Ok(if self.0.load(Ordering::SeqCst) { Power::Standby } else { Power::Spinning })
        }
    }

    #[test]
    fn only_a_motor_that_stood_still_is_timed() {
        let reckoned = |time: Duration| Some(Costs { break_even: Nanos(3 * time.as_nanos() as u64) });
        let motor = TimedMotor::new(Arc::new(Slow::default()), reckoned);
        motor.wake().unwrap();
        assert_eq!((motor.spin_up_time(), motor.costs()), (None, None));
        motor.standby().unwrap();
        motor.wake().unwrap();
        let took = motor.spin_up_time().unwrap();
        assert!(took >= SPIN_UP, "{took:?}");
        assert_eq!(motor.costs(), reckoned(took));
        motor.wake().unwrap();
        assert_eq!(motor.spin_up_time(), Some(took), "the last one that says something");
    }
}
