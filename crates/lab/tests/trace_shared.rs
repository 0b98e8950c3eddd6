//! Real traces, if the variable UMBRELLA_TRACES names the folder that holds them: each gives its known figures, and a
//! trace's native file and its CSV are the same trace.

use std::path::{Path, PathBuf};

use umbrella_lab::trace::{self, Format, OpenOptions, Record, Strictness, Summary, TimeOrigin, TraceError};
use umbrella_units::{ByteSize, Nanos};

const MIB: f64 = (1 << 20) as f64;
const GIB: f64 = (1 << 30) as f64;

fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("UMBRELLA_TRACES").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("{test}: not run: set UMBRELLA_TRACES to the folder of the shared traces");
    }
    folder
}

fn read(folder: &Path, name: &str) -> (Vec<Record>, Summary) {
    let path = folder.join(name);
    // Times in ns or in ms: nobody can tell from the lines.
    let format = name.ends_with(".ascii.gz").then_some(Format::Ascii);
    let options = OpenOptions { format, ..OpenOptions::default() };
    trace::read_all(&path, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A row of the folder's index.
struct Known {
    name: &'static str,
    native: Option<&'static str>,
    records: u64,
    writes_percent: f64,
    discards: u64,
    read_mib: f64,
    written_mib: f64,
    length_s: (f64, f64),
    span_gib: f64,
    devices: usize,
    distinct_mib: f64,
    rewrites: f64,
    gaps: u64,
    longest_gap_s: Option<(f64, f64)>,
}

const HOUR: f64 = 3600.0;

const KNOWN: &[Known] = &[
    Known {
        name: "msr_rsrch_1_week",
        native: Some("msr.csv.gz"),
        records: 13_780,
        writes_percent: 99.7,
        discards: 0,
        read_mib: 1.0,
        written_mib: 163.0,
        length_s: (160.2 * HOUR, 0.05 * HOUR),
        span_gib: 178.0,
        devices: 1,
        distinct_mib: 112.4,
        rewrites: 1.47,
        gaps: 80,
        longest_gap_s: Some((23.0 * HOUR, 0.05 * HOUR)),
    },
    Known {
        name: "msr_wdev_1_week",
        native: Some("msr.csv.gz"),
        records: 1_055,
        writes_percent: 100.0,
        discards: 0,
        read_mib: 0.0,
        written_mib: 5.0,
        length_s: (165.3 * HOUR, 0.05 * HOUR),
        span_gib: 51.0,
        devices: 1,
        distinct_mib: 1.4,
        rewrites: 3.67,
        gaps: 94,
        longest_gap_s: Some((4.0 * HOUR, 0.05 * HOUR)),
    },
    Known {
        name: "msr_wdev_3_week",
        native: Some("msr.csv.gz"),
        records: 682,
        writes_percent: 98.4,
        discards: 0,
        read_mib: 1.0,
        written_mib: 3.0,
        length_s: (165.8 * HOUR, 0.05 * HOUR),
        span_gib: 34.0,
        devices: 1,
        distinct_mib: 0.5,
        rewrites: 10.5,
        gaps: 88,
        longest_gap_s: Some((4.0 * HOUR, 0.05 * HOUR)),
    },
    Known {
        name: "msr_hm_1_writes90h",
        native: Some("msr.csv.gz"),
        records: 13_069,
        writes_percent: 100.0,
        discards: 0,
        read_mib: 0.0,
        written_mib: 264.0,
        length_s: (90.1 * HOUR, 0.05 * HOUR),
        span_gib: 25.0,
        devices: 1,
        distinct_mib: 86.8,
        rewrites: 3.06,
        gaps: 190,
        longest_gap_s: Some((7.9 * HOUR, 0.05 * HOUR)),
    },
    Known {
        name: "msr_cut_80w_243s",
        native: None,
        records: 10_000,
        writes_percent: 79.8,
        discards: 0,
        read_mib: 4.0,
        written_mib: 49.0,
        length_s: (243.0, 0.5),
        span_gib: 14.0,
        devices: 1,
        distinct_mib: 22.7,
        rewrites: 2.45,
        gaps: 0,
        longest_gap_s: None,
    },
    Known {
        name: "umass_financial1_head10k",
        native: Some("ascii.gz"),
        records: 10_000,
        writes_percent: 59.2,
        discards: 0,
        read_mib: 24.0,
        written_mib: 28.0,
        length_s: (260.0, 0.5),
        span_gib: 0.5,
        devices: 22,
        distinct_mib: 14.6,
        rewrites: 3.32,
        gaps: 0,
        longest_gap_s: None,
    },
    Known {
        name: "ycsb_rocksdb_1",
        native: Some("iotrace.csv.gz"),
        records: 64_420,
        writes_percent: 99.6,
        discards: 231,
        read_mib: 0.0,
        written_mib: 7_978.0,
        length_s: (24.7, 0.05),
        span_gib: 175.0,
        devices: 1,
        distinct_mib: 1_703.0,
        rewrites: 4.68,
        gaps: 0,
        longest_gap_s: None,
    },
    Known {
        name: "ycsb_rocksdb_2",
        native: Some("iotrace.csv.gz"),
        records: 64_514,
        writes_percent: 99.6,
        discards: 232,
        read_mib: 0.0,
        written_mib: 7_989.0,
        length_s: (29.8, 0.05),
        span_gib: 349.0,
        devices: 1,
        distinct_mib: 1_760.0,
        rewrites: 4.54,
        gaps: 0,
        longest_gap_s: None,
    },
    Known {
        name: "java_fs_ext4",
        native: Some("blkparse.txt.gz"),
        records: 9_886,
        writes_percent: 8.6,
        discards: 0,
        read_mib: 999.0,
        written_mib: 240.0,
        length_s: (13.5 * 60.0, 3.0),
        span_gib: 8.0,
        devices: 1,
        distinct_mib: 239.8,
        rewrites: 1.00,
        gaps: 3,
        longest_gap_s: Some((100.0, 0.5)),
    },
];

/// Collects what differs, so that one run shows all of it.
struct Differences(Vec<String>);

impl Differences {
    fn near(&mut self, what: &str, ours: f64, known: f64, tolerance: f64) {
        if (ours - known).abs() > tolerance {
            self.0.push(format!("{what}: {ours}, known: {known}"));
        }
    }
}

#[test]
fn the_figures_of_each_shared_trace_are_those_of_its_index() {
    let Some(folder) = folder("figures") else { return };
    let mut all = Vec::new();
    for known in KNOWN {
        let (_, summary) = read(&folder, &format!("{}.csv.gz", known.name));
        let mut found = Differences(Vec::new());
        let page_mib = |pages: u64| pages as f64 * 4096.0 / MIB;
        found.near("records", summary.records as f64, known.records as f64, 0.0);
        found.near("% writes", summary.writes as f64 * 100.0 / summary.records as f64, known.writes_percent, 0.05);
        found.near("discards", summary.discards as f64, known.discards as f64, 0.0);
        found.near("MiB read", summary.read.0 as f64 / MIB, known.read_mib, 0.5);
        found.near("MiB written", summary.written.0 as f64 / MIB, known.written_mib, 0.5);
        found.near("length", summary.length.as_secs_f64(), known.length_s.0, known.length_s.1);
        found.near(
            "GiB span",
            summary.devices.iter().map(|device| device.end.0).max().unwrap_or(0) as f64 / GIB,
            known.span_gib,
            0.5,
        );
        found.near("devices", summary.devices.len() as f64, known.devices as f64, 0.0);
        found.near(
            "distinct MiB",
            page_mib(summary.distinct_pages_written),
            known.distinct_mib,
            if known.distinct_mib > 1000.0 { 0.5 } else { 0.05 },
        );
        found.near("rewrites", summary.rewrites(), known.rewrites, if known.rewrites > 10.0 { 0.05 } else { 0.005 });
        found.near("gaps", summary.idle.over_60_s as f64, known.gaps as f64, 0.0);
        if let Some((longest, tolerance)) = known.longest_gap_s {
            found.near("longest gap", summary.idle.longest.as_secs_f64(), longest, tolerance);
        }
        all.extend(found.0.into_iter().map(|text| format!("{}: {text}", known.name)));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The CSV has whole microseconds.
fn rounded(records: &[Record]) -> Vec<Record> {
    records.iter().map(|record| Record { time: Nanos((record.time.0 + 500) / 1000 * 1000), ..*record }).collect()
}

#[test]
fn a_native_file_and_its_csv_are_the_same_trace() {
    let Some(folder) = folder("native files") else { return };
    let known = KNOWN.iter().filter_map(|known| Some((known.name, known.native?)));
    for (name, native) in known.chain([("hplajw_1992_week", "srt.gz")]) {
        let (csv, _) = read(&folder, &format!("{name}.csv.gz"));
        let (native, _) = read(&folder, &format!("{name}.{native}"));
        assert_eq!(csv.len(), native.len(), "{name}");
        for (number, (csv, native)) in csv.iter().zip(rounded(&native)).enumerate() {
            assert!(csv.time.0.abs_diff(native.time.0) <= 1000, "{name}, record {number}: {csv:?} {native:?}");
            let native = Record { time: csv.time, ..native };
            assert_eq!(*csv, native, "{name}, record {number}");
        }
    }
}

#[test]
fn the_record_with_the_corrupt_time_is_counted_or_is_an_error() {
    let Some(folder) = folder("corrupt time") else { return };
    let path = folder.join("java_fs_ext4.blkparse.txt.gz");
    let mut reader = trace::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 9_886);
    assert_eq!(reader.skipped().times, 1);
    assert_eq!(reader.skipped().total(), 1);
    let strict = OpenOptions { strictness: Strictness::Strict, ..OpenOptions::default() };
    let error = trace::open(&path, &strict).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(error, TraceError::TimeJump { .. }), "{error}");
}

#[test]
fn times_can_be_had_as_they_were_recorded() {
    let Some(folder) = folder("recorded times") else { return };
    let options = OpenOptions { origin: TimeOrigin::AsRecorded, ..OpenOptions::default() };
    let first = trace::open(folder.join("msr_wdev_1_week.msr.csv.gz"), &options).unwrap().next().unwrap().unwrap();
    assert_eq!(first.time, Nanos(12_816_641_031_806_099_900));
    assert_eq!(first.offset, ByteSize(3_165_323_264));
}
