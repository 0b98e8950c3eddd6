//! Rules and their conditions.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use nix::unistd::{Group, User};
use toml::Spanned;
use umbrella_fs::spec::PoolSpec;
use umbrella_policy::placement::spec::{
    ANY, Access, Comparison, Condition, DEFAULT, DestinationSpec, FileKind, NameEntrySpec, Offline, RuleKindSpec,
    RuleSpec, RulesSpec, SpaceField, TimeField,
};
use umbrella_policy::placement::{RuleError, Rules};
use umbrella_units::{Amount, ByteSize, parse_duration};

use super::conversion::Conversion;
use super::file::{EntryFile, PerBranch, RuleFile, WhenFile};
use super::problem::Problem;
use super::values::{ModeValues, Names, Scalar, Values, all_names, all_values, comparison, each_value};

/// All permission bits.
const ALL_BITS: u32 = 0o7777;
const SIZE_EXAMPLES: &str = "\">= 100KiB\" or [\">= 1MiB\", \"< 1GiB\"]";

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
        rules.push(RuleSpec { name, kind });
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
            let conditions = conditions(c, when.get_ref());
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
        table.push(NameEntrySpec { glob, to: destination(c, &entry.to, entry.offline) });
    }
    table
}

fn destination(c: &mut Conversion, to: &Spanned<Names>, offline: Option<Offline>) -> DestinationSpec {
    DestinationSpec { branches: c.branch_list(to, &[DEFAULT, ANY]), offline: offline.unwrap_or_default() }
}

fn conditions(c: &mut Conversion, when: &WhenFile) -> Vec<Condition> {
    let hysteresis = Hysteresis::read(c, when);
    let mut conditions = Vec::new();
    if let Some(values) = &when.size {
        for (is, value) in parsed(c, "size", values, size_of) {
            conditions.push(Condition::Size { is, value, hysteresis: hysteresis.size });
        }
    }
    ids(c, when, &mut conditions);
    if let Some(mode) = &when.mode {
        modes(c, mode, &mut conditions);
    }
    if let Some(access) = &when.access {
        conditions.extend(access_type(c, access));
    }
    if let Some(kinds) = &when.kind {
        conditions.extend(file_kinds(c, kinds));
    }
    if let Some(extensions) = &when.extension {
        conditions.extend(extension(c, extensions));
    }
    let ages = [
        ("atime", TimeField::Atime, &when.atime),
        ("mtime", TimeField::Mtime, &when.mtime),
        ("ctime", TimeField::Ctime, &when.ctime),
        ("btime", TimeField::Btime, &when.btime),
    ];
    for (key, of, values) in ages {
        let Some(values) = values else { continue };
        for (is, value) in parsed(c, key, values, age_of) {
            conditions.push(Condition::Age { of, is, value, hysteresis: hysteresis.age });
        }
    }
    if let Some(values) = &when.links {
        for (is, value) in parsed(c, "links", values, number_of) {
            conditions.push(Condition::Links { is, value });
        }
    }
    space(c, SpaceField::Free, &when.free, hysteresis.space, &mut conditions);
    space(c, SpaceField::Used, &when.used, hysteresis.space, &mut conditions);
    for (names, value) in [(&when.online, true), (&when.offline, false)] {
        let Some(names) = names else { continue };
        let branches = c.branch_list(names, &[]);
        conditions.extend(branches.into_iter().map(|branch| Condition::Online { branch, value }));
    }
    conditions
}

/// Parses each value of a condition, and reports those that cannot be read.
fn parsed<T>(
    c: &mut Conversion,
    key: &'static str,
    values: &Spanned<Values>,
    read: impl Fn(&'static str, &str) -> Result<T, Problem>,
) -> Vec<(Comparison, T)> {
    let given = all_values(values);
    if given.is_empty() {
        c.fail(values.span(), Problem::EmptyList { what: "comparison" });
    }
    let mut list = Vec::with_capacity(given.len());
    for (span, value) in given {
        let (is, rest) = value.comparison();
        match read(key, &rest) {
            Ok(value) => list.push((is, value)),
            Err(problem) => c.fail(span, problem),
        }
    }
    list
}

fn size_of(key: &'static str, text: &str) -> Result<ByteSize, Problem> {
    if text.is_empty() {
        let what = "a size";
        return Err(Problem::BadValue { key, given: String::new(), what, examples: SIZE_EXAMPLES });
    }
    text.parse().map_err(|error| Problem::Size { key, error })
}

fn amount_of(key: &'static str, text: &str) -> Result<Amount, Problem> {
    text.parse().map_err(|error| Problem::Size { key, error })
}

fn age_of(key: &'static str, text: &str) -> Result<Duration, Problem> {
    parse_duration(text).map_err(|error| Problem::Duration { key, error })
}

fn number_of(key: &'static str, text: &str) -> Result<u32, Problem> {
    text.parse().map_err(|_| Problem::BadValue {
        key,
        given: text.to_owned(),
        what: "a whole number from 0 to 4294967295",
        examples: "1000 or \">= 1000\"",
    })
}

fn ids(c: &mut Conversion, when: &WhenFile, conditions: &mut Vec<Condition>) {
    if let Some(values) = &when.uid {
        conditions
            .extend(parsed(c, "uid", values, number_of).into_iter().map(|(is, value)| Condition::Uid { is, value }));
    }
    if let Some(values) = &when.gid {
        conditions
            .extend(parsed(c, "gid", values, number_of).into_iter().map(|(is, value)| Condition::Gid { is, value }));
    }
    if let Some(user) = &when.user {
        let found = account(c, "user", "uid", user, |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())));
        conditions.extend(found.map(|(is, value)| Condition::Uid { is, value }));
    }
    if let Some(group) = &when.group {
        let found =
            account(c, "group", "gid", group, |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())));
        conditions.extend(found.map(|(is, value)| Condition::Gid { is, value }));
    }
}

fn account(
    c: &mut Conversion,
    key: &'static str,
    number_key: &'static str,
    given: &Spanned<String>,
    find: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Option<(Comparison, u32)> {
    let (is, name) = comparison(given.get_ref());
    if !is_equality(is) {
        c.fail(given.span(), Problem::OnlyEquality { key });
        return None;
    }
    // The lookup takes C strings, which end at a NUL.
    let found = if name.contains('\0') { Ok(None) } else { find(name) };
    let name = name.to_owned();
    let problem = match found {
        Ok(Some(id)) => return Some((is, id)),
        Ok(None) => Problem::UnknownAccount { what: key, name, number_key },
        Err(error) => Problem::AccountLookup { what: key, name, reason: error.desc().to_owned() },
    };
    c.fail(given.span(), problem);
    None
}

fn is_equality(is: Comparison) -> bool {
    matches!(is, Comparison::Equal | Comparison::NotEqual)
}

fn modes(c: &mut Conversion, mode: &Spanned<ModeValues>, conditions: &mut Vec<Condition>) {
    match mode.get_ref() {
        ModeValues::Values(values) => {
            let given = each_value(values, mode.span());
            if given.is_empty() {
                c.fail(mode.span(), Problem::EmptyList { what: "comparison" });
            }
            for (span, value) in given {
                conditions.extend(mode_value(c, span, value, ALL_BITS));
            }
        }
        ModeValues::Masked(mask) => {
            let bits = Scalar::Text(mask.bits.get_ref().clone());
            let is = Scalar::Text(mask.is.get_ref().clone());
            match octal(&bits) {
                Some((Comparison::Equal, bits)) if bits != 0 => {
                    conditions.extend(mode_value(c, mask.is.span(), &is, bits));
                }
                _ => c.fail(mask.bits.span(), bad_mode(&bits)),
            }
        }
    }
}

fn mode_value(c: &mut Conversion, span: Range<usize>, given: &Scalar, mask: u32) -> Option<Condition> {
    let Some((is, value)) = octal(given) else {
        c.fail(span, bad_mode(given));
        return None;
    };
    if value & !mask != 0 {
        c.fail(span, Problem::OutsideMask { value, mask });
        return None;
    }
    Some(Condition::Mode { is, value, mask })
}

fn bad_mode(given: &Scalar) -> Problem {
    Problem::BadValue {
        key: "mode",
        given: given.text(),
        what: "an octal mode in quotes, 0 to 7777",
        examples: "\"0644\", \">= 0700\" or { bits = \"0111\", is = \"!= 0\" }",
    }
}

/// Octal digits after an optional comparison. A bare number is refused: TOML would read 644 as decimal.
fn octal(given: &Scalar) -> Option<(Comparison, u32)> {
    let Scalar::Text(text) = given else { return None };
    let (is, digits) = comparison(text);
    let digits = digits.strip_prefix("0o").unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value = u32::from_str_radix(digits, 8).ok()?;
    (value <= ALL_BITS).then_some((is, value))
}

fn access_type(c: &mut Conversion, given: &Spanned<String>) -> Option<Condition> {
    const KNOWN: [(&str, Access); 3] =
        [("read-only", Access::ReadOnly), ("writable", Access::Writable), ("executable", Access::Executable)];
    let (is, word) = comparison(given.get_ref());
    if !is_equality(is) {
        c.fail(given.span(), Problem::OnlyEquality { key: "access" });
        return None;
    }
    let value = known_word(c, given.span(), word, &KNOWN)?;
    Some(Condition::Access { is, value })
}

fn file_kinds(c: &mut Conversion, given: &Spanned<Names>) -> Option<Condition> {
    const KNOWN: [(&str, FileKind); 6] = [
        ("file", FileKind::File),
        ("symlink", FileKind::Symlink),
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
        ("char-device", FileKind::CharDevice),
        ("block-device", FileKind::BlockDevice),
    ];
    let (negated, words) = words(c, "type", given)?;
    let any_of = words.into_iter().filter_map(|(span, word)| known_word(c, span, &word, &KNOWN)).collect();
    Some(Condition::Kind { any_of, negated })
}

fn extension(c: &mut Conversion, given: &Spanned<Names>) -> Option<Condition> {
    let (negated, words) = words(c, "extension", given)?;
    let mut any_of = Vec::with_capacity(words.len());
    for (span, word) in words {
        let bare = word.strip_prefix('.').unwrap_or(&word);
        if bare.is_empty() || bare.contains(['.', '/', '\0']) {
            let problem = Problem::BadValue {
                key: "extension",
                given: word.clone(),
                what: "what stands after the last dot of a name",
                examples: "\"avi\" or [\"jpg\", \"png\"]; use a rule with match for longer patterns",
            };
            c.fail(span, problem);
            continue;
        }
        any_of.push(bare.to_ascii_lowercase());
    }
    Some(Condition::Extension { any_of, negated })
}

/// A word and where it stands.
type Word = (Range<usize>, String);

/// Words that are all wanted or (with `!=`) all unwanted.
fn words(c: &mut Conversion, key: &'static str, given: &Spanned<Names>) -> Option<(bool, Vec<Word>)> {
    let mut negated = None;
    let mut words = Vec::new();
    for (span, text) in all_names(given) {
        let (is, word) = comparison(text);
        if !is_equality(is) {
            c.fail(span, Problem::OnlyEquality { key });
            return None;
        }
        let not = is == Comparison::NotEqual;
        if *negated.get_or_insert(not) != not {
            c.fail(span, Problem::MixedNegation { key });
            return None;
        }
        words.push((span, word.to_owned()));
    }
    if negated.is_none() {
        c.fail(given.span(), Problem::EmptyList { what: key });
    }
    Some((negated?, words))
}

fn known_word<T: Copy>(c: &mut Conversion, span: Range<usize>, word: &str, known: &[(&str, T)]) -> Option<T> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    if found.is_none() {
        let valid = known.iter().map(|(name, _)| (*name).to_owned()).collect();
        c.fail(span, Problem::UnknownValue { value: word.to_owned(), valid });
    }
    found
}

fn space(
    c: &mut Conversion,
    of: SpaceField,
    branches: &PerBranch,
    hysteresis: Amount,
    conditions: &mut Vec<Condition>,
) {
    let key = if of == SpaceField::Free { "free" } else { "used" };
    let mut in_order: Vec<_> = branches.iter().collect();
    in_order.sort_by_key(|(branch, _)| branch.span().start);
    for (branch, values) in in_order {
        c.known_branch(branch.span(), branch.get_ref());
        for (is, value) in parsed(c, key, values, amount_of) {
            conditions.push(Condition::Space { branch: branch.get_ref().clone(), of, is, value, hysteresis });
        }
    }
}

/// The hysteresis of a rule, for each kind of threshold it has.
struct Hysteresis {
    size: ByteSize,
    age: Duration,
    space: Amount,
}

impl Hysteresis {
    /// One `hysteresis` serves every threshold of the rule whose unit it has.
    fn read(c: &mut Conversion, when: &WhenFile) -> Hysteresis {
        let mut hysteresis = Hysteresis { size: ByteSize(0), age: Duration::ZERO, space: Amount::Bytes(ByteSize(0)) };
        let Some(given) = &when.hysteresis else { return hysteresis };
        let has_size = when.size.is_some();
        let has_age = [&when.atime, &when.mtime, &when.ctime, &when.btime].into_iter().any(Option::is_some);
        let has_space = !when.free.is_empty() || !when.used.is_empty();
        let text = given.get_ref().text();
        if !has_size && !has_age && !has_space {
            c.fail(given.span(), Problem::BandWithoutThreshold);
            return hysteresis;
        }
        let size: Option<ByteSize> = text.parse().ok().filter(|_| has_size);
        let space: Option<Amount> = text.parse().ok().filter(|_| has_space);
        let age: Option<Duration> = parse_duration(&text).ok().filter(|_| has_age);
        match (size.is_some() || space.is_some(), age.is_some()) {
            (false, false) => c.fail(given.span(), Problem::BadBand { given: text }),
            (true, true) => c.fail(given.span(), Problem::AmbiguousBand { given: text }),
            _ => {}
        }
        hysteresis.size = size.unwrap_or(hysteresis.size);
        hysteresis.space = space.unwrap_or(hysteresis.space);
        hysteresis.age = age.unwrap_or(hysteresis.age);
        hysteresis
    }
}

/// Lets the rules compile, which finds bad patterns. Compilation ends at the first mistake, so every pattern goes alone first.
pub(super) fn compile(c: &mut Conversion, spec: &PoolSpec) {
    let names = super::ids(c.branch_names());
    for rule in &spec.rules.rules {
        let RuleKindSpec::Names(entries) = &rule.kind else { continue };
        for entry in entries {
            let kind = RuleKindSpec::Names(vec![entry.clone()]);
            let alone = RulesSpec { rules: vec![RuleSpec { name: rule.name.clone(), kind }], ..spec.rules.clone() };
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
