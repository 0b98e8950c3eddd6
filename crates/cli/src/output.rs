//! Writing to standard output. A reader that goes away (`umbrella status | head`) ends the program quietly.

use std::io::{self, Write};

use serde::Serialize;
use thiserror::Error;

use crate::advice::advice;
use crate::text::visible;

/// Writes a line to standard error. Ignores errors of that.
macro_rules! report {
    ($($argument:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr(), $($argument)*);
    }};
}

/// Standard output cannot be written.
#[derive(Debug, Error)]
#[error("writing the output: {source}")]
pub(crate) struct OutputError {
    source: io::Error,
}

impl From<io::Error> for OutputError {
    fn from(source: io::Error) -> Self {
        OutputError { source }
    }
}

/// Writes the text as it is.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|source| OutputError { source })
}

/// Writes the text and ends the line.
pub(crate) fn line(text: &str) -> Result<(), OutputError> {
    print(&format!("{text}\n"))
}

/// The version of all that `--json` prints. It grows when a key goes, or means something else.
const SCHEMA: u32 = 1;

/// An object with the version of its shape.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Writes an object as one JSON document, indented for people.
pub(crate) fn json(value: &impl Serialize) -> Result<(), OutputError> {
    json_list(&Document { schema: SCHEMA, value })
}

/// Writes a list as one JSON document, indented for people.
pub(crate) fn json_list(value: &impl Serialize) -> Result<(), OutputError> {
    line(&serde_json::to_string_pretty(value).map_err(|error| OutputError { source: error.into() })?)
}

/// Writes a value as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), OutputError> {
    line(&serde_json::to_string(value).map_err(|error| OutputError { source: error.into() })?)
}

/// The error, its reasons, and what to do about it. Omits a reason that the text contains already.
pub(crate) fn reasons(error: &anyhow::Error) -> String {
    let reported =
        error.chain().map(ToString::to_string).fold(String::new(), |reported, reason| match reported.as_str() {
            "" => reason,
            reported if reported.contains(&reason) => reported.to_owned(),
            reported => format!("{reported}: {reason}"),
        });
    match advice(error) {
        Some(advice) => format!("{reported}; {advice}"),
        None => reported,
    }
}

/// A text of several lines without control characters of the terminal. It may contain names and contents of files.
pub(crate) fn visible_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(visible).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Whether the error is only that the reader of the output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OutputError>().is_some_and(|error| error.source.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_reported_once() {
        let error = anyhow::anyhow!("no such file").context("cannot open a: no such file").context("reading b");
        assert_eq!(reasons(&error), "reading b: cannot open a: no such file");
        let error = anyhow::anyhow!("no such file").context("cannot open a: no such file (make it)");
        assert_eq!(reasons(&error), "cannot open a: no such file (make it)");
    }

    #[test]
    fn an_error_keeps_its_lines_and_steers_nothing() {
        assert_eq!(visible_lines("a\tb\u{1b}[2J\n\u{202e}c"), "a\tb\\u{1b}[2J\n\\u{202e}c");
    }

    #[test]
    fn only_a_broken_pipe_of_the_output_is_quiet() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&OutputError { source: broken() }.into()));
        assert!(!is_broken_pipe(&broken().into()));
        assert!(!is_broken_pipe(&OutputError { source: io::ErrorKind::StorageFull.into() }.into()));
    }
}
