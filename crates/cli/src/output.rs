//! Writing to standard output. A reader that goes away (`umbrella status | head`) ends the program quietly.

use std::io::{self, Write};

use serde::Serialize;

/// Writes the text as it is.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes the text and ends the line.
pub(crate) fn line(text: &str) -> io::Result<()> {
    print(&format!("{text}\n"))
}

/// Writes a value as one JSON document, indented for people.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Writes a value as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Whether the reason for an error is only that nobody reads any more.
pub(crate) fn nobody_reads(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
