//! What the outcomes of one input come to, in a sentence.

use std::fmt::Write;

use super::super::{Better, METRICS, Metric, Outcome, WrittenBecause, change, metric};
use super::{ComparisonRow, Group};

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
        let complete: Vec<&ComparisonRow<'_>> = self.complete().collect();
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

    /// A sentence for runs that say little about the policies. They say little if age, a sync or the end of the input
    /// was the reason for at least half of the written pages in every complete run.
    pub fn low_influence_note(&self) -> Option<String> {
        let complete = || self.complete().flat_map(|row| &row.outcomes).map(|outcome| &outcome.written_because);
        let least = complete().map(WrittenBecause::unasked_percent).min()?;
        if complete().all(|because| because.pages() == 0) {
            return Some("Nothing was written, so the policies chose nothing.".to_owned());
        }
        let asked = match least {
            HARDLY.. => "chose hardly any pages".to_owned(),
            LITTLE.. => format!("chose at most {} % of them", 100 - least),
            _ => return None,
        };
        Some(format!(
            "At least {least} % of the pages were written because of their age, for a sync, or at the end, so the \
            policies {asked}. Give less --memory or a longer input."
        ))
    }

    /// For a sweep: how often each policy was best, at equal values of the swept parameters.
    fn winners(&self, contexts: &[Vec<&ComparisonRow<'_>>]) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        let mut equal = 0;
        for rows in contexts {
            let decisive = criteria(rows).into_iter().find(|metric| self.differ(metric, rows));
            let Some(best) = decisive.and_then(|metric| ranking(rows, metric).first().copied()) else {
                equal += 1;
                continue;
            };
            let policy = best.setting().policy.as_str();
            match counts.iter_mut().find(|(known, _)| *known == policy) {
                Some((_, count)) => *count += 1,
                None => counts.push((policy, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let all = contexts.len();
        let each: Vec<String> = counts
            .iter()
            .enumerate()
            .map(|(nth, (policy, count))| {
                let of = if nth == 0 { format!(" of {all} points") } else { String::new() };
                format!("\u{201c}{policy}\u{201d} was best at {count}{of}")
            })
            .collect();
        let mut text = format!("Compared at equal values of what was swept: {}", each.join(", "));
        match (equal, counts.len()) {
            (0, _) => text.push('.'),
            (_, 0) => text = format!("{text}no difference at any of {all} points."),
            _ => {
                let _ = write!(text, "; no difference at {equal}.");
            }
        }
        text
    }

    fn winner(&self) -> String {
        let mut contexts: Vec<Vec<&ComparisonRow<'_>>> = Vec::new();
        for row in self.complete() {
            match contexts.iter_mut().find(|rows| self.context(rows[0]) == self.context(row)) {
                Some(rows) => rows.push(row),
                None => contexts.push(vec![row]),
            }
        }
        match contexts.as_slice() {
            [rows] => self.winner_of(rows),
            _ => self.winners(&contexts),
        }
    }

    fn winner_of(&self, rows: &[&ComparisonRow<'_>]) -> String {
        let criteria = criteria(rows);
        let Some(metric) = criteria.iter().copied().find(|metric| self.differ(metric, rows)) else {
            return format!("All {} runs did equally well on {}.", rows.len(), criteria[0].heading);
        };
        let ranking = ranking(rows, metric);
        let ([best, ..], Some(first)) = (ranking.as_slice(), self.rows.first()) else {
            return String::new();
        };
        let is_tied = |row: &ComparisonRow<'_>| self.same(metric, row, best);
        let ties = ranking.iter().filter(|row| is_tied(row)).count();
        let who = if ties > MOST_NAMED {
            format!("{ties} of {} runs did equally well and were", ranking.len())
        } else {
            format!("\u{201c}{}\u{201d} was", best.label)
        };
        let lead = match metric.name {
            "time_s" => format!("{who} fastest with {}", best.show(metric)),
            name if name == criteria[0].name => format!("{who} best on {name} with {}", best.show(metric)),
            _ => format!("{}; {who} best on {} with {}", same(criteria[0], best), metric.heading, best.show(metric)),
        };
        let next = || ranking.iter().copied().find(|row| !is_tied(row));
        let Some(against) = Some(first).filter(|first| !first.is_cut() && !is_tied(first)).or_else(next) else {
            return format!("{lead}.");
        };
        let by = format_change(change(against.value(metric), best.value(metric)).as_deref());
        format!("{lead}, {by} \u{201c}{}\u{201d} ({}).", against.label, against.show(metric))
    }

    /// Whether rows differ in it by more than chance.
    fn differ(&self, metric: &Metric, rows: &[&ComparisonRow<'_>]) -> bool {
        let ranking = ranking(rows, metric);
        let ([best, ..], [.., worst]) = (ranking.as_slice(), ranking.as_slice()) else { return false };
        differ_by_value(rows, metric.of) && !self.same(metric, best, worst)
    }
}

/// The figures that decide, in this order.
fn criteria(rows: &[&ComparisonRow<'_>]) -> [&'static Metric; 4] {
    let names = if differ_by_value(rows, |outcome| outcome.operations as f64) { BY_WORK } else { BY_TIME };
    names.map(|name| metric(name).unwrap_or(&METRICS[0]))
}

/// Whether the means differ by more than a hundredth.
fn differ_by_value(rows: &[&ComparisonRow<'_>], of: impl Fn(&Outcome) -> f64) -> bool {
    let values = || rows.iter().map(|row| row.mean(&of));
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    most - least > SAME * most
}

/// The rows, the best first.
fn ranking<'b, 'a>(rows: &[&'b ComparisonRow<'a>], metric: &Metric) -> Vec<&'b ComparisonRow<'a>> {
    let mut ranking = rows.to_vec();
    ranking.sort_by(|a, b| {
        let (a, b) = (a.value(metric), b.value(metric));
        if metric.better == Better::Higher { b.total_cmp(&a) } else { a.total_cmp(&b) }
    });
    ranking
}

/// That the figure is the same for all.
fn same(metric: &Metric, row: &ComparisonRow<'_>) -> String {
    let did = if metric.name == "time_s" { "took the same time" } else { "had the same throughput" };
    format!("All runs {did}, {}", row.show(metric))
}

/// The change of the best run against another, as text.
fn format_change(change: Option<&str>) -> String {
    match change.map(|change| (change, change.chars().next())) {
        None => "against".to_owned(),
        Some((change, Some('-'))) => format!("{} less than", &change[1..]),
        Some((change, Some('+'))) => format!("{} more than", &change[1..]),
        Some((change, Some('x'))) => format!("{} times as much as", &change[1..]),
        Some(_) => "as good as".to_owned(),
    }
}
