//! Warnings about rules that are no errors: branches that take nothing, comparisons that never hold, patterns that mean
//! something else, reads that change no access time.

use std::ops::Range;
use std::time::Duration;

use umbrella_policy::heat::Opens;
use umbrella_policy::placement::Rules;
use umbrella_policy::placement::spec::{
    ANY, Comparison, Condition, DestinationSpec, EvictOrder, EvictSpec, PathPart, RuleKindSpec, TimeField,
};

use super::Config;
use super::notice::{Notice, Reads, SpannedNotice, Unnoted};
use super::seen::PathFacts;
use crate::text::quoted;

/// Longest time after which `relatime` changes the access time of a file that is read.
const RELATIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Rules and fill levels on access times, and branches where those are not what the rules take them for.
pub(super) fn unnoted_reads(config: &Config, seen: &[PathFacts]) -> Vec<SpannedNotice> {
    // Options of the pool's mount take the place of the branches' own.
    let by_option = config.spec.access_times.update.map(Reads::from);
    let mounted = |reads: Reads| {
        let pairs = config.spec.branches.iter().zip(seen);
        let branches = pairs.filter(|(branch, seen)| by_option.unwrap_or(seen.reads) == reads && !branch.read_only);
        branches.map(|(branch, _)| branch.name.clone()).collect::<Vec<_>>()
    };
    let (noatime, relatime) = (mounted(Reads::Unnoted), mounted(Reads::Relative));
    let mut findings = Vec::new();
    let mut find = |by: String, span: &Range<usize>, branches: Vec<String>, reads| {
        if !branches.is_empty() {
            let notice = Notice::ReadsUnnoted { by, unnoted: Unnoted { branches, reads } };
            findings.push(SpannedNotice { span: span.clone(), notice });
        }
    };
    for (rule, span) in config.spec.rules.rules.iter().zip(&config.spans.rules) {
        let (RuleKindSpec::When { conditions, .. } | RuleKindSpec::Treat { conditions }) = &rule.kind else { continue };
        let limits = Condition::leaves(conditions).into_iter().filter_map(|condition| match condition {
            Condition::Age { of: TimeField::Atime, value, .. } => Some(*value),
            _ => None,
        });
        let Some(shortest) = limits.min() else { continue };
        let by = format!("rule {}", quoted(&rule.name));
        find(by.clone(), span, noatime.clone(), Reads::Unnoted);
        if shortest < RELATIME {
            find(by, span, relatime.clone(), Reads::Relative);
        }
    }
    let compiled = config.rules().ok();
    let evicts = compiled.iter().flat_map(Rules::evicts);
    for evict in evicts.filter(|evict| evict.order == EvictOrder::LeastRecentlyUsed) {
        let mut specs = config.spec.rules.evicts.iter().zip(&config.spans.evicts);
        let Some((_, span)) = specs.find(|(spec, _)| spec.of == evict.of) else { continue };
        let members = evict.members.iter().filter_map(|id| config.spec.branches.get(id.index()));
        let unread = members.filter(|branch| noatime.contains(&branch.name)).map(|branch| branch.name.clone());
        find(format!("evict of {}", quoted(&evict.of)), span, unread.collect(), Reads::Unnoted);
    }
    findings
}

pub(super) fn findings(config: &Config) -> Vec<SpannedNotice> {
    // A group has others than those that take nothing, as far as is known here.
    let read_only = |name: &String| {
        let mut meant = config.spec.branches.iter().filter(|branch| name == ANY || branch.name == *name).peekable();
        meant.peek().is_some() && meant.all(|branch| branch.read_only || !branch.create)
    };
    let only_read_only = |to: &DestinationSpec| !to.branches.is_empty() && to.branches.iter().all(read_only);
    let mut findings = Vec::new();
    let any = [ANY.to_owned()];
    let default = if config.spec.rules.default.is_empty() { &any[..] } else { &config.spec.rules.default };
    let at_default = |notice| SpannedNotice { span: config.spans.default.clone(), notice };
    match default.first().filter(|name| read_only(name)) {
        Some(_) if default.iter().all(read_only) => findings.push(at_default(Notice::DefaultReadOnly)),
        Some(name) => findings.push(at_default(Notice::DefaultBeginsReadOnly { name: name.clone() })),
        None => {}
    }
    for (rule, span) in config.spec.rules.rules.iter().zip(&config.spans.rules) {
        let at_rule = |notice| SpannedNotice { span: span.clone(), notice };
        match &rule.kind {
            RuleKindSpec::When { conditions, to } => {
                if only_read_only(to) {
                    findings.push(at_rule(Notice::RuleReadOnly { rule: rule.name.clone() }));
                }
                findings.extend(warm_rule_without_band(config, &rule.name, conditions, to).into_iter().map(at_rule));
                findings.extend(suspicious_conditions(config, &rule.name, conditions).into_iter().map(at_rule));
            }
            RuleKindSpec::Treat { conditions } => {
                findings.extend(suspicious_conditions(config, &rule.name, conditions).into_iter().map(at_rule));
            }
            RuleKindSpec::Names(entries) => {
                let globs: Vec<String> = entries.iter().map(|entry| entry.glob.clone()).collect();
                for entry in entries {
                    let span = config.spans.globs.get(&entry.glob).unwrap_or(span);
                    let read_only =
                        only_read_only(&entry.to).then(|| Notice::RuleReadOnly { rule: entry.glob.clone() });
                    let notices = suspicious_glob(config, &entry.glob, &globs).into_iter().chain(read_only);
                    findings.extend(notices.map(|notice| SpannedNotice { span: span.clone(), notice }));
                }
            }
        }
    }
    findings
}

/// A rule that takes warm files but does not keep them.
fn warm_rule_without_band(config: &Config, rule: &str, conditions: &[Condition], to: &DestinationSpec) -> Vec<Notice> {
    let bands = Condition::leaves(conditions).into_iter().filter_map(|condition| match condition {
        Condition::Heat { is: Comparison::Greater | Comparison::GreaterOrEqual, hysteresis, .. } => Some(*hysteresis),
        _ => None,
    });
    let Some(narrowest) = bands.min() else { return Vec::new() };
    // Heat does not fall below 0. A wider band is too wide for any value.
    let never_leaves = Condition::leaves(conditions).into_iter().any(|condition| {
        matches!(condition, Condition::Heat { is: Comparison::Greater | Comparison::GreaterOrEqual, value, hysteresis, .. }
            if value == hysteresis && *hysteresis > Opens(0))
    });
    let never_leaves = never_leaves.then(|| Notice::HysteresisTooWide { rule: rule.to_owned() });
    let without_band = (narrowest == Opens(0)).then(|| Notice::WarmWithoutHysteresis { rule: rule.to_owned() });
    let first = to.branches.first();
    let sends_away = |evict: &&EvictSpec| first == Some(&evict.of) && evict.order != EvictOrder::Coldest;
    let against = config.spec.rules.evicts.iter().find(sends_away);
    let against = against.map(|evict| Notice::WarmAgainstEvict { rule: rule.to_owned(), of: evict.of.clone() });
    without_band.into_iter().chain(never_leaves).chain(against).collect()
}

/// Fill levels that nothing can ever lower.
pub(super) fn idle_evicts(config: &Config) -> Vec<SpannedNotice> {
    let Ok(rules) = config.rules() else { return Vec::new() };
    let spans = config.spec.rules.evicts.iter().zip(&config.spans.evicts);
    let idle =
        spans.filter(|(spec, _)| rules.evicts().iter().any(|evict| evict.of == spec.of && !rules.can_evict(evict)));
    let finding = |(spec, span): (&EvictSpec, &Range<usize>)| {
        let notice = Notice::EvictIdle { of: spec.of.clone() };
        SpannedNotice { span: span.clone(), notice }
    };
    idle.map(finding).collect()
}

/// Conditions that hardly mean what they say.
fn suspicious_conditions(config: &Config, rule: &str, conditions: &[Condition]) -> Vec<Notice> {
    let leaves = Condition::leaves(conditions);
    let equality = |condition: &&Condition| matches!(condition, Condition::Age { is: Comparison::Equal, .. });
    let mut odd = Vec::new();
    if leaves.iter().any(equality) {
        odd.push(Notice::AgeEquality { rule: rule.to_owned() });
    }
    for condition in leaves {
        if let Condition::Path { of: PathPart::Path, any_of, .. } = condition {
            odd.extend(any_of.iter().filter_map(|glob| suspicious_glob(config, glob, any_of)));
        }
    }
    odd
}

/// A pattern that probably has another meaning than intended; `all` are the patterns beside it.
fn suspicious_glob(config: &Config, glob: &str, all: &[String]) -> Option<Notice> {
    let inside = glob.strip_prefix(&*config.spec.mount.to_string_lossy()).filter(|inside| inside.starts_with('/'));
    if let Some(inside) = inside {
        return Some(Notice::GlobWithMount { glob: glob.to_owned(), meant: inside.to_owned() });
    }
    let meant = directory_meant(glob).filter(|meant| !all.contains(meant))?;
    Some(Notice::GlobOfDirectory { glob: glob.to_owned(), meant })
}

/// For a pattern that looks like a directory's path, with no wildcard and no dot in its last part: what matches all
/// that is below.
fn directory_meant(glob: &str) -> Option<String> {
    let name = glob.rsplit('/').next().unwrap_or(glob);
    let is_plain = glob.starts_with('/') && !glob.contains(['*', '?', '[', '{', '\\']) && !name.contains('.');
    is_plain.then(|| format!("{glob}/**"))
}
