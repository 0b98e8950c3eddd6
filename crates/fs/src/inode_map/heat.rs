//! The heat of files, by the numbers that users see: a file keeps it under each of its names, and on whichever branch
//! it is.
//!
//! An open takes one lock of many for a moment, and makes nothing new for a file that is known. A file is known by its
//! number and its birth: a file that gets the number of a dead one begins cold.
//!
//! What branches keep of it (`.umbrella/heat`, see `heat_file`) is some minutes old. A crash loses those minutes, and
//! never more than that: heat says where files had better be, and nothing depends on it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use umbrella_policy::heat::{Heat, Opens, Spending};
use umbrella_units::{ByteSize, Ino, Timestamp, mix64};

use crate::ground::locks::{RankedMutex, rank};

use super::evicted::sum;
use super::heat_file::{self, HeatRecord, HeatSnapshot};
use super::{InodeMap, InodeMapError};

const SHARDS: usize = 64;
/// Files of one shard. Beyond that the colder half is forgotten.
const MOST: usize = 1 << 14;
/// What is colder is not kept.
const COLD: Opens = Opens(Opens::ONE.0 / 100);
/// Shortest time between two reports that a file is warm, in seconds.
const TELL_EVERY: i64 = 60;

/// The heats of all files of a pool. Thread-safe.
#[derive(Debug)]
pub struct Heats {
    shards: Box<[RankedMutex<rank::Heats, FxHashMap<u64, FileHeat>>]>,
    /// Files that are known.
    count: AtomicUsize,
    spending: RankedMutex<rank::HeatSpending, Spending>,
}

/// State of one file.
#[derive(Debug, Clone, Copy)]
struct FileHeat {
    heat: Heat,
    /// Checksum of its birth time; 0 where that is unknown.
    born: u32,
    /// Where it was seen last.
    slot: u16,
    /// As its branch keeps it.
    is_kept: bool,
    /// When it was last reported as warm, in seconds.
    told: i64,
    /// A fill level moved it, and it has not been opened since.
    rests: bool,
}

/// A file, for its heat.
#[derive(Debug, Clone, Copy)]
pub struct HeatKey {
    /// Its number.
    pub ino: Ino,
    /// Its birth, as users see it.
    pub born: Option<Timestamp>,
}

impl HeatKey {
    fn sum(self) -> u32 {
        self.born.map_or(0, sum)
    }
}

impl Default for Heats {
    fn default() -> Heats {
        Heats {
            shards: (0..SHARDS).map(|_| RankedMutex::default()).collect(),
            count: AtomicUsize::new(0),
            spending: RankedMutex::default(),
        }
    }
}

impl Heats {
    /// The file was opened on the branch with this slot. True, now and then: it is at least as warm as `warm`, and its
    /// place may be looked at.
    pub fn opened(&self, key: HeatKey, slot: u16, at: (Timestamp, Duration), warm: Option<Opens>) -> bool {
        self.used(key, slot, Opens::ONE, at, warm)
    }

    /// As [`Heats::opened`], for a use that counts as `by` opens.
    pub fn used(
        &self,
        key: HeatKey,
        slot: u16,
        by: Opens,
        (now, half_life): (Timestamp, Duration),
        warm: Option<Opens>,
    ) -> bool {
        self.change(key, slot, half_life, now, |known| {
            let before = known.heat.opens(now, half_life);
            known.heat = known.heat.used(by, now, half_life);
            let is_late = !(0..TELL_EVERY).contains(&now.secs.saturating_sub(known.told));
            let rested = std::mem::take(&mut known.rests);
            // One that is at the threshold may have to be above it.
            let is_due = is_late || rested || before <= warm.unwrap_or_default();
            let tell = is_due && warm.is_some_and(|warm| known.heat.opens(now, half_life) >= warm);
            if tell {
                known.told = now.secs;
            }
            tell
        })
    }

    /// Raises the heat of the file to at least this.
    pub fn raise(&self, key: HeatKey, slot: u16, (now, half_life): (Timestamp, Duration), to: Opens) {
        self.change(key, slot, half_life, now, |known| {
            known.heat = known.heat.raised(to, now, half_life);
            known.rests = false;
        });
    }

    /// How warm a file is.
    pub fn opens(&self, key: HeatKey, now: Timestamp, half_life: Duration) -> Opens {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Opens(0);
        }
        let known = self.shard(key.ino.0).lock().get(&key.ino.0).copied();
        known.filter(|known| known.born == key.sum()).map_or(Opens(0), |known| known.heat.opens(now, half_life))
    }

    /// A fill level has moved the file: its heat of now fetches it back no more, only the next open does.
    pub fn rest(&self, key: HeatKey) {
        if self.count() > 0
            && let Some(known) = self.shard(key.ino.0).lock().get_mut(&key.ino.0)
        {
            (known.rests, known.is_kept) = (true, false);
        }
    }

    /// Whether a fill level moved the file and it has not been opened since.
    pub fn rests(&self, key: HeatKey) -> bool {
        let known = self.shard(key.ino.0).lock().get(&key.ino.0).copied();
        known.is_some_and(|known| known.born == key.sum() && known.rests)
    }

    /// How many files are known.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many files are at least so warm. Looks at all that are known: some milliseconds for a million.
    pub fn count_warm(&self, from: Opens, now: Timestamp, half_life: Duration) -> u64 {
        let in_shard = |shard: &RankedMutex<rank::Heats, FxHashMap<u64, FileHeat>>| {
            shard.lock().values().filter(|known| known.heat.opens(now, half_life) >= from).count() as u64
        };
        self.shards.iter().map(in_shard).sum()
    }

    /// Whether files may move because of heat.
    pub fn has_budget(&self, now: Timestamp, a_day: Option<ByteSize>) -> bool {
        a_day.is_none_or(|a_day| self.spending.lock().allows(now, a_day))
    }

    /// A file has moved because of heat.
    pub fn spend(&self, bytes: ByteSize, now: Timestamp, a_day: Option<ByteSize>) {
        if let Some(a_day) = a_day {
            let mut spending = self.spending.lock();
            *spending = spending.spent(bytes, now, a_day);
        }
    }

    /// The file has moved to the branch with this slot.
    pub(super) fn moved(&self, number: u64, slot: u16) {
        if self.count() > 0
            && let Some(known) = self.shard(number).lock().get_mut(&number)
        {
            known.slot = slot;
            known.is_kept = false;
        }
    }

    /// The file is gone.
    pub(super) fn forget(&self, number: u64) {
        if self.count() > 0 && self.shard(number).lock().remove(&number).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn change<T>(
        &self,
        key: HeatKey,
        slot: u16,
        half_life: Duration,
        now: Timestamp,
        change: impl FnOnce(&mut FileHeat) -> T,
    ) -> T {
        let mut shard = self.shard(key.ino.0).lock();
        if shard.len() >= MOST && !shard.contains_key(&key.ino.0) {
            let forgotten = forget_colder_half(&mut shard, half_life, now);
            self.count.fetch_sub(forgotten, Ordering::Relaxed);
        }
        let born = key.sum();
        let cold = FileHeat { heat: Heat::default(), born, slot, is_kept: false, told: i64::MIN, rests: false };
        let before = shard.len();
        let known = shard.entry(key.ino.0).or_insert(cold);
        if known.born != born {
            *known = cold;
        }
        (known.slot, known.is_kept) = (slot, false);
        let done = change(known);
        self.count.fetch_add(shard.len() - before, Ordering::Relaxed);
        done
    }

    fn shard(&self, number: u64) -> &RankedMutex<rank::Heats, FxHashMap<u64, FileHeat>> {
        &self.shards[mix64(number) as usize % SHARDS]
    }

    /// What the branch with this slot is to keep, if that differs from what it has. Files that are cold by now are
    /// forgotten.
    fn to_keep(&self, slot: u16, now: Timestamp, half_life: Duration) -> Option<Vec<HeatRecord>> {
        let (mut lines, mut differs) = (Vec::new(), false);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.len();
            shard.retain(|_, known| known.heat.opens(now, half_life) >= COLD);
            self.count.fetch_sub(before - shard.len(), Ordering::Relaxed);
            for (number, known) in shard.iter_mut().filter(|(_, known)| known.slot == slot) {
                differs |= !std::mem::replace(&mut known.is_kept, true);
                lines.push(HeatRecord { number: *number, born: known.born, heat: known.heat, rests: known.rests });
            }
        }
        differs.then_some(lines)
    }

    /// It could not be written.
    fn not_kept(&self, slot: u16) {
        for shard in &self.shards {
            for known in shard.lock().values_mut().filter(|known| known.slot == slot) {
                known.is_kept = false;
            }
        }
    }

    fn merge_kept(&self, slot: u16, kept: HeatSnapshot) {
        let mut spending = self.spending.lock();
        *spending = spending.later(kept.spending);
        drop(spending);
        for HeatRecord { number, born, heat, rests } in kept.lines {
            let mut shard = self.shard(number).lock();
            if shard.len() >= MOST {
                continue;
            }
            let before = shard.len();
            let known =
                shard.entry(number).or_insert(FileHeat { heat, born, slot, is_kept: true, told: i64::MIN, rests });
            // Of two branches that kept it, the file is where it was seen last. The same heat: one of them is from
            // before it left.
            if known.born == born && known.heat != heat && known.heat.later(heat) == heat {
                (known.heat, known.slot, known.rests) = (heat, slot, rests);
            } else if known.born == born && known.heat == heat && rests {
                (known.slot, known.rests) = (slot, true);
            }
            self.count.fetch_add(shard.len() - before, Ordering::Relaxed);
        }
    }
}

/// How many were forgotten.
fn forget_colder_half(shard: &mut FxHashMap<u64, FileHeat>, half_life: Duration, now: Timestamp) -> usize {
    let before = shard.len();
    let mut heats: Vec<Opens> = shard.values().map(|known| known.heat.opens(now, half_life)).collect();
    let (_, middle, _) = heats.select_nth_unstable(before / 2);
    let middle = *middle;
    // As many as it takes of the files that are as warm as the middle one.
    let mut left = before / 2;
    shard.retain(|_, known| {
        let is_warmer = known.heat.opens(now, half_life) > middle;
        let stays = is_warmer || (known.heat.opens(now, half_life) == middle && left > before / 4);
        left -= usize::from(stays && left > 0);
        stays
    });
    before - shard.len()
}

impl InodeMap {
    /// The heats of files.
    pub fn heats(&self) -> &Heats {
        &self.heats
    }

    /// Reads what a branch keeps of its files' heat. Call it after [`InodeMap::load`], as that.
    pub fn load_heat(&self, slot: u16, hidden: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        self.heats.merge_kept(slot, heat_file::read(hidden)?);
        Ok(())
    }

    /// Lets a branch keep the heat of its files, where it changed. Call it through [`crate::branch::Branch::io`].
    pub fn keep_heat(
        &self,
        slot: u16,
        hidden: BorrowedFd<'_>,
        (now, half_life): (Timestamp, Duration),
    ) -> Result<(), InodeMapError> {
        let Some(lines) = self.heats.to_keep(slot, now, half_life) else { return Ok(()) };
        let spending = *self.heats.spending.lock();
        heat_file::write(hidden, &HeatSnapshot { lines, spending }).map_err(|error| {
            self.heats.not_kept(slot);
            error.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    const NOW: Timestamp = Timestamp { secs: 1_800_000_000, nanos: 0 };

    fn key(number: u64) -> HeatKey {
        HeatKey { ino: Ino(number), born: Some(Timestamp { secs: 5, nanos: 7 }) }
    }

    fn open(heats: &Heats, number: u64, times: usize) {
        for _ in 0..times {
            heats.opened(key(number), 3, (NOW, WEEK), None);
        }
    }

    #[test]
    fn a_file_with_the_number_of_a_dead_one_begins_cold() {
        let heats = Heats::default();
        open(&heats, 7, 3);
        assert_eq!(heats.opens(key(7), NOW, WEEK), Opens(3_000_000));
        let other = HeatKey { born: Some(Timestamp { secs: 6, nanos: 7 }), ..key(7) };
        assert_eq!(heats.opens(other, NOW, WEEK), Opens(0));
        heats.opened(other, 3, (NOW, WEEK), None);
        assert_eq!(heats.opens(other, NOW, WEEK), Opens::ONE);
        heats.forget(7);
        assert_eq!((heats.opens(other, NOW, WEEK), heats.count()), (Opens(0), 0));
    }

    #[test]
    fn that_a_file_is_warm_is_told_when_it_becomes_so_and_once_a_minute() {
        let heats = Heats::default();
        let open = |secs| {
            let now = Timestamp { secs: NOW.secs + secs, nanos: 0 };
            heats.opened(key(7), 3, (now, WEEK), Some(Opens(2_000_000)))
        };
        let told: Vec<i64> = [0, 0, 1, 2, 30, 61, 62, 122, -500].into_iter().filter(|secs| open(*secs)).collect();
        assert_eq!(told, [0, 1, 61, 122, -500], "a clock that is set back holds nothing up");
    }

    #[test]
    fn what_is_kept_comes_back_and_a_damaged_file_is_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = std::fs::File::open(dir.path()).unwrap();
        let map = InodeMap::new();
        open(map.heats(), 7, 3);
        open(map.heats(), 8, 1);
        map.heats().moved(8, 4);
        map.heats().spend(ByteSize(500), NOW, Some(ByteSize(1000)));
        map.keep_heat(3, hidden.as_fd(), (NOW, WEEK)).unwrap();
        let read = || {
            let map = InodeMap::new();
            map.load_heat(3, hidden.as_fd()).unwrap();
            map
        };
        let again = read();
        assert_eq!(again.heats().opens(key(7), NOW, WEEK), Opens(3_000_000));
        assert_eq!(again.heats().opens(key(8), NOW, WEEK), Opens(0), "another branch keeps it");
        assert!(
            again.heats().has_budget(NOW, Some(ByteSize(501))) && !again.heats().has_budget(NOW, Some(ByteSize(500)))
        );
        // Nothing changed: nothing is written.
        std::fs::remove_file(dir.path().join("heat")).unwrap();
        again.keep_heat(3, hidden.as_fd(), (NOW, WEEK)).unwrap();
        assert!(!dir.path().join("heat").exists());
        open(again.heats(), 7, 1);
        again.keep_heat(3, hidden.as_fd(), (NOW, WEEK)).unwrap();
        let whole = std::fs::read(dir.path().join("heat")).unwrap();
        assert_eq!(read().heats().count(), 1);
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            for bad in [&bad[..], &whole[..at]] {
                std::fs::write(dir.path().join("heat"), bad).unwrap();
                assert_eq!(read().heats().count(), 0, "byte {at}");
            }
        }
    }

    #[test]
    fn of_two_branches_that_keep_a_file_the_later_one_counts_in_any_order() {
        let line = |times: i64| HeatRecord {
            number: 7,
            born: key(7).sum(),
            heat: (0..times)
                .fold(Heat::default(), |heat, at| heat.opened(Timestamp { secs: NOW.secs + at, nanos: 0 }, WEEK)),
            rests: false,
        };
        let heat_of = |order: [(u16, i64); 2]| {
            let heats = Heats::default();
            for (slot, times) in order {
                heats.merge_kept(slot, HeatSnapshot { lines: vec![line(times)], spending: Spending::default() });
            }
            let slot = heats.shard(7).lock()[&7].slot;
            (slot, heats.opens(key(7), NOW, WEEK))
        };
        assert_eq!(heat_of([(1, 2), (2, 5)]), heat_of([(2, 5), (1, 2)]));
        assert_eq!(heat_of([(1, 2), (2, 5)]).0, 2);
    }

    #[test]
    fn a_file_that_left_rests_until_it_is_opened_and_the_open_is_told() {
        let heats = Heats::default();
        let warm = Some(Opens(2_000_000));
        open(&heats, 7, 2);
        assert!(heats.opened(key(7), 3, (NOW, WEEK), warm) && !heats.rests(key(7)));
        assert!(!heats.opened(key(7), 3, (NOW, WEEK), warm), "told a moment ago");
        heats.rest(key(7));
        assert!(heats.rests(key(7)) && heats.opens(key(7), NOW, WEEK) == Opens(4_000_000));
        let other = HeatKey { born: Some(Timestamp { secs: 6, nanos: 7 }), ..key(7) };
        assert!(!heats.rests(other), "a file with the number of a dead one");
        assert!(heats.opened(key(7), 3, (NOW, WEEK), warm), "the first open after it left is told");
        assert!(!heats.rests(key(7)));
        heats.rest(key(7));
        heats.raise(key(7), 3, (NOW, WEEK), Opens::ONE);
        assert!(!heats.rests(key(7)), "it comes along with a neighbour that is opened");
        heats.rest(key(8));
        assert!(!heats.rests(key(8)), "what was never opened is cold");
    }

    #[test]
    fn that_a_file_rests_outlives_the_mount_whatever_its_former_branch_kept() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let hidden = dirs.each_ref().map(|dir| std::fs::File::open(dir.path()).unwrap());
        let map = InodeMap::new();
        open(map.heats(), 7, 3);
        map.keep_heat(3, hidden[0].as_fd(), (NOW, WEEK)).unwrap();
        map.heats().moved(7, 4);
        map.heats().rest(key(7));
        map.keep_heat(4, hidden[1].as_fd(), (NOW, WEEK)).unwrap();
        for order in [[0, 1], [1, 0]] {
            let map = InodeMap::new();
            for at in order {
                map.load_heat(3 + at as u16, hidden[at].as_fd()).unwrap();
            }
            assert!(map.heats().rests(key(7)), "{order:?}");
            assert_eq!(map.heats().opens(key(7), NOW, WEEK), Opens(3_000_000));
        }
    }

    #[test]
    fn memory_is_bounded_and_the_warmest_stay() {
        let heats = Heats::default();
        open(&heats, 1, 5);
        for number in 2..(2 * SHARDS * MOST) as u64 {
            heats.opened(key(number), 3, (NOW, WEEK), None);
        }
        assert!(heats.count() <= SHARDS * MOST, "{}", heats.count());
        assert!(heats.count() >= SHARDS * MOST / 4, "{}", heats.count());
        assert_eq!(heats.opens(key(1), NOW, WEEK), Opens(5_000_000));
        let warm = |from| heats.count_warm(Opens(from), NOW, WEEK);
        assert_eq!((warm(1_000_001), warm(1_000_000)), (1, heats.count() as u64));
        let counted: usize = heats.shards.iter().map(|shard| shard.lock().len()).sum();
        assert_eq!(counted, heats.count());
    }
}
