//! Parquet: files of several row groups, and damaged ones. What columns may be is tried with pandas itself
//! (python/tests/test_trace.py).

use std::io::Cursor;
use std::path::{Path, PathBuf};

use umbrella_lab::trace::{
    self, Devices, Format, OpenOptions, ParquetProblem, Record, TraceError, TraceOp, Unwritable, WriteError, Writer,
    fuzz_one,
};
use umbrella_units::{ByteSize, Nanos};

const FIXTURES: [&str; 2] = ["sample.parquet", "sample.pandas.parquet"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn read(bytes: Vec<u8>) -> Result<Vec<Record>, TraceError> {
    trace::from_reader(Cursor::new(bytes), &OpenOptions::default())?.collect()
}

fn written(records: &[Record]) -> Result<Vec<u8>, WriteError> {
    let mut writer = Writer::new(Vec::new(), Format::Parquet)?;
    for record in records {
        writer.write(record, &Devices::default())?;
    }
    writer.finish()
}

fn request(number: u64) -> Record {
    Record {
        time: Nanos(number * 1_001),
        device: (number % 3) as u32,
        op: [TraceOp::Read, TraceOp::Write, TraceOp::Discard][(number % 3) as usize],
        offset: ByteSize(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20),
        size: ByteSize(512 * (1 + number % 9)),
    }
}

#[test]
fn a_trace_of_several_row_groups_is_read_back_whole() {
    let records: Vec<Record> = (0..300_000).map(request).collect();
    let bytes = written(&records).unwrap();
    assert!(bytes.len() < records.len() * 16, "{} bytes are not compressed", bytes.len());
    assert!(read(bytes).unwrap() == records);
}

#[test]
fn a_trace_without_requests_is_a_file_too() {
    assert_eq!(read(written(&[]).unwrap()).unwrap(), []);
}

#[test]
fn what_64_bits_with_a_sign_do_not_hold_is_not_written() {
    let far = Record { offset: ByteSize(1 << 63), ..request(0) };
    assert!(matches!(written(&[far]), Err(WriteError::Unwritable { number: 1, why: Unwritable::TooLarge, .. })));
}

#[test]
fn a_file_that_ends_early_is_an_error_wherever_it_ends() {
    for name in FIXTURES {
        let whole = std::fs::read(fixture(name)).unwrap();
        for length in 4..whole.len() {
            let error = read(whole[..length].to_vec()).expect_err("it is cut");
            assert!(matches!(error, TraceError::Parquet(_)), "{name}, {length} bytes: {error}");
        }
    }
}

#[test]
fn no_damaged_byte_makes_a_record_that_cannot_be() {
    for name in FIXTURES {
        let whole = std::fs::read(fixture(name)).unwrap();
        for place in 0..whole.len() {
            for damage in [0x00, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] = damage;
                fuzz_one(Some(Format::Parquet), &bytes);
            }
        }
    }
}

#[test]
fn a_footer_that_is_too_large_is_refused_before_it_is_read() {
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(u32::to_le_bytes(1 << 30));
    bytes.extend(b"PAR1");
    let error = read(bytes).unwrap_err();
    assert!(matches!(error, TraceError::Parquet(ParquetProblem::TooLarge { found: 0x4000_0000, .. })), "{error}");
}
