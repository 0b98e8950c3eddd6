//! The formats, their names, and how one is told from its content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::blkparse::{self, Event};
use super::cursor::{Cursor, decimal, whole};
use super::parse::{Parse, Render};
use super::{ascii, csv, fio, iotrace, msr, spc, vscsi};

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The shared CSV: `time_us,dev,op,offset_bytes,size_bytes,flags`.
    Csv,
    /// MSR Cambridge CSV.
    Msr,
    /// SPC, as the UMass repository has it.
    Spc,
    /// Five numbers a line: time in ns, device, sector, sectors, 0 for a write or 1 for a read.
    Ascii,
    /// CSV of a file system's requests, with their file and flags.
    IoTrace,
    /// Text of `blkparse`.
    Blkparse,
    /// fio's iolog, version 2.
    Fio2,
    /// fio's iolog, version 3.
    Fio3,
    /// VSCSI, version 1 (binary).
    Vscsi,
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown trace format {name:?} (known: {})", Format::NAMES)]
pub struct UnknownFormatName {
    /// What was given.
    pub name: String,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 9] = [
        Format::Csv,
        Format::Msr,
        Format::Spc,
        Format::Ascii,
        Format::IoTrace,
        Format::Blkparse,
        Format::Fio2,
        Format::Fio3,
        Format::Vscsi,
    ];

    /// All names, for messages.
    pub const NAMES: &str = "csv, msr, spc, ascii, iotrace, blkparse, fio2, fio3, vscsi";

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Ascii => "ascii",
            Format::IoTrace => "iotrace",
            Format::Blkparse => "blkparse",
            Format::Fio2 => "fio2",
            Format::Fio3 => "fio3",
            Format::Vscsi => "vscsi",
        }
    }

    /// Bytes of a record, for binary formats.
    pub(super) fn record_bytes(self) -> Option<usize> {
        (self == Format::Vscsi).then_some(vscsi::RECORD_BYTES)
    }

    /// A reader of lines or records in this format; `head` is the beginning of the trace.
    pub(super) fn reader(self, event: Event, head: &[u8]) -> Box<dyn Parse> {
        match self {
            Format::Csv => Box::<csv::Reader>::default(),
            Format::Msr => Box::<msr::Reader>::default(),
            Format::Spc => Box::<spc::Reader>::default(),
            Format::Ascii => Box::<ascii::Reader>::default(),
            Format::IoTrace => Box::<iotrace::Reader>::default(),
            Format::Blkparse => Box::new(blkparse::Reader::new(event, head)),
            Format::Fio2 => Box::new(fio::Reader::version_2()),
            Format::Fio3 => Box::new(fio::Reader::version_3()),
            Format::Vscsi => Box::<vscsi::Reader>::default(),
        }
    }

    /// A writer of this format, if there is one.
    pub(super) fn writer(self) -> Option<Box<dyn Render>> {
        match self {
            Format::Csv => Some(Box::<csv::Writer>::default()),
            Format::Msr => Some(Box::<msr::Writer>::default()),
            Format::Spc => Some(Box::<spc::Writer>::default()),
            Format::Fio2 => Some(Box::new(fio::Writer::version_2())),
            Format::Fio3 => Some(Box::new(fio::Writer::version_3())),
            Format::Vscsi => Some(Box::<vscsi::Writer>::default()),
            Format::Ascii | Format::IoTrace | Format::Blkparse => None,
        }
    }

    /// The formats that can be written.
    pub fn writable() -> impl Iterator<Item = Format> {
        Self::ALL.into_iter().filter(|format| format.writer().is_some())
    }

    /// Which format the beginning of a trace is in. One bad line at the top does not hide it: the first of some lines that
    /// is like a format's decides.
    pub fn detect(head: &[u8]) -> Option<Format> {
        const LINES: usize = 32;
        if vscsi::looks_like(head) {
            return Some(Format::Vscsi);
        }
        let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        lines.take(LINES).find_map(of_line)
    }
}

fn of_line(line: &[u8]) -> Option<Format> {
    if line.starts_with(fio::HEADER_2) {
        return Some(Format::Fio2);
    }
    if line.starts_with(fio::HEADER_3) {
        return Some(Format::Fio3);
    }
    if line.starts_with(csv::HEADER.as_bytes()) {
        return Some(Format::Csv);
    }
    if line.starts_with(iotrace::HEADER.as_bytes()) {
        return Some(Format::IoTrace);
    }
    if line.starts_with(b"Timestamp,Hostname") {
        return Some(Format::Msr);
    }
    if blkparse::looks_like(line) {
        return Some(Format::Blkparse);
    }
    of_commas(line).or_else(|| of_blanks(line))
}

fn is_whole(field: Option<&&[u8]>) -> bool {
    field.is_some_and(|field| whole(field, "").is_ok())
}

fn is_decimal(field: Option<&&[u8]>) -> bool {
    field.is_some_and(|field| decimal(field, "", 0).is_ok())
}

fn of_commas(line: &[u8]) -> Option<Format> {
    let mut cursor = Cursor::commas(line);
    let fields: smallvec::SmallVec<[&[u8]; 16]> = std::iter::from_fn(|| cursor.next()).take(16).collect();
    let at = |place: usize| fields.get(place);
    let op = |place: usize| at(place).is_some_and(|field| csv::op(field).is_ok());
    if fields.len() >= 10 && is_decimal(at(0)) && op(1) && is_whole(at(2)) && is_whole(at(3)) {
        return Some(Format::IoTrace);
    }
    if fields.len() >= 5 && is_decimal(at(0)) && op(2) && is_whole(at(3)) && is_whole(at(4)) {
        return Some(Format::Csv);
    }
    if fields.len() >= 6 && is_whole(at(0)) && at(3).is_some_and(|field| msr::op(field).is_ok()) && is_whole(at(4)) {
        return Some(Format::Msr);
    }
    let spc = is_whole(at(1)) && is_whole(at(2)) && at(3).is_some_and(|field| spc::op(field).is_ok());
    (spc && is_decimal(at(4))).then_some(Format::Spc)
}

fn of_blanks(line: &[u8]) -> Option<Format> {
    let mut cursor = Cursor::blanks(line);
    let fields: smallvec::SmallVec<[&[u8]; 8]> = std::iter::from_fn(|| cursor.next()).take(6).collect();
    (fields.len() == 5 && fields.iter().all(|field| whole(field, "").is_ok())).then_some(Format::Ascii)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormatName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormatName { name: name.to_owned() })
    }
}
