//! Mounts and unmounts.
//!
//! A mount is made with the mount interface of Linux 5.2 (`fsopen`, `fsmount`, `move_mount`): until it is ready to
//! answer, nobody sees it. Where that is missing or forbidden, `mount(2)` does it, and early callers wait.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno as Sys;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::device::Device;

bitflags::bitflags! {
    /// Options of a mount that every file system has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct MountOptions: u32 {
        /// Read-only.
        const READ_ONLY = 1 << 0;
        /// Set-id bits have no effect.
        const NO_SUID = 1 << 1;
        /// Device files do not work.
        const NO_DEV = 1 << 2;
        /// Nothing can be executed.
        const NO_EXEC = 1 << 3;
        /// Reading does not change access times.
        const NO_ATIME = 1 << 4;
        /// The kernel checks permissions, by the attributes that the file system answers. Without it anyone who may use
        /// the mount may do everything that the file system's methods allow.
        const DEFAULT_PERMISSIONS = 1 << 8;
        /// Other users may use it too. Without it only the user that mounts, not even root if that is another.
        const ALLOW_OTHER = 1 << 9;
    }
}

/// What a mount looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// What the table of mounts shows as the source.
    pub source: String,
    /// The type is shown as `fuse.SUBTYPE`; empty for `fuse`.
    pub subtype: String,
    /// Options.
    pub options: MountOptions,
}

impl MountSpec {
    /// Options that every mount has: they have the numbers of the mount interface of Linux 5.2.
    fn attributes(&self) -> MountAttrFlags {
        MountAttrFlags::from_bits_truncate(self.options.bits() & 0x1f)
    }

    /// The same for `mount(2)`, where one of them has another number.
    fn flags(&self) -> MountFlags {
        let bits = self.options.bits();
        MountFlags::from_bits_truncate(bits & 0xf | (bits & MountOptions::NO_ATIME.bits()) << 6)
    }

    /// Options that are switches of FUSE's own.
    fn switches(&self) -> impl Iterator<Item = &'static str> + '_ {
        let known =
            [(MountOptions::DEFAULT_PERMISSIONS, "default_permissions"), (MountOptions::ALLOW_OTHER, "allow_other")];
        known.into_iter().filter(|(option, _)| self.options.contains(*option)).map(|(_, name)| name)
    }
}

/// Options that every mount of `/dev/fuse` needs: its descriptor, the mode of the root, the owner.
fn required_options(device: &Device) -> [(&'static str, String); 4] {
    [
        ("fd", device.as_fd().as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
    ]
}

/// A mount that can answer INIT, and may not be seen yet.
pub(crate) enum Mounting {
    /// Nobody sees it.
    Detached(OwnedFd),
    /// It is where it belongs, with this number.
    Attached(Option<u64>),
}

impl Mounting {
    /// Makes a mount. The kernel sends INIT.
    pub(crate) fn new(device: &Device, spec: &MountSpec, at: &Path) -> io::Result<Mounting> {
        match detached(device, spec) {
            Ok(mount) => Ok(Mounting::Detached(mount)),
            Err(Sys::NOSYS | Sys::PERM | Sys::OPNOTSUPP) => {
                classic(device, spec, at)?;
                Ok(Mounting::Attached(mount_id(at)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Unmounts it, because no server will answer.
    pub(crate) fn abandon(self, at: &Path) {
        match self {
            // It goes with its descriptor.
            Mounting::Detached(_) => {}
            Mounting::Attached(mount) => clear(at, mount),
        }
    }

    /// Where it is, while nobody sees it.
    pub(crate) fn detached(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Mounting::Detached(mount) => Some(mount.as_fd()),
            Mounting::Attached(_) => None,
        }
    }

    /// Shows it.
    pub(crate) fn attach(self, device: Arc<Device>, at: PathBuf) -> io::Result<Unmounter> {
        let stat = match &self {
            Mounting::Detached(mount) => stat(mount, "", AtFlags::EMPTY_PATH),
            Mounting::Attached(_) => stat(CWD, &at, AtFlags::SYMLINK_NOFOLLOW),
        };
        let connection = stat.map(|stat| stat.stx_dev_minor);
        let mount = match self {
            Mounting::Detached(mount) => {
                move_mount(&mount, "", CWD, &at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
                mount_id(&at)
            }
            Mounting::Attached(mount) => mount,
        };
        Ok(Unmounter { device, at, mount, connection })
    }
}

fn detached(device: &Device, spec: &MountSpec) -> Result<OwnedFd, Sys> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in required_options(device) {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    fsconfig_set_string(context.as_fd(), "source", &spec.source)?;
    if !spec.subtype.is_empty() {
        fsconfig_set_string(context.as_fd(), "subtype", &spec.subtype)?;
    }
    for switch in spec.switches() {
        fsconfig_set_flag(context.as_fd(), switch)?;
    }
    if spec.options.contains(MountOptions::READ_ONLY) {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, spec.attributes())
}

fn classic(device: &Device, spec: &MountSpec, at: &Path) -> io::Result<()> {
    let mut data = required_options(device).map(|(key, value)| format!("{key}={value}")).join(",");
    for switch in spec.switches() {
        data.push(',');
        data.push_str(switch);
    }
    let kind = if spec.subtype.is_empty() { "fuse".to_owned() } else { format!("fuse.{}", spec.subtype) };
    let data = CString::new(data).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::mount::mount(spec.source.as_str(), at, kind, spec.flags(), Some(data.as_c_str()))?)
}

/// Ends a connection, by the file system that the kernel has for that (`fusectl`).
fn abort(connection: u32) -> io::Result<()> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let control = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(control, format!("{connection}/abort"), flags, Mode::empty())?;
    rustix::io::write(file, b"1")?;
    Ok(())
}

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no later mount gets.
pub(crate) const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The number of what is mounted at a path. The file system there is not asked.
fn mount_id(at: &Path) -> Option<u64> {
    let stat = stat(CWD, at, AtFlags::SYMLINK_NOFOLLOW)?;
    (stat.stx_mask & (StatxFlags::MNT_ID | UNIQUE).bits() != 0).then_some(stat.stx_mnt_id)
}

fn stat(directory: impl AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> Option<Statx> {
    let flags = flags | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(directory, path, flags, StatxFlags::MNT_ID | UNIQUE).ok()
}

/// Unmounts. A failed attempt can be repeated.
#[derive(Debug, Clone)]
pub struct Unmounter {
    device: Arc<Device>,
    at: PathBuf,
    mount: Option<u64>,
    connection: Option<u32>,
}

impl Unmounter {
    /// Unmounts. EBUSY while files are open in it, or something is mounted over it. Succeeds if it was unmounted.
    pub fn unmount(&self) -> io::Result<()> {
        if !self.device.is_connected() {
            return Ok(());
        }
        if self.mount.is_some() && mount_id(&self.at) != self.mount {
            return Err(Sys::BUSY.into());
        }
        match rustix::mount::unmount(&self.at, UnmountFlags::NOFOLLOW) {
            Err(_) if !self.device.is_connected() => Ok(()),
            done => Ok(done?),
        }
    }

    /// Takes a mount that no longer answers out of the tree, and ends its connection: waiting callers get an
    /// error.
    pub(crate) fn clear(&self) {
        clear(&self.at, self.mount);
        if self.device.is_connected()
            && let Some(Err(error)) = self.connection.map(abort)
        {
            tracing::warn!(%error, at = %self.at.display(), "cannot end the connection: programs may wait until this process ends");
        }
    }
}

/// Takes a mount that answers nobody out of the tree, and no other that came on top of it.
fn clear(at: &Path, mount: Option<u64>) {
    if mount.is_some() && mount_id(at) == mount {
        let _ = rustix::mount::unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

#[cfg(test)]
mod tests;
