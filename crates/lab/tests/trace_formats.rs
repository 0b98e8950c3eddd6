//! Every format: its fixture holds the expected records, written traces can be read back, and bad input leads to a
//! report and nothing worse.

#[path = "fixtures/list.rs"]
mod list;

use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use umbrella_lab::trace::{
    self, Compression, Devices, Encoder, Event, Format, MAX_LINE, OpenOptions, Order, Problem, Record, Skipped,
    Strictness, Summary, TimeOrigin, TraceError, TraceOp, TraceReader, Unwritable, WriteError, Writer,
};
use umbrella_units::{ByteSize, Nanos};

use self::list::FIXTURES;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn at(micros: u64, op: TraceOp, offset: u64, size: u64) -> Record {
    Record { time: Nanos::from_micros(micros), device: 0, op, offset: ByteSize(offset), size: ByteSize(size) }
}

/// What all fixtures hold.
fn sample() -> Vec<Record> {
    use TraceOp::{Read, Write};
    vec![
        at(0, Write, 1 << 20, 4096),
        at(250, Write, (1 << 20) + 4096, 8192),
        at(1_000, Read, 0, 512),
        at(1_500, Write, (1 << 20) + 512, 1024),
        at(70_000_000, Write, 1 << 32, 65_536),
        at(70_000_100, Read, 1 << 20, 4096),
    ]
}

/// The same at the resolution of a format's clock.
fn sample_of(format: Format) -> Vec<Record> {
    at_resolution(&sample(), resolution(format))
}

/// The nanoseconds that a format's clock tells apart.
fn resolution(format: Format) -> u64 {
    match format {
        Format::Msr => 100,
        Format::Fio3 | Format::Vscsi | Format::Srt | Format::Alibaba | Format::Biosnoop => 1_000,
        Format::Fio2 => 1_000_000,
        Format::Tencent => 1_000_000_000,
        _ => 1,
    }
}

fn at_resolution(records: &[Record], nanos: u64) -> Vec<Record> {
    records.iter().map(|record| Record { time: Nanos(record.time.0 / nanos * nanos), ..*record }).collect()
}

fn from_bytes(bytes: &[u8], options: &OpenOptions) -> Result<TraceReader, TraceError> {
    trace::from_reader(Cursor::new(bytes.to_vec()), options)
}

fn read(bytes: &[u8], options: &OpenOptions) -> Result<Vec<Record>, TraceError> {
    from_bytes(bytes, options)?.collect()
}

/// The options to read a fixture: a format with times in ns or in ms must be named.
fn options_of(format: Format) -> OpenOptions {
    let format = (format == Format::Ascii).then_some(format);
    OpenOptions { format, ..OpenOptions::default() }
}

fn is_text(format: Format) -> bool {
    ![Format::Vscsi, Format::Srt, Format::Blktrace, Format::Parquet].contains(&format)
}

fn read_lenient(bytes: &[u8]) -> (Vec<Record>, Skipped) {
    let options = OpenOptions { strictness: Strictness::Lenient, ..OpenOptions::default() };
    let mut reader = from_bytes(bytes, &options).unwrap();
    (reader.by_ref().map(Result::unwrap).collect(), reader.skipped())
}

fn error(bytes: &[u8]) -> TraceError {
    read(bytes, &OpenOptions::default()).expect_err("the input is bad")
}

fn compress(bytes: &[u8], compression: Compression) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), compression).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_fixture_is_recognised_by_its_content_and_holds_the_same_records() {
    for (name, format) in FIXTURES {
        let mut reader = trace::open(fixture(name), &options_of(format)).unwrap();
        assert_eq!(reader.format(), format, "{name}");
        let records: Vec<Record> =
            reader.by_ref().collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(records, sample_of(format), "{name}");
        assert_eq!(reader.skipped().total(), 0, "{name}");
        assert_eq!(reader.devices().len(), 1, "{name}");
    }
}

#[test]
fn a_named_format_is_read_as_such() {
    for (name, format) in FIXTURES {
        let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
        assert_eq!(trace::read_all(fixture(name), &options).unwrap().0, sample_of(format), "{name}");
    }
}

#[test]
fn compressed_traces_are_read_whatever_they_are_called() {
    for (name, format) in FIXTURES {
        let plain = std::fs::read(fixture(name)).unwrap();
        for compression in [Compression::Gzip, Compression::Zstd] {
            let packed = compress(&plain, compression);
            assert_eq!(read(&packed, &options_of(format)).unwrap(), sample_of(format), "{name}, {compression}");
            let twice = [compress(&plain[..33], compression), compress(&plain[33..], compression)].concat();
            assert_eq!(
                read(&twice, &options_of(format)).unwrap(),
                sample_of(format),
                "{name}, {compression}, two parts"
            );
        }
    }
}

#[test]
fn any_event_of_blkparse_can_be_chosen() {
    for (event, delay) in [(Event::Queue, 0), (Event::Insert, 500), (Event::Issue, 900), (Event::Complete, 90_000)] {
        let options = OpenOptions { event, origin: TimeOrigin::AsRecorded, ..OpenOptions::default() };
        let (records, _) = trace::read_all(fixture("sample.blkparse.txt"), &options).unwrap();
        assert_eq!(records.len(), 6, "{event:?}");
        assert_eq!(records[0].time, Nanos(5_000 + delay), "{event:?}");
    }
}

#[test]
fn any_event_of_a_binary_recording_can_be_chosen() {
    for (event, delay) in [(Event::Queue, 0), (Event::Issue, 900), (Event::Complete, 90_000)] {
        let options = OpenOptions { event, origin: TimeOrigin::AsRecorded, ..OpenOptions::default() };
        let (records, _) = trace::read_all(fixture("sample.blktrace"), &options).unwrap();
        assert_eq!(records.len(), 6, "{event:?}");
        assert_eq!(records[0].time, Nanos(6_000 - 1_000 + delay), "{event:?}");
    }
}

/// The events of a recording.
fn events(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut events, mut rest) = (Vec::new(), bytes);
    while let Some(data) = rest.get(46..48) {
        let (event, after) = rest.split_at(48 + usize::from(u16::from_le_bytes(data.try_into().unwrap())));
        events.push(event);
        rest = after;
    }
    events
}

#[test]
fn the_files_of_all_processors_are_one_recording() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(fixture("sample.blktrace")).unwrap();
    let write = |name: &str, of: &dyn Fn(usize) -> bool| {
        let part: Vec<u8> = events(&bytes)
            .iter()
            .enumerate()
            .filter(|(nth, _)| of(*nth))
            .flat_map(|(_, event)| event.to_vec())
            .collect();
        let packed = if name.contains(".gz") { compress(&part, Compression::Gzip) } else { part };
        std::fs::write(folder.path().join(name), packed).unwrap();
    };
    // The last processor saw nothing.
    write("sda.blktrace.0", &|nth| nth % 3 == 0);
    write("sda.blktrace.1.gz", &|nth| nth % 3 == 1);
    write("sda.blktrace.10", &|nth| nth % 3 == 2);
    write("sda.blktrace.11", &|_| false);
    write("sdb.blktrace.0", &|nth| nth == 1);
    for name in ["sda.blktrace.0", "sda.blktrace.1.gz", "sda.blktrace.11"] {
        let (records, _) = trace::read_all(folder.path().join(name), &OpenOptions::default()).unwrap();
        assert_eq!(records, sample(), "{name}");
    }
    let (records, _) = trace::read_all(folder.path().join("sdb.blktrace.0"), &OpenOptions::default()).unwrap();
    assert_eq!(records.len(), 1);
    // A file that a kill cut short is reported, and hides nothing of the others.
    let whole = std::fs::read(folder.path().join("sda.blktrace.0")).unwrap();
    std::fs::write(folder.path().join("sda.blktrace.0"), &whole[..100]).unwrap();
    let path = folder.path().join("sda.blktrace.10");
    let error = trace::read_all(&path, &OpenOptions::default()).unwrap_err();
    assert!(matches!(error, TraceError::Malformed { problem: Problem::CutRecord { .. }, .. }), "{error}");
    let lenient = OpenOptions { strictness: Strictness::Lenient, ..OpenOptions::default() };
    let (records, summary) = trace::read_all(&path, &lenient).unwrap();
    assert_eq!(summary.skipped.malformed, 1);
    assert_eq!(records.len(), 3, "{records:?}");
}

#[test]
fn what_is_no_binary_record_ends_a_trace_and_is_reported() {
    for (name, format, damage) in [("sample.blktrace", Format::Blktrace, 60), ("sample.srt", Format::Srt, 211)] {
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        bytes[damage..damage + 4].fill(0xff);
        let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
        let error = read(&bytes, &options).unwrap_err();
        assert!(matches!(error, TraceError::Malformed { problem: Problem::NoRecord { .. }, .. }), "{name}: {error}");
        let (_, skipped) = read_lenient(&bytes);
        assert_eq!(skipped.malformed, 1, "{name}");
    }
}

#[test]
fn what_a_request_of_biosnoop_waited_is_taken_off_its_time() {
    let text = "0.1 sh 1 sda R 8 512 200.0\n1.0 sh 1 sda W 8 512 100.0 200.0\n1.0 a b c 1 sdb WS 8 512 0.0\n";
    let options = OpenOptions { origin: TimeOrigin::AsRecorded, ..OpenOptions::default() };
    let times: Vec<u64> = read(text.as_bytes(), &options).unwrap().iter().map(|record| record.time.0).collect();
    assert_eq!(times, [0, 700_000_000, 1_000_000_000]);
}

#[test]
fn a_blkparse_trace_without_queued_requests_is_taken_by_its_issued_ones() {
    let text = std::fs::read_to_string(fixture("sample.blkparse.txt")).unwrap();
    let without: String =
        text.lines().filter(|line| !line.contains("  Q ")).fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(read(without.as_bytes(), &OpenOptions::default()).unwrap(), sample());
}

/// The reader's answer to one line of blkparse after one that is a request.
fn after_a_request(line: &str) -> Result<usize, TraceError> {
    let event = line.split_whitespace().nth(5).unwrap_or("Q");
    let event = if ["D", "I", "C"].contains(&event) { event } else { "Q" };
    let text = format!("  8,0 0 1 0.000000001 77 {event} W 2048 + 8 [x]\n{line}\n");
    read(text.as_bytes(), &OpenOptions::default()).map(|records| records.len())
}

#[test]
fn what_blkparse_prints_beside_requests_is_read_over() {
    for line in [
        // Flushes, without sectors.
        "8,0 0 1 0.0 77 C FWS 0 [0]",
        "8,0 0 1 0.0 77 D FWS [kworker/0:1H]",
        "8,0 0 1 0.0 77 Q FN [x]",
        "8,0 0 1 0.0 77 C FN 0 [65531]",
        "8,0 0 1 0.0 77 C FWS 0 (    1000) [0]",
        "8,0 0 1 0.0 77 D FWS (   36000) [a [b + 3]",
        "8,0 0 1 0.0 77 C FF 18446744073709551615 [0]",
        // Requests of nothing.
        "8,0 0 1 0.0 77 C WS 100 [0]",
        "8,0 0 1 0.0 77 Q R [x]",
        "8,0 0 1 0.0 77 Q R 0 + 0 [x]",
        // Commands that pass the file system by.
        "8,0 0 1 0.0 77 D R 512 (85 08 ..) [smartctl]",
        "8,0 0 1 0.0 77 I W 512 (85 08 0e 00 ..) [smartctl]",
        "8,0 0 1 0.0 77 C R (85 08 ..) [0]",
        "8,0 0 1 0.0 77 C N (00 ..) [0]",
        "8,0 0 1 0.0 77 D R 512 [smartctl]",
        "8,0 0 1 0.0 77 D N 0 [smartctl]",
        "8,0 0 1 0.0 77 C R [0]",
        // Other events.
        "8,0 0 1 0.0 77 R FWS 0 [0]",
        "8,0 0 1 0.0 77 X W 2048 / 2052 [x]",
        "8,0 0 1 0.0 77 UT N [x] 3",
        "8,1 0 1 0.0 77 A W 4096 + 8 <- (8,0) 2048",
        "8,0 0 0 0.0 0 m N cfq1234 alloced, 8,0 Q W 5 + 8 [x]",
        // What is around them.
        "Input file sda.blktrace.0 added",
        "smartd (77)\n Reads Queued: 1, 4KiB\nkworker/0:1 x (78, ...)\n Reads Queued: 1, 4KiB",
        "CPU0 (8,0):\n Reads Queued: 1, 4KiB\n\nTotal (8,0):\n Reads Queued: 1, 4KiB",
        "Throughput (R/W): 0KiB/s / 0KiB/s\nEvents (sda): 184 entries\nSkips: 0 forward (0 -   0.0%)",
        "discarded traces containing low-level device driver specific data (only available in binary output)",
    ] {
        assert!(matches!(after_a_request(line), Ok(1)), "{line}: {:?}", after_a_request(line));
    }
    assert!(matches!(after_a_request("8,0 0 1 0.0 77 Q DE 8 + 8 [x]"), Ok(2)), "a secure erase is a discard");
}

#[test]
fn a_request_of_blkparse_that_is_cut_short_is_no_request_without_data() {
    for line in
        ["8,0 0 1 0.0 77 Q W 2048", "8,0 0 1 0.0 77 Q W 2048 +", "8,0 0 1 0.0 77 Q W 2048 8 [x]", "8,0 0 1 0.0 77 Q"]
    {
        assert!(matches!(after_a_request(line), Err(TraceError::Malformed { .. })), "{line}");
    }
}

#[test]
fn requests_of_systor_whose_kind_nobody_knows_are_skipped() {
    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1455592522.029174,0.000272,R,0,1113260032,4096\n\
                1455592522.029175,,,0,0,512\n1455592523.029174,0.000272,W,4,0,512\n";
    let records = read(text.as_bytes(), &OpenOptions::default()).unwrap();
    let write = Record { device: 1, ..at(1_000_000, TraceOp::Write, 0, 512) };
    assert_eq!(records, [at(0, TraceOp::Read, 1_113_260_032, 4096), write]);
    assert!(matches!(
        error(b"1455592522.5,0.1,R,0,0,512\n1455592522.5,0.1,D,0,0,512\n"),
        TraceError::Malformed { problem: Problem::UnknownOp { .. }, .. }
    ));
}

#[test]
fn waits_of_fio_that_fio_skips_are_skipped() {
    let text = "fio version 3 iolog\n5 f write 0 512\n7 f wait 9 0\n8 f wait\n10 f read 0 512\n";
    assert_eq!(
        read(text.as_bytes(), &OpenOptions::default()).unwrap(),
        [at(0, TraceOp::Write, 0, 512), at(5, TraceOp::Read, 0, 512)]
    );
    let text = "fio version 2 iolog\nf wait\nf wait 9\nf write 0 512\nf wait 3 0\nf read 0 512\n";
    assert_eq!(
        read(text.as_bytes(), &OpenOptions::default()).unwrap(),
        [at(0, TraceOp::Write, 0, 512), at(3_000, TraceOp::Read, 0, 512)]
    );
}

#[test]
fn a_summary_counts_what_the_sample_holds() {
    let (_, summary) = trace::read_all(fixture("sample.csv"), &OpenOptions::default()).unwrap();
    assert_eq!((summary.records, summary.writes, summary.reads, summary.discards), (6, 4, 2, 0));
    assert_eq!((summary.written, summary.read), (ByteSize(4096 + 8192 + 1024 + 65_536), ByteSize(4608)));
    assert_eq!(summary.length, Nanos::from_micros(70_000_100));
    assert_eq!((summary.page_writes, summary.partial_page_writes, summary.distinct_pages_written), (20, 1, 19));
    assert_eq!(summary.sequential_writes, 1);
    assert_eq!(summary.idle.over_60_s, 1);
    assert_eq!(summary.idle.longest, Nanos::from_micros(69_998_500));
    assert_eq!(summary.span(), ByteSize((1 << 32) + 65_536));
    assert_eq!(summary.devices[0].name, "disk0");
    assert_eq!((summary.write_sizes.min, summary.write_sizes.max), (ByteSize(1024), ByteSize(65_536)));
    assert_eq!(&summary.write_sizes.up_to_512_doubling[..8], [0, 1, 0, 1, 1, 0, 0, 1]);
}

/// Records that all writers can hold: sectors, microseconds, no discards.
fn plain_records() -> impl Strategy<Value = Vec<Record>> {
    let one = (0u64..5_000_000_000, any::<bool>(), 0u64..1 << 40, 0u64..2048);
    prop::collection::vec(one, 1..60).prop_map(|parts| {
        let mut time = None;
        parts
            .into_iter()
            .map(|(gap, write, sector, sectors)| {
                time = Some(time.map_or(0, |time| time + gap));
                let op = if write { TraceOp::Write } else { TraceOp::Read };
                at(time.unwrap_or(0), op, sector * 512, sectors * 512)
            })
            .collect()
    })
}

fn write(records: &[Record], format: Format) -> Result<Vec<u8>, WriteError> {
    let mut writer = Writer::new(Vec::new(), format)?;
    for record in records {
        writer.write(record, &Devices::default())?;
    }
    writer.finish()
}

/// Devices numbered by first appearance, as a reader numbers them.
fn renumbered(mut records: Vec<Record>) -> Vec<Record> {
    let mut seen = Vec::new();
    for record in &mut records {
        if !seen.contains(&record.device) {
            seen.push(record.device);
        }
        record.device = seen.iter().position(|device| *device == record.device).unwrap() as u32;
    }
    records
}

proptest! {
    #[test]
    fn records_written_in_any_format_are_read_back(records in plain_records()) {
        for format in Format::writable() {
            let bytes = write(&records, format).unwrap();
            let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
            let expected = at_resolution(&records, resolution(format));
            prop_assert_eq!(&read(&bytes, &options).unwrap(), &expected, "{}", format);
            prop_assert_eq!(&read(&bytes, &OpenOptions::default()).unwrap(), &expected, "{}, recognised by content", format);
        }
    }

    #[test]
    fn formats_with_devices_keep_them(records in plain_records(), devices in prop::collection::vec(0u32..12, 60)) {
        let records = records.into_iter().zip(devices).map(|(record, device)| Record { device, ..record }).collect();
        let records = renumbered(records);
        for format in [Format::Csv, Format::Msr, Format::Spc, Format::Fio2, Format::Fio3, Format::Parquet] {
            let bytes = write(&records, format).unwrap();
            let expected = at_resolution(&records, resolution(format));
            prop_assert_eq!(&read(&bytes, &OpenOptions::default()).unwrap(), &expected, "{}", format);
        }
    }

    #[test]
    fn nanoseconds_survive_where_the_format_has_them(gaps in prop::collection::vec(0u64..10_000, 1..40)) {
        let mut time = 0;
        let mut records: Vec<Record> = gaps.iter().map(|gap| { time += gap; Record { time: Nanos(time), ..at(0, TraceOp::Write, 0, 512) } }).collect();
        records[0].time = Nanos(0);
        for format in Format::writable() {
            let back = read(&write(&records, format).unwrap(), &OpenOptions::default()).unwrap();
            let expected = at_resolution(&records, resolution(format));
            prop_assert_eq!(back, expected, "{}", format);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), format in 0usize..Format::ALL.len()) {
        trace::fuzz_one(Some(Format::ALL[format]), &bytes);
        trace::fuzz_one(None, &bytes);
    }

    #[test]
    fn records_within_the_window_come_out_in_order(order in Just((0u64..200).collect::<Vec<_>>()).prop_shuffle(), window in 1usize..8) {
        // Blocks of the window's size, shuffled inside: none is further out of place than the window reaches.
        let mut times: Vec<u64> = (0..200).collect();
        for block in times.chunks_mut(window) {
            block.sort_by_key(|time| order[*time as usize]);
        }
        let text = times.iter().fold(String::new(), |text, time| text + &format!("{time},0,W,0,512,\n"));
        let options = OpenOptions { order: Order::Time { window }, ..OpenOptions::default() };
        let records = read(text.as_bytes(), &options).unwrap();
        prop_assert_eq!(records.iter().map(|record| record.time.0 / 1000).collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_format_cannot_hold_is_said() {
    let discard = at(0, TraceOp::Discard, 0, 4096);
    let misaligned = at(0, TraceOp::Write, 100, 4096);
    let why = |record: &Record, format| match write(std::slice::from_ref(record), format) {
        Err(WriteError::Unwritable { number: 1, why, .. }) => Some(why),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    for format in [Format::Msr, Format::Spc, Format::Vscsi] {
        assert_eq!(why(&discard, format), Some(Unwritable::Discard), "{format}");
    }
    for format in [Format::Spc, Format::Vscsi] {
        assert_eq!(why(&misaligned, format), Some(Unwritable::Misaligned), "{format}");
    }
    for format in [Format::Csv, Format::Fio2, Format::Fio3, Format::Parquet] {
        assert_eq!(why(&discard, format), None, "{format}");
        assert_eq!(why(&misaligned, format), None, "{format}");
    }
    let two = [at(0, TraceOp::Write, 0, 512), Record { device: 1, ..at(1, TraceOp::Write, 0, 512) }];
    let error = write(&two, Format::Vscsi).unwrap_err();
    assert!(matches!(error, WriteError::Unwritable { number: 2, why: Unwritable::SecondDevice, .. }), "{error}");
    for format in Format::ALL.into_iter().filter(|format| !Format::writable().any(|other| other == *format)) {
        assert!(matches!(write(&two, format), Err(WriteError::ReadOnlyFormat { .. })), "{format}");
    }
}

#[test]
fn names_that_would_read_back_as_one_stay_apart() {
    for names in [
        &["a b", "a_b", "7", "disk7", "x", "x0", "disk"][..],
        // What a name is changed to may be another's too.
        &["a b", "a_b", "a_b_1", "a_b_2"],
        &["sda", "sda0", "sda_1", "1", "disk1", "disk1_4"],
    ] {
        stay_apart(names);
    }
}

fn stay_apart(names: &[&str]) {
    let line = |(time, name): (usize, &&str)| format!("{time},{name},W,0,512,\n");
    let text: String = names.iter().enumerate().map(line).collect();
    let mut reader = from_bytes(text.as_bytes(), &OpenOptions::default()).unwrap();
    let records: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    for format in [Format::Csv, Format::Msr, Format::Fio3] {
        let mut writer = Writer::new(Vec::new(), format).unwrap();
        for record in &records {
            writer.write(record, reader.devices()).unwrap();
        }
        assert_eq!(read(&writer.finish().unwrap(), &OpenOptions::default()).unwrap(), records, "{format}");
    }
}

#[test]
fn an_empty_trace_is_an_error_and_one_of_a_header_only_is_none() {
    assert!(matches!(error(b""), TraceError::Empty));
    assert!(matches!(error(b"\xef\xbb\xbf"), TraceError::Empty));
    assert!(matches!(error(&compress(b"", Compression::Gzip)), TraceError::Empty));
    assert_eq!(read(b"time_us,dev,op,offset_bytes,size_bytes,flags\n", &OpenOptions::default()).unwrap(), []);
}

#[test]
fn garbage_is_of_no_known_format() {
    for bytes in
        [&b"\0\0\0\0\0\0\0\0"[..], b"hello, world\n", &[0; 10_000], b"\x89PNG\r\n\x1a\n", b"\xff\xfet\0i\0m\0e\0"]
    {
        assert!(matches!(error(bytes), TraceError::UnknownFormat), "{:?}", &bytes[..8]);
    }
}

#[test]
fn a_byte_order_mark_and_carriage_returns_do_not_matter() {
    for (name, format) in FIXTURES.iter().filter(|(_, format)| is_text(*format)) {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(read(windows.as_bytes(), &options_of(*format)).unwrap(), sample_of(*format), "{format}");
        let without_end = text.trim_end();
        assert_eq!(
            read(without_end.as_bytes(), &options_of(*format)).unwrap(),
            sample_of(*format),
            "{format} without its last line's end"
        );
    }
}

#[test]
fn an_error_names_line_byte_and_field() {
    let text = b"time_us,dev,op,offset_bytes,size_bytes,flags\n0,0,W,0,512,\n5,0,W,zero,512,\n6,0,W,0,512,\n";
    let mut reader = from_bytes(text, &OpenOptions::default()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap(), at(0, TraceOp::Write, 0, 512), "what comes before is still given");
    let error = reader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "line 3 (byte 58): offset_bytes is \"zero\", not a number (format csv)");
    assert!(reader.next().is_none(), "nothing follows an error");
}

#[test]
fn numbers_and_addresses_that_cannot_be_are_refused() {
    let problem = |line: &str| match error(format!("0,0,W,0,512,\n{line}\n").as_bytes()) {
        TraceError::Malformed { problem, position, .. } => {
            assert_eq!((position.line, position.byte), (2, 13), "{line}");
            problem
        }
        other => panic!("{line}: {other}"),
    };
    assert!(matches!(problem("99999999999999999999,0,W,0,512,"), Problem::Overflow { field: "time_us", .. }));
    assert!(matches!(problem("18446744073709551615,0,W,0,512,"), Problem::Overflow { field: "time_us", .. }));
    assert!(matches!(problem("1,0,W,18446744073709551616,512,"), Problem::Overflow { field: "offset_bytes", .. }));
    assert!(matches!(problem("1,0,W,18446744073709551615,1,"), Problem::OutOfRange { .. }));
    assert!(matches!(problem("1,0,W,0,4294967296,"), Problem::TooLarge { .. }));
    assert!(matches!(problem("-1,0,W,0,512,"), Problem::NotANumber { field: "time_us", .. }));
    assert!(matches!(problem("1,0,X,0,512,"), Problem::UnknownOp { .. }));
    assert!(matches!(problem("1,0,W,0"), Problem::Missing { field: "size_bytes" }));
    assert!(matches!(problem("1,,W,0,512,"), Problem::DeviceName { .. }));
    assert!(matches!(problem("1,0,W,\0,512,"), Problem::NotANumber { .. }));
    assert_eq!(
        read(b"0,0,D,0,9223372036854775807,\n", &OpenOptions::default()).unwrap().len(),
        1,
        "a discard may be large"
    );
}

#[test]
fn a_sector_that_no_byte_address_reaches_is_refused_in_every_format() {
    let last = u64::MAX / 512 + 1;
    for text in [
        format!("0,{last},512,W,0.0\n"),
        format!("0.5 0 {last} 1 0\n"),
        format!("7,{last},1,0,9\n"),
        format!("5 1 sh {last} 8 R 6 0\n"),
        format!("0.5 sh 1 sda W {last} 512 0.1\n"),
        format!("time_us,op,lba_512,len_512\n0.0,W,{last},1\n"),
        format!("8,0 0 1 0.000000001 1 Q W {last} + 8 [x]\n"),
    ] {
        let error = error(text.as_bytes());
        assert!(matches!(error, TraceError::Malformed { problem: Problem::Overflow { .. }, .. }), "{text}: {error}");
    }
}

#[test]
fn a_line_without_end_is_refused_and_can_be_left_out() {
    let mut bytes = b"0,0,W,0,512,\n".to_vec();
    bytes.extend(std::iter::repeat_n(b'7', 40 * MAX_LINE));
    bytes.extend(b"\n1,0,W,0,512,\n");
    let error = error(&bytes);
    assert!(
        matches!(error, TraceError::Malformed { problem: Problem::LineTooLong, position, .. } if position.line == 2),
        "{error}"
    );
    let (records, skipped) = read_lenient(&bytes);
    assert_eq!((records.len(), skipped.malformed), (2, 1));
}

#[test]
fn an_endless_line_takes_no_memory() {
    // A gigabyte of digits, through a pipe that makes them up.
    let endless = std::io::Read::take(std::io::repeat(b'1'), 1 << 30);
    let head = Cursor::new(b"0,0,W,0,512,\n".to_vec());
    let reader = trace::from_reader(std::io::Read::chain(head, endless), &OpenOptions::default()).unwrap();
    let results: Vec<_> = reader.collect();
    assert_eq!(results.len(), 2);
    assert!(matches!(results[1], Err(TraceError::Malformed { problem: Problem::LineTooLong, .. })));
}

#[test]
fn bad_lines_can_be_left_out_and_are_counted() {
    let (records, skipped) = read_lenient(b"junk\n0,0,W,0,512,\n\0\0\0\n1,0,W,0,512,\n1,0,W\n");
    assert_eq!(records.len(), 2);
    assert_eq!((skipped.malformed, skipped.first.unwrap().line), (3, 1));
}

#[test]
fn data_that_are_cut_short_are_reported_after_what_is_whole() {
    // Not compressible, so that the cut loses only the end.
    let mut records = sample();
    for number in 0u64..20_000 {
        let offset = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) / 512 * 512;
        records.push(at(70_000_200 + number, TraceOp::Write, offset, 512));
    }
    let plain = write(&records, Format::Csv).unwrap();
    for compression in [Compression::Gzip, Compression::Zstd] {
        let packed = compress(&plain, compression);
        let reader = from_bytes(&packed[..packed.len() * 3 / 4], &OpenOptions::default()).unwrap();
        let results: Vec<_> = reader.collect();
        let (last, whole) = results.split_last().unwrap();
        let error = last.as_ref().unwrap_err();
        assert!(matches!(error, TraceError::Read { .. }), "{error}");
        assert!(error.to_string().contains(&format!("the {compression} data are cut short")), "{error}");
        assert!(whole.len() > 1_000, "{compression}: {}", whole.len());
        assert!(whole.iter().zip(&records).all(|(read, written)| read.as_ref().unwrap() == written));
    }
}

#[test]
fn what_is_whole_of_data_that_are_cut_short_can_be_had() {
    let plain = std::fs::read(fixture("sample.blkparse.txt")).unwrap();
    let lenient = OpenOptions { strictness: Strictness::Lenient, ..OpenOptions::default() };
    let packed = compress(&plain, Compression::Gzip);
    let mut reader = from_bytes(&packed[..packed.len() - 200], &lenient).unwrap();
    let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert!(!records.is_empty() && records.len() < sample().len());
    assert!(records.iter().zip(sample()).all(|(read, known)| *read == known));
    let cut = reader.skipped().cut_after.unwrap();
    assert!((1..plain.len() as u64).contains(&cut), "{cut}");
    // What cannot be read for another reason is an error all the same.
    let broken = BrokenAt { source: Cursor::new(packed[..packed.len() - 200].to_vec()) };
    let last = trace::from_reader(broken, &lenient).unwrap().last().unwrap();
    assert!(matches!(last, Err(TraceError::Read { .. })), "{last:?}");
}

/// Ends as a dying disk does.
struct BrokenAt {
    source: Cursor<Vec<u8>>,
}

impl std::io::Read for BrokenAt {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.source.read(buffer)? {
            0 => Err(std::io::Error::from_raw_os_error(5)),
            count => Ok(count),
        }
    }
}

#[test]
fn a_small_file_that_is_cut_short_gives_its_beginning_and_then_the_error() {
    let plain = std::fs::read(fixture("sample.blkparse.txt")).unwrap();
    let packed = compress(&plain, Compression::Gzip);
    let reader = from_bytes(&packed[..packed.len() - 200], &OpenOptions::default()).unwrap();
    let results: Vec<_> = reader.collect();
    let (last, whole) = results.split_last().unwrap();
    assert!(matches!(last, Err(TraceError::Read { .. })), "{last:?}");
    assert!(!whole.is_empty() && whole.iter().zip(sample()).all(|(read, known)| *read.as_ref().unwrap() == known));
}

#[test]
fn compressed_data_that_are_damaged_are_reported() {
    let plain = std::fs::read(fixture("sample.blkparse.txt")).unwrap();
    for compression in [Compression::Gzip, Compression::Zstd] {
        let mut packed = compress(&plain, compression);
        let middle = packed.len() / 2;
        packed[middle..middle + 8].fill(0xff);
        let error = error(&packed);
        assert!(matches!(error, TraceError::Read { .. } | TraceError::Malformed { .. }), "{error}");
    }
    assert!(matches!(error(b"\x1f\x8b"), TraceError::Read { .. }));
    assert!(matches!(error(b"\x28\xb5\x2f\xfd"), TraceError::Read { .. }));
}

#[test]
fn a_cut_binary_record_is_reported() {
    let bytes = std::fs::read(fixture("sample.vscsi")).unwrap();
    let error = error(&bytes[..bytes.len() - 5]);
    assert_eq!(error.to_string(), "line 6 (byte 160): the file ends inside a record: 27 of 32 bytes (format vscsi)");
}

#[test]
fn a_record_beyond_the_window_is_an_error_with_a_hint_or_is_left_out() {
    let mut text = (1_000..4_000).fold(String::new(), |text, time| text + &format!("{time},0,W,0,512,\n"));
    text += "7,0,W,0,512,\n";
    let error = error(text.as_bytes());
    assert!(matches!(error, TraceError::Unsorted { position, .. } if position.line == 3_001), "{error}");
    let (records, skipped) = read_lenient(text.as_bytes());
    assert_eq!((records.len(), skipped.late), (3_000, 1));
}

#[test]
fn a_trace_in_any_order_can_be_sorted() {
    let text =
        (0..5_000).rev().fold(String::new(), |text, time| text + &format!("{},0,W,{},512,\n", time / 2, time * 512));
    let options = OpenOptions { order: Order::File, ..OpenOptions::default() };
    let sorted = trace::sort(from_bytes(text.as_bytes(), &options).unwrap(), &options, 5_000).unwrap();
    assert_eq!(sorted.records.len(), 5_000);
    assert!(sorted.records.windows(2).all(|pair| pair[0].time <= pair[1].time));
    assert_eq!(sorted.records[0].offset, ByteSize(512), "equal times stay in the file's order");
    let error = trace::sort(from_bytes(text.as_bytes(), &options).unwrap(), &options, 4_999).unwrap_err();
    assert!(matches!(error, TraceError::TooManyToSort { limit: 4_999 }), "{error}");
}

#[test]
fn one_corrupt_time_is_left_out_wherever_it_is() {
    let year_us = 400u64 * 86_400 * 1_000_000;
    let lines: Vec<String> = (0..10).map(|number| format!("{},0,W,{},512,\n", 500 + number, number * 512)).collect();
    for place in 0..=10 {
        let mut with = lines.clone();
        with.insert(place, format!("{year_us},0,W,99840,512,\n"));
        let text = with.concat();
        let mut reader = from_bytes(text.as_bytes(), &OpenOptions::default()).unwrap();
        let records: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(records.len(), 10, "corrupt time in line {}", place + 1);
        assert_eq!(reader.skipped().times, 1);
        assert_eq!(reader.skipped().first.unwrap().line, place as u64 + 1);
        let strict = OpenOptions { strictness: Strictness::Strict, ..OpenOptions::default() };
        assert!(
            matches!(read(text.as_bytes(), &strict), Err(TraceError::TimeJump { position: at, .. }) if at.line == place as u64 + 1)
        );
    }
    let early = format!("3,0,W,0,512,\n{}", lines.concat().replace("50", "9999999950"));
    let mut reader =
        from_bytes(early.as_bytes(), &OpenOptions { max_gap: Nanos::from_secs(1), ..OpenOptions::default() }).unwrap();
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 10, "a time before all others");
    assert_eq!(reader.skipped().times, 1);
}

#[test]
fn a_clock_that_jumps_for_good_is_an_error_unless_allowed() {
    let year_us = 400u64 * 86_400 * 1_000_000;
    let text = format!("0,0,W,0,512,\n1,0,W,0,512,\n{year_us},0,W,0,512,\n{},0,W,0,512,\n", year_us + 1);
    assert!(matches!(error(text.as_bytes()), TraceError::TimeJump { position, .. } if position.line == 3));
    let options = OpenOptions { max_gap: Nanos::NEVER, ..OpenOptions::default() };
    assert_eq!(read(text.as_bytes(), &options).unwrap().len(), 4);
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| trace::open(path, &OpenOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(open(folder.path()), TraceError::NotAFile { kind: "a directory", .. }));
    assert!(matches!(open(&folder.path().join("none")), TraceError::Open { .. }));
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(open(&socket), TraceError::NotAFile { kind: "a socket", .. }));
    assert!(matches!(open(Path::new("/dev/null")), TraceError::Empty));
    assert!(matches!(open(Path::new("/dev/zero")), TraceError::UnknownFormat));
}

#[test]
fn a_trace_can_come_through_a_pipe() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let plain = compress(&std::fs::read(fixture("sample.csv")).unwrap(), Compression::Gzip);
    let feeder = std::thread::spawn(move || {
        for piece in plain.chunks(7) {
            writer.write_all(piece).unwrap();
        }
    });
    let records: Result<Vec<_>, _> = trace::from_reader(reader, &OpenOptions::default()).unwrap().collect();
    feeder.join().unwrap();
    assert_eq!(records.unwrap(), sample());
}

#[test]
fn a_trace_of_more_devices_than_there_can_be_is_refused() {
    let text = (0..70_000).fold(String::new(), |text, number| text + &format!("{number},d{number},W,0,512,\n"));
    let error = error(text.as_bytes());
    assert!(matches!(error, TraceError::Malformed { problem: Problem::TooManyDevices, .. }), "{error}");
}

#[test]
fn summaries_of_enormous_requests_stay_small() {
    let mut summary = Summary::default();
    for number in 0..100_000u64 {
        summary.add(&at(number, TraceOp::Write, number << 33, u64::from(u32::MAX)));
    }
    assert_eq!(summary.distinct_pages_written, 100_000 << 20);
}
