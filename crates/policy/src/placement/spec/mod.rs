//! Rules as the user wrote them: branch names, not ids. Plain data, sent as JSON when rules are reloaded on a live
//! mount.

mod condition;
mod evict;
mod treatment;

use serde::{Deserialize, Serialize};

pub use condition::*;
pub use evict::{EvictOrder, EvictSpec};
pub use treatment::*;

/// The word for the default list in a rule's list.
pub const DEFAULT: &str = "default";
/// The word for all branches that a list has not named before it.
pub const ANY: &str = "any";

/// All rules of a pool, in order, the default list and the groups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RulesSpec {
    /// First match wins.
    pub rules: Vec<RuleSpec>,
    /// Where a file begins that no rule names: branches, groups or [`ANY`]. Empty: [`ANY`].
    pub default: Vec<String>,
    /// Sets of branches that are of equal worth.
    #[serde(default)]
    pub groups: Vec<GroupSpec>,
    /// Fill levels of branches and groups.
    #[serde(default)]
    pub evicts: Vec<EvictSpec>,
}

/// A set of branches of equal worth: a file on any of them is in its place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Stands wherever the name of a branch does.
    pub name: String,
    /// Names of branches and groups, patterns of names (`disk*`), and `!` before what is left out. Their order breaks
    /// ties.
    pub branches: Vec<String>,
    /// How a new file's branch is chosen.
    pub spread: Spread,
    /// Patterns of directories. All that is below one such directory goes to one member.
    pub together: Vec<String>,
    /// What happens to a file of such a directory when its member is full.
    pub together_full: TogetherFull,
}

/// What happens to a file whose directory is kept together, when the member that holds the directory is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TogetherFull {
    /// The file goes to another member.
    #[default]
    Spill,
    /// There is no room for the file.
    NoRoom,
}

/// How a group chooses the member for a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Which members come into question first.
    pub narrow: Option<Narrow>,
    /// Which of those is taken.
    pub order: SpreadOrder,
}

/// Which members of a group come into question for a file, by the directories that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Narrow {
    /// Those that have the file's directory; when none of them has room, all.
    SamePath,
    /// Those that have the file's directory, or all when none has it. When they are full, there is no room.
    OnlySamePath,
    /// Those that have the nearest directory above the file that any member with room has.
    NearestPath,
}

/// Which member of a group is taken. The first in order on a tie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadOrder {
    /// Most free bytes.
    #[default]
    MostFree,
    /// Most free space as a share of the size.
    MostFreeShare,
    /// Fewest free bytes.
    LeastFree,
    /// Fewest used bytes.
    LeastUsed,
    /// The first in order.
    InOrder,
    /// The next in order after the one that got the last file.
    RoundRobin,
    /// By chance.
    Random,
    /// By chance; twice the free space, twice the chance.
    RandomByFree,
    /// The first with more free space than a mark, which begins at half of the largest member's size and is halved
    /// until a member has more.
    HighWater,
}

/// One rule, or the name table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleSpec {
    /// Shown by `explain` and in the counters.
    pub name: String,
    /// What the rule looks at.
    pub kind: RuleKindSpec,
    /// How its files are treated; of the name table, nothing.
    #[serde(default)]
    pub treatment: Treatment,
}

/// A metadata rule, or THE name table (at most one in a pool).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKindSpec {
    /// All conditions must hold.
    When {
        /// Joined by and; empty matches every file.
        conditions: Vec<Condition>,
        /// Where a matching file belongs.
        to: DestinationSpec,
    },
    /// As `When`, for the treatment of files: the next rules say where they belong.
    Treat {
        /// Joined by and; empty matches every file.
        conditions: Vec<Condition>,
    },
    /// The longest overall match wins.
    Names(Vec<NameEntrySpec>),
}

/// One pattern of the name table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameEntrySpec {
    /// Matched against the path inside the pool, which begins with `/`. `**` crosses directories; `*` and `?` do not.
    pub glob: String,
    /// Where a matching file belongs.
    pub to: DestinationSpec,
}

/// Branches and groups in order of preference. The list is complete: a file goes nowhere else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DestinationSpec {
    /// Names of branches or groups, [`DEFAULT`], [`ANY`]; the first that is online and has room is used.
    pub branches: Vec<String>,
    /// What happens while entries of the list are offline.
    #[serde(default)]
    pub offline: Offline,
}

/// What a rule does while entries of its list are offline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offline {
    /// An entry that is offline is skipped like one without room; while all are, nothing can be created.
    #[default]
    Next,
    /// While the first entry is offline, the rule is passed over.
    Pass,
    /// While the first entry is offline, nothing can be created.
    Fail,
}
