//! What POSIX and Linux promise of a file system, on a mounted pool. Where the promise leaves room, a plain ext4
//! directory is asked the same, and the answers are compared.
#![allow(
    clippy::large_stack_arrays,
    clippy::unnecessary_debug_formatting,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a block for direct I/O; names end in exactly .b"
)]

mod conformance;
mod exchange;
mod files;
mod flags;
mod mapped;
mod metadata;
mod moving;
mod names;
mod overlay;
mod refused;
mod removed;
mod suites;
#[path = "../support/mod.rs"]
mod support;
mod users;
mod watched;

use std::ops::Deref;
use std::path::PathBuf;

use support::MIB;
use support::disk::Disk;
use support::pool::Pool;

/// Names that end in `.b` belong on branch `b`, all others on `a`.
const B_BY_NAME: &str = r#"
[[rule]]
name = "by name"
match = [{ glob = "/**.b", to = ["b", "default", "any"] }]
"#;

/// A pool over two ext4 images, and a plain ext4 directory to compare with.
#[derive(Debug)]
struct Two {
    pool: Pool,
    plain: Disk,
    _disks: [Disk; 2],
}

/// How reads and writes reach the branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// Past the daemon where the kernel can.
    Passthrough,
    /// Through the daemon.
    Mediated,
    /// As passthrough, and new files wait in memory for a moment.
    Staged,
    /// Through the daemon, which decides the order of write-back.
    Ordered,
    /// Both.
    Both,
}

impl Data {
    const ALL: [Self; 3] = [Self::Passthrough, Self::Mediated, Self::Staged];

    fn keys(self) -> String {
        match self {
            Self::Passthrough | Self::Staged => "passthrough = true\nheadroom = 0".to_owned(),
            Self::Mediated => "passthrough = false".to_owned(),
            Self::Ordered | Self::Both => support::ordered_write_back(),
        }
    }

    /// Keys of the pool.
    fn top(self) -> &'static str {
        match self {
            Self::Passthrough | Self::Mediated | Self::Ordered => "",
            Self::Staged | Self::Both => "[staging]\nmode = \"always\"\nmax_age = \"30 ms\"",
        }
    }
}

impl Two {
    fn new(data: Data) -> Self {
        let disks = [Disk::ext4(64 * MIB), Disk::ext4(64 * MIB)];
        let pool = Pool::builder()
            .branch_with("a", disks[0].path(), &data.keys())
            .branch_with("b", disks[1].path(), &data.keys())
            .default(&["a"])
            .rules(B_BY_NAME)
            .keys(data.top())
            .mount();
        Self { pool, plain: Disk::ext4(64 * MIB), _disks: disks }
    }

    /// The mount and the plain directory.
    fn both(&self) -> [PathBuf; 2] {
        [self.pool.mount_point(), self.plain.path()]
    }

    /// Does the same in the mount and in the plain directory, and fails unless both give the same.
    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, work: impl Fn(&std::path::Path) -> T) {
        let [pool, plain] = self.both();
        let expected = work(&plain);
        assert_eq!(work(&pool), expected, "{what}: left is the pool, right is plain ext4");
    }
}

impl Deref for Two {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}
