//! The native half of the Python package `umbrella_lab`: traces and runs. `python/umbrella_lab` has what users call.
//!
//! Requests for runs come in as JSON and rows of results go out as JSON, so that both halves share one list of names
//! with the command line. A trace's columns go out through Arrow's C data interface, without copies.

#![allow(clippy::needless_pass_by_value, reason = "functions for Python take what is converted for them")]

mod arrow;
mod asked;
mod runs;
mod trace;

use pyo3::prelude::*;

/// The module `umbrella_lab._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<trace::Trace>()?;
    module.add_class::<runs::Plan>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
