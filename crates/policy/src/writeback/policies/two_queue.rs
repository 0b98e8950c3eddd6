//! `two_queue`: files that are not written repeatedly first; the others only if more is wanted.
//!
//! The 4th write to one page marks its file. In the source the mark belongs to the inode and outlasts a write-back. So
//! it is kept here until the file is deleted. Writes are counted from when the page became dirty. Marks are bounded:
//! the one set longest ago goes when there are too many. Source: UmbrellaFS, chapter IV, figures 9 to 12.
//!
//! Metadata blocks are never marked, and in sorted order they come after the files that are not. The source counts
//! where programs write to a file's pages, and orders the files of one superblock's list.

use std::collections::{BTreeMap, VecDeque};

use umbrella_units::{FileId, Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{DirtyIndex, FileOrder, Needs};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget, Write};
use super::resume::{RESUME, Resume, TAKES_TURNS};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const WRITES: ParamInfo = ParamInfo {
    name: "writes",
    kind: ParamKind::Number,
    default: "4",
    min: "2",
    max: "7",
    help: "writes to one page that mark its file as written repeatedly",
};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "two_queue",
    summary: "files in the order in which they were first dirtied, those written repeatedly last",
    source: "UmbrellaFS, chapter IV, multiple queues",
    params: &[WRITES, RESUME, TAKES_TURNS],
    offline: false,
    keeps: "files in order and by mark, their pages in index order",
    build: |values| Box::new(TwoQueues::new(FileOrder::FirstDirtied, values.number("writes"), Resume::of(values))),
};

/// Marks that are remembered at most.
const MOST_MARKS: usize = 1 << 16;

/// Files not marked, then files marked; shared with `two_queue_sorted` and, without marks, `sorted`.
pub(super) struct TwoQueues {
    order: FileOrder,
    /// The write to one page that marks its file; zero: none does.
    writes: u64,
    marked: BTreeMap<FileId, u64>,
    /// Marks in the order in which they were set, some of them gone since.
    set: VecDeque<(FileId, u64)>,
    marks: u64,
    resume: Resume,
}

impl TwoQueues {
    pub(super) fn new(order: FileOrder, writes: u64, resume: Resume) -> TwoQueues {
        TwoQueues { order, writes, marked: BTreeMap::new(), set: VecDeque::new(), marks: 0, resume }
    }

    fn mark(&mut self, file: FileId) {
        self.marks += 1;
        self.marked.insert(file, self.marks);
        self.set.push_back((file, self.marks));
        while self.set.len() > MOST_MARKS {
            if let Some((file, mark)) = self.set.pop_front()
                && self.marked.get(&file) == Some(&mark)
            {
                self.marked.remove(&file);
            }
        }
    }
}

impl Policy for TwoQueues {
    fn needs(&self) -> Needs {
        Needs { files: Some(self.order), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let Some(file) = self.resume.turn(index) else { return };
            self.resume.take(file, goal.left(out), index, out);
        }
    }

    fn written(&mut self, write: Write, index: &mut DirtyIndex) {
        if self.writes == 0 {
            return;
        }
        let file = write.page.file;
        if file == FileId::DEVICE {
            return;
        }
        if u64::from(write.writes) == self.writes && !self.marked.contains_key(&file) {
            self.mark(file);
            index.mark_file(file);
        } else if write.writes == 1 && self.marked.contains_key(&file) {
            index.mark_file(file);
        }
    }

    fn deleted(&mut self, file: FileId) {
        self.marked.remove(&file);
        self.resume.deleted(file);
    }

    fn bytes(&self) -> usize {
        // A map's entry with its share of a node that is two thirds full.
        self.marked.len() * 28 + self.set.capacity() * size_of::<(FileId, u64)>() + self.resume.bytes()
    }
}
