//! A whole trace in memory, column by column: read once, replayed by many runs.

use umbrella_units::{ByteSize, Nanos};

use super::{Devices, Record, Summary, TraceError, TraceOp, TraceReader};

/// The operations, in the order of their codes in [`Columns::ops`].
pub const OPERATIONS: [TraceOp; 3] = [TraceOp::Read, TraceOp::Write, TraceOp::Discard];

/// A trace's requests in the order of time: 29 bytes each.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// When each was issued, in nanoseconds from the beginning.
    pub times: Vec<u64>,
    /// The device of each, by its number.
    pub devices: Vec<i32>,
    /// What each did: its place in [`OPERATIONS`].
    pub ops: Vec<i8>,
    /// The first byte of each.
    pub offsets: Vec<u64>,
    /// How many bytes each has.
    pub sizes: Vec<u64>,
    /// What the devices are called.
    pub names: Devices,
}

impl Columns {
    /// Reads all that is left.
    pub fn read(reader: &mut TraceReader) -> Result<Columns, TraceError> {
        Columns::read_some(reader, usize::MAX)
    }

    /// Reads what is left, `most` requests at most.
    pub fn read_some(reader: &mut TraceReader, most: usize) -> Result<Columns, TraceError> {
        let mut columns = Columns::default();
        for record in reader.by_ref().take(most) {
            columns.push(&record?);
        }
        columns.names = reader.devices().clone();
        Ok(columns)
    }

    fn push(&mut self, record: &Record) {
        self.times.push(record.time.0);
        self.devices.push(record.device as i32);
        self.ops.push(match record.op {
            TraceOp::Read => 0,
            TraceOp::Write => 1,
            TraceOp::Discard => 2,
        });
        self.offsets.push(record.offset.0);
        self.sizes.push(record.size.0);
    }

    /// What they sum up to.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for record in self.records() {
            summary.add(&record);
        }
        summary.name_devices(&self.names);
        summary
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The requests one after the other.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let rest = self.devices.iter().zip(&self.ops).zip(self.offsets.iter().zip(&self.sizes));
        self.times.iter().zip(rest).map(|(time, ((device, op), (offset, size)))| Record {
            time: Nanos(*time),
            device: *device as u32,
            op: OPERATIONS.get(*op as usize).copied().unwrap_or(TraceOp::Discard),
            offset: ByteSize(*offset),
            size: ByteSize(*size),
        })
    }
}
