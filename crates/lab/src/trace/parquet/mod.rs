//! Apache Parquet, the columnar format of pandas, Arrow and Spark: a row is a request.
//!
//! A column's name gives its meaning and unit ([`schema`]). Rows are read in batches, column by column, so memory holds
//! one page for each of five columns, whatever the file's row groups are. The crate `parquet` decodes. [`source`]
//! limits what a hostile file could make it do: the size of the footer and of a page, and pages whose rows do not
//! match.

mod column;
mod problem;
mod rows;
mod schema;
mod source;
mod writer;

pub use problem::ParquetProblem;
pub(super) use rows::Rows;
pub(super) use source::{FromFile, is_parquet};
pub(super) use writer::ParquetRenderer;

/// The first and the last bytes of a file.
const MAGIC: &[u8; 4] = b"PAR1";
