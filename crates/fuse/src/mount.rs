//! Mounts and unmounts.
//!
//! A mount is made with the mount interface of Linux 5.2 (`fsopen`, `fsmount`, `move_mount`): until it is ready to answer, nobody sees
//! it. Where that is missing or forbidden, `mount(2)` does it, and early callers wait.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, StatxFlags};
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
        /// The kernel checks permissions, by the attributes that the file system answers.
        const DEFAULT_PERMISSIONS = 1 << 5;
        /// Other users may use it too.
        const ALLOW_OTHER = 1 << 6;
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
    fn attributes(&self) -> MountAttrFlags {
        let pairs = [
            (MountOptions::READ_ONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (MountOptions::NO_SUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (MountOptions::NO_DEV, MountAttrFlags::MOUNT_ATTR_NODEV),
            (MountOptions::NO_EXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (MountOptions::NO_ATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        ];
        let set = pairs.into_iter().filter(|(option, _)| self.options.contains(*option));
        set.fold(MountAttrFlags::empty(), |all, (_, flag)| all | flag)
    }

    fn flags(&self) -> MountFlags {
        let pairs = [
            (MountOptions::READ_ONLY, MountFlags::RDONLY),
            (MountOptions::NO_SUID, MountFlags::NOSUID),
            (MountOptions::NO_DEV, MountFlags::NODEV),
            (MountOptions::NO_EXEC, MountFlags::NOEXEC),
            (MountOptions::NO_ATIME, MountFlags::NOATIME),
        ];
        let set = pairs.into_iter().filter(|(option, _)| self.options.contains(*option));
        set.fold(MountFlags::empty(), |all, (_, flag)| all | flag)
    }

    /// Options that are switches of FUSE's own.
    fn switches(&self) -> impl Iterator<Item = &'static str> + '_ {
        let known =
            [(MountOptions::DEFAULT_PERMISSIONS, "default_permissions"), (MountOptions::ALLOW_OTHER, "allow_other")];
        known.into_iter().filter(|(option, _)| self.options.contains(*option)).map(|(_, name)| name)
    }
}

/// What a file system on `/dev/fuse` must be given: mode of the root, owner.
fn values(device: &Device) -> [(&'static str, String); 4] {
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
    /// It is where it belongs.
    Attached,
}

impl Mounting {
    /// Makes a mount. The kernel sends INIT.
    pub(crate) fn new(device: &Device, spec: &MountSpec, at: &Path) -> io::Result<Mounting> {
        match detached(device, spec) {
            Ok(mount) => Ok(Mounting::Detached(mount)),
            Err(Sys::NOSYS | Sys::PERM | Sys::OPNOTSUPP) => {
                classic(device, spec, at)?;
                Ok(Mounting::Attached)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes it away: nobody will answer.
    pub(crate) fn abandon(self, at: &Path) {
        match self {
            // It goes with its descriptor.
            Mounting::Detached(_) => {}
            Mounting::Attached => drop(rustix::mount::unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)),
        }
    }

    /// Shows it.
    pub(crate) fn attach(self, device: Arc<Device>, at: PathBuf) -> io::Result<Unmounter> {
        if let Mounting::Detached(mount) = self {
            move_mount(&mount, "", CWD, &at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        }
        let mount = mount_id(&at);
        Ok(Unmounter { device, at, mount })
    }
}

fn detached(device: &Device, spec: &MountSpec) -> Result<OwnedFd, Sys> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in values(device) {
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
    let mut data = values(device).map(|(key, value)| format!("{key}={value}")).join(",");
    for switch in spec.switches() {
        data.push(',');
        data.push_str(switch);
    }
    let kind = if spec.subtype.is_empty() { "fuse".to_owned() } else { format!("fuse.{}", spec.subtype) };
    let data = CString::new(data).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::mount::mount(spec.source.as_str(), at, kind, spec.flags(), Some(data.as_c_str()))?)
}

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no later mount gets.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The number of what is mounted at a path. The file system there is not asked.
fn mount_id(at: &Path) -> Option<u64> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, at, flags, StatxFlags::MNT_ID | UNIQUE).ok()?;
    (stat.stx_mask & (StatxFlags::MNT_ID | UNIQUE).bits() != 0).then_some(stat.stx_mnt_id)
}

/// Unmounts. A failed attempt can be repeated.
#[derive(Debug, Clone)]
pub struct Unmounter {
    device: Arc<Device>,
    at: PathBuf,
    mount: Option<u64>,
}

impl Unmounter {
    /// Unmounts. Fails with EBUSY while files are open in it, or while something is mounted over it: try again later. Succeeds if it was
    /// unmounted before.
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

    /// Takes a mount that answers nobody any more out of the tree, and no other that came on top of it.
    pub(crate) fn clear(&self) {
        if self.mount.is_some() && mount_id(&self.at) == self.mount {
            let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}
