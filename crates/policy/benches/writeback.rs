//! What the index of dirty pages costs with a million of them, for what each policy needs: time per event and per
//! selected page, and bytes per dirty page. Aims: 200 ns per dirty event, 64 bytes per page.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use umbrella_policy::writeback::{Event, WriteBack, policies};
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey, Pages};

const DIRTY: u64 = 1_000_000;
/// Events timed in a row, between which the index is brought back to [`DIRTY`] pages.
const BATCH: u64 = 50_000;
/// Blocks of 100 GiB.
const DISK: u64 = 26_214_400;

#[derive(Clone, Copy)]
enum Pattern {
    /// Blocks all over the disk, one file.
    Random,
    /// One run after another of 1,024 blocks, a file each.
    Sequential,
}

impl Pattern {
    /// Dirty page `n`; different for each `n` below the size of the disk.
    fn page(self, n: u64) -> (PageKey, BlockNo) {
        match self {
            Pattern::Random => {
                // An odd multiplier that shares no factor with the number of blocks visits every block once.
                let block = BlockNo(n.wrapping_mul(15_485_863) % DISK);
                (PageKey::device(block), block)
            }
            Pattern::Sequential => {
                let key = PageKey { file: FileId(1 + n / 1_024), index: PageIndex(n % 1_024) };
                (key, BlockNo(n + n / 1_024 * 3_072))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
        }
    }
}

/// A policy, and the pages from `first` to `next` dirty.
struct Run {
    policy: WriteBack,
    pattern: Pattern,
    first: u64,
    next: u64,
    now: Nanos,
}

impl Run {
    fn new(name: &str, pattern: Pattern) -> Run {
        let policy = WriteBack::parse(name).expect("the policy is in the registry");
        let mut run = Run { policy, pattern, first: 0, next: 0, now: Nanos(0) };
        run.dirty(DIRTY);
        run
    }

    fn dirty(&mut self, pages: u64) {
        for n in self.next..self.next + pages {
            let (page, block) = self.pattern.page(n);
            self.now = Nanos(self.now.0 + 20_000);
            self.policy.on(self.now, Event::Dirty { page, block, active: false });
        }
        self.next += pages;
    }

    fn clean(&mut self, pages: u64) {
        for n in self.first..self.first + pages {
            let (page, _) = self.pattern.page(n);
            self.policy.on(self.now, Event::Clean { page });
        }
        self.first += pages;
    }

    fn rewrite(&mut self, pages: u64) {
        for n in 0..pages {
            let (page, _) = self.pattern.page(self.first + n.wrapping_mul(7_919) % DIRTY);
            self.policy.on(self.now, Event::Rewrite { page });
        }
    }

    /// Times `iterations` of `work`, which is done in batches; `undo` brings the index back.
    fn time(&mut self, iterations: u64, work: fn(&mut Run, u64), undo: fn(&mut Run, u64)) -> Duration {
        let (mut left, mut time) = (iterations, Duration::ZERO);
        while left > 0 {
            let batch = left.min(BATCH);
            let start = Instant::now();
            work(self, batch);
            time += start.elapsed();
            undo(self, batch);
            left -= batch;
        }
        time
    }

    /// Times how long it takes to select `iterations` pages, 1,024 at a time; they are dirty again afterwards.
    fn time_select(&mut self, iterations: u64) -> Duration {
        let (mut left, mut time, mut out) = (iterations, Duration::ZERO, Vec::new());
        while left > 0 {
            out.clear();
            let start = Instant::now();
            self.policy.select(self.now, Pages(1_024), &mut out);
            let spent = start.elapsed();
            let taken = out.len() as u64;
            time += if taken > left { spent.mul_f64(left as f64 / taken as f64) } else { spent };
            left = left.saturating_sub(taken);
            for chosen in &out {
                self.policy.on(self.now, Event::Dirty { page: chosen.page, block: chosen.block, active: false });
            }
        }
        time
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    println!("bytes of index per dirty page, one million dirty");
    for info in policies() {
        for pattern in [Pattern::Random, Pattern::Sequential] {
            let memory = Run::new(info.name, pattern).policy.memory();
            let bytes = memory.total().0 as f64 / DIRTY as f64;
            println!("{:>20} {:>10}: {bytes:5.1}", info.name, pattern.name());
        }
    }
    for pattern in [Pattern::Random, Pattern::Sequential] {
        let mut group = criterion.benchmark_group(format!("writeback/{}", pattern.name()));
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1)).sample_size(10);
        for info in policies() {
            let mut run = Run::new(info.name, pattern);
            group.bench_function(BenchmarkId::new("dirty", info.name), |bencher| {
                bencher.iter_custom(|iterations| run.time(iterations, Run::dirty, Run::clean));
            });
            group.bench_function(BenchmarkId::new("clean", info.name), |bencher| {
                bencher.iter_custom(|iterations| run.time(iterations, Run::clean, Run::dirty));
            });
            group.bench_function(BenchmarkId::new("rewrite", info.name), |bencher| {
                bencher.iter_custom(|iterations| run.time(iterations, Run::rewrite, |_, _| {}));
            });
            group.bench_function(BenchmarkId::new("select", info.name), |bencher| {
                bencher.iter_custom(|iterations| run.time_select(iterations));
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
