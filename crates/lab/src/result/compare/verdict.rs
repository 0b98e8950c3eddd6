//! What the outcomes of one input come to, in a sentence.

use std::fmt::Write;

use super::super::{Better, METRICS, Metric, Outcome, change, metric};
use super::{Group, Row};

/// Figures that differ by less than this share are the same: the input's own pace set them.
const SAME: f64 = 0.01;
/// More runs than these that share the best value are counted, not named.
const MOST_NAMED: usize = 2;
/// What decides where all did the same work: the first figure that differs.
const BY_TIME: [&str; 4] = ["time_s", "write_mean_us", "drained_s", "write_distance"];
/// What decides where some did more than others, because the input ends after a time.
const BY_WORK: [&str; 4] = ["throughput", "operations_per_s", "write_mean_us", "write_distance"];
/// From this share of pages on, in percent, that policies were not asked about, they were asked little; and hardly.
const LITTLE: u64 = 50;
const HARDLY: u64 = 90;

impl Group<'_> {
    /// One sentence: who was best on time (on throughput, where some did more than others), or, where that is the same
    /// for all, on the first figure that differs.
    pub fn verdict(&self) -> String {
        let complete: Vec<&Row<'_>> = self.complete().collect();
        let mut text = match complete.as_slice() {
            [] => "No run was completed.".to_owned(),
            [only] => {
                let time = metric("time_s").map_or_else(String::new, |time| only.show(time));
                format!("\u{201c}{}\u{201d} took {time}.", only.label)
            }
            _ => self.winner(),
        };
        let cut = self.rows.len() - complete.len();
        if cut > 0 {
            let all = self.outcomes().count();
            let _ = write!(text, " {cut} of {all} runs cut short: the figures are those of the part that ran.");
        }
        text
    }

    /// A sentence for runs that say little of the policies: in all that are complete at least half of the pages were
    /// written because of their age, for a sync, or because the input had ended.
    pub fn hardly_asked(&self) -> Option<String> {
        let complete = || self.complete().flat_map(|row| &row.outcomes).map(|outcome| &outcome.written_because);
        let least = complete().map(|because| because.unasked_percent()).min()?;
        if complete().all(|because| because.pages() == 0) {
            return Some("Nothing was written, so no policy was asked.".to_owned());
        }
        let asked = match least {
            HARDLY.. => "were hardly asked".to_owned(),
            LITTLE.. => format!("were asked about {} % at most", 100 - least),
            _ => return None,
        };
        Some(format!(
            "At least {least} % of the pages were written because of their age, for a sync, or at the end, so the policies \
             {asked}: give less --memory or a longer input."
        ))
    }

    fn winner(&self) -> String {
        let criteria = self.criteria();
        let Some(metric) = criteria.iter().copied().find(|metric| self.differs(metric.of)) else {
            return format!("All {} runs did equally well on {}.", self.complete().count(), criteria[0].heading);
        };
        let ranking = self.ranking(metric);
        let ([best, second, ..], Some(first)) = (ranking.as_slice(), self.rows.first()) else {
            return String::new();
        };
        let value = |row: &Row<'_>| metric.show(row.value(metric));
        let ties = ranking.iter().filter(|row| value(row) == value(best)).count();
        let many = ties > MOST_NAMED;
        let who = if many {
            format!("{ties} of {} runs did equally well and were", ranking.len())
        } else {
            format!("\u{201c}{}\u{201d} was", best.label)
        };
        let lead = match metric.name {
            "time_s" => format!("{who} fastest with {}", best.show(metric)),
            name if name == criteria[0].name => format!("{who} best on {name} with {}", best.show(metric)),
            _ => format!("{}; {who} best on {} with {}", same(criteria[0], best), metric.heading, best.show(metric)),
        };
        let against = match ranking.iter().find(|row| value(row) != value(best)) {
            Some(next) if many && value(first) == value(best) => next,
            None if many => return format!("{lead}."),
            _ if best.is(first) => second,
            _ => first,
        };
        let by = lead_of(change(against.value(metric), best.value(metric)).as_deref());
        format!("{lead}, {by} \u{201c}{}\u{201d} ({}).", against.label, against.show(metric))
    }

    /// The figures that decide, in this order.
    fn criteria(&self) -> [&'static Metric; 4] {
        let names = if self.differs(|outcome| outcome.operations as f64) { BY_WORK } else { BY_TIME };
        names.map(|name| metric(name).unwrap_or(&METRICS[0]))
    }

    /// Whether complete runs differ in it by more than chance.
    fn differs(&self, of: impl Fn(&Outcome) -> f64) -> bool {
        let values = || self.complete().map(|row| row.mean(&of));
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        most - least > SAME * most
    }

    /// The complete runs, the best first.
    fn ranking(&self, metric: &Metric) -> Vec<&Row<'_>> {
        let mut ranking: Vec<&Row<'_>> = self.complete().collect();
        ranking.sort_by(|a, b| {
            let (a, b) = (a.value(metric), b.value(metric));
            if metric.better == Better::Higher { b.total_cmp(&a) } else { a.total_cmp(&b) }
        });
        ranking
    }
}

/// That the figure is the same for all.
fn same(metric: &Metric, row: &Row<'_>) -> String {
    let did = if metric.name == "time_s" { "took the same time" } else { "had the same throughput" };
    format!("All runs {did}, {}", row.show(metric))
}

/// A change of the best against another, in words.
fn lead_of(change: Option<&str>) -> String {
    match change.map(|change| (change, change.chars().next())) {
        None => "against".to_owned(),
        Some((change, Some('-'))) => format!("{} less than", &change[1..]),
        Some((change, Some('+'))) => format!("{} more than", &change[1..]),
        Some((change, Some('x'))) => format!("{} times as much as", &change[1..]),
        Some(_) => "as good as".to_owned(),
    }
}
