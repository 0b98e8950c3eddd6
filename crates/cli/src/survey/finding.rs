//! What a survey finds, as `--json` prints it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use umbrella_fs::control::protocol::CopyRights;
use umbrella_units::ByteSize;

/// A path in the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PoolPath {
    /// Beginning with `/`; lossy.
    pub(crate) path: String,
    /// Its bytes, where it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<Vec<u8>>,
}

impl PoolPath {
    /// The path in the pool of a path relative to the roots of the branches.
    pub(crate) fn of(relative: &Path) -> PoolPath {
        let path = Path::new("/").join(relative);
        let path_bytes = path.to_str().is_none().then(|| path.as_os_str().as_bytes().to_vec());
        PoolPath { path: path.to_string_lossy().into_owned(), path_bytes }
    }
}

/// What the copies of a file have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    /// Every byte was compared, or they are equal links.
    Same,
    /// Their sizes, kinds or bytes differ.
    Different,
    /// Their sizes are equal, and nothing else was compared.
    SameSize,
    /// They could not be read.
    Unknown,
}

/// One copy of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Copied {
    pub(crate) branch: String,
    pub(crate) size: ByteSize,
    /// Seconds since 1970.
    pub(crate) modified: f64,
}

/// A finding that the user should know before the branches become one tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub(crate) enum Finding {
    /// A file that several branches have. The first copy is the one that the pool shows.
    File {
        #[serde(flatten)]
        place: PoolPath,
        content: Content,
        copies: Vec<Copied>,
    },
    /// A directory whose copies have different owners, modes or ACLs.
    Directory {
        #[serde(flatten)]
        place: PoolPath,
        copies: Vec<CopyRights>,
    },
    /// A name that is a directory on some branches and something else on others.
    Kinds {
        #[serde(flatten)]
        place: PoolPath,
        directory_on: Vec<String>,
        other_on: Vec<String>,
    },
    /// Names in one directory that differ only in case and are not all on one branch.
    Case { names: Vec<CaseName> },
    /// Something that could not be looked at.
    Unread(Unread),
}

/// One of several names that differ only in case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CaseName {
    #[serde(flatten)]
    pub(crate) place: PoolPath,
    pub(crate) branches: Vec<String>,
}

/// What could not be looked at, where, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Unread {
    #[serde(flatten)]
    pub(crate) place: PoolPath,
    pub(crate) branch: String,
    pub(crate) error: String,
}

/// What one branch holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BranchTotals {
    pub(crate) branch: String,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// Links, sockets, devices.
    pub(crate) others: u64,
    /// The size of its file system in bytes; null if that is not known.
    pub(crate) total: Option<ByteSize>,
    pub(crate) free: Option<ByteSize>,
}

/// How much was found of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    pub(crate) branches: Vec<BranchTotals>,
    /// Files on several branches whose copies are equal.
    pub(crate) files_same: u64,
    /// Of different size or content.
    pub(crate) files_different: u64,
    /// Files of the same size; contents not compared.
    pub(crate) files_same_size: u64,
    /// Not readable.
    pub(crate) files_unknown: u64,
    /// Bytes of the copies that the pool would not show.
    pub(crate) bytes_hidden: ByteSize,
    pub(crate) directories_differing: u64,
    pub(crate) kinds_differing: u64,
    pub(crate) case_differing: u64,
    pub(crate) unread: u64,
}

impl Totals {
    pub(super) fn count(&mut self, finding: &Finding) {
        match finding {
            Finding::File { content, copies, .. } => {
                *match content {
                    Content::Same => &mut self.files_same,
                    Content::Different => &mut self.files_different,
                    Content::SameSize => &mut self.files_same_size,
                    Content::Unknown => &mut self.files_unknown,
                } += 1;
                let hidden: u64 = copies.iter().skip(1).map(|copy| copy.size.0).fold(0, u64::saturating_add);
                self.bytes_hidden = ByteSize(self.bytes_hidden.0.saturating_add(hidden));
            }
            Finding::Directory { .. } => self.directories_differing += 1,
            Finding::Kinds { .. } => self.kinds_differing += 1,
            Finding::Case { .. } => self.case_differing += 1,
            Finding::Unread(_) => self.unread += 1,
        }
    }

    /// Files that several branches have.
    pub(crate) fn files_on_several(&self) -> u64 {
        self.files_same + self.files_different + self.files_same_size + self.files_unknown
    }

    /// Whether the branches can become one tree without anything to know.
    pub(crate) fn is_clean(&self) -> bool {
        let found = [self.directories_differing, self.kinds_differing, self.case_differing, self.unread];
        self.files_on_several() == 0 && found == [0; 4]
    }
}
