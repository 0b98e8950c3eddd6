//! What looking for a name finds on the branches.

use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};
use umbrella_policy::placement::spec::FileKind;

use crate::at::DirAt;
use crate::error::{OpError, OpResult};
use crate::meta::Meta;

/// An entry as found on the branches: several only for directories and for names that more than one branch holds.
pub(crate) struct Found {
    pub(crate) at: SmallVec<[(DirAt, Meta); 2]>,
    /// The directory's count of moves before it was looked at; `None` for what cannot have moved since: it is new.
    pub(crate) moves: Option<u64>,
}

impl Found {
    /// Where a file is.
    pub(crate) fn first(&self) -> OpResult<&(DirAt, Meta)> {
        self.at.first().ok_or(OpError::Sys(Errno::NOENT))
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.at.first().map_or(FileKind::File, |(_, meta)| meta.kind)
    }
}

/// What was listed on one branch.
pub(crate) fn found_one(at: &DirAt, meta: Meta, moves: Option<u64>) -> Found {
    Found { at: smallvec![(at.clone(), meta)], moves }
}
