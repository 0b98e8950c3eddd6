//! What happens while something else is under way: a read, a checkpoint, the end.

use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::every_call::{FailingDisk, Failure};
use super::*;
use crate::error::{BlockError, Operation};
use crate::log_store::core::AfterCheckpoint;

type Hook = Box<dyn FnOnce() + Send>;

/// When it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Before this block is read.
    Read(BlockNo),
    /// When this block has been read, before its reader knows.
    HasRead(BlockNo),
    /// Before anything is written.
    Write,
    /// When the device has flushed, before it says so.
    Flushed,
    /// Before a thread of the store's own writes a chunk.
    Chunk,
}

/// A device that has something happen while it is used, once.
pub(super) struct Hooked {
    inner: Arc<dyn BlockDevice>,
    hook: Mutex<Option<(When, Hook)>>,
    /// Whether the flush that has its hook run fails.
    flush_fails: AtomicBool,
}

impl Hooked {
    pub(super) fn new(inner: Arc<dyn BlockDevice>) -> Arc<Hooked> {
        Arc::new(Hooked { inner, hook: Mutex::new(None), flush_fails: AtomicBool::new(false) })
    }

    /// Opens a store on it.
    pub(super) fn store(self: &Arc<Hooked>, options: Options) -> Arc<LogStore> {
        let device: Arc<dyn BlockDevice> = self.clone();
        Arc::new(open(&device, options))
    }

    pub(super) fn once(&self, when: When, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock() = Some((when, Box::new(hook)));
    }

    fn happens(&self, now: When) {
        let hook = self.hook.lock().take_if(|(when, _)| *when == now);
        if let Some((_, hook)) = hook {
            hook();
        }
    }

    pub(super) fn is_due(&self) -> bool {
        self.hook.lock().is_some()
    }
}

impl BlockDevice for Hooked {
    crate::forward!(inner: geometry, discard, write_zeroes);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.happens(When::Read(BlockNo(at.0 / 8)));
        let done = self.inner.read(at, buffer);
        self.happens(When::HasRead(BlockNo(at.0 / 8)));
        done
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.happens(When::Write);
        if std::thread::current().name() == Some("log-writer") {
            self.happens(When::Chunk);
        }
        self.inner.write(at, data, durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        let done = self.inner.flush();
        self.happens(When::Flushed);
        if self.flush_fails.swap(false, Ordering::SeqCst) {
            return Err(BlockError::io(&"hooked".into(), Operation::Flush, None, Errno::IO.into()));
        }
        done
    }
}

/// Where a page of the map lies, if it is on the disk and not in memory.
fn absent_page(store: &LogStore, page: u32) -> Option<BlockNo> {
    let state = store.shared.state.lock();
    let page = umbrella_policy::log_layout::MapPage(page);
    let place =
        state.core.page_place(page).expect("there is such a page").filter(|_| state.core.map.is_absent(page))?;
    Some(state.core.superblock.device_block(place))
}

#[test]
fn what_is_freed_while_a_page_of_the_map_is_read_is_not_read_from_where_it_was() {
    let disk = made(90, "r_lfs");
    let store = open(&disk, by_hand());
    fill_up(&store);
    store.close().expect("it can be closed");
    let hooked = Hooked::new(disk);
    let store = hooked.store(by_hand());
    // The first page is in memory, the second is not.
    assert_eq!(read(&*store, 511 * 8, 8), numbered(511));
    let page = absent_page(&store, 1).expect("it was not needed yet");
    let other: Weak<LogStore> = Arc::downgrade(&store);
    hooked.once(When::Read(page), move || {
        let store = other.upgrade().expect("it is being read");
        for round in 1..12 {
            (0..500).for_each(|block| put(&store, block, round << 32 | block));
            // Block 511 is moved, and where it was is used anew.
            store.write(Lba(511 * 8), &numbered(511), Durability::Cached).expect("there is room");
            store.flush().expect("memory does not fail");
        }
    });
    let both = read(&*store, 511 * 8, 16);
    assert!(!hooked.is_due(), "nothing happened while it was read");
    assert!(both == [numbered(511), numbered(512)].concat(), "something else was read");
}

#[test]
fn who_writes_on_while_the_store_is_closed_waits_for_no_thread_that_has_ended() {
    let device = made(60, "r_lfs");
    let store = open(&device, Options::default());
    store.write(Lba(0), &fill(1, 8), Durability::Cached).expect("there is room");
    // As the keeper finds it when the store is closed while it works.
    store.shared.state.lock().closing = true;
    store.shared.writer.notify_all();
    while store.threads.iter().filter(|thread| thread.is_finished()).count() < 2 {
        std::thread::yield_now();
    }
    let shared = Arc::clone(&store.shared);
    let made = within_bounds(move || shared.checkpoint(AfterCheckpoint::GoesOn));
    assert!(made.expect("memory does not fail"));
    drop(store);
    assert_eq!(read(&open(&device, by_hand()), 0, 8), fill(1, 8));
}

fn write_round(store: &LogStore, round: u64) {
    (0..40).for_each(|block| put(store, block, round << 32 | block));
}

fn assert_round(store: &LogStore, round: u64) {
    for block in 0..40 {
        assert!(read(store, block * 8, 8) == numbered(round << 32 | block), "block {block} was flushed, and is lost");
    }
}

#[test]
fn what_is_written_while_a_checkpoint_without_threads_is_made_is_not_lost() {
    let hooked = Hooked::new(made(90, "r_lfs"));
    let store = hooked.store(by_hand());
    write_round(&store, 1);
    let other = Arc::downgrade(&store);
    // Enough for a whole chunk, which is complete at once.
    hooked.once(When::Write, move || write_round(&other.upgrade().expect("it makes a checkpoint"), 2));
    store.checkpoint().expect("there is room");
    assert!(!hooked.is_due(), "nothing happened while it was made");
    let waiting = store.shared.state.lock().core.layout.waiting();
    assert_ne!(waiting, (0, 0), "what was replaced meanwhile is free, though what replaced it is not durable");
    store.flush().expect("memory does not fail");
    drop(store);
    assert_round(&hooked.store(by_hand()), 2);
}

/// Whether what must be durable when `end` returns waits for a chunk that takes its time to be written.
fn waits_for_its_chunks(end: impl FnOnce(&LogStore)) -> bool {
    let hooked = Hooked::new(made(60, "r_lfs"));
    let store = hooked.store(Options::default());
    store.write(Lba(0), &numbered(1), Durability::Cached).expect("there is room");
    let is_written = Arc::new(AtomicBool::new(false));
    let written = Arc::clone(&is_written);
    hooked.once(When::Chunk, move || {
        std::thread::sleep(Duration::from_millis(300));
        written.store(true, Ordering::SeqCst);
    });
    end(&store);
    is_written.load(Ordering::SeqCst)
}

#[test]
fn a_flush_waits_for_chunks_that_are_being_written() {
    assert!(waits_for_its_chunks(|store| store.flush().expect("memory does not fail")));
    assert!(waits_for_its_chunks(|store| {
        store.write(Lba(8), &numbered(2), Durability::Through).expect("there is room");
    }));
}

#[test]
fn a_checkpoint_waits_for_chunks_that_are_being_written() {
    assert!(waits_for_its_chunks(|store| store.checkpoint().expect("there is room")));
}

/// As on Linux, where only one of two flushes at the same time reports a loss.
#[test]
fn what_one_flush_loses_no_other_says_is_durable() {
    let hooked = Hooked::new(made(60, "r_lfs"));
    let store = hooked.store(by_hand());
    store.write(Lba(0), &numbered(1), Durability::Cached).expect("there is room");
    let (done, is_done) = std::sync::mpsc::channel();
    let (own, other) = (Arc::clone(&hooked), Arc::clone(&store));
    let flush_beside = move || {
        let flush = std::thread::spawn(move || {
            other.write(Lba(8), &numbered(2), Durability::Cached).expect("there is room");
            done.send(other.flush())
        });
        // Long enough for a flush that does not wait for this one.
        let until = std::time::Instant::now() + Duration::from_millis(300);
        while !flush.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        own.flush_fails.store(true, Ordering::SeqCst);
    };
    // The first flush of a checkpoint is for what it names, the second for itself.
    let again = Arc::clone(&hooked);
    hooked.once(When::Flushed, move || again.once(When::Flushed, flush_beside));
    store.checkpoint().expect_err("its flush fails");
    let flushed = is_done.recv_timeout(Duration::from_secs(60)).expect("it ends");
    flushed.expect_err("the flush that failed may have lost what this one was for");
}

#[test]
fn what_is_written_while_a_store_grows_is_not_lost_when_it_ends_then() {
    let hooked = Hooked::new(enlarged(&*made(60, "r_lfs"), 20));
    let store = hooked.store(by_hand());
    write_round(&store, 1);
    let other = Arc::downgrade(&store);
    // While the checkpoint that comes first is written: it does not cover this.
    hooked.once(When::Write, move || write_round(&other.upgrade().expect("it grows"), 2));
    store.grow().expect("it grows");
    assert!(!hooked.is_due(), "nothing happened while it grew");
    store.flush().expect("memory does not fail");
    drop(store);
    assert_round(&hooked.store(by_hand()), 2);
}

#[test]
fn a_block_that_is_back_where_it_was_is_not_moved_as_it_was_before() {
    let hooked = Hooked::new(made(60, "sepgc"));
    let store = hooked.store(by_hand());
    let blocks = fill_up(&store);
    store.flush().expect("memory does not fail");
    let place = device_block(&store, 3);
    let first = segment_start(&store, 3);
    // Most of its segment is replaced, so that it is cleaned.
    let other = Arc::downgrade(&store);
    hooked.once(When::HasRead(first), move || {
        let store = other.upgrade().expect("it cleans");
        let mut random = StdRng::seed_from_u64(2);
        for round in 1..400_000_u64 {
            let block = if random.random_bool(0.2) { 3 } else { random.random_range(0..blocks) };
            put(&store, block, round << 32 | block);
            if block == 3 && device_block(&store, 3) == place {
                return;
            }
        }
        panic!("it never comes back");
    });
    (0..15).filter(|block| *block != 3).for_each(|block| put(&store, block, block));
    let mut cleanings = 0..200;
    while hooked.is_due() && cleanings.next().is_some() {
        reclaim_once(&store);
    }
    assert!(!hooked.is_due(), "it was not cleaned");
    let held = read(&*store, 24, 8);
    assert!(held != numbered(3), "it is as it was before it was cleaned");
}

#[test]
fn a_flush_does_not_count_what_is_written_while_the_disk_flushes() {
    let inner = FailingDisk::new(&made(60, "sepgc"), (u64::MAX, Failure::Once));
    let hooked = Hooked::new(inner.clone());
    let store = hooked.store(by_hand());
    store.write(Lba(0), &numbered(1), Durability::Cached).expect("there is room");
    let other = Arc::downgrade(&store);
    hooked.once(When::Flushed, move || {
        let store = other.upgrade().expect("it is flushed");
        let mut block = 1;
        while block < 8 || store.shared.state.lock().core.has_unsealed_of_user() {
            put(&store, block, block);
            block += 1;
        }
    });
    store.flush().expect("memory does not fail");
    assert!(!hooked.is_due(), "nothing was flushed");
    store.flush().expect("memory does not fail");
    let store = open(&inner.medium(), by_hand());
    for block in 1..8 {
        assert!(read(&store, block * 8, 8) == numbered(block), "block {block} was flushed, and is lost");
    }
}

#[test]
fn a_block_that_is_back_where_it_was_is_read_again() {
    let disk = made(60, "sepgc");
    let hooked = Hooked::new(Arc::clone(&disk));
    let store = hooked.store(by_hand());
    let blocks = fill_up(&store);
    store.flush().expect("memory does not fail");
    let place = device_block(&store, 3);
    let other = Arc::downgrade(&store);
    // While it is being read, others lie at its place, and then it does again; what is written there has not come to
    // the disk.
    hooked.once(When::Read(place), move || {
        let store = other.upgrade().expect("it is being read");
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..400_000 {
            let block = if random.random_bool(0.2) { 3 } else { random.random_range(0..blocks) };
            put(&store, block, block);
            if device_block(&store, 3) == place && read(&*disk, place.0 * 8, 8) != numbered(3) {
                return;
            }
        }
        panic!("it never comes back");
    });
    let held = read(&*store, 24, 8);
    assert!(!hooked.is_due(), "it was not read");
    assert!(held == numbered(3), "something else was read");
}

#[test]
fn a_part_that_is_written_while_its_block_is_written_anew_leaves_the_rest_as_it_is_then() {
    let hooked = Hooked::new(made(60, "r_lfs"));
    let store = hooked.store(by_hand());
    store.write(Lba(0), &fill(1, 8), Durability::Through).expect("there is room");
    let other = Arc::downgrade(&store);
    hooked.once(When::HasRead(device_block(&store, 0)), move || {
        let store = other.upgrade().expect("it is written");
        store.write(Lba(0), &fill(2, 8), Durability::Cached).expect("there is room");
    });
    store.write(Lba(3), &fill(3, 2), Durability::Cached).expect("there is room");
    assert!(!hooked.is_due(), "the rest of it was not read");
    assert_eq!(read(&*store, 0, 8), [fill(2, 3), fill(3, 2), fill(2, 3)].concat());
}

#[test]
fn what_a_checkpoint_frees_while_it_is_read_is_not_read_from_where_it_was() {
    let disk = made(90, "sepgc");
    let hooked = Hooked::new(Arc::clone(&disk));
    let store = hooked.store(by_hand());
    let write = |store: &LogStore, blocks: std::ops::Range<u64>| {
        blocks.for_each(|block| put(store, block, block));
    };
    write(&store, 0..60);
    store.flush().expect("memory does not fail");
    let place = device_block(&store, 3);
    let other = Arc::downgrade(&store);
    hooked.once(When::Read(place), move || {
        let store = other.upgrade().expect("it is being read");
        // There is room enough: nothing is cleaned, and only the checkpoint frees where it lay.
        write(&store, 0..60);
        store.checkpoint().expect("there is room");
        while read(&*disk, place.0 * 8, 8) == numbered(3) {
            write(&store, 100..130);
            store.checkpoint().expect("there is room");
        }
    });
    let held = read(&*store, 24, 8);
    assert!(!hooked.is_due(), "it was not read");
    assert!(held == numbered(3), "something else was read");
}

/// Where the segment of a block begins on the device.
fn segment_start(store: &LogStore, block: u64) -> BlockNo {
    let place = device_block(store, block);
    let state = store.shared.state.lock();
    let (first, segment) = (state.core.superblock.first.0, u64::from(state.core.layout.shape().segment_blocks));
    BlockNo(first + (place.0 - first) / segment * segment)
}

/// Cleans a segment in which block 0 and the blocks behind 10 are live. While the cleaner reads the page of the map
/// that says so, block `back` is written until it is back at its old place.
fn comes_back_while_a_page_is_read(back: u64) {
    let disk = made(60, "sepgc");
    let store = open(&disk, by_hand());
    let blocks = sectors_of(&store) / 8;
    (0..blocks).chain(1..11).for_each(|block| put(&store, block, block));
    store.close().expect("it can be closed");
    let hooked = Hooked::new(disk);
    let store = hooked.store(by_hand());
    let page = absent_page(&store, 0).expect("it was not needed yet");
    let other = Arc::downgrade(&store);
    let last = Arc::new(Mutex::new(0));
    let written = Arc::clone(&last);
    hooked.once(When::Read(page), move || {
        let store = other.upgrade().expect("it cleans");
        let mut random = StdRng::seed_from_u64(2);
        assert_eq!(read(&*store, back * 8, 8), numbered(back));
        let place = device_block(&store, back);
        for round in 1..400_000_u64 {
            let block = if random.random_bool(0.2) { back } else { random.random_range(0..blocks) };
            put(&store, block, round << 32 | block);
            if block == back {
                *written.lock() = round << 32 | block;
                if device_block(&store, back) == place {
                    return;
                }
            }
        }
        panic!("it never comes back");
    });
    reclaim_once(&store);
    assert!(!hooked.is_due(), "it was not cleaned");
    assert_ne!(*last.lock(), 0);
    assert!(read(&*store, back * 8, 8) == numbered(*last.lock()), "it is as it was before it was cleaned");
}

#[test]
fn a_block_that_is_back_where_it_was_while_a_page_of_the_map_is_read_is_not_moved_as_it_was_before() {
    comes_back_while_a_page_is_read(0);
    comes_back_while_a_page_is_read(12);
}

/// Everything that is live in a segment, by slot.
fn live_in(store: &LogStore, segment: umbrella_policy::log_layout::SegmentNo) -> Vec<u64> {
    let mut state = store.shared.state.lock();
    let shape = state.core.layout.shape();
    let blocks = state.core.map.blocks();
    let mut live: Vec<_> = (0..blocks)
        .filter_map(|block| {
            let place = state.core.map.get(BlockNo(block)).expect("it is in memory")?.place;
            (shape.segment(place) == segment).then_some((place, block))
        })
        .collect();
    live.sort_unstable();
    live.into_iter().map(|(_, block)| block).collect()
}

/// Reads a segment for cleaning that the cleaner has filled since users last wrote. Meanwhile discards empty the
/// segment, it is freed and opened again before anything is written, and users fill it.
///
/// Returns the contents of a block that lies at its old place again, and what was last written to it. Returns `None` if
/// another stream has taken the segment.
fn filled_anew_from_the_same_tick_on(seed: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    use umbrella_policy::log_layout::{SegmentNo, State};
    let hooked = Hooked::new(made(130, "r_lfs"));
    let store = hooked.store(Options { quiet: Duration::MAX, ..by_hand() });
    let blocks = sectors_of(&*store) / 8;
    let mut random = StdRng::seed_from_u64(seed);
    let mut round = 0;
    let mut write = |store: &LogStore, block: u64| {
        round += 1;
        put(store, block, round << 32 | block);
    };
    for block in 0..blocks {
        write(&store, block);
    }
    let look = |store: &LogStore, SegmentNo(number): SegmentNo| {
        let state = store.shared.state.lock();
        let segment = state.core.layout.table()[number as usize];
        (segment.state, segment.opened == state.core.layout.clock(), segment.opened)
    };
    // One that the cleaner has begun and filled since the last write.
    let of_now = |store: &LogStore| {
        let numbers = (0..store.shared.state.lock().core.layout.shape().segments).map(SegmentNo);
        numbers.into_iter().find(|number| {
            let (state, is_of_now, _) = look(store, *number);
            state == State::Full && is_of_now && live_in(store, *number).len() > 12
        })
    };
    let segment = (0..200).find_map(|_| {
        (0..20).for_each(|_| write(&store, random.random_range(0..blocks)));
        let mut cleanings = 0..20;
        while cleanings.next().is_some() && of_now(&store).is_none() && reclaim_once(&store) {}
        of_now(&store)
    });

    let segment = segment?;
    let (full, now, opened) = look(&store, segment);
    assert_eq!((full, now), (State::Full, true));
    let live = live_in(&store, segment);
    let (gone, kept) = live.split_at(live.len() - 4);
    for block in gone {
        store.discard(range(block * 8, 8)).expect("it is discarded");
    }
    let (block, kept) = (kept[0], kept.to_vec());
    let place = device_block(&store, block);
    let (other, is_back) = (Arc::downgrade(&store), Arc::new(AtomicBool::new(false)));
    let comes_back = Arc::clone(&is_back);
    hooked.once(When::HasRead(segment_start(&store, block)), move || {
        let store = other.upgrade().expect("it cleans");
        for block in &kept {
            store.discard(range(block * 8, 8)).expect("it is discarded");
        }
        store.checkpoint().expect("there is room");
        assert_eq!(look(&store, segment).0, State::Free);
        let is_users = |store: &LogStore| {
            let state = store.shared.state.lock();
            let open = state.core.layout.heads().next().and_then(|head| head.open);
            open.is_some_and(|(open, _)| open == segment)
        };
        // Chunks that say what is gone, until the users' stream is there.
        for spare in (0..blocks).filter(|spare| !kept.contains(spare)) {
            if is_users(&store) {
                break;
            }
            store.discard(range(spare * 8, 8)).expect("it is discarded");
            store.flush().expect("memory does not fail");
        }
        if !is_users(&store) || look(&store, segment) != (State::Open, true, opened) {
            return;
        }
        // As new ones: those go where the chunks went.
        let write = |block: u64| {
            store.discard(range(block * 8, 8)).expect("it is discarded");
            put(&store, block, 1 << 60 | block);
        };
        while is_users(&store) {
            write(block);
            if device_block(&store, block) == place {
                break;
            }
        }
        for other in (0..blocks).filter(|other| *other != block) {
            if !is_users(&store) {
                break;
            }
            write(other);
        }
        let is_here = store.shared.state.lock().core.map.get(BlockNo(block)).is_ok_and(|entry| entry.is_some());
        let is_there = is_here && device_block(&store, block) == place;
        comes_back.store(is_there && look(&store, segment) == (State::Full, false, opened), Ordering::SeqCst);
    });
    reclaim_once(&store);
    let was_read = !hooked.is_due() && is_back.load(Ordering::SeqCst);
    was_read.then(|| (read(&*store, block * 8, 8), numbered(1 << 60 | block)))
}

#[test]
fn a_segment_that_is_filled_anew_from_the_same_tick_of_the_clock_on_is_not_moved_as_it_was_before() {
    let (held, written) = (0..64).find_map(filled_anew_from_the_same_tick_on).expect("it is never the users'");
    assert!(held == written, "it is as it was before it was cleaned");
}
