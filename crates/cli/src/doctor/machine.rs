//! The kernel, limits, and what dead daemons left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};

use super::Diagnostic;
use crate::advice::command;
use crate::text::visible_path;
use crate::{client, mounts, pool};

/// What the kernel says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Kernel {
    release: String,
    has_fuse: bool,
    /// `/sys/module/fuse/parameters/enable_uring`
    enable_uring: Option<String>,
    /// `kernel.io_uring_disabled`
    io_uring_disabled: Option<String>,
}

/// Descriptors that a daemon may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    hard: u64,
    /// The kernel's own limit, to which root raises its.
    most: u64,
    is_root: bool,
}

/// With fewer the daemon warns.
const LEAST_DESCRIPTORS: u64 = 4096;

pub(crate) fn items() -> Vec<Diagnostic> {
    let mut items = of_kernel(&kernel());
    items.extend(limits().and_then(of_limits));
    items.extend(left_behind());
    items
}

fn kernel() -> Kernel {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    Kernel {
        release: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        has_fuse: Path::new("/dev/fuse").exists(),
        enable_uring: read("/sys/module/fuse/parameters/enable_uring"),
        io_uring_disabled: read("/proc/sys/kernel/io_uring_disabled"),
    }
}

/// The first two numbers of a release: `6.1.0-13-amd64` is 6.1.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn of_kernel(kernel: &Kernel) -> Vec<Diagnostic> {
    let mut items = Vec::new();
    if !kernel.has_fuse {
        items.push(
            Diagnostic::problem("kernel", "/dev/fuse does not exist, so no pool can be mounted").todo("modprobe fuse"),
        );
    }
    let Some(version) = version(&kernel.release) else { return items };
    let release = &kernel.release;
    if version < (5, 6) {
        items.push(
            Diagnostic::problem("kernel", format!("Linux {release} has no openat2, which every branch needs"))
                .todo("run Linux 5.6 or later"),
        );
    }
    if version < (6, 9) {
        let text = format!(
            "Linux {release} has no passthrough: reads and writes go through the daemon, at about half the speed"
        );
        items.push(Diagnostic::remark("kernel", text).todo("run Linux 6.9 or later"));
    }
    if version < (6, 14) {
        let text =
            format!("Linux {release} has no FUSE over io_uring: opening and creating files takes up to twice as long");
        items.push(Diagnostic::remark("kernel", text).todo("run Linux 6.14 or later"));
        return items;
    }
    if kernel.enable_uring.as_deref() == Some("N") {
        let text = "FUSE over io_uring is off; mounting as root switches it on";
        items.push(Diagnostic::remark("kernel", text).todo("echo Y > /sys/module/fuse/parameters/enable_uring"));
    }
    if kernel.io_uring_disabled.as_deref().is_some_and(|value| value != "0") {
        let text = "io_uring is disabled (kernel.io_uring_disabled): requests come from /dev/fuse, and take up to \
            twice as long";
        items.push(Diagnostic::remark("kernel", text).todo("sysctl kernel.io_uring_disabled=0"));
    }
    items
}

fn limits() -> Option<Limits> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    Some(Limits { hard, most: most.unwrap_or(hard), is_root: rustix::process::geteuid().is_root() })
}

fn of_limits(limits: Limits) -> Option<Diagnostic> {
    let reachable = if limits.is_root { limits.hard.max(limits.most) } else { limits.hard };
    (reachable < LEAST_DESCRIPTORS).then(|| {
        let text = format!("a daemon may open only {reachable} files; programs that open more in the pool get EMFILE");
        let todo = if limits.is_root {
            "sysctl fs.nr_open=1048576"
        } else {
            "raise the limit: `LimitNOFILE=` of the unit, or limits.conf"
        };
        Diagnostic::remark("limits", text).todo(todo)
    })
}

/// Mounts, sockets and memory of daemons that are gone.
fn left_behind() -> Vec<Diagnostic> {
    let mut items = Vec::new();
    let pools = mounts::pools();
    for mount in &pools {
        if client::is_refused(&pool::Pool::at(mount).socket) {
            let text = format!("the daemon of {} is gone and left a dead mount", visible_path(mount));
            let unmount = command(["unmount", &mount.to_string_lossy()]);
            items.push(Diagnostic::problem("mount", text).todo(format!("mount it again, or {unmount}")));
        }
    }
    let covers = pool::leftover_covers();
    for mount in covers.iter().map(|cover| &cover.pool).collect::<BTreeSet<_>>() {
        let of_it = covers.iter().filter(|cover| cover.pool == *mount);
        let paths: Vec<String> = of_it.map(|cover| visible_path(&cover.path)).collect();
        let text = format!("{}: still hidden (empty), but no daemon of {} runs", paths.join(", "), visible_path(mount));
        items.push(Diagnostic::problem("mount", text).todo(command(["unmount", &mount.to_string_lossy()])));
    }
    for socket in old_sockets(&pool::run_dir(), &pools) {
        let socket = visible_path(&socket);
        let text = format!("{socket} is the socket of a daemon that was killed; the next mount replaces it");
        items.push(Diagnostic::remark("socket", text).todo(format!("rm {socket}")));
    }
    // Others may have pools of their own elsewhere.
    let own = pool::state_root();
    let areas: Vec<PathBuf> = pool::orphaned_areas().into_iter().filter(|area| area.starts_with(&own)).collect();
    if let Some(left) = pool::describe_leftovers(&areas) {
        items.push(Diagnostic::problem("staging", left).todo("umbrella mount CONFIG"));
    }
    items
}

/// Sockets that no daemon listens at, and that belong to no mount.
fn old_sockets(dir: &Path, pools: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let sockets = entries.flatten().map(|entry| entry.path());
    let is_old = |socket: &PathBuf| {
        let is_socket = socket.extension().is_some_and(|extension| extension == "sock");
        let is_of_mount = || pools.iter().any(|mount| pool::Pool::at(mount).socket == *socket);
        is_socket && client::is_refused(socket) && !is_of_mount()
    };
    let mut old: Vec<PathBuf> = sockets.filter(is_old).collect();
    old.sort();
    old
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: &[Diagnostic]) -> String {
        items.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    fn kernel(release: &str) -> Kernel {
        Kernel { release: release.to_owned(), has_fuse: true, ..Kernel::default() }
    }

    #[test]
    fn a_kernel_says_what_it_lacks_and_nothing_more() {
        let old = of_kernel(&kernel("6.1.0-13-amd64"));
        assert!(texts(&old).contains("no passthrough") && texts(&old).contains("no FUSE over io_uring"));
        assert_eq!(of_kernel(&kernel("6.10.2")).len(), 1);
        assert_eq!(of_kernel(&kernel("6.18.44")), []);
        assert!(texts(&of_kernel(&kernel("5.4.0"))).contains("openat2"));
        assert_eq!(of_kernel(&kernel("strange")), []);
    }

    #[test]
    fn io_uring_that_is_off_or_forbidden_is_reported_where_the_kernel_has_it() {
        let off =
            Kernel { enable_uring: Some("N".to_owned()), io_uring_disabled: Some("2".to_owned()), ..kernel("6.14.0") };
        assert_eq!(of_kernel(&off).len(), 2);
        let on =
            Kernel { enable_uring: Some("Y".to_owned()), io_uring_disabled: Some("0".to_owned()), ..kernel("6.14.0") };
        assert_eq!(of_kernel(&on), []);
    }

    #[test]
    fn root_raises_its_limit_and_others_cannot() {
        let limits = Limits { hard: 1024, most: 1 << 20, is_root: true };
        assert_eq!(of_limits(limits), None);
        assert!(of_limits(Limits { is_root: false, ..limits }).is_some());
        assert!(of_limits(Limits { most: 2000, ..limits }).is_some());
    }

    #[test]
    fn a_socket_is_old_when_nobody_listens() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let _alive = UnixListener::bind(dir.path().join("alive.sock")).unwrap();
        drop(UnixListener::bind(dir.path().join("dead.sock")).unwrap());
        fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(old_sockets(dir.path(), &[]), [dir.path().join("dead.sock")]);
    }
}
