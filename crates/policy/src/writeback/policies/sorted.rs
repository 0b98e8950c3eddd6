//! `sorted`: files in the order of their inode numbers, pages in index order.
//!
//! The page cache does not know where files lie, but many file systems place them much in the order of their inodes.
//! Source: UmbrellaFS, chapter IV, figure 11.

use super::super::index::FileOrder;
use super::super::policy::PolicyInfo;
use super::resume::{REQUEUE, RESUME, Resume};
use super::two_queue::TwoQueues;

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "sorted",
    summary: "files in the order of their inode numbers",
    source: "UmbrellaFS, chapter IV, sorting",
    params: &[RESUME, REQUEUE],
    offline: false,
    keeps: "files by number, their pages in index order",
    build: |values| Box::new(TwoQueues::new(FileOrder::Number, 0, Resume::in_order(values))),
};
