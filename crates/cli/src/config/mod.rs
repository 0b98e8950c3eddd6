//! The configuration: one TOML file, read into a [`PoolSpec`].
//!
//! Three steps, each with its own kind of complaint:
//!
//! 1. `file` gives the text a typed shape. Unknown keys and wrong types end here.
//! 2. `convert` turns it into the plain types that the file system and the rules work with, and collects every mistake.
//! 3. `disks` looks at the real paths: branches inside each other, missing mount points.
//!
//! A configuration is input from outside: nothing in here panics, and every error names file, line and column.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod branch_paths;
mod complaints;
mod conditions;
mod contradictions;
mod conversion;
mod convert;
pub(crate) mod disk;
mod disks;
mod evict;
mod file;
mod groups;
mod notice;
pub(crate) mod outline;
mod problem;
mod rules;
pub(crate) mod save;
mod seen;
mod source;
mod suspicious_rules;
#[cfg(test)]
mod tests;
mod treatment;
mod values;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use umbrella_fs::spec::{AccessTimes, PoolSpec};
use umbrella_policy::placement::{RuleError, Rules};
use umbrella_units::BranchId;

use crate::mounts;

pub(crate) use conditions::FILE_TYPES;
pub(crate) use disks::probe_to_json;
pub(crate) use notice::SpannedNotice;
pub(crate) use problem::{ConfigErrors, ErrorReport, Problem};
pub(crate) use source::Source;

/// The largest configuration that is read.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// A configuration that can be used.
#[derive(Debug)]
pub(crate) struct Config {
    /// The pool.
    pub(crate) spec: PoolSpec,
    /// The text it came from.
    pub(crate) source: Source,
    /// Where each rule (or pattern of the name table), branch and setting stands.
    pub(crate) spans: Spans,
}

impl Config {
    /// A message about a place in the file.
    pub(crate) fn report(&self, span: &Range<usize>, message: String) -> ErrorReport {
        ErrorReport::at(&self.source, span, message)
    }

    /// Its rules, compiled for its own branches.
    pub(crate) fn rules(&self) -> Result<Rules, RuleError> {
        Rules::compile(&self.spec.rules, &ids(self.spec.branches.iter().map(|branch| &branch.name)))
    }

    /// Where a rule, or a pattern of the name table, is.
    pub(crate) fn span_of_rule(&self, name: &str) -> Range<usize> {
        let rule = self.spec.rules.rules.iter().position(|rule| rule.name == name);
        let span = rule.and_then(|index| self.spans.rules.get(index)).or_else(|| self.spans.globs.get(name));
        span.cloned().unwrap_or_default()
    }
}

/// Branches by name, with the ids that they have in a pool of just these.
fn ids<'a>(names: impl Iterator<Item = &'a String>) -> Vec<(String, BranchId)> {
    names.cloned().zip((0..=u16::MAX).map(BranchId)).collect()
}

/// Where things are in the text.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// The value of `mount`.
    pub(crate) mount: Range<usize>,
    /// The default list.
    pub(crate) default: Range<usize>,
    /// The path of the staging area.
    pub(crate) staging: Range<usize>,
    /// Each branch's path, in order.
    pub(crate) branches: Vec<Range<usize>>,
    /// Each rule, in order; for the name table, its name.
    pub(crate) rules: Vec<Range<usize>>,
    /// Each pattern of the name table.
    pub(crate) globs: HashMap<String, Range<usize>>,
    /// Each fill level, in order.
    pub(crate) evicts: Vec<Range<usize>>,
}

/// Reads a configuration and checks everything that can be known without looking at the disks.
pub(crate) fn read(path: &Path) -> Result<Config, ConfigErrors> {
    parse(path, bytes_of(path, "docs/configuration.md")?)
}

/// The bytes of a configuration, which that page describes.
fn bytes_of(path: &Path, page: &'static str) -> Result<Vec<u8>, ConfigErrors> {
    let unread = |problem| ConfigErrors::whole_file(path, problem);
    if let Some(silence) = mounts::describe_unresponsive(path) {
        return Err(unread(Problem::Silent { silence }));
    }
    let mut bytes = Vec::new();
    // Never waits: it may be a pipe.
    let opened = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    opened
        .and_then(|file| match file.metadata()?.file_type() {
            kind if kind.is_fifo() || kind.is_socket() => Err(std::io::Error::other("it is not a file")),
            _ => file.take(MAX_BYTES + 1).read_to_end(&mut bytes),
        })
        .map_err(|error| unread(Problem::unreadable(&error, page)))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unread(Problem::TooLarge { limit: MAX_BYTES }));
    }
    Ok(bytes)
}

/// As [`read`], and looks at the disks too: paths inside each other are errors. What is only odd comes back as
/// findings. The pool is to be mounted `at` a place other than the one in the file, if one is given.
pub(crate) fn load(
    path: &Path,
    at: Option<&Path>,
    access_times: AccessTimes,
) -> Result<(Config, Vec<SpannedNotice>), ConfigErrors> {
    let mut config = parse_for(path, bytes_of(path, "docs/configuration.md")?, at)?;
    config.spec.access_times = access_times;
    let findings = disks::inspect_paths(&mut config)?;
    Ok((config, findings))
}

/// Parses the text of a configuration. `name` is only used in messages.
pub(crate) fn parse(name: &Path, bytes: Vec<u8>) -> Result<Config, ConfigErrors> {
    parse_for(name, bytes, None)
}

/// As [`parse`], for a mount `at` a place other than the one in the file.
fn parse_for(name: &Path, bytes: Vec<u8>, at: Option<&Path>) -> Result<Config, ConfigErrors> {
    let source = Source::new(name, bytes)?;
    let shape = match file::parse_pool(source.text()) {
        Ok(shape) => shape,
        Err((problem, span)) => return Err(ConfigErrors::one(source, problem, span)),
    };
    convert::pool(&shape, source, at)
}
