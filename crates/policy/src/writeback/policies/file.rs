//! `file`: file by file, in the order in which they were first dirtied; the pages of a file in index order.
//!
//! What Linux does. Linux of today writes at most 4 MiB of a file (`chunk`). Then the file waits behind the others, and
//! is written on from there (`resume`). The kernels of the papers write a file to its end (`chunk=0`), or until they
//! have written enough. Then it waits behind the others (`requeue`), and is written on from there as well.
//!
//! Here only the least of today's share is taken: Linux takes half a second's worth of the disk's write bandwidth,
//! rounded to 4 MiB. Source: fs/fs-writeback.c, `writeback_chunk_size()` and `requeue_inode()`; TESA, II and IV-E;
//! UmbrellaFS, chapter IV.

use umbrella_units::{FileId, Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{DirtyIndex, FileOrder, Needs};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};
use super::resume::{REQUEUE, RESUME, Resume};
use crate::param_info::{ParamInfo, ParamKind};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "file",
    summary: "files in the order in which they were first dirtied, pages in index order (Linux)",
    source: "TESA, II and IV-E; UmbrellaFS, chapter IV",
    params: &[CHUNK, RESUME, REQUEUE],
    offline: false,
    keeps: "files in order, their pages in index order",
    build: |values| Box::new(FileByFile { chunk: values.pages("chunk"), turn: None, resume: Resume::of(values) }),
};

const CHUNK: ParamInfo = ParamInfo {
    name: "chunk",
    kind: ParamKind::Bytes,
    default: "4MiB",
    min: "0",
    max: "1TiB",
    help: "how much of a file is written before the next file's turn; 0: the whole file (Linux 2.6)",
};

struct FileByFile {
    /// Pages of a file before the next has its turn; zero for all.
    chunk: Pages,
    /// The file whose turn it is, and the pages it has left.
    turn: Option<(FileId, Pages)>,
    resume: Resume,
}

impl Policy for FileByFile {
    fn needs(&self) -> Needs {
        Needs { files: Some(FileOrder::FirstDirtied), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let Some(first) = index.first_file() else { return };
            let left = goal.left(out);
            if self.chunk.0 == 0 {
                self.resume.take(first.file, left, index, out);
                continue;
            }
            let turn = self.turn.filter(|turn| turn.0 == first.file).map_or(self.chunk, |turn| turn.1);
            let before = out.len();
            self.resume.take(first.file, left.min(turn), index, out);
            let rest = Pages(turn.0.saturating_sub((out.len() - before) as u64));
            self.turn = (rest.0 > 0).then_some((first.file, rest));
            if rest.0 == 0 {
                index.send_file_back(first.file);
            }
        }
    }

    fn deleted(&mut self, file: FileId) {
        self.resume.deleted(file);
    }

    fn bytes(&self) -> usize {
        self.resume.bytes()
    }
}
