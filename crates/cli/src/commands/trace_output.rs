//! A trace's output: a file that has its name only when it is complete, or standard output.
//!
//! What can be made again ([`Output`]) leaves nothing behind when it fails; a recording ([`Recorded`]) is kept as far
//! as it goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use umbrella_lab::trace::{Compression, Encoder};

use crate::output::OutputError;
use crate::text::visible_path;

/// Whether a file of that name may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Keep,
    Replace,
}

/// How far an output is, for a signal that ends the program.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputStage(Arc<Mutex<Stage>>);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Nothing,
    Temporary(PathBuf),
    Standard,
    Named,
}

impl OutputStage {
    /// Makes a signal end the program at once, wherever it waits, and remove the temporary file.
    pub(super) fn end_at_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new(ending_signals())?;
        let progress = self.clone();
        let end = move || signals.forever().for_each(|signal| progress.end(signal));
        std::thread::Builder::new().name("signals".to_owned()).spawn(end)?;
        Ok(())
    }

    fn end(&self, signal: i32) {
        // Locked to the end, so that no file is created or named meanwhile.
        let stage = self.stage();
        let left = match &*stage {
            Stage::Nothing => "nothing was written",
            Stage::Temporary(path) => {
                let _ = fs::remove_file(path);
                "nothing was written"
            }
            Stage::Standard => "the output is not complete",
            Stage::Named => return,
        };
        // A bar's line is not written on.
        let line = if io::stderr().is_terminal() { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{line}umbrella: interrupted; {left}");
        std::process::exit(128 + signal);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The signals that end a command: SIGINT, SIGTERM, and SIGHUP unless nohup ignores it.
pub(super) fn ending_signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
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
    file: File,
    path: PathBuf,
    target: PathBuf,
    existing: Existing,
    progress: OutputStage,
}

impl Output {
    /// A new file, compressed as its name ends; `-` is standard output.
    pub(super) fn create(target: &Path, existing: Existing, progress: &OutputStage) -> anyhow::Result<Output> {
        if target == Path::new("-") {
            *progress.stage() = Stage::Standard;
            let encoder = Encoder::new(Sink::Standard(io::stdout()), Compression::None)?;
            return Ok(Output { encoder: Some(encoder), temporary: None });
        }
        let temporary = Temporary::create(target, existing, progress)?;
        let sink = Sink::File(temporary.file.try_clone()?);
        let encoder = Encoder::new(sink, Compression::of_name(target))?;
        Ok(Output { encoder: Some(encoder), temporary: Some(temporary) })
    }

    /// Puts everything on the disk, and the file under its name.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let Some(encoder) = self.encoder.take() else { return Ok(()) };
        let written = encoder.finish().and_then(|mut sink| {
            sink.flush()?;
            if let Sink::File(file) = &sink { file.sync_all() } else { Ok(()) }
        });
        let Some(temporary) = &self.temporary else { return Ok(written.map_err(OutputError::from)?) };
        written.context("writing the trace")?;
        temporary.rename()?;
        self.temporary = None;
        Ok(())
    }
}

/// Gives the new file the mode of the one that it will replace and, by root, the owner. Done while it is empty: what
/// only its owner may read must not be open to others for a while.
fn copy_access(file: &File, target: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(target) else { return Ok(()) };
    if !found.is_file() {
        return Ok(());
    }
    // Nothing is changed that is right already: some file systems cannot.
    let new = file.metadata()?;
    if rustix::process::geteuid().is_root() && (new.uid(), new.gid()) != (found.uid(), found.gid()) {
        fchown(file, Some(found.uid()), Some(found.gid()))?;
    }
    // After the owner, whose change takes set-id bits away.
    let mode = found.mode() & 0o7777;
    if file.metadata()?.mode() & 0o7777 == mode {
        Ok(())
    } else {
        file.set_permissions(fs::Permissions::from_mode(mode))
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
    fn create(target: &Path, existing: Existing, progress: &OutputStage) -> anyhow::Result<Temporary> {
        refuse_existing(target, existing)?;
        let name = target.file_name().filter(|_| !target.as_os_str().as_bytes().ends_with(b"/"));
        let Some(name) = name else { bail!("{} is not the name of a file", visible_path(target)) };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let path = target.with_file_name(hidden);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.exists()) {
            bail!("{}: the directory {} does not exist (create it first)", visible_path(target), visible_path(folder));
        }
        let mut stage = progress.stage();
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("cannot create {}", visible_path(&path)))?;
        *stage = Stage::Temporary(path.clone());
        drop(stage);
        let temporary = Temporary { file, path, target: target.to_owned(), existing, progress: progress.clone() };
        if let Err(error) = copy_access(&temporary.file, target) {
            let _ = fs::remove_file(&temporary.path);
            return Err(error)
                .context(format!("cannot give the output the mode and owner of {}", visible_path(target)));
        }
        Ok(temporary)
    }

    /// Renames the temporary file to the first free name: the target's with a number. Returns that name.
    fn keep_under_free_name(&self) -> PathBuf {
        for number in 1..1000 {
            let mut name = self.target.clone().into_os_string();
            name.push(format!(".{number}"));
            match renameat_with(CWD, &self.path, CWD, &name, RenameFlags::NOREPLACE) {
                Ok(()) => return name.into(),
                Err(rustix::io::Errno::EXIST) => {}
                Err(_) => break,
            }
        }
        self.path.clone()
    }

    fn rename(&self) -> anyhow::Result<()> {
        let flags = match self.existing {
            Existing::Keep => RenameFlags::NOREPLACE,
            Existing::Replace => RenameFlags::empty(),
        };
        let mut stage = self.progress.stage();
        let renamed = renameat_with(CWD, &self.path, CWD, &self.target, flags);
        // Some file systems cannot refuse to replace: there, looking once more must do.
        let renamed = match renamed {
            Err(rustix::io::Errno::INVAL) if self.existing == Existing::Keep => {
                refuse_existing(&self.target, self.existing)?;
                fs::rename(&self.path, &self.target)
            }
            Err(error @ rustix::io::Errno::EXIST) => {
                refuse_existing(&self.target, self.existing)?;
                Err(error.into())
            }
            other => other.map_err(io::Error::from),
        };
        renamed.with_context(|| format!("cannot name the output {}", visible_path(&self.target)))?;
        *stage = Stage::Named;
        Ok(())
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

/// A trace of lines that cannot be made again. When writing fails, the whole lines that fit are kept.
///
/// A compressed file is of many parts (gzip members, Zstandard frames), so that one that does not fit can be written
/// anew, with fewer lines.
#[derive(Debug)]
pub(super) struct Recorded {
    output: Output,
    compression: Compression,
    /// The lines of the part that is being written.
    part: Vec<u8>,
    /// Where in the file it begins.
    begin: u64,
    failed: bool,
}

/// How a recording ended.
#[derive(Debug)]
pub(super) struct RecordingResult {
    /// Where it is.
    pub(super) path: PathBuf,
    /// The lines that did not fit.
    pub(super) lost: u64,
    /// Why it is not all there, or not under its name.
    pub(super) error: Option<anyhow::Error>,
}

const PART_BYTES: usize = 4 << 20;

impl Recorded {
    /// A new file, as [`Output::create`].
    pub(super) fn create(target: &Path, existing: Existing) -> anyhow::Result<Recorded> {
        let output = Output::create(target, existing, &OutputStage::default())?;
        let compression = Compression::of_name(target);
        Ok(Recorded { output, compression, part: Vec::new(), begin: 0, failed: false })
    }

    /// Writes whole lines. After an error, there is only [`Recorded::finish`].
    pub(super) fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.try_write_lines(lines);
        self.failed |= written.is_err();
        written
    }

    fn try_write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        let Some(temporary) = &mut self.output.temporary else { return self.output.write_all(lines) };
        self.part.extend_from_slice(lines);
        let Some(encoder) = &mut self.output.encoder else { return Err(io::ErrorKind::BrokenPipe.into()) };
        encoder.write_all(lines)?;
        if self.part.len() >= PART_BYTES {
            self.output.encoder.take().map(Encoder::finish).transpose()?;
            self.begin = temporary.file.stream_position()?;
            self.part.clear();
            let sink = Sink::File(temporary.file.try_clone()?);
            self.output.encoder = Some(Encoder::new(sink, self.compression)?);
        }
        Ok(())
    }

    /// Makes the written lines visible to readers. Does nothing for a file, whose compression would suffer.
    pub(super) fn show(&mut self) -> io::Result<()> {
        if self.output.temporary.is_none() { self.output.flush() } else { Ok(()) }
    }

    /// Puts on the disk what fits, under its name if that is free. An error if nothing is left.
    pub(super) fn finish(mut self) -> anyhow::Result<RecordingResult> {
        let ended = match self.output.encoder.take() {
            // Dropped, it may write; it must not do that later.
            Some(_) if self.failed => Ok(()),
            Some(encoder) => encoder.finish().and_then(|mut sink| sink.flush()),
            None => Ok(()),
        };
        let Some(temporary) = &mut self.output.temporary else {
            ended.context("writing the trace")?;
            return Ok(RecordingResult { path: PathBuf::from("-"), lost: 0, error: None });
        };
        let mut lost = 0;
        if self.failed || ended.is_err() {
            lost = salvage(&mut temporary.file, self.begin, &self.part, self.compression);
        }
        let mut error = ended.and_then(|()| temporary.file.sync_all()).context("writing the trace").err();
        if temporary.file.metadata()?.len() == 0 {
            return Err(error.unwrap_or_else(|| anyhow::anyhow!("nothing could be written")));
        }
        let path = match temporary.rename() {
            Ok(()) => temporary.target.clone(),
            Err(unnamed) => {
                error = error.or(Some(unnamed));
                temporary.keep_under_free_name()
            }
        };
        self.output.temporary = None;
        Ok(RecordingResult { path, lost, error })
    }
}

/// Writes these lines from `begin` on, as many as fit. Returns how many do not.
fn salvage(file: &mut File, mut begin: u64, mut lines: &[u8], compression: Compression) -> u64 {
    let mut length = lines.len();
    while let Some((piece, rest)) = lines.split_at_checked(length).filter(|(piece, _)| !piece.is_empty()) {
        if let Ok(end) = append(file, begin, piece, compression) {
            (begin, lines) = (end, rest);
            length = whole_lines(lines, length);
        } else {
            let _ = file.set_len(begin);
            length = whole_lines(lines, length / 2);
        }
    }
    lines.split(|byte| *byte == b'\n').skip(1).count() as u64
}

fn append(file: &mut File, begin: u64, lines: &[u8], compression: Compression) -> io::Result<u64> {
    file.set_len(begin)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut encoder = Encoder::new(file.try_clone()?, compression)?;
    encoder.write_all(lines)?;
    encoder.finish()?.sync_data()?;
    file.stream_position()
}

/// How many of the first `most` bytes are whole lines.
fn whole_lines(lines: &[u8], most: usize) -> usize {
    let head = lines.get(..most).unwrap_or(lines);
    head.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use umbrella_lab::trace::{self, CSV_HEADER, OpenOptions};

    #[test]
    fn a_recording_of_several_parts_is_one_trace_also_when_the_last_one_is_written_anew() {
        const RECORDS: u64 = 400_000;
        let folder = tempfile::TempDir::new().unwrap();
        for name in ["a.csv", "a.csv.gz", "a.csv.zst"] {
            for failed in [false, true] {
                let target = folder.path().join(format!("{failed}-{name}"));
                let mut recorded = Recorded::create(&target, Existing::Keep).unwrap();
                recorded.write_lines(CSV_HEADER.as_bytes()).unwrap();
                for number in 0..RECORDS {
                    recorded.write_lines(format!("{number},8:0,W,{},4096,\n", number * 4096).as_bytes()).unwrap();
                }
                assert!(recorded.begin > 0, "it is of one part");
                recorded.failed = failed;
                let kept = recorded.finish().unwrap();
                assert_eq!((kept.path.as_path(), kept.lost), (target.as_path(), 0));
                let read = trace::open(&target, &OpenOptions::default()).unwrap();
                assert_eq!(
                    read.map(|record| record.unwrap().offset.0 / 4096).collect::<Vec<_>>(),
                    (0..RECORDS).collect::<Vec<_>>()
                );
            }
        }
    }
}
