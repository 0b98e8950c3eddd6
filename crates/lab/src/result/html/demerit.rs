//! Two distributions of response times over each other: the drive's and the model's.

use std::fmt::{self, Write};

use umbrella_units::Nanos;

use super::Provenance;
use super::lines::{axis_step, style};
use super::text::Safe;
use crate::drive::{Demerit, Validation};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 704.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 316.0;
/// Points on a curve.
const POINTS: usize = 400;

/// One self-contained page: the demerit figures, and both curves of all requests, of the reads and of the writes.
pub fn page(title: &str, validation: &Validation, origin: &Provenance) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, title, validation, origin);
    page
}

fn write_page(out: &mut String, title: &str, validation: &Validation, origin: &Provenance) -> fmt::Result {
    super::head(out, (title, ""), origin)?;
    writeln!(
        out,
        "<p class=\"verdict\">Demerit figure: the root mean square of the horizontal distance between the two \
         distributions of response times (Ruemmler and Wilkes, 1994).</p>\n</header>\n<main>"
    )?;
    let parts = [("All requests", &validation.all), ("Reads", &validation.reads), ("Writes", &validation.writes)];
    for (name, demerit) in parts.into_iter().filter(|(_, demerit)| !demerit.measured.is_empty()) {
        section(out, name, demerit)?;
    }
    writeln!(out, "</main>\n</body>\n</html>")
}

fn section(out: &mut String, name: &str, demerit: &Demerit) -> fmt::Result {
    let said = format!(
        "{} requests: demerit {:.3} ms; mean response time {:.3} ms on the drive, {:.3} ms in the model",
        demerit.measured.len(),
        demerit.millis(),
        demerit.measured_mean(),
        demerit.modelled_mean()
    );
    writeln!(out, "<section>\n<h2>{}</h2>\n<p>{}</p>", Safe(name), Safe(&said))?;
    writeln!(out, "<ul class=\"legend\">")?;
    for (place, whose) in ["the drive", "the model"].into_iter().enumerate() {
        write!(out, "<li><svg viewBox=\"0 0 36 12\" width=\"36\" height=\"12\" aria-hidden=\"true\">")?;
        writeln!(out, "<g class=\"{}\"><path class=\"line\" d=\"M0 6H36\"/></g></svg> {whose}</li>", style(place))?;
    }
    writeln!(out, "</ul>\n<figure style=\"max-width: 60rem\">")?;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"")?;
    writeln!(out, "Share of the requests over the response time, two curves: {}.\">", Safe(&said))?;
    curves(out, demerit)?;
    writeln!(out, "</svg>\n</figure>\n</section>")
}

fn curves(out: &mut String, demerit: &Demerit) -> fmt::Result {
    let both = [&demerit.measured, &demerit.modelled];
    // The slowest hundredth may be far out: its half is left out of the picture, not of the figure.
    let longest = both.map(|times| quantile(times, 0.995)).into_iter().fold(0.0, f64::max);
    let step = axis_step(longest, 1.0);
    let end = (longest / step).ceil().max(1.0) * step;
    let x = |millis: f64| LEFT + (RIGHT - LEFT) * (millis / end).clamp(0.0, 1.0);
    let y = |share: f64| BOTTOM - (BOTTOM - TOP) * share;
    for tick in 0..=(end / step).round() as u32 {
        let (millis, middle) = (f64::from(tick) * step, "text-anchor=\"middle\"");
        writeln!(out, "<path class=\"grid\" d=\"M{:.1} {TOP}V{BOTTOM}\"/>", x(millis))?;
        writeln!(out, "<text x=\"{:.1}\" y=\"{}\" {middle}>{millis} ms</text>", x(millis), BOTTOM + 18.0)?;
    }
    for percent in [0, 25, 50, 75, 100] {
        let at = y(f64::from(percent) / 100.0);
        writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>")?;
        writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>", LEFT - 6.0, at + 4.0)?;
    }
    for (place, times) in both.into_iter().enumerate() {
        write!(out, "<g class=\"{}\"><path class=\"line\" d=\"", style(place))?;
        for point in 0..=POINTS {
            let share = point as f64 / POINTS as f64;
            let millis = quantile(times, share);
            if millis > end {
                break;
            }
            write!(out, "{}{:.1} {:.1}", if point == 0 { 'M' } else { 'L' }, x(millis), y(share))?;
        }
        writeln!(out, "\"/></g>")?;
    }
    Ok(())
}

/// The response time that so large a share of the requests does not exceed, in milliseconds.
fn quantile(times: &[Nanos], share: f64) -> f64 {
    let last = times.len().saturating_sub(1);
    times.get((share * last as f64).round() as usize).map_or(0.0, |time| time.0 as f64 / 1e6)
}
