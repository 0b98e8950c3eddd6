//! The file that a record goes to. Text waits in memory until the flusher has time for it; no write of a user ever
//! waits for it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use umbrella_units::ByteSize;

use crate::error::FlusherError;

/// Text that waits at most. Where more would wait, the record ends without its end: it was cut short.
pub(crate) const MOST_WAITING: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    left: ByteSize,
}

impl Journal {
    /// A new file, of at most `most` bytes.
    pub(crate) fn create(path: &Path, most: ByteSize) -> Result<Journal, FlusherError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => FlusherError::RecordExists { path: path.to_owned() },
            _ => FlusherError::Record { path: path.to_owned(), source },
        })?;
        Ok(Journal { file, path: path.to_owned(), left: most })
    }

    /// Whether this many more bytes fit, together with the line that ends a record.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.left.0 > bytes as u64 + 64
    }

    pub(crate) fn append(&mut self, text: &str) -> Result<(), FlusherError> {
        self.left.0 = self.left.0.saturating_sub(text.len() as u64);
        let failed = |source| FlusherError::Record { path: self.path.clone(), source };
        self.file.write_all(text.as_bytes()).map_err(failed)
    }
}
