//! Contradictions in a rule or a fill level that are no errors. Examples: a list that no file can be placed by, a
//! hysteresis that never lets go, a destination that is the branch itself.

use std::ops::Range;

use umbrella_policy::placement::spec::{
    ANY, Comparison, Condition, DestinationSpec, EvictSpec, Offline, RuleKindSpec, SpaceField,
};
use umbrella_units::Amount;

use super::Config;
use super::notice::{Notice, SpannedNotice};

/// All of a thing, in thousandths of a percent.
const WHOLE: u32 = 100_000;

/// The contradictions of all rules and fill levels.
pub(super) fn findings(config: &Config) -> Vec<SpannedNotice> {
    let mut findings = Vec::new();
    for (rule, span) in config.spec.rules.rules.iter().zip(&config.spans.rules) {
        let at = |span: &Range<usize>, notice| SpannedNotice { span: span.clone(), notice };
        match &rule.kind {
            RuleKindSpec::When { conditions, to } => {
                findings.extend(of_list(&rule.name, to).map(|notice| at(span, notice)));
                findings.extend(of_rule(&rule.name, conditions, to).into_iter().map(|notice| at(span, notice)));
            }
            RuleKindSpec::Treat { .. } => {}
            RuleKindSpec::Names(entries) => {
                for entry in entries {
                    let span = config.spans.globs.get(&entry.glob).unwrap_or(span);
                    findings.extend(of_list(&entry.glob, &entry.to).map(|notice| at(span, notice)));
                }
            }
        }
    }
    findings.extend(of_evicts(config));
    findings
}

fn of_list(rule: &str, to: &DestinationSpec) -> Option<Notice> {
    let begins_with_any = to.branches.first().is_some_and(|first| first == ANY);
    (begins_with_any && to.offline != Offline::Next).then(|| Notice::OfflineOfAny { rule: rule.to_owned() })
}

fn of_rule(rule: &str, conditions: &[Condition], to: &DestinationSpec) -> Vec<Notice> {
    let rule = || rule.to_owned();
    let wants_offline = |name: &String| {
        conditions.iter().any(|one| matches!(one, Condition::Online { branch, value: false } if branch == name))
    };
    let mut notices = Vec::new();
    if to.branches.iter().all(wants_offline) {
        notices.push(Notice::OnlyWhileOffline { rule: rule() });
    }
    let mut thresholds = Vec::new();
    for condition in conditions {
        collect(condition, false, &mut thresholds);
    }
    if thresholds.iter().any(Threshold::is_too_wide) {
        notices.push(Notice::HysteresisTooWide { rule: rule() });
    }
    let swings = |threshold: &&Threshold| threshold.space.is_some() && threshold.hysteresis == 0;
    if let Some(key) = thresholds.iter().find(swings).and_then(|threshold| threshold.space) {
        notices.push(Notice::SpaceWithoutHysteresis { rule: rule(), key });
    }
    notices
}

/// A comparison with a number, and its hysteresis in the same unit.
struct Threshold {
    is: Comparison,
    value: u128,
    hysteresis: u128,
    /// The most that there can be, where that is known.
    most: Option<u128>,
    /// The key, where it is of space or inodes.
    space: Option<&'static str>,
}

impl Threshold {
    /// Whether a file that came because of it never leaves.
    fn is_too_wide(&self) -> bool {
        match self.is {
            Comparison::Greater | Comparison::GreaterOrEqual => self.hysteresis > self.value,
            Comparison::Less | Comparison::LessOrEqual => {
                self.hysteresis > 0 && self.most.is_some_and(|most| self.value + self.hysteresis > most)
            }
            Comparison::Equal | Comparison::NotEqual => false,
        }
    }
}

fn collect(condition: &Condition, negated: bool, thresholds: &mut Vec<Threshold>) {
    let mut push = |is: Comparison, [value, hysteresis]: [u128; 2], most, space| {
        let is = if negated { is.negated() } else { is };
        thresholds.push(Threshold { is, value, hysteresis, most, space });
    };
    match condition {
        Condition::Size { is, value, hysteresis } => push(*is, [value.0.into(), hysteresis.0.into()], None, None),
        Condition::Heat { is, value, hysteresis } => push(*is, [value.0.into(), hysteresis.0.into()], None, None),
        Condition::Age { is, value, hysteresis, .. } => {
            push(*is, [value.as_nanos(), hysteresis.as_nanos()], None, None);
        }
        Condition::Space { of, is, value, hysteresis, .. } => {
            let key = match of {
                SpaceField::Free => "free",
                SpaceField::Used => "used",
                SpaceField::Inodes => "inodes",
            };
            match (value, hysteresis) {
                (Amount::Bytes(value), Amount::Bytes(band)) => {
                    push(*is, [value.0.into(), band.0.into()], None, Some(key));
                }
                (Amount::MilliPercent(value), Amount::MilliPercent(band)) => {
                    push(*is, [(*value).into(), (*band).into()], Some(WHOLE.into()), Some(key));
                }
                // Without the branch's size they cannot be compared.
                (_, band) => push(*is, [u128::MAX / 2, u128::from(!band.is_zero())], None, Some(key)),
            }
        }
        Condition::Not(inner) => collect(inner, !negated, thresholds),
        Condition::All(inner) | Condition::Any(inner) => {
            for condition in inner {
                collect(condition, negated, thresholds);
            }
        }
        _ => {}
    }
}

fn of_evicts(config: &Config) -> Vec<SpannedNotice> {
    let Ok(rules) = config.rules() else { return Vec::new() };
    let never = rules.never_evictable();
    let members =
        |name: &String| rules.groups().iter().find(|group| group.name == *name).map(|group| group.members.as_slice());
    let mut findings = Vec::new();
    for (spec, span) in config.spec.rules.evicts.iter().zip(&config.spans.evicts) {
        let EvictSpec { of, to, .. } = spec;
        let mut note = |notice| findings.push(SpannedNotice { span: span.clone(), notice });
        if let Some((_, reason)) = never.iter().find(|(other, _)| other == of) {
            note(Notice::EvictsNothing { of: of.clone(), reason: reason.clone() });
        }
        let leaves = rules.evicts().iter().find(|evict| evict.of == *of).map_or(&[][..], |evict| &evict.members);
        let comes_back = |name: &&String| members(name).is_some_and(|to| to.iter().any(|id| leaves.contains(id)));
        if let Some(group) = to.iter().find(comes_back) {
            note(Notice::EvictIntoOwnGroup { of: of.clone(), group: group.clone() });
        }
    }
    findings
}
