//! fio's iologs, versions 2 and 3 (fio HOWTO, "Trace file format"; fio's iolog.c).
//!
//! Version 2: `file action [offset length]`; it carries time only in `wait` actions, whose microseconds add up. Version 3 puts a
//! time before each line: microseconds since the start, as fio's `log_io_u` writes them. Files are devices. A `trim` is a discard;
//! `add`, `open`, `close` and the syncs hold no request.

use std::collections::BTreeSet;
use std::io::Write as _;

use super::cursor::Cursor;
use super::devices::Devices;
use super::error::{Excerpt, Problem};
use super::parse::{Parse, Render, record, time};
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
pub(super) struct Reader {
    version: Version,
    begun: bool,
    waited_us: u64,
}

impl Reader {
    pub(super) fn version_2() -> Self {
        Self { version: Version::Two, begun: false, waited_us: 0 }
    }

    pub(super) fn version_3() -> Self {
        Self { version: Version::Three, begun: false, waited_us: 0 }
    }
}

impl Parse for Reader {
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
        let micros = match self.version {
            Version::Two => self.waited_us,
            Version::Three => fields.number("the timestamp")?,
        };
        let file = fields.field("the file name")?;
        let op = match fields.field("the action")? {
            b"read" => TraceOp::Read,
            b"write" => TraceOp::Write,
            b"trim" => TraceOp::Discard,
            b"wait" if self.version == Version::Two => {
                let wait = fields.number("the wait")?;
                self.waited_us = self.waited_us.checked_add(wait).ok_or_else(|| Problem::Overflow {
                    field: "the sum of waits",
                    found: Excerpt::new(wait.to_string().as_bytes()),
                })?;
                return Ok(None);
            }
            b"add" | b"open" | b"close" | b"sync" | b"datasync" | b"sync_file_range" => return Ok(None),
            other => {
                let known = "read, write, trim, sync, datasync, sync_file_range, wait (version 2), add, open, close";
                return Err(Problem::UnknownOp { found: Excerpt::new(other), known });
            }
        };
        let offset = fields.number("the offset")?;
        let size = fields.number("the length")?;
        let device = devices.number(file)?;
        record(time(micros, 1_000)?, device, op, offset, size).map(Some)
    }
}

/// Writes it. A file is added and opened before its first request.
#[derive(Debug)]
pub(super) struct Writer {
    version: Version,
    open: BTreeSet<String>,
    last_us: u64,
}

impl Writer {
    pub(super) fn version_2() -> Self {
        Self { version: Version::Two, open: BTreeSet::new(), last_us: 0 }
    }

    pub(super) fn version_3() -> Self {
        Self { version: Version::Three, open: BTreeSet::new(), last_us: 0 }
    }

    fn line(&self, out: &mut Vec<u8>, rest: std::fmt::Arguments<'_>) {
        if self.version == Version::Three {
            let _ = write!(out, "{} ", self.last_us);
        }
        let _ = writeln!(out, "{rest}");
    }
}

impl Render for Writer {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.version.header());
        out.push(b'\n');
    }

    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> Result<(), Unwritable> {
        let micros = record.time.0 / 1_000;
        let wait = micros.checked_sub(self.last_us).ok_or(Unwritable::Time)?;
        self.last_us = micros;
        if self.open.insert(name.to_owned()) {
            self.line(out, format_args!("{name} add"));
            self.line(out, format_args!("{name} open"));
        }
        if wait > 0 && self.version == Version::Two {
            self.line(out, format_args!("{name} wait {wait} 0"));
        }
        let action = match record.op {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::Discard => "trim",
        };
        self.line(out, format_args!("{name} {action} {} {}", record.offset.0, record.size.0));
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        for name in &self.open {
            self.line(out, format_args!("{name} close"));
        }
    }
}
