//! The formats, their names, and how one is told from its content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::blkparse::{self, Event};
use super::parse::{Parse, Render};
use super::{TraceError, ascii, csv, detect, fio, iotrace, msr, spc, systor, vscsi};

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
    /// SYSTOR '17 CSV.
    Systor,
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
    pub const ALL: [Format; 10] = [
        Format::Csv,
        Format::Msr,
        Format::Spc,
        Format::Ascii,
        Format::IoTrace,
        Format::Blkparse,
        Format::Fio2,
        Format::Fio3,
        Format::Vscsi,
        Format::Systor,
    ];

    /// All names, for messages.
    pub const NAMES: &str = "csv, msr, spc, ascii, iotrace, blkparse, fio2, fio3, vscsi, systor";

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
            Format::Systor => "systor",
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
            Format::Systor => Box::<systor::Reader>::default(),
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
            Format::Ascii | Format::IoTrace | Format::Blkparse | Format::Systor => None,
        }
    }

    /// The formats that can be written.
    pub fn writable() -> impl Iterator<Item = Format> {
        Self::ALL.into_iter().filter(|format| format.writer().is_some())
    }

    /// Which format the beginning of a trace is in: certain, or an error that says what it may be.
    pub fn detect(head: &[u8]) -> Result<Format, TraceError> {
        detect::detect(head)
    }
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
