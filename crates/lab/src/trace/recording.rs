//! A recording of blktrace: a file for each processor, `sda.blktrace.0` and so on, read as one in the order of time, as
//! blkparse does.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::blktrace::{self, EVENT_BYTES};
use super::input::Source;

/// The files of the recording that a file is of, in the order of their processors; only itself if it is of none.
pub(super) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some((base, _)) = processor(path) else { return Ok(vec![path.to_owned()]) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some((_, number)) = processor(&path).filter(|(other, _)| *other == base) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The recording that a file is part of, and its processor: of `sda.blktrace.12.gz` it is `sda` and 12.
fn processor(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_str()?;
    let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    let (base, number) = plain.rsplit_once(".blktrace.")?;
    Some((base.to_owned(), number.parse().ok()?))
}

/// Bytes of several files, event by event in the order of time. What is damaged or cut of a file comes last.
pub(super) struct Merged {
    files: Vec<Next>,
    /// What is given out, and how much of it was.
    current: Vec<u8>,
    given: usize,
}

/// What a file continues with.
struct Next {
    source: Source,
    bytes: Vec<u8>,
    /// When; nothing for what is no event.
    time: Option<u64>,
}

impl Next {
    fn read(&mut self) -> io::Result<()> {
        self.bytes.clear();
        self.fill(EVENT_BYTES)?;
        let event = blktrace::event(&self.bytes);
        if let Some(event) = event {
            self.fill(event.length)?;
        }
        self.time = event.filter(|event| self.bytes.len() == event.length).map(|event| event.time);
        Ok(())
    }

    /// Reads until there are `bytes` bytes, or no more.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        let missing = bytes.saturating_sub(self.bytes.len()) as u64;
        self.source.by_ref().take(missing).read_to_end(&mut self.bytes).map(drop)
    }
}

impl Merged {
    /// Of files that were opened.
    pub(super) fn new(sources: Vec<Source>) -> io::Result<Merged> {
        let next = |source| {
            let mut next = Next { source, bytes: Vec::new(), time: None };
            next.read()?;
            Ok(next)
        };
        Ok(Merged { files: sources.into_iter().map(next).collect::<io::Result<_>>()?, current: Vec::new(), given: 0 })
    }

    /// Takes the next event; of two at the same time that of the lower processor. Whether there was one.
    fn advance(&mut self) -> io::Result<bool> {
        self.files.retain(|file| !file.bytes.is_empty());
        // Nothing comes after all times.
        let key = |file: &&mut Next| (file.time.is_none(), file.time);
        let Some(first) = self.files.iter_mut().min_by_key(key) else { return Ok(false) };
        std::mem::swap(&mut self.current, &mut first.bytes);
        self.given = 0;
        first.read()?;
        Ok(true)
    }
}

impl Read for Merged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.current.len() && !self.advance()? {
            return Ok(0);
        }
        let mut rest = self.current.get(self.given..).unwrap_or_default();
        let count = rest.read(buffer)?;
        self.given += count;
        Ok(count)
    }
}
