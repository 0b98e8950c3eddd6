//! The formats and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The shared CSV: `time_us,dev,op,offset_bytes,size_bytes,flags`.
    Csv,
    /// MSR Cambridge CSV.
    Msr,
    /// SPC, as in the UMass repository.
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
    /// Binary files of blktrace.
    Blktrace,
    /// DiskSim's ASCII traces: time in ms, device, block, blocks, flags.
    Disksim,
    /// HP's SRT (binary).
    Srt,
    /// Alibaba's block traces of 2020.
    Alibaba,
    /// Tencent's cloud block storage.
    Tencent,
    /// Florida International University: SRCMap and I/O deduplication.
    Fiu,
    /// Text of BCC's `biosnoop`.
    Biosnoop,
    /// Apache Parquet (binary).
    Parquet,
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
    pub const ALL: [Format; 18] = [
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
        Format::Blktrace,
        Format::Disksim,
        Format::Srt,
        Format::Alibaba,
        Format::Tencent,
        Format::Fiu,
        Format::Biosnoop,
        Format::Parquet,
    ];

    /// All names, for messages.
    pub const NAMES: &str = "csv, msr, spc, ascii, iotrace, blkparse, fio2, fio3, vscsi, systor, blktrace, disksim, srt, alibaba, tencent, fiu, biosnoop, parquet";

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
            Format::Blktrace => "blktrace",
            Format::Disksim => "disksim",
            Format::Srt => "srt",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Fiu => "fiu",
            Format::Biosnoop => "biosnoop",
            Format::Parquet => "parquet",
        }
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
