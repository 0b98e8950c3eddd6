//! Reads a drive's parameters as DiskSim 4 has them (`.parv`, and the `.diskspecs`, `.model` and `.seek` files that it
//! names).
//!
//! Source of the format: Bucy, Schindler, Schlosser, Ganger, "The DiskSim Simulation Environment Version 4.0 Reference
//! Manual", CMU-PDL-08-101 (2008). The files come from outside: their number and size are limited, and only plain files
//! of the same directory are read.

mod convert;
mod error;
mod layout;
mod seek;
#[cfg(test)]
mod tests;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use error::{ImportError, SourceLine};

use super::profile::DriveProfile;
use text::{Symbol, Token};

/// All files of a drive together.
const MOST_BYTES: u64 = 8 << 20;
/// How many files may be named.
const MOST_FILES: usize = 32;

/// Reads the drive that `parameters`, a `.parv` file, describes.
pub fn import(parameters: &Path) -> Result<DriveProfile, ImportError> {
    let directory = parameters.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut files = ParameterFiles { directory, bytes: 0, count: 0 };
    let read = |source| ImportError::Read { path: parameters.to_path_buf(), source };
    let text = files.read(parameters.to_path_buf(), read)?;
    let name = parameters.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut tokens = Vec::new();
    files.splice(&name, &text, &mut tokens)?;
    convert::drive(&text::blocks(tokens)?, &mut files)
}

/// The files of one directory.
struct ParameterFiles {
    directory: PathBuf,
    bytes: u64,
    count: usize,
}

impl ParameterFiles {
    /// The text of a file that another one names on `line`.
    fn beside(&mut self, name: &str, line: &SourceLine) -> Result<String, ImportError> {
        let path = Path::new(name);
        let not_beside = || ImportError::NotBeside { line: line.clone(), name: name.to_owned() };
        let unread = |source| ImportError::Named { line: line.clone(), name: name.to_owned(), source };
        if path.file_name() != Some(path.as_os_str()) {
            return Err(not_beside());
        }
        let path = self.directory.join(path);
        if !path.symlink_metadata().map_err(unread)?.is_file() {
            return Err(not_beside());
        }
        self.read(path, unread)
    }

    fn read(&mut self, path: PathBuf, unread: impl FnOnce(io::Error) -> ImportError) -> Result<String, ImportError> {
        self.count += 1;
        if self.count > MOST_FILES {
            return Err(ImportError::TooManyFiles(MOST_FILES));
        }
        let left = MOST_BYTES - self.bytes;
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(left + 1).read_to_end(&mut bytes));
        self.bytes += read.map_err(unread)? as u64;
        if self.bytes > MOST_BYTES {
            return Err(ImportError::TooLarge(MOST_BYTES));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Adds the tokens of `text`, which is that of `name`, and those of the files that it sources in their places.
    fn splice(&mut self, name: &str, text: &str, tokens: &mut Vec<Token>) -> Result<(), ImportError> {
        let mut words = text::tokens(name, text).into_iter().peekable();
        while let Some(token) = words.next() {
            let sources = token.symbol == Symbol::Word("source".to_owned());
            match words.next_if(|next| sources && matches!(next.symbol, Symbol::Word(_))) {
                Some(Token { symbol: Symbol::Word(name), line }) => {
                    let named = self.beside(&name, &line)?;
                    self.splice(&name, &named, tokens)?;
                }
                _ => tokens.push(token),
            }
        }
        Ok(())
    }
}
