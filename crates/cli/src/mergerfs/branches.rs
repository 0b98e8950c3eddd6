//! The list of branches: `/mnt/disk*:/mnt/ssd=NC,50G`.

use super::MergerfsError;

/// What may be done on a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    ReadWrite,
    ReadOnly,
    NoCreate,
}

/// A branch as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergerfsBranch {
    pub(super) path: String,
    pub(super) mode: Mode,
    pub(super) min_free: Option<String>,
}

impl MergerfsBranch {
    /// Whether the path means several.
    pub(super) fn is_pattern(&self) -> bool {
        self.path.contains(['*', '?', '[', '{'])
    }

    /// How a list names it: a branch of this name, or all that the pattern names by their last component.
    pub(super) fn member(&self, name: &str) -> String {
        match self.path.trim_end_matches('/').rsplit('/').next() {
            Some(last) if self.is_pattern() => last.to_owned(),
            _ => name.to_owned(),
        }
    }
}

/// Takes the list apart.
pub(super) fn parse(list: &str) -> Result<Vec<MergerfsBranch>, MergerfsError> {
    list.split(':').filter(|branch| !branch.is_empty()).map(branch).collect()
}

fn branch(text: &str) -> Result<MergerfsBranch, MergerfsError> {
    let plain = || MergerfsBranch { path: text.to_owned(), mode: Mode::ReadWrite, min_free: None };
    let Some((path, options)) = text.rsplit_once('=') else { return Ok(plain()) };
    let (mode, min_free) = match options.split_once(',') {
        Some((mode, min_free)) => (mode, Some(min_free)),
        None => (options, None),
    };
    let mode = match mode {
        "RW" => Mode::ReadWrite,
        "RO" => Mode::ReadOnly,
        "NC" => Mode::NoCreate,
        // The sign belongs to the path.
        _ => return Ok(plain()),
    };
    Ok(MergerfsBranch { path: path.to_owned(), mode, min_free: min_free.map(size).transpose()? })
}

/// A size of mergerfs as ours: `4G` has powers of 1024.
pub(super) fn size(text: &str) -> Result<String, MergerfsError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let unit = match unit {
        "" | "B" | "b" => "",
        "K" | "k" => "KiB",
        "M" | "m" => "MiB",
        "G" | "g" => "GiB",
        "T" | "t" => "TiB",
        _ => return Err(MergerfsError::NoSize { value: text.to_owned() }),
    };
    match digits.parse::<u64>() {
        Ok(number) => Ok(format!("{number}{unit}")),
        Err(_) => Err(MergerfsError::NoSize { value: text.to_owned() }),
    }
}
