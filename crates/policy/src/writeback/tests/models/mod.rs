//! Each policy against its rule written down in the plainest way: dirty pages in a vector, everything looked for anew.

mod sweep;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use umbrella_units::{FileId, Nanos, PageIndex, PageKey};

use super::script::{Page, Plain, Step, policy, select, steps};
use crate::writeback::Event;

/// A run of dirty blocks with all their pages, in order.
#[derive(Debug, Clone)]
struct Segment {
    start: u64,
    end: u64,
    pages: Vec<Page>,
}

/// How files are written.
#[derive(Clone, Copy)]
struct Files {
    sorted: bool,
    queues: bool,
    resume: bool,
    chunk: usize,
}

impl Default for Files {
    fn default() -> Files {
        Files { sorted: false, queues: false, resume: false, chunk: usize::MAX }
    }
}

/// The dirty pages, and whatever any of the rules remembers.
#[derive(Default)]
struct Model {
    plain: Plain,
    /// Dirty files in the order in which they became dirty.
    files: Vec<FileId>,
    marked: BTreeSet<FileId>,
    turn: Option<(FileId, usize)>,
    /// The page behind the last that was written of each file.
    left_at: BTreeMap<FileId, PageIndex>,
    head: u64,
    hits: BTreeSet<u64>,
    next_block: u64,
    /// Of `stow`: where each queue continues, which gives, how much it still gives.
    pointers: [u64; 2],
    sequential: bool,
    rest: usize,
}

impl Model {
    fn on(&mut self, now: Nanos, event: Event, group: u64) {
        // A page that gets another place leaves its group first, which loses its bit if that was all it had.
        if let Event::Remap { page, block } = event
            && let Some(old) = self.plain.pages.iter().find(|old| old.key == page && old.block != block.0)
            && self.plain.pages.iter().filter(|other| other.block / group == old.block / group).count() == 1
        {
            self.hits.remove(&(old.block / group));
        }
        self.plain.on(now, event);
        self.forget_clean(group);
        let (Event::Dirty { page, .. } | Event::Rewrite { page }) = event else {
            if let Event::Delete { file } = event {
                self.marked.remove(&file);
                self.left_at.remove(&file);
            }
            return;
        };
        let Some(&page) = self.plain.pages.iter().find(|other| other.key == page) else { return };
        if !self.files.contains(&page.key.file) {
            self.files.push(page.key.file);
        }
        if page.writes == 4 && page.key.file != FileId::DEVICE {
            self.marked.insert(page.key.file);
        }
        let sequential = page.block == self.next_block;
        self.next_block = page.block + 1;
        let blocks: BTreeSet<u64> = self.plain.pages.iter().map(|page| page.block).collect();
        let in_group = blocks.iter().filter(|&&block| block / group == page.block / group).count();
        if !sequential && (page.writes > 1 || in_group > 1) {
            self.hits.insert(page.block / group);
        }
    }

    /// Files and groups without dirty pages lose their places and bits.
    fn forget_clean(&mut self, group: u64) {
        let pages = &self.plain.pages;
        self.files.retain(|&file| pages.iter().any(|page| page.key.file == file));
        self.hits.retain(|&hit| pages.iter().any(|page| page.block / group == hit));
    }

    /// Runs of dirty blocks, of inactive pages only if said so, cut at multiples of `cut`.
    fn segments(&self, inactive_only: bool, cut: u64) -> Vec<Segment> {
        let mut pages: Vec<Page> =
            self.plain.pages.iter().copied().filter(|page| !(inactive_only && page.active)).collect();
        pages.sort_by_key(|page| (page.block, page.key));
        let mut segments: Vec<Segment> = Vec::new();
        for page in pages {
            match segments.last_mut() {
                Some(last) if last.end == page.block + 1 => last.pages.push(page),
                Some(last) if last.end == page.block && !(cut > 0 && page.block.is_multiple_of(cut)) => {
                    last.pages.push(page);
                    last.end += 1;
                }
                _ => segments.push(Segment { start: page.block, end: page.block + 1, pages: vec![page] }),
            }
        }
        segments
    }

    /// Zones: number, dirty blocks, segments.
    fn zones(segments: &[Segment], size: u64) -> Vec<(u64, u64, u64)> {
        let numbers: BTreeSet<u64> = segments.iter().map(|segment| segment.start / size).collect();
        let of = |number| segments.iter().filter(move |segment| segment.start / size == number);
        let blocks = |number| of(number).map(|segment| segment.end - segment.start).sum();
        numbers.into_iter().map(|number| (number, blocks(number), of(number).count() as u64)).collect()
    }

    fn write(&mut self, pages: &[Page], out: &mut Vec<PageKey>) {
        for page in pages {
            out.extend(self.plain.remove(page.key).map(|page| page.key));
        }
    }

    fn write_zone(&mut self, segments: &[Segment], size: u64, number: u64, out: &mut Vec<PageKey>) {
        for segment in segments.iter().filter(|segment| segment.start / size == number) {
            self.write(&segment.pages, out);
        }
    }

    fn by_key<K: Ord>(&mut self, want: u64, key: impl Fn(&Page) -> Option<K>, out: &mut Vec<PageKey>) {
        while (out.len() as u64) < want {
            let candidates = self.plain.pages.iter().filter(|page| key(page).is_some());
            let Some(&page) = candidates.min_by_key(|page| key(page)) else { return };
            self.write(&[page], out);
        }
    }

    fn by_file(&mut self, want: u64, files: Files, out: &mut Vec<PageKey>) {
        let Files { sorted, queues, resume, chunk } = files;
        while (out.len() as u64) < want {
            self.forget_clean(1);
            let mut files = self.files.clone();
            if sorted {
                files.sort_by_key(|file| (*file == FileId::DEVICE, *file));
            }
            if queues {
                files.sort_by_key(|file| self.marked.contains(file));
            }
            let Some(&file) = files.first() else { return };
            let mut pages: Vec<Page> = self.plain.pages.iter().copied().filter(|page| page.key.file == file).collect();
            pages.sort_by_key(|page| page.key.index);
            let left_at = self.left_at.get(&file).copied().filter(|_| resume).unwrap_or_default();
            if pages.iter().any(|page| page.key.index >= left_at) {
                pages.retain(|page| page.key.index >= left_at);
            }
            let turn = self.turn.filter(|turn| turn.0 == file).map_or(chunk, |turn| turn.1);
            let count = turn.min(pages.len()).min((want as usize).saturating_sub(out.len()));
            self.write(&pages[..count], out);
            self.left_at.insert(file, PageIndex(pages[count - 1].key.index.0 + 1));
            self.turn = (turn > count).then_some((file, turn - count));
            if turn == count {
                self.files.retain(|&other| other != file);
                self.files.push(file);
            }
        }
        self.forget_clean(1);
    }

    fn by_zone(
        &mut self,
        want: u64,
        inactive_only: bool,
        cut: u64,
        choose: impl Fn(&[(u64, u64, u64)]) -> Option<u64>,
        out: &mut Vec<PageKey>,
    ) {
        while (out.len() as u64) < want {
            let segments = self.segments(inactive_only, cut);
            let Some(number) = choose(&Self::zones(&segments, ZONE)) else { return };
            self.write_zone(&segments, ZONE, number, out);
        }
    }

    fn longest_segment(&mut self, want: u64, inactive_only: bool, out: &mut Vec<PageKey>) {
        while (out.len() as u64) < want {
            let segments = self.segments(inactive_only, 0);
            let longest = segments.iter().rev().max_by_key(|segment| segment.end - segment.start);
            let Some(segment) = longest else { return };
            self.write(&segment.pages, out);
        }
    }

    fn cscan(&mut self, want: u64, out: &mut Vec<PageKey>) {
        while (out.len() as u64) < want {
            let blocks: BTreeSet<u64> = self.plain.pages.iter().map(|page| page.block).collect();
            let Some(&block) = blocks.range(self.head..).next().or(blocks.first()) else { return };
            let mut pages: Vec<Page> = self.plain.pages.iter().copied().filter(|page| page.block == block).collect();
            pages.sort_by_key(|page| page.key);
            self.write(&pages, out);
            self.head = block + 1;
        }
    }

    fn wow(&mut self, want: u64, out: &mut Vec<PageKey>) {
        while (out.len() as u64) < want {
            let segments = self.segments(false, ZONE);
            let groups = Self::zones(&segments, ZONE);
            let ahead = groups.iter().find(|group| group.0 >= self.head).or(groups.first());
            let Some(&(number, _, _)) = ahead else { return };
            self.head = number + 1;
            if !self.hits.remove(&number) {
                self.write_zone(&segments, ZONE, number, out);
            }
        }
    }

    /// Segments of two pages on average are long, a quarter of the pages may stay in the queue of those, a batch is 6.
    fn stow(&mut self, want: u64, out: &mut Vec<PageKey>) {
        while (out.len() as u64) < want {
            let segments = self.segments(false, ZONE);
            let groups = Self::zones(&segments, ZONE);
            let class = |long: bool| groups.iter().filter(move |group| (group.1 >= 2 * group.2) == long);
            if self.rest == 0 || class(self.sequential).next().is_none() {
                let (long, all): (u64, u64) =
                    (class(true).map(|group| group.1).sum(), groups.iter().map(|group| group.1).sum());
                self.sequential = long == all || long * 4 > all;
                self.rest = 6;
            }
            let pointer = self.pointers[usize::from(self.sequential)];
            let ahead = class(self.sequential).find(|group| group.0 >= pointer).or(class(self.sequential).next());
            let Some(&(number, _, _)) = ahead else { return };
            self.pointers[usize::from(self.sequential)] = number + 1;
            if self.sequential || !self.hits.remove(&number) {
                let before = out.len();
                self.write_zone(&segments, ZONE, number, out);
                self.rest = self.rest.saturating_sub(out.len() - before);
            }
        }
    }
}

/// Pages of a zone in these tests.
const ZONE: u64 = 4;

/// The zone with the greatest average segment length among those with `least` blocks or more.
fn longest(zones: &[(u64, u64, u64)], is_full: impl Fn(u64) -> bool) -> Option<(u64, u64, u64)> {
    let full = zones.iter().copied().filter(|zone| is_full(zone.1));
    full.reduce(|best, zone| {
        let length = (zone.1 * best.2).cmp(&(best.1 * zone.2));
        if length.then(zone.1.cmp(&best.1)).is_gt() { zone } else { best }
    })
}

fn fullest(zones: &[(u64, u64, u64)]) -> Option<u64> {
    zones.iter().copied().reduce(|best, zone| if zone.1 > best.1 { zone } else { best }).map(|zone| zone.0)
}

fn zone_segment(zones: &[(u64, u64, u64)], alpha: u64) -> Option<u64> {
    let total: u64 = zones.iter().map(|zone| zone.1).sum();
    let best = longest(zones, |blocks| blocks * zones.len() as u64 >= total)?;
    if best.1 >= alpha * best.2 { Some(best.0) } else { fullest(zones) }
}

fn reference(name: &str, model: &mut Model, want: u64) -> Vec<PageKey> {
    let mut keys = Vec::new();
    let out = &mut keys;
    let next = |page: &Page| std::cmp::Reverse(page.next.0);
    match name {
        "file" => model.by_file(want, Files { resume: true, chunk: 1024, ..Files::default() }, out),
        "file:chunk=12KiB" => model.by_file(want, Files { resume: true, chunk: 3, ..Files::default() }, out),
        "file:chunk=12KiB,resume=false" => model.by_file(want, Files { chunk: 3, ..Files::default() }, out),
        "file:chunk=0,resume=false" => model.by_file(want, Files::default(), out),
        "two_queue:requeue=false" => {
            model.by_file(want, Files { queues: true, resume: true, ..Files::default() }, out);
        }
        "sorted" => model.by_file(want, Files { sorted: true, resume: true, ..Files::default() }, out),
        "two_queue_sorted" => {
            model.by_file(want, Files { sorted: true, queues: true, resume: true, ..Files::default() }, out);
        }
        "recency" => model.by_key(want, |page| (!page.active).then_some(page.used), out),
        "lrw" => model.by_key(want, |page| Some(page.written), out),
        "clairvoyant" => model.by_key(want, |page| Some((next(page), page.block, page.key.index, page.key.file)), out),
        "write_minimal" => {
            let rank = |page: &Page| {
                let free = page.next > page.first + Nanos::from_secs(30);
                let rank = if free { (1, u64::MAX - page.first.0) } else { (0, page.next.0) };
                Some((std::cmp::Reverse(rank), page.block, page.key.index, page.key.file))
            };
            model.by_key(want, rank, out);
        }
        "segment" => model.longest_segment(want, true, out),
        "wasl_segment" => model.longest_segment(want, false, out),
        "zone:zone=16KiB" => model.by_zone(want, true, ZONE, fullest, out),
        "wasl_zone:zone=16KiB" => model.by_zone(want, false, ZONE, fullest, out),
        "wasl_segment_zone:zone=16KiB" => {
            model.by_zone(want, false, ZONE, |zones| longest(zones, |_| true).map(|zone| zone.0), out);
        }
        "zone_segment:zone=16KiB,alpha=2" => {
            model.by_zone(want, true, 0, |zones| zone_segment(zones, 2), out);
        }
        "cscan" => model.cscan(want, out),
        "wow:group=16KiB" => model.wow(want, out),
        "stow:group=16KiB,sequential=8KiB,batch=24KiB" => model.stow(want, out),
        other => unreachable!("there is no model of {other}"),
    }
    keys
}

fn check(name: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut tested, mut model, mut now) = (policy(name), Model::default(), Nanos(0));
    for &step in steps.iter().chain(&[Step::Select(u64::MAX)]) {
        match step {
            Step::Tell(event) => {
                tested.on(now, event);
                model.on(now, event, ZONE);
            }
            Step::Wait(time) => now = now + time,
            Step::Select(want) => {
                let chosen: Vec<PageKey> = select(&mut tested, now, want).iter().map(|page| page.page).collect();
                prop_assert_eq!(chosen, reference(name, &mut model, want), "{}", name);
                model.forget_clean(ZONE);
            }
        }
    }
    Ok(())
}

macro_rules! models {
    ($($test:ident: $spec:expr;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $test(steps in steps(120)) {
                    check($spec, &steps)?;
                }
            )*
        }
    };
}

models! {
    file_is_its_model: "file";
    file_in_chunks_is_its_model: "file:chunk=12KiB";
    file_in_chunks_from_its_start_is_its_model: "file:chunk=12KiB,resume=false";
    file_to_its_end_from_its_start_is_its_model: "file:chunk=0,resume=false";
    two_queue_is_its_model: "two_queue:requeue=false";
    sorted_is_its_model: "sorted";
    two_queue_sorted_is_its_model: "two_queue_sorted";
    recency_is_its_model: "recency";
    lrw_is_its_model: "lrw";
    clairvoyant_is_its_model: "clairvoyant";
    write_minimal_is_its_model: "write_minimal";
    segment_is_its_model: "segment";
    wasl_segment_is_its_model: "wasl_segment";
    zone_is_its_model: "zone:zone=16KiB";
    wasl_zone_is_its_model: "wasl_zone:zone=16KiB";
    wasl_segment_zone_is_its_model: "wasl_segment_zone:zone=16KiB";
    zone_segment_is_its_model: "zone_segment:zone=16KiB,alpha=2";
    cscan_is_its_model: "cscan";
    wow_is_its_model: "wow:group=16KiB";
    stow_is_its_model: "stow:group=16KiB,sequential=8KiB,batch=24KiB";
}
