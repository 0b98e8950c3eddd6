//! The lines that set what is advised.

use serde::Serialize;
use umbrella_lab::advice::sleep::{SleepAdvice, SleepFigures};
use umbrella_lab::advice::write_back::{KERNEL, WriteBackAdvice, WriteBackFigures};
use umbrella_lab::write_back::MachineSpec;
use umbrella_units::ByteSize;

/// Lines, and where they belong.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Fragment {
    /// Where they belong.
    pub(super) place: &'static str,
    /// The lines.
    pub(super) lines: String,
}

/// All that is to be set; nothing where nothing is better than today.
pub(super) fn fragments(write_back: &WriteBackAdvice, sleep: &SleepAdvice) -> Vec<Fragment> {
    let mut all = write_back.best.as_ref().map_or_else(Vec::new, of_write_back);
    if let SleepAdvice::Judged(judged) = sleep {
        all.extend(judged.best.as_ref().map(of_sleep));
    }
    all
}

/// The shares of memory that were simulated, in bytes. The kernel has to leave the policy that much: its own write-back begins at its background threshold,
/// of which a branch takes three quarters.
fn of_write_back(best: &WriteBackFigures) -> Vec<Fragment> {
    let machine = MachineSpec::default();
    let share = |percent: u32| ByteSize(best.memory.0 / 100 * u64::from(percent));
    let (background, limit) = (share(machine.background_percent), share(machine.foreground_percent));
    let kernel = |background: ByteSize, limit: ByteSize| Fragment {
        place: "/etc/sysctl.d/umbrella.conf",
        lines: format!("vm.dirty_background_bytes = {}\nvm.dirty_bytes = {}\n", background.0, limit.0),
    };
    if best.policy == KERNEL {
        return vec![kernel(background, limit)];
    }
    let mib = |size: ByteSize| format!("{}MiB", size.0 >> 20);
    let lines = format!(
        "write_back = \"{}\"\nwrite_back_limit = \"{}\"\nwrite_back_background = \"{}\"\n",
        best.policy,
        mib(limit),
        mib(background)
    );
    let threshold = ByteSize(limit.0 / 3 * 4);
    vec![
        Fragment { place: "the [[branch]] of the disk, in the pool's configuration", lines },
        kernel(threshold, ByteSize(threshold.0 * 2)),
    ]
}

fn of_sleep(best: &SleepFigures) -> Fragment {
    let Some(flash) = best.flash else {
        // Steps of 5 s: ten minutes.
        return Fragment { place: "the disk itself (as root)", lines: "hdparm -S 120 DEVICE\n".to_owned() };
    };
    let lines = format!(
        "[flash]\npath = \"/dev/disk/by-id/FLASH\" # {flash} or more\n\n[cache]\nspin_down = \"{}\"\n",
        best.spin_down
    );
    Fragment { place: "NAME.disk.toml, behind [disk]", lines }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use umbrella_lab::advice::Samples;
    use umbrella_lab::advice::sleep::SleepJudgement;
    use umbrella_lab::advice::write_back::{POLICIES, Reason};

    use super::*;
    use crate::config;

    fn write_back(policy: &str, memory: ByteSize) -> WriteBackAdvice {
        let figures = |policy: &str| WriteBackFigures {
            policy: policy.to_owned(),
            memory,
            waited_s: Samples::default(),
            busy_s: Samples::default(),
        };
        let (best, reason) = (Some(figures(policy)), Some(Reason::Busy));
        WriteBackAdvice { today: figures(KERNEL), best, reason, with_todays_memory: None, tried: Vec::new() }
    }

    fn sleep(flash: Option<ByteSize>, spin_down: &str) -> SleepAdvice {
        let none = Samples::default();
        let figures = SleepFigures {
            flash,
            spin_down: spin_down.to_owned(),
            watts: none,
            starts_a_day: none,
            waits_a_day: none,
            flash_bytes_a_day: none,
        };
        SleepAdvice::Judged(Box::new(SleepJudgement {
            today: figures.clone(),
            best: Some(figures),
            disk_watts: String::new(),
            flash_watts: String::new(),
            tried: Vec::new(),
        }))
    }

    fn lines(write_back: &WriteBackAdvice, sleep: &SleepAdvice, place: &str) -> Option<String> {
        let found = fragments(write_back, sleep).into_iter().find(|fragment| fragment.place.contains(place));
        found.map(|fragment| fragment.lines)
    }

    #[test]
    fn a_pool_takes_the_lines_of_every_policy_with_little_and_much_memory() {
        for policy in POLICIES.into_iter().filter(|policy| *policy != KERNEL) {
            for memory in [ByteSize(16 << 20), ByteSize(64 << 40)] {
                let lines = lines(&write_back(policy, memory), &SleepAdvice::NoMotor, "[[branch]]").expect("lines");
                let pool = format!("mount = \"/pool\"\n[[branch]]\nname = \"disk1\"\npath = \"/mnt/disk1\"\n{lines}");
                let read = config::parse(Path::new("pool.toml"), pool.clone().into_bytes());
                let read = read.unwrap_or_else(|errors| panic!("{pool}: {errors}"));
                assert!(read.spec.branches[0].write_back.is_some(), "{pool}");
            }
        }
    }

    #[test]
    fn a_disk_takes_the_lines_of_every_spin_down_policy() {
        for spin_down in ["fixed:timeout=10m", "adaptive", "rent_to_buy"] {
            let advice = sleep(Some(ByteSize(512 << 20)), spin_down);
            let lines = lines(&write_back(KERNEL, ByteSize(512 << 20)), &advice, "disk.toml").expect("lines");
            let disk = format!("[disk]\npath = \"/dev/disk/by-id/DISK\"\n{lines}");
            let read = config::disk::parse(Path::new("media.disk.toml"), disk.clone().into_bytes());
            assert!(read.unwrap_or_else(|errors| panic!("{disk}: {errors}")).cache.is_some(), "{disk}");
        }
    }

    #[test]
    fn what_needs_no_configuration_of_ours_has_the_systems_own() {
        let advice = (write_back(KERNEL, ByteSize(1000 << 20)), sleep(None, "fixed:timeout=10m"));
        assert_eq!(lines(&advice.0, &advice.1, "[[branch]]"), None);
        assert_eq!(lines(&advice.0, &advice.1, "disk.toml"), None);
        let sysctl = "vm.dirty_background_bytes = 104857600\nvm.dirty_bytes = 419430400\n";
        assert_eq!(lines(&advice.0, &advice.1, "sysctl").as_deref(), Some(sysctl));
        assert_eq!(lines(&advice.0, &advice.1, "the disk itself").as_deref(), Some("hdparm -S 120 DEVICE\n"));
        let nothing = WriteBackAdvice { best: None, ..advice.0 };
        assert_eq!(fragments(&nothing, &SleepAdvice::NoMotor), []);
    }
}
