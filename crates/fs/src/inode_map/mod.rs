//! The inode numbers that users see: the same for the life of a file, on whichever branch it is, and unique in the
//! pool.
//!
//! A file that never moved has a number made of its branch's slot and its inode number there; nothing is stored for it.
//! A file that moves keeps its number, which is stored with its new place. The number is now *lent*: a new file that
//! gets the old inode on the old branch must have another number, made up and stored too.
//!
//! Each branch has one log for what is stored (`.umbrella/inodes`, see `record`). An entry lies in the log of the
//! branch that holds the file. A lent number lies in the log of the branch whose range it is from. So no branch hands
//! out a number that belongs to a file on an absent branch.
//!
//! Out-of-band changes: when a file with an entry is deleted behind the mount's back and its inode is used again, the
//! new file gets the dead one's number. That is odd, but the number is still unique. [`InodeMap::ino_checked`] avoids
//! it: it knows the file by its birth time.
//!
//! Crashes: records are not synced one by one. A lost record can change a file's number after a power failure, but two
//! files never share one. When a log is read, of two entries with one number the one with more moves stays. Numbers of
//! other branches' ranges are lent again, and counters of made-up numbers leap ahead of what may have been used.

mod evicted;
mod heat;
mod heat_file;
mod log;
mod number;
mod record;
mod shard;
mod sum;

#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use thiserror::Error;
use umbrella_units::{Ino, Timestamp};

use crate::branch::mounts;
use crate::ground::locks::{RankedMutex, RankedRwLock, rank};

use number::{FOREIGN_DEVICES, Range};
use shard::Shard;
use sum::LogSummary;

pub use heat::{HeatKey, Heats};
pub use record::{Decoded, HeaderError, InodeEntry, Record, decode};

/// A birth time that no file has.
const NEVER: Timestamp = Timestamp { secs: i64::MIN, nanos: u32::MAX };

/// A file as its branch knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackingKey {
    /// Slot of the branch, at most [`crate::branch::state::MAX_SLOT`].
    pub slot: u16,
    /// 0 on the branch's own device, else `st_dev` (btrfs subvolume, nested mount).
    pub foreign_dev: u64,
    /// `st_ino`.
    pub ino: u64,
}

/// The log of a branch cannot be used. The map works without it; numbers given meanwhile do not outlive the mount.
#[derive(Debug, Error)]
pub enum InodeMapError {
    /// A call failed.
    #[error("the log of inode numbers (.umbrella/inodes): {0}")]
    Io(#[from] Errno),
    /// It is from a newer program.
    #[error("the log of inode numbers (.umbrella/inodes): {0}")]
    Header(#[from] HeaderError),
    /// It is far too long.
    #[error("the log of inode numbers (.umbrella/inodes) has {bytes} bytes; move it away to begin another")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
}

/// Numbers of all files that do not have the number of their place. Thread-safe.
#[derive(Debug)]
pub struct InodeMap {
    /// By slot, in two levels: 128 times 128.
    shards: Box<[OnceLock<Row>]>,
    foreign: RankedRwLock<rank::InodeForeign, ForeignDevices>,
    /// The holder of each number that is a hash: the first that asked for it.
    hashed: RankedMutex<rank::InodeHashed, FxHashMap<u64, BackingKey>>,
    /// Lent numbers that are not in the range of a slot.
    lent_foreign: RankedRwLock<rank::InodeLent, FxHashSet<u64>>,
    /// The holder of each stored number that is not shared, and after how many moves. Held during a change of more than
    /// one branch.
    holders: RankedMutex<rank::InodeHolders, FxHashMap<u64, (BackingKey, u32)>>,
    heats: Heats,
}

type Row = Box<[OnceLock<Box<Shard>>]>;
const ROW: usize = 128;

/// Indices of foreign devices.
#[derive(Debug, Default)]
struct ForeignDevices {
    index: FxHashMap<(u16, u64), u16>,
    used: FxHashSet<u16>,
}

impl Default for InodeMap {
    fn default() -> Self {
        InodeMap {
            shards: (0..ROW).map(|_| OnceLock::new()).collect(),
            foreign: RankedRwLock::default(),
            hashed: RankedMutex::default(),
            lent_foreign: RankedRwLock::default(),
            holders: RankedMutex::default(),
            heats: Heats::default(),
        }
    }
}

impl InodeMap {
    /// An empty map.
    pub fn new() -> InodeMap {
        InodeMap::default()
    }

    /// The number of a file. Costs nanoseconds while nothing on its branch was ever moved.
    ///
    /// The root of the pool is `Ino(1)` by agreement; no file ever gets 0 or 1.
    pub fn ino(&self, key: BackingKey) -> Ino {
        self.number(key, None)
    }

    /// As [`InodeMap::ino`], for a file whose birth time on its branch is known: an entry that was made for another
    /// file, since deleted behind the mount's back, is dropped. The first call after a move says which file the entry
    /// is for.
    pub fn ino_checked(&self, key: BackingKey, backing_born: Option<Timestamp>) -> Ino {
        if let Some(born) = backing_born {
            match self.entry(key).map(|entry| entry.guard) {
                Some(Some(guard)) if guard != born => self.forget(key),
                Some(None) => self.set_guard(key, born),
                _ => {}
            }
        }
        self.number(key, backing_born)
    }

    /// Whether the entry is for another file than one of this birth time, so that [`InodeMap::ino_checked`] would drop
    /// it.
    pub fn contradicts(&self, key: BackingKey, backing_born: Option<Timestamp>) -> bool {
        let guard = self.entry(key).and_then(|entry| entry.guard);
        matches!((guard, backing_born), (Some(guard), Some(born)) if guard != born)
    }

    fn number(&self, key: BackingKey, guard: Option<Timestamp>) -> Ino {
        let shard = self.shard(key.slot);
        let place = number::place(key);
        if let Some(number) = place.filter(|_| shard.is_plain()) {
            return Ino(number);
        }
        {
            let state = shard.state.read();
            if let Some(entry) = state.entries.get(&place_of(key)) {
                return Ino(entry.number);
            }
            if let Some(number) = place.filter(|number| !state.lent.contains(number)) {
                return Ino(number);
            }
        }
        if place.is_none()
            && let Some(number) = self.foreign_number(key)
        {
            return Ino(number);
        }
        Ino(shard.change(|state, records| {
            if let Some(entry) = state.entries.get(&place_of(key)) {
                return entry.number;
            }
            if let Some(number) = place.filter(|number| !state.lent.contains(number)) {
                return number;
            }
            let number = number::fresh(key.slot, shard.take_counter());
            let entry = InodeEntry { number, hops: 0, shared: false, born: None, guard, evicted: None };
            state.entries.insert(place_of(key), entry);
            records.push(assign(key, entry));
            number
        }))
    }

    /// The number of a file that has none in its slot's range; `None` when another file has it.
    fn foreign_number(&self, key: BackingKey) -> Option<u64> {
        let by_index = self.foreign_index(key).and_then(|index| number::foreign(index, key.ino));
        let number = if let Some(number) = by_index {
            number
        } else {
            let number = number::hashed(key);
            let holder = *self.hashed.lock().entry(number).or_insert(key);
            (holder == key).then_some(number)?
        };
        (!self.lent_foreign.read().contains(&number)).then_some(number)
    }

    fn foreign_index(&self, key: BackingKey) -> Option<u16> {
        let device = (key.slot, key.foreign_dev);
        if key.foreign_dev == 0 {
            return None;
        }
        if let Some(&index) = self.foreign.read().index.get(&device) {
            return Some(index);
        }
        let mut foreign = self.foreign.write();
        if let Some(&index) = foreign.index.get(&device) {
            return Some(index);
        }
        if foreign.used.len() >= FOREIGN_DEVICES {
            return None;
        }
        let mut index = number::first_index(key.slot, key.foreign_dev);
        while !foreign.used.insert(index) {
            index = (index + 1) % FOREIGN_DEVICES as u16;
        }
        foreign.index.insert(device, index);
        Some(index)
    }

    /// A file was copied to `to` and takes its number along. `born`: its birth time as users see it; `None` keeps what
    /// is known.
    ///
    /// Call it before the copy at `from` is unlinked: from then on a new file may get that inode.
    pub fn moved(&self, from: BackingKey, to: BackingKey, born: Option<Timestamp>) {
        self.transfer_number(from, to, None, |known| born.or(known));
    }

    /// As [`InodeMap::moved`] and then [`InodeMap::ino_checked`] of the copy, whose birth time on its branch is
    /// `backing_born`; in one record.
    pub fn moved_checked(
        &self,
        from: BackingKey,
        to: BackingKey,
        born: Option<Timestamp>,
        backing_born: Option<Timestamp>,
    ) {
        self.transfer_number(from, to, backing_born, |known| born.or(known));
    }

    /// The copy at `from` is not to be: the file is at `to`, as before. `born`: what was known there.
    pub fn moved_back(&self, from: BackingKey, to: BackingKey, born: Option<Timestamp>) {
        self.transfer_number(from, to, None, |_| born);
    }

    fn transfer_number(
        &self,
        from: BackingKey,
        to: BackingKey,
        guard: Option<Timestamp>,
        born: impl FnOnce(Option<Timestamp>) -> Option<Timestamp>,
    ) {
        let mut holders = self.holders.lock();
        let number = self.ino(from).0;
        let old = self.entry(from);
        if old.is_none() {
            self.reserve(number, from.slot);
        }
        let entry = InodeEntry {
            number,
            hops: old.map_or(1, |old| old.hops.saturating_add(1)),
            shared: old.is_some_and(|old| old.shared),
            born: born(old.and_then(|old| old.born)),
            guard,
            evicted: None,
        };
        self.replace(&mut holders, to, entry);
        self.heats.moved(number, to.slot);
        if from != to {
            self.shard(from.slot).change(|state, records| {
                if state.entries.remove(&place_of(from)).is_some() {
                    records.push(forget(from));
                }
            });
        }
    }

    /// A directory's copy on another branch shows the number of the original. Cheap when it does already.
    ///
    /// A caller that removes a copy calls [`InodeMap::forget`] for it. Where copies vanish behind the mount's back,
    /// only [`InodeMap::ino_checked`] keeps the next file with that inode from showing the directory's number. Call
    /// that for the copy soon: at the next mount, a copy whose birth time was never given does not match a request that
    /// gives one.
    pub fn alias(&self, original: BackingKey, copy: BackingKey) {
        if original == copy {
            return;
        }
        if self.entry(copy).is_some_and(|it| it.shared && it.number == self.ino(original).0) {
            return;
        }
        let mut holders = self.holders.lock();
        let number = self.ino(original).0;
        match self.entry(original) {
            Some(entry) if entry.shared => {}
            Some(entry) => {
                holders.remove(&number);
                self.put(original, InodeEntry { shared: true, ..entry });
            }
            None => {
                self.reserve(number, original.slot);
                let entry = InodeEntry { number, hops: 0, shared: true, born: None, guard: None, evicted: None };
                self.put(original, entry);
            }
        }
        let entry = InodeEntry { number, hops: 0, shared: true, born: None, guard: None, evicted: None };
        self.replace(&mut holders, copy, entry);
    }

    /// The last link of a file is gone: its inode may become another file's.
    pub fn forget(&self, key: BackingKey) {
        let known = self.entry(key).is_some();
        if self.heats.count() > 0 {
            self.heats.forget(self.ino(key).0);
        }
        if known {
            let mut holders = self.holders.lock();
            self.drop_entry(&mut holders, key);
        }
        if number::place(key).is_none() {
            let number = number::hashed(key);
            let mut hashed = self.hashed.lock();
            if hashed.get(&number) == Some(&key) {
                hashed.remove(&number);
            }
        }
    }

    /// Birth time that was kept through relocations.
    pub fn born(&self, key: BackingKey) -> Option<Timestamp> {
        self.entry(key)?.born
    }

    /// Reads the log in a branch's hidden folder, and keeps it open. Call it through [`crate::branch::Branch::io`] when
    /// the branch came online, before the first use of its numbers.
    ///
    /// Where inode numbers do not outlive a mount (sshfs, vfat), neither do the numbers of files that moved there.
    /// On a guarded file system records are only collected, and written by [`InodeMap::sync`]: call that now and then.
    pub fn load(&self, slot: u16, hidden: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        let kind = mounts::fs_kind(hidden)?;
        let lasting = mounts::has_lasting_inodes(&kind.fs_type);
        let of = |records: &[Record]| {
            let mut sum = LogSummary::of(slot, records);
            if !lasting {
                // They speak of inode numbers that other files have now.
                sum.entries.clear();
            }
            sum
        };
        // Before `holders`, which all wait for.
        self.shard(slot).await_writer();
        let (file, records) = log::open(hidden, |records| of(records).records())?;
        let shard = self.shard(slot);
        let mut sum = of(&records);
        if lasting {
            sum.add(&shard.unwritten());
        }
        {
            let mut holders = self.holders.lock();
            shard.attach(file, !kind.guarded);
            self.merge_log(&mut holders, slot, sum, true);
        }
        shard.sync(hidden)
    }

    /// Reads the log of a branch that is not written, by its root directory. What changes lives as long as the map.
    pub fn load_read_only(&self, slot: u16, root: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        let records = log::read_only(root)?;
        let mut holders = self.holders.lock();
        self.merge_log(&mut holders, slot, LogSummary::of(slot, &records), false);
        Ok(())
    }

    /// The branch went offline. Numbers that its files have stay taken.
    pub fn unload(&self, slot: u16) {
        self.shard(slot).detach();
    }

    /// Returns when everything known of the branch's files is on its disk. Call it through
    /// [`crate::branch::Branch::io`]. `hidden` is the folder that it was loaded from.
    pub fn sync(&self, slot: u16, hidden: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        self.shard(slot).sync(hidden)
    }

    /// Joins what a log says with what is known.
    fn merge_log(&self, holders: &mut Holders, slot: u16, sum: LogSummary, keeps_log: bool) {
        let shard = self.shard(slot);
        let mut kept = Vec::with_capacity(sum.entries.len());
        let mut beaten = Vec::new();
        for ((foreign_dev, ino), mut entry) in sum.entries {
            let key = BackingKey { slot, foreign_dev, ino };
            if !entry.shared {
                match holders.get(&entry.number).copied() {
                    Some((other, hops)) if other != key && hops >= entry.hops => {
                        beaten.push(forget(key));
                        continue;
                    }
                    Some((other, _)) if other != key => self.remove(other),
                    _ => {}
                }
                holders.insert(entry.number, (key, entry.hops));
            } else if entry.guard.is_none() {
                // A crash may have lost that the copy went, and here nothing else would show two files with one number.
                entry.guard = Some(NEVER);
            }
            self.reserve(entry.number, slot);
            kept.push((key, entry));
        }
        let (own, foreign): (Vec<u64>, Vec<u64>) =
            sum.lent.iter().copied().partition(|&number| number::range(number) == Range::Place(slot));
        self.lent_foreign.write().extend(foreign);
        let counter = shard.skip_used_numbers(sum.counter);
        shard.change(|state, records| {
            for (key, entry) in kept {
                state.entries.entry(place_of(key)).or_insert(entry);
            }
            state.lent.extend(own);
            if keeps_log {
                records.extend(state.lent.iter().filter(|number| !sum.lent.contains(number)).map(|&n| Record::Lent(n)));
                records.extend(beaten);
                records.push(Record::HighWater(counter));
            }
        });
    }

    /// Reserves a number, so that the file whose inode would give it does not get it.
    fn reserve(&self, number: u64, from: u16) {
        match number::range(number) {
            Range::Place(home) => self.shard(home).change(|state, records| {
                if state.lent.insert(number) {
                    records.push(Record::Lent(number));
                }
            }),
            Range::Fresh(home, counter) => {
                self.shard(home).raise_counter(counter + 1);
            }
            Range::Foreign => {
                if self.lent_foreign.write().insert(number) {
                    self.shard(from).change(|_, records| records.push(Record::Lent(number)));
                }
            }
        }
    }

    /// Releases the number of a file that is gone.
    fn release(&self, number: u64) {
        if let Range::Place(home) = number::range(number) {
            self.shard(home).change(|state, records| {
                if state.lent.remove(&number) {
                    records.push(Record::Returned(number));
                }
            });
        }
    }

    /// Gives a file an entry in the place of the one it has, if any.
    fn replace(&self, holders: &mut Holders, key: BackingKey, entry: InodeEntry) {
        if self.entry(key).is_some_and(|old| old.number != entry.number) {
            self.drop_entry(holders, key);
        }
        if !entry.shared {
            holders.insert(entry.number, (key, entry.hops));
        }
        self.put(key, entry);
    }

    fn put(&self, key: BackingKey, entry: InodeEntry) {
        self.shard(key.slot).change(|state, records| {
            state.entries.insert(place_of(key), entry);
            records.push(assign(key, entry));
        });
    }

    fn remove(&self, key: BackingKey) {
        self.shard(key.slot).change(|state, records| {
            if state.entries.remove(&place_of(key)).is_some() {
                records.push(forget(key));
            }
        });
    }

    /// Removes an entry. Its number becomes free unless another entry shows it.
    fn drop_entry(&self, holders: &mut Holders, key: BackingKey) {
        let Some(entry) = self.entry(key) else {
            return;
        };
        self.remove(key);
        let is_holder = holders.get(&entry.number).is_none_or(|&(holder, _)| holder == key);
        if !entry.shared && is_holder {
            holders.remove(&entry.number);
            self.release(entry.number);
        }
    }

    fn set_guard(&self, key: BackingKey, born: Timestamp) {
        self.shard(key.slot).change(|state, records| {
            if let Some(entry) = state.entries.get_mut(&place_of(key)) {
                entry.guard = Some(born);
                records.push(assign(key, *entry));
            }
        });
    }

    fn entry(&self, key: BackingKey) -> Option<InodeEntry> {
        let shard = self.shard(key.slot);
        if shard.is_plain() {
            return None;
        }
        shard.state.read().entries.get(&place_of(key)).copied()
    }

    fn shard(&self, slot: u16) -> &Shard {
        let slot = usize::from(slot);
        let row = self.shards[slot / ROW % ROW].get_or_init(|| (0..ROW).map(|_| OnceLock::new()).collect());
        row[slot % ROW].get_or_init(Box::default)
    }
}

type Holders = FxHashMap<u64, (BackingKey, u32)>;

fn place_of(key: BackingKey) -> (u64, u64) {
    (key.foreign_dev, key.ino)
}

fn assign(key: BackingKey, entry: InodeEntry) -> Record {
    Record::Assign { dev: key.foreign_dev, ino: key.ino, entry }
}

fn forget(key: BackingKey) -> Record {
    Record::Forget { dev: key.foreign_dev, ino: key.ino }
}
