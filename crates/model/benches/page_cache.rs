//! What a request costs that the page cache answers, at a few hundred thousand pages.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use umbrella_model::allocator::{self, Ext2};
use umbrella_model::page_cache::{Access, PageCache, PageCacheConfig};
use umbrella_units::{FileId, Nanos, PageIndex, PageKey, SplitMix64};

const PAGES: u64 = 400_000;
const FILES: u64 = 400;

fn page(at: u64) -> PageKey {
    PageKey { file: FileId(at % FILES + 1), index: PageIndex(at / FILES) }
}

fn full() -> PageCache {
    let mut cache = PageCache::new(PageCacheConfig { pages: PAGES, ..PageCacheConfig::default() });
    let mut changes = Vec::new();
    for at in 0..PAGES {
        cache.fill(Nanos(0), page(at), &mut changes).expect("there is room");
    }
    cache
}

fn hits(c: &mut Criterion) {
    let mut group = c.benchmark_group("page_cache");
    group.throughput(Throughput::Elements(1));
    let mut changes = Vec::with_capacity(64);
    let mut one = |name: &str, step: &mut dyn FnMut(&mut PageCache, u64, &mut Vec<_>)| {
        let (mut cache, mut now) = (full(), 0);
        group.bench_function(name, |b| {
            b.iter(|| {
                changes.clear();
                now += 1;
                step(&mut cache, now, &mut changes);
            });
        });
    };
    let mut random = SplitMix64::new(1);
    one("read_hit_random", &mut |cache, now, changes| {
        black_box(cache.read(Nanos(now), page(random.below(PAGES)), changes));
    });
    let mut random = SplitMix64::new(2);
    one("write_hit_random", &mut |cache, now, changes| {
        black_box(cache.write(Nanos(now), page(random.below(PAGES)), changes));
    });
    one("write_hit_sequential", &mut |cache, now, changes| {
        let at = PageKey { file: FileId(now / 1000 % FILES + 1), index: PageIndex(now % 1000) };
        black_box(cache.write(Nanos(now), at, changes));
    });
    one("read_miss_and_fill_with_reclaim", &mut |cache, now, changes| {
        let at = PageKey { file: FileId(FILES + 1), index: PageIndex(now) };
        black_box(cache.read(Nanos(now), at, changes));
        cache.fill(Nanos(now), at, changes).expect("clean pages leave");
    });
    one("write_new_page_and_write_it_back", &mut |cache, now, changes| {
        let at = |now| PageKey { file: FileId(FILES + 1), index: PageIndex(now) };
        assert_ne!(cache.write(Nanos(now), at(now), changes), Access::Full);
        if now > 20_000 {
            cache.begin_write_back(at(now - 20_000));
            cache.complete_write_back(at(now - 20_000));
        }
        black_box(cache.demand(Nanos(now)));
    });
    group.finish();
}

fn allocating(c: &mut Criterion) {
    let mut group = c.benchmark_group("allocator");
    group.throughput(Throughput::Elements(1));
    let mut disk = Ext2::new(allocator::Ext2Config::default(), 1).expect("the size is good");
    let mut touched = Vec::with_capacity(64);
    for file in 2..10 {
        disk.create(FileId(file), Ext2::ROOT, &mut touched).expect("there is room");
    }
    let mut at = 0;
    group.bench_function("eight_writers_in_turn", |b| {
        b.iter(|| {
            touched.clear();
            at += 1;
            if at % 4_000_000 == 0 {
                for file in 2..10 {
                    disk.truncate(FileId(file), PageIndex(0), &mut touched).expect("it is there");
                }
            }
            disk.set_writer((at % 8) as u32);
            let index = PageIndex(at % 4_000_000 / 8);
            black_box(disk.allocate(FileId(2 + at % 8), index, &mut touched).expect("there is room"));
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hits(&mut criterion);
    allocating(&mut criterion);
    criterion.final_summary();
}
