//! Writes Parquet: `time_ns`, `device`, `op`, `offset_bytes`, `size_bytes`, compressed with Zstandard.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::trace::parse::Render;
use crate::trace::{Record, TraceOp, Unwritable};

const SCHEMA: &str = "message trace {
    required int64 time_ns;
    required binary device (STRING);
    required binary op (STRING);
    required int64 offset_bytes;
    required int64 size_bytes;
}";

/// Rows of a row group: 5 MB of columns.
const GROUP_ROWS: usize = 1 << 17;

/// Keeps a row group's columns until it is full.
#[derive(Default)]
pub(in crate::trace) struct ParquetRenderer {
    file: Option<SerializedFileWriter<Vec<u8>>>,
    times: Vec<i64>,
    devices: Vec<ByteArray>,
    ops: Vec<ByteArray>,
    offsets: Vec<i64>,
    sizes: Vec<i64>,
    /// The last device's name, and its bytes, which rows share.
    name: (String, ByteArray),
}

impl ParquetRenderer {
    fn write_group(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut group = file.next_row_group()?;
        write_column::<Int64Type>(&mut group, &mut self.times)?;
        write_column::<ByteArrayType>(&mut group, &mut self.devices)?;
        write_column::<ByteArrayType>(&mut group, &mut self.ops)?;
        write_column::<Int64Type>(&mut group, &mut self.offsets)?;
        write_column::<Int64Type>(&mut group, &mut self.sizes)?;
        group.close()?;
        Ok(())
    }

    /// Moves what was written into `out`.
    fn drain_into(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush()?;
        out.append(file.inner_mut());
        Ok(())
    }
}

fn write_column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &mut Vec<T::T>) -> Result<()> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, None, None)?;
        column.close()?;
    }
    values.clear();
    Ok(())
}

fn begin() -> Result<SerializedFileWriter<Vec<u8>>> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder()
        .set_created_by("Umbrella".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))
}

impl Render for ParquetRenderer {
    fn begin(&mut self, _out: &mut Vec<u8>) {
        self.file = begin().ok();
    }

    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> std::result::Result<(), Unwritable> {
        let signed = |number: u64| i64::try_from(number).map_err(|_| Unwritable::TooLarge);
        let (time, offset, size) = (signed(record.time.0)?, signed(record.offset.0)?, signed(record.size.0)?);
        self.times.push(time);
        self.offsets.push(offset);
        self.sizes.push(size);
        if self.name.0 != name {
            self.name = (name.to_owned(), name.into());
        }
        self.devices.push(self.name.1.clone());
        self.ops.push(ByteArray::from(Bytes::from_static(match record.op {
            TraceOp::Read => b"read",
            TraceOp::Write => b"write",
            TraceOp::Discard => b"discard",
        })));
        if self.times.len() < GROUP_ROWS {
            return Ok(());
        }
        self.write_group().and_then(|()| self.drain_into(out)).map_err(|_| Unwritable::Encoder)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> std::result::Result<(), Unwritable> {
        let written = self.write_group();
        let file = self.file.take().ok_or(Unwritable::Encoder)?;
        written.and_then(|()| file.into_inner()).map(|rest| out.extend(rest)).map_err(|_| Unwritable::Encoder)
    }
}
