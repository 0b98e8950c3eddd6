//! Conditions as they are written, evaluated the obvious way: yes, no or unknown, from the top down.

use proptest::prelude::*;

use super::GROUPS;
use crate::placement::glob::naive::{self, Part};
use crate::placement::tests::*;

/// A branch, or the online members of a group together, by name.
pub(super) type Find<'a> = &'a dyn Fn(&str) -> BranchView;

/// Whether it is sure that a condition holds. `home`: hystereses count.
pub(super) fn holds(condition: &Condition, facts: &FileFacts<'_>, find: Find<'_>, home: bool) -> bool {
    truth(condition, facts, find, if home { Band::Wider } else { Band::None }) == Some(true)
}

/// What a hysteresis does to the values for which a comparison holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Band {
    None,
    Wider,
    /// Under `not`, so that the whole holds for more.
    Narrower,
}

fn truth(condition: &Condition, facts: &FileFacts<'_>, find: Find<'_>, band: Band) -> Option<bool> {
    let each = |list: &[Condition]| -> Vec<Option<bool>> {
        list.iter().map(|condition| truth(condition, facts, find, band)).collect()
    };
    match condition {
        Condition::Not(inner) => {
            let band = match band {
                Band::None => Band::None,
                Band::Wider => Band::Narrower,
                Band::Narrower => Band::Wider,
            };
            truth(inner, facts, find, band).map(|holds| !holds)
        }
        Condition::All(list) => {
            let each = each(list);
            let known = !each.contains(&None);
            if each.contains(&Some(false)) { Some(false) } else { known.then_some(true) }
        }
        Condition::Any(list) => {
            let each = each(list);
            let known = !each.contains(&None);
            if each.contains(&Some(true)) { Some(true) } else { known.then_some(false) }
        }
        single => truth_of_one(single, facts, find, band),
    }
}

fn compared(is: Comparison, value: i128, threshold: i128, hysteresis: i128, band: Band) -> bool {
    // A threshold does not sink below nothing.
    let (low, high) = ((threshold - hysteresis).max(0), threshold + hysteresis);
    let (most, least) = match band {
        Band::Wider => (high, low),
        Band::Narrower => (low, high),
        Band::None => (threshold, threshold),
    };
    match (band, is) {
        (_, Comparison::Less) => value < most,
        (_, Comparison::LessOrEqual) => value <= most,
        (_, Comparison::GreaterOrEqual) => value >= least,
        (_, Comparison::Greater) => value > least,
        (Band::Wider, Comparison::Equal) => low <= value && value <= high,
        (_, Comparison::Equal) => value == threshold,
        (Band::Narrower, Comparison::NotEqual) => value < low || value > high,
        (_, Comparison::NotEqual) => value != threshold,
    }
}

fn truth_of_one(condition: &Condition, facts: &FileFacts<'_>, find: Find<'_>, band: Band) -> Option<bool> {
    let exact = |is, value: u32, threshold: u32| Some(compared(is, value.into(), threshold.into(), 0, Band::None));
    match condition {
        Condition::Size { is, value, hysteresis } => (facts.stage != Stage::New)
            .then(|| compared(*is, facts.size.0.into(), value.0.into(), hysteresis.0.into(), band)),
        Condition::Uid { is, value } => exact(*is, facts.uid, *value),
        Condition::Gid { is, value } => exact(*is, facts.gid, *value),
        Condition::Links { is, value } => exact(*is, facts.links, *value),
        Condition::Heat { is, value, hysteresis } => {
            Some(compared(*is, facts.heat.0.into(), value.0.into(), hysteresis.0.into(), band))
        }
        Condition::Mode { is, value, mask } => exact(*is, facts.mode & mask, value & mask),
        Condition::Access { is, value } => {
            let has = match value {
                Access::ReadOnly => facts.mode & 0o222 == 0,
                Access::Writable => facts.mode & 0o222 > 0,
                Access::Executable => facts.mode & 0o111 > 0,
            };
            (facts.stage == Stage::Settled).then_some(has == (*is == Comparison::Equal))
        }
        Condition::Kind { any_of, negated } => Some(any_of.contains(&facts.kind) != *negated),
        Condition::Extension { any_of, negated } => {
            let path = String::from_utf8_lossy(facts.path).to_ascii_lowercase();
            let name = path.rsplit_once('/').unwrap().1;
            let own = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, own)| own.to_owned());
            Some(own.is_some_and(|own| any_of.contains(&own)) != *negated)
        }
        Condition::Age { of, is, value, hysteresis } => {
            let then = match of {
                TimeField::Atime => Some(facts.atime),
                TimeField::Mtime => Some(facts.mtime),
                TimeField::Ctime => Some(facts.ctime),
                TimeField::Btime => facts.btime,
            };
            then.map(|then| {
                let age = (facts.now.secs - then.secs).max(0);
                compared(*is, age.into(), value.as_secs().into(), hysteresis.as_secs().into(), band)
            })
        }
        Condition::Space { branch, of, is, value, hysteresis } => {
            let branch = find(branch);
            let (part, whole) = match of {
                SpaceField::Free => (branch.free.0, branch.total),
                SpaceField::Used => (branch.total.0 - branch.free.0, branch.total),
                SpaceField::Inodes => branch.inodes.map(|all| (all.total - all.free, ByteSize(all.total)))?,
            };
            let bytes = |amount: &Amount| i128::from(amount.of(whole).0);
            branch.online.then(|| compared(*is, part.into(), bytes(value), bytes(hysteresis), band))
        }
        Condition::Online { branch, value } => Some(find(branch).online == *value),
        Condition::Path { of, any_of, negated } => {
            let path = match of {
                PathPart::Path => facts.path.to_vec(),
                PathPart::Name => [b"/", facts.path.rsplit(|byte| *byte == b'/').next().unwrap()].concat(),
            };
            let rooted = |glob: &String| if *of == PathPart::Name { format!("/{glob}") } else { glob.clone() };
            Some(any_of.iter().any(|glob| naive::matches(&parts(&rooted(glob)), &path)) != *negated)
        }
        Condition::Xattr { name, any_of, negated } => {
            let own = facts.xattrs?.iter().find(|xattr| *xattr.name == **name);
            let wanted = |value: &[u8]| any_of.as_ref().is_none_or(|all| all.iter().any(|one| one.as_bytes() == value));
            Some(own.is_some_and(|own| wanted(&own.value)) != *negated)
        }
        Condition::Not(_) | Condition::All(_) | Condition::Any(_) => unreachable!("joined"),
    }
}

/// A pattern of literal characters, `?`, `*` and `**`.
fn parts(glob: &str) -> Vec<Part> {
    let part = |text: &str| match text {
        "**" => Part::Cross,
        "*" => Part::Star,
        "?" => Part::One,
        other => Part::Literal(other.chars().next().unwrap()),
    };
    let (mut parts, mut rest) = (Vec::new(), glob);
    while !rest.is_empty() {
        let length = if rest.starts_with("**") { 2 } else { 1 };
        parts.push(part(&rest[..length]));
        rest = &rest[length..];
    }
    parts
}

fn comparisons() -> impl Strategy<Value = Comparison> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    prop::sample::select(vec![Less, LessOrEqual, Equal, NotEqual, GreaterOrEqual, Greater])
}

pub(super) fn kinds() -> impl Strategy<Value = FileKind> {
    prop::sample::select(vec![FileKind::File, FileKind::File, FileKind::Symlink, FileKind::Fifo, FileKind::Socket])
}

fn amounts() -> impl Strategy<Value = Amount> {
    prop_oneof![(0u64..8).prop_map(|n| Amount::Bytes(ByteSize(n))), (0u32..100_001).prop_map(Amount::MilliPercent)]
}

fn texts(of: &'static [&str]) -> impl Strategy<Value = Vec<String>> {
    prop::sample::subsequence(of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>(), 0..=of.len())
}

fn globs(of: PathPart, all: &'static [&str]) -> impl Strategy<Value = Condition> {
    let some =
        prop::collection::vec(prop::sample::select(all.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>()), 1..3);
    (some, any::<bool>()).prop_map(move |(any_of, negated)| Condition::Path { of, any_of, negated })
}

/// Attributes of a file; `None`: not known.
pub(super) fn xattrs() -> impl Strategy<Value = Option<Vec<Xattr>>> {
    let value = || prop::option::of(prop::sample::select(vec!["x", "y", "z"]));
    prop::option::weighted(
        0.9,
        (value(), value()).prop_map(|(a, b)| {
            let named = [("user.a", a), ("user.b", b)];
            let xattr = |(name, value): (&str, Option<&str>)| {
                value.map(|value| Xattr { name: name.into(), value: value.as_bytes().into() })
            };
            named.into_iter().filter_map(xattr).collect()
        }),
    )
}

/// Conditions joined at random, some of them deeply.
pub(super) fn trees() -> impl Strategy<Value = Condition> {
    single().prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Condition::Not(Box::new(inner))),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Condition::All),
            prop::collection::vec(inner, 0..3).prop_map(Condition::Any),
        ]
    })
}

/// Values are small, so that thresholds are met often.
fn single() -> impl Strategy<Value = Condition> {
    let is = comparisons;
    let branch = || prop::sample::select([&NAMES[..], &GROUPS[..]].concat()).prop_map(str::to_owned);
    prop_oneof![
        (is(), 0u64..7, 0u64..4).prop_map(|(is, value, hysteresis)| size_with_hysteresis(is, value, hysteresis)),
        (is(), 0u32..7).prop_map(|(is, value)| Condition::Uid { is, value }),
        (is(), 0u32..7).prop_map(|(is, value)| Condition::Gid { is, value }),
        (is(), 0u32..7).prop_map(|(is, value)| Condition::Links { is, value }),
        (is(), 0u64..7, 0u64..4).prop_map(|(is, value, hysteresis)| Condition::Heat {
            is,
            value: Opens(value),
            hysteresis: Opens(hysteresis)
        }),
        (is(), 0u32..0o10000, 0u32..0o10000).prop_map(|(is, value, mask)| Condition::Mode { is, value, mask }),
        (any::<bool>(), prop::sample::select(vec![Access::ReadOnly, Access::Writable, Access::Executable])).prop_map(
            |(equal, value)| Condition::Access {
                is: if equal { Comparison::Equal } else { Comparison::NotEqual },
                value
            }
        ),
        (prop::collection::vec(kinds(), 0..3), any::<bool>())
            .prop_map(|(any_of, negated)| Condition::Kind { any_of, negated }),
        (prop::collection::vec("[ab]{1,2}", 0..3), any::<bool>())
            .prop_map(|(any_of, negated)| Condition::Extension { any_of, negated }),
        (
            prop::sample::select(vec![TimeField::Atime, TimeField::Mtime, TimeField::Ctime, TimeField::Btime]),
            is(),
            0u64..7,
            0u64..4
        )
            .prop_map(|(of, is, value, hysteresis)| Condition::Age {
                of,
                is,
                value: Duration::from_secs(value),
                hysteresis: Duration::from_secs(hysteresis)
            }),
        (
            branch(),
            prop::sample::select(vec![SpaceField::Free, SpaceField::Used, SpaceField::Inodes]),
            is(),
            amounts(),
            amounts()
        )
            .prop_map(|(branch, of, is, value, hysteresis)| Condition::Space {
                branch,
                of,
                is,
                value,
                hysteresis
            }),
        (branch(), any::<bool>()).prop_map(|(branch, value)| Condition::Online { branch, value }),
        globs(PathPart::Path, &["/a/**", "/a/*", "**b", "/**", "a*", "/*/a", "?", "**/b/**", "/ab/**"]),
        globs(PathPart::Name, &["a", "*b", "?", "*", "a*", "*.?*"]),
        (prop::sample::select(vec!["user.a", "user.b"]), prop::option::of(texts(&["x", "y"])), any::<bool>())
            .prop_map(|(name, any_of, negated)| Condition::Xattr { name: name.to_owned(), any_of, negated }),
    ]
}
