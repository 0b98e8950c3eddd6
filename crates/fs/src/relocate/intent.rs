//! The format of intent files. All numbers are little-endian.
//!
//! ```text
//! "UMBRINT\0"   8   magic
//! version       2   2 for a batch of moves, which programs that know only version 1 leave alone; 1 for all others
//! kind          1   1 move, 2 directory rename, 3 supersede, 4 exchange, 5 batch of moves
//! zero          1
//! length        4   of the payload
//! payload           the fields in the order of the enum; byte strings and lists with a u32 count before
//! checksum      4   CRC32C of all before
//! ```

use umbrella_units::Timestamp;

use super::beneath::{is_component, is_pool_path};
use super::{BranchUuid, DecodeError, Fingerprint, RelocateError};

const MAGIC: &[u8] = b"UMBRINT\0";
/// The first version that knows each kind, from kind 1 on.
const VERSIONS: [u16; 5] = [1, 1, 1, 1, 2];
const HEADER: usize = 16;
const CHECKSUM: usize = 4;
/// No intent file is longer.
pub(super) const MAX_INTENT: usize = 1 << 20;

/// A change of several steps that a crash must not leave halfway. Paths are bytes relative to every branch's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// A file goes from one branch to another.
    Move {
        /// Old branch.
        from: BranchUuid,
        /// New branch.
        to: BranchUuid,
        /// Every name of the file.
        names: Vec<Vec<u8>>,
        /// Name of the copy in the new branch's [`super::TEMP_DIR`].
        temp: Vec<u8>,
        /// The file on the old branch.
        source: Fingerprint,
        /// The copy.
        target: Fingerprint,
    },
    /// Files go from one branch to another together, each with its only name.
    Moves {
        /// Old branch.
        from: BranchUuid,
        /// New branch.
        to: BranchUuid,
        /// The files.
        files: Vec<BatchFile>,
    },
    /// A directory gets a new name on several branches.
    RenameDir {
        /// Old path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
        /// The branches that had the old path.
        branches: Vec<BranchUuid>,
        /// An empty directory of the new name may be replaced.
        replaced: bool,
        /// Its known outcome.
        verdict: Verdict,
    },
    /// A file gets a name that a file on another branch had. Also the rest of a move whose source may be back
    /// ([`Verdict::Done`]): the copy is the winner, and the source the loser.
    Supersede {
        /// Old path of the winner; of a copy, its name in the new branch's [`super::TEMP_DIR`].
        from: Vec<u8>,
        /// Path that both claim.
        to: Vec<u8>,
        /// Branch of the file that is renamed.
        winner: BranchUuid,
        /// That file.
        winner_file: Fingerprint,
        /// Branch of the file that is replaced.
        loser: BranchUuid,
        /// That file.
        loser_file: Fingerprint,
        /// Its known outcome.
        verdict: Verdict,
    },
    /// Two entries change names, on several branches.
    Exchange {
        /// First path.
        one: Vec<u8>,
        /// Second path.
        other: Vec<u8>,
        /// What the branches had under them.
        sites: Vec<ExchangeSite>,
        /// Its known outcome.
        verdict: Verdict,
    },
}

/// One file of [`Intent::Moves`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchFile {
    /// Its only name.
    pub path: Vec<u8>,
    /// Name of the copy in the new branch's [`super::TEMP_DIR`].
    pub temp: Vec<u8>,
    /// The file on the old branch.
    pub source: Fingerprint,
    /// The copy.
    pub target: Fingerprint,
}

/// The known outcome of a change of names. Once it is known, what an older intent says of the change does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: what is found under the names decides.
    Open,
    /// It has happened, and must on the branches named, if any.
    Done,
    /// It failed, and must be taken back on the branches named.
    Undone,
}

/// What a branch had under two names before they were exchanged; something under one of them at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeSite {
    /// The branch.
    pub branch: BranchUuid,
    /// Under the first name.
    pub one: Option<Fingerprint>,
    /// Under the second name.
    pub other: Option<Fingerprint>,
}

impl Intent {
    /// Whether the end of the change is known, and it only says what is left to do.
    pub(super) fn is_decided(&self) -> bool {
        match self {
            Intent::Move { .. } | Intent::Moves { .. } => false,
            Intent::RenameDir { verdict, .. }
            | Intent::Supersede { verdict, .. }
            | Intent::Exchange { verdict, .. } => *verdict != Verdict::Open,
        }
    }

    /// Whether this one says what is left to do of the other, which was written before.
    pub(super) fn takes_the_place_of(&self, other: &Intent) -> bool {
        let narrows = || {
            let wider = other.branches();
            self.branches().iter().all(|branch| wider.contains(branch))
        };
        self.is_decided()
            && (!other.is_decided() || narrows())
            && match (self, other) {
                (Intent::RenameDir { from, to, .. }, Intent::RenameDir { from: old, to: new, .. })
                | (Intent::Supersede { from, to, .. }, Intent::Supersede { from: old, to: new, .. })
                | (Intent::Exchange { one: from, other: to, .. }, Intent::Exchange { one: old, other: new, .. }) => {
                    (from, to) == (old, new)
                }
                _ => false,
            }
    }
}

impl Intent {
    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>, RelocateError> {
        let (kind, payload) = self.payload();
        let mut bytes = Vec::with_capacity(HEADER + payload.len() + CHECKSUM);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&version_of(kind).unwrap_or_default().to_le_bytes());
        bytes.extend_from_slice(&[kind, 0]);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        // What recovery would refuse is not written.
        match Intent::decode(&bytes) {
            Ok(_) => Ok(bytes),
            Err(DecodeError::Long) => Err(RelocateError::IntentTooLong),
            Err(reason) => Err(RelocateError::BadIntent { reason }),
        }
    }

    /// Reads the bytes of a file; never panics, whatever they are.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_INTENT {
            return Err(DecodeError::Long);
        }
        let mut header = IntentReader(bytes);
        if header.take(MAGIC.len())? != MAGIC {
            return Err(DecodeError::Magic);
        }
        // Magic in front and checksum at the end are what all versions have in common.
        let (covered, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(DecodeError::Short)?;
        if crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        let version = u16::from_le_bytes(header.array()?);
        let [kind, reserved] = header.array()?;
        let known = version_of(kind);
        if known != Some(version) && version != VERSIONS[0] {
            return Err(DecodeError::Version(version));
        }
        if known != Some(version) || reserved != 0 {
            return Err(DecodeError::Field);
        }
        let len = header.u32()? as usize;
        let payload = header.take(len)?;
        header.take(CHECKSUM)?;
        header.end()?;
        let mut reader = IntentReader(payload);
        let intent = match kind {
            1 => reader.a_move()?,
            2 => reader.rename_dir()?,
            3 => reader.supersede()?,
            4 => reader.exchange()?,
            5 => reader.moves()?,
            _ => return Err(DecodeError::Field),
        };
        reader.end()?;
        Ok(intent)
    }

    /// The branches it speaks of.
    pub fn branches(&self) -> Vec<BranchUuid> {
        match self {
            Intent::Move { from, to, .. } | Intent::Moves { from, to, .. } => vec![*from, *to],
            Intent::RenameDir { branches, .. } => branches.clone(),
            Intent::Supersede { winner, loser, .. } => vec![*winner, *loser],
            Intent::Exchange { sites, .. } => sites.iter().map(|site| site.branch).collect(),
        }
    }

    fn payload(&self) -> (u8, Vec<u8>) {
        let mut out = Vec::new();
        let kind = match self {
            Intent::Move { from, to, names, temp, source, target } => {
                out.extend_from_slice(from.0.as_bytes());
                out.extend_from_slice(to.0.as_bytes());
                out.extend_from_slice(&(names.len() as u32).to_le_bytes());
                for name in names {
                    put_bytes(&mut out, relative(name));
                }
                put_bytes(&mut out, temp);
                put_fingerprint(&mut out, source);
                put_fingerprint(&mut out, target);
                1
            }
            Intent::Moves { from, to, files } => {
                out.extend_from_slice(from.0.as_bytes());
                out.extend_from_slice(to.0.as_bytes());
                out.extend_from_slice(&(files.len() as u32).to_le_bytes());
                for file in files {
                    put_bytes(&mut out, relative(&file.path));
                    put_bytes(&mut out, &file.temp);
                    put_fingerprint(&mut out, &file.source);
                    put_fingerprint(&mut out, &file.target);
                }
                5
            }
            Intent::RenameDir { from, to, branches, replaced, verdict } => {
                put_bytes(&mut out, relative(from));
                put_bytes(&mut out, relative(to));
                out.extend_from_slice(&(branches.len() as u32).to_le_bytes());
                for branch in branches {
                    out.extend_from_slice(branch.0.as_bytes());
                }
                out.extend_from_slice(&[u8::from(*replaced), verdict.code()]);
                2
            }
            Intent::Supersede { from, to, winner, winner_file, loser, loser_file, verdict } => {
                put_bytes(&mut out, relative(from));
                put_bytes(&mut out, relative(to));
                out.extend_from_slice(winner.0.as_bytes());
                put_fingerprint(&mut out, winner_file);
                out.extend_from_slice(loser.0.as_bytes());
                put_fingerprint(&mut out, loser_file);
                out.push(verdict.code());
                3
            }
            Intent::Exchange { one, other, sites, verdict } => {
                put_bytes(&mut out, relative(one));
                put_bytes(&mut out, relative(other));
                out.extend_from_slice(&(sites.len() as u32).to_le_bytes());
                for site in sites {
                    out.extend_from_slice(site.branch.0.as_bytes());
                    for print in [&site.one, &site.other] {
                        out.push(u8::from(print.is_some()));
                        if let Some(print) = print {
                            put_fingerprint(&mut out, print);
                        }
                    }
                }
                out.push(verdict.code());
                4
            }
        };
        (kind, out)
    }
}

fn version_of(kind: u8) -> Option<u16> {
    VERSIONS.get(usize::from(kind).checked_sub(1)?).copied()
}

impl Verdict {
    fn code(self) -> u8 {
        match self {
            Verdict::Open => 0,
            Verdict::Done => 1,
            Verdict::Undone => 2,
        }
    }
}

/// A pool path without its leading slash.
pub(super) fn relative(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.secs.to_le_bytes());
    out.extend_from_slice(&time.nanos.to_le_bytes());
}

fn put_fingerprint(out: &mut Vec<u8>, print: &Fingerprint) {
    for number in [print.dev, print.ino, print.size, print.nlink, print.rdev] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [print.mode, print.uid, print.gid] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_time(out, print.mtime);
    put_time(out, print.ctime);
    out.push(u8::from(print.btime.is_some()));
    put_time(out, print.btime.unwrap_or_default());
}

struct IntentReader<'a>(&'a [u8]);

impl<'a> IntentReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Short)
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Long) }
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DecodeError::Field),
        }
    }

    fn verdict(&mut self) -> Result<Verdict, DecodeError> {
        match self.array()? {
            [0] => Ok(Verdict::Open),
            [1] => Ok(Verdict::Done),
            [2] => Ok(Verdict::Undone),
            _ => Err(DecodeError::Field),
        }
    }

    fn uuid(&mut self) -> Result<BranchUuid, DecodeError> {
        self.array().map(uuid::Uuid::from_bytes).map(BranchUuid)
    }

    /// A count of items of at least `least` bytes each: never more than there is room for.
    fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > self.0.len() / least { Err(DecodeError::Short) } else { Ok(count) }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, DecodeError> {
        let len = self.u32()? as usize;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn path(&mut self) -> Result<Vec<u8>, DecodeError> {
        self.bytes().and_then(|path| if is_pool_path(&path) { Ok(path) } else { Err(DecodeError::Path) })
    }

    fn time(&mut self) -> Result<Timestamp, DecodeError> {
        let secs = i64::from_le_bytes(self.array()?);
        let nanos = self.u32()?;
        if nanos < 1_000_000_000 { Ok(Timestamp { secs, nanos }) } else { Err(DecodeError::Field) }
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, DecodeError> {
        let mut print = Fingerprint {
            dev: self.u64()?,
            ino: self.u64()?,
            size: self.u64()?,
            nlink: self.u64()?,
            rdev: self.u64()?,
            mode: self.u32()?,
            uid: self.u32()?,
            gid: self.u32()?,
            mtime: self.time()?,
            ctime: self.time()?,
            btime: None,
        };
        let born = self.flag()?;
        let btime = self.time()?;
        print.btime = born.then_some(btime);
        Ok(print)
    }

    fn a_move(&mut self) -> Result<Intent, DecodeError> {
        let (from, to) = (self.uuid()?, self.uuid()?);
        let names: Vec<_> = (0..self.count(5)?).map(|_| self.path()).collect::<Result<_, _>>()?;
        let temp = self.bytes()?;
        if from == to || names.is_empty() || !is_component(&temp) {
            return Err(DecodeError::Field);
        }
        Ok(Intent::Move { from, to, names, temp, source: self.fingerprint()?, target: self.fingerprint()? })
    }

    fn moves(&mut self) -> Result<Intent, DecodeError> {
        let (from, to) = (self.uuid()?, self.uuid()?);
        let files: Vec<_> = (0..self.count(10)?).map(|_| self.batch_file()).collect::<Result<_, _>>()?;
        if from == to || files.is_empty() { Err(DecodeError::Field) } else { Ok(Intent::Moves { from, to, files }) }
    }

    fn batch_file(&mut self) -> Result<BatchFile, DecodeError> {
        let (path, temp) = (self.path()?, self.bytes()?);
        if !is_component(&temp) {
            return Err(DecodeError::Field);
        }
        Ok(BatchFile { path, temp, source: self.fingerprint()?, target: self.fingerprint()? })
    }

    fn rename_dir(&mut self) -> Result<Intent, DecodeError> {
        let (from, to) = (self.path()?, self.path()?);
        let branches: Vec<_> = (0..self.count(16)?).map(|_| self.uuid()).collect::<Result<_, _>>()?;
        let (replaced, verdict) = (self.flag()?, self.verdict()?);
        if from == to || is_below(&to, &from) || (branches.is_empty() && verdict == Verdict::Open) {
            return Err(DecodeError::Field);
        }
        Ok(Intent::RenameDir { from, to, branches, replaced, verdict })
    }

    fn supersede(&mut self) -> Result<Intent, DecodeError> {
        let (from, to) = (self.path()?, self.path()?);
        let (winner, winner_file) = (self.uuid()?, self.fingerprint()?);
        let (loser, loser_file) = (self.uuid()?, self.fingerprint()?);
        if winner == loser || from == to {
            return Err(DecodeError::Field);
        }
        Ok(Intent::Supersede { from, to, winner, winner_file, loser, loser_file, verdict: self.verdict()? })
    }

    fn exchange(&mut self) -> Result<Intent, DecodeError> {
        let (one, other) = (self.path()?, self.path()?);
        let sites: Vec<_> = (0..self.count(18)?).map(|_| self.site()).collect::<Result<_, _>>()?;
        let verdict = self.verdict()?;
        let is_nothing = sites.is_empty() && verdict == Verdict::Open;
        if one == other || is_below(&one, &other) || is_below(&other, &one) || is_nothing {
            return Err(DecodeError::Field);
        }
        Ok(Intent::Exchange { one, other, sites, verdict })
    }

    fn site(&mut self) -> Result<ExchangeSite, DecodeError> {
        let branch = self.uuid()?;
        let one = if self.flag()? { Some(self.fingerprint()?) } else { None };
        let other = if self.flag()? { Some(self.fingerprint()?) } else { None };
        if one.is_none() && other.is_none() {
            return Err(DecodeError::Field);
        }
        Ok(ExchangeSite { branch, one, other })
    }
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}
