//! What the pool does with files and branches: placement, relocation, overflow, the enforcer, branches that come and
//! go, staging, and the binary itself.
#![allow(
    clippy::large_stack_arrays,
    clippy::struct_field_names,
    clippy::unnecessary_debug_formatting,
    reason = "rubbish as long as it has to be; a disk is named as its branch"
)]

mod access_times;
mod accessed;
mod adding;
mod at_once;
mod balancing;
mod branches;
mod commands;
mod conditions;
mod dead_disks;
mod descriptors;
mod directories;
mod enforcing;
mod evicting;
mod failing_calls;
mod failing_disks;
mod failures;
mod file_systems;
mod following;
mod foreground;
mod groups;
mod heating;
mod hiding;
mod idle;
mod inodes;
mod modes;
mod mounted_below;
mod mounting;
mod overflow;
mod placement;
mod reloading;
mod replacing;
mod requests;
mod returning;
mod scenarios;
mod staging;
mod states;
mod stopping;
#[path = "../support/mod.rs"]
mod support;
mod told;
mod unraid;
mod waiting;

use std::fs::OpenOptions;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use support::MIB;
use support::disk::Disk;
use support::pool::{Builder, Pool};
use support::tree::names;

/// Small files on `small`, files of 64 KiB and more on `large`.
const LARGE_FILES: &str = r#"
[[rule]]
name = "large files"
when = { size = ">= 64KiB" }
to = ["large", "default", "any"]
offline = "pass"
"#;

/// A pool with the disks it stands on.
#[derive(Debug)]
struct On<const N: usize> {
    pool: Pool,
    disks: [Disk; N],
}

impl<const N: usize> std::ops::Deref for On<N> {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

/// Branches of these names, each a disk of its own; the first is the default.
fn disks<const N: usize>(names: [&str; N]) -> ([Disk; N], Builder) {
    let disks = names.map(|_| Disk::tmpfs(32 * MIB));
    let mut builder = Pool::builder().default(&names[..1]);
    for (name, disk) in names.iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    (disks, builder)
}

/// A mounted pool over disks of its own.
fn pool<const N: usize>(names: [&str; N], rules: &str) -> On<N> {
    let (disks, builder) = disks(names);
    On { pool: builder.rules(rules).mount(), disks }
}

fn append(path: &Path, data: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    OpenOptions::new().append(true).open(path)?.write_all(data)
}

/// Sets the access time `days` days back, and leaves the modification time alone.
fn last_read_days_ago(path: &Path, days: i64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let times = Timestamps {
        last_access: Timespec { tv_sec: now - days * 86_400, tv_nsec: 123_456_789 },
        last_modification: Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
