//! Which pool is meant, and where its daemon is spoken to.
//!
//! A POOL on the command line is a mount point, any path inside a mount, or a configuration file; with exactly one pool
//! mounted it may be left out. The control socket of the pool at `/srv/pool` is `/run/umbrella/srv-pool.sock`: the
//! mount point escaped as `systemd-escape --path` does it, so that no two mount points share a name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use umbrella_fs::branch::StateDir;
use umbrella_fs::branch::cover::{self, Cover};
use umbrella_fs::control::protocol::{Answer, Request, Status};

use crate::advice::command;
use crate::client::{self, Client};
use crate::config;
use crate::mounts;
use crate::probe::ProbeReply;
use crate::text::visible_path;

/// How long a daemon may take to report its status. Commands continue without the status of one that hangs.
pub(crate) const STATUS_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest path of a Unix socket, without the final NUL.
const LONGEST_SOCKET: usize = 107;

/// A pool that cannot be found.
#[derive(Debug, Error)]
pub(crate) enum PoolError {
    /// Nothing is mounted.
    #[error("no pool is mounted (start one with `umbrella mount CONFIG`)")]
    NoneMounted,
    /// Nothing is mounted but memory that a pool left with files in it.
    #[error(
        "no pool is mounted, but staged files wait in memory ({areas}): mount their pool again (`umbrella mount \
        CONFIG`) before you switch the machine off"
    )]
    Waiting {
        /// Where they wait, for people.
        areas: String,
    },
    /// The daemon was killed and left its mount.
    #[error(
        "the daemon of {} is gone and left a dead mount: mount the pool again with `umbrella mount CONFIG`, or remove \
        it with `umbrella unmount`{}",
        visible_paths(mounts).join(", "),
        describe_leftovers(areas).map(|left| format!("; {left}")).unwrap_or_default()
    )]
    Dead {
        /// The mount points.
        mounts: Vec<PathBuf>,
        /// Memory that no daemon serves any more and that may hold staged files.
        areas: Vec<PathBuf>,
    },
    /// Nothing is mounted, but branches are still hidden.
    #[error(
        "no pool is mounted, but a daemon left these paths hidden (they show an empty directory): {}; show them again with {}{}",
        visible_paths(covers.iter().map(|cover| &cover.path)).join(", "),
        pools_of(covers).iter().map(|pool| command(["unmount", &pool.to_string_lossy()])).collect::<Vec<_>>().join(", "),
        describe_leftovers(areas).map(|left| format!("; {left}")).unwrap_or_default()
    )]
    Covered {
        /// What hides them.
        covers: Vec<Cover>,
        /// Memory that may hold staged files.
        areas: Vec<PathBuf>,
    },
    /// Only others' pools are.
    #[error("{mounts}: permission denied: run as root or as the owner of the mount")]
    NotOurs {
        /// Their mount points, for people.
        mounts: String,
    },
    /// More than one is.
    #[error("{} pools are mounted; name one: {}", .mounts.len(), visible_paths(mounts).join(", "))]
    Several {
        /// Their mount points.
        mounts: Vec<PathBuf>,
    },
    /// The path leads to no mount.
    #[error("{path} is neither in a mounted pool nor a configuration file{mounted}")]
    NotAPool {
        /// As given.
        path: String,
        /// What is mounted, for people.
        mounted: String,
    },
    /// A configuration was named, and its pool is not mounted.
    #[error("the pool of {} is not mounted: {}", visible_path(file), command(["mount", &file.to_string_lossy()]))]
    NotMounted {
        /// As given.
        file: PathBuf,
    },
    /// What was named lies on a file system that hangs.
    #[error("{path} {silence}")]
    Silent {
        /// As given.
        path: String,
        /// On which, and what to do.
        silence: String,
    },
    /// A configuration was named, and it is wrong.
    #[error(transparent)]
    Config(#[from] config::ConfigErrors),
    /// The current directory is gone.
    #[error("cannot read the current directory: {source}")]
    CurrentDirectory {
        /// Why.
        source: std::io::Error,
    },
}

/// A pool that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Its mount point.
    pub(crate) mount: PathBuf,
    /// Its daemon's socket.
    pub(crate) socket: PathBuf,
}

impl Pool {
    /// The pool mounted, or to be mounted, at `mount`.
    pub(crate) fn at(mount: &Path) -> Pool {
        Pool { mount: mount.to_owned(), socket: socket_in(&run_dir(), mount) }
    }

    /// Its state, when its tree is away while the daemon still serves open files. One that hangs does not say.
    pub(crate) fn detached(&self) -> Option<Box<Status>> {
        match Client::new(&self.socket).with_timeout(STATUS_TIMEOUT).call(&Request::Status) {
            Ok(Answer::Status(status)) if status.detached => Some(status),
            _ => None,
        }
    }
}

/// Covers that hide branches although their pool is no longer mounted. Ignores covers of other users.
pub(crate) fn leftover_covers() -> Vec<Cover> {
    let mut covers = cover::all();
    if covers.is_empty() {
        return covers;
    }
    let mounted = mounts::pools();
    let is_own = |cover: &Cover| state_dir(&cover.pool).exists();
    covers.retain(|cover| is_leftover(cover) && is_own(cover) && !mounted.contains(&cover.pool));
    covers
}

/// Whether the daemon that made it is gone.
pub(crate) fn is_leftover(cover: &Cover) -> bool {
    !client::is_listening(&Pool::at(&cover.pool).socket)
}

fn pools_of(covers: &[Cover]) -> BTreeSet<&PathBuf> {
    covers.iter().map(|cover| &cover.pool).collect()
}

/// The message about staging areas of a dead daemon: what they may hold, and what to do. `None` if there are none.
pub(crate) fn describe_leftovers(areas: &[PathBuf]) -> Option<String> {
    (!areas.is_empty()).then(|| {
        let areas = visible_paths(areas).join(", ");
        format!("staged files wait in memory ({areas}): mount the pool again before you switch the machine off")
    })
}

/// Memory that was made for staged files and that no daemon serves now. One that hangs does not say what is its.
pub(crate) fn orphaned_areas() -> Vec<PathBuf> {
    let mut areas = mounts::staging_areas();
    for mount in if areas.is_empty() { BTreeSet::new() } else { listening() } {
        if let Ok(Answer::Status(status)) =
            Client::new(&Pool::at(&mount).socket).with_timeout(STATUS_TIMEOUT).call(&Request::Status)
        {
            areas.retain(|area| status.staging.as_ref().is_none_or(|staging| staging.path != *area));
        }
    }
    areas
}

/// Of [`orphaned_areas`] those that are of the pool at `mount`.
pub(crate) fn orphaned_areas_of(mount: &Path) -> Vec<PathBuf> {
    let known = StateDir::remembered(&state_dir(mount), mount);
    let is_its = |area: &PathBuf| known.values().any(|branch| branch.path.parent() == Some(area.as_path()));
    orphaned_areas().into_iter().filter(is_its).collect()
}

/// Paths for people.
fn visible_paths<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    paths.into_iter().map(|path| visible_path(path)).collect()
}

/// The pool that `given` names; or the only one mounted, or of several the one that holds the current directory.
pub(crate) fn find(given: Option<&Path>) -> Result<Pool, PoolError> {
    let Some(given) = given else { return single_mounted() };
    if let Some(pool) = holding(given)? {
        return Ok(pool);
    }
    match mounts::found_at(given) {
        ProbeReply::Yes(found) if found.is_file => return configured(&config::read(given)?.spec.mount),
        ProbeReply::Silent => {
            let silence = mounts::describe_unresponsive(given).unwrap_or_default();
            return Err(PoolError::Silent { path: visible_path(given), silence });
        }
        ProbeReply::Yes(_) | ProbeReply::No(_) => {}
    }
    let given_path = absolute(given)?;
    if leftover_covers().iter().any(|cover| cover.pool == given_path) {
        return Ok(Pool::at(&given_path));
    }
    Err(PoolError::NotAPool { path: visible_path(given), mounted: mounted() })
}

/// Which pools there are, for the end of a message.
pub(crate) fn mounted() -> String {
    let mounts = listening();
    if mounts.is_empty() {
        "; no pool is mounted (start one with `umbrella mount CONFIG`)".to_owned()
    } else {
        format!("; mounted: {}", visible_paths(&mounts).join(", "))
    }
}

/// The pool that a configuration says to mount at `mount`.
pub(crate) fn configured(mount: &Path) -> Result<Pool, PoolError> {
    let pool = Pool::at(&mounts::resolve(mount));
    if !pool.socket.exists() && foreign_pools().contains(&pool.mount) {
        return Err(PoolError::NotOurs { mounts: visible_path(&pool.mount) });
    }
    Ok(pool)
}

/// The pool whose mount holds `path`, if its socket exists.
pub(crate) fn holding(path: &Path) -> Result<Option<Pool>, PoolError> {
    let plain = absolute(path)?;
    // The plain path first: looking at a path in a mount whose daemon hangs would hang too.
    let held = |path: &Path| path.ancestors().map(Pool::at).find(|pool| pool.socket.exists());
    if let Some(pool) = held(&plain).or_else(|| held(&mounts::resolve(&plain))) {
        return Ok(Some(pool));
    }
    match foreign_pools().into_iter().find(|mount| plain.starts_with(mount)) {
        Some(mount) => Err(PoolError::NotOurs { mounts: visible_path(&mount) }),
        None => Ok(None),
    }
}

/// The path inside the pool's mount, beginning with `/`; links in the last part are not followed.
pub(crate) fn inside(pool: &Pool, path: &Path) -> Result<Option<PathBuf>, PoolError> {
    let plain = absolute(path)?;
    let within = |path: &Path| path.strip_prefix(&pool.mount).ok().map(|rest| Path::new("/").join(rest));
    if let Some(found) = within(&plain) {
        return Ok(Some(found));
    }
    let (Some(parent), Some(name)) = (plain.parent(), plain.file_name()) else { return Ok(None) };
    Ok(within(&mounts::resolve(parent).join(name)))
}

/// The pool and branch that have `path` on their disk, and its path through the mount.
pub(crate) fn find_on_branch(path: &Path) -> Option<(Pool, String, PathBuf)> {
    listening().iter().map(|mount| Pool::at(mount)).find_map(|pool| {
        let Ok(Answer::Status(status)) = Client::new(&pool.socket).with_timeout(STATUS_TIMEOUT).call(&Request::Status)
        else {
            return None;
        };
        let mut branches = status.branches.into_iter();
        let (branch, inside) = branches.find_map(|branch| {
            path.strip_prefix(&branch.path).ok().map(|rest| (branch.name.clone(), rest.to_owned()))
        })?;
        let inside = pool.mount.join(inside);
        Some((pool, branch, inside))
    })
}

fn single_mounted() -> Result<Pool, PoolError> {
    let mounts: Vec<PathBuf> = listening().into_iter().collect();
    match mounts.as_slice() {
        [] => {
            let others = foreign_pools();
            if others.is_empty() {
                return Err(no_daemon_error());
            }
            Err(PoolError::NotOurs { mounts: visible_paths(&others).join(", ") })
        }
        [mount] => Ok(Pool::at(mount)),
        several => {
            let here = std::env::current_dir().unwrap_or_default();
            let holding =
                several.iter().filter(|mount| here.starts_with(mount)).max_by_key(|mount| mount.as_os_str().len());
            holding.map(|mount| Pool::at(mount)).ok_or(PoolError::Several { mounts })
        }
    }
}

/// The error when no daemon answers for a mounted pool: its daemon was killed.
pub(crate) fn is_alive(pool: &Pool) -> Result<(), PoolError> {
    if client::is_refused(&pool.socket) && mounts::pools().contains(&pool.mount) {
        return Err(PoolError::Dead { mounts: vec![pool.mount.clone()], areas: orphaned_areas_of(&pool.mount) });
    }
    Ok(())
}

/// The error when no daemon listens: nothing is mounted, or the mounted pools have lost their daemons. It does not ask
/// the mounts, because that may hang.
fn no_daemon_error() -> PoolError {
    let dead = mounts::pools().into_iter().filter(|mount| Pool::at(mount).socket.exists());
    let dead: Vec<PathBuf> = dead.collect();
    let areas = mounts::staging_areas();
    let covers = leftover_covers();
    match (dead.is_empty(), areas.is_empty(), covers.is_empty()) {
        (false, ..) => PoolError::Dead { mounts: dead, areas },
        (true, _, false) => PoolError::Covered { covers, areas },
        (true, false, true) => PoolError::Waiting { areas: visible_paths(&areas).join(", ") },
        (true, true, true) => PoolError::NoneMounted,
    }
}

/// Mounted pools whose daemons this user may not call. For root there are none: a mount without its socket has lost its
/// daemon.
fn foreign_pools() -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() { Vec::new() } else { mounts::pools() }
}

/// Mount points of all daemons that listen.
pub(crate) fn listening() -> BTreeSet<PathBuf> {
    let Ok(entries) = std::fs::read_dir(run_dir()) else { return BTreeSet::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(|socket| client::is_listening(socket))
        .filter_map(|socket| mount_of(&socket))
        .collect()
}

/// The mount point that a socket's name says; the daemon is asked only when the name was cut.
fn mount_of(socket: &Path) -> Option<PathBuf> {
    let mount = unescape(socket.file_stem()?.to_str()?)?;
    if Pool::at(&mount).socket == socket {
        return Some(mount);
    }
    match Client::new(socket).with_timeout(STATUS_TIMEOUT).call(&Request::Status) {
        Ok(Answer::Status(status)) => Some(status.mount),
        _ => None,
    }
}

/// Absolute, without `.` and `..` (which are taken as written, not through links).
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, PoolError> {
    let path = std::path::absolute(path).map_err(|source| PoolError::CurrentDirectory { source })?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    Ok(plain)
}

/// Where control sockets are: `/run/umbrella`, the user's own run directory without root, or `UMBRELLA_RUN_DIR`.
pub(crate) fn run_dir() -> PathBuf {
    own_dir("UMBRELLA_RUN_DIR", "/run/umbrella", "XDG_RUNTIME_DIR", None)
}

/// Where a pool keeps what must survive a restart; `UMBRELLA_STATE_DIR` overrides `/var/lib/umbrella`.
pub(crate) fn state_dir(mount: &Path) -> PathBuf {
    state_root().join(short_name(mount))
}

/// Where that lies, and what disks keep.
pub(crate) fn state_root() -> PathBuf {
    own_dir("UMBRELLA_STATE_DIR", "/var/lib/umbrella", "XDG_STATE_HOME", Some(".local/state"))
}

/// Where a daemon logs when nothing else is said.
pub(crate) fn log_file(mount: &Path) -> PathBuf {
    log_dir().join(format!("{}.log", short_name(mount)))
}

/// Where daemons log: `UMBRELLA_LOG_DIR`, or `/var/log/umbrella`, or the user's own state.
pub(crate) fn log_dir() -> PathBuf {
    own_dir("UMBRELLA_LOG_DIR", "/var/log/umbrella", "XDG_STATE_HOME", Some(".local/state"))
}

/// `variable` if set; the system's directory for root; else the user's, from `user_variable` or below the home
/// directory.
fn own_dir(variable: &str, system: &str, user_variable: &str, below_home: Option<&str>) -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = set(variable) {
        return dir;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from(system);
    }
    let home = || below_home.and_then(|below| set("HOME").map(|home| home.join(below)));
    set(user_variable).or_else(home).map_or_else(|| PathBuf::from(system), |dir| dir.join("umbrella"))
}

/// The socket of a mount point. A name too long for a socket's address is cut and told apart by a checksum.
fn socket_in(dir: &Path, mount: &Path) -> PathBuf {
    let whole = dir.join(format!("{}.sock", escape(mount)));
    if whole.as_os_str().len() <= LONGEST_SOCKET {
        return whole;
    }
    let ending = format!("-{:016x}.sock", fnv1a(mount.as_os_str().as_bytes()));
    let room = LONGEST_SOCKET.saturating_sub(dir.as_os_str().len() + 1 + ending.len());
    dir.join(format!("{}{ending}", truncate(&escape(mount), room)))
}

/// The escaped mount point, cut to what a directory entry can hold.
fn short_name(mount: &Path) -> String {
    const LONGEST_NAME: usize = 200;
    let escaped = escape(mount);
    if escaped.len() <= LONGEST_NAME {
        return escaped;
    }
    format!("{}-{:016x}", truncate(&escaped, LONGEST_NAME), fnv1a(mount.as_os_str().as_bytes()))
}

/// The first `room` bytes. The text is ASCII, as [`escape`] makes it.
fn truncate(escaped: &str, room: usize) -> &str {
    escaped.get(..room.min(escaped.len())).unwrap_or_default()
}

/// A path as a file name, as `systemd-escape --path` writes it.
pub(crate) fn escape(path: &Path) -> String {
    let mut escaped = String::new();
    for part in path.components() {
        let Component::Normal(part) = part else { continue };
        if !escaped.is_empty() {
            escaped.push('-');
        }
        for &byte in part.as_bytes() {
            let plain =
                byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_') || (byte == b'.' && !escaped.is_empty());
            if plain {
                escaped.push(char::from(byte));
            } else {
                let _ = write!(escaped, "\\x{byte:02x}");
            }
        }
    }
    if escaped.is_empty() { "-".to_owned() } else { escaped }
}

/// The path that [`escape`] made the name of; `None` for a name that it never makes.
fn unescape(name: &str) -> Option<PathBuf> {
    let mut path = vec![b'/'];
    let mut rest = if name == "-" { "" } else { name };
    while let Some(c) = rest.chars().next() {
        if let Some(code) = rest.strip_prefix("\\x") {
            path.push(u8::from_str_radix(code.get(..2)?, 16).ok()?);
            rest = code.get(2..)?;
            continue;
        }
        path.push(if c == '-' { b'/' } else { u8::try_from(c).ok()? });
        rest = rest.get(c.len_utf8()..)?;
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// The same on every machine and in every version, unlike the standard library's hashes.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_escaped_as_systemd_does() {
        for (path, name) in [
            ("/", "-"),
            ("/srv/pool", "srv-pool"),
            ("/srv//pool/", "srv-pool"),
            ("/srv/my-pool", r"srv-my\x2dpool"),
            ("/.hidden/a.b", r"\x2ehidden-a.b"),
            ("/srv/a b/ü", r"srv-a\x20b-\xc3\xbc"),
            (r"/srv/a\b", r"srv-a\x5cb"),
        ] {
            assert_eq!(escape(Path::new(path)), name, "{path}");
            assert_eq!(unescape(name).unwrap(), Path::new(path), "{name}");
        }
    }

    #[test]
    fn the_socket_of_a_very_long_mount_point_fits_an_address_and_is_its_own() {
        let (one, other) = (format!("/{}1", "long/".repeat(500)), format!("/{}2", "long/".repeat(500)));
        let one = socket_in(Path::new("/run/umbrella"), Path::new(&one));
        let other = socket_in(Path::new("/run/umbrella"), Path::new(&other));
        assert_eq!(one.as_os_str().len(), LONGEST_SOCKET);
        assert_ne!(one, other);
        assert!(one.starts_with("/run/umbrella") && one.extension().is_some_and(|end| end == "sock"));
    }

    #[test]
    fn paths_are_made_absolute_as_written() {
        assert_eq!(absolute(Path::new("/a/./b/../c/")).unwrap(), Path::new("/a/c"));
        assert_eq!(absolute(Path::new("/../..")).unwrap(), Path::new("/"));
        assert!(absolute(Path::new("x")).unwrap().ends_with("x"));
    }

    #[test]
    fn a_path_in_the_mount_is_told_as_the_pool_sees_it() {
        let pool = Pool::at(Path::new("/srv/pool"));
        assert_eq!(inside(&pool, Path::new("/srv/pool/a/../b")).unwrap().unwrap(), Path::new("/b"));
        assert_eq!(inside(&pool, Path::new("/srv/pool")).unwrap().unwrap(), Path::new("/"));
        assert_eq!(inside(&pool, Path::new("/srv/pool2/x")).unwrap(), None);
    }
}
