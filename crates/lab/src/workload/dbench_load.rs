//! What each client of dbench does over and over: read from dbench's load file, or, where that is missing, made up in
//! its likeness.
//!
//! A load file has a line for each call that a Samba server saw: the name of the call, its arguments, the status that
//! it ended with. Only calls that succeeded and that cost I/O are kept: creating, reading, writing, deleting, renaming,
//! flushing, making a directory, deleting a tree. Opening, closing, looking at attributes, listing, locking change
//! nothing on disk.

use rustc_hash::FxHashMap;

use super::draw::{Rng, Seed};
use super::error::LoadError;

/// A name that a client uses, by number. The number of a parent is smaller than those of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PathNo(pub(super) u32);

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Mkdir(PathNo),
    /// Makes the file unless it is there; `empties` one that is.
    Create {
        path: PathNo,
        empties: bool,
    },
    Read {
        path: PathNo,
        offset: u64,
        size: u32,
    },
    Write {
        path: PathNo,
        offset: u64,
        size: u32,
    },
    Flush(PathNo),
    Delete(PathNo),
    Rename {
        from: PathNo,
        to: PathNo,
    },
    /// Deletes the directory and all below it.
    DeleteTree(PathNo),
}

/// The calls of one round, and the names in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) calls: Vec<Call>,
    /// The directory of each name; `None` at the top.
    pub(super) parents: Vec<Option<PathNo>>,
}

/// Names while a load is made; case does not matter, as on Windows.
#[derive(Debug, Default)]
struct Names {
    numbers: FxHashMap<String, PathNo>,
    parents: Vec<Option<PathNo>>,
}

impl Names {
    fn number(&mut self, path: &str) -> PathNo {
        let path = path.trim_matches('\\').to_lowercase();
        if let Some(number) = self.numbers.get(&path) {
            return *number;
        }
        let parent = path.rsplit_once('\\').map(|(parent, _)| self.number(parent));
        let number = PathNo(self.parents.len() as u32);
        self.parents.push(parent);
        self.numbers.insert(path, number);
        number
    }
}

/// Create dispositions and options of the SMB protocol, as far as they change what happens.
const CREATE_DIRECTORY: u64 = 0x1;
const DISPOSITION_CREATE: u64 = 0x2;
const DISPOSITION_OVERWRITE: [u64; 2] = [0x4, 0x5];

/// Bytes of a path at most, as on Linux.
const LONGEST_PATH: usize = 4096;

/// The arguments of a line.
struct LoadLine<'a> {
    number: usize,
    text: &'a str,
    rest: &'a str,
}

impl<'a> LoadLine<'a> {
    fn error(&self, reason: &'static str) -> LoadError {
        let text = self.text.chars().take(80).collect();
        LoadError::Line { line: self.number, reason, text }
    }

    fn word(&mut self) -> Result<&'a str, LoadError> {
        let rest = self.rest.trim_start();
        if rest.is_empty() {
            return Err(self.error("it ends too early"));
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Ok(&rest[..end])
    }

    fn path(&mut self) -> Result<&'a str, LoadError> {
        let quoted =
            self.rest.trim_start().strip_prefix('"').ok_or_else(|| self.error("a path in quotes should be here"))?;
        let (path, rest) = quoted.split_once('"').ok_or_else(|| self.error("the path has no closing quote"))?;
        if path.len() > LONGEST_PATH {
            return Err(self.error("the path is too long"));
        }
        self.rest = rest;
        Ok(path)
    }

    fn number(&mut self) -> Result<u64, LoadError> {
        let word = self.word()?;
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        parsed.ok_or_else(|| self.error("a number should be here"))
    }

    fn size(&mut self) -> Result<u32, LoadError> {
        let size = self.number()?;
        u32::try_from(size).map_err(|_| self.error("the size is too large"))
    }

    fn offset(&mut self) -> Result<u64, LoadError> {
        let offset = self.number()?;
        if offset > 1 << 50 { Err(self.error("the offset is too large")) } else { Ok(offset) }
    }
}

/// Reads a load file.
pub(super) fn parse(text: &str) -> Result<Load, LoadError> {
    let mut names = Names::default();
    let mut open: FxHashMap<u64, PathNo> = FxHashMap::default();
    let mut calls = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let mut line = LoadLine { number: at + 1, text, rest: text.trim() };
        if line.rest.is_empty() || line.rest.starts_with('#') {
            continue;
        }
        if line.rest.rsplit(char::is_whitespace).next() != Some("NT_STATUS_OK") {
            continue;
        }
        calls.extend(call(&mut line, &mut names, &mut open)?);
    }
    if calls.is_empty() {
        return Err(LoadError::NoCall);
    }
    Ok(Load { calls, parents: names.parents })
}

/// Reads a line; `None` when the call costs no I/O.
fn call(
    line: &mut LoadLine<'_>,
    names: &mut Names,
    open: &mut FxHashMap<u64, PathNo>,
) -> Result<Option<Call>, LoadError> {
    Ok(match line.word()? {
        "NTCreateX" => {
            let path = names.number(line.path()?);
            let (options, disposition, handle) = (line.number()?, line.number()?, line.number()?);
            if options & CREATE_DIRECTORY != 0 && disposition == DISPOSITION_CREATE {
                return Ok(Some(Call::Mkdir(path)));
            }
            open.insert(handle, path);
            let empties = DISPOSITION_OVERWRITE.contains(&disposition);
            (empties || disposition == DISPOSITION_CREATE).then_some(Call::Create { path, empties })
        }
        "Close" => {
            open.remove(&line.number()?);
            None
        }
        "ReadX" => {
            let (handle, offset, _asked, size) = (line.number()?, line.offset()?, line.number()?, line.size()?);
            open.get(&handle).filter(|_| size > 0).map(|path| Call::Read { path: *path, offset, size })
        }
        "WriteX" => {
            let (handle, offset, _asked, size) = (line.number()?, line.offset()?, line.number()?, line.size()?);
            open.get(&handle).filter(|_| size > 0).map(|path| Call::Write { path: *path, offset, size })
        }
        "Flush" => open.get(&line.number()?).map(|path| Call::Flush(*path)),
        "Unlink" => Some(Call::Delete(names.number(line.path()?))),
        "Rename" => Some(Call::Rename { from: names.number(line.path()?), to: names.number(line.path()?) }),
        "Mkdir" => Some(Call::Mkdir(names.number(line.path()?))),
        "Deltree" => Some(Call::DeleteTree(names.number(line.path()?))),
        _ => None,
    })
}

/// Documents of the stand-in, each with a temporary file of its own.
const DOCUMENTS: u32 = 67;

/// Edits of the stand-in. Each ends with a deletion; the load file has the same number of deletions.
const EDITS: u32 = 16_000;

/// A load like that of Debian's `client.txt`, built from counts in that file:
/// - 16,000 deletions, 5,550 flushes, 3,360 renames
/// - 124,000 reads of 12 KB on average: two thirds of 4 KiB, an eighth of 60 KiB
/// - 39,500 writes of 26 KB on average: a third of 64 KiB, a fourth of 4 KiB, a fifth of one byte
pub(super) fn built_in_load() -> Load {
    let mut rng = Rng::new(Seed(0), "dbench stand-in", 0);
    let mut names = Names::default();
    let top = names.number("\\clients\\client1");
    let mut calls = vec![Call::DeleteTree(top), Call::Mkdir(top)];
    let documents: Vec<_> = (0..DOCUMENTS)
        .map(|n| {
            (
                names.number(&format!("\\clients\\client1\\{n}.doc")),
                names.number(&format!("\\clients\\client1\\{n}.tmp")),
            )
        })
        .collect();
    for &(path, _) in &documents {
        calls.push(Call::Create { path, empties: false });
        calls.extend((0..4).map(|piece| Call::Write { path, offset: piece * 65_536, size: 65_536 }));
    }
    for _ in 0..EDITS {
        let (path, temporary) = documents[rng.index(documents.len())];
        for _ in 0..8 {
            let size = [4096, 4096, 4096, 4096, 4096, 61_440, 8192, 2048][rng.index(8)];
            calls.push(Call::Read { path, offset: rng.below(48) * 4096, size });
        }
        calls.push(Call::Create { path: temporary, empties: true });
        let mut offset = 0;
        for _ in 0..2 + u32::from(rng.chance(0.45)) {
            let size = [65_536, 65_536, 65_536, 4096, 4096, 1, 1, 8192, 2048][rng.index(9)];
            calls.push(Call::Write { path: temporary, offset, size });
            offset += u64::from(size);
        }
        if rng.chance(0.35) {
            calls.push(Call::Flush(temporary));
        }
        calls.push(Call::Delete(temporary));
        if rng.chance(0.21) {
            calls.push(Call::Rename { from: path, to: temporary });
            calls.push(Call::Rename { from: temporary, to: path });
        }
    }
    calls.push(Call::DeleteTree(top));
    Load { calls, parents: names.parents }
}
