//! Steps 3 to 9: the copy takes the place of its source.
//!
//! From the first unlink on, the move has happened. Step 7 or 8 may fail, so that a source may be back when its branch
//! is. By then users may have given the copy another name, and its name to another file. So other intents take the
//! place of the move's own before any caller goes on, one for each name. They say that the source goes, whatever the
//! new branch has under that name.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;
use tracing::warn;

use crate::relocate::error::{ErrorContext, is_doubtful};
use crate::relocate::fingerprint::{FileSnapshot, snapshot_fd, snapshot_if_present};
use crate::relocate::journal::{Recorded, record};
use crate::relocate::{
    BranchUuid, Decision, Durability, DurableCopy, EntryAt, Fingerprint, Intent, Loss, MoveSide, RelocateError, Step,
    StepHook, Verdict, attrs, run_hook,
};

/// One name of a file that moves.
#[derive(Debug, Clone, Copy)]
pub struct MovedName<'a> {
    /// Where it is.
    pub source: EntryAt<'a>,
    /// Where it goes; the directory exists and is durable.
    pub target: EntryAt<'a>,
    /// Its path in the pool.
    pub path: &'a [u8],
}

/// A file that moves, with all its names.
#[derive(Clone, Copy)]
pub struct Move<'a> {
    /// Old branch.
    pub from: BranchUuid,
    /// New branch.
    pub to: BranchUuid,
    /// Every name; at least one.
    pub names: &'a [MovedName<'a>],
    /// The copy, in the new branch's [`super::TEMP_DIR`].
    pub temp: EntryAt<'a>,
    /// The [`super::INTENTS_DIR`] of the new branch (the old one's may be full), of the old one for a move that is not
    /// synced.
    pub intents: BorrowedFd<'a>,
    /// What [`super::copy`] returned.
    pub copied: &'a DurableCopy,
    /// Step 6 syncs only where it is [`Durability::Now`].
    pub durability: Durability,
    /// Whether it may still happen.
    pub decision: &'a Decision,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// What became of the source of a move that happened, or of the file that a rename replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Done,
    /// Its branch did not say, or not durably: intents stay, and remove it when that branch is back. Until then the
    /// branch must not be used.
    Unsure {
        /// What was answered.
        errno: Errno,
    },
}

/// Step 3: fails with [`RelocateError::Changed`] if the source is no longer what was copied.
pub fn verify_unchanged(source: EntryAt<'_>, copied: &DurableCopy) -> Result<(), RelocateError> {
    match Fingerprint::at(source) {
        Ok(now) if now == copied.source => Ok(()),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(RelocateError::Changed),
        Err(errno) => Err(errno).doing("stat the source"),
    }
}

/// Steps 4 to 9: puts a copy in the place of its source. Verifies once more before the source is removed.
///
/// The times of the parent directories stay as they were. On an error the copy is gone and the file as it was, except
/// for [`RelocateError::InDoubt`] and [`RelocateError::GivenUp`], after which recovery has the last word.
pub fn commit(m: &Move<'_>) -> Result<Removal, RelocateError> {
    let done = commit_steps(m);
    if done.as_ref().is_err_and(RelocateError::is_settled) {
        m.decision.on(MoveSide::Target);
        let _already_failing = unlinkat(m.temp.dir, m.temp.name, AtFlags::empty());
    }
    done
}

fn commit_steps(m: &Move<'_>) -> Result<Removal, RelocateError> {
    m.decision.check()?;
    run_hook(m.hook, Step::Start)?;
    let nlink = m.copied.source.nlink;
    if m.names.is_empty() || nlink > m.names.len() as u64 {
        return Err(RelocateError::OtherLinks { nlink, named: m.names.len() });
    }
    m.verify()?;
    m.decision.on(m.side_of_intents());
    let recorded = record(m.intents, &m.intent())?;
    if let Err(given_up) = m.decision.check() {
        // Users may have used the names for something else since the caller stopped waiting.
        let _found_with_nothing_to_do = recorded.remove();
        let _already_failing = unlinkat(m.temp.dir, m.temp.name, AtFlags::empty());
        return Err(given_up);
    }
    run_hook(m.hook, Step::IntentWritten)?;
    let mut done = CommitProgress::default();
    match m.place_and_remove(&mut done) {
        Ok(Removal::Done) => {}
        Ok(unsure) => {
            m.record_removals(recorded);
            return Ok(unsure);
        }
        Err(error) if !error.is_settled() => return Err(error),
        Err(error) => {
            m.decision.undo()?;
            run_hook(m.hook, Step::Undoing)?;
            match m.undo(&done) {
                Ok(()) => {}
                // Some source names are gone and cannot be had back: the copy has all of them.
                Err(errno) if done.removed > 0 => return Ok(Removal::Unsure { errno }),
                Err(errno) => return Err(RelocateError::InDoubt { errno }),
            }
            // An intent that stays finds nothing to do.
            m.decision.on(m.side_of_intents());
            let _already_failing = recorded.remove_lazily();
            return Err(error);
        }
    }
    if let Err(errno) = m.sync_sources() {
        warn!(%errno, "cannot flush the directory a file was moved from");
        m.record_removals(recorded);
        return Ok(Removal::Unsure { errno });
    }
    run_hook(m.hook, Step::RemovalSynced)?;
    m.decision.on(m.side_of_intents());
    if let Err(error) = recorded.remove_lazily() {
        warn!(%error, "cannot remove the intent of a finished move");
    }
    run_hook(m.hook, Step::IntentRemoved)?;
    Ok(Removal::Done)
}

#[derive(Default)]
struct CommitProgress {
    placed: usize,
    removed: usize,
}

impl<'a> Move<'a> {
    fn intent(&self) -> Intent {
        Intent::Move {
            from: self.from,
            to: self.to,
            names: self.names.iter().map(|name| super::intent::relative(name.path).to_vec()).collect(),
            temp: self.temp.name.as_encoded_bytes().to_vec(),
            source: self.copied.source,
            target: self.copied.target,
        }
    }

    /// Of what lies in volatile memory nothing comes back.
    fn record_removals(&self, recorded: Recorded<'_>) {
        if self.durability != Durability::Now {
            return;
        }
        self.decision.on(self.side_of_intents());
        let ends = (self.from, self.copied.source, self.to, self.copied.target);
        let paths = self.names.iter().map(|name| name.path);
        if let Err(error) = record_removals(self.intents, ends, self.temp.name, paths).and_then(|()| recorded.remove())
        {
            warn!(%error, "cannot record that what is left of a moved file is to be removed");
        }
    }

    fn side_of_intents(&self) -> MoveSide {
        match self.durability {
            Durability::Now | Durability::Together => MoveSide::Target,
            Durability::Begun => MoveSide::Source,
        }
    }

    fn verify(&self) -> Result<(), RelocateError> {
        self.names.iter().try_for_each(|name| {
            self.decision.on(MoveSide::Source);
            verify_unchanged(name.source, self.copied)
        })
    }

    fn targets(&self) -> impl Iterator<Item = BorrowedFd<'a>> {
        self.names.iter().map(|name| name.target.dir)
    }

    fn sources(&self) -> impl Iterator<Item = BorrowedFd<'a>> {
        self.names.iter().map(|name| name.source.dir)
    }

    fn place_and_remove(&self, done: &mut CommitProgress) -> Result<Removal, RelocateError> {
        self.decision.on(MoveSide::Target);
        let target_times = ParentTimes::of(self.targets());
        let mut first: Option<EntryAt<'_>> = None;
        for name in self.names {
            self.decision.check()?;
            self.decision.on(MoveSide::Target);
            match first {
                None => place_new(self.temp, name.target)?,
                Some(first) => link_new(first, name.target)?,
            }
            first = first.or(Some(name.target));
            done.placed += 1;
            run_hook(self.hook, Step::Placed(done.placed - 1))?;
        }
        self.put_back(&target_times);
        if self.durability == Durability::Now {
            self.decision.on(MoveSide::Target);
            target_times.sync().doing("flush the new directory")?;
            attrs::sync_dir(self.temp.dir).doing("flush the directory of copies")?;
        }
        run_hook(self.hook, Step::Synced)?;
        self.decision.check()?;
        self.verify()?;
        let source_times = ParentTimes::of(self.sources());
        run_hook(self.hook, Step::Verified)?;
        self.decision.end()?;
        for name in self.names {
            self.decision.on(MoveSide::Source);
            match remove(name.source) {
                Ok(Removal::Done) => {}
                Ok(unsure) => return Ok(unsure),
                Err(errno) => return Err(errno).doing("unlink the source"),
            }
            done.removed += 1;
            run_hook(self.hook, Step::Removed(done.removed - 1))?;
        }
        self.put_back(&source_times);
        Ok(Removal::Done)
    }

    /// Not where no caller waits any more: then users may have changed the directories since.
    fn put_back(&self, times: &ParentTimes<'_>) {
        if self.decision.check().is_ok() {
            times.restore();
        }
    }

    fn sync_sources(&self) -> Result<(), Errno> {
        self.decision.on(MoveSide::Source);
        ParentTimes::of(self.sources()).sync()
    }

    /// Users may have used the names for something else since the caller stopped waiting.
    fn may_undo(&self) -> Result<(), Errno> {
        self.decision.check().map_err(|given_up| given_up.errno())
    }

    /// Gives every source name back before any target name goes.
    fn undo(&self, done: &CommitProgress) -> Result<(), Errno> {
        self.decision.on(MoveSide::Source);
        let source_times = ParentTimes::of(self.sources());
        let (removed, kept) = self.names.split_at(done.removed.min(self.names.len()));
        if !removed.is_empty() {
            let kept = kept.first().ok_or(Errno::NOENT)?;
            for name in removed {
                self.may_undo()?;
                linkat(kept.source.dir, kept.source.name, name.source.dir, name.source.name, AtFlags::empty())?;
            }
            self.put_back(&source_times);
            source_times.sync()?;
        }
        self.decision.on(MoveSide::Target);
        let target_times = ParentTimes::of(self.targets());
        for name in self.names.iter().take(done.placed) {
            self.may_undo()?;
            unlinkat(name.target.dir, name.target.name, AtFlags::empty())?;
        }
        self.put_back(&target_times);
        target_times.sync()
    }
}

/// Records in the [`super::INTENTS_DIR`] of a move's new branch that each of its sources goes, whatever has its name
/// there. The ends are the old branch and the source, then the new branch and the copy. `temp`: what the copy was
/// called.
pub fn record_removals<'p>(
    intents: BorrowedFd<'_>,
    (from, source, to, target): (BranchUuid, Fingerprint, BranchUuid, Fingerprint),
    temp: &OsStr,
    paths: impl Iterator<Item = &'p [u8]>,
) -> Result<(), RelocateError> {
    for path in paths {
        // As of a rename that has happened, from the copy's first name to the path that the source has.
        let _stays = record(
            intents,
            &Intent::Supersede {
                from: temp.as_encoded_bytes().to_vec(),
                to: super::intent::relative(path).to_vec(),
                winner: to,
                winner_file: target,
                loser: from,
                loser_file: source,
                verdict: Verdict::Done,
            },
        )?;
    }
    Ok(())
}

/// Unlinks a file that lies elsewhere too. If unlink fails and the file is still there, that is an error. If the answer
/// may have been lost on the way (a server, a daemon or a disk that died), the result is unsure.
pub(super) fn remove(place: EntryAt<'_>) -> Result<Removal, Errno> {
    let Err(errno) = unlinkat(place.dir, place.name, AtFlags::empty()) else { return Ok(Removal::Done) };
    match snapshot_if_present(place) {
        Ok(None) => Ok(Removal::Done),
        Ok(Some(_)) if !is_doubtful(errno) => Err(errno),
        Ok(Some(_)) | Err(_) => Ok(Removal::Unsure { errno }),
    }
}

/// Renames without ever replacing; where the file system lacks the flag, by link and unlink, or, as with FUSE, by
/// looking first.
pub(super) fn place_new(from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), RelocateError> {
    match renameat_with(from.dir, from.name, to.dir, to.name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        Err(Errno::EXIST) => return Err(RelocateError::Taken),
        done => return placed(done),
    }
    place_without_flag(from, to)
}

/// [`place_new`] without the flag.
pub(super) fn place_without_flag(from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), RelocateError> {
    if !is_known_by_path(to.dir) {
        match linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty()) {
            Ok(()) => {
                let _leftover = unlinkat(from.dir, from.name, AtFlags::empty());
                return Ok(());
            }
            Err(Errno::EXIST) => return Err(RelocateError::Taken),
            Err(_) => {}
        }
    }
    match snapshot_if_present(to).doing("stat the target")? {
        Some(_) => Err(RelocateError::Taken),
        None => placed(renameat(from.dir, from.name, to.dir, to.name)),
    }
}

fn placed(done: Result<(), Errno>) -> Result<(), RelocateError> {
    match done {
        Err(Errno::XDEV) => Err(RelocateError::MountedBelow),
        done => done.doing("put the copy in place"),
    }
}

/// Whether the kernel may take another name of a file for another file, with a size of its own. A process that has it
/// open under the first name would then write without those that look at the second name seeing it. With FUSE that is
/// so for all file systems that go by paths. A rename takes open files along.
fn is_known_by_path(dir: BorrowedFd<'_>) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    rustix::fs::fstatfs(dir).is_ok_and(|fs| fs.f_type == FUSE_SUPER_MAGIC)
}

pub(super) fn link_new(from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), RelocateError> {
    match linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty()) {
        Err(Errno::EXIST) => Err(RelocateError::Taken),
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => {
            Err(RelocateError::WouldLose { what: vec![Loss::HardLinks] })
        }
        done => done.doing("link another name"),
    }
}

/// Directories whose names change although, to users, nothing changes: their modification times are put back. The
/// caller makes sure that no user's change comes between the look and that.
///
/// One that cannot be looked at, as on a disk that died, is in the list without times. Its sync then fails.
pub(super) struct ParentTimes<'a>(Vec<(BorrowedFd<'a>, Option<FileSnapshot>)>);

impl<'a> ParentTimes<'a> {
    /// The times now; each directory once.
    pub(super) fn of(dirs: impl IntoIterator<Item = BorrowedFd<'a>>) -> Self {
        let mut distinct: Vec<(BorrowedFd<'a>, Option<FileSnapshot>)> = Vec::new();
        for dir in dirs {
            if distinct.iter().any(|(known, _)| known.as_raw_fd() == dir.as_raw_fd()) {
                continue;
            }
            let seen = snapshot_fd(dir).ok();
            let inode = |seen: &FileSnapshot| (seen.print.dev, seen.print.ino);
            let is_known =
                |known: &Option<FileSnapshot>| known.is_some() && known.as_ref().map(inode) == seen.as_ref().map(inode);
            if !distinct.iter().any(|(_, known)| is_known(known)) {
                distinct.push((dir, seen));
            }
        }
        ParentTimes(distinct)
    }

    pub(super) fn restore(&self) {
        for (dir, seen) in self.0.iter().filter_map(|(dir, seen)| Some((dir, seen.as_ref()?))) {
            // A directory whose times cannot be set looks changed; nothing is lost.
            let _cosmetic = attrs::set_modification_time(*dir, seen);
        }
    }

    /// How many directories.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn sync(&self) -> Result<(), Errno> {
        self.0.iter().try_for_each(|(dir, _)| attrs::sync_dir(*dir))
    }
}
