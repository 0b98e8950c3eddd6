//! Conditions of rules as the user wrote them: questions about a file or a branch, and how they are joined.
//!
//! An answer is yes, no or unknown (a birth time that no file system recorded, the size of a new file, the space of a
//! branch that is offline). `Not` of unknown is unknown, so a rule never acts on what is unknown. Source: Kleene's
//! strong three-valued logic.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_units::{Amount, ByteSize};

use crate::heat::Opens;

/// How a value is compared with the file's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
}

impl Comparison {
    /// The comparison that holds where this one does not.
    #[must_use]
    pub fn negated(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::GreaterOrEqual,
            Comparison::LessOrEqual => Comparison::Greater,
            Comparison::Equal => Comparison::NotEqual,
            Comparison::NotEqual => Comparison::Equal,
            Comparison::GreaterOrEqual => Comparison::Less,
            Comparison::Greater => Comparison::LessOrEqual,
        }
    }
}

/// What the mode bits allow any user to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// No write bit at all.
    ReadOnly,
    /// At least one write bit.
    Writable,
    /// At least one execute bit.
    Executable,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory (never placed by rules: directories exist where their files do).
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Which of a file's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeField {
    /// Last access.
    Atime,
    /// Last change of the data.
    Mtime,
    /// Last change of the inode.
    Ctime,
    /// Birth; not known where the file system records none.
    Btime,
}

/// What of a branch is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpaceField {
    /// Space that is free.
    Free,
    /// Space that is used.
    Used,
    /// Inodes that are used; not known where the file system does not count them.
    Inodes,
}

/// What of a file's path a pattern is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathPart {
    /// The whole path inside the pool, as in the name table.
    Path,
    /// What follows the last slash; the pattern has no `/` and no `**`.
    Name,
}

/// One condition of a rule, or several joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The file's size. Unknown while the file is new: the rule then waits for close.
    Size {
        /// Comparison.
        is: Comparison,
        /// Threshold.
        value: ByteSize,
        /// Hysteresis: a file that lives on this rule's branches leaves only when it passes the threshold by more than
        /// this.
        hysteresis: ByteSize,
    },
    /// The owner.
    Uid {
        /// Comparison (of numbers).
        is: Comparison,
        /// User id; names are resolved by the reader of the configuration.
        value: u32,
    },
    /// The group.
    Gid {
        /// Comparison (of numbers).
        is: Comparison,
        /// Group id.
        value: u32,
    },
    /// Permission bits, octal, all twelve.
    Mode {
        /// Comparison; `Equal` and `NotEqual` look at `mask` only.
        is: Comparison,
        /// Bits.
        value: u32,
        /// Which bits are compared (07777 for all).
        mask: u32,
    },
    /// Access type derived from the mode. Unknown while the file is new: the rule then waits for close.
    Access {
        /// `Equal` or `NotEqual`.
        is: Comparison,
        /// Access type.
        value: Access,
    },
    /// Type of the file: any of these (or, negated, none of these).
    Kind {
        /// Types.
        any_of: Vec<FileKind>,
        /// Matches when the type is not among them.
        negated: bool,
    },
    /// Extension (after the last dot of the name, without it, ignoring ASCII case): any of these.
    Extension {
        /// Extensions, lower case.
        any_of: Vec<String>,
        /// Matches when the extension is not among them.
        negated: bool,
    },
    /// Age of one of the file's times.
    Age {
        /// Which time.
        of: TimeField,
        /// Comparison of the age.
        is: Comparison,
        /// Threshold.
        value: Duration,
        /// Hysteresis, as for `Size`.
        hysteresis: Duration,
    },
    /// How often the file was opened recently ([`crate::heat`]).
    Heat {
        /// Comparison.
        is: Comparison,
        /// Threshold.
        value: Opens,
        /// Hysteresis, as for `Size`.
        hysteresis: Opens,
    },
    /// Number of hard links.
    Links {
        /// Comparison.
        is: Comparison,
        /// Threshold.
        value: u32,
    },
    /// State of a branch: its free or used space.
    Space {
        /// Branch name.
        branch: String,
        /// What is compared.
        of: SpaceField,
        /// Comparison.
        is: Comparison,
        /// Threshold, in bytes or percent of the branch's size.
        value: Amount,
        /// Hysteresis, as for `Size`.
        hysteresis: Amount,
    },
    /// Whether a branch is online.
    Online {
        /// Branch name.
        branch: String,
        /// Required state.
        value: bool,
    },
    /// The path, or its last part: any of these patterns (or, negated, none of them).
    Path {
        /// What is matched.
        of: PathPart,
        /// Patterns.
        any_of: Vec<String>,
        /// Matches when no pattern does.
        negated: bool,
    },
    /// An extended attribute.
    Xattr {
        /// Its name, `user.keep`.
        name: String,
        /// Values, any of which it must have; `None`: it must be there.
        any_of: Option<Vec<String>>,
        /// Holds when it has none of the values, or is not there.
        negated: bool,
    },
    /// The condition does not hold.
    Not(Box<Condition>),
    /// All hold.
    All(Vec<Condition>),
    /// At least one holds.
    Any(Vec<Condition>),
}

impl Condition {
    /// The most `Not`, `All` and `Any` inside each other.
    pub const MAX_DEPTH: usize = 16;

    /// The conditions that are not joined from others, in the order of writing.
    pub fn leaves(conditions: &[Condition]) -> Vec<&Condition> {
        let mut leaves = Vec::new();
        let mut rest: Vec<&Condition> = conditions.iter().rev().collect();
        while let Some(condition) = rest.pop() {
            match condition {
                Condition::Not(inner) => rest.push(inner),
                Condition::All(inner) | Condition::Any(inner) => rest.extend(inner.iter().rev()),
                leaf => leaves.push(leaf),
            }
        }
        leaves
    }
}
