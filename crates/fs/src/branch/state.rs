//! What a pool remembers of its branches outside of them, so that a missing disk is not taken for an empty one.
//!
//! One JSON file a pool, `pools/<hash of the mount path>.json`, replaced as a whole: write, fsync, rename, fsync of the
//! folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::ground::locks::{LeafMutex, rank};

use super::BranchErrors;
use super::status::Abilities;

/// Highest slot a branch can have; inode numbers keep two bits for other purposes.
pub const MAX_SLOT: u16 = 0x3fff;
const VERSION: u32 = 1;
/// The most staging areas that are remembered as gone: the oldest are forgotten.
const MAX_GONE_AREAS: usize = 64;

/// The folder of pool states cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file could not be read or written.
    #[error("{}: {source} (the daemon keeps the state of its branches there)", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is damaged or from a newer version.
    #[error("{}: cannot be read as the state of a pool: {detail} (move it away to start with a fresh one; then check that every branch is mounted)", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What the reader said.
        detail: String,
    },
    /// Every slot was used at some time.
    #[error("the pool has had {MAX_SLOT} branches; no inode number range is left for another")]
    NoSlot,
}

/// The pool's memory of one branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Identity.
    #[serde(with = "uuid::serde::simple")]
    pub uuid: Uuid,
    /// Its range of inode numbers.
    pub slot: u16,
    /// It was a mount point when it was first used.
    pub was_mount: bool,
    /// Where it was.
    pub path: PathBuf,
    /// It carries a marker; otherwise (it could never be written) `fsid` is all that tells it from another.
    pub has_marker: bool,
    /// `f_fsid`, on file systems where it outlives a remount.
    pub fsid: Option<u64>,
    /// Where the disks were that it replaced: one of them is not taken back unasked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_paths: Vec<PathBuf>,
    /// What its file system was found to keep when it was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abilities: Option<Abilities>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct PoolFile {
    version: u32,
    mount: PathBuf,
    #[serde(with = "uuid::serde::simple")]
    pool: Uuid,
    branches: BTreeMap<String, Remembered>,
    /// Slots of branches that are gone. Their numbers may live on in files that moved, so they are not used again.
    #[serde(default)]
    retired_slots: BTreeSet<u16>,
    /// Branches that are being emptied.
    #[serde(default)]
    draining: BTreeSet<String>,
    /// Branches whose disks are failing.
    #[serde(default)]
    failing: BTreeMap<String, BranchErrors>,
    /// Staging areas that never come back: a power loss emptied them, or they ended. The latest is last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone_areas: Vec<Uuid>,
}

/// The memory of one pool. Thread-safe.
#[derive(Debug)]
pub struct StateDir {
    file: PathBuf,
    pool: LeafMutex<rank::PoolFile, PoolFile>,
    reserved: LeafMutex<rank::PoolReserved, HashMap<String, u16>>,
    claims: LeafMutex<rank::PoolClaims, HashMap<Uuid, (String, usize)>>,
}

/// While it lives, no other branch of the pool may come online with the same uuid.
#[derive(Debug)]
pub struct UuidClaim {
    state: Arc<StateDir>,
    uuid: Uuid,
}

impl StateDir {
    /// Where states are kept unless the user says otherwise.
    pub const DEFAULT: &str = "/var/lib/umbrella";

    /// Where the pool is mounted.
    pub fn mount(&self) -> PathBuf {
        self.pool.lock().mount.clone()
    }

    /// Opens, or begins, the state of the pool that is mounted at `mount`. Nothing is made before there is something to
    /// remember.
    pub fn open(dir: &Path, mount: &Path) -> Result<Arc<StateDir>, StateError> {
        let file = dir.join("pools").join(format!("{:016x}.json", path_hash(mount)));
        let pool = match std::fs::read(&file) {
            Ok(text) => read_pool(&file, mount, &text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => PoolFile {
                version: VERSION,
                mount: mount.to_owned(),
                pool: Uuid::new_v4(),
                branches: BTreeMap::new(),
                retired_slots: BTreeSet::new(),
                draining: BTreeSet::new(),
                failing: BTreeMap::new(),
                gone_areas: Vec::new(),
            },
            Err(source) => return Err(StateError::Io { path: file, source }),
        };
        Ok(Arc::new(StateDir {
            file,
            pool: LeafMutex::new(pool),
            reserved: LeafMutex::default(),
            claims: LeafMutex::default(),
        }))
    }

    /// The remembered branches of the pool that is mounted at `mount`, by name; changes nothing. Empty where nothing is
    /// remembered, or nothing can be read.
    pub fn remembered(dir: &Path, mount: &Path) -> BTreeMap<String, Remembered> {
        let file = dir.join("pools").join(format!("{:016x}.json", path_hash(mount)));
        let pool = std::fs::read(&file).ok().and_then(|text| read_pool(&file, mount, &text).ok());
        pool.map(|pool| pool.branches).unwrap_or_default()
    }

    /// Notes that the pool is in use. True when it was when this was noted last, without an end in order since.
    pub fn begin_use(&self) -> Result<bool, StateError> {
        let note = self.in_use();
        let failed = |source| StateError::Io { path: note.clone(), source };
        self.make_folder().map_err(failed)?;
        match File::options().write(true).create_new(true).open(&note) {
            Ok(_) => {
                let folder = note.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all());
                folder.map(|()| false).map_err(failed)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(true),
            Err(error) => Err(failed(error)),
        }
    }

    /// Notes that the pool ended in order, with nothing left to do. Not durable at once: a note that comes back costs a
    /// walk.
    pub fn end_use(&self) -> Result<(), StateError> {
        let note = self.in_use();
        match std::fs::remove_file(&note) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StateError::Io { path: note, source: error })
            }
            _ => Ok(()),
        }
    }

    /// What the pool's own files and folders are called.
    fn key(&self) -> &std::ffi::OsStr {
        self.file.file_stem().unwrap_or_default()
    }

    /// Where the pool's staging area lies if nothing else is configured.
    pub(crate) fn staging_area(&self) -> PathBuf {
        // `open` put the file two levels below the directory.
        self.file.ancestors().nth(2).unwrap_or(&self.file).join("staging").join(self.key())
    }

    fn in_use(&self) -> PathBuf {
        self.file.with_extension("in-use")
    }

    /// Identity of the pool.
    pub fn pool_id(&self) -> Uuid {
        self.pool.lock().pool
    }

    /// The branch that has this identity.
    pub fn name_of(&self, uuid: Uuid) -> Option<String> {
        let pool = self.pool.lock();
        pool.branches.iter().find(|(_, known)| known.uuid == uuid).map(|(name, _)| name.clone())
    }

    /// Names of the branches that are remembered.
    pub fn branch_names(&self) -> Vec<String> {
        self.pool.lock().branches.keys().cloned().collect()
    }

    /// The pool's memory of a branch.
    pub fn branch(&self, name: &str) -> Option<Remembered> {
        self.pool.lock().branches.get(name).cloned()
    }

    /// Remembers a branch. Returns when it is on disk; does nothing when the same was remembered before.
    pub fn remember(&self, name: &str, what: &Remembered) -> Result<(), StateError> {
        let mut pool = self.pool.lock();
        if pool.branches.get(name) == Some(what) {
            return Ok(());
        }
        let mut next = pool.clone();
        let old = next.branches.insert(name.to_owned(), what.clone());
        if let Some(old) = old.filter(|old| old.slot != what.slot) {
            next.retired_slots.insert(old.slot);
        }
        next.retired_slots.remove(&what.slot);
        self.save(&next)?;
        *pool = next;
        self.reserved.lock().remove(name);
        Ok(())
    }

    /// The branch left the pool, or was replaced on purpose: whatever is at its path next is taken as new.
    pub fn forget(&self, name: &str) -> Result<(), StateError> {
        self.forget_with(name, |_, _| {})
    }

    /// The same for a staging area, whose files are all gone: no change need wait for it any more.
    pub(crate) fn forget_area(&self, name: &str) -> Result<(), StateError> {
        self.forget_with(name, |pool, old| {
            pool.gone_areas.push(old.uuid);
            let too_many = pool.gone_areas.len().saturating_sub(MAX_GONE_AREAS);
            pool.gone_areas.drain(..too_many);
        })
    }

    fn forget_with(&self, name: &str, note: impl FnOnce(&mut PoolFile, &Remembered)) -> Result<(), StateError> {
        let mut pool = self.pool.lock();
        let mut next = pool.clone();
        let old = next.branches.remove(name);
        if let Some(old) = &old {
            note(&mut next, old);
        }
        next.retired_slots.extend(old.as_ref().map(|old| old.slot));
        let failed = next.failing.remove(name).is_some();
        if next.draining.remove(name) || failed || old.is_some() {
            self.save(&next)?;
            *pool = next;
        }
        Ok(())
    }

    /// Staging areas that never come back.
    pub(crate) fn gone_areas(&self) -> Vec<Uuid> {
        self.pool.lock().gone_areas.clone()
    }

    /// A directory that is empty and stays so, since it has no name any more.
    pub(crate) fn empty_dir(&self) -> std::io::Result<OwnedFd> {
        self.make_folder()?;
        let path = self.file.with_extension("empty");
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&path, flags, Mode::empty())?;
        std::fs::remove_dir(&path)?;
        Ok(dir)
    }

    /// Notes where the disks were that a branch took the place of. Returns when it is on disk.
    pub fn note_former_paths(&self, name: &str, former_paths: Vec<PathBuf>) -> Result<(), StateError> {
        match self.branch(name) {
            Some(known) => self.remember(name, &Remembered { former_paths, ..known }),
            None => Ok(()),
        }
    }

    /// Whether a branch is being emptied, since an earlier mount perhaps.
    pub fn is_draining(&self, name: &str) -> bool {
        self.pool.lock().draining.contains(name)
    }

    /// Notes that a branch is being emptied, or is not any more. Returns when it is on disk.
    pub fn note_draining(&self, name: &str, draining: bool) -> Result<(), StateError> {
        let mut pool = self.pool.lock();
        let mut next = pool.clone();
        let changed = if draining { next.draining.insert(name.to_owned()) } else { next.draining.remove(name) };
        if changed {
            self.save(&next)?;
            *pool = next;
        }
        Ok(())
    }

    /// Errors that were counted on a branch, in an earlier mount perhaps.
    pub fn errors_of(&self, name: &str) -> BranchErrors {
        self.pool.lock().failing.get(name).cloned().unwrap_or_default()
    }

    /// Notes how many errors were counted on a branch. Returns when it is on disk.
    pub fn note_errors(&self, name: &str, errors: &BranchErrors) -> Result<(), StateError> {
        let mut pool = self.pool.lock();
        let mut next = pool.clone();
        let known = if errors.is_failing() {
            next.failing.insert(name.to_owned(), errors.clone())
        } else {
            next.failing.remove(name)
        };
        if known.unwrap_or_default() != *errors {
            self.save(&next)?;
            *pool = next;
        }
        Ok(())
    }

    /// A branch that has another name in the configuration than before, at the same path, stays the branch it was.
    pub(super) fn adopt_renamed(&self, name: &str, path: &Path) -> Result<(), StateError> {
        let mut pool = self.pool.lock();
        if pool.branches.contains_key(name) {
            return Ok(());
        }
        let claims = self.claims.lock();
        let old = pool.branches.iter().find(|(_, it)| it.path == path && !claims.contains_key(&it.uuid));
        let Some((old_name, what)) = old.map(|(old_name, what)| (old_name.clone(), what.clone())) else {
            return Ok(());
        };
        drop(claims);
        let mut next = pool.clone();
        next.branches.remove(&old_name);
        next.branches.insert(name.to_owned(), what);
        if next.draining.remove(&old_name) {
            next.draining.insert(name.to_owned());
        }
        if let Some(errors) = next.failing.remove(&old_name) {
            next.failing.insert(name.to_owned(), errors);
        }
        self.save(&next)?;
        *pool = next;
        Ok(())
    }

    /// Names and paths of other branches that were known by this identity.
    pub(super) fn others_with_uuid(&self, uuid: &Uuid, name: &str) -> Vec<(String, PathBuf)> {
        let pool = self.pool.lock();
        let others = pool.branches.iter().filter(|(other, it)| *other != name && it.uuid == *uuid);
        others.map(|(other, it)| (other.clone(), it.path.clone())).collect()
    }

    /// A slot for a branch: the one it brings if no other branch has it, else the smallest that was never used.
    pub fn slot_for(&self, name: &str, brings: Option<u16>) -> Result<u16, StateError> {
        let pool = self.pool.lock();
        let mut reserved = self.reserved.lock();
        let taken = |slot: u16| {
            pool.branches.iter().any(|(other, it)| other != name && it.slot == slot)
                || reserved.iter().any(|(other, &it)| other != name && it == slot)
        };
        let own = brings.filter(|&slot| (1..=MAX_SLOT).contains(&slot) && !taken(slot));
        let slot = own
            .or_else(|| (1..=MAX_SLOT).find(|&s| !taken(s) && !pool.retired_slots.contains(&s)))
            .or_else(|| (1..=MAX_SLOT).find(|&s| !taken(s)))
            .ok_or(StateError::NoSlot)?;
        reserved.insert(name.to_owned(), slot);
        Ok(slot)
    }

    /// Says that branch `name` is online with this uuid; `Err` names the other branch that is. The same branch may
    /// claim again.
    pub fn claim(self: &Arc<Self>, uuid: Uuid, name: &str) -> Result<UuidClaim, String> {
        let mut claims = self.claims.lock();
        let (holder, count) = claims.entry(uuid).or_insert_with(|| (name.to_owned(), 0));
        if holder != name {
            return Err(holder.clone());
        }
        *count += 1;
        Ok(UuidClaim { state: Arc::clone(self), uuid })
    }

    fn make_folder(&self) -> std::io::Result<()> {
        let Some(folder) = self.file.parent() else { return Ok(()) };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    fn save(&self, pool: &PoolFile) -> Result<(), StateError> {
        let write = || -> std::io::Result<()> {
            self.make_folder()?;
            let next = self.file.with_extension("json.new");
            let mut file = File::create(&next)?;
            file.write_all(&serde_json::to_vec_pretty(pool)?)?;
            file.sync_all()?;
            std::fs::rename(&next, &self.file)?;
            match self.file.parent() {
                Some(folder) => File::open(folder)?.sync_all(),
                None => Ok(()),
            }
        };
        write().map_err(|source| StateError::Io { path: self.file.clone(), source })
    }
}

impl Drop for UuidClaim {
    fn drop(&mut self) {
        let mut claims = self.state.claims.lock();
        if let Some((_, count)) = claims.get_mut(&self.uuid) {
            *count -= 1;
            if *count == 0 {
                claims.remove(&self.uuid);
            }
        }
    }
}

fn read_pool(file: &Path, mount: &Path, text: &[u8]) -> Result<PoolFile, StateError> {
    let damaged = |detail: String| StateError::Damaged { path: file.to_owned(), detail };
    let pool: PoolFile = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
    if pool.version != VERSION {
        return Err(damaged(format!("version {} is not known", pool.version)));
    }
    if pool.mount != mount {
        return Err(damaged(format!("it belongs to the pool at {}", pool.mount.display())));
    }
    Ok(pool)
}

/// FNV-1a.
fn path_hash(path: &Path) -> u64 {
    path.as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
