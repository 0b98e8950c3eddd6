//! `stow`: two queues of write groups, sequential and random, each in circular block order.
//!
//! Sequential data are worth writing soon and in bulk, random data gain from staying; in one queue the first would
//! crowd out the second. A group is sequential while its dirty pages lie in long segments. The queue that holds more
//! than its share of the dirty pages gives; once chosen it gives a batch, so that the head does not go to and fro. The
//! random queue passes over a group once that was hit, as `wow` does.
//!
//! Simpler than the source, because a write-back policy in a page cache decides which pages are written, not how fast,
//! and sees no array behind the disk. Three things differ:
//!
//! - The rate of destages is not controlled.
//! - The shares of the queues are a parameter instead of adapting.
//! - Groups are classed by how their pages lie, not by watching the writers.
//!
//! Source: Gill, Ko, Debnath and Belluomini, USENIX ATC 2009, section 3.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, Zone, ZoneNeeds, ZoneOrder};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget, Write};
use super::wow::Hits;
use crate::param_info::{ParamInfo, ParamKind};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "stow",
    summary: "sequential and random write groups in two queues, each in circular block order",
    source: "Gill et al., STOW, USENIX ATC 2009 (simplified)",
    params: &[
        super::group_param(),
        ParamInfo {
            name: "sequential",
            kind: ParamKind::Bytes,
            default: "64KiB",
            min: "4KiB",
            max: "64MiB",
            help: "average length of segments from which a group is sequential",
        },
        ParamInfo {
            name: "share",
            kind: ParamKind::Number,
            default: "25",
            min: "0",
            max: "100",
            help: "percentage of the dirty pages that the sequential queue may keep",
        },
        ParamInfo {
            name: "batch",
            kind: ParamKind::Bytes,
            default: "4MiB",
            min: "4KiB",
            max: "64GiB",
            help: "how much is taken from a queue before choosing between queues again",
        },
    ],
    offline: false,
    keeps: "pages by block, groups in two classes, a recency bit for each",
    build: |values| {
        Box::new(Stow {
            blocks: values.pages("group"),
            length: values.pages("sequential"),
            share: values.number("share"),
            batch: values.pages("batch"),
            pointers: [0; 2],
            hits: Hits::default(),
            sequential: false,
            rest: 0,
        })
    },
};

struct Stow {
    blocks: Pages,
    length: Pages,
    share: u64,
    batch: Pages,
    /// The number of the group at which each queue continues: random, sequential.
    pointers: [u64; 2],
    hits: Hits,
    /// Whether the sequential queue is giving.
    sequential: bool,
    /// Pages that the queue still gives before the next choice.
    rest: u64,
}

impl Stow {
    /// The next group of the queue that gives; `None` when that is empty.
    fn next(&self, index: &DirtyIndex) -> Option<Zone> {
        let pointer = self.pointers[usize::from(self.sequential)];
        index.next_zone(pointer, self.sequential).or_else(|| index.next_zone(0, self.sequential))
    }

    fn choose(&mut self, index: &DirtyIndex) {
        let (long, all) = (index.pages_in_long_zones().0, index.dirty_blocks().0);
        self.sequential = long == all || u128::from(long) * 100 > u128::from(all) * u128::from(self.share);
        self.rest = self.batch.0;
    }
}

impl Policy for Stow {
    fn needs(&self) -> Needs {
        let order = ZoneOrder::Classes { length: self.length };
        let zones = Some(ZoneNeeds { blocks: self.blocks.0, order });
        Needs { blocks: Some(BlockNeeds { segments: Segments::InZones, zones }), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            if self.rest == 0 || self.next(index).is_none() {
                self.choose(index);
            }
            let Some(group) = self.next(index) else { return };
            self.pointers[usize::from(self.sequential)] = group.number + 1;
            if group.hit && !self.sequential {
                index.set_hit(group, false);
            } else {
                let before = out.len();
                index.take_zone(group, out);
                self.rest = self.rest.saturating_sub((out.len() - before) as u64);
            }
        }
    }

    fn written(&mut self, write: Write, index: &mut DirtyIndex) {
        self.hits.written(write, index);
    }
}
