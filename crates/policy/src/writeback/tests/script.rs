//! Short ways to write event lists, generated ones, and the plainest index there can be.

use proptest::prelude::*;
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey, Pages};

use crate::writeback::{DirtyPage, Event, WriteBack};

pub(crate) fn page(file: u64, index: u64) -> PageKey {
    PageKey { file: FileId(file), index: PageIndex(index) }
}

pub(crate) fn secs(secs: u64) -> Nanos {
    Nanos::from_secs(secs)
}

pub(crate) fn policy(spec: &str) -> WriteBack {
    WriteBack::parse(spec).expect("the test names a policy that is there")
}

/// The device's own pages at these blocks are dirty and inactive.
pub(crate) fn dirty_blocks(policy: &mut WriteBack, blocks: impl IntoIterator<Item = u64>) {
    for block in blocks {
        let page = PageKey::device(BlockNo(block));
        policy.on(Nanos(0), Event::Dirty { page, block: BlockNo(block), active: false });
    }
}

pub(crate) fn select(policy: &mut WriteBack, now: Nanos, want: u64) -> Vec<DirtyPage> {
    let mut out = Vec::new();
    policy.select(now, Pages(want), &mut out);
    out
}

pub(crate) fn select_blocks(policy: &mut WriteBack, want: u64) -> Vec<u64> {
    select(policy, Nanos(0), want).iter().map(|page| page.block.0).collect()
}

/// A dirty page, with everything that any policy looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    pub(crate) key: PageKey,
    pub(crate) block: u64,
    pub(crate) active: bool,
    pub(crate) writes: u32,
    /// Times of the first and last write.
    pub(crate) first: Nanos,
    pub(crate) last: Nanos,
    pub(crate) next: Nanos,
    /// When it was last used, counted in events; entering the inactive list counts.
    pub(crate) used: u64,
    /// When it was last written, counted in events.
    pub(crate) written: u64,
}

/// Dirty pages in a vector.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plain {
    pub(crate) pages: Vec<Page>,
    events: u64,
}

impl Plain {
    pub(crate) fn on(&mut self, now: Nanos, event: Event) {
        self.events += 1;
        let events = self.events;
        let position = |key: PageKey| self.pages.iter().position(|page| page.key == key);
        match event {
            Event::Dirty { page: key, block, active } if position(key).is_none() => self.pages.push(Page {
                key,
                block: block.0,
                active,
                writes: 1,
                first: now,
                last: now,
                next: Nanos::NEVER,
                used: events,
                written: events,
            }),
            Event::Dirty { page, .. } | Event::Rewrite { page } => {
                if let Some(at) = position(page) {
                    let page = &mut self.pages[at];
                    (page.writes, page.last, page.next) = (page.writes + 1, now, Nanos::NEVER);
                    (page.used, page.written) = (events, events);
                }
            }
            Event::Touch { page } => {
                if let Some(at) = position(page) {
                    self.pages[at].used = events;
                }
            }
            Event::Activate { page } => {
                if let Some(at) = position(page) {
                    self.pages[at].active = true;
                }
            }
            Event::Deactivate { page } => {
                if let Some(at) = position(page)
                    && self.pages[at].active
                {
                    self.pages[at].active = false;
                    self.pages[at].used = events;
                }
            }
            Event::Clean { page } => self.pages.retain(|other| other.key != page),
            Event::Truncate { file, from } => {
                self.pages.retain(|page| page.key.file != file || page.key.index < from);
            }
            Event::Delete { file } => self.pages.retain(|page| page.key.file != file),
            Event::Remap { page, block } => {
                if let Some(at) = position(page) {
                    self.pages[at].block = block.0;
                }
            }
            Event::Foresee { page, next_write } => {
                if let Some(at) = position(page) {
                    self.pages[at].next = next_write;
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, key: PageKey) -> Option<Page> {
        let at = self.pages.iter().position(|page| page.key == key)?;
        Some(self.pages.remove(at))
    }
}

/// What a generated test does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Tell(Event),
    Select(u64),
    Wait(Nanos),
}

/// Steps over few files and blocks, so that they meet often; blocks in runs, and some claimed twice.
pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let key = || (1_u64..5, 0_u64..24).prop_map(|(file, index)| page(file, index));
    let place = |key: PageKey, shift: u64| BlockNo(key.file.0 * 20 + key.index.0 + shift);
    let shift = || prop_oneof![8 => Just(0_u64), 1 => 0_u64..40];
    let step = prop_oneof![
        12 => (key(), shift(), prop::bool::weighted(0.2)).prop_map(move |(page, shift, active)| {
            Step::Tell(Event::Dirty { page, block: place(page, shift), active })
        }),
        4 => key().prop_map(|page| Step::Tell(Event::Rewrite { page })),
        1 => key().prop_map(|page| Step::Tell(Event::Touch { page })),
        2 => key().prop_map(|page| Step::Tell(Event::Activate { page })),
        2 => key().prop_map(|page| Step::Tell(Event::Deactivate { page })),
        2 => key().prop_map(|page| Step::Tell(Event::Clean { page })),
        1 => key().prop_map(|page| Step::Tell(Event::Truncate { file: page.file, from: page.index })),
        1 => prop::bool::weighted(0.3).prop_flat_map(move |all| (Just(all), key())).prop_map(|(all, page)| {
            Step::Tell(if all { Event::Delete { file: page.file } } else { Event::Clean { page } })
        }),
        2 => (key(), shift()).prop_map(move |(page, shift)| {
            Step::Tell(Event::Remap { page, block: place(page, shift) })
        }),
        2 => (key(), 0_u64..100).prop_map(|(page, at)| {
            let next_write = if at < 70 { secs(at) } else { Nanos::NEVER };
            Step::Tell(Event::Foresee { page, next_write })
        }),
        2 => (1_u64..30).prop_map(Step::Select),
        2 => (1_u64..20_000).prop_map(|ms| Step::Wait(Nanos::from_millis(ms))),
    ];
    prop::collection::vec(step, 1..most)
}
