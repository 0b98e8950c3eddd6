//! What file systems say of their own errors: ext4 by fanotify's FAN_FS_ERROR (Linux 5.16) or by a count, btrfs by
//! counts of its devices.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use super::devices::{Sysfs, names};

/// Errors that a file system reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FsError {
    /// Which, as `statfs` says it.
    pub(crate) fsid: u64,
    /// How many.
    pub(crate) number: u64,
}

/// Receives events when a file system meets an error.
#[derive(Debug)]
pub(crate) struct FsErrors {
    group: OwnedFd,
}

impl FsErrors {
    pub(crate) fn open() -> rustix::io::Result<FsErrors> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_FID | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: no memory is handed over.
        let group = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as libc::c_uint) };
        if group < 0 {
            return Err(last_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(FsErrors { group: unsafe { OwnedFd::from_raw_fd(group) } })
    }

    /// Listens to the file system of this directory too. It can still be unmounted.
    pub(crate) fn watch(&self, dir: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: both descriptors are open, and without a path the directory itself is meant.
        let done = unsafe {
            libc::fanotify_mark(self.group.as_raw_fd(), flags, libc::FAN_FS_ERROR, dir.as_raw_fd(), std::ptr::null())
        };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// The reports since the last time; empty when there are none.
    pub(crate) fn read(&self) -> rustix::io::Result<Vec<FsError>> {
        let mut room = [0; 4096];
        match rustix::io::read(&self.group, &mut room) {
            Ok(length) => Ok(room.get(..length).map(parse).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for FsErrors {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The events in a buffer of fanotify; see fanotify(7): a header of 24 bytes each, then records with a type, a length,
/// and what they tell.
fn parse(mut events: &[u8]) -> Vec<FsError> {
    let mut found = Vec::new();
    while let Some(length) = number(events, 0).map(|length| length as usize) {
        let Some(event) = events.get(..length) else { break };
        let Some(header) = event.get(6..8).and_then(|it| Some(u16::from_ne_bytes(it.try_into().ok()?) as usize)) else {
            break;
        };
        found.extend(error_of(event.get(header..).unwrap_or_default()));
        events = events.get(length.max(1)..).unwrap_or_default();
    }
    found
}

/// What the records of one event say.
fn error_of(mut records: &[u8]) -> Option<FsError> {
    let (mut fsid, mut errors) = (None, None);
    while let [kind, _, low, high, ..] = *records {
        let length = u16::from_ne_bytes([low, high]) as usize;
        let record = records.get(..length)?;
        if kind == libc::FAN_EVENT_INFO_TYPE_FID {
            fsid = Some(u64::from(number(record, 4)?) | u64::from(number(record, 8)?) << 32);
        } else if kind == libc::FAN_EVENT_INFO_TYPE_ERROR {
            errors = number(record, 8);
        }
        records = records.get(length.max(4)..)?;
    }
    Some(FsError { fsid: fsid?, number: u64::from(errors?.max(1)) })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The UUID of a btrfs, as sysfs has it; `None` of another file system.
pub(crate) fn btrfs_uuid(dir: BorrowedFd<'_>) -> Option<String> {
    /// `struct btrfs_ioctl_fs_info_args`; see linux/btrfs.h.
    #[repr(C)]
    struct FsInfo {
        max_id: u64,
        devices: u64,
        uuid: [u8; 16],
        rest: [u8; 992],
    }
    const BTRFS_IOC_FS_INFO: libc::c_ulong = 0x8400_941f;
    let mut info = FsInfo { max_id: 0, devices: 0, uuid: [0; 16], rest: [0; 992] };
    // SAFETY: the directory is open, and the kernel writes 1024 bytes, which is what there is.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), BTRFS_IOC_FS_INFO, &raw mut info) };
    (done == 0).then(|| uuid::Uuid::from_bytes(info.uuid).to_string())
}

/// How many errors the file system on this device has counted, over mounts too; `None` where it counts none.
pub(crate) fn counted(sysfs: &Sysfs, device: &str) -> Option<u64> {
    let ext4 = std::fs::read_to_string(sysfs.ext4_of(device).join("errors_count"));
    if let Ok(count) = ext4 {
        return count.trim().parse().ok();
    }
    let devices = sysfs.btrfs_of(device)?.join("devinfo");
    Some(names(&devices).iter().map(|id| device_errors(&devices.join(id).join("error_stats"))).sum())
}

/// `write_errs 0`, and so on.
fn device_errors(stats: &Path) -> u64 {
    let text = std::fs::read_to_string(stats).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once(' ')?.1.trim().parse::<u64>().ok()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(fsid: u64, errors: u32) -> Vec<u8> {
        let mut records = vec![libc::FAN_EVENT_INFO_TYPE_ERROR, 0, 12, 0];
        records.extend(5_i32.to_ne_bytes());
        records.extend(errors.to_ne_bytes());
        records.extend([libc::FAN_EVENT_INFO_TYPE_FID, 0, 24, 0]);
        records.extend(fsid.to_ne_bytes());
        records.extend([0; 12]);
        let mut event = Vec::from(((24 + records.len()) as u32).to_ne_bytes());
        event.extend([3, 0, 24, 0]);
        event.extend(libc::FAN_FS_ERROR.to_ne_bytes());
        event.extend([0; 8]);
        event.extend(records);
        event
    }

    #[test]
    fn events_say_which_file_system_and_how_many_errors() {
        let events = [event(0x1234_5678_9abc_def0, 3), event(7, 1)].concat();
        assert_eq!(
            parse(&events),
            [FsError { fsid: 0x1234_5678_9abc_def0, number: 3 }, FsError { fsid: 7, number: 1 }]
        );
        assert_eq!(parse(&events[..events.len() - 1]).len(), 1);
    }

    #[test]
    fn what_file_systems_count_is_read() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("fs/ext4/sda1/errors_count", "17\n");
        write("fs/btrfs/1-2/devices/sdb1/x", "");
        write("fs/btrfs/1-2/devinfo/1/error_stats", "write_errs 1\nread_errs 2\nflush_errs 0\ncorruption_errs 4\n");
        write("fs/btrfs/1-2/devinfo/2/error_stats", "generation_errs 8\n");
        let sysfs = Sysfs::at(sys.path());
        assert_eq!(
            [counted(&sysfs, "sda1"), counted(&sysfs, "sdb1"), counted(&sysfs, "sdc")],
            [Some(17), Some(15), None]
        );
    }

    proptest! {
        #[test]
        fn no_buffer_is_too_much(mut buffer in prop::collection::vec(any::<u8>(), 0..200), length in 0..64_u8) {
            parse(&buffer);
            if let [first, second, third, fourth, ..] = &mut *buffer {
                (*first, *second, *third, *fourth) = (length, 0, 0, 0);
            }
            parse(&buffer);
        }
    }
}
