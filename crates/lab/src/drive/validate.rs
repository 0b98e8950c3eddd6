//! Replays what a real drive was asked, one request at a time, and compares the response times.
//!
//! A line of the trace: `R|W  class  first-sector  sectors  response-time-us  idle-us`. The next request is sent
//! `idle-us` after this one was completed: read so, sequential writes meet the platter where the real drive's did. The
//! class is the measurer's note and is not used. An empty line and one that begins with `#` say nothing.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use thiserror::Error;
use umbrella_model::device::disk::Disk;
use umbrella_model::device::{Device, Op, Request, RequestId};
use umbrella_units::{Lba, Nanos};

use super::demerit::Demerit;
use super::profile::DriveProfile;

/// More than any such trace holds.
const MOST_REQUESTS: usize = 50_000_000;
/// The longest line that is read, and the longest time that it may say.
const LONGEST_LINE: u64 = 512;
const LONGEST_US: f64 = 1e12;

/// One request, and what the drive took for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    op: Op,
    lba: Lba,
    sectors: u32,
    response: Nanos,
    idle: Nanos,
}

/// Requests to a real drive with its response times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measurements(Vec<Measured>);

/// Why a trace could not be read.
#[derive(Debug, Error)]
pub enum MeasurementsError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A line is not a request.
    #[error(
        "line {line} is not a request: R or W, a word, the first sector, how many sectors, microseconds to respond, microseconds until the next one"
    )]
    Line {
        /// Counted from 1.
        line: u64,
    },
    /// A request that the drive does not have.
    #[error(
        "request {request}: sector {sector} is beyond the drive's {capacity} sectors; is this the trace of that drive?"
    )]
    Beyond {
        /// Counted from 1.
        request: usize,
        /// The last sector of the request.
        sector: u64,
        /// How many sectors the drive has.
        capacity: u64,
    },
    /// Too many.
    #[error("more than {MOST_REQUESTS} requests; validate with fewer")]
    TooMany,
    /// Nothing.
    #[error("it contains no requests")]
    Empty,
}

/// How near a model came.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// All requests.
    pub all: Demerit,
    /// The reads.
    pub reads: Demerit,
    /// The writes.
    pub writes: Demerit,
}

impl Measurements {
    /// Reads a trace file, plain or compressed with gzip.
    pub fn open(path: &Path) -> Result<Measurements, MeasurementsError> {
        let mut file = BufReader::new(File::open(path)?);
        if file.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
            return Measurements::read(BufReader::new(MultiGzDecoder::new(file)));
        }
        Measurements::read(file)
    }

    /// Reads a trace.
    pub fn read(mut from: impl BufRead) -> Result<Measurements, MeasurementsError> {
        let mut requests = Vec::new();
        let (mut line, mut bytes) = (0, Vec::new());
        loop {
            bytes.clear();
            if std::io::Read::take(&mut from, LONGEST_LINE).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            line += 1;
            let text = std::str::from_utf8(&bytes).map_err(|_| MeasurementsError::Line { line })?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            requests.push(Measured::parse(text).ok_or(MeasurementsError::Line { line })?);
            if requests.len() > MOST_REQUESTS {
                return Err(MeasurementsError::TooMany);
            }
        }
        if requests.is_empty() { Err(MeasurementsError::Empty) } else { Ok(Measurements(requests)) }
    }
}

impl Measured {
    fn parse(line: &str) -> Option<Measured> {
        let mut words = line.split_ascii_whitespace();
        let op = match words.next()? {
            "R" | "r" => Op::Read,
            "W" | "w" => Op::Write,
            _ => return None,
        };
        words.next()?;
        let lba = Lba(words.next()?.parse().ok()?);
        let sectors = words.next()?.parse().ok()?;
        let mut time = || {
            let micros: f64 = words.next()?.parse().ok()?;
            (0.0..=LONGEST_US).contains(&micros).then(|| Nanos((micros * 1000.0).round() as u64))
        };
        let (response, idle) = (time()?, time()?);
        words.next().is_none().then_some(Measured { op, lba, sectors, response, idle })
    }
}

/// Sends the drive's model what the drive was sent.
pub fn validate(drive: &DriveProfile, trace: &Measurements) -> Result<Validation, MeasurementsError> {
    replay(Disk::new(&drive.spec()), trace)
}

/// Sends a disk what the drive was sent.
pub fn replay(mut disk: Disk, trace: &Measurements) -> Result<Validation, MeasurementsError> {
    let (mut now, mut done) = (Nanos(0), Vec::new());
    let mut times = Vec::with_capacity(trace.0.len());
    for (place, request) in trace.0.iter().enumerate() {
        disk.advance(now, &mut done);
        done.clear();
        let &Measured { op, lba, sectors, .. } = request;
        let (id, capacity) = (RequestId(place as u64), disk.capacity().0);
        disk.try_submit(now, Request { id, op, lba, sectors }).map_err(|_| MeasurementsError::Beyond {
            request: place + 1,
            sector: lba.0.saturating_add(u64::from(sectors)).saturating_sub(1),
            capacity,
        })?;
        let sent = now;
        while done.iter().all(|completion| completion.id != id) {
            let Some(next) = disk.next_event() else { break };
            disk.advance(next, &mut done);
            now = next;
        }
        times.push(now - sent);
        now = now + request.idle;
    }
    let of = |wanted: &dyn Fn(Op) -> bool| {
        let kept = || trace.0.iter().zip(&times).filter(|(request, _)| wanted(request.op));
        let measured = kept().map(|(request, _)| request.response).collect();
        Demerit::new(measured, kept().map(|(_, &time)| time).collect())
    };
    Ok(Validation { all: of(&|_| true), reads: of(&|op| op == Op::Read), writes: of(&|op| op == Op::Write) })
}
