//! The walk: one directory of all branches at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Seek;
use std::iter::Peekable;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;
use umbrella_fs::control::protocol::CopyRights;
use umbrella_units::ByteSize;

use super::compare::{Contents, same_bytes};
use super::finding::{BranchTotals, CaseName, Content, Copied, Finding, PoolPath, Totals, Unread};
use super::listing::{Dir, Entry, EntryKind, open_below, open_file};

/// A branch that is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// What the walk reports as it goes.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// It enters a directory, after `seen` names.
    At { path: &'a Path, seen: u64 },
    /// It found something.
    Found(Finding),
}

/// Looks at all branches, and reports what it finds. Ends early where `tell` fails.
pub(crate) fn walk<E>(
    roots: &[Root],
    contents: Contents,
    report: &mut dyn FnMut(Step<'_>) -> Result<(), E>,
) -> Result<Totals, E> {
    let mut walk = SurveyWalk { branches: Vec::new(), contents, report, totals: Totals::default(), seen: 0 };
    for root in roots {
        walk.enter(root)?;
    }
    let mut left = vec![Pending { path: PathBuf::new(), on: (0..walk.branches.len()).collect() }];
    while let Some(pending) = left.pop() {
        (walk.report)(Step::At { path: &pending.path, seen: walk.seen })?;
        walk.directory(&pending, &mut left)?;
    }
    Ok(walk.totals)
}

/// A branch whose root is open.
struct OpenBranch {
    name: String,
    root: Dir,
    /// Its place among the totals.
    index: usize,
}

/// A directory that has still to be entered, and the branches that have it.
struct Pending {
    path: PathBuf,
    on: Vec<usize>,
}

struct SurveyWalk<'a, E> {
    branches: Vec<OpenBranch>,
    contents: Contents,
    report: &'a mut dyn FnMut(Step<'_>) -> Result<(), E>,
    totals: Totals,
    seen: u64,
}

/// A directory of one branch, open.
struct Listed<'a> {
    branch: &'a OpenBranch,
    dir: Dir,
    names: Peekable<IntoIter<Entry>>,
}

/// A name on one of the listed branches.
struct ListedEntry {
    listed: usize,
    kind: EntryKind,
}

impl<E> SurveyWalk<'_, E> {
    fn enter(&mut self, root: &Root) -> Result<(), E> {
        let mut totals = BranchTotals { branch: root.name.clone(), ..BranchTotals::default() };
        let opened = Dir::root(&root.path);
        if let Ok(space) = opened.as_ref().map_err(|error| *error).and_then(rustix::fs::fstatvfs) {
            totals.total = Some(ByteSize(space.f_blocks.saturating_mul(space.f_frsize)));
            totals.free = Some(ByteSize(space.f_bavail.saturating_mul(space.f_frsize)));
        }
        let index = self.totals.branches.len();
        self.totals.branches.push(totals);
        match opened {
            Ok(opened) => self.branches.push(OpenBranch { name: root.name.clone(), root: opened, index }),
            Err(error) => self.found(unreadable(Path::new(""), &root.name, error))?,
        }
        Ok(())
    }

    fn found(&mut self, finding: Finding) -> Result<(), E> {
        self.totals.count(&finding);
        (self.report)(Step::Found(finding))
    }

    fn directory(&mut self, pending: &Pending, left: &mut Vec<Pending>) -> Result<(), E> {
        let branches = std::mem::take(&mut self.branches);
        let looked_at = self.compare_directory(&branches, pending, left);
        self.branches = branches;
        looked_at
    }

    fn compare_directory(
        &mut self,
        branches: &[OpenBranch],
        pending: &Pending,
        left: &mut Vec<Pending>,
    ) -> Result<(), E> {
        let path = pending.path.as_path();
        let at_root = path.as_os_str().is_empty();
        let mut listed = Vec::with_capacity(pending.on.len());
        for branch in pending.on.iter().filter_map(|index| branches.get(*index)) {
            let opened = open_below(&branch.root, path);
            match opened.and_then(|dir| Ok((dir.list(at_root)?, dir))) {
                Ok((names, dir)) => listed.push(Listed { branch, dir, names: names.into_iter().peekable() }),
                Err(Errno::NOENT) if !at_root => {}
                Err(error) => self.found(unreadable(path, &branch.name, error))?,
            }
        }
        if let Some(finding) = differing(path, &listed) {
            self.found(finding)?;
        }
        let mut folded = CaseFolded::default();
        // Those of this directory come next, in order.
        let from = left.len();
        while let Some((name, on)) = next_name(&mut listed) {
            self.seen += 1;
            self.count(&listed, &on);
            folded.add(&name, &on);
            self.name(path, &name, &listed, &on)?;
            let directories = on.iter().filter(|met| met.kind == EntryKind::Directory);
            let on: Vec<usize> = directories.filter_map(|met| position(branches, listed.get(met.listed)?)).collect();
            if !on.is_empty() {
                left.push(Pending { path: path.join(name), on });
            }
        }
        if let Some(new) = left.get_mut(from..) {
            new.reverse();
        }
        for finding in folded.findings(path, &listed) {
            self.found(finding)?;
        }
        Ok(())
    }

    fn count(&mut self, listed: &[Listed<'_>], on: &[ListedEntry]) {
        for met in on {
            let index = listed.get(met.listed).map(|listed| listed.branch.index);
            let Some(totals) = index.and_then(|index| self.totals.branches.get_mut(index)) else { continue };
            *match met.kind {
                EntryKind::Directory => &mut totals.directories,
                EntryKind::File => &mut totals.files,
                EntryKind::Other => &mut totals.others,
            } += 1;
        }
    }

    /// Looks closer at a name that several branches have.
    fn name(&mut self, path: &Path, name: &OsStr, listed: &[Listed<'_>], on: &[ListedEntry]) -> Result<(), E> {
        if on.len() < 2 {
            return Ok(());
        }
        let names = |directories: bool| {
            let such = on.iter().filter(|met| (met.kind == EntryKind::Directory) == directories);
            such.filter_map(|met| Some(listed.get(met.listed)?.branch.name.clone())).collect::<Vec<_>>()
        };
        let (directory_on, other_on) = (names(true), names(false));
        if !directory_on.is_empty() && !other_on.is_empty() {
            let place = PoolPath::of(&path.join(name));
            self.found(Finding::Kinds { place, directory_on, other_on: other_on.clone() })?;
        }
        if other_on.len() < 2 {
            return Ok(());
        }
        let others = on.iter().filter(|met| met.kind != EntryKind::Directory);
        let holders: Vec<&Listed<'_>> = others.filter_map(|met| listed.get(met.listed)).collect();
        match copies(name, &holders, self.contents) {
            // Others were deleted since.
            Ok((_, copies)) if copies.len() < 2 => Ok(()),
            Ok((content, copies)) => {
                self.found(Finding::File { place: PoolPath::of(&path.join(name)), content, copies })
            }
            Err((branch, error)) => self.found(unreadable(&path.join(name), &branch, error)),
        }
    }
}

fn unreadable(path: &Path, branch: &str, error: Errno) -> Finding {
    let error = std::io::Error::from(error).to_string();
    Finding::Unread(Unread { place: PoolPath::of(path), branch: branch.to_owned(), error })
}

fn position(branches: &[OpenBranch], listed: &Listed<'_>) -> Option<usize> {
    branches.iter().position(|branch| branch.index == listed.branch.index)
}

/// The least name that is left, and where it is.
fn next_name(listed: &mut [Listed<'_>]) -> Option<(OsString, Vec<ListedEntry>)> {
    let least = listed.iter_mut().filter_map(|listed| listed.names.peek().map(|entry| &entry.name)).min()?.clone();
    let mut on = Vec::new();
    for (index, listed) in listed.iter_mut().enumerate() {
        while let Some(entry) = listed.names.next_if(|entry| entry.name == least) {
            on.push(ListedEntry { listed: index, kind: entry.kind });
        }
    }
    Some((least, on))
}

/// The copies of a file, the one that the pool shows first, and what they have in common.
fn copies(
    name: &OsStr,
    holders: &[&Listed<'_>],
    contents: Contents,
) -> Result<(Content, Vec<Copied>), (String, Errno)> {
    let mut found = Vec::with_capacity(holders.len());
    for holder in holders {
        match rustix::fs::statat(&holder.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => found.push((*holder, stat)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err((holder.branch.name.clone(), error)),
        }
    }
    // As the pool chooses: the newest, on a tie the first branch.
    found.sort_by_key(|(_, stat)| Reverse((stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)));
    let content = content(name, &found, contents);
    let copied = |(holder, stat): &(&Listed<'_>, Stat)| Copied {
        branch: holder.branch.name.clone(),
        size: ByteSize(stat.st_size.cast_unsigned()),
        modified: stat.st_mtime as f64 + stat.st_mtime_nsec as f64 / 1e9,
    };
    Ok((content, found.iter().map(copied).collect()))
}

fn content(name: &OsStr, found: &[(&Listed<'_>, Stat)], contents: Contents) -> Content {
    let Some(((first, like), others)) = found.split_first() else { return Content::Unknown };
    let kind = FileType::from_raw_mode(like.st_mode);
    let is_like = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == kind;
    if !others.iter().all(|(_, stat)| is_like(stat)) {
        return Content::Different;
    }
    match kind {
        FileType::RegularFile if others.iter().any(|(_, stat)| stat.st_size != like.st_size) => Content::Different,
        FileType::RegularFile if like.st_size == 0 => Content::Same,
        FileType::RegularFile if contents == Contents::Sizes => Content::SameSize,
        FileType::RegularFile => {
            let others: Vec<&Dir> = others.iter().map(|(holder, _)| &holder.dir).collect();
            match all_same(&first.dir, &others, name) {
                Ok(true) => Content::Same,
                Ok(false) => Content::Different,
                Err(_) => Content::Unknown,
            }
        }
        FileType::Symlink => {
            let target = |dir: &Dir| rustix::fs::readlinkat(dir, name, Vec::new()).ok();
            let target_of_first = target(&first.dir);
            let same =
                target_of_first.is_some() && others.iter().all(|(holder, _)| target(&holder.dir) == target_of_first);
            if same { Content::Same } else { Content::Different }
        }
        _ if others.iter().all(|(_, stat)| stat.st_rdev == like.st_rdev) => Content::Same,
        _ => Content::Different,
    }
}

fn all_same(first: &Dir, others: &[&Dir], name: &OsStr) -> std::io::Result<bool> {
    let mut first = File::from(open_file(first, name)?);
    for other in others {
        first.rewind()?;
        if !same_bytes(&mut first, &mut File::from(open_file(other, name)?))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A directory whose copies have different owners, modes or ACLs.
fn differing(path: &Path, listed: &[Listed<'_>]) -> Option<Finding> {
    let rights: Vec<_> = listed.iter().filter_map(|listed| Some((listed, Rights::of(&listed.dir)?))).collect();
    let (_, first) = rights.first()?;
    if rights.iter().all(|(_, rights)| rights == first) {
        return None;
    }
    let copy = |(listed, rights): &(&Listed<'_>, Rights)| CopyRights {
        branch: listed.branch.name.clone(),
        mode: rights.mode,
        uid: rights.uid,
        gid: rights.gid,
        acl: rights.access.is_some() || rights.default.is_some(),
    };
    Some(Finding::Directory { place: PoolPath::of(path), copies: rights.iter().map(copy).collect() })
}

/// Owner, mode and ACLs of a directory's copy.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    mode: u32,
    uid: u32,
    gid: u32,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl Rights {
    fn of(dir: &Dir) -> Option<Rights> {
        let stat = rustix::fs::fstat(dir).ok()?;
        let acl = |name: &str| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::fgetxattr(dir.as_fd(), name, &mut value).ok()?;
            value.truncate(length);
            Some(value)
        };
        let (access, default) = (acl("system.posix_acl_access"), acl("system.posix_acl_default"));
        Some(Rights { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, access, default })
    }
}

/// The names of one directory by what they are without case.
#[derive(Debug, Default)]
struct CaseFolded(BTreeMap<String, Vec<(OsString, Vec<usize>)>>);

impl CaseFolded {
    fn add(&mut self, name: &OsStr, on: &[ListedEntry]) {
        // A name that is no text differs from all others.
        let Some(text) = name.to_str() else { return };
        let on = on.iter().map(|met| met.listed).collect();
        self.0.entry(text.to_lowercase()).or_default().push((name.to_owned(), on));
    }

    /// Names that no branch has all of: on one branch they were told apart before.
    fn findings(self, path: &Path, listed: &[Listed<'_>]) -> Vec<Finding> {
        let across = |names: &[(OsString, Vec<usize>)]| {
            names.len() > 1 && !(0..listed.len()).any(|branch| names.iter().all(|(_, on)| on.contains(&branch)))
        };
        let name_of = |index: &usize| listed.get(*index).map(|listed| listed.branch.name.clone());
        let finding = |names: Vec<(OsString, Vec<usize>)>| {
            let one = |(name, on): (OsString, Vec<usize>)| CaseName {
                place: PoolPath::of(&path.join(name)),
                branches: on.iter().filter_map(name_of).collect(),
            };
            Finding::Case { names: names.into_iter().map(one).collect() }
        };
        self.0.into_values().filter(|names| across(names)).map(finding).collect()
    }
}
