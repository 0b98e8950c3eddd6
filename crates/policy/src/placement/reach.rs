//! Rules that can never match, found without looking at a file.
//!
//! A rule is out of reach when its own conditions contradict each other, or when one earlier rule admits every file
//! that it admits. A rule with alternatives (`any`) is, when each of them is. Only what is certain is reported; a rule
//! that several earlier rules cover together is not found.

use umbrella_units::BranchId;

use super::condition::Test;
use super::domain::{Domain, Fact, Quantity, Reading};
use super::expression::Expression;
use super::glob::Glob;
use super::rules::{ConditionalEntry, EntryId, Names, Rule, Rules};
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
struct Cover<'a> {
    entry: EntryId,
    sure: Vec<Domain<'a>>,
}

impl Cover<'_> {
    /// Whether every file of these domains falls under it.
    fn takes(&self, possible: &[Domain<'_>]) -> bool {
        let takes = |one: &Domain<'_>| self.sure.iter().any(|sure| one.is_within(sure));
        possible.iter().filter(|one| one.contradiction().is_none()).all(takes)
    }
}

impl Rules {
    /// Entries that no file can ever fall under, in order.
    pub fn unreachable(&self) -> Vec<Unreachable> {
        let mut found = Vec::new();
        let mut covers: Vec<Cover<'_>> = Vec::new();
        for rule in &self.ordered {
            match rule {
                Rule::When(when) => {
                    let contradiction = self.contradicts_itself(when);
                    // A rule that takes nothing takes nothing from those behind it.
                    if contradiction.is_none() {
                        found.extend(self.reach_of_rule(when, &covers));
                        let sure = Domain::alternatives(&when.condition, Reading::Surest);
                        covers.push(Cover { entry: when.entry, sure });
                    }
                    found.extend(contradiction);
                }
                Rule::Treat(treat) => {
                    let reason = self.impossible(&treat.condition);
                    found.extend(reason.map(|reason| Unreachable {
                        rule: treat.name.clone(),
                        reason,
                        only_as_fallback: false,
                    }));
                }
                Rule::Names(names) => {
                    found.extend(self.reach_of_table(names, &covers));
                    covers.extend(names.table.by_rank().iter().map(|&pattern| Cover {
                        entry: names.entry(pattern),
                        sure: vec![Domain::of_glob(glob(names, pattern))],
                    }));
                }
            }
        }
        found
    }

    /// Fill levels whose `only` holds for no file, and why.
    pub fn never_evictable(&self) -> Vec<(String, String)> {
        let never = self.evicts.iter().map(|evict| Some((evict.of.clone(), self.impossible(&evict.only)?)));
        never.flatten().collect()
    }

    fn contradicts_itself(&self, when: &ConditionalEntry) -> Option<Unreachable> {
        if let Some(reason) = self.impossible(&when.condition) {
            return Some(self.out_of_reach(when.entry, reason, false));
        }
        let mut possible = Domain::alternatives(&when.condition, Reading::Widest);
        self.require_active(&mut possible, when.entry);
        if possible.iter().all(|one| one.contradiction().is_some()) {
            let first = self.first_name(when.entry);
            let reason = format!("it wants {first} offline, but is passed over while the first of its list is");
            return Some(self.out_of_reach(when.entry, reason, false));
        }
        None
    }

    /// Why a condition can hold for no file; `None` when it can for some, as far as that is sure.
    fn impossible(&self, condition: &Expression) -> Option<String> {
        let possible = Domain::alternatives(condition, Reading::Widest);
        let facts: Vec<Fact<'_>> = possible.iter().map(Domain::contradiction).collect::<Option<_>>()?;
        Some(self.contradiction(condition, &facts))
    }

    fn reach_of_rule(&self, when: &ConditionalEntry, covers: &[Cover<'_>]) -> Option<Unreachable> {
        let mut possible = Domain::alternatives(&when.condition, Reading::Widest);
        self.require_active(&mut possible, when.entry);
        self.covered(when.entry, &possible, covers)
    }

    fn reach_of_table(&self, names: &Names, covers: &[Cover<'_>]) -> Vec<Unreachable> {
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
            let mut possible = [Domain::of_glob(own)];
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
    fn covered(&self, entry: EntryId, possible: &[Domain<'_>], covers: &[Cover<'_>]) -> Option<Unreachable> {
        let fallback = |cover: &Cover<'_>| self.may_be_passed_over(cover.entry, possible);
        let cover = covers.iter().filter(|cover| cover.takes(possible)).min_by_key(|cover| fallback(cover))?;
        let name = &self.entries[cover.entry.index()].name;
        let all = cover.takes(&[Domain::everything()]);
        let what = if all { "every file" } else { "every file that this one does" };
        let mut reason = format!("rule \"{name}\" comes first and matches {what}");
        let fallback = fallback(cover);
        if fallback {
            reason.push_str(&self.unless_offline(cover.entry));
        }
        Some(self.out_of_reach(entry, reason, fallback))
    }

    /// Admits only what an entry is not passed over for.
    fn require_active(&self, possible: &mut [Domain<'_>], entry: EntryId) {
        if let Some(first) = self.first_that_must_be_online(entry) {
            for one in possible {
                one.require(first, true);
            }
        }
    }

    fn may_be_passed_over(&self, entry: EntryId, possible: &[Domain<'_>]) -> bool {
        let is_passed = self.entries[entry.index()].offline == Offline::Pass;
        let needs = |first| possible.iter().all(|one| one.needs_online(first));
        is_passed && self.first_that_must_be_online(entry).is_none_or(|first| !needs(first))
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

    /// Why none of a rule's alternatives can hold; the fact that each of them asks too much of.
    fn contradiction(&self, condition: &Expression, facts: &[Fact<'_>]) -> String {
        let alternatives = condition.alternatives().unwrap_or_default();
        let mut reasons: Vec<String> = Vec::new();
        for (tests, fact) in alternatives.iter().zip(facts) {
            let reason = self.contradiction_in(tests, *fact);
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if reasons.is_empty() { "its `any` has no alternative".to_owned() } else { reasons.join(", and ") }
    }

    fn contradiction_in(&self, tests: &[&Test], fact: Fact<'_>) -> String {
        let involved: Vec<String> =
            tests.iter().filter(|test| concerns(test, fact)).map(|test| self.condition(test)).collect();
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

fn concerns(test: &Test, fact: Fact<'_>) -> bool {
    match (test, fact) {
        (Test::Mode { .. } | Test::Access { .. }, Fact::Mode)
        | (Test::Kind { .. }, Fact::Kind)
        | (Test::Extension { .. }, Fact::Extension)
        | (Test::Path { .. }, Fact::Path)
        | (Test::Size { .. }, Fact::Quantity(Quantity::Size))
        | (Test::Uid { .. }, Fact::Quantity(Quantity::Uid))
        | (Test::Gid { .. }, Fact::Quantity(Quantity::Gid))
        | (Test::Heat { .. }, Fact::Quantity(Quantity::Heat))
        | (Test::Links { .. }, Fact::Quantity(Quantity::Links)) => true,
        (Test::Xattr { name, .. }, Fact::Xattr(other)) => **name == *other,
        (Test::Age { of, .. }, Fact::Quantity(Quantity::Age(other))) => *of == other,
        (
            Test::Space { branch, of, .. },
            Fact::Quantity(Quantity::Space(other, field) | Quantity::Share(other, field)),
        ) => *branch == other && *of == field,
        (Test::Space { branch, .. } | Test::Online { branch, .. }, Fact::Online(other)) => *branch == other,
        _ => false,
    }
}
