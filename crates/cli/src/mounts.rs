//! What the kernel says is mounted, and taking a mount away when its daemon cannot.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use umbrella_fs::branch::mounts::is_guarded;
use umbrella_fs::branch::not_mounted::unescape;

/// Type of pools.
const KIND: &str = "fuse.umbrella";
/// What the memory of staged files is called.
const STAGING: &str = "umbrella-staging";

/// How long a daemon may take to answer.
const A_LOOK: std::time::Duration = std::time::Duration::from_secs(2);

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Type of the file system, for example `ext4` or `fuse.umbrella`.
    pub(crate) kind: String,
    /// What is mounted: a device, or a name.
    pub(crate) source: String,
    /// Options of this mount: `rw`, `nosuid`...
    pub(crate) options: Vec<String>,
}

impl Mounted {
    /// Whether it is one of ours.
    pub(crate) fn is_pool(&self) -> bool {
        self.kind == KIND
    }
}

/// What was mounted last at exactly this path, if anything was. Asks the kernel only, never the file system.
pub(crate) fn at(path: &Path) -> Option<Mounted> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    last_at(&table, path)
}

/// Where pools are mounted, whoever mounted them.
pub(crate) fn pools() -> Vec<PathBuf> {
    such(Mounted::is_pool)
}

/// Memory with the staged files of pools, mounted or not.
pub(crate) fn staging_areas() -> Vec<PathBuf> {
    such(|mounted| mounted.kind == "tmpfs" && mounted.source == STAGING)
}

fn such(wanted: impl Fn(&Mounted) -> bool) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    mounts.filter(|(_, mounted)| wanted(mounted)).map(|(at, _)| at).collect()
}

/// Whether a path lies on a file system whose calls may hang: a network's, or a daemon's. Asks the kernel only, never the file system.
pub(crate) fn may_hang(path: &Path) -> bool {
    is_on_guarded(&std::fs::read("/proc/self/mountinfo").unwrap_or_default(), path)
}

fn is_on_guarded(table: &[u8], path: &Path) -> bool {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse).filter(|(at, _)| path.starts_with(at));
    // The deepest counts, and of several there the last.
    mounts.max_by_key(|(at, _)| at.components().count()).is_some_and(|(_, mounted)| is_guarded(&mounted.kind))
}

/// Whether a FUSE file system is mounted there whose daemon is gone. One that does not answer in time is not.
pub(crate) fn is_dead(path: &Path) -> bool {
    if !at(path).is_some_and(|mounted| mounted.kind.starts_with("fuse")) {
        return false;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let asked = path.to_owned();
    // Of its space the kernel keeps nothing, as it does of attributes. Nobody waits for the thread: one that hangs ends with the process.
    std::thread::spawn(move || tell.send(rustix::fs::statfs(&asked).map(drop)));
    told.recv_timeout(A_LOOK).is_ok_and(|answer| answer == Err(Errno::NOTCONN))
}

/// Takes the tree away; with `force`, requests that hang fail at once. Users other than root go through `fusermount3`.
pub(crate) fn detach(path: &Path, force: bool) -> io::Result<()> {
    let flags = if force { UnmountFlags::DETACH | UnmountFlags::FORCE } else { UnmountFlags::DETACH };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => fusermount(path),
        other => other.map_err(io::Error::from),
    }
}

fn fusermount(path: &Path) -> io::Result<()> {
    let status = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(path).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("fusermount3 ended with {status}"))) }
}

/// `36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 - ext3 /dev/root rw`: the mount point is the fifth word, the options of the
/// mount are the sixth, and the type is the first after the lone dash.
fn last_at(table: &[u8], path: &Path) -> Option<Mounted> {
    let mut lines = table.split(|byte| *byte == b'\n').filter_map(parse);
    lines.rfind(|(mount_point, _)| mount_point == path).map(|(_, mounted)| mounted)
}

fn parse(line: &[u8]) -> Option<(PathBuf, Mounted)> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = line.split(|byte| *byte == b' ');
    let mount_point = unescape(words.nth(4)?);
    let options = words.next()?.split(|byte| *byte == b',').map(text).collect();
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (text(words.next()?), text(words.next()?));
    Some((mount_point, Mounted { kind, source, options }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_above_a_path_says_whether_its_calls_may_hang() {
        let line = |at: &str, kind: &str| format!("36 1 0:33 / {at} rw - {kind} source rw\n");
        let table = [line("/", "ext4"), line("/mnt/far", "nfs4"), line("/mnt/far/near", "xfs")].concat();
        let hangs = |path| is_on_guarded(table.as_bytes(), Path::new(path));
        assert_eq!(
            ["/mnt/far", "/mnt/far/a", "/mnt/far/near/a", "/mnt/farther"].map(hangs),
            [true, true, false, false]
        );
    }

    const TABLE: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
        36 22 98:0 / /srv/my\\040pool rw,noatime master:1 opt:2 - ext3 /dev/root rw\n\
        40 36 0:44 / /srv/my\\040pool rw - fuse.umbrella pool rw\ngarbage\n\n";

    #[test]
    fn the_topmost_mount_counts() {
        let kind = |path: &str| last_at(TABLE, Path::new(path)).map(|mounted| mounted.kind);
        assert_eq!(kind("/srv/my pool").as_deref(), Some("fuse.umbrella"));
        assert_eq!(kind("/").as_deref(), Some("ext4"));
    }

    #[test]
    fn the_options_are_those_of_the_mount() {
        let table = &TABLE[..TABLE.windows(4).position(|word| word == b"\n40 ").unwrap()];
        assert_eq!(last_at(table, Path::new("/srv/my pool")).unwrap().options, ["rw", "noatime"]);
    }

    #[test]
    fn a_directory_in_a_mount_is_no_mount() {
        assert_eq!(last_at(TABLE, Path::new("/srv")), None);
    }

    #[test]
    fn detaching_what_is_not_mounted_fails() {
        let dir = tempfile::tempdir().unwrap();
        assert!(detach(dir.path(), false).is_err());
    }
}
