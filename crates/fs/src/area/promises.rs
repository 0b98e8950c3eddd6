//! Which branches must keep room for what waits: a list is complete, so room elsewhere is of no use to its files.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use umbrella_units::{BranchId, ByteSize, FileId};

/// How a new file waits.
pub(crate) struct Wait {
    /// It leaves when it grows beyond this.
    pub(crate) threshold: ByteSize,
    /// The branches that it can go to in any case: those of the list that it would be created by.
    pub(crate) list: Arc<[BranchId]>,
}

/// The lists of files that wait.
#[derive(Default)]
pub(crate) struct Promises {
    of: FxHashMap<FileId, Arc<[BranchId]>>,
    /// Each list once, with the number of its files: there are as many as rules, and mostly one or two.
    lists: Vec<(Arc<[BranchId]>, u64)>,
}

impl Promises {
    pub(crate) fn add(&mut self, file: FileId, list: &Arc<[BranchId]>) {
        self.remove(file);
        match self.lists.iter_mut().find(|(known, _)| known == list) {
            Some((_, files)) => *files += 1,
            None => self.lists.push((Arc::clone(list), 1)),
        }
        self.of.insert(file, Arc::clone(list));
    }

    pub(crate) fn remove(&mut self, file: FileId) {
        let Some(list) = self.of.remove(&file) else { return };
        if let Some(at) = self.lists.iter().position(|(known, _)| *known == list) {
            self.lists[at].1 -= 1;
            if self.lists[at].1 == 0 {
                self.lists.swap_remove(at);
            }
        }
    }

    /// Each list of a file that waits.
    pub(crate) fn lists(&self) -> Vec<Arc<[BranchId]>> {
        self.lists.iter().map(|(list, _)| Arc::clone(list)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_promised_room_while_one_of_its_files_waits() {
        let list = |ids: &[u16]| -> Arc<[BranchId]> { ids.iter().map(|id| BranchId(*id)).collect() };
        let mut promises = Promises::default();
        promises.add(FileId(1), &list(&[1]));
        promises.add(FileId(2), &list(&[1]));
        promises.add(FileId(3), &list(&[0, 1]));
        assert_eq!(promises.lists(), [list(&[1]), list(&[0, 1])]);
        promises.remove(FileId(1));
        promises.remove(FileId(1));
        promises.remove(FileId(3));
        assert_eq!(promises.lists(), [list(&[1])]);
        promises.add(FileId(2), &list(&[0]));
        assert_eq!(promises.lists(), [list(&[0])]);
    }
}
