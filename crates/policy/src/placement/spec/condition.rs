//! Conditions of rules as the user wrote them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_units::{Amount, ByteSize};

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

/// What the mode bits allow anybody to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// No write bit for anybody.
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
    /// Birth; of a file whose birth is not known no condition on it holds.
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
}

/// One condition of a metadata rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The file's size. Unknown while the file is new: the rule then waits for close.
    Size {
        /// Comparison.
        is: Comparison,
        /// Threshold.
        value: ByteSize,
        /// Hysteresis: a file that lives on this rule's branches leaves only when it passes the threshold by more than this.
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
}
