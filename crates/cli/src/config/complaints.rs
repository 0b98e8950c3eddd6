//! What a conversion collects: every mistake with its place. Values that configurations of all kinds have are read
//! here.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use umbrella_units::{ByteSize, parse_duration};

use super::problem::{ConfigErrors, Located, Problem};
use super::source::Source;
use super::values::Scalar;

/// The text, and what is wrong with it so far.
pub(super) struct Complaints {
    pub(super) source: Source,
    errors: Vec<Located>,
}

impl Complaints {
    pub(super) fn new(source: Source) -> Complaints {
        Complaints { source, errors: Vec::new() }
    }

    pub(super) fn fail(&mut self, span: Range<usize>, problem: Problem) {
        self.errors.push(Located { problem, span });
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// How many mistakes there are so far.
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// The text, if nothing is wrong with it.
    pub(super) fn end(self) -> Result<Source, ConfigErrors> {
        match ConfigErrors::all(&self.source, self.errors) {
            Some(errors) => Err(errors),
            None => Ok(self.source),
        }
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        value: Option<&Spanned<Scalar>>,
        default: Duration,
    ) -> Duration {
        let Some(value) = value else { return default };
        parse_duration(&value.get_ref().text()).unwrap_or_else(|error| {
            self.fail(value.span(), Problem::Duration { key, error });
            default
        })
    }

    /// A size that must not be zero; `valid` says what it must be.
    pub(super) fn size(
        &mut self,
        key: &'static str,
        value: Option<&Spanned<Scalar>>,
        valid: &'static str,
    ) -> Option<ByteSize> {
        let value = value?;
        match value.get_ref().text().parse() {
            Ok(ByteSize(0)) => {
                self.fail(value.span(), Problem::OutOfRange { key, given: value.get_ref().text(), valid });
                None
            }
            Ok(size) => Some(size),
            Err(error) => {
                self.fail(value.span(), Problem::Size { key, error });
                None
            }
        }
    }

    pub(super) fn absolute_path(&mut self, key: &'static str, path: &Spanned<String>) -> PathBuf {
        let given = Path::new(path.get_ref());
        let bad = !given.is_absolute()
            || path.get_ref().contains('\0')
            || given.components().any(|part| part == Component::ParentDir);
        if bad {
            self.fail(path.span(), Problem::BadPath { key, path: path.get_ref().clone() });
        }
        // Without "." and doubled or trailing slashes, so that one path has one spelling.
        given.components().collect()
    }
}
