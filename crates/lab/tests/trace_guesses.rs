//! The format of a trace is guessed for certain, or not at all: no trace of one format is taken for another.

use std::io::Cursor;

use proptest::prelude::*;
use umbrella_lab::trace::{self, Format, OpenOptions, TraceError};

/// What is before the lines of a format that needs it.
fn header(format: Format) -> &'static str {
    match format {
        Format::Fio2 => "fio version 2 iolog\n",
        Format::Fio3 => "fio version 3 iolog\n",
        _ => "",
    }
}

/// Lines of a format, the odd ones too. None of them alone leaves the format open.
fn lines(format: Format) -> &'static [&'static str] {
    match format {
        Format::Csv => &[
            "0,disk0,W,1048576,4096,",
            "1455592522.029174,0,R,1113260032,4096",
            "5,8:0,D,0,9223372036854775807,SMFA",
            "7,R,R,0,0,",
            "7,Read,W,0,512,x",
            "8,a b,W,0,512,",
            "99999999999999999999,7,W,0,512,S",
        ],
        Format::Msr => &[
            "128166372003061629,hm,1,Read,383496192,32768,413",
            "0,R,0,Write,0,0,0",
            "5,W,7,read,0,512",
            "130000000000000000,0,0,WRITE,1048576,4096,0.5",
        ],
        Format::Spc => {
            &["0,20941264,8192,W,0.551706", "5,0,512,r,7", "0,1,2,R,0,more,of,it", "23,8388608,65536,w,70.000000"]
        }
        Format::Ascii => &["0 0 2048 8 0", "70000000000 21 8388608 128 1", "\t1  1 1 1 1 "],
        Format::IoTrace => {
            &["0.000,W,2048,8,0,0,0,0,0,0,7,0,log", "250,R,2056,16,1,R,W,R,W,0,7,0,", "1,D,0,4194304,0,0,0,0,0,0"]
        }
        Format::Blkparse => &[
            "  8,0    1        1     0.000005000  1234  Q   W 2048 + 8 [writer]",
            "8,0 0 1 0.0 77 C FWS 0 [0]",
            "8,0 0 1 0.0 77 D R 512 (85 08 ..) [smartctl]",
            "8,0 0 1 0.0 77 Q W 1 + 1 [a,R,0,0,x]",
            "8,0 0 1 0.0 77 Q W 1 + 1 [,0,0,R,0]",
            "259,12 63 12345678 86400.000000001 4194304 UT N [swapper/0] 3",
            "253,0 3 0 1.5 0 m N 1,2,R,3,4,5",
        ],
        Format::Fio2 => &["f write 0 512", "/dev/disk wait 250 0", "0,0,W,0,512, read 0 512", "1 0 0 1 1"],
        Format::Fio3 => &["0 f write 0 512", "5 /dev/disk close", "8,0 0 1 0.0", "0 0 2048 8 0"],
        Format::Systor => &[
            "1455592522.029174,0.000272,R,0,1113260032,4096",
            "1456095145.133076000,0.000806000,W,4,0,0",
            "1456095145.133076000,,,6,899056122368,131072",
            "2000000000.5,0.5,W,0,0,512",
        ],
        Format::Disksim => &["0.5 0 2048 8 0", "12 3 2048 8 3", "70000.000001 21 8388608 128 1", "0 0 0 1 0x41"],
        Format::Alibaba => &["419,W,8792731648,16384,1577808144360767", "0,R,0,0,0"],
        Format::Tencent => &["1538323200,12910952,128,0,1063", "0,0,0,1,0"],
        Format::Fiu => &[
            "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523",
            "1 1 Web Content 0 8 W 8 16",
            "0 0 1 W 0 0 R 0 0",
        ],
        Format::Biosnoop => &[
            "0.000004    supervise      1950   xvda1   W 13092560   4096      0.74",
            "0.1 jbd2/sda1-8 300 sda FF -1 0 0.010 0.090",
            "11.5 Web Content 7 nvme0n1 RAM 0 4096 0.000 12.5",
        ],
        Format::Vscsi | Format::Blktrace | Format::Srt | Format::Parquet => &[],
    }
}

/// The beginning of a binary format.
fn vscsi(command: u16, version: u16, serial: u32) -> Vec<u8> {
    let mut bytes = serial.to_le_bytes().to_vec();
    bytes.extend(4096u32.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(command.to_le_bytes());
    bytes.extend(version.to_le_bytes());
    bytes.extend([0; 16]);
    bytes
}

fn text(formats: &[Format], lines: &[&str]) -> String {
    let header = formats.first().map_or("", |format| header(*format));
    lines.iter().fold(header.to_owned(), |text, line| text + line + "\n")
}

fn guess(bytes: &[u8]) -> Result<Format, Vec<Format>> {
    match Format::detect(bytes) {
        Ok(format) => Ok(format),
        Err(TraceError::UncertainFormat { candidates }) => Err(candidates),
        Err(TraceError::UnknownFormat) => Err(Vec::new()),
        Err(other) => panic!("{other}"),
    }
}

fn of_text() -> impl Iterator<Item = Format> {
    Format::ALL
        .into_iter()
        .filter(|format| ![Format::Vscsi, Format::Blktrace, Format::Srt, Format::Parquet].contains(format))
}

/// Those that their lines alone can tell: times of `ascii` in ns could be times of `disksim` in ms.
fn told_by_lines() -> impl Iterator<Item = Format> {
    of_text().filter(|format| *format != Format::Ascii)
}

#[test]
fn a_line_of_any_format_is_taken_for_that_format() {
    for format in told_by_lines() {
        for line in lines(format) {
            assert_eq!(guess(text(&[format], &[line]).as_bytes()), Ok(format), "{line}");
            assert_eq!(
                guess(text(&[format], &["\0damaged", line]).as_bytes()),
                Ok(format),
                "{line}, after a damaged line"
            );
        }
        assert_eq!(guess(text(&[format], lines(format)).as_bytes()), Ok(format), "all of them");
    }
    for command in [0x08, 0x0a, 0x28, 0x2a, 0x88, 0x8a, 0xa8, 0xaa] {
        assert_eq!(guess(&vscsi(command, 0x0100, 1).repeat(5)), Ok(Format::Vscsi), "{command:#x}");
    }
}

#[test]
fn times_that_could_be_in_ns_or_in_ms_are_refused() {
    let both = Err(vec![Format::Ascii, Format::Disksim]);
    for line in lines(Format::Ascii) {
        assert_eq!(guess(text(&[], &[line]).as_bytes()), both, "{line}");
    }
    for line in lines(Format::Disksim) {
        assert_eq!(guess(text(&[], &["0 0 2048 8 0", line]).as_bytes()), Ok(Format::Disksim), "{line}");
    }
}

#[test]
fn what_could_be_a_response_time_or_the_name_of_a_device_is_refused() {
    assert_eq!(guess(b"0,8.0,W,0,512,0\n5,8.0,R,512,512,0\n"), Err(vec![Format::Csv, Format::Systor]));
}

#[test]
fn of_each_pair_of_formats_a_mixture_is_refused_with_both_names() {
    let headless = || of_text().filter(|format| header(*format).is_empty());
    for one in headless() {
        let is_part = |other| [one, other].iter().all(|format| [Format::Ascii, Format::Disksim].contains(format));
        for other in headless().filter(|other| *other != one && !is_part(*other)) {
            for (first, second) in
                lines(one).iter().flat_map(|first| lines(other).iter().map(move |second| (first, second)))
            {
                let candidates = guess(text(&[], &[first, second]).as_bytes()).expect_err(first);
                assert!(candidates.contains(&one) && candidates.contains(&other), "{first} {second}: {candidates:?}");
            }
        }
    }
}

#[test]
fn a_line_that_two_formats_share_is_refused_until_another_line_decides() {
    let shared = "0,0,W,0,512,4096";
    let both = vec![Format::Csv, Format::Systor];
    assert_eq!(guess(text(&[], &[shared]).as_bytes()), Err(both));
    for format in [Format::Csv, Format::Systor] {
        for line in lines(format) {
            assert_eq!(guess(text(&[], &[shared, line]).as_bytes()), Ok(format), "{line}");
        }
        // A reader with an explicit format gets that one.
        let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
        let records = trace::from_reader(Cursor::new(text(&[], &[shared]).into_bytes()), &options).unwrap();
        assert_eq!(records.map(Result::unwrap).count(), 1, "{format}");
    }
    let error = Format::detect(shared.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "the format is not certain: by its first lines it may be csv or systor");
}

#[test]
fn a_header_decides_and_one_of_no_format_is_refused() {
    let shared = "0,0,W,0,512,4096";
    for (header, format) in [
        ("time_us,dev,op,offset_bytes,size_bytes,flags", Format::Csv),
        ("time_us,op,lba_512,len_512,io_class", Format::IoTrace),
        ("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", Format::Msr),
        ("Timestamp,Response,IOType,LUN,Offset,Size", Format::Systor),
        ("device_id,opcode,offset,length,timestamp", Format::Alibaba),
        ("Timestamp,Offset,Size,IOType,VolumeID", Format::Tencent),
        ("TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)", Format::Biosnoop),
        ("fio version 2 iolog", Format::Fio2),
        ("fio version 3 iolog", Format::Fio3),
    ] {
        assert_eq!(guess(header.as_bytes()), Ok(format));
        assert_eq!(guess(text(&[], &["", header, shared]).as_bytes()), Ok(format), "{header}");
    }
    for unknown in
        ["ts,device,rw,bytes,offset", "Time,Host,Disk,Op,Size,Offset,Latency", "time_us,dev,op,size_bytes,offset_bytes"]
    {
        for (format, line) in of_text().filter_map(|format| Some((format, lines(format).first()?))) {
            let of_commas = line.contains(',') && header(format).is_empty();
            if of_commas {
                let candidates = guess(text(&[], &[unknown, line]).as_bytes()).expect_err(unknown);
                assert_eq!(candidates, [format], "{unknown}");
            }
        }
    }
}

#[test]
fn traces_in_formats_that_nobody_reads_here_are_refused() {
    for line in [
        // CloudPhysics as text, the replayers' own, bpftrace's biosnoop without sectors.
        "TIME(ms)     DISK ID        COMM             PID    LAT(ms)",
        "611          259   0        bash             4179        10",
        "0 0 2048 8 g",
        "0 0 2048 8 -1",
        "0,0,W,0,512,S,M,F",
        "0,0,w,0,512,",
        "0,0,W,0",
        "0,sda,W,zero,512,",
        "-1,0,W,0,512,",
        "1;0;W;0;512",
        "0,4096,512",
        "8,0 Q W 2048 + 8 [x]",
    ] {
        assert_eq!(guess(line.as_bytes()), Err(vec![]), "{line}");
    }
}

#[test]
fn a_line_that_the_beginning_cuts_off_decides_nothing() {
    let padding = " ".repeat(4_000);
    let systor = (0..32).fold(String::new(), |text, number| {
        text + &format!("{padding}1455592522.{number:06},0.000272,R,0,1113260032,4096\n")
    });
    for end in (65_536..systor.len()).step_by(61) {
        assert_eq!(guess(systor.as_bytes().get(..end).unwrap()), Ok(Format::Systor), "cut at {end}");
    }
}

#[test]
fn binary_formats_are_recognised_by_their_magic_numbers() {
    for magic in [0x6561_7407u32.to_le_bytes(), 0x6561_7407u32.to_be_bytes(), 0x6561_7408u32.to_le_bytes()] {
        // The time of its first event can look like a command of vscsi.
        let bytes = vscsi(0x28, 0x0100, u32::from_le_bytes(magic)).repeat(5);
        assert_eq!(guess(&bytes), Ok(Format::Blktrace));
        let options = OpenOptions { format: Some(Format::Vscsi), ..OpenOptions::default() };
        assert_eq!(trace::from_reader(Cursor::new(bytes), &options).unwrap().count(), 5, "records with that number");
    }
    assert_eq!(guess(b"$$TR_IOREC-1.3 (an example)\n\0\n\x0c"), Ok(Format::Srt));
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![(0u64..10).prop_map(|n| n.to_string()), any::<u64>().prop_map(|n| n.to_string())]
}

fn fraction() -> impl Strategy<Value = String> {
    (number(), "[0-9]{0,9}").prop_map(|(whole, part)| format!("{whole}.{part}"))
}

fn decimal() -> impl Strategy<Value = String> {
    prop_oneof![number(), fraction()]
}

/// Words that are fields of some format.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        number(),
        "[RWDrw]",
        "Read|Write|read|write",
        "[A-Z]{1,4}",
        "[a-z]{1,4}[0-9]{0,2}",
        "[0-9]:[0-9]",
        "[ -+:-~]{1,12}".prop_map(|word| word.trim().to_owned()).prop_filter("a field", |word| !word.is_empty()),
    ]
}

/// Any lines that a format can have.
fn any_line(format: Format) -> BoxedStrategy<String> {
    let op = prop_oneof![Just("R"), Just("W"), Just("D")];
    let rw = prop_oneof![Just("R"), Just("W")];
    match format {
        Format::Csv => (decimal(), word(), op, number(), number(), prop_oneof![Just(String::new()), word()])
            .prop_map(|(time, dev, op, offset, size, flags)| format!("{time},{dev},{op},{offset},{size},{flags}"))
            .boxed(),
        Format::Msr => (number(), word(), number(), "[Rr]ead|[Ww]rite", number(), number(), decimal())
            .prop_map(|(time, host, disk, op, offset, size, response)| {
                format!("{time},{host},{disk},{op},{offset},{size},{response}")
            })
            .boxed(),
        Format::Spc => (number(), number(), number(), "[RWrw]", decimal(), prop::collection::vec(word(), 0..3))
            .prop_map(|(asu, lba, size, op, time, more)| {
                more.iter().fold(format!("{asu},{lba},{size},{op},{time}"), |line, field| line + "," + field)
            })
            .boxed(),
        Format::Ascii => (number(), number(), number(), number(), "[01]")
            .prop_map(|(time, device, sector, sectors, op)| format!("{time} {device} {sector} {sectors} {op}"))
            .boxed(),
        Format::IoTrace => (decimal(), op, number(), number(), prop::collection::vec(word(), 6..9))
            .prop_map(|(time, op, lba, len, more)| {
                more.iter().fold(format!("{time},{op},{lba},{len}"), |line, field| line + "," + field)
            })
            .boxed(),
        Format::Blkparse => (
            0u32..300,
            0u32..300,
            0u32..64,
            number(),
            fraction(),
            "Q|M|F|G|S|R|D|C|P|U|UT|I|X|B|A|m",
            "[RWDNFASM]{1,4}",
            word(),
            "[ -~]{0,15}",
        )
            .prop_map(|(major, minor, cpu, sequence, time, action, rwbs, first, rest)| {
                format!(
                    "{major:3},{minor:<3} {cpu:2} {sequence:>8} {time:>15} 7 {action:>2} {rwbs:>3} {first} [{rest}]"
                )
            })
            .boxed(),
        Format::Systor => (
            decimal(),
            prop_oneof![decimal(), Just(String::new())],
            prop_oneof![rw, Just("")],
            number(),
            number(),
            number(),
        )
            .prop_map(|(time, response, op, lun, offset, size)| format!("{time},{response},{op},{lun},{offset},{size}"))
            .boxed(),
        Format::Disksim => (decimal(), number(), number(), number(), "(0x)?[0-9a-f]{1,4}")
            .prop_map(|(time, device, block, blocks, flags)| format!("{time} {device} {block} {blocks} {flags}"))
            .boxed(),
        Format::Alibaba => (number(), rw, number(), number(), number())
            .prop_map(|(device, op, offset, size, time)| format!("{device},{op},{offset},{size},{time}"))
            .boxed(),
        Format::Tencent => (number(), number(), number(), "[01]", number())
            .prop_map(|(time, offset, size, op, volume)| format!("{time},{offset},{size},{op},{volume}"))
            .boxed(),
        Format::Fiu => (number(), number(), word(), number(), number(), rw, number(), number(), "([0-9a-f]{32})?")
            .prop_map(|(time, pid, process, sector, sectors, op, major, minor, hash)| {
                format!("{time} {pid} {process} {sector} {sectors} {op} {major} {minor} {hash}")
            })
            .boxed(),
        Format::Biosnoop => (fraction(), word(), number(), word(), "[RWDFASM]{1,3}", number(), number(), fraction())
            .prop_map(|(time, process, pid, disk, kind, sector, bytes, wait)| {
                format!("{time} {process} {pid} {disk} {kind} {sector} {bytes} {wait}")
            })
            .boxed(),
        Format::Fio2 | Format::Fio3 | Format::Vscsi | Format::Blktrace | Format::Srt | Format::Parquet => {
            "[ -~]{0,40}".boxed()
        }
    }
}

proptest! {
    #[test]
    fn no_trace_of_one_format_is_taken_for_another(
        files in of_text().map(|format| prop::collection::vec(any_line(format), 1..6).prop_map(move |lines| (format, lines))).collect::<Vec<_>>()
    ) {
        for (format, lines) in files {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let text = text(&[format], &lines);
            match guess(text.as_bytes()) {
                Ok(guessed) => prop_assert_eq!(guessed, format, "{}", text),
                Err(candidates) => prop_assert!(candidates.contains(&format), "{}: {:?}", text, candidates),
            }
        }
    }
}
