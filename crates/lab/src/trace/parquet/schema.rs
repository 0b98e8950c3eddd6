//! Which column of a Parquet file says what, by its name and its type.
//!
//! | what | name | type |
//! | --- | --- | --- |
//! | time | `time`, `timestamp` | timestamp of ms, us or ns |
//! | time | `time_ns`, `time_us`, `time_ms`, `time_s` | number, or timestamp |
//! | offset in bytes | `offset_bytes`, `offset` | number |
//! | size in bytes | `size_bytes`, `size`, `length_bytes`, `length` | number |
//! | operation | `op`, `operation` | text: `read`, `write`, `discard` or `R`, `W`, `D`, in any case |
//! | device, may be missing | `device`, `dev` | text or number |
//!
//! A number is an integer of up to 64 bits, or a floating-point number that is whole (pandas makes one of an integer
//! column with gaps). All other columns are ignored.

use parquet::basic::{Compression, ConvertedType, LogicalType, TimeUnit, Type};
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::problem::ParquetProblem;

/// What a column says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Time,
    Offset,
    Size,
    Op,
    Device,
}

impl Role {
    pub(super) const ALL: [Role; 5] = [Role::Time, Role::Offset, Role::Size, Role::Op, Role::Device];

    pub(super) fn what(self) -> &'static str {
        match self {
            Role::Time => "time",
            Role::Offset => "offset",
            Role::Size => "size",
            Role::Op => "operation",
            Role::Device => "device",
        }
    }

    fn names(self) -> &'static str {
        match self {
            Role::Time => "time, timestamp, time_ns, time_us, time_ms, time_s",
            Role::Offset => "offset_bytes, offset",
            Role::Size => "size_bytes, size, length_bytes, length",
            Role::Op => "op, operation",
            Role::Device => "device, dev",
        }
    }

    fn is_called(self, name: &str) -> bool {
        self.names().split(", ").any(|known| known == name)
    }
}

/// A column and how its values are understood.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meaning {
    /// Its number among the file's columns.
    pub(super) column: usize,
    pub(super) role: Role,
    /// What one is in bytes or nanoseconds.
    pub(super) scale: u64,
    /// Whether the bits of an integer are those of a number without a sign.
    pub(super) unsigned: bool,
}

/// The columns of a trace, in the order of [`Role::ALL`]; the device may be missing.
pub(super) fn meanings(schema: &SchemaDescriptor) -> Result<Vec<Meaning>, ParquetProblem> {
    let mut found = Vec::new();
    for role in Role::ALL {
        let mut named = schema.columns().iter().enumerate().filter(|(_, column)| {
            column.path().parts().len() == 1 && column.max_rep_level() == 0 && role.is_called(column.name())
        });
        match (named.next(), named.next()) {
            (None, _) if role == Role::Device => {}
            (None, _) => return Err(ParquetProblem::MissingColumn { what: role.what(), names: role.names() }),
            (_, Some(_)) => return Err(ParquetProblem::TwoColumns { what: role.what(), names: role.names() }),
            (Some((number, column)), None) => found.push(meaning(number, role, column)?),
        }
    }
    Ok(found)
}

fn meaning(number: usize, role: Role, column: &ColumnDescriptor) -> Result<Meaning, ParquetProblem> {
    let of_type = |expected| ParquetProblem::ColumnType { column: column.name().to_owned(), expected };
    let kind = kind(column);
    let scale = match (role, kind) {
        (Role::Time, Some(ColumnKind::Timestamp { nanos })) => nanos,
        (Role::Time, Some(ColumnKind::Number { .. })) => unit_of_name(column.name()).ok_or_else(|| {
            of_type("timestamp (a column of numbers says its unit: time_ns, time_us, time_ms or time_s)")
        })?,
        (Role::Time, _) => return Err(of_type("timestamp or a column of numbers")),
        (Role::Offset | Role::Size, Some(ColumnKind::Number { .. }))
        | (Role::Device, Some(ColumnKind::Number { .. } | ColumnKind::Text))
        | (Role::Op, Some(ColumnKind::Text)) => 1,
        (Role::Offset | Role::Size, _) => return Err(of_type("column of numbers")),
        (Role::Op, _) => return Err(of_type("column of text")),
        (Role::Device, _) => return Err(of_type("column of text or numbers")),
    };
    Ok(Meaning { column: number, role, scale, unsigned: kind == Some(ColumnKind::Number { unsigned: true }) })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    Number { unsigned: bool },
    Timestamp { nanos: u64 },
    Text,
}

fn kind(column: &ColumnDescriptor) -> Option<ColumnKind> {
    use ConvertedType as Old;
    let unsigned = |unsigned| Some(ColumnKind::Number { unsigned });
    match (column.physical_type(), column.logical_type_ref(), column.converted_type()) {
        (Type::INT64, Some(LogicalType::Timestamp(of)), _) => Some(ColumnKind::Timestamp {
            nanos: match of.unit {
                TimeUnit::MILLIS => 1_000_000,
                TimeUnit::MICROS => 1_000,
                TimeUnit::NANOS => 1,
            },
        }),
        (Type::INT32 | Type::INT64, Some(LogicalType::Integer(of)), _) => unsigned(!of.is_signed),
        (Type::BYTE_ARRAY, Some(LogicalType::String | LogicalType::Enum), _)
        | (Type::BYTE_ARRAY, None, Old::UTF8 | Old::ENUM | Old::NONE) => Some(ColumnKind::Text),
        (Type::INT64, None, Old::TIMESTAMP_MILLIS) => Some(ColumnKind::Timestamp { nanos: 1_000_000 }),
        (Type::INT64, None, Old::TIMESTAMP_MICROS) => Some(ColumnKind::Timestamp { nanos: 1_000 }),
        (Type::INT32 | Type::INT64, None, Old::UINT_8 | Old::UINT_16 | Old::UINT_32 | Old::UINT_64) => unsigned(true),
        (Type::INT32 | Type::INT64, None, Old::NONE | Old::INT_8 | Old::INT_16 | Old::INT_32 | Old::INT_64)
        | (Type::DOUBLE, None, Old::NONE) => unsigned(false),
        _ => None,
    }
}

fn unit_of_name(name: &str) -> Option<u64> {
    match name {
        "time_ns" => Some(1),
        "time_us" => Some(1_000),
        "time_ms" => Some(1_000_000),
        "time_s" => Some(1_000_000_000),
        _ => None,
    }
}

/// Refuses a compression whose output the decoder does not limit.
pub(super) fn check_codecs(group: &RowGroupMetaData, meanings: &[Meaning]) -> Result<(), ParquetProblem> {
    for meaning in meanings {
        let Some(chunk) = group.columns().get(meaning.column) else { continue };
        let codec = match chunk.compression() {
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) => continue,
            Compression::GZIP(_) => "gzip",
            Compression::BROTLI(_) => "Brotli",
            Compression::LZ4 | Compression::LZ4_RAW => "LZ4",
            Compression::LZO => "LZO",
        };
        return Err(ParquetProblem::Codec { column: chunk.column_descr().name().to_owned(), codec });
    }
    Ok(())
}
