//! Fill levels: `evict` of branches and groups.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use umbrella_policy::placement::Rules;
use umbrella_policy::placement::spec::{EvictOrder, EvictSpec, GroupSpec, RulesSpec};

use super::conditions;
use super::conversion::Conversion;
use super::file::{EvictFile, PoolFile};
use super::problem::Problem;

const ORDERS: [(&str, EvictOrder); 4] = [
    ("oldest", EvictOrder::Oldest),
    ("least-recently-used", EvictOrder::LeastRecentlyUsed),
    ("largest", EvictOrder::Largest),
    ("coldest", EvictOrder::Coldest),
];

/// Converts the fill levels of all branches, then those of groups.
pub(super) fn evicts(c: &mut Conversion, file: &PoolFile, groups: &[GroupSpec]) -> Vec<EvictSpec> {
    let mut evicts = Vec::new();
    for branch in file.branch.iter().map(Spanned::get_ref) {
        let Some(evict) = &branch.evict else { continue };
        if branch.read_only {
            c.fail(evict.span(), Problem::EvictReadOnly);
        }
        let made_here = c.spans.branches.iter().map(|span| *span == branch.path.span());
        let names = c.branch_names().zip(made_here).filter(|(_, made_here)| *made_here);
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        let Some(spec) = spec(c, evict.get_ref()) else { continue };
        evicts.extend(names.into_iter().map(|of| (EvictSpec { of, ..spec.clone() }, evict.span())));
    }
    for group in file.group.iter().map(Spanned::get_ref) {
        let Some(evict) = &group.evict else { continue };
        let Some(spec) = spec(c, evict.get_ref()) else { continue };
        evicts.push((EvictSpec { of: group.name.get_ref().clone(), ..spec }, evict.span()));
    }
    if c.complaints.is_empty() {
        check(c, &evicts, groups);
    }
    let (evicts, spans) = evicts.into_iter().unzip();
    c.spans.evicts = spans;
    evicts
}

fn spec(c: &mut Conversion, file: &EvictFile) -> Option<EvictSpec> {
    let above = c.amount("above", Some(&file.above));
    let until = c.amount("until", Some(&file.until));
    let order = file.order.as_ref().map(|word| order(c, word)).unwrap_or_default();
    let to = file.to.as_ref().map(|to| c.branch_list(to, &[])).unwrap_or_default();
    let only = file.only.as_ref().map(|only| conditions::read(c, only.get_ref())).unwrap_or_default();
    let min_age = c.complaints.duration("min_age", file.min_age.as_ref(), Duration::ZERO);
    let window = c.windows("window", file.window.as_ref());
    Some(EvictSpec { order, to, only, min_age, window, ..EvictSpec::new("", above?, until?) })
}

fn order(c: &mut Conversion, word: &Spanned<String>) -> EvictOrder {
    let found = ORDERS.iter().find(|(known, _)| known == word.get_ref());
    if let Some((_, order)) = found {
        return *order;
    }
    let valid = ORDERS.iter().map(|(word, _)| (*word).to_owned()).collect();
    c.fail(word.span(), Problem::UnknownValue { value: word.get_ref().clone(), valid });
    EvictOrder::default()
}

/// Complains about what contradicts itself, each fill level alone.
fn check(c: &mut Conversion, evicts: &[(EvictSpec, Range<usize>)], groups: &[GroupSpec]) {
    let names = super::ids(c.branch_names());
    for (spec, span) in evicts {
        let alone = RulesSpec { evicts: vec![spec.clone()], groups: groups.to_vec(), ..RulesSpec::default() };
        if let Err(error) = Rules::compile(&alone, &names) {
            c.fail(span.clone(), Problem::Evict { error });
        }
    }
}
