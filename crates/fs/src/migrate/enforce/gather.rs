//! The moves of a walk. Small files wait until there are enough with the same way. All move at the walk's bandwidth,
//! and stop when the walk stops.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbrella_units::{BranchId, ByteSize};

use crate::control::protocol::MoveEvent;
use crate::ground::meta::Meta;
use crate::migrate::Migrations;
use crate::migrate::batch::{LARGEST_FILE, MOST_BYTES, MoveResult};
use crate::migrate::enforce::EnforceWalker;
use crate::migrate::enforce::placement_override::{Target, VisitedFile};
use crate::migrate::moving::{MoveControl, MoveReason, NotMoved};
use crate::node::{Node, path_of};
use crate::relocate::MOST_FILES;
use crate::tree::Pinned;

/// How long a walk waits for a file that is open past the mount.
const MAPPED_TIMEOUT: Duration = Duration::from_millis(100);
/// How often a walk reports, and asks whether to go on, while files move.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// How long a file waits for others at most, while the walk meets some.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A file that is to move, and the event that reports the move.
pub(super) struct MisplacedFile<'a> {
    pub(super) file: Pinned<'a>,
    pub(super) dir: Arc<Node>,
    pub(super) name: OsString,
    pub(super) meta: Meta,
    pub(super) event: MoveEvent,
}

/// Files that wait, by the branches that they go from and to.
#[derive(Default)]
pub(super) struct MovesByRoute<'a> {
    ways: BTreeMap<[BranchId; 2], Vec<MisplacedFile<'a>>>,
    /// Since when the first of them waits.
    since: Option<Instant>,
}

impl MovesByRoute<'_> {
    /// How many files wait.
    pub(super) fn len(&self) -> u64 {
        self.ways.values().map(|waiting| waiting.len() as u64).sum()
    }
}

impl<'a> EnforceWalker<'a> {
    /// Moves a file, at the latest when its way has enough files for a batch.
    pub(super) fn gather(&mut self, way: [BranchId; 2], found: MisplacedFile<'a>) {
        if found.meta.size > LARGEST_FILE.0 {
            return self.move_found(way, vec![found]);
        }
        self.planned.room(way, found.meta.occupied());
        self.gathered.since.get_or_insert_with(Instant::now);
        let waiting = self.gathered.ways.entry(way).or_default();
        waiting.push(found);
        let bytes: u64 = waiting.iter().map(|waiting| waiting.meta.size).sum();
        if waiting.len() >= MOST_FILES || bytes >= MOST_BYTES.0 {
            let waiting = std::mem::take(waiting);
            self.move_found(way, waiting);
        }
        self.move_overdue();
    }

    pub(super) fn move_overdue(&mut self) {
        if self.gathered.since.is_some_and(|since| since.elapsed() > LONGEST_WAIT) {
            self.move_gathered();
        }
    }

    /// Moves all that wait.
    pub(super) fn move_gathered(&mut self) {
        self.gathered.since = None;
        while let Some((way, waiting)) = self.gathered.ways.pop_first() {
            self.move_found(way, waiting);
        }
    }

    fn move_found(&mut self, way: [BranchId; 2], mut found: Vec<MisplacedFile<'a>>) {
        while !found.is_empty() && !self.stopped {
            self.move_first(way, &mut found);
        }
        self.summary.files_left += found.len() as u64;
    }

    /// Moves the first of these files, or some together, and says so.
    fn move_first(&mut self, [_, target]: [BranchId; 2], found: &mut Vec<MisplacedFile<'a>>) {
        let nodes: Vec<_> = found.iter().map(|found| Arc::clone(&found.file.node)).collect();
        let moved = self.paced(|migrations, pace| migrations.transfer_first(&nodes, target, MoveReason::Rule, pace));
        self.planned.forget_moves();
        let waiting: Vec<_> = self
            .gathered
            .ways
            .iter()
            .flat_map(|(way, files)| files.iter().map(|file| (*way, file.meta.occupied())))
            .collect();
        for (way, occupied) in waiting {
            self.planned.room(way, occupied);
        }
        let rest = found.split_off(moved.len().min(found.len()));
        let mut moves = std::mem::replace(found, rest).into_iter().zip(moved).peekable();
        while let Some((found, moved)) = moves.next() {
            if nodes.len() > 1 && matches!(moved, Err(NotMoved::NoRoom | NotMoved::Outdated)) {
                // Others of them took the room that it was judged by.
                self.move_again(found, target);
                continue;
            }
            let MisplacedFile { file, dir, name, meta, event } = found;
            let moved = match moved {
                Err(NotMoved::Mapped) => self.transfer(&file.node, target, MoveReason::Rule),
                // Nothing was begun.
                Err(NotMoved::Stopped) => {
                    self.summary.files_left += 1;
                    continue;
                }
                moved => self.stopped_warning(moved),
            };
            self.progress.is_followed = moved.is_ok() && moves.peek().is_some_and(|(_, next)| next.is_ok());
            self.note_unless_gone((&dir, &name), &meta, event, moved);
        }
    }

    /// Moves a file by itself that had no place on `full`, to where it belongs now.
    fn move_again(&mut self, found: MisplacedFile<'a>, full: BranchId) {
        if self.stopped {
            self.summary.files_left += 1;
            return;
        }
        if let Ok(branch) = self.migrations.branches.get(full) {
            branch.invalidate_space();
        }
        let MisplacedFile { file, dir, name, .. } = found;
        let Some((copy, meta)) = self.visible_entry(&dir, &name) else { return };
        let path = path_of(&dir, &name);
        let met = VisitedFile { names: std::slice::from_ref(&path), path: &path, branch: &copy.branch, meta: &meta };
        if let Some(Target { branch: target, event, warmth: None }) = self.target_of(&met) {
            let moved = self.transfer(&file.node, target, MoveReason::Rule);
            self.note_unless_gone((&dir, &name), &meta, event, moved);
        }
    }

    /// A file that is mapped stays; a file that was open a moment ago moves.
    pub(super) fn transfer(&mut self, node: &Arc<Node>, target: BranchId, cause: MoveReason) -> MoveResult {
        let moved = self.paced(|migrations, pace| match migrations.transfer(node, target, cause, pace) {
            Err(NotMoved::Mapped) => migrations.transfer_with_retries(node, target, cause, pace, MAPPED_TIMEOUT),
            done => done,
        });
        self.stopped_warning(moved)
    }

    fn stopped_warning(&self, moved: MoveResult) -> Result<ByteSize, NotMoved> {
        match moved {
            Err(NotMoved::Busy(_)) if self.stopped => Err(NotMoved::Busy("the walk was stopped; it stays where it is")),
            moved => moved,
        }
    }

    /// Runs moves at the walk's bandwidth. The end of the walk ends a copy under way.
    fn paced<T>(&mut self, run: impl FnOnce(&Migrations, MoveControl<'_>) -> T) -> T {
        let (migrations, progress) = (self.migrations, &self.progress);
        let told = RefCell::new((&mut *self.tell, Instant::now()));
        let ended = Cell::new(false);
        let stop = || {
            let (tell, last) = &mut *told.borrow_mut();
            if !ended.get() && last.elapsed() >= TELL_EVERY {
                *last = Instant::now();
                ended.set(!tell(progress));
            }
            ended.get() || migrations.context.is_stopping()
        };
        let pace = MoveControl { throttle: self.throttle.as_ref(), stop: Some(&stop), ..MoveControl::default() };
        let done = run(migrations, pace);
        self.stopped |= ended.get();
        done
    }
}
