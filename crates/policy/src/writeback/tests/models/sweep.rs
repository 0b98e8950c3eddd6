//! `sweep` against its six rules written down in the plainest way: dirty pages in a vector, everything reckoned anew.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use proptest::prelude::*;
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey};

use super::super::script::{Page, Plain, Step, page, policy, secs, select, steps};
use crate::writeback::Event;

/// The parameters, sizes in pages, and how the script lies on the disk.
#[derive(Debug, Clone, Copy)]
struct Settings {
    region: u64,
    position: u64,
    due: u64,
    fresh: u64,
    expire: Nanos,
    bargain: u64,
    /// Distance of neighbouring blocks of the script, in blocks.
    apart: u64,
    /// When a page of the last file becomes dirty, this number in a row do.
    stream: u64,
}

/// The scripts as they are, in small regions.
const SMALL: Settings =
    Settings { region: 8, position: 2, due: 150, fresh: 50, expire: Nanos(0), bargain: 0, apart: 1, stream: 1 };

const LATE: Settings = Settings { expire: Nanos::from_secs(30), ..SMALL };

/// The defaults, with scattered pages and a file that is streamed.
const DEFAULT: Settings = Settings { region: 1024, position: 128, bargain: 4, apart: 20, stream: 200, ..LATE };

/// The file that is streamed, and its first block.
const STREAMED: FileId = FileId(4);

impl Settings {
    fn spec(&self) -> String {
        let Settings { region, position, due, fresh, expire, bargain, .. } = self;
        let (region, position, expire) = (4 * region, 4 * position, expire.0 / 1_000_000);
        format!(
            "sweep:region={region}KiB,position={position}KiB,due={due},fresh={fresh},expire={expire}ms,bargain={bargain}"
        )
    }

    /// The events that stand for one of the script.
    fn events(&self, event: Event) -> Vec<Event> {
        let in_stream = |key: PageKey| key.file == STREAMED && self.stream > 1;
        let key = |key: PageKey| if in_stream(key) { page(4, key.index.0 * self.stream) } else { key };
        let place = |key: PageKey, block: BlockNo| {
            BlockNo(if in_stream(key) { 200 * self.apart + block.0 * self.stream } else { block.0 * self.apart })
        };
        let first = match event {
            Event::Dirty { page, block, active } => Event::Dirty { page: key(page), block: place(page, block), active },
            Event::Rewrite { page } => Event::Rewrite { page: key(page) },
            Event::Touch { page } => Event::Touch { page: key(page) },
            Event::Activate { page } => Event::Activate { page: key(page) },
            Event::Deactivate { page } => Event::Deactivate { page: key(page) },
            Event::Clean { page } => Event::Clean { page: key(page) },
            Event::Truncate { file, from } => Event::Truncate { file, from: key(PageKey { file, index: from }).index },
            Event::Remap { page, block } => Event::Remap { page: key(page), block: place(page, block) },
            Event::Foresee { page, next_write } => Event::Foresee { page: key(page), next_write },
            Event::Delete { file } => Event::Delete { file },
        };
        let mut events = vec![first];
        if let Event::Dirty { page, block, active } = first
            && page.file == STREAMED
        {
            events.extend((1..self.stream).map(|n| Event::Dirty {
                page: PageKey { index: PageIndex(page.index.0 + n), ..page },
                block: BlockNo(block.0 + n),
                active,
            }));
        }
        events
    }
}

/// Sorted blocks, cut where more than `gap` blocks lie between two.
fn runs(blocks: &[u64], gap: u64) -> Vec<&[u64]> {
    blocks.chunk_by(|block, next| next - block <= gap + 1).collect()
}

/// A region: its number and its dirty blocks in order.
#[derive(Debug, Clone)]
struct Region {
    number: u64,
    blocks: Vec<u64>,
}

impl Region {
    fn pages(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn segments(&self) -> u64 {
        runs(&self.blocks, 0).len() as u64
    }

    /// Orders by the average length of segments, then by pages; the lower number is the greater on a tie.
    fn by_length(&self, other: &Region) -> Ordering {
        let (mine, others) = (self.pages() * other.segments(), other.pages() * self.segments());
        (mine, self.pages(), Reverse(self.number)).cmp(&(others, other.pages(), Reverse(other.number)))
    }
}

struct NaiveSweep {
    settings: Settings,
    /// In the order in which pages came to their blocks.
    plain: Plain,
    /// The number of the next region.
    head: u64,
    /// When the round began, and how long the last one took.
    began: Option<Nanos>,
    round: Nanos,
    /// Pages selected since the round began.
    written: u64,
    /// The first turn, and the number of pages for which it still applies.
    urgent: (u32, u64),
    /// How long pages stay dirty, in nanoseconds.
    stay: u128,
}

impl NaiveSweep {
    fn new(settings: Settings) -> NaiveSweep {
        let (plain, zero) = (Plain::default(), Nanos(0));
        NaiveSweep { settings, plain, head: 0, began: None, round: zero, written: 0, urgent: (0, 0), stay: 0 }
    }

    /// Whether the event leaves no more pages claiming a block than the model can tell apart. Of two the first stands
    /// for the block. Of three the index may ask any when the first is gone.
    fn allows(&self, event: Event) -> bool {
        let (Event::Dirty { page, block, .. } | Event::Remap { page, block }) = event else { return true };
        let others = self.plain.pages.iter().filter(|other| other.block == block.0 && other.key != page).count();
        others < 2
    }

    fn on(&mut self, now: Nanos, event: Event) {
        if let Event::Remap { page: key, block } = event
            && self.plain.pages.iter().any(|page| page.key == key && page.block != block.0)
        {
            let moved = self.plain.remove(key);
            self.plain.pages.extend(moved);
        }
        self.plain.on(now, event);
    }

    /// The regions with dirty pages, in order.
    fn regions(&self) -> Vec<Region> {
        let mut blocks: Vec<u64> = self.plain.pages.iter().map(|page| page.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut regions: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for block in blocks {
            regions.entry(block / self.settings.region).or_default().push(block);
        }
        regions.into_iter().map(|(number, blocks)| Region { number, blocks }).collect()
    }

    /// Rule 1.
    fn cost(&self, pages: u64, segments: u64) -> u64 {
        let Settings { region, position, .. } = self.settings;
        pages + position.min(region) + ((segments - 1) * position).min(region.saturating_sub(pages))
    }

    fn cost_of_all(&self) -> u64 {
        self.regions().iter().map(|region| region.pages() + region.segments() * self.settings.position).sum()
    }

    /// The page that stands for a block: the first that came.
    fn page_at(&self, block: u64) -> &Page {
        self.plain.pages.iter().find(|page| page.block == block).expect("the block is dirty")
    }

    /// The time since a page's last write, in whole milliseconds of the clock.
    fn age(page: &Page, now: Nanos) -> u64 {
        now.0 / 1_000_000 - page.last.0 / 1_000_000
    }

    fn rent(&self, region: &Region, now: Nanos) -> u64 {
        region.blocks.iter().map(|&block| Self::age(self.page_at(block), now)).sum()
    }

    /// Rule 2: whether rent / saving is `due` percent of all rent / the cost of all.
    fn is_due(&self, region: &Region, now: Nanos) -> bool {
        let (pages, segments) = (region.pages(), region.segments());
        let saving = (2 * self.cost(pages, segments)).saturating_sub(self.cost(2 * pages, 2 * segments));
        let all: u64 = self.regions().iter().map(|region| self.rent(region, now)).sum();
        self.rent(region, now) * self.cost_of_all() * 100 >= all * saving * self.settings.due
    }

    /// Rule 3.
    fn is_in_use(&self, page: &Page, now: Nanos) -> bool {
        let fresh = self.round.0 * self.settings.fresh / 100;
        page.active || (page.writes > 1 && Self::age(page, now) * 1_000_000 < fresh)
    }

    fn write(&mut self, blocks: &[u64], out: &mut Vec<PageKey>) {
        for &block in blocks {
            let pages = self.plain.pages.iter().filter(|page| page.block == block);
            let mut keys: Vec<PageKey> = pages.map(|page| page.key).collect();
            keys.sort_unstable();
            out.extend(keys);
            self.plain.pages.retain(|page| page.block != block);
        }
    }

    /// Rule 3: the clusters of a region that are not mostly in use.
    fn write_unused(&mut self, region: &Region, now: Nanos, out: &mut Vec<PageKey>) {
        for cluster in runs(&region.blocks, self.settings.position) {
            let used = cluster.iter().filter(|&&block| self.is_in_use(self.page_at(block), now)).count();
            if used <= cluster.len() - used {
                self.write(cluster, out);
            }
        }
    }

    /// Rule 4: the next region to write before all others.
    fn bargain(&self) -> Option<Region> {
        let regions = self.regions();
        let pages: u64 = regions.iter().map(Region::pages).sum();
        let long = regions.into_iter().filter(|region| region.pages() >= self.settings.position * region.segments());
        let longest = long.max_by(Region::by_length)?;
        let cost = self.cost(longest.pages(), longest.segments());
        let is_cheap = self.settings.bargain * cost * pages <= self.cost_of_all() * longest.pages();
        (is_cheap && self.settings.bargain > 0).then_some(longest)
    }

    /// Rule 5, by Little's law, once an eighth of what is dirty has been selected in the round.
    fn is_late(&mut self, took: Nanos) -> bool {
        let dirty: u64 = self.regions().iter().map(Region::pages).sum();
        if took > Nanos(0) && self.written > 0 && self.written >= dirty / 8 {
            self.stay = u128::from(took.0) * u128::from(dirty) / u128::from(self.written);
        }
        self.settings.expire > Nanos(0) && self.stay * 2 >= u128::from(self.settings.expire.0)
    }

    fn select(&mut self, now: Nanos, want: u64) -> Vec<PageKey> {
        let mut out = Vec::new();
        let began = *self.began.get_or_insert(now);
        let is_late = self.is_late(now - began);
        while (out.len() as u64) < want
            && let Some(region) = self.bargain()
        {
            self.write(&region.blocks, &mut out);
        }
        // Rule 6: regions that are due, then all, then with pages in use.
        let first = if is_late {
            2
        } else if self.urgent.1 > 0 {
            self.urgent.0
        } else {
            0
        };
        let (mut in_vain, mut begun) = (None, out.len());
        for turn in first..3 {
            let dirty: u64 = self.regions().iter().map(Region::pages).sum();
            if turn > first && (out.len() as u64) < want && ((out.len() - begun) as u64) < dirty / 64 {
                in_vain = Some(turn);
            }
            begun = out.len();
            let (behind, ahead): (Vec<Region>, Vec<Region>) =
                self.regions().into_iter().partition(|region| region.number < self.head);
            for region in ahead.into_iter().chain(behind) {
                if out.len() as u64 >= want {
                    break;
                }
                let began = self.began.unwrap_or(now);
                if region.number < self.head && now > began {
                    (self.round, self.began, self.written) = (now - began, Some(now), 0);
                }
                self.head = region.number + 1;
                if turn == 2 {
                    self.write(&region.blocks, &mut out);
                } else if turn == 1 || self.is_due(&region, now) {
                    self.write_unused(&region, now, &mut out);
                }
            }
        }
        self.written += out.len() as u64;
        let dirty: u64 = self.regions().iter().map(Region::pages).sum();
        self.urgent = match in_vain {
            Some(turn) => (turn, dirty / 8),
            None => (self.urgent.0, self.urgent.1.saturating_sub(out.len() as u64)),
        };
        out
    }
}

fn check(settings: Settings, start: Nanos, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut tested, mut model, mut now) = (policy(&settings.spec()), NaiveSweep::new(settings), start);
    for &step in steps.iter().chain(&[Step::Select(u64::MAX)]) {
        match step {
            Step::Tell(event) => {
                for event in settings.events(event) {
                    if model.allows(event) {
                        tested.on(now, event);
                        model.on(now, event);
                    }
                }
            }
            Step::Wait(time) => now = now + time,
            Step::Select(want) => {
                let chosen: Vec<PageKey> = select(&mut tested, now, want).iter().map(|page| page.page).collect();
                prop_assert_eq!(chosen, model.select(now, want), "{}", settings.spec());
            }
        }
    }
    Ok(())
}

/// Half a minute before the index's clock of milliseconds begins anew.
const WRAP: Nanos = Nanos(((1 << 32) - 30_000) * 1_000_000);

macro_rules! sweeps {
    ($($test:ident: $settings:expr, from $start:expr;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $test(steps in steps(400)) {
                    check($settings, $start, &steps)?;
                }
            )*
        }
    };
}

sweeps! {
    sweep_is_its_model: SMALL, from Nanos(0);
    sweep_with_its_defaults_is_its_model: DEFAULT, from Nanos(0);
    sweep_that_may_be_late_is_its_model: LATE, from Nanos(0);
    sweep_in_regions_below_a_positioning_is_its_model:
        Settings { region: 4, position: 16, due: 100, ..SMALL }, from secs(1);
    sweep_in_wide_regions_is_its_model:
        Settings { region: 24, position: 3, due: 100, ..LATE }, from secs(1);
    sweep_with_bargains_is_its_model:
        Settings { region: 32, position: 8, bargain: 2, apart: 10, stream: 8, ..LATE }, from secs(1);
    sweep_where_all_is_due_is_its_model:
        Settings { due: 0, bargain: 1, ..SMALL }, from Nanos(0);
    sweep_is_its_model_when_the_clock_begins_anew:
        Settings { due: 0, ..LATE }, from WRAP;
}
