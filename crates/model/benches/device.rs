//! How many requests a second the device models serve on one core.

// The macro makes a public function.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use umbrella_model::device::profiles::{Options, profile};
use umbrella_model::device::{Completion, Device, Op, Request, RequestId};
use umbrella_model::scheduler::scheduler;
use umbrella_units::{Lba, Nanos, SplitMix64};

/// A client that keeps `depth` requests of 4 KiB under way, at random places or one behind the other.
struct Client {
    device: Box<dyn Device>,
    op: Op,
    /// Where it asks; one block after the other when `None`.
    random: Option<SplitMix64>,
    depth: usize,
    now: Nanos,
    under_way: usize,
    asked: u64,
    done: Vec<Completion>,
}

impl Client {
    fn new(device: Box<dyn Device>, op: Op, random: bool, depth: usize) -> Client {
        Client {
            device,
            op,
            random: random.then(|| SplitMix64::new(1)),
            depth,
            now: Nanos(0),
            under_way: 0,
            asked: 0,
            done: Vec::new(),
        }
    }

    fn place(&mut self) -> Lba {
        let blocks = self.device.capacity().0 / 8;
        self.asked += 1;
        let block = match &mut self.random {
            Some(random) => random.below(blocks),
            None => self.asked % blocks,
        };
        Lba(block * 8)
    }

    fn run(&mut self, count: u64) {
        let mut completed = 0;
        while completed < count {
            while self.under_way < self.depth && self.device.room() > 0 {
                let lba = self.place();
                self.device.submit(self.now, Request { id: RequestId(self.asked), op: self.op, lba, sectors: 8 });
                self.under_way += 1;
            }
            let Some(at) = self.device.next_event() else { return };
            self.device.advance(at, &mut self.done);
            self.now = at;
            self.under_way -= self.done.len();
            completed += black_box(&mut self.done).drain(..).count() as u64;
        }
    }
}

fn devices(criterion: &mut Criterion) {
    const COUNT: u64 = 10_000;
    let mut group = criterion.benchmark_group("device");
    group.throughput(Throughput::Elements(COUNT));
    let cases = [
        ("deskstar_500gb", Op::Read, true, 1),
        ("deskstar_500gb", Op::Read, true, 8),
        ("deskstar_500gb", Op::Read, true, 32),
        ("deskstar_500gb", Op::Read, false, 1),
        ("deskstar_500gb", Op::Write, true, 1),
        ("deskstar_500gb", Op::Write, false, 1),
        ("cheetah_10k7", Op::Write, true, 1),
        ("slc_memoright", Op::Write, true, 1),
        ("raid5", Op::Write, true, 8),
    ];
    for (name, op, random, depth) in cases {
        let device = profile(name).expect("a known profile").build(&Options::default());
        let mut client = Client::new(device, op, random, depth);
        let order = if random { "random" } else { "sequential" };
        group.bench_function(format!("{name}/{order} {op:?}/depth {depth}"), |bencher| {
            bencher.iter(|| client.run(COUNT));
        });
    }
    for name in ["noop", "deadline", "elevator"] {
        let device = profile("maxtor_80gb").expect("a known profile").build(&Options::default());
        let device = scheduler(name).expect("a known scheduler").build(device, 128);
        let mut client = Client::new(device, Op::Read, true, 64);
        group.bench_function(format!("{name}/random Read/depth 64"), |bencher| bencher.iter(|| client.run(COUNT)));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(std::time::Duration::from_secs(2)).warm_up_time(std::time::Duration::from_millis(300));
    targets = devices
}
criterion_main!(benches);
