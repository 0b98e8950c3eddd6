//! Settings as dots between two figures, both better the lower they are: a gain in one may cost the other.

use std::fmt::{self, Write};

use super::Provenance;
use super::lines::{axis_step, style};
use super::text::Safe;
use crate::result::Unit;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 262.0;

/// A figure.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// How it is shown.
    pub unit: Unit,
}

/// What a setting is among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// One of those that were tried.
    Tried,
    /// What is set today.
    Today,
    /// What is advised.
    Best,
}

/// A setting.
#[derive(Debug, Clone)]
pub struct PlotPoint {
    /// What it is called.
    pub label: String,
    /// The figures, across and upwards.
    pub at: (f64, f64),
    /// What it is.
    pub rank: Rank,
}

/// Settings between two figures.
#[derive(Debug, Clone)]
pub struct Tradeoff {
    /// Its heading.
    pub heading: String,
    /// The figure across.
    pub across: Figure,
    /// The figure upwards.
    pub upwards: Figure,
    /// The settings.
    pub points: Vec<PlotPoint>,
}

/// One self-contained page: a text as it is printed, then each trade-off as a plot and as a table.
pub fn page(title: &str, text: &str, plots: &[Tradeoff], origin: &Provenance) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, title, text, plots, origin);
    page
}

fn write_page(out: &mut String, title: &str, text: &str, plots: &[Tradeoff], origin: &Provenance) -> fmt::Result {
    super::head(out, (title, ""), origin)?;
    writeln!(out, "</header>\n<main>\n<pre>")?;
    text.lines().try_for_each(|line| writeln!(out, "{}", Safe(line)))?;
    writeln!(out, "</pre>")?;
    plots.iter().try_for_each(|plot| section(out, plot))?;
    writeln!(out, "</main>\n</body>\n</html>")
}

fn section(out: &mut String, plot: &Tradeoff) -> fmt::Result {
    let (across, upwards) = (plot.across.name, plot.upwards.name);
    writeln!(out, "<section>\n<h2>{}</h2>", Safe(&plot.heading))?;
    writeln!(out, "<p>Across: {across}. Upwards: {upwards}. Of both, less is better.</p>")?;
    writeln!(out, "<ul class=\"legend\">")?;
    for rank in [Rank::Today, Rank::Best, Rank::Tried] {
        if plot.points.iter().any(|point| point.rank == rank) {
            write!(out, "<li><svg viewBox=\"0 0 14 12\" width=\"14\" height=\"12\" aria-hidden=\"true\">")?;
            mark(out, rank, (7.0, 6.0))?;
            writeln!(out, "</svg> {}</li>", name(rank))?;
        }
    }
    writeln!(out, "</ul>\n<figure style=\"max-width: 60rem\">")?;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"")?;
    writeln!(out, "{}: dots, {across} and {upwards}; the table below says the same.\">", Safe(&plot.heading))?;
    dots(out, plot)?;
    writeln!(out, "</svg>\n</figure>\n<table>\n<thead>")?;
    writeln!(out, "<tr><th>setting</th><th>{across}</th><th>{upwards}</th></tr>\n</thead>\n<tbody>")?;
    for point in &plot.points {
        let (x, y) = (plot.across.unit.show(point.at.0), plot.upwards.unit.show(point.at.1));
        let rank = if point.rank == Rank::Tried { String::new() } else { format!(" ({})", name(point.rank)) };
        writeln!(out, "<tr><td>{}{rank}</td><td>{x}</td><td>{y}</td></tr>", Safe(&point.label))?;
    }
    writeln!(out, "</tbody>\n</table>\n</section>")
}

fn dots(out: &mut String, plot: &Tradeoff) -> fmt::Result {
    let most =
        |of: fn(&PlotPoint) -> f64| plot.points.iter().map(of).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let scale = |most: f64, unit: &Unit| {
        let step = axis_step(most, unit.step(most));
        (step, (most / step).ceil().max(1.0) * step)
    };
    let (x_step, x_end) = scale(most(|point| point.at.0), &plot.across.unit);
    let (y_step, y_end) = scale(most(|point| point.at.1), &plot.upwards.unit);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * (value / x_end).clamp(0.0, 1.0);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * (value / y_end).clamp(0.0, 1.0);
    for tick in 0..=(x_end / x_step).round() as u32 {
        let (value, at) = (f64::from(tick) * x_step, x(f64::from(tick) * x_step));
        let text = plot.across.unit.show(value);
        writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/>")?;
        writeln!(out, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>", BOTTOM + 18.0)?;
    }
    for tick in 0..=(y_end / y_step).round() as u32 {
        let (value, at) = (f64::from(tick) * y_step, y(f64::from(tick) * y_step));
        let text = plot.upwards.unit.show(value);
        writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>")?;
        writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>", LEFT - 6.0, at + 4.0)?;
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    writeln!(out, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", BOTTOM + 42.0, plot.across.name)?;
    // What counts lies on top.
    for rank in [Rank::Tried, Rank::Today, Rank::Best] {
        for point in plot.points.iter().filter(|point| point.rank == rank && point.at.0.is_finite()) {
            let shown = (plot.across.unit.show(point.at.0), plot.upwards.unit.show(point.at.1));
            write!(out, "<g><title>{}: {}, {}</title>", Safe(&point.label), shown.0, shown.1)?;
            mark(out, rank, (x(point.at.0), y(point.at.1)))?;
            writeln!(out, "</g>")?;
        }
    }
    Ok(())
}

fn name(rank: Rank) -> &'static str {
    match rank {
        Rank::Tried => "tried",
        Rank::Today => "today",
        Rank::Best => "advised",
    }
}

fn mark(out: &mut String, rank: Rank, (x, y): (f64, f64)) -> fmt::Result {
    let shape = match rank {
        Rank::Tried => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        Rank::Today => {
            format!("<rect class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" width=\"9\" height=\"9\"/>", x - 4.5, y - 4.5)
        }
        Rank::Best => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l6 6l-6 6l-6 -6z\"/>", y - 6.0),
    };
    write!(out, "<g class=\"{}\">{shape}</g>", style(rank as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_in_text_what_it_draws_and_nothing_from_outside_ends_an_element() {
        let point = |label: &str, at, rank| PlotPoint { label: label.to_owned(), at, rank };
        let plot = Tradeoff {
            heading: "a < b".to_owned(),
            across: Figure { name: "programs wait", unit: Unit::Seconds },
            upwards: Figure { name: "disk busy", unit: Unit::Seconds },
            points: vec![
                point("kernel", (2.0, 1.0), Rank::Today),
                point("<sweep>", (1.0, 1.0), Rank::Best),
                point("none", (f64::INFINITY, 0.0), Rank::Tried),
            ],
        };
        let origin = Provenance { program: "p".to_owned(), date: "d".to_owned(), command: "c".to_owned() };
        let page = page("t", "line <1>\nline 2\n", &[plot], &origin);
        for part in ["a &lt; b", "line &lt;1&gt;\nline 2", "&lt;sweep&gt; (advised)", "kernel (today)", "programs wait"]
        {
            assert!(page.contains(part), "{part:?} is not in {page}");
        }
        assert_eq!(page.matches("<g><title>").count(), 2, "what has no place is only in the table");
    }
}
