//! When the disk may sleep, and how much flash to put in front of it.
//!
//! What counts is power. Out is what starts the motor more often than [`MOST_STARTS_A_DAY`]. Of settings that are
//! level, the one with the least flash is best, then the one with the fewest starts.

use serde::Serialize;
use umbrella_model::device::profiles;
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger};
use umbrella_units::{ByteSize, Nanos};

use super::samples::SampleTable;
use super::write_back::machine_with;
use super::{Recording, SEEDS, Samples};
use crate::experiment::{Cell, LabError};
use crate::hybrid::{Cache, HybridInput, HybridOutcome, HybridSetup};

/// The motor never stops: what a disk does today.
pub const NEVER: &str = "never";

/// A disk without flash can sleep after a time, as disks do by themselves.
pub const BY_ITSELF: &str = "fixed:timeout=10m";

/// When a disk with flash may sleep.
const SPIN_DOWNS: [&str; 3] = [BY_ITSELF, "adaptive", "rent_to_buy"];

/// Sizes of flash.
const FLASHES: [ByteSize; 4] = [ByteSize(128 << 20), ByteSize(512 << 20), ByteSize(2 << 30), ByteSize(8 << 30)];

/// The most motor starts a day. Assumed: a drive bears 50,000 starts, as data sheets of desktop drives say, and lasts
/// five years.
pub const MOST_STARTS_A_DAY: f64 = 27.0;

/// A shorter recording says nothing: sleep pays after a minute or so, and habits show over hours.
pub const LEAST_LENGTH: Nanos = Nanos::from_secs(3600);

/// The flash of the model.
const FLASH: &str = "sata_ssd";

/// Each record of the log has a header of 4 KiB, as live.
const HEADER: u64 = 4096;

const DAY_S: f64 = 86_400.0;

/// Flash and a spin-down policy, and how they did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SleepFigures {
    /// The flash; `None` if there is none.
    pub flash: Option<ByteSize>,
    /// When the disk may sleep.
    pub spin_down: String,
    /// The average power of disk and flash.
    pub watts: Samples,
    /// How often the motor starts.
    pub starts_a_day: Samples,
    /// Requests that wait for it.
    pub waits_a_day: Samples,
    /// Bytes written to the flash, headers too.
    pub flash_bytes_a_day: Samples,
}

/// What to set.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SleepAdvice {
    /// The recording is too short.
    TooShort {
        /// How long it would have to be, in seconds.
        least_s: f64,
    },
    /// The disk has no motor.
    NoMotor,
    /// The disk is a drive's profile, which has no watts.
    NoWatts,
    /// It was simulated.
    Judged(Box<SleepJudgement>),
}

/// What the runs come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SleepJudgement {
    /// A disk that never sleeps, without flash.
    pub today: SleepFigures,
    /// The better setting; `None` if nothing is better.
    pub best: Option<SleepFigures>,
    /// Where the disk's watts come from.
    pub disk_watts: String,
    /// And the flash's.
    pub flash_watts: String,
    /// All that was tried, in the order of preference.
    pub tried: Vec<SleepFigures>,
}

/// What a run tries, and with which seed.
#[derive(Debug, Clone)]
pub struct SleepRun {
    /// The flash; `None` if there is none.
    pub flash: Option<ByteSize>,
    /// When the disk may sleep.
    pub spin_down: &'static str,
    /// The seed of the requests.
    pub seed: u64,
}

/// Why sleep is not simulated, if it is not.
pub fn refusal(recordings: &[Recording], disk: &str) -> Result<Option<SleepAdvice>, LabError> {
    let length: u64 = recordings.iter().map(|recording| recording.length().0).sum();
    if machine_with(disk)?.drive.is_some() {
        return Ok(Some(SleepAdvice::NoWatts));
    }
    Ok(if !profiles::profile(disk)?.rotates() {
        Some(SleepAdvice::NoMotor)
    } else if length < LEAST_LENGTH.0 {
        Some(SleepAdvice::TooShort { least_s: LEAST_LENGTH.as_secs_f64() })
    } else {
        None
    })
}

/// The runs: today's setting, then each size of flash with each spin-down policy, for each recording and seed.
pub fn plan(recordings: &[Recording], disk: &str) -> Result<Vec<(SleepRun, Cell<HybridSetup>)>, LabError> {
    let mut settings = vec![(None, NEVER), (None, BY_ITSELF)];
    settings.extend(FLASHES.iter().flat_map(|flash| SPIN_DOWNS.map(|spin_down| (Some(*flash), spin_down))));
    let setup = |flash: Option<ByteSize>, spin_down: &str| HybridSetup {
        disk: disk.to_owned(),
        flash: FLASH.to_owned(),
        cache: Cache::Finite(flash.unwrap_or_default()),
        when: FlushTrigger::Piggyback,
        algorithm: Algorithm::Whole,
        spin_down: spin_down.to_owned(),
        ..HybridSetup::default()
    };
    let capacity = setup(None, NEVER).capacity()?;
    let mut runs = Vec::new();
    for recording in recordings {
        for seed in SEEDS {
            let input = HybridInput::columns(&recording.name, &recording.variant(seed), capacity);
            let machines: Vec<HybridSetup> =
                settings.iter().map(|(flash, spin_down)| setup(*flash, spin_down)).collect();
            let cells = Cell::grid(&[input.into()], &machines);
            let run = |&(flash, spin_down): &(Option<ByteSize>, &'static str)| SleepRun { flash, spin_down, seed };
            runs.extend(settings.iter().map(run).zip(cells));
        }
    }
    Ok(runs)
}

/// The result of these runs; `None` if today's setting is not among them.
pub fn evaluate(runs: &[(SleepRun, HybridOutcome)]) -> Option<SleepJudgement> {
    let mut tally = SampleTable::new();
    for (run, outcome) in runs {
        let flash = if run.flash.is_some() { outcome.energy.flash } else { 0.0 };
        let disk = outcome.energy.total - outcome.energy.flash;
        let written = outcome.redirected.bytes + outcome.redirected.writes * HEADER;
        let figures =
            [outcome.time_s, disk + flash, outcome.spin_ups as f64, outcome.waited_for_spin_up as f64, written as f64];
        tally.add((run.flash, run.spin_down), run.seed, figures);
    }
    let figures = tally.samples(|[time_s, energy, starts, waits, written]| {
        let a_day = |sum: &f64| sum * DAY_S / time_s;
        [energy / time_s, a_day(starts), a_day(waits), a_day(written)]
    });
    let tried: Vec<SleepFigures> = figures
        .map(|((flash, spin_down), [watts, starts_a_day, waits_a_day, flash_bytes_a_day])| SleepFigures {
            flash,
            spin_down: spin_down.to_owned(),
            watts,
            starts_a_day,
            waits_a_day,
            flash_bytes_a_day,
        })
        .collect();
    let today = tried.iter().find(|of| of.flash.is_none() && of.spin_down == NEVER)?.clone();
    let best = best(&tried, &today).cloned();
    let (disk_watts, flash_watts) =
        runs.first().map(|(_, outcome)| (outcome.disk_watts.clone(), outcome.flash_watts.clone()))?;
    Some(SleepJudgement { today, best, disk_watts, flash_watts, tried })
}

/// The one to take of those that are level with the one that needs least power, if that is less than today's.
fn best<'a>(tried: &'a [SleepFigures], today: &SleepFigures) -> Option<&'a SleepFigures> {
    let allowed = || tried.iter().filter(|of| of.starts_a_day.mean <= MOST_STARTS_A_DAY);
    let least = allowed().min_by(|one, other| one.watts.mean.total_cmp(&other.watts.mean))?;
    let level = allowed().filter(|of| of.watts.is_less_than(&today.watts) && of.watts.is_level_with(&least.watts));
    level.min_by(|one, other| {
        one.flash.cmp(&other.flash).then(one.starts_a_day.mean.total_cmp(&other.starts_a_day.mean))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::Joules;

    const SMALL: Option<ByteSize> = Some(ByteSize(128 << 20));
    const LARGE: Option<ByteSize> = Some(ByteSize(8 << 30));

    /// One day for each seed, with the given watts of the disk, one watt of the flash, and `starts` motor starts.
    fn runs(
        flash: Option<ByteSize>,
        spin_down: &'static str,
        watts: [f64; 3],
        starts: u64,
    ) -> Vec<(SleepRun, HybridOutcome)> {
        let run = |(seed, watts): (u64, f64)| {
            let energy = Joules { flash: DAY_S, total: (watts + 1.0) * DAY_S, ..Joules::default() };
            let outcome = HybridOutcome { energy, spin_ups: starts, time_s: DAY_S, ..HybridOutcome::default() };
            (SleepRun { flash, spin_down, seed }, outcome)
        };
        SEEDS.into_iter().zip(watts).map(run).collect()
    }

    fn chosen(runs: &[Vec<(SleepRun, HybridOutcome)>]) -> Option<(Option<ByteSize>, String)> {
        let judged = evaluate(&runs.concat()).expect("today is among them");
        judged.best.map(|best| (best.flash, best.spin_down))
    }

    #[test]
    fn the_setting_that_needs_least_power_wins_and_flash_that_is_not_there_takes_none() {
        let today = runs(None, NEVER, [5.0; 3], 0);
        let flash = runs(SMALL, "adaptive", [1.0, 1.1, 1.05], 12);
        let advice = evaluate(&[today.clone(), flash.clone()].concat()).expect("today is among them");
        assert!((advice.today.watts.mean - 5.0).abs() < 1e-9);
        assert_eq!(chosen(&[today, flash]), Some((SMALL, "adaptive".to_owned())));
    }

    #[test]
    fn where_seeds_contradict_each_other_nothing_is_advised() {
        let today = runs(None, NEVER, [5.0; 3], 0);
        assert_eq!(chosen(&[today, runs(SMALL, "adaptive", [1.0, 7.0, 1.0], 12)]), None);
    }

    #[test]
    fn what_wears_the_motor_out_is_not_advised() {
        let today = runs(None, NEVER, [5.0; 3], 0);
        let often = runs(SMALL, "adaptive", [1.0; 3], 100);
        let seldom = runs(SMALL, BY_ITSELF, [2.0; 3], 10);
        assert_eq!(chosen(&[today, often, seldom]), Some((SMALL, BY_ITSELF.to_owned())));
    }

    #[test]
    fn of_settings_that_are_level_the_one_with_least_flash_is_best_then_with_fewest_starts() {
        let today = runs(None, NEVER, [5.0; 3], 0);
        let large = runs(LARGE, "adaptive", [1.0; 3], 2);
        let small = runs(SMALL, "adaptive", [1.005; 3], 9);
        let seldom = runs(SMALL, BY_ITSELF, [1.01; 3], 7);
        assert_eq!(chosen(&[today, large, small, seldom]), Some((SMALL, BY_ITSELF.to_owned())));
    }
}
