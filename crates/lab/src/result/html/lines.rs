//! A figure over the values of a swept parameter, one line a policy. The values are at equal distances, in ascending
//! order. The other axis begins at zero, unless all lines would lie in a tenth of the chart.

use std::fmt::{self, Write};

use super::super::{Metric, SweepResult};
use super::text::{Safe, caption, direction, fit_all};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 404.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 222.0;
/// Number of colours, marks and dashes before they repeat; together they repeat after 84 lines.
const COLOURS: usize = 7;
const SHAPES: usize = 4;
const DASHES: usize = 3;
/// Lines within this share of the chart show nothing there.
const FLAT: f64 = 0.1;
/// Figures within this share of each other are the same.
const SAME: f64 = 0.01;
/// About this many characters fit on the axis.
const AXIS_CHARS: usize = 54;

/// Which line is whose.
pub(super) fn legend(out: &mut String, sweep: &SweepResult<'_>) -> fmt::Result {
    writeln!(out, "<ul class=\"legend\">")?;
    for (place, series) in sweep.series.iter().enumerate() {
        write!(out, "<li><svg viewBox=\"0 0 36 12\" width=\"36\" height=\"12\" aria-hidden=\"true\">")?;
        write!(out, "<g class=\"{}\"><path class=\"line\" d=\"M0 6H36\"/>", style(place))?;
        mark(out, place, 18.0, 6.0)?;
        writeln!(out, "</g></svg> {}</li>", Safe(&series.label))?;
    }
    writeln!(out, "</ul>")
}

/// The chart of one figure.
pub(super) fn chart(out: &mut String, sweep: &SweepResult<'_>, metric: &Metric) -> fmt::Result {
    let values = || sweep.series.iter().flat_map(|series| &series.points).map(|(_, row)| row.value(metric));
    let axis = Axis::of(values().filter(|value| value.is_finite()), metric);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * ((value - axis.first) / (axis.last - axis.first)).clamp(0.0, 1.0);
    let x = |place: usize| match sweep.values.len() {
        0 | 1 => f64::midpoint(LEFT, RIGHT),
        many => LEFT + 14.0 + (RIGHT - LEFT - 28.0) * place as f64 / (many - 1) as f64,
    };
    writeln!(out, "<figure>")?;
    caption(out, metric)?;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"")?;
    write!(out, "{} over {}: lines, {}.", Safe(metric.heading), Safe(sweep.name), direction(metric))?;
    if axis.first > 0.0 {
        write!(out, " The axis begins at {}.", metric.show(axis.first))?;
    }
    for series in &sweep.series {
        write!(out, " {}:", Safe(&series.label))?;
        for (place, row) in &series.points {
            write!(out, " {} at {};", row.show(metric), Safe(sweep.values[*place]))?;
        }
    }
    writeln!(out, "\">")?;
    axes(out, sweep, metric, &axis, (&x, &y))?;
    for (number, series) in sweep.series.iter().enumerate() {
        let points: Vec<(f64, f64, &str, String)> = series
            .points
            .iter()
            .map(|(place, row)| (*place, row.value(metric), row.show(metric)))
            .filter(|(_, value, _)| value.is_finite())
            .map(|(place, value, shown)| (x(place), y(value), sweep.values[place], shown))
            .collect();
        write!(out, "<g class=\"{}\"><path class=\"line\" d=\"", style(number))?;
        for (at, (x, y, ..)) in points.iter().enumerate() {
            write!(out, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' })?;
        }
        writeln!(out, "\"/>")?;
        for (x, y, value, figure) in points {
            let label = Safe(&series.label);
            write!(out, "<g><title>{label}, {}: {figure}</title>", Safe(value))?;
            mark(out, number, x, y)?;
            writeln!(out, "</g>")?;
        }
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>\n</figure>")
}

type ToPixels<'a> = &'a dyn Fn(f64) -> f64;

fn axes(
    out: &mut String,
    sweep: &SweepResult<'_>,
    metric: &Metric,
    axis: &Axis,
    (x, y): (&dyn Fn(usize) -> f64, ToPixels<'_>),
) -> fmt::Result {
    for tick in 0..=((axis.last - axis.first) / axis.step).round() as u32 {
        let value = axis.first + f64::from(tick) * axis.step;
        let at = y(value);
        writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>")?;
        let text = metric.show(value);
        writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>", LEFT - 6.0, at + 4.0)?;
    }
    let each = AXIS_CHARS / sweep.values.len().max(1);
    // Too many values for readable labels: every other one, every third one, ...
    let every = 5_usize.div_ceil(each.max(1));
    let texts = fit_all(&sweep.values, (each * every).max(3));
    for (place, text) in texts.iter().enumerate().step_by(every) {
        let at = x(place);
        writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {BOTTOM}v4\"/>")?;
        writeln!(out, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", BOTTOM + 18.0, Safe(text))?;
    }
    Ok(())
}

/// The axis of a figure: from, to, and how far its lines are apart.
#[derive(Debug)]
struct Axis {
    first: f64,
    last: f64,
    step: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, metric: &Metric) -> Axis {
        let (least, largest) =
            values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        let unit = metric.unit.step(largest);
        let step = axis_step(largest, unit);
        let last = (largest / step).ceil().max(1.0) * step;
        let range = largest - least;
        // Lines that are apart by less are the same.
        if !(SAME * largest..FLAT * last).contains(&range) {
            return Axis { first: 0.0, last, step };
        }
        let mut step = axis_step(range, unit);
        // Each line of the axis has a text of its own.
        while metric.show(largest) == metric.show(largest - step) && step < largest {
            step *= 2.0;
        }
        let first = (least / step).floor() * step;
        let last = ((largest / step).ceil() * step).max(first + step);
        Axis { first, last, step }
    }
}

/// A step of 1, 2 or 5 times a power of ten of the unit's own round number, so that at most six reach the largest
/// value.
pub(super) fn axis_step(largest: f64, unit: f64) -> f64 {
    if largest <= 0.0 || !largest.is_finite() {
        return unit;
    }
    let least = largest / unit / 6.0;
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least).unwrap_or(10.0);
    factor * power * unit
}

pub(super) fn style(place: usize) -> String {
    format!("c{} d{}", place % COLOURS, place % DASHES)
}

fn mark(out: &mut String, place: usize, x: f64, y: f64) -> fmt::Result {
    match place % SHAPES {
        0 => write!(out, "<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
        1 => write!(out, "<rect class=\"mark\" x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"/>", x - 3.5, y - 3.5),
        2 => write!(out, "<path class=\"mark\" d=\"M{x:.1} {:.1}l4.6 8h-9.2z\"/>", y - 4.8),
        _ => write!(out, "<path class=\"mark\" d=\"M{x:.1} {:.1}l4.8 4.8l-4.8 4.8l-4.8 -4.8z\"/>", y - 4.8),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::metric;
    use super::{Axis, axis_step};

    #[test]
    fn the_axis_begins_at_zero_unless_the_lines_would_lie_in_a_tenth_of_it() {
        let axis = |values: &[f64]| {
            let axis = Axis::of(values.iter().copied(), metric("time_s").unwrap());
            (axis.first, axis.last)
        };
        assert_eq!(axis(&[1.0, 10.0]), (0.0, 10.0));
        assert_eq!(axis(&[8.5, 10.0]), (0.0, 10.0));
        assert_eq!(axis(&[100.0, 103.0, 107.0]), (100.0, 108.0));
        assert_eq!(axis(&[100.0, 100.5]), (0.0, 100.0 + 20.0), "less than a hundredth is no difference");
        assert_eq!(axis(&[]), (0.0, 1.0));
    }

    #[test]
    fn an_axis_has_up_to_six_round_steps() {
        let cases = [(1.0, 1.0, 0.2), (3.9, 1.0, 1.0), (187.0, 1.0, 50.0), (4096.0, 1024.0, 1024.0), (0.0, 1.0, 1.0)];
        for (largest, unit, step) in cases {
            let got = axis_step(largest, unit);
            assert!((got - step).abs() < 1e-9, "{largest}: {got}");
        }
        for largest in [1e-9, 0.07, 1.0, 99.0, 12_345.0, 1e15] {
            let steps = largest / axis_step(largest, 1.0);
            assert!((2.4..=6.01).contains(&steps), "{largest}: {steps}");
        }
    }
}
