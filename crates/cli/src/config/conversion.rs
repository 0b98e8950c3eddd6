//! What turning a configuration file into a pool works with.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use umbrella_fs::spec::{LONGEST_NAME, is_branch_name, is_name};
use umbrella_policy::placement::spec::{ANY, DEFAULT};
use umbrella_policy::schedule::Schedule;
use umbrella_units::Amount;

use super::Spans;
use super::complaints::Complaints;
use super::problem::Problem;
use super::values::{Names, Scalar, all_names};

const DEFAULT_PROBE: Duration = Duration::from_secs(5);

/// What conversion works with: the text, what went wrong so far, and the names of branches and groups.
pub(super) struct Conversion {
    pub(super) complaints: Complaints,
    /// Each branch's name, and the line that it is in.
    pub(super) branches: Vec<(String, usize)>,
    /// Whether each branch's own table has `min_free`.
    pub(super) says_min_free: Vec<bool>,
    pub(super) groups: Vec<String>,
    pub(super) spans: Spans,
}

impl Conversion {
    pub(super) fn fail(&mut self, span: Range<usize>, problem: Problem) {
        self.complaints.fail(span, problem);
    }

    pub(super) fn branch_names(&self) -> impl Iterator<Item = &String> {
        self.branches.iter().map(|(name, _)| name)
    }

    /// The line of a span, for "the first is at line 3".
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        self.complaints.source.place(span.start).line
    }

    /// A list of names of branches and groups: known, not empty, none twice. `words` may be in it too.
    pub(super) fn branch_list(&mut self, names: &Spanned<Names>, words: &[&str]) -> Vec<String> {
        let named = all_names(names);
        if named.is_empty() {
            self.fail(names.span(), Problem::EmptyList { what: "branch" });
        }
        let mut list: Vec<String> = Vec::with_capacity(named.len());
        for (span, name) in named {
            if !words.contains(&name) {
                self.known_branch(span.clone(), name);
            }
            if list.iter().any(|earlier| earlier == name) {
                self.fail(span, Problem::Repeated { name: name.to_owned() });
            } else {
                list.push(name.to_owned());
            }
        }
        list
    }

    /// Complains about a branch or group that does not exist.
    pub(super) fn known_branch(&mut self, span: Range<usize>, name: &str) {
        if !self.branch_names().chain(&self.groups).any(|known| known == name) {
            let valid = self.branch_names().chain(&self.groups).cloned().collect();
            self.fail(span, Problem::UnknownBranch { name: name.to_owned(), valid });
        }
    }

    /// A name for people: a branch's, a group's or a rule's.
    pub(super) fn name(&mut self, what: &'static str, name: &Spanned<String>) -> String {
        let text = name.get_ref();
        let good = if what == "a rule" { is_name(text) } else { is_branch_name(text) };
        if what != "a rule" && [DEFAULT, ANY].contains(&text.as_str()) {
            self.fail(name.span(), Problem::ReservedWord { name: text.clone() });
        } else if !good {
            self.fail(name.span(), Problem::BadName { what, limit: LONGEST_NAME });
        }
        text.clone()
    }

    /// A duration that must not be zero.
    pub(super) fn interval(&mut self, key: &'static str, value: Option<&Spanned<Scalar>>) -> Duration {
        let interval = self.complaints.duration(key, value, DEFAULT_PROBE);
        if let (true, Some(value)) = (interval.is_zero(), value) {
            let given = value.get_ref().text();
            self.fail(value.span(), Problem::OutOfRange { key, given, valid: "longer than zero" });
        }
        interval
    }

    /// An amount of space, in bytes or in percent.
    pub(super) fn amount(&mut self, key: &'static str, value: Option<&Spanned<Scalar>>) -> Option<Amount> {
        let value = value?;
        match value.get_ref().text().parse() {
            Ok(amount) => Some(amount),
            Err(error) => {
                self.fail(value.span(), Problem::Size { key, error });
                None
            }
        }
    }

    /// Hours of the week: one window or a list.
    pub(super) fn windows(&mut self, key: &'static str, given: Option<&Spanned<Names>>) -> Schedule {
        let mut schedule = Schedule::default();
        if let Some(given) = given.filter(|given| all_names(given).is_empty()) {
            self.fail(given.span(), Problem::EmptyList { what: "window, or leave it out for any hour" });
        }
        for (span, text) in given.into_iter().flat_map(all_names) {
            if let Ok(window) = text.parse() {
                schedule.0.push(window);
                continue;
            }
            let examples = "\"02:00-05:00\", \"22:30-06:00\" or \"Sat,Sun 02:00-09:00\"";
            let what = "two different times of the day, with or without days of the week";
            self.fail(span, Problem::BadValue { key, given: text.to_owned(), what, examples });
        }
        schedule
    }
}
