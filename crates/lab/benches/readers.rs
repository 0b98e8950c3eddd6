//! How fast traces are read: requests a second, and bytes a second of the text, of one core's time whatever else runs.

#![allow(missing_docs, reason = "criterion's macro makes a public function without any")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use umbrella_lab::trace::{Devices, Format, OpenOptions, Record, TraceOp, Writer, from_reader};
use umbrella_units::{ByteSize, Nanos, SplitMix64};

const RECORDS: u64 = 200_000;

/// Requests of two disks as recorders see them: times with a fraction of a microsecond, some of them swapped.
fn records() -> Vec<Record> {
    let mut random = SplitMix64::new(1);
    let mut time = 0;
    (0..RECORDS)
        .map(|_| {
            time += random.next_u64() % 400_000;
            Record {
                time: Nanos(time + 2_000_000 - random.next_u64() % 2_000_000),
                device: random.next_u64().is_multiple_of(8).into(),
                op: if random.next_u64().is_multiple_of(3) { TraceOp::Read } else { TraceOp::Write },
                offset: ByteSize(random.next_u64() % (1 << 31) * 512),
                size: ByteSize((1 + random.next_u64() % 32) * 4096),
            }
        })
        .collect()
}

fn written(format: Format) -> &'static [u8] {
    let mut writer = Writer::new(Vec::new(), format).expect("the format can be written");
    for record in records() {
        let device = if format == Format::Vscsi { 0 } else { record.device };
        writer.write(&Record { device, ..record }, &Devices::default()).expect("the record can be written");
    }
    writer.finish().expect("memory takes it").leak()
}

/// What this thread has had of it.
fn processor_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    Duration::from_nanos(times.split(' ').next().and_then(|time| time.parse().ok()).expect("nanoseconds"))
}

fn readers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("readers");
    group.sample_size(15).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(4));
    for format in [Format::Csv, Format::Msr, Format::Spc, Format::Vscsi, Format::Parquet] {
        let bytes = written(format);
        let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
        println!("{format}: {} bytes, {RECORDS} requests", bytes.len());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format.name(), |bencher| {
            bencher.iter_custom(|rounds| {
                let before = processor_time();
                for _ in 0..rounds {
                    let reader = from_reader(bytes, &options).expect("it is a trace");
                    black_box(reader.fold(0u64, |sum, record| sum ^ record.expect("it is whole").offset.0));
                }
                processor_time().saturating_sub(before)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, readers);
criterion_main!(benches);
