//! The shape of a disk's file: typed structs that refuse every unknown key. Values keep their place in the text.

use serde::Deserialize;
use toml::Spanned;

use super::log::LogFile;
use super::scrub::ScrubFile;
use crate::config::values::{Names, Number, Scalar};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiskFile {
    pub(super) name: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) read_only: bool,
    pub(super) front: Option<Spanned<String>>,
    pub(super) disk: Spanned<DeviceFile>,
    pub(super) flash: Option<Spanned<DeviceFile>>,
    pub(super) cache: Option<Spanned<CacheFile>>,
    pub(super) log: Option<LogFile>,
    pub(super) power: Option<Spanned<PowerFile>>,
    #[serde(default)]
    pub(super) scrub: ScrubFile,
    #[serde(default)]
    pub(super) nbd: NbdFile,
}

/// `[disk]` and `[flash]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceFile {
    pub(super) kind: Option<Spanned<String>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) size: Option<Spanned<Scalar>>,
    pub(super) direct: Option<Spanned<bool>>,
    pub(super) profile: Option<Spanned<String>>,
    pub(super) speed: Option<Spanned<Number>>,
}

/// `[cache]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CacheFile {
    pub(super) when: Option<Spanned<String>>,
    pub(super) algorithm: Option<Spanned<String>>,
    pub(super) high: Option<Spanned<Scalar>>,
    pub(super) memory: Option<Spanned<Scalar>>,
    pub(super) drain_share: Option<Spanned<Scalar>>,
    pub(super) quiet: Option<Spanned<Scalar>>,
    pub(super) spin_down: Option<Spanned<String>>,
}

/// `[power]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PowerFile {
    pub(super) break_even: Option<Spanned<Scalar>>,
    pub(super) idle: Option<Spanned<Number>>,
    pub(super) standby: Option<Spanned<Number>>,
    pub(super) spin_up: Option<Spanned<Number>>,
    pub(super) spin_up_time: Option<Spanned<Scalar>>,
    pub(super) source: Option<Spanned<String>>,
}

/// `[nbd]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NbdFile {
    pub(super) listen: Option<Spanned<Names>>,
    pub(super) connections: Option<Spanned<i64>>,
    pub(super) tls: Option<Spanned<String>>,
    pub(super) tls_verify_peer: Option<Spanned<bool>>,
    pub(super) tls_required: Option<Spanned<bool>>,
}
