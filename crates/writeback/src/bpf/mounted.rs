//! The file system that is watched: what is mounted there, and how its files are reached by their numbers.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dev, Mode, OFlags, StatxAttributes, StatxFlags};
use umbrella_units::FileId;

use super::error::WatchError;
use super::record::FileKey;
use crate::file::FileHandle;
use crate::sys;

/// The kinds of file system that are known to work.
const KINDS: [&str; 5] = ["ext4", "ext3", "ext2", "xfs", "btrfs"];

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    mount: u64,
    device: Dev,
    kind: String,
    template: Template,
}

impl Mounted {
    /// What is mounted at `path`; an error unless it is a mount point of a kind that is known.
    pub fn at(path: &Path) -> Result<Mounted, WatchError> {
        let failed = |source: io::Error| WatchError::Path { path: path.to_owned(), source };
        let path = fs::canonicalize(path).map_err(failed)?;
        if fs::metadata(&path).map_err(failed)?.file_type().is_block_device() {
            return Err(WatchError::Device { path });
        }
        let root = open(&path).map_err(failed)?;
        let stat = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID | StatxFlags::INO)
            .map_err(|error| failed(error.into()))?;
        if !stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Err(WatchError::NoMountPoint { path });
        }
        let table = fs::read("/proc/self/mountinfo").map_err(failed)?;
        let mut lines = table.split(|&byte| byte == b'\n').filter_map(Line::parse);
        let line = lines.find(|line| line.mount == stat.stx_mnt_id);
        let Some(Line { device, kind, .. }) = line else { return Err(WatchError::NoMountPoint { path }) };
        if !KINDS.contains(&kind.as_str()) {
            return Err(WatchError::Kind { path, kind });
        }
        let handle = sys::handle_of(root.as_fd()).map_err(failed)?;
        sys::open_handle(root.as_fd(), &handle)
            .map_err(|source| WatchError::MayNotOpen { path: path.clone(), source })?;
        let template = Template::of(&handle, FileId(stat.stx_ino));
        let template = template.ok_or_else(|| WatchError::Handles { path: path.clone(), kind: kind.clone() })?;
        Ok(Mounted { path, mount: stat.stx_mnt_id, device, kind, template })
    }

    /// Where it is mounted, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device number that the kernel's own structures carry; on btrfs not that of stat(2).
    pub fn device(&self) -> Dev {
        self.device
    }

    /// Its type: `ext4`, `xfs`...
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Opens its root.
    pub fn root(&self) -> io::Result<OwnedFd> {
        open(&self.path)
    }

    /// Whether it is mounted there still.
    pub fn is_mounted(&self) -> bool {
        let stat = rustix::fs::statx(rustix::fs::CWD, &self.path, AtFlags::empty(), StatxFlags::MNT_ID);
        stat.is_ok_and(|stat| stat.stx_mnt_id == self.mount)
    }

    /// The handle of one of its files; none for a number that no file of it has.
    pub(super) fn handle(&self, file: FileKey) -> Option<FileHandle> {
        self.template.handle(file)
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// How the file system writes its handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    /// Number and generation in 32 bits each (`FILEID_INO32_GEN`): ext4, small xfs.
    Short,
    /// A number of 64 bits before the generation: xfs.
    Long,
    /// Number, subvolume, generation: btrfs.
    Subvolume(u64),
}

const SHORT: i32 = 1;
const LONG: i32 = 0x81;
const SUBVOLUME: i32 = 0x4d;
/// The first inode of a subvolume of btrfs that is a file.
const FIRST_FREE: u64 = 256;

impl Template {
    /// Derives the template from the handle of the root, whose inode number is known.
    pub(super) fn of(root: &FileHandle, number: FileId) -> Option<Template> {
        let word = |at: usize| Some(u64::from_ne_bytes(root.bytes.get(at..at + 8)?.try_into().ok()?));
        let short = || Some(u64::from(u32::from_ne_bytes(root.bytes.get(..4)?.try_into().ok()?)));
        let (template, found) = match (root.kind, root.bytes.len()) {
            (SHORT, 8) => (Template::Short, short()?),
            (LONG, 12) => (Template::Long, word(0)?),
            (SUBVOLUME, 20) => (Template::Subvolume(word(8)?), word(0)?),
            _ => return None,
        };
        (found == number.0).then_some(template)
    }

    /// The handle of a file.
    pub(super) fn handle(self, FileKey { file, generation }: FileKey) -> Option<FileHandle> {
        let long = file.0.to_ne_bytes();
        let generation = generation.to_ne_bytes();
        let (kind, bytes) = match self {
            Template::Short => (SHORT, [u32::try_from(file.0).ok()?.to_ne_bytes(), generation].concat()),
            Template::Long => (LONG, [&long[..], &generation].concat()),
            // What is below holds the tree's own blocks.
            Template::Subvolume(_) if file.0 < FIRST_FREE => return None,
            Template::Subvolume(root) => (SUBVOLUME, [&long[..], &root.to_ne_bytes(), &generation].concat()),
        };
        Some(FileHandle { kind, bytes: bytes.into() })
    }
}

/// A line of `/proc/self/mountinfo`.
pub(super) struct Line {
    pub(super) mount: u64,
    pub(super) device: Dev,
    pub(super) kind: String,
}

impl Line {
    /// `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/sda1 rw`
    pub(super) fn parse(line: &[u8]) -> Option<Line> {
        let mut words = line.split(|&byte| byte == b' ').map(|word| String::from_utf8_lossy(word));
        let mount = words.next()?.parse().ok()?;
        let device = words.nth(1)?;
        let (major, minor) = device.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let kind = words.skip_while(|word| word != "-").nth(1)?.into_owned();
        Some(Line { mount, device, kind })
    }
}
