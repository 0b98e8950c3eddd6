//! `two_queue_sorted`: `two_queue`, each queue in the order of inode numbers. Source: UmbrellaFS, chapter IV,
//! figure 12.

use super::super::index::FileOrder;
use super::super::policy::PolicyInfo;
use super::resume::{REQUEUE, RESUME, Resume};
use super::two_queue::{TwoQueues, WRITES};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "two_queue_sorted",
    summary: "files in the order of their inode numbers, those written repeatedly last",
    source: "UmbrellaFS, chapter IV, multiple queues with sorting",
    params: &[WRITES, RESUME, REQUEUE],
    offline: false,
    keeps: "files by mark and number, their pages in index order",
    build: |values| Box::new(TwoQueues::new(FileOrder::Number, values.number("writes"), Resume::in_order(values))),
};
