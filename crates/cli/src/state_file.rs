//! Small files in the state directory: JSON, replaced as a whole. A crash leaves the old one or the new one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::pool;

/// Where a file of one kind lies. The folders of pools never begin with `@`.
pub(crate) fn path(kind: &str, name: &str) -> PathBuf {
    pool::state_root().join(kind).join(name)
}

/// What it says; nothing if there is none, or none that can be understood.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Writes it.
pub(crate) fn write<T: Serialize>(file: &Path, value: &T) -> io::Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = file.with_extension("new");
    let mut made = File::create(&new)?;
    made.write_all(&serde_json::to_vec_pretty(value)?)?;
    made.sync_all()?;
    fs::rename(&new, file)?;
    File::open(folder)?.sync_all()
}
