//! The log store on a device: how to find and open it, the messages about it, and how it ends.
//!
//! A store is recognised by its superblock, so that `serve DEVICE` needs no configuration. On a hybrid disk the
//! configuration must have `[log]`: a store there without it is refused, since the raw log would be offered as a disk.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use umbrella_block::BlockDevice;
use umbrella_block::hybrid::{LABEL, PairHalf};
use umbrella_block::log_store::format::{BLOCK_BYTES, FormatError, Superblock, choose};
use umbrella_block::log_store::{self, LogStore, LogStoreStats};
use umbrella_block::scrub::Scrub;
use umbrella_units::{BLOCK_SECTORS, BlockNo, ByteSize, Lba, SECTOR_BYTES};

use super::open::{OnDamage, into_unshared};
use super::protocol::{LogStatus, LogTables};
use crate::config::MAX_BYTES;
use crate::config::disk::{BadDiskName, DeviceSpec, DiskSpec, LogSpec};
use crate::pool;
use crate::text::visible_path;

/// More than any device has: a store is recognised although its device is too small for it.
const ANY_SIZE: Lba = Lba(u64::MAX);
/// Mended pages and copies that a status names.
const REPAIRED_SHOWN: usize = 5;

/// A store that is open.
pub(crate) struct Log {
    store: Arc<LogStore>,
    scheme: String,
}

impl Log {
    /// Opens the store on a device, if there is one; there must be one if the configuration says so.
    pub(crate) fn open(
        spec: &DiskSpec,
        name: &str,
        device: &Arc<dyn BlockDevice>,
        on_damage: OnDamage,
    ) -> anyhow::Result<Option<Log>> {
        let (has_flash, lasts) = (spec.cache.is_some(), spec.disk.path().is_some());
        let options = match &spec.log {
            None if has_flash => {
                refuse_forgotten(&**device, name, spec.read_only)?;
                return Ok(None);
            }
            None if !is_on(&**device, name)? => return Ok(None),
            None => LogSpec::default().options(),
            Some(log) => {
                if !lasts {
                    // What is in memory was forgotten with the last daemon.
                    log_store::create(Arc::clone(device), name, &log.create_options(false))?;
                }
                log.options()
            }
        };
        let access = match on_damage {
            _ if spec.read_only => log_store::OpenMode::ReadOnly,
            OnDamage::Refuse => log_store::OpenMode::ReadWrite,
            OnDamage::Salvage => log_store::OpenMode::Salvage,
        };
        let store = LogStore::open(Arc::clone(device), name, options, access)?;
        let [first, second] = copies(&**device, device.geometry().capacity);
        let scheme = choose(first, second)?.superblock.scheme.as_str().to_owned();
        Ok(Some(Log { store: Arc::new(store), scheme }))
    }

    /// What programs read and write.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::<LogStore>::clone(&self.store)
    }

    /// What keeps its checksums.
    pub(crate) fn scrubbed(&self) -> Arc<dyn Scrub> {
        Arc::<LogStore>::clone(&self.store)
    }

    /// Whether it is only looked at.
    pub(crate) fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    /// Its counters and its state.
    pub(crate) fn stats(&self) -> LogStoreStats {
        self.store.stats()
    }

    /// Its state.
    pub(crate) fn status(&self) -> LogStatus {
        let stats = self.stats();
        LogStatus {
            scheme: self.scheme.clone(),
            live: stats.live,
            segments: stats.segments,
            free_segments: stats.free_segments,
            emptied_segments: stats.emptied_segments,
            segments_cleaned: stats.segments_cleaned,
            write_amplification: stats.write_amplification,
        }
    }

    /// What of the figures is a table of its own.
    pub(crate) fn tables(&self) -> LogTables {
        let stats = self.stats();
        LogTables { regions: stats.regions.iter().map(Into::into).collect(), victims: stats.victims }
    }

    /// The store's problems, a sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let stats = self.stats();
        let damaged = (stats.damaged_segments > 0)
            .then(|| format!("{} of the log cannot be read, and are not cleaned", segments(stats.damaged_segments)));
        let refused = (stats.damaged_reads > 0).then(|| {
            let reads = crate::text::count(stats.damaged_reads, "read");
            format!("{reads} of damaged blocks were refused (the daemon's log names them)")
        });
        let lost = (stats.lost.0 > 0).then(|| {
            format!(
                "{} are lost to damage, and cannot be read until they are written again. `umbrella disk scrub` lists \
                them, or `umbrella disk check` once it is detached",
                stats.lost
            )
        });
        let more = stats.repaired.len().saturating_sub(REPAIRED_SHOWN);
        let more = (more > 0).then(|| {
            format!("{} more such problems (the daemon's log names them)", crate::text::count(more as u64, "problem"))
        });
        // The newest first.
        let repaired = stats.repaired.into_iter().rev().take(REPAIRED_SHOWN).chain(more);
        stats.refuses_writes.into_iter().chain(lost).chain(damaged).chain(refused).chain(repaired).collect()
    }

    /// Takes what the device has become larger by; what it promises then.
    pub(crate) fn grow(&self) -> anyhow::Result<ByteSize> {
        Ok(self.store.grow()?)
    }

    /// Ends it; no client may use it any more.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        into_unshared(self.store)?.close().context("closing the log store")
    }
}

/// As it is said to people.
pub(crate) fn segments(number: u32) -> String {
    crate::text::count(u64::from(number), "segment")
}

/// Whether a log store is on a device. Fails when that is not certain, because the device would be used the wrong way.
///
/// A damaged first superblock may no longer show what it was. It still counts as one if it agrees with the second where
/// that is not zero, or if nothing at all lies before the second.
pub(crate) fn is_on(device: &dyn BlockDevice, name: &str) -> anyhow::Result<bool> {
    let [first, second] = copies(device, device.geometry().capacity);
    let [_, at] = Superblock::COPIES;
    match (first, second) {
        (Err(FormatError::Foreign { .. }), Ok(superblock)) if !is_remainder(device, &superblock) => bail!(
            "the beginning of {name} was overwritten, but it has the second superblock of one log store ({}) at \
            block {}. To keep the store, use a configuration with [log], or `umbrella disk salvage`. To keep the new \
            contents (see `blkid {name}`): `dd if=/dev/zero bs=4096 count=1 seek={} conv=notrunc of={name}`",
            superblock.store,
            at.0,
            at.0,
        ),
        (Err(FormatError::Foreign { .. } | FormatError::Unreadable { .. }), Err(_)) => Ok(false),
        (Ok(_) | Err(_), _) => Ok(true),
    }
}

/// Whether what lies where the first superblock should be is the rest of it, and of nothing else.
fn is_remainder(device: &dyn BlockDevice, second: &Superblock) -> bool {
    let [_, BlockNo(at)] = Superblock::COPIES;
    let mut before = vec![0; at as usize * BLOCK_BYTES];
    if device.read(Lba(0), &mut before).is_err() {
        return false;
    }
    if before.iter().all(|byte| *byte == 0) {
        return true;
    }
    let Ok(expected) = second.encode() else { return false };
    let said = expected.iter().zip(&before).filter(|(expected, _)| **expected != 0);
    let (all, same) =
        said.fold((0, 0), |(all, same), (expected, found)| (all + 1, same + u32::from(expected == found)));
    same * 2 > all
}

/// Fails if a log store is on a hybrid disk whose configuration does not say so. If only the second superblock is
/// there, it may be the rest of an earlier store: the disk may then be read, but not written.
fn refuse_forgotten(device: &dyn BlockDevice, name: &str, read_only: bool) -> anyhow::Result<()> {
    let reported = "a log store is on it: add [log] to the configuration";
    let ([first, _], [_, second]) = (copies(device, ANY_SIZE), copies(device, device.geometry().capacity));
    match [first, second] {
        [Ok(superblock), _] => bail!("{name}, with its flash: {reported} ({})", superblock.store),
        [Err(_), Ok(superblock)] if !read_only => bail!(
            "{name}, with its flash: {reported} ({}, only the second superblock is intact). If it is no longer a log \
            store, serve it --read-only to save what you need",
            superblock.store
        ),
        _ => Ok(()),
    }
}

/// Fails if the disk of a new pair holds a log store that needs the place of the label: the pair would be too small.
pub(crate) fn refuse_without_room(disk: &PairHalf) -> anyhow::Result<()> {
    let device = &*disk.device;
    // What is no store for sure is looked at when it is served.
    if !is_on(device, &disk.name).unwrap_or(false) {
        return Ok(());
    }
    let [first, second] = copies(device, ANY_SIZE);
    let Ok(store) = first.or(second) else { return Ok(()) };
    let size = device.geometry().size();
    let needed = ByteSize(store.end().0 * BLOCK_BYTES as u64 + LABEL.0);
    if needed <= size {
        return Ok(());
    }
    let [shown, shown_needed] = size.told_apart(needed);
    bail!(
        "{0}: a log store fills it, so the label of a hybrid disk ({LABEL}) has no room. To keep the store, enlarge \
        {0} from {shown} to {shown_needed} (`truncate -s {1}` if it is a file). To give it up: `umbrella disk create \
        --force` with [flash] and [log]",
        disk.name,
        needed.0
    )
}

/// Both copies of the superblock, if the store fits into this capacity.
fn copies(device: &dyn BlockDevice, capacity: Lba) -> [Result<Superblock, FormatError>; 2] {
    Superblock::COPIES.map(|BlockNo(at)| {
        let mut block = [0; BLOCK_BYTES];
        let structure = umbrella_block::log_store::format::Structure::Superblock;
        device.read(Lba(at * BLOCK_SECTORS), &mut block).map_err(|_| FormatError::Unreadable { structure })?;
        Superblock::parse(&block, capacity)
    })
}

/// The disk that a path names which is no configuration: a block device, or an image of a log store.
pub(crate) fn named_by_device(path: &Path) -> Result<Option<DiskSpec>, BadDiskName> {
    let Ok(data) = std::fs::metadata(path) else { return Ok(None) };
    let is_meant = data.file_type().is_block_device() || data.is_file() && has_a_store(path);
    if !is_meant {
        return Ok(None);
    }
    let path = pool::absolute(path).unwrap_or_else(|_| path.to_owned());
    DiskSpec::of_device(DeviceSpec::File { path, size: None, direct: true }).map(Some)
}

/// Why a path that names no disk is no configuration either, if that is plain to see.
pub(crate) fn refuse_other(path: &Path) -> anyhow::Result<()> {
    let shown = visible_path(path);
    let is_toml = path.extension().is_some_and(|ending| ending == "toml");
    // A device that cannot be read may hold anything, a store too: the message must not suggest making it anew.
    if let Err(error) = first_block(path) {
        bail!("{shown} cannot be read: {error}");
    }
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !is_toml => {
            bail!("{shown}: no such image, device or configuration")
        }
        Ok(data) if data.is_file() && data.len() > MAX_BYTES => bail!(
            "{shown} is no log store (it has no superblock), and too large for a configuration ({} at most). Give a \
            plain image with --disk. After an interrupted `umbrella disk create`, run it again with --force. For a \
            damaged store: `umbrella disk salvage`",
            ByteSize(MAX_BYTES)
        ),
        Ok(data) if data.is_file() && data.len() == 0 && !is_toml => bail!(
            "{shown} is empty: neither an image of a log store nor a configuration. `umbrella disk create --kind log \
            {shown} --size SIZE` makes a log store of it"
        ),
        Ok(data) if data.is_file() && !is_toml && !looks_like_configuration(path) => bail!(
            "{shown} is neither an image of a log store nor a configuration (which has a table [disk]). Give a plain \
            image with --disk, or make it a log store (`truncate`, then `umbrella disk create --kind log --force`)"
        ),
        _ => Ok(()),
    }
}

/// Reads the beginning of a file. One that is not there, or not a file, is others' concern.
fn first_block(path: &Path) -> std::io::Result<()> {
    if !std::fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return Ok(());
    }
    let file = File::open(path)?;
    file.read_at(&mut [0; BLOCK_BYTES], 0)?;
    let [_, BlockNo(second)] = Superblock::COPIES;
    file.read_at(&mut [0; BLOCK_BYTES], second * BLOCK_BYTES as u64).map(drop)
}

/// Whether a file looks like a configuration, right or wrong.
fn looks_like_configuration(path: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    text.lines().any(|line| line.trim_start().trim_start_matches('[').trim_start().starts_with("disk"))
}

/// Reads a file without opening it as a disk, because another process may have done so. With its second superblock
/// alone it is larger than a configuration may be.
pub(crate) fn has_a_store(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let Ok(size) = file.metadata().map(|data| data.len()) else { return false };
    let [first, second] = Superblock::COPIES.map(|BlockNo(at)| {
        let mut block = [0; BLOCK_BYTES];
        let read = file.read_exact_at(&mut block, at * BLOCK_BYTES as u64);
        read.map(|()| Superblock::parse(&block, Lba(size / SECTOR_BYTES)))
    });
    first.is_ok_and(|found| !matches!(found, Err(FormatError::Foreign { .. })))
        || second.is_ok_and(|found| found.is_ok())
}
