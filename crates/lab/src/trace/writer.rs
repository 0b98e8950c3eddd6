//! Writes traces, so that other tools can read them.

use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use super::parse::{Render, Unwritable};
use super::{Devices, Format, Record};

/// A trace cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// There is no writer of this format.
    #[error("cannot write format {format}, only read it")]
    ReadOnlyFormat {
        /// Which one.
        format: Format,
    },
    /// A record that the format cannot hold.
    #[error("record {number} cannot be written as {format}: {why}")]
    Unwritable {
        /// The record, from 1.
        number: u64,
        /// The format.
        format: Format,
        /// Why.
        why: Unwritable,
    },
    /// The output fails.
    #[error("writing failed: {source}")]
    Output {
        /// Why.
        #[from]
        source: io::Error,
    },
}

const FLUSH_BYTES: usize = 64 << 10;

/// Writes records in one format. Nothing is complete before [`Writer::finish`].
pub struct Writer<W: Write> {
    out: W,
    format: Format,
    render: Box<dyn Render>,
    buffer: Vec<u8>,
    names: FxHashMap<u32, String>,
    used: FxHashSet<String>,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// A writer to `out`, which needs no buffer of its own.
    pub fn new(out: W, format: Format) -> Result<Self, WriteError> {
        let mut render = format.writer().ok_or(WriteError::ReadOnlyFormat { format })?;
        let mut buffer = Vec::with_capacity(2 * FLUSH_BYTES);
        render.begin(&mut buffer);
        Ok(Self { out, format, render, buffer, names: FxHashMap::default(), used: FxHashSet::default(), records: 0 })
    }

    /// Writes a record; its device is called as in `devices`, or by its number.
    pub fn write(&mut self, record: &Record, devices: &Devices) -> Result<(), WriteError> {
        if !self.names.contains_key(&record.device) {
            let name = devices.name(record.device).unwrap_or_else(|| record.device.to_string());
            let name = self.free_name(&name, record.device);
            self.names.insert(record.device, name);
        }
        let name = self.names.get(&record.device).map_or("", String::as_str);
        self.records += 1;
        self.render.record(&mut self.buffer, record, name).map_err(|why| WriteError::Unwritable {
            number: self.records,
            format: self.format,
            why,
        })?;
        if self.buffer.len() >= FLUSH_BYTES {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// A name without what separates fields, that no other device has.
    fn free_name(&mut self, name: &str, device: u32) -> String {
        let plain: String =
            name.chars().map(|letter| if letter.is_ascii_graphic() && letter != ',' { letter } else { '_' }).collect();
        // MSR splits the number off a name and reads back `disk` and 7 as `disk7`.
        let shapes = |name: &str| [name.to_owned(), format!("disk{name}"), format!("{name}0")];
        let others = (0..).map(|more: u64| format!("{plain}_{}", u64::from(device) + more));
        let free = std::iter::once(plain.clone())
            .chain(others)
            .find(|name| shapes(name).iter().all(|shape| !self.used.contains(shape)));
        let free = free.unwrap_or(plain);
        self.used.extend(shapes(&free));
        free
    }

    /// Writes what is left, and gives the output back.
    pub fn finish(mut self) -> Result<W, WriteError> {
        let (number, format) = (self.records, self.format);
        self.render.end(&mut self.buffer).map_err(|why| WriteError::Unwritable { number, format, why })?;
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
