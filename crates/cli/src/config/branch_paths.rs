//! Where the branches of one `[[branch]]` lie: at its path, or at each directory that the pattern of its path matches.
//!
//! A pattern is in the last component. Branches that the pool remembers at a matching path belong to it too, even
//! while the directory is not there: a disk that is missing is offline, not forgotten.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use umbrella_fs::branch::StateDir;
use umbrella_policy::placement::NamePattern;

use super::conversion::Conversion;
use super::file::BranchFile;
use super::problem::Problem;
use crate::{mounts, pool};

/// A branch's name, its path, and where to point when the name is wrong.
pub(super) struct BranchPath {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) span: Range<usize>,
}

/// The places of one `[[branch]]` of the pool that is mounted at `mount`.
pub(super) fn places(c: &mut Conversion, branch: &BranchFile, mount: &Path) -> Vec<BranchPath> {
    let path = c.complaints.absolute_path("path", &branch.path);
    let written = branch.path.get_ref();
    if let Some(name) = &branch.name {
        if NamePattern::is_one(written) && !path.exists() {
            c.fail(name.span(), Problem::NameOfSeveral);
            return Vec::new();
        }
        return vec![BranchPath { name: c.name("a branch", name), path, span: name.span() }];
    }
    let span = branch.path.span();
    let last = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if !NamePattern::is_one(written) {
        let name = c.name("a branch", &Spanned::new(span.clone(), last));
        return vec![BranchPath { name, path, span }];
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    if NamePattern::is_one(&folder.to_string_lossy()) {
        c.fail(span, Problem::PatternInFolder);
        return Vec::new();
    }
    let pattern = match NamePattern::new(&last) {
        Ok(pattern) => pattern,
        Err(reason) => {
            c.fail(span, Problem::BadGlob { glob: last, reason });
            return Vec::new();
        }
    };
    matching(c, folder, &pattern, mount, &span)
}

fn matching(
    c: &mut Conversion,
    folder: &Path,
    pattern: &NamePattern,
    mount: &Path,
    span: &Range<usize>,
) -> Vec<BranchPath> {
    if let Some(silence) = mounts::describe_unresponsive(folder) {
        c.fail(span.clone(), Problem::Silent { silence: format!("{} {silence}", folder.display()) });
        return Vec::new();
    }
    // What the names stand for is not looked at: a disk below may not answer.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_file()));
    let there = directories.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    let known = StateDir::remembered(&pool::state_dir(mount), mount).into_iter();
    let remembered = known.map(|(name, known)| (name, known.path)).filter(|(_, path)| path.parent() == Some(folder));
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for (name, path) in remembered.chain(there) {
        let is_meant = path.file_name().and_then(|name| name.to_str()).is_some_and(|last| pattern.matches(last));
        if is_meant && !found.iter().any(|(_, known)| *known == path) {
            found.push((name, path));
        }
    }
    if found.is_empty() {
        c.fail(span.clone(), Problem::PathMatchesNothing);
    }
    found.sort_by_cached_key(|(name, _)| in_counting_order(name));
    found
        .into_iter()
        .map(|(name, path)| {
            let name = c.name("a branch", &Spanned::new(span.clone(), name));
            BranchPath { name, path, span: span.clone() }
        })
        .collect()
}

/// Names in the order in which people count: disk2 before disk10.
fn in_counting_order(name: &str) -> Vec<(String, u64)> {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, behind) = rest.split_at(rest.find(is_digit).unwrap_or(rest.len()));
        let (number, behind) = behind.split_at(behind.find(|c| !is_digit(c)).unwrap_or(behind.len()));
        parts.push((text.to_owned(), number.parse().unwrap_or(0)));
        rest = behind;
    }
    parts
}
