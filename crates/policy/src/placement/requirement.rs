//! Conditions on paths and extended attributes, as far as one follows from another.
//!
//! Their values have no order and no end, so a [`super::domain::Domain`] keeps what is required instead of a set of
//! values. What is not certain is not claimed.

use super::condition::Test;
use super::glob::Glob;

/// A requirement on a path or on an extended attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Requirement<'a> {
    /// Any of the patterns matches; negated, none does.
    Path { globs: &'a [Glob], negated: bool },
    /// It has any of these values, or is there when none is named; negated, the opposite.
    Xattr { name: &'a str, any_of: Option<&'a [Box<[u8]>]>, negated: bool },
}

impl<'a> Requirement<'a> {
    /// What a test requires, when it is on a path or an attribute.
    pub(super) fn of(test: &'a Test) -> Option<Requirement<'a>> {
        match test {
            Test::Path { globs, negated, .. } => Some(Requirement::Path { globs, negated: *negated }),
            Test::Xattr { name, any_of, negated } => {
                Some(Requirement::Xattr { name, any_of: any_of.as_deref(), negated: *negated })
            }
            _ => None,
        }
    }

    fn negated(mut self) -> Self {
        let (Requirement::Path { negated, .. } | Requirement::Xattr { negated, .. }) = &mut self;
        *negated = !*negated;
        self
    }

    /// Whether it is sure that every file fulfils it.
    pub(super) fn is_always(self) -> bool {
        match self {
            Requirement::Path { globs, negated: false } => globs.iter().any(Glob::is_everything),
            Requirement::Path { globs, negated: true } => globs.iter().all(Glob::is_impossible),
            // It may be unknown.
            Requirement::Xattr { .. } => false,
        }
    }

    /// Whether it is sure that no file fulfils it.
    fn is_impossible(self) -> bool {
        let no_value = matches!(self, Requirement::Xattr { any_of: Some([]), negated: false, .. });
        no_value || matches!(self, Requirement::Path { .. }) && self.negated().is_always()
    }

    /// Whether it is sure that every file that fulfils this one fulfils the other.
    pub(super) fn implies(self, other: Requirement<'_>) -> bool {
        let covered = |inner: &[Glob], outer: &[Glob]| {
            inner.iter().all(|glob| glob.is_impossible() || outer.iter().any(|outer| outer.covers(glob)))
        };
        match (self, other) {
            (Requirement::Path { globs, negated: false }, Requirement::Path { globs: wider, negated: false }) => {
                covered(globs, wider)
            }
            (Requirement::Path { globs, negated: true }, Requirement::Path { globs: wider, negated: true }) => {
                covered(wider, globs)
            }
            (
                Requirement::Xattr { name, any_of, negated },
                Requirement::Xattr { name: other, any_of: wider, negated: not },
            ) => name == other && values_imply((any_of, negated), (wider, not)),
            _ => false,
        }
    }

    /// One of these that no file fulfils together with the others.
    pub(super) fn contradiction(all: &[Requirement<'a>]) -> Option<Requirement<'a>> {
        let refuted = |one: &Requirement<'a>| all.iter().any(|other| other.implies(one.negated()));
        all.iter().find(|one| one.is_impossible() || refuted(one)).copied()
    }
}

/// Values that an attribute may have; negated, may not have. `None`: any value.
type AttributeValues<'a> = (Option<&'a [Box<[u8]>]>, bool);

fn values_imply(own: AttributeValues<'_>, wider: AttributeValues<'_>) -> bool {
    let within = |inner: &[Box<[u8]>], outer: &[Box<[u8]>]| inner.iter().all(|value| outer.contains(value));
    match (own, wider) {
        ((Some(own), false), (Some(wider), false)) => within(own, wider),
        ((Some(own), false), (Some(out), true)) => !own.iter().any(|value| out.contains(value)),
        ((Some(out), true), (Some(fewer), true)) => within(fewer, out),
        ((_, false), (None, false)) | ((None, true), (_, true)) => true,
        _ => false,
    }
}
