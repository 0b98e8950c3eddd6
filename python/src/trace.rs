//! `umbrella_lab.Trace`: a trace in memory.

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::ffi::to_ffi;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use umbrella_lab::trace::{
    self, Columns, Compression, Encoder, Format, OpenOptions, Strictness, TraceError, TraceReader, Writer,
};

use crate::arrow;

/// A block trace: the requests that a disk got, in the order of time.
#[pyclass(module = "umbrella_lab._native", frozen)]
pub(crate) struct Trace {
    name: PathBuf,
    format: Format,
    columns: Arc<Columns>,
}

/// The most that Arrow's `int64` holds.
const MOST: u64 = i64::MAX as u64;

impl Trace {
    pub(crate) fn name(&self) -> &PathBuf {
        &self.name
    }

    pub(crate) fn columns(&self) -> &Arc<Columns> {
        &self.columns
    }
}

/// A problem of a trace, as Python's own exceptions.
fn failed(name: &Path, error: TraceError) -> PyErr {
    match error {
        TraceError::Open { .. } | TraceError::NotAFile { .. } => PyOSError::new_err(error.to_string()),
        TraceError::UncertainFormat { .. } | TraceError::UnknownFormat => {
            PyValueError::new_err(format!("{}: {error} (name the format with format=\"csv\", ...)", name.display()))
        }
        error => PyValueError::new_err(format!("{}: {error}", name.display())),
    }
}

fn read(
    py: Python<'_>,
    name: PathBuf,
    open: impl FnOnce() -> Result<TraceReader, TraceError> + Send,
) -> PyResult<Trace> {
    let read = py.detach(|| {
        let mut reader = open()?;
        Ok((reader.format(), Columns::read(&mut reader)?))
    });
    let (format, columns) = read.map_err(|error| failed(&name, error))?;
    Ok(Trace { name, format, columns: Arc::new(columns) })
}

#[pymethods]
impl Trace {
    /// Reads a file of any known format.
    #[staticmethod]
    #[pyo3(signature = (path, *, format=None, lenient=false))]
    fn open(py: Python<'_>, path: PathBuf, format: Option<&str>, lenient: bool) -> PyResult<Trace> {
        let format = format.map(str::parse).transpose();
        let format = format.map_err(|error: trace::UnknownFormatName| PyValueError::new_err(error.to_string()))?;
        let strictness = if lenient { Strictness::Lenient } else { Strictness::Normal };
        let options = OpenOptions { format, strictness, ..OpenOptions::default() };
        let name = path.clone();
        read(py, name, move || trace::open(&path, &options))
    }

    /// Reads a Parquet file that is in memory.
    #[staticmethod]
    fn from_parquet(py: Python<'_>, parquet: &[u8], name: PathBuf) -> PyResult<Trace> {
        let (bytes, options) =
            (parquet.to_vec(), OpenOptions { format: Some(Format::Parquet), ..OpenOptions::default() });
        read(py, name, move || trace::from_reader(Cursor::new(bytes), &options))
    }

    /// The same as a Parquet file in memory.
    fn to_parquet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.written(Vec::new(), Format::Parquet));
        bytes.map(|bytes| PyBytes::new(py, &bytes))
    }

    /// Writes a file.
    fn write(&self, py: Python<'_>, path: PathBuf, format: &str) -> PyResult<()> {
        let format: Format =
            format.parse().map_err(|error: trace::UnknownFormatName| PyValueError::new_err(error.to_string()))?;
        let wrong = |error: std::io::Error| PyOSError::new_err(format!("{}: {error}", path.display()));
        py.detach(|| {
            let file = File::create(&path).map_err(wrong)?;
            let encoder = Encoder::new(file, Compression::of_name(&path)).map_err(wrong)?;
            self.written(encoder, format)?.finish().map_err(wrong).map(drop)
        })
    }

    /// What it was opened as, or what it is called.
    #[getter]
    fn get_name(&self) -> String {
        self.name.display().to_string()
    }

    /// The format it was read as.
    #[getter]
    fn format(&self) -> &'static str {
        self.format.name()
    }

    /// The devices' names, in the order in which they appear.
    #[getter]
    fn devices(&self) -> Vec<String> {
        let names = &self.columns.names;
        (0..names.len() as u32).filter_map(|device| names.name(device)).collect()
    }

    /// A number that traces with the same requests share.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        format!("{:?}", py.detach(|| self.columns.summary().digest))
    }

    /// What it sums up to, as `umbrella lab trace info --json` prints it.
    fn summary_json(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| serde_json::to_string(&self.columns.summary()))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __len__(&self) -> usize {
        self.columns.len()
    }

    /// The columns through Arrow's C data interface; the buffers are the trace's own.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The protocol lets us give our own schema whatever was asked for.
        drop(requested_schema);
        let columns = &self.columns;
        if columns.times.iter().chain(&columns.offsets).chain(&columns.sizes).any(|number| *number > MOST) {
            return Err(PyValueError::new_err("a time or an address does not fit in Arrow's int64"));
        }
        let wrong = |error: arrow_schema::ArrowError| PyValueError::new_err(error.to_string());
        let array = arrow::array(columns).map_err(wrong)?;
        let (array, schema) = to_ffi(&array.to_data()).map_err(wrong)?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

impl Trace {
    fn written<W: std::io::Write>(&self, out: W, format: Format) -> PyResult<W> {
        let wrong = |error: trace::WriteError| match error {
            trace::WriteError::Output { source } => PyOSError::new_err(format!("writing failed: {source}")),
            error => PyValueError::new_err(error.to_string()),
        };
        let mut writer = Writer::new(out, format).map_err(wrong)?;
        for record in self.columns.records() {
            writer.write(&record, &self.columns.names).map_err(wrong)?;
        }
        writer.finish().map_err(wrong)
    }
}
