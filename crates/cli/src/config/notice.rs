//! Warnings about a pool's configuration that are no errors.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbrella_fs::spec::AtimeUpdate;
use umbrella_units::{Amount, ByteSize};

use crate::advice::command;
use crate::text::{quoted, quoted_list, visible_path};

/// No longer than this for all paths together.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Something odd that is no error, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpannedNotice {
    pub(crate) span: Range<usize>,
    pub(crate) notice: Notice,
}

/// The warning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Notice {
    #[error(
        "branch {}: {} does not exist; {}",
        quoted(name),
        visible_path(path),
        if *optional { "the pool starts without it" } else { "mount stops here unless --allow-missing is given or the branch is optional" }
    )]
    BranchMissing { name: String, path: PathBuf, optional: bool },
    #[error(
        "branch {}: {} holds another file system than before, so it would be offline; mount the old disk, or use this one from now on: {}",
        quoted(name),
        visible_path(path),
        command(["branch", "replace", name, "--pool", &config.to_string_lossy()])
    )]
    OtherDisk { name: String, path: PathBuf, config: PathBuf },
    #[error(
        "branch {}: {} holds the disk of branch {}, so it would be offline; correct the mount points, or the paths in the configuration",
        quoted(name),
        visible_path(path),
        quoted(theirs)
    )]
    DiskOfAnother { name: String, path: PathBuf, theirs: String },
    #[error(
        "branch {}: {} is still hidden (it shows an empty directory), but no daemon runs; show it again with {}",
        quoted(name),
        visible_path(path),
        command(["unmount", &mount.to_string_lossy()])
    )]
    LeftHidden { name: String, path: PathBuf, mount: PathBuf },
    #[error("branch {}: {} does not answer (waited {} s); check its disk or server", quoted(name), visible_path(path), TIMEOUT.as_secs())]
    BranchSilent { name: String, path: PathBuf },
    #[error("branch {}: {} cannot be read: {reason}", quoted(name), visible_path(path))]
    BranchUnreadable { name: String, path: PathBuf, reason: String },
    #[error("branch {}: {} is not a directory", quoted(name), visible_path(path))]
    BranchNotDirectory { name: String, path: PathBuf },
    #[error(
        "branch {}: {} is not mounted, but require_mount is set: the branch would be offline; mount it",
        quoted(name),
        visible_path(path)
    )]
    NotMounted { name: String, path: PathBuf },
    #[error(
        "branch {}: {} is not mounted, but was a mount point when the pool first used it: the branch would be offline; mount it",
        quoted(name),
        visible_path(path)
    )]
    NoLongerMounted { name: String, path: PathBuf },
    #[error(
        "branch {}: {} is a plain directory, not a mount point. New files go to the file system of {}: mount the \
        branch's disk, or set require_mount = false if this is intended",
        quoted(name),
        visible_path(path),
        visible_path(path.parent().unwrap_or(path))
    )]
    PlainDirectory { name: String, path: PathBuf },
    #[error(
        "branch {}: {} is a plain directory, not a mount point. New files go to the file system of {}: mount the \
        branch's disk first, or set require_mount = false to use the directory",
        quoted(name),
        visible_path(path),
        visible_path(path.parent().unwrap_or(path))
    )]
    PlainAtFirst { name: String, path: PathBuf },
    #[error(
        "branch {}: min_free is {min_free}, but the whole branch has {total}, so it gets new files last; write a smaller min_free",
        quoted(name)
    )]
    MinFreeTooLarge { name: String, min_free: Amount, total: ByteSize },
    #[error(
        "branch {}: min_free is only {min_free}; for a share of the branch, write for example \"5%\"",
        quoted(name)
    )]
    MinFreeTiny { name: String, min_free: ByteSize },
    #[error(
        "branch {}: headroom ({headroom}) is less than min_free ({min_free}); min_free is used instead",
        quoted(name)
    )]
    HeadroomBelowMinFree { name: String, headroom: ByteSize, min_free: ByteSize },
    #[error(
        "branches {} and {} are on the same file system: its space counts twice, and if it fails, both are lost",
        quoted(first),
        quoted(second)
    )]
    SameFileSystem { first: String, second: String },
    #[error(
        "every branch of the default list is read-only or has create = false: files that no rule names cannot be created; name another branch"
    )]
    DefaultReadOnly,
    #[error(
        "the default list begins with branch {}, which is read-only or has create = false, so it gets no files; put \
        another branch first",
        quoted(name)
    )]
    DefaultBeginsReadOnly { name: String },
    #[error(
        "rule {}: all of its branches are read-only or have create = false, so it can place no file; name another branch",
        quoted(rule)
    )]
    RuleReadOnly { rule: String },
    #[error(
        "rule {}: \"offline\" has no effect on a list that begins with \"any\", which is offline only when all \
        branches are; leave it out",
        quoted(rule)
    )]
    OfflineOfAny { rule: String },
    #[error(
        "rule {}: it matches only while the branches of its list are offline, so it can place no file; name another \
        branch",
        quoted(rule)
    )]
    OnlyWhileOffline { rule: String },
    #[error(
        "rule {}: its hysteresis is too large for the threshold, so a file that the rule brought never leaves; write \
        a smaller one",
        quoted(rule)
    )]
    HysteresisTooWide { rule: String },
    #[error(
        "rule {}: moving files changes {key:?}, so files would move to and fro; write for example hysteresis = \"5%\"",
        quoted(rule)
    )]
    SpaceWithoutHysteresis { rule: String, key: &'static str },
    #[error("evict of {}: no file can ever leave, because {reason}; correct \"only\"", quoted(of))]
    EvictsNothing { of: String, reason: String },
    #[error(
        "evict of {}: \"to\" names group {}, which includes a branch that files must leave; name the group's other \
        branches instead",
        quoted(of),
        quoted(group)
    )]
    EvictIntoOwnGroup { of: String, group: String },
    #[error(
        "evict of {}: no file can ever leave, because no list names another branch; add one to a list of a rule, `default` or `to`",
        quoted(of)
    )]
    EvictIdle { of: String },
    #[error("rule {}: an age never equals a duration exactly; write \"> 30d\" or \"< 30d\"", quoted(rule))]
    AgeEquality { rule: String },
    #[error(
        "rule {}: files cool by themselves, so a file that moved here soon belongs elsewhere; write for example \
        hysteresis = 2",
        quoted(rule)
    )]
    WarmWithoutHysteresis { rule: String },
    #[error(
        "rule {} brings warm files to {}, whose evict does not look at heat and may send them away again; write order = \"coldest\"",
        quoted(rule),
        quoted(of)
    )]
    WarmAgainstEvict { rule: String, of: String },
    #[error("{by}: {unnoted}")]
    ReadsUnnoted { by: String, unnoted: Unnoted },
    #[error(
        "the pattern {} begins with the mount point, but patterns match paths inside the pool: write {}",
        quoted(glob),
        quoted(meant)
    )]
    GlobWithMount { glob: String, meant: String },
    #[error(
        "the pattern {} matches only this name, and not the files in a directory of this name; for those write {}",
        quoted(glob),
        quoted(meant)
    )]
    GlobOfDirectory { glob: String, meant: String },
    #[error(
        "the staging area {} is on a disk, so new files are written twice; leave out volatile = false",
        visible_path(path)
    )]
    StagingOnDisk { path: PathBuf },
    #[error("the staging area {} cannot be used, so mount would fail: {reason}", visible_path(path))]
    Staging { path: PathBuf, reason: String },
    #[error("the mount point {} does not exist; create it with mkdir -p", visible_path(mount))]
    MountMissing { mount: PathBuf },
    #[error("the mount point {} is not a directory", visible_path(mount))]
    MountNotDirectory { mount: PathBuf },
    #[error("the mount point {} is not empty: the mounted pool hides its contents", visible_path(mount))]
    MountNotEmpty { mount: PathBuf },
}

impl SpannedNotice {
    /// The branch that could not be used just now.
    pub(crate) fn missing_branch(&self) -> Option<&str> {
        match &self.notice {
            Notice::BranchMissing { name, .. }
            | Notice::BranchSilent { name, .. }
            | Notice::BranchUnreadable { name, .. }
            | Notice::BranchNotDirectory { name, .. }
            | Notice::NotMounted { name, .. }
            | Notice::OtherDisk { name, .. }
            | Notice::DiskOfAnother { name, .. }
            | Notice::NoLongerMounted { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Whether it refers to a branch that a daemon left hidden.
    pub(crate) fn is_left_hidden(&self) -> bool {
        matches!(self.notice, Notice::LeftHidden { .. })
    }

    /// Whether it refers to the mount point.
    pub(crate) fn is_of_mount_point(&self) -> bool {
        matches!(
            self.notice,
            Notice::MountMissing { .. } | Notice::MountNotDirectory { .. } | Notice::MountNotEmpty { .. }
        )
    }

    /// Whether it is only a remark, which `mount` need not repeat.
    pub(crate) fn is_remark(&self) -> bool {
        matches!(
            self.notice,
            Notice::PlainDirectory { .. }
                | Notice::SameFileSystem { .. }
                | Notice::Staging { .. }
                | Notice::GlobOfDirectory { .. }
        )
    }
}

/// How reads change access times, by the options of a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reads {
    /// Each of them does.
    #[default]
    Strict,
    /// Once a day, and after each change of the file.
    Relative,
    /// None does.
    Unnoted,
}

impl Reads {
    pub(super) fn of(flags: StatVfsMountFlags) -> Reads {
        if flags.contains(StatVfsMountFlags::NOATIME) {
            Reads::Unnoted
        } else if flags.contains(StatVfsMountFlags::RELATIME) {
            Reads::Relative
        } else {
            Reads::Strict
        }
    }
}

impl From<AtimeUpdate> for Reads {
    fn from(update: AtimeUpdate) -> Reads {
        match update {
            AtimeUpdate::Never => Reads::Unnoted,
            AtimeUpdate::Relative => Reads::Relative,
            AtimeUpdate::Always => Reads::Strict,
        }
    }
}

/// Branches where reads change access times more seldom than a rule asks for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unnoted {
    pub(super) branches: Vec<String>,
    pub(super) reads: Reads,
}

impl fmt::Display for Unnoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branches = quoted_list(self.branches.iter().map(String::as_str));
        match self.reads {
            Reads::Relative => write!(
                f,
                "mounted relatime: {branches}; there a read updates the access time only once a day; mount with strictatime, or write \"1d\" or more"
            ),
            Reads::Unnoted | Reads::Strict => write!(
                f,
                "mounted noatime: {branches}; there reads do not update the access times that this needs; mount \
                with relatime or strictatime"
            ),
        }
    }
}
