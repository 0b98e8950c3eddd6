//! The conditions of a rule.

use std::ops::Range;
use std::time::Duration;

use nix::unistd::{Group, User};
use toml::Spanned;
use umbrella_policy::heat::Opens;
use umbrella_policy::placement::check_glob;
use umbrella_policy::placement::spec::{Access, Comparison, Condition, FileKind, PathPart, SpaceField, TimeField};
use umbrella_units::{Amount, ByteSize, parse_duration};

use super::conversion::Conversion;
use super::file::{PerBranch, WhenFile, XattrFile};
use super::problem::Problem;
use super::values::{ModeValues, Names, Scalar, Values, XattrValues, all_values, comparison, each_name, each_value};

/// All permission bits.
const ALL_BITS: u32 = 0o7777;
const SIZE_EXAMPLES: &str = "\">= 100KiB\" or [\">= 1MiB\", \"< 1GiB\"]";
/// The most tables inside each other: each is a list of conditions, and may be negated.
const MAX_DEPTH: usize = Condition::MAX_DEPTH / 2;
/// The longest name of an extended attribute on Linux, in bytes.
const LONGEST_XATTR: usize = 255;

/// Reads the value of a comparison; the key is for what is said about a bad one.
type ReadAmount = fn(&'static str, &str) -> Result<Amount, Problem>;

/// The conditions of a rule, all of which must hold.
pub(super) fn read(c: &mut Conversion, when: &WhenFile) -> Vec<Condition> {
    let hysteresis = Hysteresis::read(c, when);
    table(c, when, &hysteresis, 0)
}

/// The conditions of one table, inside `depth` others.
fn table(c: &mut Conversion, when: &WhenFile, hysteresis: &Hysteresis, depth: usize) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some(globs) = &when.path {
        conditions.extend(path(c, PathPart::Path, "path", globs));
    }
    if let Some(globs) = &when.name {
        conditions.extend(path(c, PathPart::Name, "name", globs));
    }
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
    if let Some(values) = &when.heat {
        for (is, value) in parsed(c, "heat", values, opens_of) {
            conditions.push(Condition::Heat { is, value, hysteresis: hysteresis.heat });
        }
    }
    if let Some(values) = &when.links {
        for (is, value) in parsed(c, "links", values, number_of) {
            conditions.push(Condition::Links { is, value });
        }
    }
    space(c, SpaceField::Free, &when.free, hysteresis.space, &mut conditions);
    space(c, SpaceField::Used, &when.used, hysteresis.space, &mut conditions);
    space(c, SpaceField::Inodes, &when.inodes, hysteresis.share, &mut conditions);
    for (names, value) in [(&when.online, true), (&when.offline, false)] {
        let Some(names) = names else { continue };
        let branches = c.branch_list(names, &[]);
        conditions.extend(branches.into_iter().map(|branch| Condition::Online { branch, value }));
    }
    conditions.extend(xattrs(c, &when.xattr));
    joined(c, when, hysteresis, depth, &mut conditions);
    conditions
}

/// What `not`, `any` and `all` join.
fn joined(c: &mut Conversion, when: &WhenFile, hysteresis: &Hysteresis, depth: usize, conditions: &mut Vec<Condition>) {
    if let Some(not) = &when.not {
        let inner = inner(c, "not", &not.get_ref().0, &not.span(), (hysteresis, depth));
        conditions.push(Condition::Not(Box::new(Condition::All(inner))));
    }
    for (key, list) in [("any", &when.any), ("all", &when.all)] {
        let Some(list) = list else { continue };
        let tables = &list.get_ref().0;
        if tables.is_empty() {
            c.fail(list.span(), Problem::EmptyList { what: "condition" });
        }
        let each =
            tables.iter().map(|one| Condition::All(inner(c, key, &one.get_ref().0, &one.span(), (hysteresis, depth))));
        let each = each.collect();
        conditions.push(if key == "any" { Condition::Any(each) } else { Condition::All(each) });
    }
}

/// The conditions of a table inside another.
fn inner(
    c: &mut Conversion,
    key: &'static str,
    when: &WhenFile,
    span: &Range<usize>,
    (hysteresis, depth): (&Hysteresis, usize),
) -> Vec<Condition> {
    if depth + 1 > MAX_DEPTH {
        c.fail(span.clone(), Problem::NestedTooDeep { limit: MAX_DEPTH });
        return Vec::new();
    }
    if let Some(given) = &when.hysteresis {
        c.fail(given.span(), Problem::HysteresisInside { key });
    }
    let before = c.complaints.count();
    let conditions = table(c, when, hysteresis, depth + 1);
    if conditions.is_empty() && c.complaints.count() == before {
        c.fail(span.clone(), Problem::EmptyCondition { key });
    }
    conditions
}

/// Patterns of a path or a name.
fn path(c: &mut Conversion, of: PathPart, key: &'static str, given: &Spanned<Names>) -> Option<Condition> {
    let (negated, words) = words(c, key, given.get_ref(), given.span())?;
    let mut any_of = Vec::with_capacity(words.len());
    for (span, glob) in words {
        match check_glob(of, &glob) {
            Ok(()) if of == PathPart::Path && is_hidden(&glob) => c.fail(span, Problem::HiddenPath { glob }),
            Ok(()) => any_of.push(glob),
            Err(reason) => c.fail(span, Problem::BadGlob { glob, reason }),
        }
    }
    Some(Condition::Path { of, any_of, negated })
}

/// Whether a pattern is of what a branch keeps for itself, and no pool shows.
pub(super) fn is_hidden(glob: &str) -> bool {
    let below = glob.strip_prefix('/').and_then(|glob| glob.strip_prefix(umbrella_fs::branch::HIDDEN_DIR));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// Conditions on extended attributes, in the order of writing.
fn xattrs(c: &mut Conversion, given: &XattrFile) -> Vec<Condition> {
    let mut in_order: Vec<_> = given.iter().collect();
    in_order.sort_by_key(|(name, _)| name.span().start);
    let mut conditions = Vec::with_capacity(in_order.len());
    for (name, values) in in_order {
        if !is_xattr_name(name.get_ref()) {
            c.fail(name.span(), Problem::BadXattrName { name: name.get_ref().clone() });
        } else if name.get_ref().starts_with("trusted.umbrella.") {
            c.fail(name.span(), Problem::OwnXattr { name: name.get_ref().clone() });
        }
        let name = name.get_ref().clone();
        let (any_of, negated) = match values.get_ref() {
            XattrValues::There(there) => (None, !there),
            XattrValues::Values(names) => {
                let Some((negated, words)) = words(c, "xattr", names, values.span()) else { continue };
                (Some(words.into_iter().map(|(_, word)| word).collect()), negated)
            }
        };
        conditions.push(Condition::Xattr { name, any_of, negated });
    }
    conditions
}

fn is_xattr_name(name: &str) -> bool {
    let rest = ["user.", "trusted.", "security."].iter().find_map(|namespace| name.strip_prefix(namespace));
    rest.is_some_and(|rest| !rest.is_empty()) && name.len() <= LONGEST_XATTR && !name.contains('\0')
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

/// Inodes are only compared in percent: how many there are says little.
fn share_of(key: &'static str, text: &str) -> Result<Amount, Problem> {
    let bad = || Problem::BadValue {
        key,
        given: text.to_owned(),
        what: "a share of the branch's inodes",
        examples: "\"> 90%\"",
    };
    if text.ends_with('%') { amount_of(key, text) } else { Err(bad()) }
}

fn age_of(key: &'static str, text: &str) -> Result<Duration, Problem> {
    parse_duration(text).map_err(|error| Problem::Duration { key, error })
}

fn opens_of(key: &'static str, text: &str) -> Result<Opens, Problem> {
    text.parse().map_err(|_| Problem::BadValue {
        key,
        given: text.to_owned(),
        what: "a number of opens, with at most six decimals",
        examples: "\"> 5\" or \">= 0.5\"",
    })
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

/// The types of files that rules can name.
pub(crate) const FILE_TYPES: [(&str, FileKind); 6] = [
    ("file", FileKind::File),
    ("symlink", FileKind::Symlink),
    ("fifo", FileKind::Fifo),
    ("socket", FileKind::Socket),
    ("char-device", FileKind::CharDevice),
    ("block-device", FileKind::BlockDevice),
];

fn file_kinds(c: &mut Conversion, given: &Spanned<Names>) -> Option<Condition> {
    let (negated, words) = words(c, "type", given.get_ref(), given.span())?;
    let any_of = words.into_iter().filter_map(|(span, word)| known_word(c, span, &word, &FILE_TYPES)).collect();
    Some(Condition::Kind { any_of, negated })
}

fn extension(c: &mut Conversion, given: &Spanned<Names>) -> Option<Condition> {
    let (negated, words) = words(c, "extension", given.get_ref(), given.span())?;
    let mut any_of = Vec::with_capacity(words.len());
    for (span, word) in words {
        let bare = word.strip_prefix('.').unwrap_or(&word);
        if bare.is_empty() || bare.contains(['.', '/', '\0']) {
            let problem = Problem::BadValue {
                key: "extension",
                given: word.clone(),
                what: "the part after the last dot of a name",
                examples: "\"avi\" or [\"jpg\", \"png\"], and name = \"*.tar.gz\" for longer ones",
            };
            c.fail(span, problem);
            continue;
        }
        any_of.push(bare.to_ascii_lowercase());
    }
    Some(Condition::Extension { any_of, negated })
}

/// A word and where it is.
type SpannedString = (Range<usize>, String);

/// Words that are all wanted or (with `!=`) all unwanted.
fn words(
    c: &mut Conversion,
    key: &'static str,
    given: &Names,
    place: Range<usize>,
) -> Option<(bool, Vec<SpannedString>)> {
    let mut negated = None;
    let mut words = Vec::new();
    for (span, text) in each_name(given, place.clone()) {
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
        c.fail(place, Problem::EmptyList { what: key });
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
    let (key, read): (_, ReadAmount) = match of {
        SpaceField::Free => ("free", amount_of),
        SpaceField::Used => ("used", amount_of),
        SpaceField::Inodes => ("inodes", share_of),
    };
    let mut in_order: Vec<_> = branches.iter().collect();
    in_order.sort_by_key(|(branch, _)| branch.span().start);
    for (branch, values) in in_order {
        c.known_branch(branch.span(), branch.get_ref());
        for (is, value) in parsed(c, key, values, read) {
            conditions.push(Condition::Space { branch: branch.get_ref().clone(), of, is, value, hysteresis });
        }
    }
}

/// The hysteresis of a rule, for each kind of threshold it has.
struct Hysteresis {
    size: ByteSize,
    age: Duration,
    space: Amount,
    heat: Opens,
    /// Of inodes.
    share: Amount,
}

impl Hysteresis {
    /// One `hysteresis` serves every threshold of the rule whose unit it has.
    fn read(c: &mut Conversion, when: &WhenFile) -> Hysteresis {
        let nothing = Amount::Bytes(ByteSize(0));
        let mut hysteresis =
            Hysteresis { size: ByteSize(0), age: Duration::ZERO, space: nothing, heat: Opens(0), share: nothing };
        let Some(given) = &when.hysteresis else { return hysteresis };
        let tables = when.tables();
        let has = |key: fn(&WhenFile) -> bool| tables.iter().any(|table| key(table));
        let has_size = has(|table| table.size.is_some());
        let has_age =
            has(|table| [&table.atime, &table.mtime, &table.ctime, &table.btime].into_iter().any(Option::is_some));
        let has_space = has(|table| !table.free.is_empty() || !table.used.is_empty());
        let has_share = has(|table| !table.inodes.is_empty());
        let has_heat = has(|table| table.heat.is_some());
        let text = given.get_ref().text();
        // A number without a unit: sizes and ages beside it have none then.
        if let Some(heat) = text.parse().ok().filter(|_| has_heat) {
            hysteresis.heat = heat;
            return hysteresis;
        }
        if !has_size && !has_age && !has_space && !has_share && !has_heat {
            c.fail(given.span(), Problem::BandWithoutThreshold);
            return hysteresis;
        }
        let size: Option<ByteSize> = text.parse().ok().filter(|_| has_size);
        let space: Option<Amount> = text.parse().ok().filter(|_| has_space);
        let share: Option<Amount> =
            text.parse().ok().filter(|share| has_share && matches!(share, Amount::MilliPercent(_)));
        let age: Option<Duration> = parse_duration(&text).ok().filter(|_| has_age);
        match (size.is_some() || space.is_some() || share.is_some(), age.is_some()) {
            (false, false) => c.fail(given.span(), Problem::BadBand { given: text }),
            (true, true) => c.fail(given.span(), Problem::AmbiguousBand { given: text }),
            _ => {}
        }
        hysteresis.size = size.unwrap_or(hysteresis.size);
        hysteresis.space = space.unwrap_or(hysteresis.space);
        hysteresis.share = share.unwrap_or(hysteresis.share);
        hysteresis.age = age.unwrap_or(hysteresis.age);
        hysteresis
    }
}
