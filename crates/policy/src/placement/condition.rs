//! One condition of a metadata rule, compiled: branch names are ids, sets are sorted, thresholds are numbers.
//! `expression` joins them.
//!
//! Hysteresis: for a file that lives on one of the rule's own branches, `hysteresis` moves the threshold outwards. So
//! the file comes at the threshold and leaves only beyond threshold and hysteresis (a Schmitt trigger).

use std::time::Duration;

use umbrella_units::{Amount, BranchId, ByteSize};

use super::facts::{BranchView, FileFacts, Stage, view};
use super::glob::{Glob, GlobError};
use super::spec::{Access, Comparison, Condition, FileKind, PathPart, SpaceField, TimeField};
use crate::heat::Opens;

/// A condition, ready to be tested.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Size { is: Comparison, value: u64, hysteresis: u64 },
    Uid { is: Comparison, value: u32 },
    Gid { is: Comparison, value: u32 },
    Mode { is: Comparison, value: u32, mask: u32 },
    Access { equal: bool, value: Access },
    Kind { any_of: u8, negated: bool },
    Extension { any_of: Box<[Box<[u8]>]>, negated: bool },
    Age { of: TimeField, is: Comparison, value: Duration, hysteresis: Duration },
    Heat { is: Comparison, value: Opens, hysteresis: Opens },
    Links { is: Comparison, value: u32 },
    Space { branch: BranchId, of: SpaceField, is: Comparison, value: Amount, hysteresis: Amount },
    Online { branch: BranchId, value: bool },
    Path { of: PathPart, globs: Box<[Glob]>, written: Box<[String]>, negated: bool },
    Xattr { name: Box<str>, any_of: Option<Box<[Box<[u8]>]>>, negated: bool },
}

/// What a test says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Holds,
    Fails,
    /// The file is new and what the test looks at is not known yet.
    NotYetKnown,
    /// What it looks at is not known.
    Unknown,
    /// The branch it looks at cannot be asked.
    Unreachable,
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds { Verdict::Holds } else { Verdict::Fails }
    }
}

/// Why a condition cannot be compiled.
pub(super) enum BadCondition<'a> {
    UnknownBranch(&'a str),
    BadComparison(&'static str),
    BadGlob(&'a str, GlobError),
    TooDeep,
}

impl Test {
    /// Compiles a condition that is not joined from others.
    pub(super) fn compile<'a>(
        condition: &'a Condition,
        resolve: &dyn Fn(&str) -> Option<BranchId>,
    ) -> Result<Test, BadCondition<'a>> {
        let find = |branch: &'a str| resolve(branch).ok_or(BadCondition::UnknownBranch(branch));
        Ok(match condition {
            Condition::Size { is, value, hysteresis } => {
                Test::Size { is: *is, value: value.0, hysteresis: hysteresis.0 }
            }
            Condition::Uid { is, value } => Test::Uid { is: *is, value: *value },
            Condition::Gid { is, value } => Test::Gid { is: *is, value: *value },
            Condition::Mode { is, value, mask } => {
                Test::Mode { is: *is, value: value & mask & 0o7777, mask: mask & 0o7777 }
            }
            Condition::Access { is, value } => match is {
                Comparison::Equal => Test::Access { equal: true, value: *value },
                Comparison::NotEqual => Test::Access { equal: false, value: *value },
                _ => return Err(BadCondition::BadComparison("access")),
            },
            Condition::Kind { any_of, negated } => {
                Test::Kind { any_of: any_of.iter().fold(0, |set, kind| set | bit(*kind)), negated: *negated }
            }
            Condition::Extension { any_of, negated } => {
                let lower_case = any_of.iter().map(|extension| extension.to_ascii_lowercase());
                Test::Extension { any_of: set(lower_case), negated: *negated }
            }
            Condition::Age { of, is, value, hysteresis } => {
                Test::Age { of: *of, is: *is, value: *value, hysteresis: *hysteresis }
            }
            Condition::Heat { is, value, hysteresis } => Test::Heat { is: *is, value: *value, hysteresis: *hysteresis },
            Condition::Links { is, value } => Test::Links { is: *is, value: *value },
            Condition::Space { branch, of, is, value, hysteresis } => {
                Test::Space { branch: find(branch)?, of: *of, is: *is, value: *value, hysteresis: *hysteresis }
            }
            Condition::Online { branch, value } => Test::Online { branch: find(branch)?, value: *value },
            Condition::Path { of, any_of, negated } => {
                let glob =
                    |written: &'a String| glob(*of, written).map_err(|error| BadCondition::BadGlob(written, error));
                let globs = any_of.iter().map(glob).collect::<Result<_, _>>()?;
                Test::Path { of: *of, globs, written: any_of.clone().into(), negated: *negated }
            }
            Condition::Xattr { name, any_of, negated } => {
                let any_of = any_of.as_ref().map(|values| set(values.iter().cloned()));
                Test::Xattr { name: name.as_str().into(), any_of, negated: *negated }
            }
            // `expression` takes these apart.
            Condition::Not(_) | Condition::All(_) | Condition::Any(_) => return Err(BadCondition::TooDeep),
        })
    }

    /// The test that holds where this one fails. Neither holds while the fact is unknown.
    pub(super) fn negated(mut self) -> Test {
        match &mut self {
            Test::Size { is, .. }
            | Test::Uid { is, .. }
            | Test::Gid { is, .. }
            | Test::Mode { is, .. }
            | Test::Age { is, .. }
            | Test::Heat { is, .. }
            | Test::Links { is, .. }
            | Test::Space { is, .. } => *is = is.negated(),
            Test::Access { equal: flag, .. }
            | Test::Kind { negated: flag, .. }
            | Test::Extension { negated: flag, .. }
            | Test::Online { value: flag, .. }
            | Test::Path { negated: flag, .. }
            | Test::Xattr { negated: flag, .. } => *flag = !*flag,
        }
        self
    }

    pub(super) fn is_of_size(&self) -> bool {
        matches!(self, Test::Size { .. })
    }

    pub(super) fn is_of_heat(&self) -> bool {
        matches!(self, Test::Heat { .. })
    }

    /// The heat above which it holds, where it asks for warm files.
    pub(super) fn warm_from(&self) -> Option<Opens> {
        match self {
            Test::Heat { is: Comparison::Greater | Comparison::GreaterOrEqual, value, .. } => Some(*value),
            _ => None,
        }
    }

    pub(super) fn is_of_access_time(&self) -> bool {
        matches!(self, Test::Age { of: TimeField::Atime, .. })
    }

    /// Whether the test has a hysteresis.
    pub(super) fn has_band(&self) -> bool {
        match self {
            Test::Size { hysteresis, .. } => *hysteresis > 0,
            Test::Age { hysteresis, .. } => *hysteresis > Duration::ZERO,
            Test::Heat { hysteresis, .. } => hysteresis.0 > 0,
            Test::Space { hysteresis, .. } => !hysteresis.is_zero(),
            _ => false,
        }
    }

    /// Tests a file. `with_hysteresis`: it is on one of the rule's own branches.
    pub(super) fn verdict(&self, facts: &FileFacts<'_>, branches: &[BranchView], with_hysteresis: bool) -> Verdict {
        match self {
            Test::Size { .. } if facts.stage == Stage::New => Verdict::NotYetKnown,
            Test::Access { .. } if facts.stage != Stage::Settled => Verdict::NotYetKnown,
            Test::Size { is, value, hysteresis } => within(
                *is,
                facts.size.0,
                *value,
                if with_hysteresis { *hysteresis } else { 0 },
                u64::saturating_sub,
                u64::saturating_add,
            ),
            Test::Uid { is, value } => compare(*is, &facts.uid, value).into(),
            Test::Gid { is, value } => compare(*is, &facts.gid, value).into(),
            Test::Mode { is, value, mask } => compare(*is, &(facts.mode & mask), value).into(),
            Test::Access { equal, value } => (has_access(facts.mode, *value) == *equal).into(),
            Test::Kind { any_of, negated } => ((any_of & bit(facts.kind) != 0) != *negated).into(),
            Test::Extension { any_of, negated } => {
                let found = extension(facts.path).is_some_and(|own| {
                    any_of
                        .binary_search_by(|known| known.iter().copied().cmp(own.iter().map(u8::to_ascii_lowercase)))
                        .is_ok()
                });
                (found != *negated).into()
            }
            Test::Age { of, is, value, hysteresis } => {
                let hysteresis = if with_hysteresis { *hysteresis } else { Duration::ZERO };
                let Some(age) = age(facts, *of) else { return Verdict::Unknown };
                within(*is, age, *value, hysteresis, Duration::saturating_sub, Duration::saturating_add)
            }
            Test::Heat { is, value, hysteresis } => {
                let hysteresis = if with_hysteresis { hysteresis.0 } else { 0 };
                within(*is, facts.heat.0, value.0, hysteresis, u64::saturating_sub, u64::saturating_add)
            }
            Test::Links { is, value } => compare(*is, &facts.links, value).into(),
            Test::Space { branch, of, is, value, hysteresis } => {
                let Some(view) = view(branches, *branch).filter(|view| view.online) else {
                    return Verdict::Unreachable;
                };
                let Some((part, whole)) = space(view, *of) else { return Verdict::Unknown };
                let hysteresis = if with_hysteresis { hysteresis.of(whole).0 } else { 0 };
                let threshold = value.of(whole).0;
                within(*is, part.0, threshold, hysteresis, u64::saturating_sub, u64::saturating_add)
            }
            Test::Online { branch, value } => (super::facts::is_online(branches, *branch) == *value).into(),
            Test::Path { globs, negated, .. } => (globs.iter().any(|glob| glob.matches(facts.path)) != *negated).into(),
            Test::Xattr { name, any_of, negated } => {
                let Some(xattrs) = facts.xattrs else { return Verdict::Unknown };
                let own = xattrs.iter().find(|xattr| *xattr.name == **name).map(|xattr| &xattr.value);
                let found = match any_of {
                    None => own.is_some(),
                    Some(any_of) => own.is_some_and(|own| any_of.binary_search(own).is_ok()),
                };
                (found != *negated).into()
            }
        }
    }
}

/// Reads a pattern of a condition.
fn glob(of: PathPart, written: &str) -> Result<Glob, GlobError> {
    match of {
        PathPart::Path => Glob::new(written),
        PathPart::Name => Glob::of_name(written),
    }
}

/// Says what is wrong with a pattern of a condition, if anything is.
pub fn check_glob(of: PathPart, written: &str) -> Result<(), GlobError> {
    glob(of, written).map(drop)
}

/// Texts as a sorted set of bytes.
fn set(texts: impl Iterator<Item = String>) -> Box<[Box<[u8]>]> {
    let mut set: Vec<Box<[u8]>> = texts.map(|text| text.into_bytes().into()).collect();
    set.sort_unstable();
    set.dedup();
    set.into()
}

/// One of a branch's spaces, and the whole of which it is a part; of inodes, their numbers. `None` when the file system
/// does not count them.
pub(super) fn space(view: &BranchView, of: SpaceField) -> Option<(ByteSize, ByteSize)> {
    let used = |free: u64, whole: u64| (ByteSize(whole.saturating_sub(free)), ByteSize(whole));
    match of {
        SpaceField::Free => Some((view.free, view.total)),
        SpaceField::Used => Some(used(view.free.0, view.total.0)),
        SpaceField::Inodes => view.inodes.map(|inodes| used(inodes.free, inodes.total)),
    }
}

/// The age of one of a file's times; `None` when it is unknown.
pub(super) fn age(facts: &FileFacts<'_>, of: TimeField) -> Option<Duration> {
    let time = match of {
        TimeField::Atime => facts.atime,
        TimeField::Mtime => facts.mtime,
        TimeField::Ctime => facts.ctime,
        TimeField::Btime => facts.btime?,
    };
    Some(time.age(facts.now))
}

/// Whether permission bits give an access type.
pub(super) fn has_access(mode: u32, access: Access) -> bool {
    match access {
        Access::ReadOnly => mode & 0o222 == 0,
        Access::Writable => mode & 0o222 != 0,
        Access::Executable => mode & 0o111 != 0,
    }
}

/// What follows the last dot of a file's name; `None` without a dot, or when the only dot is the first character.
pub(super) fn extension(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    if dot == 0 { None } else { name.get(dot + 1..) }
}

/// A type's place in a set of types.
pub(super) fn bit(kind: FileKind) -> u8 {
    1 << match kind {
        FileKind::File => 0,
        FileKind::Directory => 1,
        FileKind::Symlink => 2,
        FileKind::Fifo => 3,
        FileKind::Socket => 4,
        FileKind::CharDevice => 5,
        FileKind::BlockDevice => 6,
    }
}

/// Compares two values of one kind.
pub(super) fn compare<T: Ord>(is: Comparison, value: &T, threshold: &T) -> bool {
    match is {
        Comparison::Less => value < threshold,
        Comparison::LessOrEqual => value <= threshold,
        Comparison::Equal => value == threshold,
        Comparison::NotEqual => value != threshold,
        Comparison::GreaterOrEqual => value >= threshold,
        Comparison::Greater => value > threshold,
    }
}

/// Compares with a threshold that is moved outwards by `hysteresis`; `!=` has no outside.
fn within<T: Ord + Copy>(
    is: Comparison,
    value: T,
    threshold: T,
    hysteresis: T,
    minus: fn(T, T) -> T,
    plus: fn(T, T) -> T,
) -> Verdict {
    let low = minus(threshold, hysteresis);
    let high = plus(threshold, hysteresis);
    match is {
        Comparison::Less | Comparison::LessOrEqual => compare(is, &value, &high),
        Comparison::GreaterOrEqual | Comparison::Greater => compare(is, &value, &low),
        Comparison::Equal => low <= value && value <= high,
        Comparison::NotEqual => value != threshold,
    }
    .into()
}
