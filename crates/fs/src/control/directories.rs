//! Reports on directories whose copies differ.

use serde::{Deserialize, Serialize};

/// A directory whose copies differ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectoryEvent {
    /// Path in the pool, lossy.
    pub path: String,
    /// Its bytes, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// What its copies were.
    pub copies: Vec<CopyRights>,
    /// What they are to be; of no branch.
    pub to: CopyRights,
    /// `differs`, `equalised`, `failed`.
    pub outcome: EqualiseOutcome,
    /// Why it failed.
    pub detail: Option<String>,
}

/// Owner and mode of a directory's copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRights {
    /// The branch; absent in what copies are to be.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Permission bits, 07777; as text in octal.
    #[serde(with = "octal")]
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// It has an ACL or a default ACL.
    pub acl: bool,
}

/// `"0755"`: as `chmod` takes it and `stat` shows it.
mod octal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mode:04o}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        u32::from_str_radix(&text, 8).map_err(|_| D::Error::custom("a mode is octal"))
    }
}

/// See [`DirectoryEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EqualiseOutcome {
    /// Its copies differ, and are to be changed.
    Differs,
    /// Its copies are equal now.
    Equalised,
    /// A copy could not be changed.
    Failed,
}

/// Totals of [`Request::Equalise`](super::protocol::Request::Equalise).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EqualiseSummary {
    /// Directories looked at.
    pub directories_seen: u64,
    /// Directories whose copies differed.
    pub directories_differing: u64,
    /// Directories whose copies are equal now.
    pub directories_equalised: u64,
    /// Directories of which a copy could not be changed.
    pub directories_failed: u64,
    /// Directories that differ and have no copy on the authoritative branch.
    #[serde(default)]
    pub directories_without_model: u64,
    /// It was ended before its end.
    #[serde(default)]
    pub stopped: bool,
}
