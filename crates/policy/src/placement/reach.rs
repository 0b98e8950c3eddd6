//! Rules that can never match, found without looking at a file.
//!
//! A rule is out of reach when its own conditions contradict each other, or when one earlier rule admits every file that it admits.
//! Only what is certain is reported; a rule that several earlier rules cover together is not found.

use umbrella_units::BranchId;

use super::condition::Test;
use super::domain::{Domain, Fact, Quantity, Reading};
use super::glob::Glob;
use super::rules::{EntryId, Names, Rule, Rules, When};
use super::spec::Offline;

/// A rule, or a pattern of the name table, that can never match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The entry's name.
    pub rule: String,
    /// Why.
    pub reason: String,
    /// It does match while the first branch of the rule that covers it is offline: perhaps that is what it is for.
    pub only_as_fallback: bool,
}

/// An earlier entry, and the files that are sure to fall under it.
struct Cover {
    entry: EntryId,
    sure: Domain,
}

impl Rules {
    /// Entries that no file can ever fall under, in order.
    pub fn unreachable(&self) -> Vec<Unreachable> {
        let mut found = Vec::new();
        let mut covers: Vec<Cover> = Vec::new();
        for rule in &self.ordered {
            match rule {
                Rule::When(when) => {
                    let contradiction = self.contradicts_itself(when);
                    // A rule that takes nothing takes nothing from those behind it.
                    if contradiction.is_none() {
                        found.extend(self.reach_of_rule(when, &covers));
                        covers.push(Cover { entry: when.entry, sure: Domain::new(&when.tests, Reading::Surest) });
                    }
                    found.extend(contradiction);
                }
                Rule::Names(names) => {
                    found.extend(self.reach_of_table(names, &covers));
                    let everything =
                        names.table.by_rank().iter().find(|&&pattern| glob(names, pattern).is_everything());
                    covers.extend(everything.map(|&pattern| Cover {
                        entry: names.entry(pattern),
                        sure: Domain::new(&[], Reading::Surest),
                    }));
                }
            }
        }
        found
    }

    fn contradicts_itself(&self, when: &When) -> Option<Unreachable> {
        let mut possible = Domain::new(&when.tests, Reading::Widest);
        if let Some(fact) = possible.contradiction() {
            let reason = self.contradiction(when, fact);
            return Some(self.out_of_reach(when.entry, reason, false));
        }
        self.require_active(&mut possible, when.entry);
        if possible.contradiction().is_some() {
            let first = self.first_name(when.entry);
            let reason = format!("it wants {first} offline, but is passed over while the first of its list is");
            return Some(self.out_of_reach(when.entry, reason, false));
        }
        None
    }

    fn reach_of_rule(&self, when: &When, covers: &[Cover]) -> Option<Unreachable> {
        let mut possible = Domain::new(&when.tests, Reading::Widest);
        self.require_active(&mut possible, when.entry);
        self.covered(when.entry, &possible, covers)
    }

    fn reach_of_table(&self, names: &Names, covers: &[Cover]) -> Vec<Unreachable> {
        let mut found: Vec<(u32, Unreachable)> = Vec::new();
        let ranked = names.table.by_rank();
        for (rank, &pattern) in ranked.iter().enumerate() {
            let entry = names.entry(pattern);
            let own = glob(names, pattern);
            if own.is_impossible() {
                let reason = "no path matches it".to_owned();
                found.push((pattern, self.out_of_reach(entry, reason, false)));
                continue;
            }
            let mut possible = Domain::new(&[], Reading::Widest);
            self.require_active(&mut possible, entry);
            if let Some(unreachable) = self.covered(entry, &possible, covers) {
                found.push((pattern, unreachable));
                continue;
            }
            if let Some(&other) = ranked[..rank].iter().find(|&&other| glob(names, other).covers(own)) {
                let fallback = self.may_be_passed_over(names.entry(other), &possible);
                let text = &names.globs[other as usize].0;
                let what = if own.covers(glob(names, other)) { "the same paths" } else { "all its paths" };
                let mut reason = format!("pattern \"{text}\" matches {what} and comes first");
                if fallback {
                    reason.push_str(&self.unless_offline(names.entry(other)));
                }
                found.push((pattern, self.out_of_reach(entry, reason, fallback)));
            }
        }
        found.sort_by_key(|(pattern, _)| *pattern);
        found.into_iter().map(|(_, unreachable)| unreachable).collect()
    }

    /// Looks for an earlier entry that takes every file; one that does so always before one that may be offline.
    fn covered(&self, entry: EntryId, possible: &Domain, covers: &[Cover]) -> Option<Unreachable> {
        let fallback = |cover: &Cover| self.may_be_passed_over(cover.entry, possible);
        let cover =
            covers.iter().filter(|cover| possible.is_within(&cover.sure)).min_by_key(|cover| fallback(cover))?;
        let name = &self.entries[cover.entry.index()].name;
        let all = Domain::new(&[], Reading::Widest).is_within(&cover.sure);
        let what = if all { "every file" } else { "every file that this one does" };
        let mut reason = format!("rule \"{name}\" comes first and matches {what}");
        let fallback = fallback(cover);
        if fallback {
            reason.push_str(&self.unless_offline(cover.entry));
        }
        Some(self.out_of_reach(entry, reason, fallback))
    }

    /// Admits only what an entry is not passed over for.
    fn require_active(&self, possible: &mut Domain, entry: EntryId) {
        if let Some(first) = self.first_that_must_be_online(entry) {
            possible.require(first, true);
        }
    }

    fn may_be_passed_over(&self, entry: EntryId, possible: &Domain) -> bool {
        let is_passed = self.entries[entry.index()].offline == Offline::Pass;
        is_passed && self.first_that_must_be_online(entry).is_none_or(|first| !possible.needs_online(first))
    }

    /// The branch or group without which an entry is passed over.
    fn first_that_must_be_online(&self, entry: EntryId) -> Option<BranchId> {
        let info = &self.entries[entry.index()];
        info.to.first().filter(|_| info.offline == Offline::Pass)?.id
    }

    fn unless_offline(&self, entry: EntryId) -> String {
        format!(" (unless {}, the first of its list, is offline)", self.first_name(entry))
    }

    fn out_of_reach(&self, entry: EntryId, reason: String, only_as_fallback: bool) -> Unreachable {
        Unreachable { rule: self.entries[entry.index()].name.clone(), reason, only_as_fallback }
    }

    fn contradiction(&self, when: &When, fact: Fact) -> String {
        let involved: Vec<String> =
            when.tests.iter().filter(|test| concerns(test, fact)).map(|test| self.condition(test)).collect();
        match involved.as_slice() {
            [one] if fact == Fact::Kind => format!("nothing that rules place has {one}"),
            [one] => format!("no file has {one}"),
            several => format!("no file has {} at once", several.join(" and ")),
        }
    }
}

fn glob(names: &Names, pattern: u32) -> &Glob {
    &names.globs[pattern as usize].1
}

fn concerns(test: &Test, fact: Fact) -> bool {
    match (test, fact) {
        (Test::Mode { .. } | Test::Access { .. }, Fact::Mode)
        | (Test::Kind { .. }, Fact::Kind)
        | (Test::Extension { .. }, Fact::Extension)
        | (Test::Size { .. }, Fact::Quantity(Quantity::Size))
        | (Test::Uid { .. }, Fact::Quantity(Quantity::Uid))
        | (Test::Gid { .. }, Fact::Quantity(Quantity::Gid))
        | (Test::Links { .. }, Fact::Quantity(Quantity::Links)) => true,
        (Test::Age { of, .. }, Fact::Quantity(Quantity::Age(other))) => *of == other,
        (
            Test::Space { branch, of, .. },
            Fact::Quantity(Quantity::Space(other, field) | Quantity::Share(other, field)),
        ) => *branch == other && *of == field,
        (Test::Space { branch, .. } | Test::Online { branch, .. }, Fact::Online(other)) => *branch == other,
        _ => false,
    }
}
