//! What the kernel says is mounted, and taking a mount away when its daemon cannot.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::bail;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use umbrella_fs::branch::mounts::is_guarded;
use umbrella_fs::branch::not_mounted::unescape;

use crate::probe::{self, Found, ProbeKind, ProbeReply, Question, Resolved};
use crate::text::{visible, visible_path};

/// Type of pools.
const KIND: &str = "fuse.umbrella";
/// What the memory of staged files is called.
const STAGING: &str = "umbrella-staging";

/// How long a daemon may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a file system may take to answer when the user names files on it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// As many symbolic links as the kernel follows.
const MOST_LINKS: u32 = 40;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountInfo {
    /// Type of the file system, for example `ext4` or `fuse.umbrella`.
    pub(crate) kind: String,
    /// What is mounted: a device, or a name.
    pub(crate) source: String,
    /// Options of this mount: `rw`, `nosuid`...
    pub(crate) options: Vec<String>,
    /// The number of the file system's device; 0 where the kernel says none.
    pub(crate) device: u64,
}

/// Where a path leads, as far as that is known without a call that may hang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathLocality {
    /// To a file system of this machine's own disks or memory, or to nothing.
    Here,
    /// To a file system whose calls may hang.
    Away {
        /// The path, with the symbolic links resolved up to the mount point.
        path: PathBuf,
        /// What is mounted there.
        mounted: MountInfo,
        /// Where.
        at: PathBuf,
    },
}

impl MountInfo {
    /// Whether it is one of ours.
    pub(crate) fn is_pool(&self) -> bool {
        self.kind == KIND
    }
}

/// What was mounted last at exactly this path, if anything was. Asks the kernel only, never the file system.
pub(crate) fn at(path: &Path) -> Option<MountInfo> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    find_last(&table, path)
}

/// Where pools are mounted, whoever mounted them.
pub(crate) fn pools() -> Vec<PathBuf> {
    mount_points_where(MountInfo::is_pool)
}

/// Memory with the staged files of pools, mounted or not.
pub(crate) fn staging_areas() -> Vec<PathBuf> {
    mount_points_where(|mounted| mounted.kind == "tmpfs" && mounted.source == STAGING)
}

fn mount_points_where(wanted: impl Fn(&MountInfo) -> bool) -> Vec<PathBuf> {
    all().into_iter().filter(|(_, mounted)| wanted(mounted)).map(|(at, _)| at).collect()
}

/// Whether a path lies on a file system whose calls may hang: a network's, or a daemon's. Asks the kernel only, never
/// the file system.
pub(crate) fn may_hang(path: &Path) -> bool {
    guarded_above(&all(), path).is_some()
}

/// All mounts, in the order in which they were made.
pub(crate) fn all() -> Vec<(PathBuf, MountInfo)> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// The mount that a path lies on. No link in the path is followed.
pub(crate) fn above(path: &Path) -> Option<(PathBuf, MountInfo)> {
    deepest_above(&all(), path).cloned()
}

fn deepest_above<'a>(mounts: &'a [(PathBuf, MountInfo)], path: &Path) -> Option<&'a (PathBuf, MountInfo)> {
    let above = mounts.iter().filter(|(at, _)| path.starts_with(at));
    // The deepest counts, and of several there the last.
    above.max_by_key(|(at, _)| at.components().count())
}

/// The mount that a path lies on, if its calls may hang.
fn guarded_above<'a>(mounts: &'a [(PathBuf, MountInfo)], path: &Path) -> Option<&'a (PathBuf, MountInfo)> {
    deepest_above(mounts, path).filter(|(_, mounted)| is_guarded(&mounted.kind))
}

/// Where a path lies. Follows symbolic links one by one, and stops in front of a file system whose calls may hang.
pub(crate) fn locate(path: &Path) -> PathLocality {
    locate_by(&all(), path)
}

fn locate_by(mounts: &[(PathBuf, MountInfo)], path: &Path) -> PathLocality {
    let Ok(path) = std::path::absolute(path) else { return PathLocality::Here };
    let (mut done, mut links) = (PathBuf::new(), 0);
    let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<VecDeque<OsString>>();
    let mut left = parts(&path);
    while let Some(part) = left.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => {
                done.pop();
                continue;
            }
            Some(Component::CurDir) => continue,
            _ => done.push(&part),
        }
        if let Some((at, mounted)) = guarded_above(mounts, &done) {
            let path = done.join(left.iter().collect::<PathBuf>());
            return PathLocality::Away { path, mounted: mounted.clone(), at: at.clone() };
        }
        let Ok(target) = std::fs::read_link(&done) else { continue };
        links += 1;
        if links > MOST_LINKS {
            return PathLocality::Here;
        }
        done.pop();
        let mut next = parts(&target);
        next.append(&mut left);
        left = next;
    }
    PathLocality::Here
}

/// The path without symbolic links, as [`umbrella_fs::spec::resolve`] returns it. What lies on a file system that does
/// not answer is kept as it is.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    match locate(path) {
        PathLocality::Here => umbrella_fs::spec::resolve(path),
        PathLocality::Away { path, .. } => probe::inspect_path(ProbeKind::Resolve, &path, ANSWER_TIMEOUT)
            .map_or(path, |resolved: Resolved| resolved.path),
    }
}

/// Free bytes for unprivileged users on a file system that may hang, if it answers within a moment.
pub(crate) fn free_at(path: &Path) -> Option<u64> {
    match probe::query(Question::Space, path, ANSWER_TIMEOUT) {
        ProbeReply::Yes(found) => Some(found.free),
        ProbeReply::No(_) | ProbeReply::Silent => None,
    }
}

/// What is at a path, if that can be found out within a moment. Where the file system may hang, a process of its own
/// looks.
pub(crate) fn found_at(path: &Path) -> ProbeReply {
    match locate(path) {
        PathLocality::Away { path, .. } => probe::query(Question::Stat, &path, ANSWER_TIMEOUT),
        PathLocality::Here => match std::fs::metadata(path) {
            Ok(data) => ProbeReply::Yes(probe::found(&data)),
            Err(error) => ProbeReply::No(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        },
    }
}

/// Whether a file is there. What does not answer is none.
pub(crate) fn is_file(path: &Path) -> bool {
    matches!(found_at(path), ProbeReply::Yes(found) if found.is_file)
}

/// Whether a block device is there.
pub(crate) fn is_block_device(path: &Path) -> bool {
    matches!(found_at(path), ProbeReply::Yes(found) if found.is_block)
}

/// Whether two paths are one file, also by another name (a hard link) or through another mount. `identity` is the
/// first's.
pub(crate) fn is_same(one: &Path, identity: Option<Found>, other: &Path) -> bool {
    if one == other {
        return true;
    }
    let Some(identity) = identity else { return false };
    let same = |found: Found| (found.device, found.inode) == (identity.device, identity.inode);
    match locate(other) {
        // A file on another file system is another file: that one need not be asked.
        PathLocality::Away { mounted, .. } if mounted.device != identity.device => false,
        // Where that is not known, use neither.
        PathLocality::Away { path, .. } => match probe::query(Question::Stat, &path, ANSWER_TIMEOUT) {
            ProbeReply::Yes(found) => same(found),
            ProbeReply::No(_) => false,
            ProbeReply::Silent => true,
        },
        PathLocality::Here => std::fs::metadata(other).is_ok_and(|data| same(probe::found(&data))),
    }
}

/// Fails if a path lies on a file system that does not answer. A process that used it would hang, and could not be
/// killed.
pub(crate) fn refuse_unresponsive(path: &Path) -> anyhow::Result<()> {
    describe_unresponsive(path).map_or(Ok(()), |silence| bail!("{} {silence}", visible_path(path)))
}

/// If the file system of a path does not answer: a message that names it and says what to do.
pub(crate) fn describe_unresponsive(path: &Path) -> Option<String> {
    let PathLocality::Away { path, mounted, at } = locate(path) else { return None };
    let (at, kind) = (visible_path(&at), visible(&mounted.kind));
    (!is_responsive(&path, TIMEOUT)).then(|| {
        format!(
            "lies on {at} ({kind}), which did not answer within {} s; check its daemon or server, or unmount it (`umount -l {at}`)",
            TIMEOUT.as_secs()
        )
    })
}

/// Whether the file system of a path answers in time. One that cannot hang always does. The kernel's cache of its files
/// does not count as an answer.
pub(crate) fn is_responsive(path: &Path, limit: Duration) -> bool {
    match locate(path) {
        PathLocality::Here => true,
        PathLocality::Away { path, .. } => probe::query(Question::Space, &path, limit) != ProbeReply::Silent,
    }
}

/// Whether a FUSE file system is mounted there whose daemon is gone. One that does not answer in time is not.
pub(crate) fn is_dead(path: &Path) -> bool {
    if !at(path).is_some_and(|mounted| mounted.kind.starts_with("fuse")) {
        return false;
    }
    // A question that was asked while the kernel took the connection down is aborted.
    let dead = [Errno::NOTCONN, Errno::CONNABORTED].map(ProbeReply::No);
    dead.contains(&probe::query(Question::Space, path, ANSWER_TIMEOUT))
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

/// `36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 - ext3 /dev/root rw`: the mount point is the fifth word, the
/// options of the mount are the sixth, and the type is the first after the lone dash.
fn find_last(table: &[u8], path: &Path) -> Option<MountInfo> {
    let mut lines = table.split(|byte| *byte == b'\n').filter_map(parse);
    lines.rfind(|(mount_point, _)| mount_point == path).map(|(_, mounted)| mounted)
}

fn parse(line: &[u8]) -> Option<(PathBuf, MountInfo)> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = line.split(|byte| *byte == b' ');
    let device = number(&text(words.nth(2)?)).unwrap_or(0);
    let mount_point = unescape(words.nth(1)?);
    let options = words.next()?.split(|byte| *byte == b',').map(text).collect();
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (text(words.next()?), text(words.next()?));
    Some((mount_point, MountInfo { kind, source, options, device }))
}

/// `8:1`, as in stat(2).
fn number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_above_a_path_says_whether_its_calls_may_hang() {
        let line = |at: &str, kind: &str| format!("36 1 0:33 / {at} rw - {kind} source rw\n");
        let table = [line("/", "ext4"), line("/mnt/far", "nfs4"), line("/mnt/far/near", "xfs")].concat();
        let mounts: Vec<_> = table.split('\n').filter_map(|line| parse(line.as_bytes())).collect();
        let hangs = |path| guarded_above(&mounts, Path::new(path)).is_some();
        assert_eq!(
            ["/mnt/far", "/mnt/far/a", "/mnt/far/near/a", "/mnt/farther"].map(hangs),
            [true, true, false, false]
        );
    }

    #[test]
    fn links_are_followed_up_to_a_mount_whose_calls_may_hang() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("far/below", dir.join("to-far")).unwrap();
        std::os::unix::fs::symlink(dir.join("near"), dir.join("to-near")).unwrap();
        std::os::unix::fs::symlink("round", dir.join("round")).unwrap();
        let far = format!("36 35 0:33 / {} rw - fuse.sshfs source rw", dir.join("far").display());
        let mounts: Vec<_> = parse(far.as_bytes()).into_iter().collect();
        let path = |path: &str| match locate_by(&mounts, &dir.join(path)) {
            PathLocality::Away { path, mounted, .. } => Some((path, mounted.device)),
            PathLocality::Here => None,
        };
        let away = |name: &str| Some((dir.join("far").join(name), rustix::fs::makedev(0, 33)));
        assert_eq!(path("to-far/file"), away("below/file"));
        assert_eq!(path("near/../far/file"), away("file"));
        assert_eq!(["to-near", "round/file", "farther"].map(path), [None, None, None]);
    }

    const TABLE: &[u8] = b"22 1 0:20 / / rw - ext4 /dev/vda rw\n\
        36 22 98:0 / /srv/my\\040pool rw,noatime master:1 opt:2 - ext3 /dev/root rw\n\
        40 36 0:44 / /srv/my\\040pool rw - fuse.umbrella pool rw\ngarbage\n\n";

    #[test]
    fn the_topmost_mount_counts() {
        let kind = |path: &str| find_last(TABLE, Path::new(path)).map(|mounted| mounted.kind);
        assert_eq!(kind("/srv/my pool").as_deref(), Some("fuse.umbrella"));
        assert_eq!(kind("/").as_deref(), Some("ext4"));
    }

    #[test]
    fn the_options_are_those_of_the_mount() {
        let table = &TABLE[..TABLE.windows(4).position(|word| word == b"\n40 ").unwrap()];
        assert_eq!(find_last(table, Path::new("/srv/my pool")).unwrap().options, ["rw", "noatime"]);
    }

    #[test]
    fn a_directory_in_a_mount_is_no_mount() {
        assert_eq!(find_last(TABLE, Path::new("/srv")), None);
    }

    #[test]
    fn detaching_what_is_not_mounted_fails() {
        let dir = tempfile::tempdir().unwrap();
        assert!(detach(dir.path(), false).is_err());
    }
}
