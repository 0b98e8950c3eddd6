//! The thread that writes back.
//!
//! It takes these steps for as long as more is dirty than the background threshold, or a page is so old that all have
//! to go ([`Round`](crate::round::Round)):
//!
//! 1. The policy chooses about [`BATCH`] pages (some choose whole zones). They count as on their way.
//! 2. Pages that follow each other in a file and on the disk become one run, at the position of the first of them.
//! 3. Each run goes to the kernel with one `sync_file_range(WRITE)`, which starts its write-back and does not wait for
//!    it.
//! 4. When more than [`MOST_RUNS`] runs or [`MOST_PAGES`] pages are on their way, the thread waits for the oldest
//!    (`WAIT_BEFORE`).
//! 5. Pages that are on disk make room for writers.
//!
//! Between batches, and once a second, it does its other work. It asks the page cache whether files that count as dirty
//! still are, since the kernel's own write-back runs too. And it writes the record.
//!
//! A write-back that fails is counted. The kernel reports it to programs that sync the file. If the error was seen here
//! first, [`Flusher::take_error`](crate::Flusher::take_error) reports it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use umbrella_policy::writeback::DirtyPage;
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey, Pages};

use crate::file::PageRange;
use crate::files::{MOST_OPEN, Opened};
use crate::shared::{CompletionMode, Shared};
use crate::sys;

/// Pages chosen at once.
const BATCH: Pages = Pages(512);
/// On their way at most: enough to keep a disk's queue full, little enough that what is chosen next counts.
const MOST_RUNS: usize = 64;
const MOST_PAGES: Pages = Pages(4096);
/// How often files are compared with the page cache.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Files compared each time.
const FILES_PER_RECOUNT: usize = 64;
/// Ranges compared each time, when the kernel has less dirty than is believed.
const RANGES_PER_RECOUNT: usize = 4096;

/// How often, and how long, a run is checked whose arrival is not reported.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
const MOST_WAIT: Duration = Duration::from_secs(10);

/// Adjacent pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) file: FileId,
    pub(crate) range: PageRange,
}

/// Joins pages that follow each other in a file and on the disk, however they were mixed with others' (where files grow
/// side by side, their expected places overlap). A run is where its first page stood.
pub(crate) fn join(pages: &[DirtyPage]) -> Vec<Run> {
    let mut ordered: Vec<(usize, &DirtyPage)> = pages.iter().enumerate().collect();
    ordered.sort_unstable_by_key(|(_, dirty)| dirty.page);
    let mut runs: Vec<(usize, BlockNo, Run)> = Vec::new();
    for (place, DirtyPage { page, block }) in ordered {
        match runs.last_mut() {
            Some((first, next, run)) if run.file == page.file && run.range.end() == page.index && *next == *block => {
                *first = place.min(*first);
                next.0 = next.0.saturating_add(1);
                run.range.pages.0 += 1;
            }
            _ => {
                let range = PageRange { first: page.index, pages: Pages(1) };
                runs.push((place, BlockNo(block.0.saturating_add(1)), Run { file: page.file, range }));
            }
        }
    }
    runs.sort_unstable_by_key(|(place, ..)| *place);
    runs.into_iter().map(|(.., run)| run).collect()
}

/// Keeps the runs whose turn it is, from page `from` on and then from the beginning, in order. Returns where the next
/// turn begins.
fn rotate_runs(runs: &mut Vec<Run>, from: PageKey) -> PageKey {
    let key = |run: &Run| PageKey { file: run.file, index: run.range.first };
    let place = runs.partition_point(|run| key(run) < from);
    runs.rotate_left(place);
    let next = runs.get(RANGES_PER_RECOUNT).map_or_else(PageKey::default, key);
    runs.truncate(RANGES_PER_RECOUNT);
    next
}

struct Sent {
    run: Run,
    fd: Arc<OwnedFd>,
}

/// The thread's own state.
struct FlushLoop<'a> {
    shared: &'a Shared,
    opened: Opened,
    sent: VecDeque<Sent>,
    sent_pages: Pages,
    looked: Instant,
    /// Where the next comparison of files continues, and of pages.
    from: FileId,
    from_page: PageKey,
}

/// Writes back until the flusher stops.
pub(crate) fn run(shared: &Shared) {
    let mut flusher = FlushLoop {
        shared,
        opened: Opened::default(),
        sent: VecDeque::new(),
        sent_pages: Pages(0),
        looked: Instant::now(),
        from: FileId(0),
        from_page: PageKey::default(),
    };
    let mut chosen = Vec::new();
    while !shared.is_stopping() {
        flusher.close_gone();
        if flusher.choose(&mut chosen) {
            if flusher.sent.is_empty() {
                shared.gate.begins();
            }
            for run in join(&chosen) {
                flusher.send(run);
            }
            chosen.clear();
        } else if flusher.sent.is_empty() {
            flusher.wait_for_work();
        } else {
            flusher.wait_oldest();
        }
        flusher.recount();
        shared.write_record();
    }
}

impl FlushLoop<'_> {
    /// Chooses what goes next; false when that is nothing.
    fn choose(&mut self, chosen: &mut Vec<DirtyPage>) -> bool {
        if self.shared.paused.load(Ordering::Acquire) {
            return false;
        }
        let background = self.shared.gate.background();
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        let (dirty, age) = (state.policy.dirty(), Nanos(self.shared.age.load(Ordering::Relaxed)));
        if !state.round.is_due(now, dirty, age) && dirty <= background {
            return false;
        }
        // Whole batches, so that no run is cut because only little is over the threshold.
        state.choose(now, BATCH, chosen);
        self.shared.publish_level(&state);
        drop(state);
        if chosen.is_empty() && self.sent.is_empty() {
            self.shared.gate.nothing_to_write();
        }
        !chosen.is_empty()
    }

    /// Waits for writes when there is nothing to write. No descriptor stays open meanwhile.
    fn wait_for_work(&mut self) {
        self.opened.close_all();
        let mut state = self.shared.state.lock();
        state.close_idle_files();
        // A writer since the last check found no waiting thread to wake.
        let is_paused = self.shared.paused.load(Ordering::Acquire);
        let is_work = !is_paused && state.policy.dirty() > self.shared.gate.background();
        if !self.shared.is_stopping() && !is_work {
            state.resting = true;
            if state.policy.dirty().0 > 0 || state.policy.record_waiting() > 0 {
                self.shared.work.wait_for(&mut state, Duration::from_secs(1));
            } else if state.policy.is_recording() {
                self.shared.work.wait_for(&mut state, Duration::from_secs(60));
            } else {
                self.shared.work.wait(&mut state);
            }
            state.resting = false;
        }
    }

    fn close_gone(&mut self) {
        let gone = std::mem::take(&mut self.shared.state.lock().gone);
        if gone.len() >= MOST_OPEN {
            return self.opened.close_all();
        }
        for file in gone {
            self.opened.close(file);
        }
    }

    fn open(&mut self, file: FileId) -> std::io::Result<Arc<OwnedFd>> {
        let known = self.shared.state.lock().files.get(file).map(|known| (known.life, known.reach.clone()));
        let (life, reach) = known.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ESTALE))?;
        self.opened.get(&self.shared.root, file, life, &reach)
    }

    fn send(&mut self, run: Run) {
        while self.sent.len() >= MOST_RUNS || self.sent_pages >= MOST_PAGES {
            self.wait_oldest();
        }
        let fd = match self.open(run.file) {
            Ok(fd) => fd,
            Err(error) => {
                // No write-back failed: a program has a lease on the file, or too many files are open. The kernel will
                // write it.
                if error.raw_os_error() == Some(libc::ESTALE) {
                    self.failed(run.file, &error);
                }
                return self.settle(run);
            }
        };
        match sys::start_write(fd.as_fd(), run.range).map(|()| fd) {
            Ok(fd) => {
                self.sent_pages.0 += run.range.pages.0;
                self.sent.push_back(Sent { run, fd });
                let mut state = self.shared.state.lock();
                state.tally.runs += 1;
                state.tally.flushed.0 += run.range.pages.0;
                if let Some(known) = state.files.get_mut(run.file) {
                    known.places.written_back();
                }
            }
            Err(error) => {
                self.failed(run.file, &error);
                self.settle(run);
            }
        }
    }

    fn wait_oldest(&mut self) {
        let Some(Sent { run, fd }) = self.sent.pop_front() else { return };
        self.sent_pages.0 -= run.range.pages.0;
        let waited = match self.shared.waits {
            CompletionMode::Reporting => sys::wait_written(fd.as_fd(), run.range),
            CompletionMode::Silent => {
                self.wait_silently(fd.as_fd(), run.range);
                Ok(())
            }
        };
        if let Err(error) = waited {
            self.failed(run.file, &error);
        }
        self.settle(run);
        self.shared.gate.progress(run.range.pages);
    }

    /// Looks now and then, for a while; a kernel that cannot say is not asked again.
    fn wait_silently(&self, fd: BorrowedFd<'_>, range: PageRange) {
        let begun = Instant::now();
        while sys::pages_under_writeback(fd, range).is_ok_and(|pages| pages.0 > 0)
            && begun.elapsed() < MOST_WAIT
            && !self.shared.is_stopping()
        {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Removes the run from the counts.
    fn settle(&mut self, run: Run) {
        let mut state = self.shared.state.lock();
        state.settle(run.range.pages);
        self.shared.publish_level(&state);
    }

    fn failed(&mut self, file: FileId, error: &std::io::Error) {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        if error.raw_os_error() == Some(libc::ESTALE) {
            // Deleted without our knowledge: there is nothing to write.
            state.deleted(now, file);
            return;
        }
        state.tally.errors += 1;
        if let Some(known) = state.files.get_mut(file) {
            known.failed = true;
        }
        drop(state);
        tracing::warn!(file = file.0, %error, "write-back failed");
    }

    /// Compares the count of dirty pages with the page cache.
    fn recount(&mut self) {
        if self.looked.elapsed() < RECOUNT_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        if self.shared.take_suspicious() {
            self.recount_pages();
        } else {
            self.recount_files();
        }
        self.shared.publish_level(&self.shared.state.lock());
    }

    /// Corrects the count for files that have no dirty pages any more, some files at a time.
    fn recount_files(&mut self) {
        let (turn, mut files) = {
            let state = self.shared.state.lock();
            (state.turn, state.dirty_files().collect::<Vec<_>>())
        };
        files.sort_unstable();
        let place = files.partition_point(|file| *file < self.from);
        files.rotate_left(place);
        files.truncate(FILES_PER_RECOUNT);
        self.from = files.last().map_or(FileId(0), |last| FileId(last.0.wrapping_add(1)));
        let all = PageRange { first: PageIndex(0), pages: Pages(u64::MAX) };
        for file in files {
            let dirty = self.open(file).and_then(|fd| sys::dirty_pages(fd.as_fd(), all));
            match dirty {
                Ok(Pages(0)) => {
                    let now = self.shared.now();
                    self.shared.state.lock().synced(now, file, turn);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => self.failed(file, &error),
                // A kernel that cannot say leaves it to the next write-back.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Corrects the count page by page, because the kernel has fewer dirty pages than are counted.
    fn recount_pages(&mut self) {
        let now = self.shared.now();
        let known = self.shared.state.lock().policy.inner().index().known(now);
        let mut pages: Vec<DirtyPage> =
            known.iter().map(|known| DirtyPage { page: known.page, block: known.block }).collect();
        pages.sort_unstable_by_key(|known| known.page);
        let mut runs = join(&pages);
        self.from_page = rotate_runs(&mut runs, self.from_page);
        for run in runs {
            let Ok(fd) = self.open(run.file) else { continue };
            self.shared.state.lock().compare(run.file, run.range);
            let dirty = sys::dirty_pages(fd.as_fd(), run.range);
            let mut state = self.shared.state.lock();
            if state.compared() && dirty.is_ok_and(|dirty| dirty == Pages(0)) {
                for index in run.range.first.0..run.range.end().0 {
                    state.clean(now, PageKey { file: run.file, index: PageIndex(index) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: u64, index: u64, block: u64) -> DirtyPage {
        DirtyPage { page: PageKey { file: FileId(file), index: PageIndex(index) }, block: BlockNo(block) }
    }

    fn run(file: u64, first: u64, pages: u64) -> Run {
        Run { file: FileId(file), range: PageRange { first: PageIndex(first), pages: Pages(pages) } }
    }

    #[test]
    fn files_that_grow_side_by_side_are_written_in_their_own_runs() {
        let mixed = [page(2, 0, 16), page(1, 16, 16), page(2, 1, 17), page(1, 17, 17), page(1, 0, 0)];
        assert_eq!(join(&mixed), [run(2, 0, 2), run(1, 16, 2), run(1, 0, 1)]);
    }

    #[test]
    fn neighbours_in_a_file_that_lie_apart_are_runs_of_their_own_where_they_stood() {
        let apart = [page(1, 0, 100), page(2, 5, 200), page(1, 1, 900)];
        assert_eq!(join(&apart), [run(1, 0, 1), run(2, 5, 1), run(1, 1, 1)]);
    }

    #[test]
    fn pages_chosen_backwards_are_one_run() {
        assert_eq!(join(&[page(1, 2, 12), page(1, 1, 11), page(1, 0, 10)]), [run(1, 0, 3)]);
    }

    #[test]
    fn of_more_runs_than_are_compared_at_once_all_have_their_turn() {
        let all: Vec<Run> = (0..3 * RANGES_PER_RECOUNT as u64 + 9).map(|at| run(at / 100, at % 100 * 2, 1)).collect();
        let (mut from, mut seen) = (PageKey::default(), std::collections::BTreeSet::new());
        for _ in 0..4 {
            let mut turn = all.clone();
            from = rotate_runs(&mut turn, from);
            assert_eq!(turn.len(), RANGES_PER_RECOUNT);
            seen.extend(turn.iter().map(|run| (run.file, run.range.first)));
        }
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn the_last_page_and_block_that_there_can_be_overflow_nothing() {
        let last = page(1, u64::MAX - 1, u64::MAX);
        assert_eq!(join(&[last, page(1, 0, 0)]), [run(1, u64::MAX - 1, 1), run(1, 0, 1)]);
        assert!(join(&[]).is_empty());
    }
}
