//! The configuration that the page for Unraid's users shows, as it stands there: only its paths, sizes and hours are
//! those of the test.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use tempfile::TempDir;

use crate::support::pool::Pool;
use crate::support::{MIB, bytes, eventually, run, temp_dir};

const PAGE: &str = include_str!("../../../../docs/from-unraid.md");
/// The page's mover, and one that is at work at any hour.
const HOURS: (&str, &str) = ("window = \"03:00-06:00\"", "window = \"00:00-24:00\"");
const NAMES: [&str; 4] = ["cache", "disk1", "disk2", "disk3"];

/// A folder that stands for `/mnt`, with a file system of its own for each disk.
struct Shelf(TempDir);

impl Shelf {
    fn new() -> Shelf {
        let shelf = Shelf(temp_dir("shelf"));
        for name in NAMES {
            fs::create_dir(shelf.0.path().join(name)).unwrap();
            let at = shelf.0.path().join(name);
            run(
                "mount",
                ["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), "size=64m".as_ref(), "tmpfs".as_ref(), at.as_os_str()],
            );
        }
        shelf
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        for name in NAMES {
            let _ = Command::new("umount").arg("-l").arg(self.0.path().join(name)).output();
        }
    }
}

/// The page's configuration for this pool.
fn configuration(pool: &Pool, shelf: &Shelf) -> String {
    let from = PAGE.find("mount = \"/mnt/user\"").expect("the page has a configuration");
    let text = &PAGE[from..];
    let text = &text[..text.find("```").unwrap()];
    let mount = pool.mount_point();
    let changes = [
        ("/mnt/user", mount.to_str().unwrap()),
        ("\"/mnt/", &format!("\"{}/", shelf.0.path().display())),
        ("10GiB", "1MiB"),
        HOURS,
    ];
    changes.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "the page says {old}");
        text.replace(old, new)
    })
}

fn put(pool: &Pool, path: &str, mib: u64) {
    fs::create_dir_all(pool.join(path).parent().unwrap()).unwrap();
    fs::write(pool.join(path), bytes(1, mib * MIB)).unwrap();
    pool.settle_room();
}

fn changed_hours_ago(path: &Path, hours: i64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let time = Timespec { tv_sec: now - hours * 3600, tv_nsec: 0 };
    rustix::fs::utimensat(CWD, path, &Timestamps { last_access: time, last_modification: time }, AtFlags::empty())
        .unwrap();
}

#[test]
fn the_configuration_for_unraids_users_does_what_its_table_says() {
    let shelf = Shelf::new();
    let mut builder = Pool::builder();
    for name in NAMES {
        builder = builder.branch(name, shelf.0.path().join(name));
    }
    let mut pool = builder.prepare();
    let text = configuration(&pool, &shelf);
    fs::write(pool.config_path(), &text).unwrap();
    pool.start();

    // Cache "yes" and "only": the mover takes one to the disks, and leaves the other.
    put(&pool, "appdata/db", 1);
    put(&pool, "media/show/e1", 4);
    pool.expect_on("disk1", "media/show/e1");
    pool.expect_on("cache", "appdata/db");
    // Cache "no", high-water: the first disk until less than half of it is free.
    for at in 0..5 {
        put(&pool, &format!("photos/{at}/album"), 10);
    }
    let places: Vec<String> = (0..5).map(|at| pool.found_on(format!("photos/{at}/album")).concat()).collect();
    assert_eq!(places, ["disk1", "disk1", "disk1", "disk2", "disk2"]);
    // Split level 1: a folder stays on its disk, although the high-water mark names the next one.
    put(&pool, "media/show/e2", 4);
    put(&pool, "media/other/e1", 4);
    pool.expect_on("disk1", "media/show/e2");
    pool.expect_on("disk2", "media/other/e1");

    // Cache "prefer", and a mover that takes only old files, and only those of one share.
    let prefer = "[[rule]]\nname = \"games\"\nwhen = { path = \"/games/**\" }\nto = [\"cache\", \"disks\"]\n";
    let mover = format!("{}, min_age = \"1h\", only = {{ path = \"/media/**\" }}", HOURS.1);
    fs::write(pool.config_path(), text.replace(HOURS.1, &mover) + prefer).unwrap();
    pool.say(["rules", "reload"]);
    put(&pool, "games/save", 1);
    put(&pool, "media/new/young", 1);
    put(&pool, "media/new/old", 1);
    for file in ["games/save", "media/new/old"] {
        changed_hours_ago(&pool.join(file), 2);
    }
    eventually("the old one has left", || pool.found_on("media/new/old") != ["cache"]);
    for file in ["games/save", "media/new/young", "appdata/db"] {
        pool.expect_stays_on("cache", file);
    }
}
