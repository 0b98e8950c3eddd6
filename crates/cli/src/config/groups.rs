//! Groups: their members, how they spread files, and what they keep together.

use std::ops::Range;

use toml::Spanned;
use umbrella_fs::spec::BranchSpec;
use umbrella_policy::placement::spec::{GroupSpec, Narrow, Spread, SpreadOrder, TogetherFull};
use umbrella_policy::placement::{RuleError, Rules};
use umbrella_units::Amount;

use super::conversion::Conversion;
use super::file::GroupFile;
use super::problem::Problem;
use super::values::{Names, Patterns, all_names};

const ORDERS: [(&str, SpreadOrder); 9] = [
    ("most-free", SpreadOrder::MostFree),
    ("most-free-share", SpreadOrder::MostFreeShare),
    ("least-free", SpreadOrder::LeastFree),
    ("least-used", SpreadOrder::LeastUsed),
    ("in-order", SpreadOrder::InOrder),
    ("round-robin", SpreadOrder::RoundRobin),
    ("random", SpreadOrder::Random),
    ("random-by-free", SpreadOrder::RandomByFree),
    ("high-water", SpreadOrder::HighWater),
];
const NARROW: [(&str, Narrow); 3] =
    [("same-path", Narrow::SamePath), ("only-same-path", Narrow::OnlySamePath), ("nearest-path", Narrow::NearestPath)];
/// More components than paths have.
const MOST_COMPONENTS: i64 = 100;

/// Notes the names of all groups, so that lists may use them, and complains about those that are taken.
pub(super) fn names(c: &mut Conversion, files: &[Spanned<GroupFile>]) {
    let mut taken = c.branches.clone();
    for file in files.iter().map(Spanned::get_ref) {
        let name = c.name("a group", &file.name);
        match taken.iter().find(|(known, _)| *known == name) {
            Some((_, first_line)) => {
                let problem = Problem::DuplicateGroup { name: name.clone(), first_line: *first_line };
                c.fail(file.name.span(), problem);
            }
            None => taken.push((name.clone(), c.line(&file.name.span()))),
        }
        c.groups.push(name);
    }
}

/// Converts every group; those that cannot be are complained about where their mistake is.
pub(super) fn groups(c: &mut Conversion, files: &[Spanned<GroupFile>]) -> Vec<GroupSpec> {
    let groups: Vec<GroupSpec> = files.iter().map(|file| group(c, file.get_ref())).collect();
    if !c.complaints.is_empty() {
        return groups;
    }
    for error in Rules::compile_groups(&groups, &super::ids(c.branch_names())).err().unwrap_or_default() {
        let span = span_of(files, &error);
        let problem = match error {
            RuleError::UnknownMember { item, known, .. } => Problem::UnknownBranch { name: item, valid: known },
            error => Problem::Group { error },
        };
        c.fail(span, problem);
    }
    groups
}

/// `min_free` of a group holds for its members that say none themselves. Of several groups the first counts.
pub(super) fn keep_free(
    c: &mut Conversion,
    files: &[Spanned<GroupFile>],
    groups: &[GroupSpec],
    branches: &mut [BranchSpec],
) {
    let amounts = files.iter().map(|file| c.amount("min_free", file.get_ref().min_free.as_ref()));
    let amounts: Vec<Option<Amount>> = amounts.collect();
    if !c.complaints.is_empty() || amounts.iter().all(Option::is_none) {
        return;
    }
    let Ok(groups) = Rules::compile_groups(groups, &super::ids(c.branch_names())) else { return };
    // From the last to the first, which then counts.
    for (amount, group) in amounts.into_iter().zip(groups).rev() {
        let Some(amount) = amount else { continue };
        for (index, branch) in branches.iter_mut().enumerate() {
            let is_member = group.members.iter().any(|member| member.index() == index);
            if is_member && c.says_min_free.get(index) == Some(&false) {
                branch.min_free = amount;
            }
        }
    }
}

fn group(c: &mut Conversion, file: &GroupFile) -> GroupSpec {
    if let (None, Some(spill)) = (&file.together, &file.together_spill) {
        c.fail(spill.span(), Problem::SpillWithoutTogether);
    }
    let spills = file.together_spill.as_ref().is_none_or(|spill| *spill.get_ref());
    let branches = all_names(&file.branches).into_iter().map(|(_, name)| name.to_owned()).collect();
    GroupSpec {
        name: file.name.get_ref().clone(),
        branches,
        spread: file.spread.as_ref().map(|words| spread(c, words)).unwrap_or_default(),
        together: file.together.as_ref().map(|patterns| together(c, patterns)).unwrap_or_default(),
        together_full: if spills { TogetherFull::Spill } else { TogetherFull::NoRoom },
    }
}

fn spread(c: &mut Conversion, words: &Spanned<Names>) -> Spread {
    let order = |word: &str| ORDERS.iter().find(|(known, _)| *known == word).map(|(_, order)| *order);
    let narrow = |word: &str| NARROW.iter().find(|(known, _)| *known == word).map(|(_, narrow)| *narrow);
    let named = all_names(words);
    for (span, word) in &named {
        if order(word).is_none() && narrow(word).is_none() {
            let valid = ORDERS.iter().map(|(word, _)| word).chain(NARROW.iter().map(|(word, _)| word));
            let valid = valid.map(|word| (*word).to_owned()).collect();
            c.fail(span.clone(), Problem::UnknownValue { value: (*word).to_owned(), valid });
            return Spread::default();
        }
    }
    let spread = match named.as_slice() {
        [(_, one)] => match narrow(one) {
            Some(narrow) => Some(Spread { narrow: Some(narrow), ..Spread::default() }),
            None => order(one).map(|order| Spread { narrow: None, order }),
        },
        [(_, first), (_, second)] => {
            narrow(first).zip(order(second)).map(|(narrow, order)| Spread { narrow: Some(narrow), order })
        }
        _ => None,
    };
    spread.unwrap_or_else(|| {
        c.fail(words.span(), Problem::SpreadWords);
        Spread::default()
    })
}

fn together(c: &mut Conversion, patterns: &Spanned<Patterns>) -> Vec<String> {
    match patterns.get_ref() {
        Patterns::Depth(depth) if (1..=MOST_COMPONENTS).contains(depth) => vec!["/*".repeat(*depth as usize)],
        Patterns::Depth(depth) => {
            let (given, valid) = (depth.to_string(), "1 to 100 components, or patterns of directories");
            c.fail(patterns.span(), Problem::OutOfRange { key: "together", given, valid });
            Vec::new()
        }
        Patterns::List(Names::List(none)) if none.is_empty() => {
            c.fail(patterns.span(), Problem::EmptyList { what: "pattern" });
            Vec::new()
        }
        Patterns::List(Names::One(one)) => vec![one.clone()],
        Patterns::List(Names::List(list)) => list.iter().map(|one| one.get_ref().clone()).collect(),
    }
}

/// Where a mistake of a group is.
fn span_of(files: &[Spanned<GroupFile>], error: &RuleError) -> Range<usize> {
    let of = |group: &str| files.iter().map(Spanned::get_ref).find(|file| file.name.get_ref() == group);
    let item_at = |group: &str, item: &str| {
        let names = all_names(&of(group)?.branches);
        names.into_iter().find(|(_, name)| *name == item).map(|(span, _)| span)
    };
    let found = match error {
        RuleError::UnknownMember { group, item, .. }
        | RuleError::GroupInItself { group, item }
        | RuleError::MatchesNothing { group, item, .. }
        | RuleError::LeavesNothingOut { group, item }
        | RuleError::BadMembers { group, item, .. } => item_at(group, item),
        RuleError::EmptyGroup { group } => of(group).map(|file| file.branches.span()),
        RuleError::BadTogether { group, .. } => of(group).and_then(|file| Some(file.together.as_ref()?.span())),
        RuleError::NameTaken { group } | RuleError::ReservedName { name: group } => {
            of(group).map(|file| file.name.span())
        }
        _ => None,
    };
    found.unwrap_or_default()
}
