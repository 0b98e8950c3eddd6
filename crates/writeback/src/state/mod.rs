//! The state of a flusher, and the effect of each event on it. It makes no system calls, except those of [`Answer`]s
//! that come from outside.

use umbrella_policy::writeback::{DirtyPage, Event};
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey, Pages};

use crate::file::PageRange;
use crate::files::{Answer, Files, MOST_OPEN, Reach, WriteSequence};
use crate::geometry::Geometry;
use crate::recency::Recency;
use crate::recorded_policy::RecordedPolicy;
use crate::round::Round;

/// Pages whose place is looked at again when more is known of their file.
const MOST_REMAPPED: u64 = 4096;

/// Counts for the status.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlushStats {
    pub(crate) flushed: Pages,
    pub(crate) runs: u64,
    pub(crate) cleaned: Pages,
    pub(crate) errors: u64,
}

/// See the module.
pub(crate) struct FlusherState {
    pub(crate) policy: RecordedPolicy,
    pub(crate) files: Files,
    pub(crate) recency: Recency,
    pub(crate) round: Round,
    /// Chosen, and not known to be on disk yet.
    pub(crate) in_flight: Pages,
    pub(crate) turn: WriteSequence,
    pub(crate) tally: FlushStats,
    /// Files whose descriptors are to be closed; when it is full, all are. The flusher, which takes them, may hang.
    pub(crate) gone: Vec<FileId>,
    /// The flusher is idle, with no descriptor open.
    pub(crate) resting: bool,
    /// The comparison with the page cache that is under way.
    comparing: Option<Comparing>,
}

/// Pages that are compared with the page cache.
#[derive(Debug, Clone, Copy)]
struct Comparing {
    file: FileId,
    range: PageRange,
    /// Some of them were written since, so that the page cache's answer may be older.
    written: bool,
}

impl FlusherState {
    pub(crate) fn new(policy: RecordedPolicy, geometry: Geometry) -> FlusherState {
        FlusherState {
            policy,
            files: Files::new(geometry),
            recency: Recency::default(),
            round: Round::default(),
            in_flight: Pages(0),
            turn: WriteSequence::default(),
            tally: FlushStats::default(),
            gone: Vec::new(),
            resting: false,
            comparing: None,
        }
    }

    /// Begins a comparison of these pages with the page cache.
    pub(crate) fn compare(&mut self, file: FileId, range: PageRange) {
        self.comparing = Some(Comparing { file, range, written: false });
    }

    /// Ends the comparison. Returns whether its result is still valid. Writes to other pages of the file do not
    /// invalidate it: a file that is written all the time, such as a database, could never be compared.
    pub(crate) fn compared(&mut self) -> bool {
        self.comparing.take().is_some_and(|comparing| !comparing.written)
    }

    /// Pages that are dirty or on their way.
    pub(crate) fn level(&self) -> Pages {
        Pages(self.policy.dirty().0 + self.in_flight.0)
    }

    /// Adds a file that can be opened by `reach`. Returns false if it cannot be written back in order, because too many
    /// files are open already.
    pub(crate) fn add_file(&mut self, file: FileId, reach: Reach) -> bool {
        if self.files.get(file).is_none() {
            if self.files.is_full() {
                self.files.trim(|file| self.policy.dirty_in(file).0 > 0);
            }
            if matches!(reach, Reach::Kept(_)) && !self.files.may_keep() {
                return false;
            }
            self.files.add(file, reach);
        }
        true
    }

    /// Records the file system's answer about a file's places. Moves pages whose noted place was wrong.
    pub(crate) fn record_places(&mut self, now: Nanos, file: FileId, answer: &Answer) {
        self.files.record_places(file, answer, now);
        let mut left = if self.policy.dirty_in(file).0 > 0 { MOST_REMAPPED } else { 0 };
        for extent in &answer.found {
            for at in 0..extent.pages.pages.0.min(left) {
                let page = PageKey { file, index: PageIndex(extent.pages.first.0 + at) };
                let block = BlockNo(extent.block.0.saturating_add(at));
                if self.policy.block_of(page).is_some_and(|believed| believed != block) {
                    self.policy.on(now, Event::Remap { page, block });
                }
            }
            left = left.saturating_sub(extent.pages.pages.0);
        }
    }

    /// Pages were written.
    pub(crate) fn wrote(&mut self, now: Nanos, file: FileId, range: PageRange) {
        self.turn.0 += 1;
        if let Some(comparing) = self.comparing.as_mut().filter(|comparing| comparing.file == file) {
            comparing.written |= range.first < comparing.range.end() && comparing.range.first < range.end();
        }
        let Some(known) = self.files.get_mut(file) else { return };
        known.written = self.turn;
        let life = known.life;
        for index in range.first.0..range.end().0 {
            let page = PageKey { file, index: PageIndex(index) };
            let Some(block) = self.files.block_of(file, page.index) else { return };
            let active = self.recency.is_active(life, page);
            self.policy.on(now, Event::Dirty { page, block, active });
            let policy = &mut self.policy;
            self.recency.used(life, page, &mut |event| record_event(policy, now, event));
        }
    }

    /// Pages were read.
    pub(crate) fn read(&mut self, now: Nanos, file: FileId, range: PageRange) {
        let Some(life) = self.files.get(file).map(|known| known.life) else { return };
        for index in range.first.0..range.end().0 {
            let page = PageKey { file, index: PageIndex(index) };
            record_event(&mut self.policy, now, Event::Touch { page });
            let policy = &mut self.policy;
            self.recency.used(life, page, &mut |event| record_event(policy, now, event));
        }
    }

    /// Pages from `from` on are gone, or are on disk without our write-back.
    pub(crate) fn drop_from(&mut self, now: Nanos, file: FileId, from: PageIndex) {
        let before = self.policy.dirty();
        if self.policy.dirty_in(file).0 > 0 {
            self.policy.on(now, Event::Truncate { file, from });
        }
        self.tally.cleaned.0 += before.0 - self.policy.dirty().0;
    }

    /// Pages are gone, or on disk. If a range ends behind the last dirty page of the file, all from its
    /// beginning on are.
    pub(crate) fn drop_range(&mut self, now: Nanos, file: FileId, range: PageRange) {
        const MOST: u64 = 1 << 16;
        if range.pages.0 > MOST {
            return self.drop_from(now, file, range.first);
        }
        for index in range.first.0..range.end().0 {
            self.clean(now, PageKey { file, index: PageIndex(index) });
        }
    }

    /// One page is gone, or on disk.
    pub(crate) fn clean(&mut self, now: Nanos, page: PageKey) {
        let before = self.policy.dirty();
        record_event(&mut self.policy, now, Event::Clean { page });
        self.tally.cleaned.0 += before.0 - self.policy.dirty().0;
    }

    /// The file is gone.
    pub(crate) fn deleted(&mut self, now: Nanos, file: FileId) {
        if self.files.get(file).is_none() {
            return;
        }
        self.drop_from(now, file, PageIndex(0));
        self.policy.on(now, Event::Delete { file });
        self.files.remove(file);
        if !self.resting && self.gone.len() < MOST_OPEN {
            self.gone.push(file);
        }
    }

    /// All of the file is on disk, unless it was written again since `turn`.
    pub(crate) fn synced(&mut self, now: Nanos, file: FileId, turn: WriteSequence) {
        let Some(known) = self.files.get_mut(file).filter(|known| known.written <= turn) else { return };
        known.places.written_back();
        self.drop_from(now, file, PageIndex(0));
    }

    /// All files but those written since `turn` are on disk.
    pub(crate) fn synced_all(&mut self, now: Nanos, turn: WriteSequence) {
        let files: Vec<FileId> = self.dirty_files().collect();
        for file in files {
            self.synced(now, file, turn);
        }
    }

    /// Files that have dirty pages.
    pub(crate) fn dirty_files(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().map(|(file, _)| file).filter(|file| self.policy.dirty_in(*file).0 > 0)
    }

    /// Appends what is to be written next: about `want` pages. When all that is dirty is active, the active list ages,
    /// as memory that gets short would make it.
    pub(crate) fn choose(&mut self, now: Nanos, want: Pages, out: &mut Vec<DirtyPage>) {
        let before = out.len();
        self.policy.select(now, want, out);
        while out.len() == before && self.policy.dirty().0 > 0 && self.recency.active() > 0 {
            let batch = usize::try_from(want.0.max(32)).unwrap_or(usize::MAX);
            let policy = &mut self.policy;
            self.recency.deactivate(batch, &mut |event| record_event(policy, now, event));
            self.policy.select(now, want, out);
        }
        let chosen = Pages((out.len() - before) as u64);
        self.in_flight.0 += chosen.0;
        self.round.chose(chosen);
    }

    /// Closes descriptors that are not needed. Call it while no write-back is under way.
    pub(crate) fn close_idle_files(&mut self) {
        self.files.close_clean(|file| self.policy.dirty_in(file).0 > 0);
    }

    /// Notes that chosen pages are on disk, or that the flusher gives them up.
    pub(crate) fn settle(&mut self, pages: Pages) {
        self.in_flight.0 = self.in_flight.0.saturating_sub(pages.0);
    }
}

/// Passes an event to the policy if its page is dirty.
fn record_event(policy: &mut RecordedPolicy, now: Nanos, event: Event) {
    let (Event::Touch { page } | Event::Activate { page } | Event::Deactivate { page } | Event::Clean { page }) = event
    else {
        return;
    };
    if policy.block_of(page).is_some() {
        policy.on(now, event);
    }
}

#[cfg(test)]
mod tests;
