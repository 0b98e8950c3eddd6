//! Why a store was not simulated.

use thiserror::Error;
use umbrella_policy::PolicyError;
use umbrella_units::Pages;

use super::percent::Percent;

/// Why a store was not simulated.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum LogError {
    #[error(transparent)]
    Scheme(#[from] PolicyError),
    #[error("{input}: nothing is written, so there is nothing to clean")]
    NoWrites { input: String },
    #[error("{input}: {} pages of data are too few for a log (at least {})", pages.0, least.0)]
    TooSmall { input: String, pages: Pages, least: Pages },
    #[error("{input}: {} pages of data are too many (at most {})", pages.0, most.0)]
    TooLarge { input: String, pages: Pages, most: Pages },
    #[error("{input}: {scheme} cannot keep so small a log going at {}% full (try fewer streams or less data)", utilisation.0)]
    NoRoom { input: String, scheme: String, utilisation: Percent },
}
