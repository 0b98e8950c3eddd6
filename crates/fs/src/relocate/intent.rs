//! The format of intent files.

use std::fmt;

use super::Fingerprint;
use super::RelocateError;

/// The identity that a branch keeps for life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchUuid(pub [u8; 16]);

impl fmt::Display for BranchUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A change of several steps that a crash must not leave halfway. Paths are bytes relative to every branch's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// A file goes from one branch to another.
    Move {
        /// Old branch.
        from: BranchUuid,
        /// New branch.
        to: BranchUuid,
        /// Every name of the file.
        names: Vec<Vec<u8>>,
        /// Name of the copy in the new branch's [`super::TEMP_DIR`].
        temp: Vec<u8>,
        /// The file on the old branch.
        source: Fingerprint,
        /// The copy.
        target: Fingerprint,
    },
    /// A directory gets a new name on several branches.
    RenameDir {
        /// Old path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
        /// The branches that had the old path.
        branches: Vec<BranchUuid>,
        /// An empty directory of the new name may be replaced.
        replaced: bool,
    },
    /// A file gets a name that a file on another branch had.
    Supersede {
        /// Old path of the winner.
        from: Vec<u8>,
        /// Path that both claim.
        to: Vec<u8>,
        /// Branch of the file that is renamed.
        winner: BranchUuid,
        /// That file.
        winner_file: Fingerprint,
        /// Branch of the file that is replaced.
        loser: BranchUuid,
        /// That file.
        loser_file: Fingerprint,
        /// The rename is known to be done.
        decided: bool,
    },
}

/// Why bytes are not an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too short, or shorter than it says.
    #[error("cut short")]
    Short,
    /// Longer than it says, or than any intent may be.
    #[error("too long")]
    Long,
    /// Not an intent file.
    #[error("not an intent")]
    Magic,
    /// Of a newer program.
    #[error("format version {0} is not known")]
    Version(u16),
    /// Damaged.
    #[error("checksum is wrong")]
    Checksum,
    /// Kind or field has no meaning.
    #[error("a field has no meaning")]
    Field,
    /// A path that leaves the branch or names the hidden directory.
    #[error("a path is not allowed")]
    Path,
}

impl Intent {
    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>, RelocateError> {
        Err(RelocateError::IntentTooLong)
    }

    /// Reads the bytes of a file; never panics, whatever they are.
    pub fn decode(_bytes: &[u8]) -> Result<Self, DecodeError> {
        Err(DecodeError::Magic)
    }
}
