//! What the page says in tables: all figures, the parts of a run, what was run, and how to run it again.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::super::{Better, ComparisonRow, Group, METRICS, Metric, Outcome, Setting, Unit};
use super::text::{Safe, direction};

/// What all runs of the group were run with.
pub(super) fn common_settings(out: &mut String, group: &Group<'_>) -> fmt::Result {
    type Fact = (&'static str, fn(&Setting) -> String);
    let facts: [Fact; 6] = [
        ("disk", |s| s.disk.clone()),
        ("scheduler", |s| s.scheduler.clone()),
        ("memory", |s| s.memory.to_string()),
        ("staging", |s| if s.staging { "yes" } else { "no" }.to_owned()),
        ("seed", |s| s.seed.to_string()),
        ("scale", |s| s.scale.to_string()),
    ];
    writeln!(out, "<dl class=\"facts\">")?;
    for (name, of) in facts {
        let mut values: Vec<String> = Vec::new();
        for outcome in group.outcomes() {
            let value = of(&outcome.setting);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Safe(&values.join(", ")))?;
    }
    writeln!(out, "</dl>")
}

/// Every figure of every run; figures that are zero in all of them are left to the glossary.
pub(super) fn figures(out: &mut String, group: &Group<'_>) -> fmt::Result {
    let metrics: Vec<&Metric> = METRICS.iter().filter(|metric| !group.is_zero(metric)).collect();
    writeln!(
        out,
        "<h3>All figures</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"all figures\">"
    )?;
    writeln!(out, "<table class=\"figures\">\n<thead><tr><th scope=\"col\">policy</th>")?;
    for metric in &metrics {
        writeln!(
            out,
            "<th scope=\"col\" data-metric=\"{}\" data-better=\"{}\" title=\"{} ({})\">{}</th>",
            metric.name,
            if metric.better == Better::Higher { "higher" } else { "lower" },
            Safe(metric.help),
            direction(metric),
            Safe(metric.heading)
        )?;
    }
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for (place, row) in group.rows.iter().enumerate() {
        write!(out, "<tr data-place=\"{place}\"><th scope=\"row\">{}", Safe(&row.label))?;
        writeln!(out, "{}</th>", if row.is_cut() { " <small>cut short</small>" } else { "" })?;
        metrics.iter().try_for_each(|metric| figure(out, group, metric, row))?;
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody>\n</table>\n</div>")
}

fn figure(out: &mut String, group: &Group<'_>, metric: &Metric, row: &ComparisonRow<'_>) -> fmt::Result {
    let value = row.value(metric);
    write!(out, "<td data-value=\"{value}\"")?;
    if let (Some(difference), Some(base)) = (group.difference(metric, row), group.base(row)) {
        write!(out, " title=\"{difference} against {}\"", Safe(&base.label))?;
    }
    if group.is_best(metric, row) {
        write!(out, " class=\"best\"")?;
    }
    writeln!(out, ">{}</td>", row.show(metric))
}

/// The parts of the runs: phases, why pages were written, how writes cluster.
pub(super) fn details(out: &mut String, group: &Group<'_>) -> fmt::Result {
    let mut phases: Vec<&str> = Vec::new();
    for phase in group.outcomes().flat_map(|outcome| &outcome.phases) {
        if !phases.contains(&phase.name.as_str()) {
            phases.push(&phase.name);
        }
    }
    if !phases.is_empty() {
        part(out, group, "Time of each phase", &phases, |row, place| {
            let time = |outcome: &Outcome| outcome.phase(phases[place]).map_or(f64::NAN, |phase| phase.time_s);
            Unit::Seconds.show(row.mean(time))
        })?;
    }
    let reasons = ["too much dirty", "dirty for too long", "memory was short", "fsync or sync", "rest at the end"];
    part(out, group, "Why pages were written", &reasons, |row, place| {
        let pages = |outcome: &Outcome| {
            let because = outcome.written_because;
            [because.threshold, because.expired, because.reclaim, because.sync, because.drained][place] as f64
        };
        Unit::Blocks.show(row.mean(pages))
    })?;
    let classes = ["1", "2-4", "5-8", "9-16", "17-32", "more"];
    part(out, group, "1 MB areas by their write requests within 100 ms", &classes, |row, place| {
        Unit::Count.show(row.mean(|outcome| outcome.windows.windows[place] as f64))
    })
}

/// A table of its own behind a click; `cell` is what a row has in a column.
fn part(
    out: &mut String,
    group: &Group<'_>,
    title: &str,
    columns: &[&str],
    cell: impl Fn(&ComparisonRow<'_>, usize) -> String,
) -> fmt::Result {
    writeln!(
        out,
        "<details>\n<summary>{}</summary>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">",
        Safe(title),
        Safe(title)
    )?;
    writeln!(out, "<table>\n<thead><tr><th scope=\"col\">policy</th>")?;
    columns.iter().try_for_each(|column| writeln!(out, "<th scope=\"col\">{}</th>", Safe(column)))?;
    writeln!(out, "</tr></thead>\n<tbody>")?;
    for row in &group.rows {
        writeln!(out, "<tr><th scope=\"row\">{}</th>", Safe(&row.label))?;
        (0..columns.len()).try_for_each(|place| writeln!(out, "<td>{}</td>", cell(row, place)))?;
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</tbody>\n</table>\n</div>\n</details>")
}

/// A command for each run that does it again.
pub(super) fn commands(out: &mut String, group: &Group<'_>) -> fmt::Result {
    writeln!(out, "<details>\n<summary>Run it again</summary>\n<pre class=\"commands\">")?;
    let commands: BTreeSet<String> = group.outcomes().map(|outcome| outcome.setting.command()).collect();
    commands.iter().try_for_each(|command| writeln!(out, "{}", Safe(command)))?;
    writeln!(out, "</pre>\n</details>")
}

/// What each figure means; here also those that were zero in every run.
pub(super) fn glossary(out: &mut String, groups: &[Group<'_>]) -> fmt::Result {
    writeln!(
        out,
        "<section id=\"figures\">\n<details>\n<summary>What the figures mean</summary>\n<dl class=\"glossary\">"
    )?;
    for metric in METRICS {
        let zero = groups.iter().all(|group| group.is_zero(metric));
        writeln!(
            out,
            "<div><dt>{} <code>{}</code></dt><dd>{}; {}{}</dd></div>",
            Safe(metric.heading),
            metric.name,
            Safe(metric.help),
            direction(metric),
            if zero { "; zero in every run" } else { "" }
        )?;
    }
    writeln!(out, "</dl>\n</details>\n</section>")
}
