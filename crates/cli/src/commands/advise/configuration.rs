//! The lines that set what is advised.

use std::fmt::Write as _;

use serde::Serialize;
use umbrella_fs::spec::WriteBackSpec;
use umbrella_lab::advice::sleep::{SleepAdvice, SleepFigures};
use umbrella_lab::advice::write_back::{KERNEL, WriteBackAdvice, WriteBackFigures};
use umbrella_lab::write_back::MachineSpec;
use umbrella_units::ByteSize;

use crate::text::quoted;

/// Lines, and where they belong.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Fragment {
    /// Where they belong.
    pub(super) place: String,
    /// The lines.
    pub(super) lines: String,
}

/// All that is to be set; nothing where nothing is better than today.
pub(super) fn fragments(write_back: &WriteBackAdvice, sleep: &SleepAdvice) -> Vec<Fragment> {
    let mut all = Vec::new();
    if let Some(best) = &write_back.best {
        all.extend(write_back_of(best).map(|spec| Fragment {
            place: "the [[branch]] of the disk, in the pool's configuration".to_owned(),
            lines: lines(Some(&spec)),
        }));
        let thresholds = thresholds(best);
        all.push(kernel(thresholds.0, thresholds.1));
    }
    all.extend(of_sleep(sleep));
    all
}

/// What is to be set for the branches of a pool, and in the kernel for all of its disks together.
pub(super) fn of_pool<'a>(
    branches: &[(String, Option<WriteBackSpec>)],
    rule: Option<&str>,
    disks: impl Iterator<Item = &'a WriteBackAdvice>,
) -> Vec<Fragment> {
    let of_branch = |(name, spec): &(String, Option<WriteBackSpec>)| Fragment {
        place: format!("the [[branch]] {}, in the pool's configuration", quoted(name)),
        lines: lines(spec.as_ref()),
    };
    let mut all: Vec<Fragment> = branches.iter().map(of_branch).collect();
    all.extend(rule.map(|rule| Fragment {
        place: "behind the rules of the pool's configuration".to_owned(),
        lines: rule.to_owned(),
    }));
    let sums = disks
        .filter_map(|of| of.best.as_ref())
        .map(thresholds)
        .reduce(|(background, limit), of| (ByteSize(background.0 + of.0.0), ByteSize(limit.0 + of.1.0)));
    all.extend(sums.map(|(background, limit)| kernel(background, limit)));
    all
}

/// The shares of memory that were simulated, in bytes.
fn shares(best: &WriteBackFigures) -> (ByteSize, ByteSize) {
    let machine = MachineSpec::default();
    let share = |percent: u32| ByteSize(best.memory.0 / 100 * u64::from(percent));
    (share(machine.background_percent), share(machine.foreground_percent))
}

/// The setting for a branch; none is the kernel's order.
pub(super) fn write_back_of(best: &WriteBackFigures) -> Option<WriteBackSpec> {
    let (background, limit) = shares(best);
    let mib = |size: ByteSize| Some(ByteSize(size.0 >> 20 << 20));
    (best.policy != KERNEL).then(|| WriteBackSpec {
        policy: best.policy.clone(),
        limit: mib(limit),
        background: mib(background),
    })
}

/// The kernel has to leave a policy its limit: its own write-back begins at its background threshold, of which a branch
/// takes three quarters.
fn thresholds(best: &WriteBackFigures) -> (ByteSize, ByteSize) {
    let (background, limit) = shares(best);
    if best.policy == KERNEL {
        return (background, limit);
    }
    let threshold = ByteSize(limit.0 / 3 * 4);
    (threshold, ByteSize(threshold.0 * 2))
}

fn kernel(background: ByteSize, limit: ByteSize) -> Fragment {
    Fragment {
        place: "/etc/sysctl.d/umbrella.conf".to_owned(),
        lines: format!("vm.dirty_background_bytes = {}\nvm.dirty_bytes = {}\n", background.0, limit.0),
    }
}

/// The keys of a branch.
fn lines(spec: Option<&WriteBackSpec>) -> String {
    let Some(spec) = spec else { return "write_back = \"kernel\"\n".to_owned() };
    let mut lines = format!("write_back = \"{}\"\n", spec.policy);
    for (key, size) in [("write_back_limit", spec.limit), ("write_back_background", spec.background)] {
        if let Some(size) = size {
            let _ = writeln!(lines, "{key} = \"{}MiB\"", size.0 >> 20);
        }
    }
    lines
}

/// What the disk's sleep needs.
pub(super) fn of_sleep(sleep: &SleepAdvice) -> Option<Fragment> {
    let SleepAdvice::Judged(judged) = sleep else { return None };
    judged.best.as_ref().map(sleep_lines)
}

fn sleep_lines(best: &SleepFigures) -> Fragment {
    let Some(flash) = best.flash else {
        // Steps of 5 s: ten minutes.
        let lines = "hdparm -S 120 DEVICE\n".to_owned();
        return Fragment { place: "the disk itself (as root)".to_owned(), lines };
    };
    let lines = format!(
        "[flash]\npath = \"/dev/disk/by-id/FLASH\" # {flash} or more\n\n[cache]\nspin_down = \"{}\"\n",
        best.spin_down
    );
    Fragment { place: "NAME.disk.toml, behind [disk]".to_owned(), lines }
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
