//! What a block written to the simulated log-structured store costs, cleaning included.

#![allow(missing_docs, reason = "criterion's macro makes a public function without any")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use umbrella_lab::experiment::Cell;
use umbrella_lab::log_store::{LogInput, LogSetup, Percent};
use umbrella_lab::workload::Seed;
use umbrella_policy::log_layout::{Victim, schemes};
use umbrella_units::Pages;

const DATA: Pages = Pages(1 << 17);

fn cost(c: &mut Criterion) {
    let mut group = c.benchmark_group("log store, block writes");
    group.sample_size(10);
    let input = Arc::new(LogInput::zipf(0.99, DATA, 1 << 20, Seed(1)).expect("an input"));
    for info in schemes() {
        let setup = LogSetup {
            scheme: info.name.to_owned(),
            victim: Victim::CostBenefit,
            utilisation: Percent(80),
            segment_blocks: None,
        };
        let cell = Cell { input: Arc::clone(&input), machine: setup };
        let outcome = cell.run(&mut |_| true).expect("it runs").expect("to its end");
        // The first writing of the data counts as well.
        group.throughput(Throughput::Elements(outcome.written.0 + DATA.0));
        group.bench_function(info.name, |b| b.iter(|| black_box(cell.run(&mut |_| true))));
    }
    group.finish();
}

criterion_group!(benches, cost);
criterion_main!(benches);
