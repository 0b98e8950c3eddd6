//! A file system that is mounted inside a branch's directory: it is shown, and used where the tree lies; moves into it
//! are refused.

use std::fs;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::support::MIB;
use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};

/// A mount below a branch, until this is dropped.
struct Below<'a>(&'a Path);

impl Below<'_> {
    fn new(at: &Path) -> Below<'_> {
        fs::create_dir_all(at).unwrap();
        mount(Some("below"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        Below(at)
    }
}

impl Drop for Below<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn what_is_mounted_below_a_branch_is_used_where_it_is_and_takes_no_moves() {
    let (a, b) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB));
    let at = a.join("below");
    let _below = Below::new(&at);
    fs::write(at.join("there"), "there").unwrap();
    let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.a\", to = [\"a\"] }, { glob = \"/**.b\", to = [\"b\"] }]\n";
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).default(&["a"]).rules(rules).mount();

    assert_eq!(fs::read(pool.join("below/there")).unwrap(), b"there");
    fs::write(pool.join("below/new"), "new").unwrap();
    assert_eq!(fs::read(at.join("new")).unwrap(), b"new");

    // Names may change inside it, and not across its edge: `mv` copies then.
    fs::rename(pool.join("below/new"), pool.join("below/renamed")).unwrap();
    let across = fs::rename(pool.join("below/renamed"), pool.join("outside")).unwrap_err();
    assert_eq!(across.raw_os_error(), Some(libc::EXDEV));
    let itself = fs::rename(pool.join("below"), pool.join("elsewhere")).unwrap_err();
    assert_eq!(itself.raw_os_error(), Some(libc::EBUSY));

    // Files leave it for another branch.
    fs::write(pool.join("below/leaves"), "data").unwrap();
    fs::rename(pool.join("below/leaves"), pool.join("below/leaves.b")).unwrap();
    pool.enforce();
    assert_eq!(fs::read(b.join("below/leaves.b")).unwrap(), b"data");

    // None comes back: it stays whole where it is, and the reason is said.
    fs::rename(pool.join("below/leaves.b"), pool.join("below/stays.a")).unwrap();
    let said = text(&pool.umbrella(["enforce"]));
    assert!(said.contains("another file system is mounted there"), "{said}");
    assert_eq!(fs::read(pool.join("below/stays.a")).unwrap(), b"data");
    assert_eq!(fs::read(b.join("below/stays.a")).unwrap(), b"data");
    assert!(!at.join("stays.a").exists());
}
