//! What a policy is: it says what it needs of the index, and takes pages out of it when some are wanted.

use umbrella_units::{BlockNo, FileId, Nanos, PageKey, Pages};

use super::event::DirtyPage;
use super::index::{DirtyIndex, Needs};
use crate::param_info::ParamInfo;
use crate::params::ParamValues;

/// Chooses the dirty pages that go to disk next.
pub trait Policy: Send {
    /// What the index is to keep.
    fn needs(&self) -> Needs;

    /// Takes pages out of the index, in the order in which they are to be written, until `want` are taken or no more
    /// can be selected. A policy whose source writes whole zones, segments or files may take more.
    fn select(&mut self, now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>);

    /// A page was written.
    fn written(&mut self, _write: Write, _index: &mut DirtyIndex) {}

    /// A file was deleted.
    fn deleted(&mut self, _file: FileId) {}

    /// The rank of a page among the dirty pages: the highest is selected first. Asked for when [`Needs::ranks`] is set:
    /// at every write, and again when the next write is foretold.
    fn rank(&self, _times: PageTimes) -> u64 {
        0
    }

    /// Bytes that the policy holds beside the index.
    fn bytes(&self) -> usize {
        0
    }
}

/// A write of a page that is dirty now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Which page.
    pub page: PageKey,
    /// Where it lies on disk.
    pub block: BlockNo,
    /// Its writes since it became dirty; 7: or more.
    pub writes: u8,
}

/// Times of a page's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageTimes {
    /// The last write, or the one that made the page dirty ([`super::Age`]); exact to a millisecond.
    pub since: Nanos,
    /// The next write, [`Nanos::NEVER`] when there is none or none is known.
    pub next: Nanos,
}

/// Counts the pages that a selection has taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct SelectionTarget {
    until: usize,
}

impl SelectionTarget {
    /// The goal of `want` pages more than `out` holds already.
    pub(super) fn new(want: Pages, out: &[DirtyPage]) -> SelectionTarget {
        SelectionTarget { until: usize::try_from(want.0).unwrap_or(usize::MAX).saturating_add(out.len()) }
    }

    /// How many pages are still wanted.
    pub(super) fn left(self, out: &[DirtyPage]) -> Pages {
        Pages(self.until.saturating_sub(out.len()) as u64)
    }

    /// Whether enough are taken.
    pub(super) fn is_met(self, out: &[DirtyPage]) -> bool {
        out.len() >= self.until
    }
}

/// What there is to know of a policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper and section that it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
    /// Whether it has to know the future, which only the lab can.
    pub offline: bool,
    /// What it keeps of the dirty pages, in words.
    pub keeps: &'static str,
    /// Makes one.
    pub build: fn(&ParamValues) -> Box<dyn Policy>,
}
