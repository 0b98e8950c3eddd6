//! Outcomes as one page that needs nothing else: no network, no fonts, no libraries.
//!
//! Why hand-made: bars, lines and dots are a few lines of SVG each, and they take their colours from the page (light
//! and dark). Everything that is drawn is also said in text. The page is readable without its script, which only sorts
//! tables. It is well-formed XML as well as HTML, so that a test can check its structure. Names of policies and inputs
//! come from outside: they reach the page only through `text::Safe`, and the page's own policy forbids loading
//! anything.
//!
//! Colours: Okabe and Ito, "Color Universal Design" (2008). Shape and dash distinguish the series as well.

mod bars;
mod demerit;
mod lines;
mod spread;
mod tables;
mod text;
mod tradeoff;

use std::fmt::{self, Write};

use self::text::Safe;
use super::{Group, Metric, Outcome, groups, metric};
pub use demerit::page as demerit_page;
pub use tradeoff::{Figure, PlotPoint, Rank, Tradeoff, page as tradeoff_page};

/// The figures that get a chart of their own; the others are in the table and below "more charts".
const IMPORTANT: [&str; 6] =
    ["time_s", "throughput", "write_p99_us", "bytes_written", "write_request_bytes", "write_distance"];

/// Where a page comes from.
#[derive(Debug, Clone)]
pub struct Provenance {
    /// The program and its version.
    pub program: String,
    /// When it was made.
    pub date: String,
    /// The command that made it.
    pub command: String,
}

/// One self-contained page of all outcomes: a section for each input, with a summary, charts, tables and the commands
/// to run it again. Where they are fewer than were `asked` for, it says so.
pub fn page(title: &str, outcomes: &[Outcome], asked: usize, origin: &Provenance) -> String {
    let mut page = String::new();
    let missing = (outcomes.len() < asked).then(|| format!("{} of {asked} runs are shown.", outcomes.len()));
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, title, &groups(outcomes), missing.as_deref(), origin);
    page
}

fn write_page(
    out: &mut String,
    title: &str,
    groups: &[Group<'_>],
    missing: Option<&str>,
    origin: &Provenance,
) -> fmt::Result {
    // The only input is the title.
    let only = groups.first().filter(|group| groups.len() == 1 && group.input == title);
    let means = only.and_then(Group::means).map_or_else(String::new, |means| format!(", {means}"));
    head(out, (title, &means), origin)?;
    if let Some(missing) = missing {
        writeln!(out, "<p class=\"warning\">{missing}</p>")?;
    }
    match groups {
        [] => writeln!(out, "<p>No run was completed.</p>")?,
        [_] => {}
        _ => contents(out, groups)?,
    }
    writeln!(out, "</header>\n<main>")?;
    for (place, group) in groups.iter().enumerate() {
        section(out, place, group, only.is_none())?;
    }
    if !groups.is_empty() {
        tables::glossary(out, groups)?;
    }
    writeln!(out, "</main>\n<script>\n{}</script>\n</body>\n</html>", include_str!("page.js"))
}

/// A page's beginning: its title, what is behind that, and where the page comes from.
fn head(out: &mut String, (title, behind): (&str, &str), origin: &Provenance) -> fmt::Result {
    writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>")?;
    writeln!(
        out,
        "<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>"
    )?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>")?;
    writeln!(out, "<meta name=\"color-scheme\" content=\"light dark\"/>")?;
    writeln!(out, "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>", Safe(title), include_str!("page.css"))?;
    writeln!(out, "<header>\n<h1>{}{behind}</h1>", Safe(title))?;
    writeln!(
        out,
        "<p class=\"origin\">{}, {}: <code>{}</code></p>",
        Safe(&origin.program),
        Safe(&origin.date),
        Safe(&origin.command)
    )
}

fn contents(out: &mut String, groups: &[Group<'_>]) -> fmt::Result {
    writeln!(out, "<nav aria-label=\"inputs\">\n<ul>")?;
    for (place, group) in groups.iter().enumerate() {
        writeln!(out, "<li><a href=\"#input-{place}\">{}</a>: {}</li>", Safe(group.input), Safe(&group.verdict()))?;
    }
    writeln!(out, "</ul>\n</nav>")
}

fn section(out: &mut String, place: usize, group: &Group<'_>, is_titled: bool) -> fmt::Result {
    writeln!(out, "<section id=\"input-{place}\">")?;
    if is_titled {
        let means = group.means().map_or_else(String::new, |means| format!(", {means}"));
        writeln!(out, "<h2>{}{means}</h2>", Safe(group.input))?;
    }
    writeln!(out, "<p class=\"verdict\">{}</p>", Safe(&group.verdict()))?;
    if let Some(sentence) = group.low_influence_note() {
        writeln!(out, "<p class=\"warning\">{}</p>", Safe(&sentence))?;
    }
    tables::common_settings(out, group)?;
    let sweeps = group.sweeps();
    if sweeps.is_empty() {
        writeln!(out, "<h3>Compared with <q>{}</q></h3>", Safe(&group.rows[0].label))?;
        charts(out, group, |out, metric| bars::chart(out, group, metric))?;
    }
    for sweep in &sweeps {
        writeln!(out, "<h3>Over <q>{}</q></h3>", Safe(sweep.name))?;
        lines::legend(out, sweep)?;
        charts(out, group, |out, metric| lines::chart(out, sweep, metric))?;
    }
    spread::charts(out, group)?;
    tables::figures(out, group)?;
    tables::details(out, group)?;
    tables::commands(out, group)?;
    writeln!(out, "</section>")
}

/// A chart of each figure that is not zero everywhere: the important ones in sight, the others behind a click.
fn charts(out: &mut String, group: &Group<'_>, chart: impl Fn(&mut String, &Metric) -> fmt::Result) -> fmt::Result {
    let shown = |metric: &&Metric| !group.is_zero(metric);
    writeln!(out, "<div class=\"charts\">")?;
    IMPORTANT.iter().filter_map(|name| metric(name)).filter(shown).try_for_each(|metric| chart(out, metric))?;
    writeln!(out, "</div>\n<details>\n<summary>More charts</summary>\n<div class=\"charts\">")?;
    let others = super::METRICS.iter().filter(|metric| !IMPORTANT.contains(&metric.name));
    others.filter(shown).try_for_each(|metric| chart(out, metric))?;
    writeln!(out, "</div>\n</details>")
}
