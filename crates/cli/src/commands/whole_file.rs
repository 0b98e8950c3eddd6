//! A file that a command writes at its end: checked at its beginning, and there whole or not at all.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::text::visible_path;

/// How such a file is called in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeFile {
    /// The option that names it.
    pub(super) option: &'static str,
    /// What it is.
    pub(super) is: &'static str,
    /// A name that it may have.
    pub(super) example: &'static str,
}

impl WholeFile {
    /// Refuses a file that could not be written at the end, and one that would replace anything but a file, or the
    /// `source` of what is written.
    pub(super) fn can_be_written(self, path: &Path, source: Option<(&str, &Path)>) -> anyhow::Result<()> {
        let WholeFile { option, is, example } = self;
        if path == Path::new("-") {
            bail!("{option} -: the {is} goes to a file (give its name, such as {example})");
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            bail!(
                "{option} {}: the directory {} does not exist (create it first)",
                visible_path(path),
                visible_path(folder)
            );
        }
        let part = part_of(path);
        let made = fs::File::create_new(&part).and_then(|_| fs::remove_file(&part));
        made.with_context(|| format!("{option} {}: cannot write there", visible_path(path)))?;
        let Ok(there) = fs::metadata(path) else { return Ok(()) };
        if !there.is_file() {
            bail!("{option} {}: not a regular file (give the name of the {is}, such as {example})", visible_path(path));
        }
        let same = |source: &Path| {
            fs::metadata(source).is_ok_and(|source| (source.dev(), source.ino()) == (there.dev(), there.ino()))
        };
        if let Some((name, _)) = source.filter(|(_, source)| same(source)) {
            bail!("{option} {}: this is the {name} (give the {is} another name)", visible_path(path));
        }
        Ok(())
    }
}

/// What a file is called until it is whole.
fn part_of(path: &Path) -> PathBuf {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    part.into()
}

/// Writes a file so that it is there whole or not at all.
pub(super) fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let part = part_of(path);
    let written = fs::File::create_new(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.with_context(|| format!("writing {}", visible_path(path)))
}
