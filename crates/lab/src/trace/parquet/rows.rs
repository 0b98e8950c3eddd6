//! The rows of a Parquet file as records.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parquet::file::metadata::ParquetMetaData;

use super::column::{Column, ColumnValue};
use super::problem::ParquetProblem;
use super::schema::{Meaning, Role, check_codecs, meanings};
use super::source::{ColumnPages, FromFile};
use crate::trace::devices::Devices;
use crate::trace::parse::record;
use crate::trace::problem::{Excerpt, Position, Problem};
use crate::trace::{Record, TraceOp};

/// Rows that are decoded at a time.
const BATCH: usize = 4096;

/// The position of a row, and its request or error.
pub(in crate::trace) type ParsedRow = (Position, Result<Record, Problem>);

/// A file whose rows are read one after the other.
pub(in crate::trace) struct Rows {
    pages: Arc<ColumnPages>,
    metadata: ParquetMetaData,
    meanings: Vec<Meaning>,
    next_group: usize,
    columns: Vec<Column>,
    /// Rows of the row group that are not decoded yet, and of the batch that are not given yet.
    left_in_group: u64,
    left_in_batch: usize,
    row: u64,
    /// Where the row group begins in the file.
    group_begin: u64,
    /// The last number that named a device, and its device.
    last_number: Option<(i128, u32)>,
}

impl Rows {
    /// The rows of a file whose columns are those of a trace.
    pub(in crate::trace) fn new(file: FromFile) -> Result<Rows, ParquetProblem> {
        let (metadata, meanings) = guarded(0, || {
            let metadata = file.metadata()?;
            let meanings = meanings(metadata.file_metadata().schema_descr())?;
            Ok((metadata, meanings))
        })?;
        Ok(Rows {
            pages: Arc::new(ColumnPages(file)),
            metadata,
            meanings,
            next_group: 0,
            columns: Vec::new(),
            left_in_group: 0,
            left_in_batch: 0,
            row: 0,
            group_begin: 0,
            last_number: None,
        })
    }

    /// The next row: where it is, and its request.
    pub(in crate::trace) fn next(&mut self, devices: &mut Devices) -> Result<Option<ParsedRow>, ParquetProblem> {
        while self.left_in_batch == 0 {
            let row = self.row;
            if !guarded(row, || self.fill())? {
                return Ok(None);
            }
        }
        self.left_in_batch -= 1;
        self.row += 1;
        Ok(Some((Position { line: self.row, byte: self.group_begin }, self.request(devices))))
    }

    /// Decodes a batch, perhaps an empty one; false at the end of the file.
    fn fill(&mut self) -> Result<bool, ParquetProblem> {
        if self.left_in_group == 0 {
            return self.begin_group();
        }
        let wanted = BATCH.min(usize::try_from(self.left_in_group).unwrap_or(BATCH));
        for column in &mut self.columns {
            if column.fill(wanted)? != wanted {
                return Err(ParquetProblem::Uneven { row: self.row });
            }
        }
        self.left_in_group -= wanted as u64;
        self.left_in_batch = wanted;
        Ok(true)
    }

    fn begin_group(&mut self) -> Result<bool, ParquetProblem> {
        let Some(group) = self.metadata.row_groups().get(self.next_group) else { return Ok(false) };
        self.next_group += 1;
        check_codecs(group, &self.meanings)?;
        let uneven = ParquetProblem::Uneven { row: self.row };
        let Ok(rows) = usize::try_from(group.num_rows()) else { return Err(uneven) };
        self.columns.clear();
        self.last_number = None;
        for meaning in &self.meanings {
            let Some(chunk) = group.columns().get(meaning.column) else { return Err(uneven) };
            self.columns.push(Column::new(&self.pages, chunk, *meaning, rows)?);
            self.group_begin = chunk.byte_range().0;
        }
        self.left_in_group = rows as u64;
        Ok(true)
    }

    /// Takes the next value of each column, also of those that a wrong one makes useless.
    fn request(&mut self, devices: &mut Devices) -> Result<Record, Problem> {
        let [time, offset, size, op, others @ ..] = self.columns.as_mut_slice() else {
            return Err(Problem::Missing { field: Role::Time.what() });
        };
        let (time, offset, size, op) = (time.next_number(), offset.next_number(), size.next_number(), operation(op));
        let device = match others.first_mut().map(Column::next) {
            None => Ok(Device::Name(b"0")),
            Some(ColumnValue::Text(name)) => Ok(Device::Name(name)),
            Some(ColumnValue::Signed(number)) => Ok(Device::Number(number.into())),
            Some(ColumnValue::Unsigned(number)) => Ok(Device::Number(number.into())),
            Some(ColumnValue::Float(number)) if number.fract() == 0.0 => Ok(Device::Number(number as i128)),
            Some(ColumnValue::Nothing | ColumnValue::Float(_)) => Err(Problem::Missing { field: Role::Device.what() }),
        };
        let (time, offset, size, op) = (time?, offset?, size?, op?);
        let device = match device? {
            Device::Name(name) => devices.number(name)?,
            Device::Number(number) => match self.last_number {
                Some((last, device)) if last == number => device,
                _ => {
                    let device = devices.number(number.to_string().as_bytes())?;
                    self.last_number = Some((number, device));
                    device
                }
            },
        };
        record(time, device, op, offset, size)
    }
}

/// What a row says of its device.
enum Device<'a> {
    Name(&'a [u8]),
    Number(i128),
}

fn operation(column: &mut Column) -> Result<TraceOp, Problem> {
    const OPERATIONS: [(&str, TraceOp); 6] = [
        ("read", TraceOp::Read),
        ("write", TraceOp::Write),
        ("discard", TraceOp::Discard),
        ("r", TraceOp::Read),
        ("w", TraceOp::Write),
        ("d", TraceOp::Discard),
    ];
    let ColumnValue::Text(text) = column.next() else { return Err(Problem::Missing { field: Role::Op.what() }) };
    let known = OPERATIONS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes()));
    known
        .map(|(_, op)| *op)
        .ok_or_else(|| Problem::UnknownOp { found: Excerpt::new(text), known: "read, write, discard, R, W, D" })
}

/// Runs the decoder. It checks what it reads, with a few assertions among the checks: where one fails, the file is
/// damaged.
fn guarded<T>(row: u64, decode: impl FnOnce() -> Result<T, ParquetProblem>) -> Result<T, ParquetProblem> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or(Err(ParquetProblem::GaveUp { row }))
}
