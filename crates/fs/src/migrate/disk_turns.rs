//! Turns on disks: of the moves in the background, one at a time reads or writes a disk. So no disk seeks between two
//! of them.
//!
//! - A move takes the disks of both its branches at once. It waits for the moves that came before it and want one of
//!   these disks, and for no others. So no two moves wait for each other, and none waits for ever.
//! - A disk is what has no other disk below it: partitions, volumes and arrays count as the disks that they lie on. A
//!   branch without a block device (tmpfs, ZFS) counts as a disk of its own.
//! - A move that has had its turn for [`LONGEST`] lets waiting moves go first before the next piece of its copy.
//! - A move from or to a branch that may hang (network, FUSE) takes no turn: it may not hold up the others. A move that
//!   a caller waits for does not wait either.
//!
//! A move that has a turn also rests while other programs use its disks ([`crate::migrate::give_way`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use umbrella_units::BranchId;

use crate::branch::{Branch, Online};
use crate::disk::devices::{DiskLoad, Sysfs};
use crate::disk::file_system::btrfs_uuid;
use crate::ground::locks::{Condvar, LeafMutex, rank};
use crate::migrate::give_way;
use crate::migrate::give_way::{CHECK_INTERVAL, DiskUse, TICK};

/// How long a move keeps its turn while others wait for it.
const LONGEST: Duration = Duration::from_secs(10);
/// How often a move that waits for its turn checks whether it still wants it.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// One disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Disk {
    /// A block device, by its name in sysfs.
    Device(String),
    /// A branch that has none.
    Branch(BranchId),
}

type Disks = BTreeSet<Disk>;

/// See the module.
#[derive(Default)]
pub(crate) struct DiskTurns {
    line: LeafMutex<rank::DiskTurns, TurnQueue>,
    wake: Condvar,
    sysfs: Sysfs,
}

#[derive(Default)]
struct TurnQueue {
    /// Moves that have or want a turn, in the order in which they came.
    moves: Vec<(u64, Arc<Disks>)>,
    next: u64,
    /// When a move last looked whether others use a disk.
    looked: BTreeMap<Disk, Instant>,
    /// The disks of branches, as they were when these came online.
    disks: FxHashMap<BranchId, (u64, Disks)>,
}

/// While it lives, no other move that takes turns uses its disks.
pub(crate) struct DiskTurn<'a> {
    turns: &'a DiskTurns,
    disks: Arc<Disks>,
    number: Cell<u64>,
    since: Cell<Instant>,
}

impl TurnQueue {
    fn enqueue(&mut self, disks: &Arc<Disks>) -> u64 {
        self.next += 1;
        self.moves.push((self.next, Arc::clone(disks)));
        self.next
    }

    fn dequeue(&mut self, number: u64) {
        self.moves.retain(|(other, _)| *other != number);
    }

    /// Whether no earlier move has or wants one of these disks.
    fn is_first(&self, number: u64, disks: &Disks) -> bool {
        let mut before = self.moves.iter().take_while(|(other, _)| *other != number);
        before.all(|(_, theirs)| theirs.is_disjoint(disks))
    }

    fn is_wanted(&self, number: u64, disks: &Disks) -> bool {
        self.moves.iter().any(|(other, theirs)| *other != number && !theirs.is_disjoint(disks))
    }

    /// Whether a move has used one of these disks for long without a look at it.
    fn is_look_due(&self, disks: &Disks) -> bool {
        disks.iter().any(|disk| self.looked.get(disk).is_none_or(|looked| looked.elapsed() >= CHECK_INTERVAL))
    }
}

impl DiskTurns {
    /// A turn on the disks of two branches; waits for it. `None`: it was asked to stop.
    pub(crate) fn take(&self, ends: [(&Branch, &Online); 2], stop: &dyn Fn() -> bool) -> Option<DiskTurn<'_>> {
        let disks = ends.iter().flat_map(|(branch, online)| self.disks_of(branch.id, online)).collect();
        self.take_disks(Arc::new(disks), stop)
    }

    /// Wakes waiting moves, so that they see that the pool ends.
    pub(crate) fn stop(&self) {
        let _line = self.line.lock();
        self.wake.notify_all();
    }

    fn take_disks(&self, disks: Arc<Disks>, stop: &dyn Fn() -> bool) -> Option<DiskTurn<'_>> {
        let number = self.line.lock().enqueue(&disks);
        // From here on, its end is its end in the line.
        let turn = DiskTurn { turns: self, disks, number: Cell::new(number), since: Cell::new(Instant::now()) };
        let has_it = turn.wait(stop);
        turn.since.set(Instant::now());
        has_it.then_some(turn)
    }

    fn disks_of(&self, branch: BranchId, online: &Online) -> Disks {
        if let Some((epoch, disks)) = self.line.lock().disks.get(&branch)
            && *epoch == online.epoch
        {
            return disks.clone();
        }
        let btrfs = if online.fs_type == "btrfs" { btrfs_uuid(online.root()) } else { None };
        let stack = self.sysfs.below(online.dev, online.source.as_deref(), btrfs.as_deref());
        let mut disks: Disks = stack.physical().map(|disk| Disk::Device(disk.to_owned())).collect();
        if disks.is_empty() {
            disks.insert(Disk::Branch(branch));
        }
        self.line.lock().disks.insert(branch, (online.epoch, disks.clone()));
        disks
    }

    fn loads(&self, disks: &Disks) -> Vec<DiskLoad> {
        let load = |disk: &Disk| match disk {
            Disk::Device(name) => self.sysfs.load(name),
            Disk::Branch(_) => None,
        };
        disks.iter().filter_map(load).collect()
    }
}

impl DiskTurn<'_> {
    /// Between two pieces of a copy: rests while others use the disks, and lets other moves go first after a long time.
    /// True: it has rested for others. `stop` ends the wait; the copy is to end then, too.
    pub(crate) fn pause(&self, stop: &dyn Fn() -> bool) -> bool {
        let found = if self.turns.line.lock().is_look_due(&self.disks) { self.rest(stop) } else { DiskUse::Idle };
        if self.since.get().elapsed() >= LONGEST {
            self.yield_to_waiters(stop);
        }
        found == DiskUse::Busy
    }

    fn rest(&self, stop: &dyn Fn() -> bool) -> DiskUse {
        let tick = || {
            if stop() {
                return false;
            }
            std::thread::sleep(TICK);
            true
        };
        let has_device = self.disks.iter().any(|disk| matches!(disk, Disk::Device(_)));
        let found = if has_device { give_way::rest(|| self.turns.loads(&self.disks), tick) } else { DiskUse::Idle };
        let now = Instant::now();
        self.turns.line.lock().looked.extend(self.disks.iter().map(|disk| (disk.clone(), now)));
        found
    }

    fn yield_to_waiters(&self, stop: &dyn Fn() -> bool) {
        {
            let mut line = self.turns.line.lock();
            self.since.set(Instant::now());
            if !line.is_wanted(self.number.get(), &self.disks) {
                return;
            }
            line.dequeue(self.number.get());
            self.number.set(line.enqueue(&self.disks));
            self.turns.wake.notify_all();
        }
        // Told to stop, the copy ends before its next piece.
        let _has_it = self.wait(stop);
        self.since.set(Instant::now());
    }

    /// Waits for the turn; false: it was asked to stop.
    fn wait(&self, stop: &dyn Fn() -> bool) -> bool {
        loop {
            // Without the lock, because `stop` may report progress.
            if stop() {
                return false;
            }
            let mut line = self.turns.line.lock();
            if line.is_first(self.number.get(), &self.disks) {
                return true;
            }
            self.turns.wake.wait_for(&mut line, ASK_EVERY);
        }
    }
}

impl Drop for DiskTurn<'_> {
    fn drop(&mut self) {
        self.turns.line.lock().dequeue(self.number.get());
        self.turns.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn disks(names: &[&str]) -> Arc<Disks> {
        Arc::new(names.iter().map(|name| Disk::Device((*name).to_owned())).collect())
    }

    fn wait_until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !what() {
            assert!(Instant::now() < deadline, "it never happens");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn two_moves_on_one_disk_never_run_at_once_and_all_get_their_turn() {
        let turns = DiskTurns::default();
        let used: [AtomicUsize; 3] = Default::default();
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            // Each way of three disks, both directions: what would deadlock if disks were taken one by one.
            for way in [[0, 1], [1, 2], [2, 0], [1, 0], [2, 1], [0, 2]] {
                let (turns, used, done) = (&turns, &used, &done);
                scope.spawn(move || {
                    let names = way.map(|disk| format!("disk{disk}"));
                    for _ in 0..200 {
                        let turn = turns.take_disks(disks(&names.each_ref().map(String::as_str)), &|| false).unwrap();
                        for disk in way {
                            assert_eq!(used[disk].fetch_add(1, Ordering::SeqCst), 0, "disk {disk} has two moves");
                        }
                        thread::yield_now();
                        for disk in way {
                            used[disk].fetch_sub(1, Ordering::SeqCst);
                        }
                        drop(turn);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 1200);
        assert!(turns.line.lock().moves.is_empty());
    }

    #[test]
    fn moves_of_other_disks_do_not_wait() {
        let turns = DiskTurns::default();
        let _first = turns.take_disks(disks(&["a", "b"]), &|| false).unwrap();
        assert!(turns.take_disks(disks(&["c", "d"]), &|| false).is_some());
        let asked = AtomicUsize::new(0);
        let give_up = || asked.fetch_add(1, Ordering::SeqCst) == 2;
        assert!(turns.take_disks(disks(&["b", "c"]), &give_up).is_none());
        assert_eq!(turns.line.lock().moves.len(), 1, "who gave up is not in the line any more");
    }

    #[test]
    fn who_comes_later_does_not_overtake_who_waits_for_the_same_disk() {
        let turns = DiskTurns::default();
        let order = LeafMutex::<rank::Wakeup, _>::new(Vec::new());
        let first = turns.take_disks(disks(&["a"]), &|| false).unwrap();
        thread::scope(|scope| {
            for (number, names) in [(1, &["a", "b"][..]), (2, &["b"])] {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take_disks(disks(names), &|| false).unwrap();
                    order.lock().push(number);
                });
                wait_until(|| turns.line.lock().moves.len() == 1 + number);
            }
            assert!(order.lock().is_empty(), "b is free, and promised to who came before");
            drop(first);
        });
        assert_eq!(*order.lock(), [1, 2]);
    }

    #[test]
    fn a_move_that_lets_others_go_first_has_its_turn_again_after_them() {
        let turns = DiskTurns::default();
        let turn = turns.take_disks(disks(&["a"]), &|| false).unwrap();
        turn.yield_to_waiters(&|| panic!("nobody waits"));
        let went = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = turns.take_disks(disks(&["a"]), &|| false).unwrap();
                went.store(true, Ordering::SeqCst);
            });
            wait_until(|| turns.line.lock().moves.len() == 2);
            turn.yield_to_waiters(&|| false);
            assert!(went.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_branch_without_a_disk_is_watched_by_nobody() {
        let turns = DiskTurns::default();
        let tmpfs = Arc::new(BTreeSet::from([Disk::Branch(BranchId(3))]));
        let turn = turns.take_disks(tmpfs, &|| false).unwrap();
        assert!(!turn.pause(&|| panic!("there is nothing to rest for")));
    }
}
