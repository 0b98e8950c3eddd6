//! Reads of a device or file past the page cache (O_DIRECT), timed by the monotonic clock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags, SeekFrom, major, minor};
use rustix::io::Errno;
use umbrella_block::file::{ALIGNMENT, AlignedBuffer};
use umbrella_lab::drive::timed::{BatchTime, ReadError, Timed, TimedReads};
use umbrella_units::{Lba, Nanos, SECTOR_BYTES};

use crate::text::visible_path;

/// A device or file, opened for reading only.
#[derive(Debug)]
pub(super) struct DirectReads {
    file: File,
    model: String,
    sectors: u64,
    block_sectors: u32,
    buffer: AlignedBuffer,
    begun: Instant,
}

impl DirectReads {
    pub(super) fn open(path: &Path) -> anyhow::Result<DirectReads> {
        let named = || visible_path(path);
        let found = fs::metadata(path).with_context(named)?;
        let is_device = found.file_type().is_block_device();
        if !is_device && !found.is_file() {
            bail!("{} is neither a block device nor a file (name the disk, such as /dev/sdb)", named());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ACCESS | Errno::PERM) => {
                bail!("you may not read {} (reading a disk itself needs root: run it with sudo)", named())
            }
            Err(Errno::INVAL) => {
                bail!(
                    "the file system of {} does not support direct reads (O_DIRECT): measure the disk below it",
                    named()
                )
            }
            Err(Errno::NOMEDIUM) => bail!("{} has no medium: insert one first", named()),
            Err(error) => return Err(error).with_context(named),
        };
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).with_context(named)?;
        let block = if is_device { rustix::fs::ioctl_blksszget(&file).with_context(named)? } else { block_of(&file) };
        let model = if is_device { model(found.rdev()) } else { None };
        let own_name = || path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(DirectReads {
            model: model.unwrap_or_else(own_name),
            sectors: bytes / SECTOR_BYTES,
            block_sectors: (u64::from(block) / SECTOR_BYTES).max(1) as u32,
            buffer: AlignedBuffer::default(),
            begun: Instant::now(),
            file,
        })
    }

    /// What its maker calls it, else the name of its file.
    pub(super) fn model(&self) -> &str {
        &self.model
    }
}

/// The smallest direct read of a regular file, in bytes.
fn block_of(file: &File) -> u32 {
    let mut buffer = AlignedBuffer::new(SECTOR_BYTES as usize);
    match rustix::io::pread(file, buffer.as_mut_slice(), SECTOR_BYTES) {
        Err(Errno::INVAL) => ALIGNMENT as u32,
        _ => SECTOR_BYTES as u32,
    }
}

/// The model by which a disk identifies itself.
fn model(device: u64) -> Option<String> {
    let model = fs::read_to_string(format!("/sys/dev/block/{}:{}/device/model", major(device), minor(device))).ok()?;
    let model = model.trim();
    (!model.is_empty()).then(|| model.to_owned())
}

impl TimedReads for DirectReads {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn block_sectors(&self) -> u32 {
        self.block_sectors
    }

    fn now(&self) -> Nanos {
        Nanos(self.begun.elapsed().as_nanos() as u64)
    }

    fn pause(&mut self, time: Nanos) {
        std::thread::sleep(Duration::from_nanos(time.0));
    }

    fn read(&mut self, start: Lba, sectors: u32) -> Result<Timed, ReadError> {
        let length = (u64::from(sectors) * SECTOR_BYTES) as usize;
        let room = self.buffer.room(length);
        let sent = Nanos(self.begun.elapsed().as_nanos() as u64);
        let read = read_at(&self.file, room, start);
        let done = self.now();
        read.map(|()| Timed { sent, done })
    }

    fn read_together(&mut self, starts: &[Lba], sectors: u32, depth: u32) -> Result<BatchTime, ReadError> {
        let (next, unreadable) = (AtomicUsize::new(0), AtomicU64::new(0));
        let length = (u64::from(sectors) * SECTOR_BYTES) as usize;
        let file = &self.file;
        let begun = Instant::now();
        let reader = || -> Result<(), ReadError> {
            let mut buffer = AlignedBuffer::new(length);
            while let Some(&start) = starts.get(next.fetch_add(1, Ordering::Relaxed)) {
                match read_at(file, buffer.as_mut_slice(), start) {
                    Err(ReadError::Unreadable) => drop(unreadable.fetch_add(1, Ordering::Relaxed)),
                    other => other?,
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let spawned: Vec<_> = (1..depth).map(|_| std::thread::Builder::new().spawn_scoped(scope, reader)).collect();
            let own = reader();
            let others = spawned.into_iter().map(|thread| match thread?.join() {
                Ok(result) => result,
                Err(_) => Err(ReadError::Device(io::Error::other("a reading thread failed"))),
            });
            others.fold(own, Result::and)
        })?;
        let time = Nanos(begun.elapsed().as_nanos() as u64);
        Ok(BatchTime { time, unreadable: unreadable.into_inner() })
    }
}

/// One read, whole or not at all.
fn read_at(file: &File, buffer: &mut [u8], start: Lba) -> Result<(), ReadError> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, start.0 * SECTOR_BYTES + done as u64) {
            Ok(0) => {
                return Err(ReadError::Device(io::Error::other(
                    "it became smaller during the measurement; measure \
                it again",
                )));
            }
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // What the kernel makes of a medium error, a bad checksum and a failed link.
            Err(Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO) => return Err(ReadError::Unreadable),
            Err(error) => return Err(ReadError::Device(error.into())),
        }
    }
    Ok(())
}
