//! Which files a conjunction of conditions admits, one set per fact: enough to see that a rule can never match.
//!
//! Conditions joined by `any` are several conjunctions, and so several domains. When those would be too many, nothing
//! is claimed.
//!
//! `Widest` takes conditions with their hystereses (no file outside can ever match), `Surest` without (every file
//! inside does match).

use std::time::Duration;

use umbrella_units::{Amount, BranchId};

use super::condition::{Test, bit, compare, has_access};
use super::expression::Expression;
use super::glob::Glob;
use super::requirement::Requirement;
use super::spec::{Comparison, FileKind, SpaceField, TimeField};

/// Whether hystereses count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// With hystereses: what can match at all.
    Widest,
    /// Without: what matches in any case.
    Surest,
}

/// A fact with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Size,
    Uid,
    Gid,
    Links,
    Age(TimeField),
    Heat,
    /// In bytes.
    Space(BranchId, SpaceField),
    /// In percent.
    Share(BranchId, SpaceField),
}

impl Quantity {
    /// Whether it is in no range while it is unknown: a birth, and inodes that are not counted. (Other spaces are known
    /// while their branch is online.)
    fn may_be_unknown(self) -> bool {
        use Quantity::{Age, Share, Space};
        matches!(self, Age(TimeField::Btime) | Space(_, SpaceField::Inodes) | Share(_, SpaceField::Inodes))
    }
}

/// A fact of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact<'a> {
    Quantity(Quantity),
    Mode,
    Kind,
    Extension,
    Online(BranchId),
    Path,
    Xattr(&'a str),
}

/// Numbers from `low` to `high` without `holes`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    low: i128,
    high: i128,
    holes: Vec<i128>,
}

/// Extensions: these, or all but these.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Extensions {
    Only(Vec<Box<[u8]>>),
    AllBut(Vec<Box<[u8]>>),
}

/// All of a branch, in halves of thousandths of a percent.
const WHOLE: i128 = 200_000;

/// Modes there are: 07777 and less.
const MODES: usize = 0o10000;

/// The files that a conjunction admits.
#[derive(Debug, Clone)]
pub(super) struct Domain<'a> {
    ranges: Vec<(Quantity, Range)>,
    /// For each of the 4096 modes whether it is admitted.
    modes: Box<[u64; MODES / 64]>,
    kinds: u8,
    extensions: Extensions,
    requirements: Vec<Requirement<'a>>,
    /// Branches that have to be online (true) or offline (false).
    online: Vec<(BranchId, bool)>,
    /// A branch that would have to be both.
    torn: Option<BranchId>,
    /// Whether only files that were closed once are admitted.
    settled_only: bool,
}

impl<'a> Domain<'a> {
    /// The files that a condition admits: those of any of these domains. Of a condition with too many alternatives all
    /// files can match, and none is sure to.
    pub(super) fn alternatives(condition: &'a Expression, reading: Reading) -> Vec<Domain<'a>> {
        match (condition.alternatives(), reading) {
            (Some(alternatives), _) => alternatives.iter().map(|tests| Domain::new(tests, reading)).collect(),
            (None, Reading::Widest) => vec![Domain::everything()],
            (None, Reading::Surest) => Vec::new(),
        }
    }

    /// The files that all of `tests` admit.
    pub(super) fn new(tests: &[&'a Test], reading: Reading) -> Domain<'a> {
        let mut domain = Domain::everything();
        for test in tests {
            domain.narrow(test, reading);
        }
        domain
    }

    /// The files whose path a pattern matches.
    pub(super) fn of_glob(glob: &'a Glob) -> Domain<'a> {
        let requirement = Requirement::Path { globs: std::slice::from_ref(glob), negated: false };
        Domain { requirements: vec![requirement], ..Domain::everything() }
    }

    /// All files. Directories are never placed, so no domain holds one.
    pub(super) fn everything() -> Domain<'a> {
        Domain {
            ranges: Vec::new(),
            modes: Box::new([u64::MAX; MODES / 64]),
            kinds: 0x7F & !bit(FileKind::Directory),
            extensions: Extensions::AllBut(Vec::new()),
            requirements: Vec::new(),
            online: Vec::new(),
            torn: None,
            settled_only: false,
        }
    }

    fn narrow(&mut self, test: &'a Test, reading: Reading) {
        let widest = reading == Reading::Widest;
        match test {
            Test::Size { is, value, hysteresis } => {
                self.settled_only = true;
                let hysteresis = if widest { *hysteresis } else { 0 };
                self.range(Quantity::Size, u64::MAX.into(), *is, (*value).into(), hysteresis.into());
            }
            Test::Uid { is, value } => self.range(Quantity::Uid, u32::MAX.into(), *is, (*value).into(), 0),
            Test::Gid { is, value } => self.range(Quantity::Gid, u32::MAX.into(), *is, (*value).into(), 0),
            Test::Links { is, value } => self.range(Quantity::Links, u32::MAX.into(), *is, (*value).into(), 0),
            Test::Age { of, is, value, hysteresis } => {
                let hysteresis = if widest { *hysteresis } else { Duration::ZERO };
                let nanos = |duration: Duration| duration.as_nanos() as i128;
                self.range(Quantity::Age(*of), nanos(Duration::MAX), *is, nanos(*value), nanos(hysteresis));
            }
            Test::Heat { is, value, hysteresis } => {
                let hysteresis = if widest { hysteresis.0 } else { 0 };
                self.range(Quantity::Heat, u64::MAX.into(), *is, value.0.into(), hysteresis.into());
            }
            Test::Mode { is, value, mask } => self.keep_modes(|mode| compare(*is, &(mode & mask), value)),
            Test::Access { equal, value } => {
                self.settled_only = true;
                self.keep_modes(|mode| has_access(mode, *value) == *equal);
            }
            Test::Kind { any_of, negated } => self.kinds &= if *negated { !any_of } else { *any_of },
            Test::Extension { any_of, negated } => self.extensions.narrow(any_of, *negated),
            Test::Space { branch, of, is, value, hysteresis } => {
                self.require(*branch, true);
                self.space(*branch, *of, *is, *value, widest.then_some(*hysteresis));
            }
            Test::Online { branch, value } => self.require(*branch, *value),
            Test::Path { .. } | Test::Xattr { .. } => self.requirements.extend(Requirement::of(test)),
        }
    }

    fn space(&mut self, branch: BranchId, of: SpaceField, is: Comparison, value: Amount, hysteresis: Option<Amount>) {
        // Between two shares there is always room for another number of bytes, so shares count in halves of the unit.
        let double = |share: u32| i128::from(share) * 2;
        let hysteresis = hysteresis.filter(|hysteresis| !hysteresis.is_zero());
        match (value, hysteresis) {
            (Amount::Bytes(value), None) => {
                self.range(Quantity::Space(branch, of), u64::MAX.into(), is, value.0.into(), 0);
            }
            (Amount::Bytes(value), Some(Amount::Bytes(hysteresis))) => {
                self.range(Quantity::Space(branch, of), u64::MAX.into(), is, value.0.into(), hysteresis.0.into());
            }
            (Amount::MilliPercent(value), None) => {
                self.range(Quantity::Share(branch, of), WHOLE, is, double(value), 0);
            }
            (Amount::MilliPercent(value), Some(Amount::MilliPercent(hysteresis))) => {
                self.range(Quantity::Share(branch, of), WHOLE, is, double(value), double(hysteresis));
            }
            // Without the branch's size nothing is known.
            (Amount::Bytes(_), Some(Amount::MilliPercent(_))) | (Amount::MilliPercent(_), Some(Amount::Bytes(_))) => {}
        }
    }

    fn range(&mut self, quantity: Quantity, max: i128, is: Comparison, value: i128, hysteresis: i128) {
        let index = self.ranges.iter().position(|(other, _)| *other == quantity).unwrap_or_else(|| {
            self.ranges.push((quantity, Range { low: least(quantity), high: max, holes: Vec::new() }));
            self.ranges.len() - 1
        });
        self.ranges[index].1.narrow(is, value, hysteresis);
    }

    fn keep_modes(&mut self, keep: impl Fn(u32) -> bool) {
        for mode in 0..MODES as u32 {
            let (word, bit) = (mode as usize / 64, mode % 64);
            if !keep(mode) {
                self.modes[word] &= !(1 << bit);
            }
        }
    }

    /// Restricts the domain to times at which a branch is online, or offline.
    pub(super) fn require(&mut self, branch: BranchId, online: bool) {
        match self.online.iter().find(|(other, _)| *other == branch) {
            Some((_, other)) if *other != online => self.torn = Some(branch),
            Some(_) => {}
            None => self.online.push((branch, online)),
        }
    }

    /// Whether it admits anything only while a branch is online.
    pub(super) fn needs_online(&self, branch: BranchId) -> bool {
        self.online.contains(&(branch, true))
    }

    /// A fact of which no value is admitted; `None` when there is no such fact.
    pub(super) fn contradiction(&self) -> Option<Fact<'a>> {
        if let Some((quantity, _)) = self.ranges.iter().find(|(_, range)| range.is_empty()) {
            return Some(Fact::Quantity(*quantity));
        }
        if self.modes.iter().all(|word| *word == 0) {
            return Some(Fact::Mode);
        }
        if self.kinds == 0 {
            return Some(Fact::Kind);
        }
        if matches!(&self.extensions, Extensions::Only(none) if none.is_empty()) {
            return Some(Fact::Extension);
        }
        let required = || {
            Requirement::contradiction(&self.requirements).map(|requirement| match requirement {
                Requirement::Path { .. } => Fact::Path,
                Requirement::Xattr { name, .. } => Fact::Xattr(name),
            })
        };
        self.torn.map(Fact::Online).or_else(required)
    }

    /// Whether everything that this admits is admitted by the other.
    pub(super) fn is_within(&self, wider: &Domain<'_>) -> bool {
        let full = |quantity| Range { low: least(quantity), high: largest(quantity), holes: Vec::new() };
        (self.settled_only || !wider.settled_only)
            && wider.ranges.iter().all(|(quantity, range)| {
                let own = self.ranges.iter().find(|(other, _)| other == quantity);
                let always = |quantity: Quantity| !quantity.may_be_unknown() && full(quantity).is_within(range);
                own.map_or_else(|| always(*quantity), |(_, own)| own.is_within(range))
            })
            && self.modes.iter().zip(wider.modes.iter()).all(|(own, wider)| own & !wider == 0)
            && self.kinds & !wider.kinds == 0
            && self.extensions.is_within(&wider.extensions)
            && wider.online.iter().all(|required| self.online.contains(required))
            && wider
                .requirements
                .iter()
                .all(|wider| wider.is_always() || self.requirements.iter().any(|own| own.implies(*wider)))
    }
}

/// A file that is placed has a name.
fn least(quantity: Quantity) -> i128 {
    i128::from(quantity == Quantity::Links)
}

fn largest(quantity: Quantity) -> i128 {
    match quantity {
        Quantity::Size | Quantity::Heat | Quantity::Space(..) => u64::MAX.into(),
        Quantity::Uid | Quantity::Gid | Quantity::Links => u32::MAX.into(),
        Quantity::Age(_) => Duration::MAX.as_nanos() as i128,
        Quantity::Share(..) => WHOLE,
    }
}

impl Range {
    fn narrow(&mut self, is: Comparison, value: i128, hysteresis: i128) {
        match is {
            Comparison::Less => self.high = self.high.min(value + hysteresis - 1),
            Comparison::LessOrEqual => self.high = self.high.min(value + hysteresis),
            Comparison::GreaterOrEqual => self.low = self.low.max(value - hysteresis),
            Comparison::Greater => self.low = self.low.max(value - hysteresis + 1),
            Comparison::Equal => {
                self.low = self.low.max(value - hysteresis);
                self.high = self.high.min(value + hysteresis);
            }
            Comparison::NotEqual => {
                self.holes.push(value);
                self.holes.sort_unstable();
            }
        }
        while self.holes.contains(&self.low) && self.low <= self.high {
            self.low += 1;
        }
        while self.holes.contains(&self.high) && self.low <= self.high {
            self.high -= 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.low > self.high
    }

    fn is_within(&self, wider: &Range) -> bool {
        self.is_empty()
            || (self.low >= wider.low
                && self.high <= wider.high
                && wider.holes.iter().all(|hole| *hole < self.low || *hole > self.high || self.holes.contains(hole)))
    }
}

impl Extensions {
    fn narrow(&mut self, any_of: &[Box<[u8]>], negated: bool) {
        *self = match (&*self, negated) {
            (Extensions::Only(own), _) => {
                Extensions::Only(own.iter().filter(|own| any_of.contains(own) != negated).cloned().collect())
            }
            (Extensions::AllBut(out), false) => {
                Extensions::Only(any_of.iter().filter(|one| !out.contains(one)).cloned().collect())
            }
            (Extensions::AllBut(out), true) => Extensions::AllBut(out.iter().chain(any_of).cloned().collect()),
        }
    }

    fn is_within(&self, wider: &Extensions) -> bool {
        match (self, wider) {
            (Extensions::Only(own), Extensions::Only(wider)) => own.iter().all(|one| wider.contains(one)),
            (Extensions::Only(own), Extensions::AllBut(out)) => own.iter().all(|one| !out.contains(one)),
            (Extensions::AllBut(_), Extensions::Only(_)) => false,
            (Extensions::AllBut(own), Extensions::AllBut(out)) => out.iter().all(|one| own.contains(one)),
        }
    }
}
