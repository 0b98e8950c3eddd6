//! What can be wrong with rules.

use thiserror::Error;
use umbrella_units::Amount;

use super::glob::GlobError;

/// Rules that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// A name that no branch and no group has.
    #[error("rule \"{rule}\": there is no branch or group \"{branch}\"{}", known_names(.known))]
    UnknownBranch {
        /// The rule, or `default`.
        rule: String,
        /// The name it uses.
        branch: String,
        /// Names that do exist.
        known: Vec<String>,
    },
    /// A destination without a branch.
    #[error("rule \"{rule}\": `to` names no branch (give at least one)")]
    EmptyDestination {
        /// The rule.
        rule: String,
    },
    /// The default list as a part of itself.
    #[error("`default` cannot name itself (leave \"default\" out of that list; \"any\" means all remaining branches)")]
    DefaultInDefault,
    /// A name that occurs twice in one list.
    #[error("rule \"{rule}\": \"{branch}\" is in the list twice (keep the first)")]
    DuplicateBranch {
        /// The rule, or `default`.
        rule: String,
        /// The branch.
        branch: String,
    },
    /// A group named like a branch or another group.
    #[error("group \"{group}\": a branch or another group has this name (names must differ)")]
    NameTaken {
        /// The group.
        group: String,
    },
    /// A group named like a word of the lists.
    #[error("\"{name}\" has a special meaning in lists (choose another name)")]
    ReservedName {
        /// The name.
        name: String,
    },
    /// A member that no branch and no group is.
    #[error("group \"{group}\": there is no branch or group \"{item}\"{}", known_names(.known))]
    UnknownMember {
        /// The group.
        group: String,
        /// As it is written.
        item: String,
        /// Names that do exist.
        known: Vec<String>,
    },
    /// A group that is a member of itself, perhaps through others.
    #[error("group \"{group}\": \"{item}\" contains this group (leave one of the two out of the other)")]
    GroupInItself {
        /// The group.
        group: String,
        /// The member that leads back to it.
        item: String,
    },
    /// A pattern of names that no branch has.
    #[error("group \"{group}\": no branch matches \"{item}\"{}", known_names(.known))]
    MatchesNothing {
        /// The group.
        group: String,
        /// The pattern.
        item: String,
        /// The branches that there are.
        known: Vec<String>,
    },
    /// `!x` without an `x` to leave out.
    #[error("group \"{group}\": \"{item}\" leaves nothing out (the entries without \"!\" do not name it)")]
    LeavesNothingOut {
        /// The group.
        group: String,
        /// As it is written.
        item: String,
    },
    /// A group without a member.
    #[error("group \"{group}\" has no member (name a branch, a group, or \"*\" for all branches)")]
    EmptyGroup {
        /// The group.
        group: String,
    },
    /// A pattern of names that cannot be read.
    #[error("group \"{group}\": \"{item}\" {reason}")]
    BadMembers {
        /// The group.
        group: String,
        /// As it is written.
        item: String,
        /// The cause.
        reason: GlobError,
    },
    /// A pattern of directories that cannot be read.
    #[error("group \"{group}\": together = \"{glob}\" {reason}")]
    BadTogether {
        /// The group.
        group: String,
        /// The pattern.
        glob: String,
        /// The cause.
        reason: GlobError,
    },
    /// A low mark above the high mark, or marks that cannot be compared.
    #[error(
        "evict of \"{of}\": until = \"{until}\" must be at most above = \"{above}\" (both as a share of the size, or \
        both as a size)"
    )]
    EvictMarks {
        /// The branch or group.
        of: String,
        /// The high mark.
        above: Amount,
        /// The low mark.
        until: Amount,
    },
    /// A fill level that sends files to the branches that they leave.
    #[error("evict of \"{of}\": \"{to}\" has only branches that files must leave (leave it out, or name another one)")]
    EvictToItself {
        /// The branch or group.
        of: String,
        /// The destination.
        to: String,
    },
    /// More than one name table.
    #[error("rule \"{rule}\": a second name table (the first is \"{first}\"; put all patterns there)")]
    SecondNameTable {
        /// The second.
        rule: String,
        /// The first.
        first: String,
    },
    /// A pattern that cannot be read.
    #[error("rule \"{rule}\": pattern \"{glob}\": {reason}")]
    BadGlob {
        /// The rule.
        rule: String,
        /// The pattern.
        glob: String,
        /// The cause.
        reason: GlobError,
    },
    /// Conditions inside conditions inside conditions...
    #[error(
        "rule \"{rule}\": `not`, `any` and `all` are nested more than {} deep (write several rules)",
        super::spec::Condition::MAX_DEPTH
    )]
    TooDeep {
        /// The rule.
        rule: String,
    },
    /// A comparison that the condition does not have.
    #[error("rule \"{rule}\": `{condition}` can only be compared with = and !=")]
    BadComparison {
        /// The rule.
        rule: String,
        /// The condition.
        condition: &'static str,
    },
}

fn known_names(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = known.iter().map(|name| format!("\"{name}\"")).collect();
    format!(" (known here: {})", quoted.join(", "))
}
