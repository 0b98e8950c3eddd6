//! What to do about an error or a warning, in commands: the library that found it knows of none.
//!
//! Here for what a command ends with; `umbrella mount` gives it to the pool, for its log, its status and its answers.

mod disk;
mod pool;

use std::error::Error;
use std::io;
use std::sync::Arc;

use umbrella_lab::result::shell_words;

use crate::text::visible;

pub(crate) use disk::GO_ON;
pub(crate) use pool::name_configuration;

/// What to do about an error, if its chain has one that a command helps with.
pub(crate) fn advice(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(of)
}

/// What to do about this error. Does not look at its sources.
pub(crate) fn of(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(advice) = disk::of(error) {
        return Some(advice.to_owned());
    }
    if let Some(inner) = error.downcast_ref::<Arc<io::Error>>().and_then(|error| error.get_ref()) {
        // An error of a disk that stands for one of a device.
        return of(inner);
    }
    pool::of(error)
}

/// A command of this program to be pasted into a shell, in backquotes.
pub(crate) fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    format!("`umbrella {}`", visible(&shell_words(words)))
}

/// The error, and what to do about it.
pub(crate) fn with_advice(error: &(dyn Error + 'static)) -> String {
    match of(error) {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use umbrella_block::hybrid::{Damage, HybridError};
    use umbrella_block::log_store::LogStoreError;
    use umbrella_block::{BlockError, Operation};
    use umbrella_units::BlockNo;

    use super::*;

    fn no_superblock() -> HybridError {
        HybridError::NoSuperblock { flash: "f".to_owned(), first: Damage::Magic, second: Damage::Magic }
    }

    #[test]
    fn an_error_of_a_disk_is_reported_with_the_command_that_helps() {
        let plain = anyhow::Error::from(no_superblock());
        let reported = |error: &anyhow::Error| {
            advice(error).is_some_and(|reported| reported.starts_with("`umbrella disk create` makes one;"))
        };
        assert!(reported(&plain));
        assert!(reported(&plain.context("the flash")));
        assert_eq!(advice(&anyhow::anyhow!("something else")), None);
    }

    #[test]
    fn an_error_that_wraps_one_of_a_device_is_reported_with_the_command_that_helps() {
        let lost = LogStoreError::Lost { device: "d".to_owned(), block: BlockNo(3) };
        let error = BlockError::io(&"d".into(), Operation::Read, None, io::Error::other(lost));
        assert_eq!(advice(&error.into()), Some("`umbrella disk salvage` copies what is left".to_owned()));
    }
}
