//! A trace's output: a file that has its name only when it is complete, or standard output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use umbrella_lab::trace::{Compression, Encoder};

use crate::text::visible_path;

/// Whether a file of that name may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Keep,
    Replace,
}

/// Where a trace goes. Dropped without [`Output::finish`], it leaves nothing behind.
#[derive(Debug)]
pub(super) struct Output {
    encoder: Option<Encoder<Sink>>,
    temporary: Option<Temporary>,
}

#[derive(Debug)]
enum Sink {
    File(File),
    Standard(io::Stdout),
}

#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    target: PathBuf,
    existing: Existing,
}

impl Output {
    /// A new file, compressed as its name ends; `-` is standard output.
    pub(super) fn create(target: &Path, existing: Existing) -> anyhow::Result<Output> {
        if target == Path::new("-") {
            let encoder = Encoder::new(Sink::Standard(io::stdout()), Compression::None)?;
            return Ok(Output { encoder: Some(encoder), temporary: None });
        }
        refuse_existing(target, existing)?;
        let Some(name) = target.file_name() else { bail!("{} is not the name of a file", visible_path(target)) };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let path = target.with_file_name(hidden);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("cannot create {}", visible_path(&path)))?;
        let temporary = Temporary { path, target: target.to_owned(), existing };
        let encoder = Encoder::new(Sink::File(file), Compression::of_name(target))?;
        Ok(Output { encoder: Some(encoder), temporary: Some(temporary) })
    }

    /// Whether it is standard output, where somebody may look at once.
    pub(super) fn is_watched(&self) -> bool {
        self.temporary.is_none()
    }

    /// Puts everything on the disk, and the file under its name.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let Some(encoder) = self.encoder.take() else { return Ok(()) };
        let mut sink = encoder.finish()?;
        sink.flush()?;
        if let Sink::File(file) = &sink {
            file.sync_all()?;
        }
        let Some(temporary) = &self.temporary else { return Ok(()) };
        temporary.rename()?;
        self.temporary = None;
        Ok(())
    }
}

fn refuse_existing(target: &Path, existing: Existing) -> anyhow::Result<()> {
    let Ok(found) = fs::symlink_metadata(target) else { return Ok(()) };
    if existing == Existing::Keep {
        bail!("{} exists (replace it: --force)", visible_path(target));
    }
    if !found.is_file() && !found.is_symlink() {
        bail!("{} is not a regular file", visible_path(target));
    }
    Ok(())
}

impl Temporary {
    fn rename(&self) -> anyhow::Result<()> {
        let flags = match self.existing {
            Existing::Keep => RenameFlags::NOREPLACE,
            Existing::Replace => RenameFlags::empty(),
        };
        let renamed = renameat_with(CWD, &self.path, CWD, &self.target, flags);
        // Some file systems cannot refuse to replace: there, looking once more must do.
        let renamed = match renamed {
            Err(rustix::io::Errno::INVAL) if self.existing == Existing::Keep => {
                refuse_existing(&self.target, self.existing)?;
                fs::rename(&self.path, &self.target)
            }
            Err(rustix::io::Errno::EXIST) => return refuse_existing(&self.target, self.existing),
            other => other.map_err(io::Error::from),
        };
        renamed.with_context(|| format!("cannot name the output {}", visible_path(&self.target)))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Some(encoder) => encoder.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(&temporary.path);
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::File(file) => file.write(bytes),
            Sink::Standard(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::File(file) => file.flush(),
            Sink::Standard(out) => out.flush(),
        }
    }
}
