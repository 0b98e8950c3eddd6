//! The programs whose formats are read here, as witnesses: what blkparse prints of each kind of event, and when fio
//! does what an iolog says.

use std::fmt::Write as _;
use std::io::{Cursor, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use umbrella_lab::trace::{self, Devices, Event, Format, OpenOptions, Record, Strictness, TimeOrigin, TraceOp, Writer};
use umbrella_units::{ByteSize, Nanos};

/// Categories of an event (blktrace_api.h).
const READ: u32 = 1 << 0;
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const SYNC: u32 = 1 << 3;
const QUEUE: u32 = 1 << 4;
const REQUEUE: u32 = 1 << 5;
const ISSUE: u32 = 1 << 6;
const COMPLETE: u32 = 1 << 7;
const FS: u32 = 1 << 8;
const PC: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const AHEAD: u32 = 1 << 11;
const META: u32 = 1 << 12;
const DISCARD: u32 = 1 << 13;
const DRIVER: u32 = 1 << 14;
const FUA: u32 = 1 << 15;

/// Every action that blkparse prints, and the category that comes with it.
const ACTIONS: [(u32, u32); 15] = [
    (1, QUEUE),    // Q
    (2, QUEUE),    // M
    (3, QUEUE),    // F
    (4, QUEUE),    // G
    (5, QUEUE),    // S
    (6, REQUEUE),  // R
    (7, ISSUE),    // D
    (8, COMPLETE), // C
    (9, QUEUE),    // P
    (10, QUEUE),   // U
    (11, QUEUE),   // UT
    (12, QUEUE),   // I
    (13, 0),       // X
    (14, 0),       // B
    (15, QUEUE),   // A
];

/// A binary trace of device 8,0, as the kernel writes it.
#[derive(Default)]
struct Binary {
    bytes: Vec<u8>,
    events: u32,
}

impl Binary {
    fn event(&mut self, action: u32, categories: u32, sector: u64, bytes: u32, payload: &[u8]) {
        self.events += 1;
        let action = action | categories << 16;
        let words = [0x6561_7407, self.events];
        self.bytes.extend(words.iter().flat_map(|word: &u32| word.to_le_bytes()));
        self.bytes.extend((u64::from(self.events) * 1_000).to_le_bytes());
        self.bytes.extend(sector.to_le_bytes());
        self.bytes.extend([bytes, action, 77, 8 << 20, 0].iter().flat_map(|word: &u32| word.to_le_bytes()));
        self.bytes.extend(0u16.to_le_bytes());
        self.bytes.extend((payload.len() as u16).to_le_bytes());
        self.bytes.extend(payload);
    }

    /// Every event, of every kind of request.
    fn of_everything() -> Binary {
        let mut all = Binary::default();
        all.event(1, NOTIFY, 0, 0, &[0; 8]);
        all.event(0, NOTIFY, 0, 0, b"a [b + 3, (x)\0\0\0");
        for (categories, sector, bytes) in [
            (WRITE, 2048, 4096),
            (READ | AHEAD, 2048, 4096),
            (WRITE | FLUSH | SYNC, 0, 0),
            (WRITE | FLUSH | FUA | SYNC | META, 4096, 4096),
            (WRITE | DISCARD, 8192, 1 << 20),
            (WRITE | DISCARD | SYNC | META, 1 << 40, 512),
            (READ, 0, 0),
            (WRITE | SYNC, 100, 0),
            (FLUSH, 0, 0),
            (FLUSH | FUA, u64::MAX, 0),
        ] {
            for (action, category) in ACTIONS {
                let payload: &[u8] = match action {
                    10 | 11 | 13 => &[0, 0, 0, 0, 0, 0, 0, 3],
                    15 => &[0, 0x80, 0, 1, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0],
                    _ => &[],
                };
                all.event(action, FS | categories | category, sector, bytes, payload);
            }
        }
        for (bytes, command) in
            [(512, &[0x85, 8, 0x0e, 0, 0][..]), (512, &[]), (0, &[0; 16]), (0, &[]), (36, &[0x12, 0, 0, 0, 36, 0])]
        {
            for (action, category) in ACTIONS.into_iter().filter(|(action, _)| [1, 4, 5, 6, 7, 8, 12].contains(action))
            {
                for kind in [READ, WRITE] {
                    all.event(action, PC | kind | category, 0, bytes, command);
                }
            }
        }
        for message in ["cfq1234 alloced", "8,0 Q W 5 + 8 [x]", "", "CPU0 (8,0):"] {
            all.event(2, NOTIFY, 0, 0, message.as_bytes());
        }
        all.event(17, FS | DRIVER, 0, 0, b"abcd");
        all
    }
}

fn blkparse(binary: &[u8], options: &[&str]) -> Vec<u8> {
    let mut command = Command::new("blkparse");
    command.args(["-i", "-"]).args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut blkparse = command.spawn().expect("blkparse can be started (make setup installs it)");
    blkparse.stdin.take().unwrap().write_all(binary).unwrap();
    let output = blkparse.wait_with_output().unwrap();
    assert!(output.status.success(), "{options:?}: {}", output.status);
    output.stdout
}

#[test]
fn every_event_that_blkparse_prints_is_read_or_read_over() {
    let binary = Binary::of_everything().bytes;
    let requests = [
        (TraceOp::Write, 2048 * 512, 4096),
        (TraceOp::Read, 2048 * 512, 4096),
        (TraceOp::Write, 4096 * 512, 4096),
        (TraceOp::Discard, 8192 * 512, 1 << 20),
        (TraceOp::Discard, (1 << 40) * 512, 512),
    ];
    for options in [&[][..], &["-t"], &["-s"], &["-v"], &["-t", "-s"], &["-q"]] {
        let text = blkparse(&binary, options);
        assert!(text.len() > 5_000, "{options:?}: {}", String::from_utf8_lossy(&text));
        for event in [Event::Auto, Event::Queue, Event::Issue, Event::Insert, Event::Complete] {
            let read = OpenOptions { event, strictness: Strictness::Strict, ..OpenOptions::default() };
            let mut reader = trace::from_reader(Cursor::new(text.clone()), &read).unwrap();
            assert_eq!(reader.format(), Format::Blkparse, "{options:?}");
            let records: Result<Vec<Record>, _> = reader.by_ref().collect();
            let records = records.unwrap_or_else(|error| panic!("{options:?}, {event:?}: {error}"));
            let records: Vec<_> = records.iter().map(|record| (record.op, record.offset.0, record.size.0)).collect();
            assert_eq!(records, requests, "{options:?}, {event:?}");
        }
    }
}

/// How long fio takes for an iolog, its own start included.
fn replayed_by_fio(iolog: &Path) -> Duration {
    let began = Instant::now();
    let output = Command::new("fio")
        .args(["--name=replay", "--ioengine=null", "--output-format=terse"])
        .arg(format!("--read_iolog={}", iolog.display()))
        .current_dir(iolog.parent().unwrap())
        .output()
        .expect("fio can be started (make setup installs it)");
    let took = began.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    took
}

fn length(iolog: &Path) -> Duration {
    let options = OpenOptions { origin: TimeOrigin::AsRecorded, ..OpenOptions::default() };
    let last = trace::open(iolog, &options).unwrap().last().unwrap().unwrap();
    Duration::from_nanos(last.time.0)
}

#[test]
fn a_wait_of_version_2_is_for_fio_and_here_a_time_in_milliseconds_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let iolog = folder.path().join("waits.iolog");
    let file = folder.path().join("file");
    let file = file.display();
    // Were they relative, 200 waits of a second would take minutes; a line of three fields is no wait.
    let mut text = format!("fio version 2 iolog\n{file} add\n{file} open\n{file} write 0 4096\n{file} wait 600000\n");
    for number in 0..200 {
        let _ = write!(text, "{file} wait {} 0\n{file} write 4096 4096\n", 1_000 - number);
    }
    let _ = writeln!(text, "{file} close");
    std::fs::write(&iolog, text).unwrap();
    assert_eq!(length(&iolog), Duration::from_secs(1));
    let took = replayed_by_fio(&iolog);
    assert!((1..100).contains(&took.as_secs()), "fio took {took:?}");
}

#[test]
fn what_is_written_as_version_2_fio_does_at_these_times() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(Vec::new(), Format::Fio2).unwrap();
    for number in 0..100u64 {
        // A request each 9.5 ms: relative milliseconds would add up to 47 s, microseconds to nothing.
        let record = Record {
            time: Nanos(number * 9_500_000),
            device: 0,
            op: TraceOp::Write,
            offset: ByteSize(number % 2 * 4096),
            size: ByteSize(4096),
        };
        writer.write(&record, &Devices::default()).unwrap();
    }
    // Its one file is called 0, and so is written where the log lies.
    let iolog = folder.path().join("written.iolog");
    std::fs::write(&iolog, writer.finish().unwrap()).unwrap();
    assert_eq!(length(&iolog), Duration::from_millis(940));
    let took = replayed_by_fio(&iolog);
    assert!(took >= Duration::from_millis(940) && took < Duration::from_secs(40), "fio took {took:?}");
}
