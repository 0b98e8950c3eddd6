//! The advice as people read it: 100 columns at most. Pure.

use std::fmt::Write as _;

use umbrella_lab::advice::Samples;
use umbrella_lab::advice::sleep::{MOST_STARTS_A_DAY, SleepAdvice, SleepFigures, SleepJudgement};
use umbrella_lab::advice::write_back::{KERNEL, WriteBackAdvice};
use umbrella_lab::result::Unit;
use umbrella_units::ByteSize;

use super::Report;
use crate::text::{count, visible};

/// A spread below this, in percent, is not told.
const LEAST_SPREAD: f64 = 1.0;
/// Kilowatt hours that a watt makes in a year.
const KWH_A_YEAR: f64 = 8.766;

/// All of it.
pub(super) fn report(report: &Report) -> String {
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
        report.disk,
        report.memory,
        report.seeds.len()
    );
    if report.traces.iter().any(|trace| trace.is_cut) {
        text += "the traces go on; only the beginning was simulated (more: --requests N)\n";
    }
    text += "\nwrite-back\n";
    text += &of_write_back(&report.write_back);
    text += "\nflash and sleep\n";
    match &report.sleep {
        SleepAdvice::NoMotor => line(&mut text, "", &format!("not simulated: {} has no motor", report.disk)),
        SleepAdvice::TooShort { least_s } => {
            let least = Unit::Seconds.show(*least_s);
            line(&mut text, "", &format!("not simulated: {length} is too short, {least} at least is wanted"));
        }
        SleepAdvice::Judged(judged) => text += &of_sleep(judged),
    }
    for fragment in &report.configuration {
        let _ = writeln!(text, "\n{}:", fragment.place);
        for line in fragment.lines.lines() {
            let _ = writeln!(text, "{}", format!("  {line}").trim_end());
        }
    }
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
fn policy(name: &str) -> &str {
    if name == KERNEL { "kernel" } else { name }
}

fn of_write_back(advice: &WriteBackAdvice) -> String {
    let mut text = String::new();
    let today = &advice.today;
    let Some(best) = &advice.best else {
        let [waited, busy] = [today.waited_s, today.busy_s].map(|of| figure(&of, |value| Unit::Seconds.show(value)));
        line(&mut text, "policy", "no difference: leave it to the kernel");
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
        return format!("kernel with {}, as today: no policy makes a difference", today.memory);
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
        line(&mut text, "wear", &wear(best, size));
    }
    sources(&mut text, judged, best.flash);
    text
}

/// What is written to the flash.
fn wear(best: &SleepFigures, flash: ByteSize) -> String {
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
