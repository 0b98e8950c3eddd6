//! How response times spread: for each run the median, 90, 99 and 99.9 % and the longest, on one logarithmic axis. A
//! row a run stays readable with any number of runs, where a line a run would not.

use std::fmt::{self, Write};

use super::super::{Group, Outcome, Times, Unit};
use super::text::{Safe, fit_all};

const WIDTH: f64 = 420.0;
const ROW: f64 = 22.0;
const TOP: f64 = 24.0;
const LEFT: f64 = 146.0;
const RIGHT: f64 = 402.0;
const NAME_CHARS: usize = 18;
/// No axis spans more powers of ten: what is shorter is at its beginning.
const MAX_DECADES: i32 = 9;

type TimesColumn = (&'static str, fn(&Outcome) -> &Times);
const KINDS: [TimesColumn; 3] = [("writes", |o| &o.write), ("reads", |o| &o.read), ("fsyncs", |o| &o.fsync)];

/// The marks, in the order of the legend, and the value that each shows.
type Mark = (&'static str, fn(&Times) -> f64);
const MARKS: [Mark; 5] =
    [("median", |t| t.p50), ("90 %", |t| t.p90), ("99 %", |t| t.p99), ("99.9 %", |t| t.p999), ("longest", |t| t.max)];

/// A chart for each kind of operation that there was.
pub(super) fn charts(out: &mut String, group: &Group<'_>) -> fmt::Result {
    let there = |(_, of): &&TimesColumn| group.outcomes().any(|outcome| of(outcome).count > 0);
    if KINDS.iter().all(|kind| !there(&kind)) {
        return Ok(());
    }
    writeln!(out, "<h3>Response times</h3>\n<ul class=\"legend\">")?;
    for (place, (name, _)) in MARKS.iter().enumerate() {
        write!(out, "<li><svg viewBox=\"0 0 14 12\" width=\"14\" height=\"12\" aria-hidden=\"true\">")?;
        mark(out, place, 7.0, 6.0)?;
        writeln!(out, "</svg> {name}</li>")?;
    }
    writeln!(out, "</ul>\n<div class=\"charts\">")?;
    KINDS.iter().filter(there).try_for_each(|(name, of)| chart(out, group, name, *of))?;
    writeln!(out, "</div>")
}

fn chart(out: &mut String, group: &Group<'_>, name: &str, of: fn(&Outcome) -> &Times) -> fmt::Result {
    let values = || {
        let all = group.rows.iter().flat_map(|row| MARKS.map(|(_, value)| row.mean(|outcome| value(of(outcome)))));
        all.filter(|micros| micros.is_finite() && *micros > 0.0)
    };
    let to = values().reduce(f64::max).map_or(1, |most| most.log10().ceil() as i32);
    let from =
        values().reduce(f64::min).map_or(0, |least| least.log10().floor() as i32).clamp(to - MAX_DECADES, to - 1);
    let x = |micros: f64| {
        let share = (micros.max(f64::MIN_POSITIVE).log10() - f64::from(from)) / f64::from(to - from);
        LEFT + (RIGHT - LEFT) * share.clamp(0.0, 1.0)
    };
    let height = TOP + ROW * group.rows.len() as f64 + 4.0;
    write!(out, "<figure>\n<figcaption><b>{name}</b> <span class=\"way\">lower is better</span>")?;
    writeln!(out, "<span class=\"help\">each line is ten times the one before</span></figcaption>")?;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Response times of {name}.")?;
    for row in &group.rows {
        write!(out, " {}:", Safe(&row.label))?;
        MARKS
            .iter()
            .try_for_each(|(mark, value)| write!(out, " {mark} {},", show(row.mean(|outcome| value(of(outcome))))))?;
    }
    writeln!(out, "\">")?;
    // No more than five lines are named: names of times are wide.
    let every = ((to - from) as usize).div_ceil(5);
    for (place, decade) in (from..=to).enumerate() {
        let at = x(10_f64.powi(decade));
        writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {}V{height}\"/>", TOP - 6.0)?;
        if place % every == 0 {
            let text = show(10_f64.powi(decade));
            writeln!(out, "<text x=\"{at:.1}\" y=\"12\" text-anchor=\"middle\">{text}</text>")?;
        }
    }
    let names = fit_all(&group.labels(), NAME_CHARS);
    for (place, (row, name)) in group.rows.iter().zip(&names).enumerate() {
        let y = TOP + ROW * (place as f64 + 0.5);
        writeln!(out, "<text x=\"0\" y=\"{}\">{}</text>", y + 4.0, Safe(name))?;
        if row.outcomes.iter().all(|outcome| of(outcome).count == 0) {
            continue;
        }
        let mean = |value: fn(&Times) -> f64| row.mean(|outcome| value(of(outcome)));
        let (from, to) = (x(mean(|t| t.p50)), x(mean(|t| t.max)));
        writeln!(out, "<path class=\"span\" d=\"M{from:.1} {y}H{to:.1}\"/>")?;
        for (number, (name, value)) in MARKS.iter().enumerate() {
            let micros = mean(*value);
            write!(out, "<g><title>{}, {name}: {}</title>", Safe(&row.label), show(micros))?;
            mark(out, number, x(micros), y)?;
            writeln!(out, "</g>")?;
        }
    }
    writeln!(out, "</svg>\n</figure>")
}

fn mark(out: &mut String, place: usize, x: f64, y: f64) -> fmt::Result {
    match place {
        0 => write!(out, "<circle class=\"p0\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"),
        1 => write!(out, "<circle class=\"p1\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"),
        2 => write!(out, "<path class=\"p2\" d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\"/>", y - 5.0),
        3 => write!(out, "<path class=\"p3\" d=\"M{x:.1} {:.1}l4.6 8h-9.2z\"/>", y - 5.0),
        _ => write!(out, "<path class=\"p4\" d=\"M{x:.1} {:.1}v10\"/>", y - 5.0),
    }
}

fn show(micros: f64) -> String {
    Unit::Micros.show(micros)
}
