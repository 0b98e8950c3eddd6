//! What is found at a path that a configuration names.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use umbrella_units::ByteSize;

use super::notice::Reads;
use crate::probe;

/// A directory's identity.
pub(super) type Id = (u64, u64);

/// What was seen of one path.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PathFacts {
    /// Without symbolic links, as far as the path exists.
    #[serde(with = "probe::bytes_of_path")]
    pub(super) resolved: PathBuf,
    /// The path itself, if it exists.
    pub(super) id: Option<Id>,
    /// Its parents that exist.
    pub(super) parents: Vec<Id>,
    pub(super) directory: bool,
    /// A mounted pool hides what is there.
    #[serde(default)]
    pub(super) covered: bool,
    pub(super) mount_root: bool,
    /// Its identity as a branch, if it was one.
    pub(super) identity: Option<uuid::Uuid>,
    pub(super) total: Option<ByteSize>,
    /// How reads there change access times.
    pub(super) reads: Reads,
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Failure {
    Missing,
    Silent,
    Other(String),
}
