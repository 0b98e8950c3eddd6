//! The advice as people read it: 100 columns at most. Pure.

use std::fmt::Write as _;

use umbrella_lab::advice::Samples;
use umbrella_lab::advice::sleep::{MOST_STARTS_A_DAY, SleepAdvice, SleepFigures, SleepJudgement};
use umbrella_lab::advice::write_back::{Confirmation, KERNEL, Reason, WriteBackAdvice};
use umbrella_lab::events::Written;
use umbrella_lab::result::Unit;
use umbrella_units::ByteSize;

use super::DiskAdviceReport;
use super::configuration::Fragment;
use super::placement::PlacementReport;
use super::report::{Decisions, DiskReport, PoolReport};
use crate::text::{count, quoted, quoted_list, visible};

/// A spread below this, in percent, is not told.
const LEAST_SPREAD: f64 = 1.0;
/// Kilowatt hours that a watt makes in a year.
const KWH_A_YEAR: f64 = 8.766;

/// All of it.
pub(super) fn report(report: &DiskAdviceReport) -> String {
    let requests: u64 = report.traces.iter().map(|trace| trace.requests).sum();
    let length: f64 = report.traces.iter().map(|trace| trace.length_s).sum();
    let names = match report.traces.as_slice() {
        [one] => visible(&one.trace),
        several => count(several.len() as u64, "trace"),
    };
    let length = Unit::Seconds.show(length);
    let mut text = format!("{names}: {} in {length}", count(requests, "request"));
    let _ = writeln!(
        text,
        "\nsimulated on {} with {} of memory, mean of {} seeds",
        visible(&report.disk),
        report.memory,
        report.seeds.len()
    );
    if report.traces.iter().any(|trace| trace.is_cut) {
        text += "only the beginning of the traces was simulated (more: --requests N)\n";
    }
    text += "\nwrite-back\n";
    text += &of_write_back(&report.write_back);
    if let Some(confirmed) = &report.confirmed {
        text += &of_confirmation(confirmed, &report.write_back);
    }
    text += "\nflash and sleep\n";
    match &report.sleep {
        SleepAdvice::NoMotor => line(&mut text, "", &format!("not simulated: {} has no motor", report.disk)),
        SleepAdvice::NoWatts => {
            let disk = visible(&report.disk);
            line(
                &mut text,
                "",
                &format!(
                    "not simulated: {disk} gives no watts (choose a --disk from `umbrella lab \
                list disks`)"
                ),
            );
        }
        SleepAdvice::TooShort { least_s } => {
            let least = Unit::Seconds.show(*least_s);
            line(&mut text, "", &format!("not simulated: {length} is too short (record {least} or longer)"));
        }
        SleepAdvice::Judged(judged) => text += &of_sleep(judged),
    }
    text + &of_configuration(&report.configuration)
}

/// All of a pool.
pub(super) fn of_pool(report: &PoolReport) -> String {
    let mut text = report.disks.iter().map(of_disk).collect::<Vec<_>>().join("\n");
    for left in &report.left_out {
        let _ = writeln!(text, "\nbranch {}: not recorded: {}", quoted(&left.branch), visible(&left.reason));
    }
    text += &report.placement.as_ref().map_or_else(String::new, of_placement);
    let judged = report.disks.iter().filter(|disk| disk.advice.is_some());
    if report.configuration.is_empty() && judged.count() > 0 {
        text += "\nno difference: leave the pool's configuration unchanged\n";
    }
    text + &of_configuration(&report.configuration)
}

/// What rules for the flash gain, and what that is from.
fn of_placement(report: &PlacementReport) -> String {
    let mut text = format!("\n== files for {} ==\n", quoted(&report.flash));
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let files = count(report.files, "file");
    line(&mut text, "looked at", &format!("{files} ({}) on disks with a motor", report.bytes));
    if report.is_cut {
        line(&mut text, "", "there are more files; their requests count as requests of no file");
    }
    let known = share(report.of_files, report.requests);
    let requests = count(report.requests, "request");
    line(&mut text, "requests", &format!("{known:.0} % of {requests} are of files that are there now"));
    for rule in &report.tried {
        let room = if rule.fits { "" } else { "; more than the flash has room for" };
        let (files, requests) = (share(rule.files, report.files), share(rule.requests, report.requests));
        let held = format!("{files:.0} % of the files, {}, {requests:.0} % of the requests{room}", rule.bytes);
        line(&mut text, "", &format!("{}: {held}", rule.name));
    }
    let seconds = |value: f64| Unit::Seconds.show(value);
    match report.best().and_then(|rule| Some((rule, rule.waited_s?))) {
        Some((rule, waited)) => {
            line(&mut text, "rule", &rule.name);
            line(&mut text, "programs", &format!("wait {}", against(&waited, &report.today, seconds)));
            line(&mut text, "", "to move existing files, run `umbrella enforce` (these moves are not counted)");
        }
        None => line(&mut text, "rule", "no difference: no rule makes programs wait less"),
    }
    text
}

fn of_disk(disk: &DiskReport) -> String {
    let branches = quoted_list(disk.branches.iter().map(String::as_str));
    let mut text = format!("== {}: {branches} ==\n", visible(&disk.device));
    match &disk.advice {
        Some(advice) => text += &self::report(advice),
        None => text += "nothing was read or written\n",
    }
    disk.decisions.iter().for_each(|decisions| text += &of_decisions(decisions));
    text
}

/// What a policy decided, and what it and another decide now.
fn of_decisions(decisions: &Decisions) -> String {
    let mut text = format!("\ndecisions of branch {}\n", quoted(&decisions.branch));
    if let Some(error) = &decisions.error {
        line(&mut text, "", &format!("not made again: {error}"));
        return text;
    }
    let recorded = &decisions.recorded;
    if recorded.selections == 0 {
        line(&mut text, &decisions.policy, "chose nothing: dirty data stayed below the background threshold");
        return text;
    }
    let runs = |of: &Written| format!("runs of {:.1} pages, {:.0} blocks apart", of.mean_run(), of.mean_distance());
    let chosen = count(recorded.selections, "selection");
    line(&mut text, &decisions.policy, &format!("{chosen} made again, with the same result; {}", runs(recorded)));
    if let Some(advised) = &decisions.advised {
        line(&mut text, &advised.policy, &format!("on the same dirty pages: {}", runs(&advised.written)));
    }
    text
}

fn of_configuration(fragments: &[Fragment]) -> String {
    let mut text = String::new();
    for fragment in fragments {
        let _ = writeln!(text, "\n{}:", fragment.place);
        for line in fragment.lines.lines() {
            let _ = writeln!(text, "{}", format!("  {line}").trim_end());
        }
    }
    text
}

/// Whether the best is the best once more.
fn of_confirmation(confirmed: &Confirmation, advice: &WriteBackAdvice) -> String {
    let repeats = if confirmed.repeats { "the same figures" } else { "OTHER FIGURES: please report this as a bug" };
    let (what, best, today) = match advice.reason {
        Some(Reason::Busy) => ("the disk is busy", &confirmed.best.busy_s, &confirmed.today.busy_s),
        _ => ("programs wait", &confirmed.best.waited_s, &confirmed.today.waited_s),
    };
    let gain = against(best, today, |value| Unit::Seconds.show(value));
    let mut text = String::new();
    line(&mut text, "again", &format!("{repeats}; as recorded, {what} {gain}"));
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{}", format!("  {name:<11}{value}").trim_end());
}

/// A setting that stays, or that changes.
fn change(today: &str, best: &str) -> String {
    if today == best { format!("{today}, as today") } else { format!("{today} -> {best}") }
}

/// What to call a policy: the kernel's order is none of ours.
pub(super) fn policy(name: &str) -> &str {
    if name == KERNEL { "kernel" } else { name }
}

fn of_write_back(advice: &WriteBackAdvice) -> String {
    let mut text = String::new();
    let today = &advice.today;
    let Some(best) = &advice.best else {
        let [waited, busy] = [today.waited_s, today.busy_s].map(|of| figure(&of, |value| Unit::Seconds.show(value)));
        let leave = if today.policy == KERNEL { "leave it to the kernel" } else { "leave it as it is" };
        line(&mut text, "policy", &format!("no difference: {leave}"));
        line(&mut text, "memory", &format!("no difference: {}, as today", today.memory));
        line(&mut text, "programs", &format!("wait {waited} in all"));
        line(&mut text, "disk", &format!("busy {busy}"));
        return text;
    };
    let seconds = |value: f64| Unit::Seconds.show(value);
    line(&mut text, "policy", &change(policy(&today.policy), policy(&best.policy)));
    line(&mut text, "memory", &change(&today.memory.to_string(), &best.memory.to_string()));
    line(&mut text, "programs", &format!("wait {}", against(&best.waited_s, &today.waited_s, seconds)));
    line(&mut text, "disk", &format!("busy {}", against(&best.busy_s, &today.busy_s, seconds)));
    if best.memory > today.memory {
        line(&mut text, "or", &with_todays_memory(advice));
    }
    text
}

/// What to set where there is no more memory.
fn with_todays_memory(advice: &WriteBackAdvice) -> String {
    let today = &advice.today;
    let Some(best) = &advice.with_todays_memory else {
        return format!("{} with {}, as today: no policy makes a difference", policy(&today.policy), today.memory);
    };
    let waited = against(&best.waited_s, &today.waited_s, |value| Unit::Seconds.show(value));
    format!("{} with {}, as today: programs wait {waited}", policy(&best.policy), today.memory)
}

fn of_sleep(judged: &SleepJudgement) -> String {
    let mut text = String::new();
    let today = &judged.today;
    let watts = |value: f64| format!("{value:.2} W");
    let Some(best) = &judged.best else {
        line(
            &mut text,
            "",
            &format!("no difference: nothing saves power with {MOST_STARTS_A_DAY} starts a day or fewer"),
        );
        line(&mut text, "power", &figure(&today.watts, watts));
        sources(&mut text, judged, None);
        return text;
    };
    let flash = best.flash.map_or_else(|| "none".to_owned(), |flash| flash.to_string());
    line(&mut text, "flash", &change("none", &flash));
    line(&mut text, "spin-down", &change(&today.spin_down, &best.spin_down));
    let saved = (today.watts.mean - best.watts.mean) * KWH_A_YEAR;
    line(&mut text, "power", &format!("{}; {saved:.1} kWh a year less", against(&best.watts, &today.watts, watts)));
    let each = |value: f64| Unit::Count.show(value);
    let (starts, waits) = (figure(&best.starts_a_day, each), figure(&best.waits_a_day, each));
    line(&mut text, "motor", &format!("{starts} starts a day; {waits} requests a day wait for it"));
    if let Some(size) = best.flash {
        line(&mut text, "wear", &flash_writes(best, size));
    }
    sources(&mut text, judged, best.flash);
    text
}

/// Flash and a spin-down policy in a few words.
pub(super) fn setting_of_sleep(of: &SleepFigures) -> String {
    let flash = of.flash.map_or_else(|| "no flash".to_owned(), |flash| format!("{flash} of flash"));
    format!("{flash}, {}", of.spin_down)
}

/// What is written to the flash.
fn flash_writes(best: &SleepFigures, flash: ByteSize) -> String {
    let written = figure(&best.flash_bytes_a_day, |value| Unit::Bytes.show(value));
    let days = flash.0 as f64 / best.flash_bytes_a_day.mean;
    let often =
        if days.is_finite() { format!(": each place once in {} d", Unit::Count.show(days)) } else { String::new() };
    format!("{written} a day go to the flash{often}")
}

/// Where the watts come from.
fn sources(text: &mut String, judged: &SleepJudgement, flash: Option<ByteSize>) {
    let mut from = format!("the disk's watts: {}", judged.disk_watts);
    if flash.is_some() {
        let _ = write!(from, "; the flash's: {}", judged.flash_watts);
    }
    line(text, "source", &from);
}

/// A figure and its spread.
fn figure(samples: &Samples, show: impl Fn(f64) -> String) -> String {
    let spread = samples.spread();
    let spread = if spread >= LEAST_SPREAD { format!(" \u{b1}{spread:.0} %") } else { String::new() };
    show(samples.mean) + &spread
}

/// A figure, today's, and the change, if it is one.
fn against(best: &Samples, today: &Samples, show: impl Fn(f64) -> String) -> String {
    if best.is_level_with(today) {
        return format!("{}: no difference", figure(best, show));
    }
    let change = best.change_from(today).map_or_else(String::new, |percent| format!(" ({percent:+.0} %)"));
    format!("{} instead of {}{change}", figure(best, &show), figure(today, &show))
}
