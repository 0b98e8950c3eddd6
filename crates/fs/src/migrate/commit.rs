//! The end of a move: the copy gets its names, and the source goes. Between local branches on the thread that moves;
//! where one may hang, on its workers.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::branch::Online;
use crate::ground::at::DirAt;
use crate::ground::workers;
use crate::ground::workers::Lost;
use crate::migrate::copying::Endpoint;
use crate::migrate::moving::MovedLink;
use crate::relocate;
use crate::relocate::{
    BranchUuid, Call, Decision, Durability, EntryAt, Fingerprint, Intent, Move, MoveSide, MovedName, RelocateError,
    Removal, Reversibility,
};

/// Commits a move. Where a branch may hang, the commit runs on that branch's workers, because the caller holds locks
/// that others wait for. A step that is late either no longer happens, or has happened except for the removal of the
/// source.
pub(crate) fn commit_guarded(
    links: &[MovedLink],
    paths: &[Vec<u8>],
    to: Endpoint<'_>,
    temp: &OsStr,
    copied: &relocate::DurableCopy,
    durability: Durability,
) -> Result<Removal, RelocateError> {
    let first = links.first().ok_or(RelocateError::Changed)?;
    let source = &first.from;
    let decision = Arc::new(Decision::default());
    let theirs = Arc::clone(&decision);
    let owned: Vec<_> = links
        .iter()
        .zip(paths)
        .map(|(link, path)| (Arc::clone(&link.from.fd), Arc::clone(&link.to.fd), link.name.clone(), path.clone()))
        .collect();
    let (from, target, temp, copied) =
        (Arc::clone(&source.online), Arc::clone(to.online), temp.to_owned(), copied.clone());
    let (temp_name, prints) = (temp.clone(), (copied.source, copied.target));
    let commit = move || {
        let hidden = target.hidden.as_ref().ok_or(RelocateError::Changed)?;
        // What is not synced must not be promised by an intent that is: it lies where the source does.
        let intents = match durability {
            Durability::Now | Durability::Together => hidden,
            Durability::Begun => from.hidden.as_ref().ok_or(RelocateError::Changed)?,
        };
        let names: Vec<_> = owned
            .iter()
            .map(|(from, to, name, path)| MovedName {
                source: EntryAt { dir: from.as_fd(), name },
                target: EntryAt { dir: to.as_fd(), name },
                path,
            })
            .collect();
        relocate::commit(&Move {
            from: BranchUuid(from.uuid),
            to: BranchUuid(target.uuid),
            names: &names,
            temp: EntryAt { dir: hidden.tmp.as_fd(), name: &temp },
            intents: intents.intents.as_fd(),
            copied: &copied,
            durability,
            decision: &theirs,
            hook: None,
        })
    };
    // As they were when the move was made ready: one that went offline since may hang.
    let ends = [to, Endpoint { branch: &source.branch, online: &source.online }];
    let Some(guarded) = ends.into_iter().find(|end| end.online.guarded) else { return commit() };
    let mut watch = CommitWatchdog { ends, seen: decision.call(), since: Instant::now() };
    let wait = |queued| watch.may_wait(queued, &decision);
    match workers::call_apart(guarded.online.workers.as_ref(), commit, wait) {
        Ok(done) => return done,
        Err(Lost::NoThread) => return Err(RelocateError::Io { doing: "start a thread", errno: Errno::NOMEM }),
        Err(_) => {}
    }
    match decision.abandon() {
        Reversibility::Open => Err(RelocateError::GivenUp),
        Reversibility::Ending => {
            // The thread that waits for the source's branch cannot say any more that the source goes.
            if source.online.guarded && durability == Durability::Now {
                record_removals_within(source, to, &temp_name, prints, paths.to_vec());
            }
            Ok(Removal::Unsure { errno: Errno::TIMEDOUT })
        }
        Reversibility::Undoing => Err(RelocateError::InDoubt { errno: Errno::TIMEDOUT }),
    }
}

/// Records that the sources go when their branch is back; a new branch that may hang has as long as for a commit.
fn record_removals_within(
    source: &DirAt,
    to: Endpoint<'_>,
    temp: &OsStr,
    (source_file, copy): (Fingerprint, Fingerprint),
    paths: Vec<Vec<u8>>,
) {
    let (target, temp) = (Arc::clone(to.online), temp.to_owned());
    let ends = (BranchUuid(source.online.uuid), source_file, BranchUuid(target.uuid), copy);
    let record = move || {
        let hidden = target.hidden.as_ref().ok_or(RelocateError::Changed)?;
        relocate::record_removals(hidden.intents.as_fd(), ends, &temp, paths.iter().map(Vec::as_slice))
    };
    let no_answer = |errno| Err(RelocateError::Io { doing: "reach the branch", errno });
    let recorded = if to.online.guarded {
        to.branch.io_within(COMMIT_TIMEOUT, move |_| Ok(record())).unwrap_or_else(no_answer)
    } else {
        record()
    };
    if let Err(error) = recorded {
        tracing::warn!(%error, "cannot record that the source of a moved file is to be removed");
    }
}

/// Records on a file's own branch that its move has not happened. Where that fails, the daemon knows it until the
/// unmount.
pub(crate) fn record_abandoned(
    source: &DirAt,
    to: &Online,
    paths: &[Vec<u8>],
    temp: &OsStr,
    copied: &relocate::DurableCopy,
) {
    let abandoned = Intent::Move {
        from: BranchUuid(source.online.uuid),
        to: BranchUuid(to.uuid),
        names: paths.to_vec(),
        temp: temp.as_encoded_bytes().to_vec(),
        source: copied.source,
        target: copied.target,
    };
    let record = move |online: &Online| {
        let hidden = online.hidden.as_ref().ok_or(Errno::ROFS)?;
        relocate::record_abandoned(hidden.intents.as_fd(), &abandoned).map_err(|error| error.errno())
    };
    if let Err(errno) = source.branch.io(record) {
        tracing::warn!(%errno, "cannot record that a move has not happened");
    }
}

/// Whether a commit on another thread is waited for. A local disk may take its time, as for every other call; another
/// whose call lasts too long goes offline.
struct CommitWatchdog<'a> {
    ends: [Endpoint<'a>; 2],
    seen: Call,
    since: Instant,
}

impl CommitWatchdog<'_> {
    fn may_wait(&mut self, queued: bool, decision: &Decision) -> bool {
        let call = decision.call();
        let [target, source] = self.ends;
        let end = if call.side == MoveSide::Source { source } else { target };
        if queued || call != self.seen || !end.online.guarded {
            (self.seen, self.since) = (call, Instant::now());
        }
        let may_wait = end.is_alive() && self.since.elapsed() < COMMIT_TIMEOUT;
        if !may_wait {
            end.branch.does_not_answer(end.online, COMMIT_TIMEOUT, "");
        }
        may_wait
    }
}

/// How long a branch that may hang may take for a commit, or for a call of a change of names.
pub(crate) const COMMIT_TIMEOUT: Duration = Duration::from_secs(20);
