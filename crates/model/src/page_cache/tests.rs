use proptest::prelude::*;
use umbrella_units::{FileId, Nanos, PageIndex, PageKey};

use super::naive::Naive;
use super::{Access, Change, Demand, ExpireBy, NeedsWriteBack, PageCache, PageCacheConfig, WriteStart};

fn page(file: u64, index: u64) -> PageKey {
    PageKey { file: FileId(file), index: PageIndex(index) }
}

fn cache(pages: u64) -> PageCache {
    PageCache::new(PageCacheConfig { pages, ..PageCacheConfig::default() })
}

const T0: Nanos = Nanos(0);

/// Pages know to this how long they are dirty.
const TICK: u64 = 1 << 24;

#[test]
fn thresholds_hold_at_exact_page_counts() {
    let mut cache = PageCache::new(PageCacheConfig { pages: 1000, batch: 1, ..PageCacheConfig::default() });
    let mut changes = Vec::new();
    for index in 0..=400 {
        assert_eq!(cache.write(T0, page(1, index), &mut changes), Access::Miss);
        let dirty = index + 1;
        assert_eq!(
            cache.demand(T0),
            Demand { background: dirty.saturating_sub(100), throttled: dirty > 400 },
            "{dirty} dirty pages"
        );
    }
}

#[test]
fn the_background_writes_whole_batches() {
    let mut cache = PageCache::new(PageCacheConfig { pages: 4000, batch: 64, ..PageCacheConfig::default() });
    let mut changes = Vec::new();
    for index in 0..401 {
        cache.write(T0, page(1, index), &mut changes);
    }
    assert_eq!(cache.demand(T0).background, 64);
}

#[test]
fn a_batch_is_a_share_of_the_threshold_where_memory_is_small() {
    let batch = |pages| PageCacheConfig { pages, ..PageCacheConfig::default() }.batch_pages();
    assert_eq!((batch(131_072), batch(4_000), batch(20)), (1024, 100, 1));
}

#[test]
fn pages_of_a_device_expire_one_by_one_though_some_of_it_was_written() {
    let config = PageCacheConfig { pages: 1000, expire_by: ExpireBy::Pages, ..PageCacheConfig::default() };
    let mut cache = PageCache::new(config);
    for (second, index) in [(1, 3), (2, 9), (20, 1)] {
        cache.write(Nanos::from_secs(second), page(0, index), &mut Vec::new());
    }
    cache.write(Nanos::from_secs(25), page(0, 3), &mut Vec::new());
    cache.written_in_part(FileId(0), Nanos::from_secs(30));
    let mut expired = |second| {
        let mut out = Vec::new();
        cache.expired(Nanos::from_secs(second), &mut out);
        out
    };
    assert_eq!(expired(30), []);
    assert_eq!(expired(35), [page(0, 3), page(0, 9)], "a rewrite does not put it off");
    assert_eq!(expired(40), [], "what was reported once is not reported again");
    assert_eq!(expired(51), [page(0, 1)]);
}

#[test]
fn pages_on_their_way_hold_writers_up_but_are_not_asked_for_again() {
    let mut cache = PageCache::new(PageCacheConfig { pages: 1000, batch: 1, ..PageCacheConfig::default() });
    for index in 0..401 {
        cache.write(T0, page(1, index), &mut Vec::new());
    }
    for index in 0..301 {
        assert!(cache.begin_write_back(page(1, index)));
    }
    assert_eq!(cache.demand(T0), Demand { background: 0, throttled: true });
    cache.complete_write_back(page(1, 0));
    assert_eq!(cache.demand(T0), Demand { background: 0, throttled: false });
}

#[test]
fn a_background_share_that_is_not_below_the_foreground_share_is_half_of_it() {
    let config =
        PageCacheConfig { pages: 1000, background_percent: 40, foreground_percent: 40, ..PageCacheConfig::default() };
    assert_eq!((config.background_pages(), config.foreground_pages()), (200, 400));
    let none = PageCacheConfig { background_percent: 100, foreground_percent: 100, ..config };
    assert_eq!((none.background_pages(), none.foreground_pages()), (1000, 1000));
}

#[test]
fn a_page_that_is_queued_twice_is_written_once() {
    let mut cache = cache(100);
    cache.write(T0, page(1, 0), &mut Vec::new());
    assert_eq!(cache.begin_queued(page(1, 0)), WriteStart::NotWanted, "nobody queued it");
    cache.set_queued(page(1, 0));
    assert_eq!(cache.begin_queued(page(1, 0)), WriteStart::Begun);
    cache.write(T0, page(1, 0), &mut Vec::new());
    assert_eq!(cache.begin_queued(page(1, 0)), WriteStart::NotWanted, "it is dirty again, which is another matter");
    cache.set_queued(page(1, 0));
    assert_eq!(cache.begin_queued(page(1, 0)), WriteStart::Later);
    cache.complete_write_back(page(1, 0));
    assert_eq!(cache.begin_queued(page(1, 0)), WriteStart::Begun);
    cache.complete_write_back(page(1, 0));
    cache.set_queued(page(1, 0));
    assert_eq!(cache.begin_queued(page(1, 0)), WriteStart::NotWanted, "a clean page can not be queued");
    assert_eq!(cache.begin_queued(page(1, 1)), WriteStart::NotWanted);
}

#[test]
fn the_second_use_activates() {
    let mut cache = cache(100);
    let mut changes = Vec::new();
    cache.write(T0, page(1, 0), &mut changes);
    assert_eq!(changes, [Change::Dirtied { page: page(1, 0), active: false }]);
    changes.clear();
    cache.write(T0, page(1, 0), &mut changes);
    assert_eq!(changes, [Change::Rewritten { page: page(1, 0) }, Change::Activated { page: page(1, 0) }]);
    changes.clear();
    assert_eq!(cache.read(T0, page(1, 0), &mut changes), Access::Hit);
    assert_eq!(changes, [Change::Touched { page: page(1, 0) }]);
}

#[test]
fn a_page_that_was_read_ahead_is_not_used_yet() {
    let mut cache = cache(100);
    let mut changes = Vec::new();
    cache.fill_ahead(page(1, 0), &mut changes).unwrap();
    cache.fill(T0, page(1, 1), &mut changes).unwrap();
    for index in 0..2 {
        assert_eq!(cache.read(T0, page(1, index), &mut changes), Access::Hit);
    }
    assert!(!cache.is_active(page(1, 0)));
    assert!(cache.is_active(page(1, 1)));
    assert_eq!(changes, []);
}

#[test]
fn a_page_written_on_its_way_to_disk_is_dirty_again() {
    let mut cache = cache(100);
    let mut changes = Vec::new();
    cache.write(T0, page(1, 0), &mut changes);
    assert!(cache.begin_write_back(page(1, 0)));
    assert!(!cache.begin_write_back(page(1, 0)), "it is not dirty any more");
    changes.clear();
    cache.write(T0, page(1, 0), &mut changes);
    assert_eq!(changes[0], Change::Dirtied { page: page(1, 0), active: false });
    assert!(!cache.begin_write_back(page(1, 0)), "it is on its way still");
    cache.complete_write_back(page(1, 0));
    assert!(cache.is_dirty(page(1, 0)));
    assert!(cache.begin_write_back(page(1, 0)));
    cache.complete_write_back(page(1, 0));
    assert_eq!((cache.counts().dirty, cache.counts().write_back), (0, 0));
}

#[test]
fn expired_files_are_written_whole_in_the_order_in_which_they_became_dirty() {
    let mut cache = cache(1000);
    let mut changes = Vec::new();
    cache.write(Nanos::from_secs(1), page(7, 3), &mut changes);
    cache.write(Nanos::from_secs(2), page(5, 0), &mut changes);
    cache.write(Nanos::from_secs(20), page(7, 1), &mut changes);
    cache.write(Nanos::from_secs(3), page(6, 0), &mut changes);
    let mut out = Vec::new();
    cache.expired(Nanos::from_secs(30), &mut out);
    assert_eq!(out, []);
    cache.expired(Nanos::from_secs(32), &mut out);
    assert_eq!(out, [page(7, 1), page(7, 3), page(5, 0)]);
    out.clear();
    cache.expired(Nanos::from_secs(33), &mut out);
    assert_eq!(out, [page(6, 0)], "what was reported once is not reported again");
}

#[test]
fn a_file_that_the_background_wrote_in_part_counts_as_dirty_since_then() {
    let mut cache = cache(1000);
    let mut changes = Vec::new();
    for index in 0..3 {
        cache.write(Nanos::from_secs(1), page(7, index), &mut changes);
    }
    cache.write(Nanos::from_secs(2), page(5, 0), &mut changes);
    assert!(cache.begin_write_back(page(7, 0)));
    cache.written_in_part(page(7, 0).file, Nanos::from_secs(25));
    let mut out = Vec::new();
    cache.expired(Nanos::from_secs(35), &mut out);
    assert_eq!(out, [page(5, 0)]);
    cache.expired(Nanos::from_secs(55), &mut out);
    assert_eq!(out, [page(5, 0), page(7, 1), page(7, 2)]);
    cache.written_in_part(page(9, 0).file, Nanos::from_secs(60));
}

#[test]
fn non_volatile_memory_never_expires() {
    let mut cache = PageCache::new(PageCacheConfig { expire_after: None, ..PageCacheConfig::default() });
    cache.write(T0, page(1, 0), &mut Vec::new());
    let mut out = Vec::new();
    cache.expired(Nanos::NEVER, &mut out);
    assert_eq!((out, cache.next_wake(T0)), (vec![], None));
}

#[test]
fn the_periodic_write_back_wakes_every_five_seconds() {
    let cache = cache(10);
    assert_eq!(cache.next_wake(T0), Some(Nanos::from_secs(5)));
    assert_eq!(cache.next_wake(Nanos::from_secs(5)), Some(Nanos::from_secs(10)));
    assert_eq!(cache.next_wake(Nanos::from_millis(9_999)), Some(Nanos::from_secs(10)));
}

#[test]
fn the_least_recently_used_clean_page_leaves_first() {
    let mut cache = cache(3);
    let mut changes = Vec::new();
    for index in 0..3 {
        cache.fill(T0, page(1, index), &mut changes).unwrap();
    }
    cache.fill(T0, page(1, 3), &mut changes).unwrap();
    assert_eq!(changes, [Change::Dropped { page: page(1, 0) }]);
}

#[test]
fn a_full_cache_of_dirty_pages_says_how_many_to_write() {
    let mut cache = cache(4);
    let mut changes = Vec::new();
    for index in 0..4 {
        cache.write(T0, page(1, index), &mut changes);
    }
    assert_eq!(cache.write(T0, page(1, 4), &mut changes), Access::Full);
    assert_eq!(cache.make_room(2, &mut changes), Err(NeedsWriteBack { pages: 2, on_their_way: 0 }));
    let mut oldest = Vec::new();
    cache.least_recent_dirty(2, &mut oldest);
    assert_eq!(oldest, [page(1, 0), page(1, 1)]);
    for page in oldest {
        assert!(cache.begin_write_back(page));
    }
    assert_eq!(cache.make_room(2, &mut changes), Err(NeedsWriteBack { pages: 0, on_their_way: 2 }));
    cache.complete_write_back(page(1, 1));
    assert_eq!(cache.write(T0, page(1, 4), &mut changes), Access::Miss);
    assert!(!cache.holds(page(1, 1)));
}

#[test]
fn what_others_hold_counts_for_both_thresholds() {
    let mut cache = PageCache::new(PageCacheConfig { pages: 100, batch: 1, ..PageCacheConfig::default() });
    cache.write(T0, page(1, 1), &mut Vec::new());
    cache.set_held(9);
    assert_eq!(cache.demand(T0), Demand { background: 0, throttled: false });
    cache.set_held(12);
    assert_eq!(cache.demand(T0), Demand { background: 3, throttled: false });
    cache.set_held(39);
    assert!(!cache.demand(T0).throttled);
    cache.set_held(40);
    assert!(cache.demand(T0).throttled);
}

#[test]
fn reclaim_ends_when_others_hold_all_memory() {
    let mut cache = cache(4);
    cache.set_held(4);
    assert_eq!(cache.make_room(1, &mut Vec::new()), Err(NeedsWriteBack { pages: 0, on_their_way: 0 }));
}

#[test]
fn files_leave_with_all_their_pages() {
    let mut cache = cache(100);
    let mut changes = Vec::new();
    cache.write(T0, page(1, 0), &mut changes);
    cache.fill(T0, page(1, 1), &mut changes).unwrap();
    cache.write(T0, page(2, 0), &mut changes);
    changes.clear();
    cache.delete(FileId(1), &mut changes);
    assert_eq!(changes, [Change::Dropped { page: page(1, 1) }, Change::Cleaned { page: page(1, 0) }]);
    assert_eq!((cache.counts().pages, cache.counts().dirty), (1, 1));
}

#[derive(Debug, Clone)]
enum CacheStep {
    Write(PageKey),
    Read(PageKey),
    Fill(PageKey, bool),
    Begin(PageKey),
    Complete(PageKey),
    Truncate(PageKey),
    Delete(FileId),
    Forget(PageKey),
    Room(u64),
    Hold(u64),
    Deactivate(usize),
    Expire,
}

fn step() -> impl Strategy<Value = CacheStep> {
    let page = || (1u64..5, 0u64..12).prop_map(|(file, index)| super::tests::page(file, index));
    prop_oneof![
        8 => page().prop_map(CacheStep::Write),
        6 => page().prop_map(CacheStep::Read),
        6 => (page(), any::<bool>()).prop_map(|(page, ahead)| CacheStep::Fill(page, ahead)),
        6 => page().prop_map(CacheStep::Begin),
        6 => page().prop_map(CacheStep::Complete),
        1 => page().prop_map(CacheStep::Truncate),
        1 => (1u64..5).prop_map(|file| CacheStep::Delete(FileId(file))),
        1 => page().prop_map(CacheStep::Forget),
        1 => (0u64..12).prop_map(CacheStep::Room),
        1 => (0u64..10).prop_map(CacheStep::Hold),
        1 => (0usize..5).prop_map(CacheStep::Deactivate),
        1 => Just(CacheStep::Expire),
    ]
}

/// Does the step to both; what they tell must be the same.
fn apply(cache: &mut PageCache, naive: &mut Naive, now: Nanos, step: &CacheStep) {
    let (mut reported, mut expected) = (Vec::new(), Vec::new());
    match *step {
        CacheStep::Write(page) => {
            let known = naive.pages.contains_key(&page);
            let access = cache.write(now, page, &mut reported);
            let written = naive.write(now, page, &mut expected);
            assert_eq!(
                access,
                if known {
                    Access::Hit
                } else if written {
                    Access::Miss
                } else {
                    Access::Full
                }
            );
        }
        CacheStep::Read(page) => {
            let hit = cache.read(now, page, &mut reported) == Access::Hit;
            assert_eq!(hit, naive.pages.contains_key(&page));
            if hit {
                if naive.pages[&page].dirty {
                    expected.push(Change::Touched { page });
                }
                naive.used(page, &mut expected);
            }
        }
        CacheStep::Fill(page, ahead) => {
            let known = naive.pages.contains_key(&page);
            let filled =
                if ahead { cache.fill_ahead(page, &mut reported) } else { cache.fill(now, page, &mut reported) };
            let entered = naive.enter(page, &mut expected);
            assert_eq!(filled.is_ok(), entered);
            if entered && !known && !ahead {
                naive.used(page, &mut expected);
            }
        }
        CacheStep::Begin(page) => assert_eq!(cache.begin_write_back(page), naive.begin(page)),
        CacheStep::Complete(page) => {
            cache.complete_write_back(page);
            naive.complete(page);
        }
        CacheStep::Truncate(PageKey { file, index }) => cut(cache, naive, file, index, &mut reported, &mut expected),
        CacheStep::Delete(file) => cut(cache, naive, file, PageIndex(0), &mut reported, &mut expected),
        CacheStep::Forget(page) => {
            cache.forget(page, &mut reported);
            if let Some(state) = naive.pages.get(&page) {
                expected.push(if state.dirty { Change::Cleaned { page } } else { Change::Dropped { page } });
                naive.remove(page);
            }
        }
        CacheStep::Room(pages) => {
            let room = cache.make_room(pages, &mut reported);
            assert_eq!(room.is_ok(), naive.reclaim(pages, &mut expected));
        }
        CacheStep::Hold(pages) => {
            cache.set_held(pages);
            naive.held = pages;
        }
        CacheStep::Deactivate(pages) => {
            cache.deactivate(pages, &mut reported);
            naive.deactivate(pages, &mut expected);
        }
        CacheStep::Expire => {
            let mut out = Vec::new();
            cache.expired(now, &mut out);
            assert_eq!(out, naive.expired(now, naive.config.expire_after.unwrap()));
        }
    }
    assert_eq!(reported, expected, "after {step:?}");
}

/// Which of a file's pages leaves first is not promised.
fn cut(
    cache: &mut PageCache,
    naive: &mut Naive,
    file: FileId,
    from: PageIndex,
    reported: &mut Vec<Change>,
    expected: &mut Vec<Change>,
) {
    if from.0 == 0 {
        cache.delete(file, reported);
    } else {
        cache.truncate(file, from, reported);
    }
    let of = |change: &Change| match *change {
        Change::Dropped { page } | Change::Cleaned { page } => page,
        _ => panic!("{change:?} is no end"),
    };
    reported.sort_by_key(of);
    let gone: Vec<PageKey> =
        naive.pages.keys().copied().filter(|page| page.file == file && page.index >= from).collect();
    for page in gone {
        let dirty = naive.pages[&page].dirty;
        expected.push(if dirty { Change::Cleaned { page } } else { Change::Dropped { page } });
        naive.remove(page);
    }
}

fn compare(cache: &PageCache, naive: &Naive) {
    let list = |end| cache.slab.backwards(end).map(|record| record.key).collect::<Vec<_>>();
    let back = |list: &[PageKey]| list.iter().rev().copied().collect::<Vec<_>>();
    assert_eq!(list(super::slab::INACTIVE), back(&naive.inactive));
    assert_eq!(list(super::slab::ACTIVE), back(&naive.active));
    let count =
        |what: fn(&super::naive::State) -> bool| naive.pages.values().filter(|state| what(state)).count() as u64;
    let counts = cache.counts();
    assert_eq!(counts.pages, naive.pages.len() as u64);
    assert_eq!(counts.dirty, count(|state| state.dirty));
    assert_eq!(counts.write_back, count(|state| state.write_back));
    let unwritten = counts.dirty + naive.held;
    let demand = cache.demand(T0);
    assert_eq!(demand.background > 0, unwritten > naive.config.background_pages());
    assert_eq!(demand.throttled, unwritten + counts.write_back > naive.config.foreground_pages());
    let files: Vec<FileId> = naive.dirty_files.iter().map(|&(file, _)| file).collect();
    assert_eq!(cache.dirty_files().collect::<Vec<_>>(), files);
    for file in (1..5).map(FileId) {
        let pages = || naive.pages.iter().filter(move |(page, _)| page.file == file);
        let mut dirty = Vec::new();
        cache.dirty_of(file, &mut dirty);
        let expected: Vec<PageKey> = pages().filter(|(_, state)| state.dirty).map(|(&page, _)| page).collect();
        assert_eq!(dirty, expected);
        assert_eq!(cache.write_back_of(file), pages().filter(|(_, state)| state.write_back).count() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Order of use, states, files in order of dirtying and all reports agree with plain lists. A dirty page leaves the
    /// plain lists only by write-back, truncation, deletion and forgetting, so none is lost here either.
    #[test]
    fn agrees_with_plain_lists(
        pages in 4u64..40,
        by_pages: bool,
        steps in prop::collection::vec((step(), 0u64..4), 1..250),
    ) {
        let expire_by = if by_pages { ExpireBy::Pages } else { ExpireBy::Files };
        let expire_after = Some(Nanos(30 * TICK));
        let wake_every = Nanos(5 * TICK);
        let config = PageCacheConfig { pages, wake_every, expire_after, expire_by, ..PageCacheConfig::default() };
        let mut cache = PageCache::new(config);
        let mut naive = Naive { config, ..Naive::default() };
        let mut now = Nanos(0);
        for (step, later) in &steps {
            now = now + Nanos(*later * TICK);
            apply(&mut cache, &mut naive, now, step);
            compare(&cache, &naive);
        }
    }

    /// If all pages reported as expired are written at once, no page is dirty for longer than the expiry and one
    /// wake-up.
    #[test]
    fn no_page_is_dirty_for_longer_than_the_expiry_and_a_wake_up(
        writes in prop::collection::vec((1u64..6, 0u64..20, 0u64..8), 1..300),
    ) {
        let config = PageCacheConfig { expire_after: Some(Nanos(30)), wake_every: Nanos(5), ..PageCacheConfig::default() };
        let mut cache = PageCache::new(config);
        let mut since = std::collections::BTreeMap::new();
        let (mut now, mut wake) = (Nanos(0), Nanos(5));
        for (file, index, later) in writes {
            let next = now + Nanos(later);
            while wake <= next {
                let mut out = Vec::new();
                cache.expired(wake, &mut out);
                for page in out {
                    prop_assert!(cache.begin_write_back(page));
                    cache.complete_write_back(page);
                    since.remove(&page);
                }
                prop_assert!(since.values().all(|&since: &Nanos| since + Nanos(30) > wake));
                wake = cache.next_wake(wake).unwrap();
            }
            now = next;
            cache.write(now, page(file, index), &mut Vec::new());
            since.entry(page(file, index)).or_insert(now);
        }
    }
}

#[test]
fn a_page_takes_less_than_64_bytes() {
    let pages = 1 << 17;
    let mut cache = cache(pages);
    for index in 0..pages {
        cache.fill(T0, page(1, index), &mut Vec::new()).unwrap();
    }
    assert!(cache.bytes() <= 64 * pages as usize, "{} bytes", cache.bytes());
}
