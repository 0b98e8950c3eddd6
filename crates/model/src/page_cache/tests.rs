use umbrella_units::{FileId, Nanos, PageIndex, PageKey};

use super::{Access, Change, Config, Demand, NeedsWriteBack, PageCache};

fn page(file: u64, index: u64) -> PageKey {
    PageKey { file: FileId(file), index: PageIndex(index) }
}

fn cache(pages: u64) -> PageCache {
    PageCache::new(Config { pages, ..Config::default() })
}

const T0: Nanos = Nanos(0);

#[test]
fn thresholds_hold_at_exact_page_counts() {
    let mut cache = PageCache::new(Config { pages: 1000, batch: 1, ..Config::default() });
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
    let mut cache = PageCache::new(Config { pages: 1000, batch: 64, ..Config::default() });
    let mut changes = Vec::new();
    for index in 0..101 {
        cache.write(T0, page(1, index), &mut changes);
    }
    assert_eq!(cache.demand(T0).background, 64);
}

#[test]
fn pages_on_their_way_hold_writers_up_but_are_not_asked_for_again() {
    let mut cache = PageCache::new(Config { pages: 1000, batch: 1, ..Config::default() });
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
    let config = Config { pages: 1000, background_percent: 40, foreground_percent: 40, ..Config::default() };
    assert_eq!((config.background_pages(), config.foreground_pages()), (200, 400));
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
    assert_eq!(out, [page(6, 0)], "what was told once is not told again");
}

#[test]
fn non_volatile_memory_never_expires() {
    let mut cache = PageCache::new(Config { expire_after: None, ..Config::default() });
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
