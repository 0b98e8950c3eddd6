//! The configuration of a disk: one TOML file, or options of the command line, read into a [`DiskSpec`].

mod convert;
mod file;
mod front;
mod log;
mod option;
mod power;
mod scrub;
mod spec;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::complaints::Complaints;
use super::problem::{ConfigErrors, Problem};
use super::source::Source;

pub(crate) use front::Front;
pub(crate) use log::{LogSpec, SchemeSpec, VALID_SEGMENT, VALID_SPARE, is_segment, parse_spare};
pub(crate) use option::device_option;
pub(crate) use power::PowerSpec;
pub(crate) use scrub::{ScrubSpec, VALID_BANDWIDTH, is_bandwidth};
pub(crate) use spec::{
    BadDiskName, BadListen, BadSleep, CacheSettings, CacheSpec, DeviceSpec, DiskName, DiskSpec, Listen, SleepSpec,
    TlsSpec,
};

/// Reads the configuration of a disk and checks everything that can be known without looking at devices.
pub(crate) fn read(path: &Path) -> Result<DiskSpec, ConfigErrors> {
    parse(path, super::bytes_of(path, "docs/disk.md")?)
}

/// Parses the text of a configuration. `path` names it in messages, and the disk if the text does not.
pub(crate) fn parse(path: &Path, bytes: Vec<u8>) -> Result<DiskSpec, ConfigErrors> {
    let source = Source::new(path, bytes)?;
    let shape = match super::file::parse(source.text()) {
        Ok(shape) => shape,
        Err((problem, span)) => return Err(ConfigErrors::one(source, problem, span)),
    };
    let mut complaints = Complaints::new(source);
    let disk = convert::disk(&mut complaints, &shape, path);
    let source = complaints.end()?;
    disk.ok_or_else(|| ConfigErrors::one(source, Problem::MissingKey { key: "disk".to_owned() }, 0..0))
}
