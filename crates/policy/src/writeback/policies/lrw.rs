//! `lrw`: the page written longest ago first.
//!
//! The classic baseline of write caches: time alone, all pages. Source: Gill and Modha, FAST 2005, section II.

use super::super::index::Recency;
use super::super::policy::PolicyInfo;
use super::recency::OldestFirst;

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "lrw",
    summary: "the page written longest ago first",
    source: "Gill and Modha, WOW, FAST 2005 (least recently written)",
    params: &[],
    offline: false,
    keeps: "pages in order of their last write",
    build: |_| Box::new(OldestFirst { recency: Recency::Writes, inactive_only: false }),
};
