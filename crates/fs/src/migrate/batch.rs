//! Many small files that go from one local branch to another move together, and share their syncs
//! ([`crate::relocate::Batch`]).
//!
//! Steps of a batch:
//!
//! 1. Steps 1 and 2 of a move of its own ([`crate::migrate::transfer`]), for each file.
//! 2. The directories of names that renames have just given are synced, each once (`node::dir_changes`). Then one
//!    intent, and one sync for it and all copies.
//! 3. Steps 3 and 4 of a move of its own, for each file, under its own locks and without a sync.
//! 4. The syncs of the directories, without locks.
//!
//! - A batch is bounded in files, bytes and time.
//! - A file that drops out of a batch does not hold up the others. A file that is busy, or that changes meanwhile,
//!   stays where it is. Other files move by themselves afterwards: files with several names, large files, files on a
//!   branch that may hang, and files whose source cannot be set aside.
//! - Few files, and those of a branch with a write-back policy, are synced one by one: a sync of a whole file system
//!   also writes out what others wrote.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use umbrella_units::{BranchId, ByteSize};

use crate::branch::{Branch, ErrorSource, Online};
use crate::migrate::Migrations;
use crate::migrate::moving::{BatchedMove, MoveControl, MoveReason, MovedLink, NotMoved, ReservedSpace};
use crate::migrate::transfer::{MadeDirs, Migration, NodeNames, drop_copy, end_move, note_synced};
use crate::node::{NameChange, Node, path_of};
use crate::relocate;
use crate::relocate::{
    Batch, BatchFile, BranchUuid, CopiesSync, Durability, DurableCopy, MOST_FILES, MOST_PATH_BYTES, Parked, Recorded,
    RelocateError, Removal,
};
use crate::tree::unsynced_names::NamesToSync;
use crate::warning::{Warning, WarningSubject};

/// Bytes of a batch at most.
pub(crate) const MOST_BYTES: ByteSize = ByteSize(64 << 20);
/// How long a batch copies at most before it commits what it has.
const LONGEST: Duration = Duration::from_secs(2);
/// A file that is larger moves by itself.
pub(crate) const LARGEST_FILE: ByteSize = ByteSize(8 << 20);
/// Inodes that the note of a batch takes while it lasts.
const INTENT: u64 = 1;
/// Below this number, files are synced one by one.
const LEAST_FOR_SYNCFS: usize = 4;

/// The branches of a batch, as they are while it lasts.
struct BatchEnds {
    from: BatchEnd,
    to: BatchEnd,
}

struct BatchEnd {
    branch: Arc<Branch>,
    online: Arc<Online>,
}

/// What is copied so far.
#[derive(Default)]
struct CopiedMembers<'a> {
    members: Vec<Member<'a>>,
    /// Directories that the sync of the copies makes durable, too.
    unsynced: MadeDirs,
    bytes: ByteSize,
    path_bytes: usize,
}

/// A file that was copied.
struct Member<'a> {
    /// Which of those that were to move.
    at: usize,
    migration: Migration<'a>,
    link: MovedLink,
    path: Vec<u8>,
    temp: OsString,
    copied: DurableCopy,
}

/// How a file takes part in a batch.
enum BatchRole<'a> {
    /// It is copied. With directories that were made for it, and are to be synced.
    Member(Box<Member<'a>>, MadeDirs),
    /// Not at all: it moves by itself.
    Alone,
    /// It is where it belongs.
    There,
}

/// The bytes copied, or why the file is where it was.
pub(crate) type MoveResult = Result<ByteSize, NotMoved>;

impl Migrations {
    /// Moves the first of these files, or some of the first together where that is possible, as
    /// [`Migrations::transfer`] does. The bytes copied of each that it looked at, or why it stays.
    pub(crate) fn transfer_first(
        &self,
        nodes: &[Arc<Node>],
        target: BranchId,
        cause: MoveReason,
        pace: MoveControl<'_>,
    ) -> Vec<MoveResult> {
        // `None`: it is still to move, by itself.
        let mut done: Vec<Option<MoveResult>> = nodes.iter().map(|_| None).collect();
        let looked = self.move_together(nodes, (target, cause), pace, &mut done).unwrap_or(1);
        let alone =
            |(node, done): (&Arc<Node>, Option<_>)| done.unwrap_or_else(|| self.transfer(node, target, cause, pace));
        nodes.iter().zip(done).take(looked).map(alone).collect()
    }

    /// One batch of the first of these files; how many it looked at. `None`: they go one by one.
    fn move_together(
        &self,
        nodes: &[Arc<Node>],
        (target, cause): (BranchId, MoveReason),
        pace: MoveControl<'_>,
        done: &mut [Option<MoveResult>],
    ) -> Option<usize> {
        if nodes.len() < 2 {
            return None;
        }
        let ends = self.ends(nodes, target)?;
        let is_ordered = |end: &BatchEnd| self.write_back.flusher_of_branch(end.branch.id).is_some();
        let batch = ends.batch([!is_ordered(&ends.from), !is_ordered(&ends.to)])?;
        let turn = self.turn_on_disks([ends.from.branch.id, target], cause, pace).ok()?;
        let pace = MoveControl { turn: turn.as_ref(), ..pace };
        let is_shared = nodes.len() >= LEAST_FOR_SYNCFS && !is_ordered(&ends.to);
        // Before the first copy.
        let sync = is_shared.then(|| CopiesSync::before(batch.temps)).transpose().ok()?;
        let mut gathered = CopiedMembers::default();
        let began = Instant::now();
        let mut looked = 0;
        for (node, done) in nodes.iter().zip(done.iter_mut()) {
            let is_stopped = self.context.is_stopping() || pace.stop.is_some_and(|stop| stop());
            let joined =
                if is_stopped { Err(NotMoved::Stopped) } else { self.join(node, &ends, (cause, pace), is_shared) };
            match joined {
                Ok(BatchRole::Member(member, unsynced)) => gathered.add(looked, *member, unsynced),
                Ok(BatchRole::Alone) => {}
                Ok(BatchRole::There) => *done = Some(Ok(ByteSize(0))),
                Err(why) => *done = Some(Err(why)),
            }
            looked += 1;
            if gathered.is_full() || began.elapsed() > LONGEST {
                break;
            }
        }
        if !gathered.members.is_empty() {
            self.commit_together(&batch, gathered, sync.as_ref(), done);
        }
        Some(looked)
    }

    /// The branches that a batch of these files would go from and to; `None` where there are no batches.
    fn ends(&self, nodes: &[Arc<Node>], target: BranchId) -> Option<BatchEnds> {
        let from = nodes.iter().find_map(|node| Some(node.file()?.state.read().backing.branch))?;
        let end = |branch| {
            let branch = self.branches.get(branch).ok()?;
            let online = branch.online().filter(|online| !online.guarded)?;
            let is_fit = online.hidden.as_ref().is_some_and(|hidden| relocate::keeps_renames_whole(hidden.tmp.as_fd()));
            is_fit.then_some(BatchEnd { branch, online })
        };
        (from != target).then_some(BatchEnds { from: end(from)?, to: end(target)? })
    }

    /// Steps 1 and 2 of one file's move.
    fn join<'a>(
        &self,
        node: &'a Arc<Node>,
        ends: &BatchEnds,
        (cause, pace): (MoveReason, MoveControl<'a>),
        is_shared: bool,
    ) -> Result<BatchRole<'a>, NotMoved> {
        let cancel = Arc::new(AtomicBool::new(false));
        let begun = self.begin_move(node, ends.to.branch.id, cause, &cancel)?;
        let Some((backing, names)) = begun else { return Ok(BatchRole::There) };
        let durability = if is_shared { Durability::Together } else { Durability::Now };
        let (target, online, flag) = (Arc::clone(&ends.to.branch), Arc::clone(&ends.to.online), Arc::clone(&cancel));
        let migration = Migration { node, backing, target, online, cause, pace, cancel: flag, durability };
        let joined = self.copy_member(migration, &names, ends);
        if !matches!(joined, Ok(BatchRole::Member(..))) {
            end_move(node, &cancel);
        }
        joined
    }

    fn copy_member<'a>(
        &self,
        migration: Migration<'a>,
        names: &NodeNames,
        ends: &BatchEnds,
    ) -> Result<BatchRole<'a>, NotMoved> {
        if names.len() != 1 || migration.backing.branch != ends.from.branch.id {
            return Ok(BatchRole::Alone);
        }
        let (sources, meta) = self.sources(&migration, names)?;
        let (Some(from), Some((_, name))) = (sources.first(), names.first()) else { return Ok(BatchRole::Alone) };
        if meta.size > LARGEST_FILE.0 || from.online.epoch != ends.from.online.epoch {
            return Ok(BatchRole::Alone);
        }
        let temp = self.tree.temp_name();
        let copied = self.copy_file(&migration, (from, name), &temp)?;
        let linked = self.links(&migration, names, &sources).and_then(|(links, mut unsynced)| {
            if migration.durability == Durability::Now {
                self.sync_made_dirs(&unsynced, migration.target.id)?;
                unsynced.clear();
            }
            Ok((links.into_iter().next().ok_or(NotMoved::Busy("it has no name"))?, unsynced))
        });
        match linked {
            Ok((link, unsynced)) => {
                let path = {
                    let _names = self.tree.rename_lock.read();
                    path_of(&link.parent, &link.name)
                };
                let member = Member { at: 0, migration, link, path, temp, copied };
                Ok(BatchRole::Member(Box::new(member), unsynced))
            }
            Err(why) => {
                drop_copy(&migration.target, temp);
                Err(why)
            }
        }
    }

    /// Step 2. The names that renames have just given are durable first.
    fn record<'a>(
        &self,
        batch: &Batch<'a>,
        members: &[Member<'_>],
        sync: Option<&CopiesSync>,
    ) -> Result<Recorded<'a>, NotMoved> {
        let given = {
            let _names = self.tree.rename_lock.read();
            self.given_names(members.iter().map(|member| (&member.migration, &member.link)))?
        };
        given.sync()?;
        Ok(batch.record(members.iter().map(Member::in_intent).collect(), sync)?)
    }

    /// From the intent to its end.
    fn commit_together(
        &self,
        batch: &Batch<'_>,
        gathered: CopiedMembers<'_>,
        sync: Option<&CopiesSync>,
        done: &mut [Option<MoveResult>],
    ) {
        let CopiedMembers { members, unsynced, bytes, .. } = gathered;
        let recorded = match self.record(batch, &members, sync) {
            Ok(recorded) => recorded,
            Err(error) => {
                tracing::debug!(%error, "cannot record a batch of moves: its files move one by one");
                return members.iter().for_each(Member::abandon);
            }
        };
        let Some(to) = members.first().map(|member| Arc::clone(&member.migration.target)) else { return };
        note_synced(&unsynced, to.id);
        // In a directory that is renamed meanwhile, a power loss could leave files twice.
        let _moving = self.tree.slow_commits.read();
        // Whether each still belongs there is judged by what the copies left.
        to.invalidate_space();
        let mut taken = ReservedSpace { bytes, files: members.len() as u64 + INTENT };
        let mut moved = Vec::with_capacity(members.len());
        for member in members {
            let in_batch = BatchedMove { batch: *batch, path: &member.path, taken };
            let links = std::slice::from_ref(&member.link);
            let result = self.commit_copy(&member.migration, links, &member.temp, &member.copied, Some(&in_batch));
            taken.bytes.0 = taken.bytes.0.saturating_sub(member.copied.bytes.0);
            taken.files -= 1;
            let result = match result {
                Ok(()) => {
                    self.note_moved(&member.migration, links, &member.copied);
                    Some(Ok(member.copied.bytes))
                }
                Err(why) => {
                    if why.is_settled() {
                        member.abandon();
                    } else {
                        end_move(member.migration.node, &member.migration.cancel);
                    }
                    (!may_move_alone(&why)).then_some(Err(why))
                }
            };
            let has_moved = matches!(result, Some(Ok(_)));
            if let Some(done) = done.get_mut(member.at) {
                *done = result;
            }
            if has_moved {
                moved.push(member);
            }
        }
        let parked: Vec<_> = moved.iter().map(Member::parked).collect();
        let mut names = NamesToSync::default();
        for Member { migration, link, .. } in &moved {
            names.add(&link.parent, |name| name.change == NameChange::Moved && name.branch == migration.backing.branch);
        }
        let finished = batch.finish(recorded, &parked);
        if matches!(finished, Ok(Removal::Done)) {
            names.synced();
            for file in moved.iter().filter_map(|member| member.migration.node.file()) {
                file.state.write().has_unsynced_names = false;
            }
        }
        // Only now what was set aside has gone. What copies take, they took before their turn.
        if let Some(first) = moved.first() {
            first.link.from.branch.invalidate_space();
            to.invalidate_space();
        }
        if let (Ok(Removal::Unsure { errno }), Some(first)) = (&finished, moved.first()) {
            // When it is back, recovery removes the sources that are still there.
            first.link.from.branch.take_offline(format!("it did not confirm the removal of moved files ({errno})"));
        }
        if let Err(error) = finished {
            to.note_errno(ErrorSource::Sync, error.errno());
            let (to, why) = (to.spec.name.clone(), error.to_string());
            self.context.warn(WarningSubject::Batch(to.clone()), &Warning::BatchUnfinished { to, why });
        }
    }
}

/// Whether what kept a file from moving in its batch need not keep it from moving by itself.
fn may_move_alone(why: &NotMoved) -> bool {
    match why {
        NotMoved::Failed(error) => error.is_settled() && *error != RelocateError::Taken,
        NotMoved::NoRoom
        | NotMoved::Busy(_)
        | NotMoved::Stopped
        | NotMoved::Mapped
        | NotMoved::Outdated
        | NotMoved::Op(_) => false,
    }
}

impl BatchEnds {
    fn batch(&self, syncs_whole: [bool; 2]) -> Option<Batch<'_>> {
        let (from, to) = (self.from.online.hidden.as_ref()?, self.to.online.hidden.as_ref()?);
        Some(Batch {
            from: BranchUuid(self.from.online.uuid),
            to: BranchUuid(self.to.online.uuid),
            parked: from.tmp.as_fd(),
            temps: to.tmp.as_fd(),
            intents: to.intents.as_fd(),
            syncs_whole,
            hook: None,
        })
    }
}

impl<'a> CopiedMembers<'a> {
    fn add(&mut self, at: usize, member: Member<'a>, unsynced: MadeDirs) {
        self.bytes.0 += member.copied.bytes.0;
        self.path_bytes += member.path.len();
        self.unsynced.extend(unsynced);
        self.members.push(Member { at, ..member });
    }

    fn is_full(&self) -> bool {
        self.members.len() >= MOST_FILES || self.bytes >= MOST_BYTES || self.path_bytes >= MOST_PATH_BYTES
    }
}

impl Member<'_> {
    fn in_intent(&self) -> BatchFile {
        BatchFile {
            path: self.path.clone(),
            temp: self.temp.as_encoded_bytes().to_vec(),
            source: self.copied.source,
            target: self.copied.target,
        }
    }

    fn parked(&self) -> Parked<'_> {
        Parked {
            source: self.link.from.fd.as_fd(),
            target: self.link.to.fd.as_fd(),
            temp: &self.temp,
            path: &self.path,
            copied: &self.copied,
        }
    }

    /// Gives up the move: the file stays where it is.
    fn abandon(&self) {
        drop_copy(&self.migration.target, self.temp.clone());
        end_move(self.migration.node, &self.migration.cancel);
    }
}
