//! What a reload says of one key of the configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One key of the configuration that is other than before. Neither value, because it is too long to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// The key, with the table it stands in.
    pub key: String,
    /// Its value before.
    pub old: Option<String>,
    /// Its value now.
    pub new: Option<String>,
}

impl ConfigChange {
    /// A table that was not there.
    pub(crate) fn new(key: &str) -> ConfigChange {
        ConfigChange { key: key.to_owned(), old: None, new: Some("new".to_owned()) }
    }

    /// A table that is there no more.
    pub(crate) fn gone(key: &str) -> ConfigChange {
        ConfigChange { key: key.to_owned(), old: None, new: Some("removed".to_owned()) }
    }
}

/// One line: `min_free of branch "a": 5% -> 10%`.
impl fmt::Display for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigChange { key, old, new } = self;
        match (old, new) {
            (Some(old), Some(new)) => write!(f, "{key}: {old} -> {new}"),
            (None, Some(new)) => write!(f, "{key}: {new}"),
            _ => write!(f, "{key}: changed"),
        }
    }
}
