//! fio's iologs, versions 2 and 3 (fio HOWTO, "Trace file format"; fio's iolog.c).
//!
//! Version 2: `file action [offset length]`; it carries time only in `wait T 0`. The manual says that this waits for T
//! microseconds. But fio (3.33) waits until T milliseconds after its own start, and not at all if they are over.
//! Reading and writing here follow the program. Version 3 puts a time before each line: microseconds since the start,
//! as fio's `log_io_u` writes them; fio ignores its waits. Files are devices. A `trim` is a discard; `add`, `open`,
//! `close` and the syncs hold no request.

use std::collections::BTreeSet;
use std::io::Write as _;

use super::cursor::{Cursor, whole};
use super::devices::Devices;
use super::parse::{Parse, Render, record, time};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp, Unwritable};

pub(super) const HEADER_2: &[u8] = b"fio version 2 iolog";
pub(super) const HEADER_3: &[u8] = b"fio version 3 iolog";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Version {
    fn header(self) -> &'static [u8] {
        match self {
            Version::Two => HEADER_2,
            Version::Three => HEADER_3,
        }
    }
}

/// Reads it.
#[derive(Debug)]
pub(super) struct FioParser {
    version: Version,
    begun: bool,
    waited_until_ms: u64,
}

impl FioParser {
    pub(super) fn version_2() -> Self {
        Self { version: Version::Two, begun: false, waited_until_ms: 0 }
    }

    pub(super) fn version_3() -> Self {
        Self { version: Version::Three, begun: false, waited_until_ms: 0 }
    }
}

impl Parse for FioParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !self.begun {
            self.begun = true;
            if line.starts_with(b"fio version") {
                return if line.starts_with(self.version.header()) {
                    Ok(None)
                } else {
                    let expected =
                        if self.version == Version::Two { "fio version 2 iolog" } else { "fio version 3 iolog" };
                    Err(Problem::Unexpected { field: "the header", found: Excerpt::new(line), expected })
                };
            }
        }
        let mut fields = Cursor::blanks(line);
        let time = match self.version {
            Version::Two => time(self.waited_until_ms, 1_000_000)?,
            Version::Three => time(fields.number("the timestamp")?, 1_000)?,
        };
        let file = fields.field("the file name")?;
        let op = match fields.field("the action")? {
            b"read" => TraceOp::Read,
            b"write" => TraceOp::Write,
            b"trim" => TraceOp::Discard,
            b"wait" => {
                let until = fields.next();
                // fio reads over a wait of three fields, and over any in version 3.
                if let (Version::Two, Some(until), Some(_)) = (self.version, until, fields.next()) {
                    self.waited_until_ms = self.waited_until_ms.max(whole(until, "the wait")?);
                }
                return Ok(None);
            }
            b"add" | b"open" | b"close" | b"sync" | b"datasync" | b"sync_file_range" => return Ok(None),
            other => {
                let known = "read, write, trim, sync, datasync, sync_file_range, wait, add, open, close";
                return Err(Problem::UnknownOp { found: Excerpt::new(other), known });
            }
        };
        let offset = fields.number("the offset")?;
        let size = fields.number("the length")?;
        let device = devices.number(file)?;
        record(time, device, op, offset, size).map(Some)
    }
}

/// Writes it. A file is added and opened before its first request.
#[derive(Debug)]
pub(super) struct FioRenderer {
    version: Version,
    open: BTreeSet<String>,
    /// The time of the last line, in the version's unit.
    last: u64,
}

impl FioRenderer {
    pub(super) fn version_2() -> Self {
        Self { version: Version::Two, open: BTreeSet::new(), last: 0 }
    }

    pub(super) fn version_3() -> Self {
        Self { version: Version::Three, open: BTreeSet::new(), last: 0 }
    }

    fn line(&self, out: &mut Vec<u8>, rest: std::fmt::Arguments<'_>) {
        if self.version == Version::Three {
            let _ = write!(out, "{} ", self.last);
        }
        let _ = writeln!(out, "{rest}");
    }
}

impl Render for FioRenderer {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.version.header());
        out.push(b'\n');
    }

    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> Result<(), Unwritable> {
        let time = match self.version {
            Version::Two => record.time.0 / 1_000_000,
            Version::Three => record.time.0 / 1_000,
        };
        let waits = time.checked_sub(self.last).ok_or(Unwritable::Time)? > 0;
        self.last = time;
        if self.open.insert(name.to_owned()) {
            self.line(out, format_args!("{name} add"));
            self.line(out, format_args!("{name} open"));
        }
        if waits && self.version == Version::Two {
            self.line(out, format_args!("{name} wait {time} 0"));
        }
        let action = match record.op {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::Discard => "trim",
        };
        self.line(out, format_args!("{name} {action} {} {}", record.offset.0, record.size.0));
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        for name in &self.open {
            self.line(out, format_args!("{name} close"));
        }
        Ok(())
    }
}
