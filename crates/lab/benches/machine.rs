//! What a request costs: one that the page cache serves, and one that reaches the modelled disk.

#![allow(missing_docs, reason = "criterion's macro makes a public function without any")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use umbrella_lab::machine::{Computer, Config, Layout};
use umbrella_lab::result::Setting;
use umbrella_lab::workload::{ClientId, FileOperation, Workload};
use umbrella_model::device::profiles::{Options, profile};
use umbrella_model::page_cache::PageCacheConfig;
use umbrella_model::scheduler::scheduler;
use umbrella_policy::writeback::WriteBack;
use umbrella_units::{ByteSize, FileId, Nanos, PAGE_BYTES, SplitMix64};

const REQUESTS: u64 = 1_000_000;

/// Requests of one page at pseudo-random places, from one client.
struct Requests {
    left: u64,
    random: SplitMix64,
    pages: u64,
    write: bool,
}

impl Workload for Requests {
    fn next(&mut self, _client: ClientId, _now: Nanos) -> Option<FileOperation> {
        self.left = self.left.checked_sub(1)?;
        let page = self.random.below(self.pages);
        let (file, offset, size) = (FileId::DEVICE, ByteSize(page * PAGE_BYTES), ByteSize(PAGE_BYTES));
        Some(if self.write {
            FileOperation::Write { file, offset, size }
        } else {
            FileOperation::Read { file, offset, size }
        })
    }
}

fn requests(pages: u64, write: bool) -> Requests {
    Requests { left: REQUESTS, random: SplitMix64::new(1), pages, write }
}

fn run(policy: &str, memory_pages: u64, requests: Requests) {
    let cache = PageCacheConfig { pages: memory_pages, ..PageCacheConfig::default() };
    let config = Config { cache, ..Config::default() };
    let disk = profile("deskstar_500gb").expect("a profile").build(&Options::default());
    let elevator = scheduler("elevator").expect("a scheduler");
    let policy = WriteBack::parse(policy).expect("a policy");
    let machine =
        Computer::new(config, Layout::Device, policy, disk, |disk| elevator.build(disk, 128)).expect("a machine");
    let mut requests = requests;
    black_box(machine.run(Setting::default(), &mut requests, &mut |_| true).expect("an outcome"));
}

fn cost(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    group.sample_size(10).throughput(Throughput::Elements(REQUESTS));
    for policy in ["file", "zone_segment", "cscan", "sweep"] {
        // 64 MiB of hot pages in 1 GiB: below the background threshold, so nothing but the last pages reaches the disk.
        group.bench_function(format!("cache only, {policy}"), |b| {
            b.iter(|| run(policy, 262_144, requests(16_384, true)));
        });
        // 16 GiB of pages in 64 MiB: nearly every write makes the disk write one.
        group.bench_function(format!("to disk, {policy}"), |b| {
            b.iter(|| run(policy, 16_384, requests(1 << 22, true)));
        });
    }
    group.bench_function("reads from disk", |b| {
        b.iter(|| run("file", 16_384, requests(1 << 22, false)));
    });
    group.finish();
}

criterion_group!(benches, cost);
criterion_main!(benches);
