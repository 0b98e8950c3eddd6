//! What Linux does with a file that it does not write to its end.
//!
//! - `resume`: the next write-back of the file continues where the last one stopped (`writeback_index`), in every
//!   kernel since 2.6.12. It begins at the start of the file only when nothing is dirty behind that place, and stops at
//!   the end of the file.
//! - `requeue`: a file that still has dirty pages after its share waits behind the others; where files are sorted,
//!   until those with higher numbers had theirs.
//!
//! Source: Linux 2.6.12, `mpage_writepages()` in fs/mpage.c and `__sync_single_inode()` in fs/fs-writeback.c; 2.6.24,
//! `write_cache_pages()` in mm/page-writeback.c and `redirty_tail()` in fs/fs-writeback.c; 6.18, `writeback_iter()` in
//! mm/page-writeback.c and `ext4_writepages()` (`range_cyclic`, `writeback_index`), `requeue_inode()` in
//! fs/fs-writeback.c.

use rustc_hash::FxHashMap;
use umbrella_units::{FileId, PageIndex, Pages};

use super::super::event::DirtyPage;
use super::super::index::DirtyIndex;
use crate::param_info::{ParamInfo, ParamKind};
use crate::params::ParamValues;

pub(super) const RESUME: ParamInfo = ParamInfo {
    name: "resume",
    kind: ParamKind::Flag,
    default: "true",
    min: "",
    max: "",
    help: "whether a file is continued where its last turn ended, as Linux since 2.6.12 does (writeback_index)",
};

pub(super) const REQUEUE: ParamInfo = ParamInfo {
    name: "requeue",
    kind: ParamKind::Flag,
    default: "false",
    min: "",
    max: "",
    help: "whether a partly written file waits behind the others (Linux 2.6)",
};

/// [`REQUEUE`] of a policy whose files have no share of their own, and take turns as in Linux 2.6.
pub(super) const TAKES_TURNS: ParamInfo = ParamInfo { default: "true", ..REQUEUE };

/// Takes pages out of files, and remembers where each was left.
#[derive(Debug, Default)]
pub(super) struct Resume {
    continues: bool,
    requeue: bool,
    /// Files are sorted by number.
    sorted: bool,
    /// The file that was written last.
    last: Option<FileId>,
    next: FxHashMap<FileId, PageIndex>,
}

impl Resume {
    /// As the parameters [`RESUME`] and [`REQUEUE`] say.
    pub(super) fn of(values: &ParamValues) -> Resume {
        Resume { requeue: values.flag(REQUEUE.name), continues: values.flag(RESUME.name), ..Resume::default() }
    }

    /// For a policy that sorts its files by number. A file that is written in part waits there until all behind it had
    /// their share.
    pub(super) fn in_order(values: &ParamValues) -> Resume {
        Resume { sorted: true, ..Resume::of(values) }
    }

    /// The file whose turn it is.
    pub(super) fn turn(&self, index: &DirtyIndex) -> Option<FileId> {
        let next = match self.last.filter(|_| self.requeue && self.sorted) {
            Some(last) => index.first_file_behind(last),
            None => index.first_file(),
        };
        next.map(|next| next.file)
    }

    /// Takes at most `most` pages of a file that has dirty ones.
    pub(super) fn take(&mut self, file: FileId, most: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        if self.continues {
            let left_at = self.next.get(&file).copied().unwrap_or_default();
            let from = if index.is_dirty_from(file, left_at) { left_at } else { PageIndex(0) };
            let before = out.len();
            index.take_from_page(file, from, most, out);
            if let Some(last) = out.get(before..).and_then(<[DirtyPage]>::last) {
                self.next.insert(file, PageIndex(last.page.index.0 + 1));
            }
        } else {
            index.take_from_page(file, PageIndex(0), most, out);
        }
        self.last = Some(file);
        if self.requeue && !self.sorted {
            index.send_file_back(file);
        }
    }

    /// The file is gone.
    pub(super) fn deleted(&mut self, file: FileId) {
        self.next.remove(&file);
    }

    pub(super) fn bytes(&self) -> usize {
        self.next.capacity() * size_of::<(FileId, PageIndex)>()
    }
}
