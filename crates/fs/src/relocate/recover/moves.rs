//! A file that was moving: after this exactly one whole copy is there, at every one of its names.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::FileType;
use rustix::io::{Errno, pread, retry_on_intr};

use crate::relocate::beneath::ResolvedName;
use crate::relocate::commit::{ParentTimes, link_new, place_new};
use crate::relocate::copy::reopen;
use crate::relocate::fingerprint::FileSnapshot;
use crate::relocate::recover::compare::{is_like, is_not_newer, is_surely_same_file};
use crate::relocate::recover::{IntentOutcome, Recovering, TAKEN, Unsettled, unlink};
use crate::relocate::{EntryAt, Fingerprint, HIDDEN_DIR, Intent, TEMP_DIR, attrs, beneath};

/// One name on both branches.
struct NamePair<'i> {
    path: &'i [u8],
    source: Option<(ResolvedName, FileSnapshot)>,
    target: Option<(ResolvedName, FileSnapshot)>,
}

/// What a file at a target name is to the intent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetMatch {
    /// The copy, untouched.
    Copy,
    /// The copy, changed since: the source was not seen as the file any more.
    ChangedCopy,
    /// Byte for byte what the source is (file systems that number inodes anew at each mount).
    Equal,
    /// Something else, or nothing.
    None,
}

impl Recovering<'_> {
    pub(super) fn settle_move(&mut self, intent: &Intent) -> Result<IntentOutcome, Unsettled> {
        let Intent::Move { from, to, names, temp, source, target } = intent else { return Ok(IntentOutcome::Undone) };
        let source_in_use = self.returned.is_some_and(|returned| returned.uuid == *to);
        let given_up = self.is_abandoned(intent);
        let (from, to) = (self.writable(*from)?, self.writable(*to)?);
        let temp_path = [HIDDEN_DIR.as_bytes(), b"/", TEMP_DIR.as_bytes(), b"/", temp.as_slice()].concat();
        let temp = beneath::find(to, &temp_path)?;
        let mut pairs = Vec::with_capacity(names.len());
        for path in names {
            pairs.push(NamePair { path, source: present(from, path)?, target: present(to, path)? });
        }
        if pairs.iter().all(|pair| pair.source.is_none()) && !given_up {
            return self.settle_without_source(intent, to, &pairs, temp.as_ref());
        }
        let claims = pairs.iter().map(|pair| pair.claim(target, given_up)).collect::<Result<Vec<_>, _>>()?;
        if given_up || (source_in_use && pairs.iter().all(|pair| pair.source.is_some())) {
            // The sources' branch was in use all the time: they may be open. No process could reach the copy.
            if claims.contains(&TargetMatch::ChangedCopy) || !(given_up || may_delete_copy(&pairs, &claims, source)?) {
                return Ok(self.keep_both(&pairs, source));
            }
            return self.undo_move(&pairs, &claims, temp.as_ref());
        }
        let Some(placed) = claims.iter().position(|claim| *claim != TargetMatch::None) else {
            return self.undo_move(&pairs, &claims, temp.as_ref());
        };
        let superseded = |pair: &NamePair<'_>, claim| match &pair.source {
            Some((_, seen)) => claim == TargetMatch::Equal || is_not_newer(&seen.print, source),
            None => true,
        };
        if pairs.iter().zip(&claims).all(|(pair, claim)| superseded(pair, *claim)) {
            return self.finish_move(to, &pairs, placed, temp.as_ref());
        }
        if may_delete_copy(&pairs, &claims, source)? {
            return self.undo_move(&pairs, &claims, temp.as_ref());
        }
        Ok(self.keep_both(&pairs, source))
    }

    fn keep_both(&mut self, pairs: &[NamePair<'_>], source: &Fingerprint) -> IntentOutcome {
        for pair in pairs.iter().filter(|pair| pair.source.is_some() && pair.target.is_some()) {
            let what = if pair.has_source(source) {
                "changed on both branches since a move was cut short"
            } else {
                "another file has the name since it moved"
            };
            self.note_both(pair.path, what);
        }
        IntentOutcome::Undone
    }

    /// Every source name is gone: the move was complete, or the copy is the only one.
    fn settle_without_source(
        &mut self,
        intent: &Intent,
        to: BorrowedFd<'_>,
        pairs: &[NamePair<'_>],
        temp: Option<&ResolvedName>,
    ) -> Result<IntentOutcome, Unsettled> {
        let Some(temp) = temp else { return Ok(IntentOutcome::Finished) };
        let Some(copy) = temp.inspect()? else { return Ok(IntentOutcome::Finished) };
        let mut is_named = false;
        for pair in pairs {
            if let Some((_, seen)) = &pair.target {
                is_named |= seen.print.ino == copy.print.ino;
                continue;
            }
            let target = self.find_or_make(to, pair.path)?;
            self.act()?;
            if pairs.len() == 1 {
                place_new(temp.place(), target.place())?;
            } else {
                link_new(temp.place(), target.place())?;
            }
            attrs::sync_dir(target.dir.as_fd())?;
            is_named = true;
        }
        if !is_named {
            for pair in pairs {
                self.warn_kept(pair.path, temp);
            }
            return Ok(IntentOutcome::Narrowed(Box::new(intent.clone())));
        }
        self.drop_copy(Some(temp))?;
        Ok(IntentOutcome::Finished)
    }

    fn drop_copy(&mut self, temp: Option<&ResolvedName>) -> Result<(), Unsettled> {
        let Some(temp) = temp else { return Ok(()) };
        if temp.inspect()?.is_some() {
            self.act()?;
            unlink(temp.place())?;
        }
        Ok(attrs::sync_dir(temp.dir.as_fd())?)
    }

    /// The sources stay; the copy goes, also from names it already had.
    fn undo_move(
        &mut self,
        pairs: &[NamePair<'_>],
        claims: &[TargetMatch],
        temp: Option<&ResolvedName>,
    ) -> Result<IntentOutcome, Unsettled> {
        for (pair, claim) in pairs.iter().zip(claims) {
            let Some((target, _)) = &pair.target else { continue };
            if *claim == TargetMatch::None {
                self.note_both(pair.path, TAKEN);
                continue;
            }
            let times = ParentTimes::of([target.dir.as_fd()]);
            self.act()?;
            unlink(target.place())?;
            times.restore();
            times.sync()?;
        }
        self.drop_copy(temp)?;
        Ok(IntentOutcome::Undone)
    }

    /// The copy gets every name that is missing, then the sources go.
    fn finish_move(
        &mut self,
        to: BorrowedFd<'_>,
        pairs: &[NamePair<'_>],
        placed: usize,
        temp: Option<&ResolvedName>,
    ) -> Result<IntentOutcome, Unsettled> {
        let Some((copy, copy_seen)) = pairs.get(placed).and_then(|pair| pair.target.as_ref()) else {
            return Err(Unsettled::Failed(Errno::NOENT));
        };
        let mut obsolete = Vec::new();
        for pair in pairs {
            let Some((source, _)) = &pair.source else { continue };
            match &pair.target {
                Some((target, seen)) if seen.print.ino == copy_seen.print.ino => {
                    attrs::sync_dir(target.dir.as_fd())?;
                    obsolete.push(source);
                }
                Some(_) => {
                    self.note_both(pair.path, TAKEN);
                }
                None => {
                    let target = self.find_or_make(to, pair.path)?;
                    let times = ParentTimes::of([target.dir.as_fd()]);
                    self.act()?;
                    link_new(copy.place(), target.place())?;
                    times.restore();
                    times.sync()?;
                    obsolete.push(source);
                }
            }
        }
        self.drop_copy(temp)?;
        for source in obsolete {
            let times = ParentTimes::of([source.dir.as_fd()]);
            self.act()?;
            unlink(source.place())?;
            times.restore();
            times.sync()?;
        }
        Ok(IntentOutcome::Finished)
    }
}

impl NamePair<'_> {
    /// Whether the source still has the name, as it was or changed since.
    fn has_source(&self, source: &Fingerprint) -> bool {
        self.source.as_ref().is_some_and(|(_, seen)| is_surely_same_file(&seen.print, source))
    }

    /// `given_up`: no process could reach the copy since it was made.
    fn claim(&self, copy: &Fingerprint, given_up: bool) -> Result<TargetMatch, Unsettled> {
        let Some((_, seen)) = &self.target else { return Ok(TargetMatch::None) };
        let now = &seen.print;
        if now.ino == copy.ino && now.file_type() == copy.file_type() {
            if (now.size, now.mtime) == (copy.size, copy.mtime) {
                return Ok(TargetMatch::Copy);
            }
            if now.btime.is_some() && now.btime == copy.btime {
                return Ok(TargetMatch::ChangedCopy);
            }
        }
        // Where names have numbers of their own, not files.
        if given_up && is_like(now, copy) {
            return Ok(TargetMatch::Copy);
        }
        Ok(if self.is_equal()? { TargetMatch::Equal } else { TargetMatch::None })
    }

    /// Whether the name is there twice, for the same file byte for byte.
    fn is_equal(&self) -> Result<bool, Errno> {
        match (&self.source, &self.target) {
            (Some((source, source_seen)), Some((target, seen))) => {
                is_equal(source.place(), source_seen, target.place(), seen)
            }
            _ => Ok(false),
        }
    }
}

/// Whether wherever the copy has a name, the source has it too. An intent may come back after its move: then what has
/// the name of a source may be another file, and the copy the only one.
fn may_delete_copy(pairs: &[NamePair<'_>], claims: &[TargetMatch], source: &Fingerprint) -> Result<bool, Unsettled> {
    for (pair, claim) in pairs.iter().zip(claims) {
        let may = match claim {
            TargetMatch::None | TargetMatch::Equal => true,
            TargetMatch::Copy => pair.has_source(source) || pair.is_equal()?,
            TargetMatch::ChangedCopy => false,
        };
        if !may {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn present(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<(ResolvedName, FileSnapshot)>, Errno> {
    let Some(found) = beneath::find(root, path)? else { return Ok(None) };
    let seen = found.inspect()?;
    Ok(seen.map(|seen| (found, seen)))
}

/// Whether two files are the same in everything but their place.
fn is_equal(a: EntryAt<'_>, seen_a: &FileSnapshot, b: EntryAt<'_>, seen_b: &FileSnapshot) -> Result<bool, Errno> {
    let identity = |print: &Fingerprint| (print.mode, print.uid, print.gid, print.rdev, print.size);
    if identity(&seen_a.print) != identity(&seen_b.print) {
        return Ok(false);
    }
    let (held_a, held_b) = (attrs::open_path(a)?, attrs::open_path(b)?);
    let mut xattrs = [attrs::xattrs(held_a.as_fd())?, attrs::xattrs(held_b.as_fd())?];
    for list in &mut xattrs {
        list.retain(|(name, _)| !attrs::of_the_file_system(name));
        list.sort();
    }
    if xattrs[0] != xattrs[1] {
        return Ok(false);
    }
    match seen_a.print.file_type() {
        FileType::RegularFile => is_equal_data(held_a.as_fd(), held_b.as_fd(), seen_a.print.size),
        FileType::Symlink => {
            let target = |held| rustix::fs::readlinkat(held, c"", Vec::new());
            Ok(target(held_a.as_fd())? == target(held_b.as_fd())?)
        }
        FileType::Directory => Ok(false),
        _ => Ok(true),
    }
}

fn is_equal_data(a: BorrowedFd<'_>, b: BorrowedFd<'_>, size: u64) -> Result<bool, Errno> {
    let (a, b) = (reopen(a)?, reopen(b)?);
    let mut buffers = [vec![0; 1 << 17], vec![0; 1 << 17]];
    let mut at = 0;
    while at < size {
        let [first, second] = &mut buffers;
        let count = retry_on_intr(|| pread(&a, first.as_mut_slice(), at))?;
        let Some(second) = second.get_mut(..count).filter(|part| !part.is_empty()) else { return Ok(false) };
        let mut filled = 0;
        while let Some(rest) = second.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match retry_on_intr(|| pread(&b, &mut *rest, at + filled as u64))? {
                0 => return Ok(false),
                more => filled += more,
            }
        }
        if first.get(..count) != Some(&*second) {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}
