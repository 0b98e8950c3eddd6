//! Reads a drive's parameters as DiskSim 4 has them (`.parv`, and the `.diskspecs`, `.model` and `.seek` files that it names).
//!
//! Source of the format: Bucy, Schindler, Schlosser, Ganger, "The DiskSim Simulation Environment Version 4.0 Reference Manual",
//! CMU-PDL-08-101 (2008). The files come from outside: their number and size are limited, and only plain files of the same directory are read.

mod convert;
mod error;
mod layout;
mod seek;
#[cfg(test)]
mod tests;
mod text;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use error::ImportError;

use super::profile::DriveProfile;
use text::Token;

/// All files of a drive together.
const MOST_BYTES: u64 = 8 << 20;
/// How many files may be named.
const MOST_FILES: usize = 32;

/// Reads the drive that `parameters`, a `.parv` file, describes.
pub fn import(parameters: &Path) -> Result<DriveProfile, ImportError> {
    let directory = parameters.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut files = Files { directory, bytes: 0, count: 0 };
    let text = files.read(parameters.to_path_buf())?;
    let mut tokens = Vec::new();
    files.splice(&text, &mut tokens)?;
    convert::drive(&text::blocks(tokens)?, &mut files)
}

/// The files of one directory.
struct Files {
    directory: PathBuf,
    bytes: u64,
    count: usize,
}

impl Files {
    /// The text of a file that another one names.
    fn beside(&mut self, name: &str) -> Result<String, ImportError> {
        let path = Path::new(name);
        let not_beside = || ImportError::NotBeside { name: name.to_owned() };
        if path.file_name() != Some(path.as_os_str()) {
            return Err(not_beside());
        }
        let path = self.directory.join(path);
        let kind = path.symlink_metadata().map_err(|source| ImportError::Read { path: path.clone(), source })?;
        if !kind.is_file() {
            return Err(not_beside());
        }
        self.read(path)
    }

    fn read(&mut self, path: PathBuf) -> Result<String, ImportError> {
        self.count += 1;
        if self.count > MOST_FILES {
            return Err(ImportError::TooManyFiles(MOST_FILES));
        }
        let left = MOST_BYTES - self.bytes;
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(left + 1).read_to_end(&mut bytes));
        self.bytes += read.map_err(|source| ImportError::Read { path, source })? as u64;
        if self.bytes > MOST_BYTES {
            return Err(ImportError::TooLarge(MOST_BYTES));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Adds the tokens of `text`, and those of the files that it sources in their places.
    fn splice(&mut self, text: &str, tokens: &mut Vec<Token>) -> Result<(), ImportError> {
        let mut words = text::tokens(text).into_iter();
        while let Some(token) = words.next() {
            match (&token, token == Token::Word("source".to_owned()), words.as_slice().first()) {
                (Token::Word(_), true, Some(Token::Word(name))) => {
                    let named = self.beside(name)?;
                    words.next();
                    self.splice(&named, tokens)?;
                }
                _ => tokens.push(token),
            }
        }
        Ok(())
    }
}
