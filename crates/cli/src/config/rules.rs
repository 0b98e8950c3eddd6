//! Rules: what they are called, and where they send files. `conditions` reads what they ask.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use umbrella_fs::spec::PoolSpec;
use umbrella_policy::placement::spec::{
    ANY, DEFAULT, DestinationSpec, NameEntrySpec, Offline, RuleKindSpec, RuleSpec, RulesSpec, Treatment,
};
use umbrella_policy::placement::{RuleError, Rules};

use super::conditions;
use super::conversion::Conversion;
use super::file::{EntryFile, RuleFile};
use super::problem::Problem;
use super::treatment;
use super::values::Names;

/// Converts every rule.
pub(super) fn rules(c: &mut Conversion, files: &[Spanned<RuleFile>]) -> Vec<RuleSpec> {
    let mut first_lines: HashMap<String, usize> = HashMap::new();
    let mut name_table: Option<usize> = None;
    let mut rules = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let (name, span) = rule_name(c, index, file);
        let line = c.line(&span);
        if let Some(&first_line) = first_lines.get(&name) {
            c.fail(span.clone(), Problem::DuplicateRule { name: name.clone(), first_line });
        } else {
            first_lines.insert(name.clone(), line);
        }
        c.spans.rules.push(span.clone());
        let Some(kind) = rule_kind(c, file.get_ref(), &span) else { continue };
        if let RuleKindSpec::Names(_) = kind {
            match name_table {
                Some(first_line) => c.fail(span, Problem::SecondNameTable { first_line }),
                None => name_table = Some(line),
            }
        }
        let treatment = treatment::read(c, file.get_ref());
        rules.push(RuleSpec { name, kind, treatment });
    }
    rules
}

/// The rule's name, or its number; and where to point when the rule as such is wrong.
fn rule_name(c: &mut Conversion, index: usize, file: &Spanned<RuleFile>) -> (String, Range<usize>) {
    let Some(name) = &file.get_ref().name else {
        let start = file.span().start;
        return (format!("rule {}", index + 1), start..start + "[[rule]]".len());
    };
    if name.get_ref() == "default" {
        c.fail(name.span(), Problem::ReservedName);
    }
    (c.name("a rule", name), name.span())
}

fn rule_kind(c: &mut Conversion, file: &RuleFile, span: &Range<usize>) -> Option<RuleKindSpec> {
    match (&file.when, &file.names) {
        (Some(_), Some(names)) => {
            c.fail(names.span(), Problem::RuleWithBothKinds);
            None
        }
        (None, None) => {
            c.fail(span.clone(), Problem::RuleWithoutKind);
            None
        }
        (Some(when), None) => {
            let conditions = conditions::read(c, when.get_ref());
            if let (None, Some(_)) = (&file.to, treatment::first_key(file)) {
                if let Some(hysteresis) = &when.get_ref().hysteresis {
                    c.fail(hysteresis.span(), Problem::HysteresisWithoutTo);
                }
                if let Some(offline) = &file.offline {
                    c.fail(offline.span(), Problem::OfflineWithoutTo);
                }
                return Some(RuleKindSpec::Treat { conditions });
            }
            let Some(to) = &file.to else {
                let branches = c.branch_names().take(2).cloned().collect();
                c.fail(span.clone(), Problem::RuleWithoutTo { branches });
                return None;
            };
            let to = destination(c, to, file.offline.as_ref().map(|offline| *offline.get_ref()));
            Some(RuleKindSpec::When { conditions, to })
        }
        (None, Some(names)) => {
            if let Some(to) = &file.to {
                c.fail(to.span(), Problem::KeyBesideMatch { key: "to" });
            }
            if let Some(offline) = &file.offline {
                c.fail(offline.span(), Problem::KeyBesideMatch { key: "offline" });
            }
            if let Some((key, span)) = treatment::first_key(file) {
                c.fail(span, Problem::TreatmentBesideMatch { key });
            }
            if names.get_ref().0.is_empty() {
                c.fail(names.span(), Problem::EmptyList { what: "pattern" });
            }
            Some(RuleKindSpec::Names(name_table(c, &names.get_ref().0)))
        }
    }
}

fn name_table(c: &mut Conversion, entries: &[EntryFile]) -> Vec<NameEntrySpec> {
    let mut table = Vec::with_capacity(entries.len());
    for entry in entries {
        let glob = entry.glob.get_ref().clone();
        if let Some(first) = c.spans.globs.get(&glob) {
            let first_line = c.line(first);
            c.fail(entry.glob.span(), Problem::DuplicateGlob { glob: glob.clone(), first_line });
        } else {
            c.spans.globs.insert(glob.clone(), entry.glob.span());
        }
        if conditions::is_hidden(&glob) {
            c.fail(entry.glob.span(), Problem::HiddenPath { glob: glob.clone() });
        }
        table.push(NameEntrySpec { glob, to: destination(c, &entry.to, entry.offline) });
    }
    table
}

fn destination(c: &mut Conversion, to: &Spanned<Names>, offline: Option<Offline>) -> DestinationSpec {
    DestinationSpec { branches: c.branch_list(to, &[DEFAULT, ANY]), offline: offline.unwrap_or_default() }
}

/// Lets the rules compile, which finds bad patterns. Compilation ends at the first mistake, so every pattern goes alone
/// first.
pub(super) fn compile(c: &mut Conversion, spec: &PoolSpec) {
    let names = super::ids(c.branch_names());
    for rule in &spec.rules.rules {
        let RuleKindSpec::Names(entries) = &rule.kind else { continue };
        for entry in entries {
            let kind = RuleKindSpec::Names(vec![entry.clone()]);
            let rule = RuleSpec { name: rule.name.clone(), kind, treatment: Treatment::default() };
            let alone = RulesSpec { rules: vec![rule], ..spec.rules.clone() };
            if let Err(RuleError::BadGlob { glob, reason, .. }) = Rules::compile(&alone, &names) {
                let span = c.spans.globs.get(&glob).cloned().unwrap_or_default();
                c.fail(span, Problem::BadGlob { glob, reason });
            }
        }
    }
    if !c.complaints.is_empty() {
        return;
    }
    if let Err(error) = Rules::compile(&spec.rules, &names) {
        c.fail(0..0, Problem::Rules { error });
    }
}
