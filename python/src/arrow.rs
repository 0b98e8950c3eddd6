//! A trace's columns as an Arrow array whose buffers are the columns themselves.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, Int64Array, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field};
use bytes::Bytes;
use umbrella_lab::trace::Columns;
use zerocopy::IntoBytes;

/// A column of a trace, kept alive by who holds its bytes.
struct Column {
    columns: Arc<Columns>,
    bytes: fn(&Columns) -> &[u8],
}

impl AsRef<[u8]> for Column {
    fn as_ref(&self) -> &[u8] {
        (self.bytes)(&self.columns)
    }
}

/// `time_ns`, `device`, `op`, `offset_bytes`, `size_bytes`: the columns of our Parquet files.
pub(crate) fn array(columns: &Arc<Columns>) -> Result<StructArray, ArrowError> {
    let rows = columns.len();
    let buffer = |bytes| Buffer::from(Bytes::from_owner(Column { columns: Arc::clone(columns), bytes }));
    let numbers = |bytes| -> ArrayRef { Arc::new(Int64Array::new(ScalarBuffer::new(buffer(bytes), 0, rows), None)) };
    let devices: Vec<String> =
        (0..columns.names.len() as u32).map(|device| columns.names.name(device).unwrap_or_default()).collect();
    let device = DictionaryArray::<Int32Type>::try_new(
        PrimitiveArray::new(ScalarBuffer::new(buffer(|columns| columns.devices.as_bytes()), 0, rows), None),
        Arc::new(StringArray::from(devices)),
    )?;
    let op = DictionaryArray::<Int8Type>::try_new(
        PrimitiveArray::new(ScalarBuffer::new(buffer(|columns| columns.ops.as_bytes()), 0, rows), None),
        Arc::new(StringArray::from(vec!["read", "write", "discard"])),
    )?;
    let arrays: [(&str, ArrayRef); 5] = [
        ("time_ns", numbers(|columns| columns.times.as_bytes())),
        ("device", Arc::new(device)),
        ("op", Arc::new(op)),
        ("offset_bytes", numbers(|columns| columns.offsets.as_bytes())),
        ("size_bytes", numbers(|columns| columns.sizes.as_bytes())),
    ];
    let fields: Vec<Field> =
        arrays.iter().map(|(name, array)| Field::new(*name, DataType::clone(array.data_type()), false)).collect();
    StructArray::try_new(fields.into(), arrays.into_iter().map(|(_, array)| array).collect(), None)
}
