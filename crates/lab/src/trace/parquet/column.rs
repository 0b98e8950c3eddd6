//! The values of one column of a row group, a batch at a time.

use std::sync::Arc;

use parquet::basic::Type;
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::schema::Meaning;
use super::source::ColumnPages;
use crate::trace::problem::{Excerpt, Problem};

/// A column of a row group that is being read.
pub(super) struct Column {
    meaning: Meaning,
    values: Values,
    /// For a column that may have gaps: 1 for a row with a value, 0 for one without.
    levels: Vec<i16>,
    has_gaps: bool,
    /// The next row's place among the levels, and among the values.
    row: usize,
    value: usize,
}

/// The decoder and what it decoded.
enum Values {
    Int32(ColumnReaderImpl<Int32Type>, Vec<i32>),
    Int64(ColumnReaderImpl<Int64Type>, Vec<i64>),
    Double(ColumnReaderImpl<DoubleType>, Vec<f64>),
    Text(ColumnReaderImpl<ByteArrayType>, Vec<ByteArray>),
}

/// What a row has in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ColumnValue<'a> {
    Nothing,
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a [u8]),
}

impl Column {
    /// A column of a row group with `rows` rows.
    pub(super) fn new(
        pages: &Arc<ColumnPages>,
        chunk: &ColumnChunkMetaData,
        meaning: Meaning,
        rows: usize,
    ) -> Result<Column> {
        let description = chunk.column_descr_ptr();
        let has_gaps = description.max_def_level() > 0;
        let kind = description.physical_type();
        let page_reader: Box<dyn PageReader> =
            Box::new(SerializedPageReader::new(Arc::clone(pages), chunk, rows, None)?);
        let reader = get_column_reader(description, page_reader);
        let values = match kind {
            Type::INT32 => Values::Int32(get_typed_column_reader(reader), Vec::new()),
            Type::INT64 => Values::Int64(get_typed_column_reader(reader), Vec::new()),
            Type::DOUBLE => Values::Double(get_typed_column_reader(reader), Vec::new()),
            Type::BYTE_ARRAY => Values::Text(get_typed_column_reader(reader), Vec::new()),
            _ => return Err(ParquetError::General(format!("a column of {kind} in a row group"))),
        };
        Ok(Column { meaning, values, levels: Vec::new(), has_gaps, row: 0, value: 0 })
    }

    /// Decodes up to `rows` rows; returns their number.
    pub(super) fn fill(&mut self, rows: usize) -> Result<usize> {
        (self.row, self.value) = (0, 0);
        self.levels.clear();
        let levels = &mut self.levels;
        match &mut self.values {
            Values::Int32(reader, values) => decode(reader, levels, values, rows),
            Values::Int64(reader, values) => decode(reader, levels, values, rows),
            Values::Double(reader, values) => decode(reader, levels, values, rows),
            Values::Text(reader, values) => decode(reader, levels, values, rows),
        }
    }

    /// What the next row has.
    pub(super) fn next(&mut self) -> ColumnValue<'_> {
        if self.has_gaps {
            let level = self.levels.get(self.row).copied();
            self.row += 1;
            if level != Some(1) {
                return ColumnValue::Nothing;
            }
        }
        let place = self.value;
        self.value += 1;
        let unsigned = self.meaning.unsigned;
        let value = match &self.values {
            Values::Int32(_, values) => values.get(place).map(|value| {
                if unsigned {
                    ColumnValue::Unsigned(u64::from(*value as u32))
                } else {
                    ColumnValue::Signed(i64::from(*value))
                }
            }),
            Values::Int64(_, values) => values
                .get(place)
                .map(|value| if unsigned { ColumnValue::Unsigned(*value as u64) } else { ColumnValue::Signed(*value) }),
            Values::Double(_, values) => values.get(place).map(|value| ColumnValue::Float(*value)),
            Values::Text(_, values) => values.get(place).map(|value| ColumnValue::Text(value.data())),
        };
        value.unwrap_or(ColumnValue::Nothing)
    }

    /// The next row's number, in bytes or nanoseconds.
    pub(super) fn next_number(&mut self) -> std::result::Result<u64, Problem> {
        let (scale, field) = (self.meaning.scale, self.meaning.role.what());
        let number = match self.next() {
            ColumnValue::Nothing => return Err(Problem::Missing { field }),
            ColumnValue::Unsigned(number) => number.checked_mul(scale),
            ColumnValue::Signed(number) => match u64::try_from(number) {
                Ok(number) => number.checked_mul(scale),
                Err(_) => return Err(unexpected(field, &number.to_string())),
            },
            ColumnValue::Float(number) => match whole(number * scale as f64, scale > 1) {
                Some(number) => Some(number),
                None => return Err(unexpected(field, &number.to_string())),
            },
            ColumnValue::Text(text) => return Err(Problem::NotANumber { field, found: Excerpt::new(text) }),
        };
        number.ok_or_else(|| Problem::Overflow { field, found: Excerpt::new(b"too large") })
    }
}

fn unexpected(field: &'static str, found: &str) -> Problem {
    Problem::Unexpected { field, found: Excerpt::new(found.as_bytes()), expected: "a whole number from 0 on" }
}

/// A floating-point number as a whole one, rounded where that is wanted.
fn whole(number: f64, rounded: bool) -> Option<u64> {
    const BEYOND: f64 = 18_446_744_073_709_551_616.0;
    let of = if rounded { number.round() } else { number };
    ((0.0..BEYOND).contains(&of) && of.fract() == 0.0).then_some(of as u64)
}

fn decode<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
    rows: usize,
) -> Result<usize> {
    values.clear();
    reader.read_records(rows, Some(levels), None, values).map(|(rows, ..)| rows)
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn only_whole_numbers_of_64_bits_are_taken_from_floating_point() {
        assert_eq!(whole(4096.0, false), Some(4096));
        assert_eq!(whole(1.5e9 + 0.4, true), Some(1_500_000_000));
        for bad in [0.5, -1.0, f64::NAN, f64::INFINITY, 2.0f64.powi(64)] {
            assert_eq!(whole(bad, false), None, "{bad}");
        }
    }
}
