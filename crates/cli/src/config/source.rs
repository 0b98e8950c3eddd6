//! The text of a configuration, and where in it an error is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::text;

/// A line and a column, both counted from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineColumn {
    /// Line.
    pub(crate) line: usize,
    /// Column.
    pub(crate) column: usize,
}

/// The text and its name.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    name: PathBuf,
    text: String,
}

impl Source {
    /// The text of a file.
    pub(super) fn of(name: PathBuf, text: String) -> Source {
        Source { name, text }
    }

    /// A source without text, for files that could not be read.
    pub(crate) fn unread(name: &Path) -> Source {
        Source { name: name.to_owned(), text: String::new() }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The place of a byte offset.
    pub(crate) fn place(&self, offset: usize) -> LineColumn {
        let before = self.before(offset);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        LineColumn { line: before.matches('\n').count() + 1, column }
    }

    /// The line that holds the offset, with a mark under the span; empty when there is no text.
    pub(crate) fn excerpt(&self, span: &std::ops::Range<usize>) -> String {
        const WIDEST: usize = 120;
        let place = self.place(span.start);
        let Some(line) = self.text.lines().nth(place.line - 1) else { return String::new() };
        if line.chars().count() > WIDEST {
            return String::new();
        }
        let marked = self.text.get(span.clone()).and_then(|text| text.lines().next()).unwrap_or_default();
        let width = marked.chars().count().clamp(1, WIDEST);
        let number = place.line.to_string();
        let gutter = " ".repeat(number.len());
        let mut excerpt = String::new();
        // Tabs would shift the mark, and a hostile file must not reach the terminal raw.
        let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(excerpt, "{gutter} |");
        let _ = writeln!(excerpt, "{number} | {}", text::visible(&shown));
        let _ = writeln!(excerpt, "{gutter} | {}{}", " ".repeat(place.column - 1), "^".repeat(width));
        excerpt
    }

    fn before(&self, offset: usize) -> &str {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.get(..end).unwrap_or_default()
    }
}
