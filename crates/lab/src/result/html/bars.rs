//! A figure as bars, one a run, with a mark where the first run is.

use std::fmt::{self, Write};

use super::super::{ComparisonRow, Difference, Group, Metric};
use super::text::{Safe, caption, direction, fit_all};

const WIDTH: f64 = 420.0;
const ROW: f64 = 22.0;
const BAR: f64 = 12.0;
const LEFT: f64 = 142.0;
const RIGHT: f64 = 276.0;
const VALUE: f64 = 360.0;
const NAME_CHARS: usize = 18;

/// The chart of one figure.
pub(super) fn chart(out: &mut String, group: &Group<'_>, metric: &Metric) -> fmt::Result {
    let largest = group.rows.iter().map(|row| value(metric, row)).fold(0.0, f64::max);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * if largest > 0.0 { value / largest } else { 0.0 };
    let height = ROW * group.rows.len() as f64 + 4.0;
    writeln!(out, "<figure>")?;
    caption(out, metric)?;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}: ", Safe(metric.heading))?;
    write!(out, "bars, {}.", direction(metric))?;
    for row in &group.rows {
        let change = group.difference(metric, row).map_or_else(String::new, |difference| format!(" ({difference})"));
        write!(out, " {}: {}{change}.", Safe(&row.label), row.show(metric))?;
    }
    writeln!(out, "\">")?;
    let names = fit_all(&group.labels(), NAME_CHARS);
    for (place, (row, name)) in group.rows.iter().zip(names).enumerate() {
        let y = ROW * place as f64 + 2.0;
        bar(out, group, metric, (row, &name), y, x(value(metric, row)) - LEFT)?;
    }
    if let [first, _, ..] = group.rows.as_slice() {
        let at = x(value(metric, first));
        writeln!(out, "<path class=\"first\" d=\"M{at:.1} 0V{height}\"/>")?;
    }
    writeln!(out, "</svg>\n</figure>")
}

fn bar(
    out: &mut String,
    group: &Group<'_>,
    metric: &Metric,
    (row, name): (&ComparisonRow<'_>, &str),
    y: f64,
    width: f64,
) -> fmt::Result {
    let best = group.is_best(metric, row);
    let class = match (best, row.is_cut()) {
        (true, _) => "bar best",
        (false, true) => "bar cut",
        (false, false) => "bar",
    };
    let text = y + 15.0;
    let shown = metric.show(row.value(metric));
    writeln!(out, "<g><title>{}: {}</title>", Safe(&row.label), row.show(metric))?;
    writeln!(out, "<text x=\"0\" y=\"{text}\">{}</text>", Safe(name))?;
    writeln!(
        out,
        "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>",
        y + (ROW - BAR) / 2.0,
        width.max(1.0)
    )?;
    let weight = if best { " class=\"best\"" } else { "" };
    writeln!(out, "<text x=\"{VALUE}\" y=\"{text}\" text-anchor=\"end\"{weight}>{shown}</text>")?;
    let change = match group.difference(metric, row) {
        Some(Difference::None) => "=".to_owned(),
        Some(Difference::By(change)) => change,
        None => String::new(),
    };
    if !change.is_empty() {
        writeln!(out, "<text class=\"change\" x=\"{WIDTH}\" y=\"{text}\" text-anchor=\"end\">{change}</text>")?;
    }
    writeln!(out, "</g>")
}

/// What can be drawn of a value.
fn value(metric: &Metric, row: &ComparisonRow<'_>) -> f64 {
    Some(row.value(metric)).filter(|value| value.is_finite()).unwrap_or(0.0).max(0.0)
}
