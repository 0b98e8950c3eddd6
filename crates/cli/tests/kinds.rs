//! Branches of every kind in one pool: local, in memory, encrypted and remote. What a branch cannot keep is found out
//! and said, and nothing is lost by moving there.
#![allow(
    clippy::format_push_string,
    clippy::unnecessary_debug_formatting,
    reason = "a configuration is put together once"
)]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use support::disk::Disk;
use support::foreign::{Encrypted, Remote};
use support::pool::Pool;
use support::tree::{Times, entry, files_below};
use support::{KIB, MIB, bytes, run};

const KINDS: [&str; 6] = ["ext4", "xfs", "btrfs", "tmpfs", "crypt", "remote"];

/// Files are sent to a branch by their extension; what lies in `/secret` is encrypted, and nothing else.
#[derive(Debug)]
struct Everything {
    pool: Pool,
    crypt: Encrypted,
    remote: Remote,
    local: [Disk; 4],
}

impl std::ops::Deref for Everything {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

fn everything() -> Everything {
    let local = [Disk::ext4(64 * MIB), Disk::xfs(320 * MIB), Disk::btrfs(256 * MIB), Disk::tmpfs(64 * MIB)];
    let (crypt, remote) = (Encrypted::new(), Remote::new());
    let mut entries = String::from("{ glob = \"/secret/**\", to = [\"crypt\"] },\n");
    for kind in KINDS {
        entries += &format!("{{ glob = \"/open/**.{kind}\", to = [\"{kind}\", \"default\", \"any\"] }},\n");
    }
    let mut builder = Pool::builder().default(&["ext4"]);
    for (kind, disk) in KINDS.iter().zip(&local) {
        builder = builder.branch(kind, disk.path());
    }
    let pool = builder
        .branches([("crypt", crypt.path()), ("remote", remote.path())])
        .rules(&format!("[[rule]]\nname = \"by name\"\nmatch = [\n{entries}]\n"))
        .mount();
    for dir in ["secret", "open"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    Everything { pool, crypt, remote, local }
}

#[test]
fn a_file_travels_over_branches_of_every_kind_unharmed() {
    let all = everything();
    for kind in KINDS {
        fs::write(all.join(format!("open/made.{kind}")), kind).unwrap();
        all.expect_on(kind, format!("open/made.{kind}"));
        assert_eq!(fs::read_to_string(all.join(format!("open/made.{kind}"))).unwrap(), kind);
    }
    let data = bytes(1, 300 * KIB);
    let mut name = "open/traveller.ext4".to_owned();
    fs::write(all.join(&name), &data).unwrap();
    fs::set_permissions(all.join(&name), fs::Permissions::from_mode(0o640)).unwrap();
    let mut inode = fs::metadata(all.join(&name)).unwrap().ino();
    let modified = fs::metadata(all.join(&name)).unwrap().mtime();
    for kind in ["xfs", "btrfs", "tmpfs", "crypt", "remote", "tmpfs", "ext4", "crypt", "xfs"] {
        let next = format!("open/traveller.{kind}");
        fs::rename(all.join(&name), all.join(&next)).unwrap();
        name = next;
        all.expect_on(kind, &name);
        let meta = fs::metadata(all.join(&name)).unwrap();
        assert!(fs::read(all.join(&name)).unwrap() == data, "on {kind}");
        if kind == "remote" {
            // sshfs makes inode numbers up, so none can be kept there.
            inode = meta.ino();
        }
        assert_eq!((meta.mode() & 0o7777, meta.ino(), meta.mtime()), (0o640, inode, modified), "on {kind}");
    }
}

/// Whether any file below holds these bytes.
fn holds(root: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let found = files_below(root).into_iter();
    found
        .filter(|path| {
            let data = fs::read(root.join(path)).unwrap_or_default();
            data.windows(needle.len()).any(|window| window == needle)
        })
        .collect()
}

#[test]
fn only_what_the_rules_send_there_is_encrypted() {
    let all = everything();
    let marker = b"the quick brown fox, in the clear";
    let text: Vec<u8> = marker.iter().copied().cycle().take(50_000).collect();
    fs::write(all.join("secret/diary"), &text).unwrap();
    fs::write(all.join("open/letter.ext4"), &text).unwrap();
    fs::rename(all.join("open/letter.ext4"), all.join("secret/letter")).unwrap();
    all.expect_on("crypt", "secret/diary");
    all.expect_on("crypt", "secret/letter");
    all.settle();
    assert_eq!(fs::read(all.join("secret/letter")).unwrap(), text);
    for (kind, disk) in KINDS.iter().zip(&all.local) {
        assert_eq!(holds(&disk.path(), marker), Vec::<PathBuf>::new(), "in the clear on {kind}");
    }
    assert_eq!(holds(&all.remote.served(), marker), Vec::<PathBuf>::new(), "in the clear on the remote");
    assert_eq!(holds(&all.crypt.cipher(), marker), Vec::<PathBuf>::new(), "in the clear beside the encrypted files");

    fs::write(all.join("open/public.ext4"), &text).unwrap();
    assert_eq!(holds(&all.local[0].path(), marker), [PathBuf::from("open/public.ext4")], "the rest is not encrypted");
    assert_eq!(all.crypt_files(), ["secret/diary", "secret/letter"].map(PathBuf::from));
}

impl Everything {
    /// What the encrypted branch holds, in the clear.
    fn crypt_files(&self) -> Vec<PathBuf> {
        files_below(&self.crypt.path())
    }
}

#[test]
fn what_a_branch_cannot_keep_is_said() {
    let all = everything();
    let abilities = |name: &str| all.branch_status(name).abilities;
    for name in ["ext4", "xfs", "btrfs"] {
        let can = abilities(name);
        assert!(can.xattr && can.acl && can.holes && can.hard_links && can.symlinks, "{name}: {can:?}");
        assert!(
            can.ownership && can.special_files && can.nanoseconds && can.tmpfile && can.rename_flags,
            "{name}: {can:?}"
        );
        assert_eq!(all.branch_status(name).fs_type, name);
    }
    let tmpfs = abilities("tmpfs");
    assert!(tmpfs.acl && tmpfs.holes && tmpfs.hard_links && tmpfs.ownership, "{tmpfs:?}");
    let remote = abilities("remote");
    assert!(!remote.xattr && !remote.acl && !remote.nanoseconds && !remote.tmpfile, "{remote:?}");
    assert!(all.branch_status("remote").fs_type.contains("sshfs"));
    let crypt = abilities("crypt");
    assert!(crypt.symlinks && crypt.ownership, "{crypt:?}");
    assert!(all.branch_status("crypt").fs_type.contains("gocryptfs"));
}

#[test]
fn a_file_is_not_moved_where_its_attributes_would_be_lost() {
    let all = everything();
    let (tagged, guarded, plain) =
        (all.join("open/tagged.ext4"), all.join("open/guarded.ext4"), all.join("open/plain.ext4"));
    for path in [&tagged, &guarded, &plain] {
        fs::write(path, "content").unwrap();
    }
    rustix::fs::setxattr(&tagged, "user.tag", b"precious", XattrFlags::empty()).unwrap();
    run("setfacl", ["-m".as_ref(), "u:4711:rw".as_ref(), guarded.as_os_str()]);
    let before = [entry(&tagged, Times::Kept), entry(&guarded, Times::Kept)];
    for name in ["tagged", "guarded", "plain"] {
        fs::rename(all.join(format!("open/{name}.ext4")), all.join(format!("open/{name}.remote"))).unwrap();
    }
    // The renames had them tried already, or have them tried now.
    all.settle();
    let summary = all.enforce();
    all.expect_on("remote", "open/plain.remote");
    for (name, before) in ["tagged", "guarded"].iter().zip(before) {
        let path = format!("open/{name}.remote");
        all.expect_stays_on("ext4", &path);
        assert_eq!(entry(&all.join(&path), Times::Kept), before, "{name} kept everything");
    }
    assert_eq!(summary.files_failed, 2, "both are counted: {summary:?}");
    let status = all.status();
    for name in ["tagged", "guarded"] {
        assert!(
            status.warnings.iter().any(|warning| warning.contains(name)),
            "{name} is reported: {:?}",
            status.warnings
        );
    }
    rustix::fs::removexattr(all.join("open/tagged.remote"), "user.tag").unwrap();
    all.enforce();
    all.expect_on("remote", "open/tagged.remote");
}

#[test]
fn what_is_no_regular_file_stays_where_it_can_be() {
    let all = everything();
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o640);
    let device = nix::sys::stat::makedev(1, 3);
    nix::sys::stat::mknod(&all.join("open/null.remote"), nix::sys::stat::SFlag::S_IFCHR, mode, device).unwrap();
    std::os::unix::fs::symlink("x", all.join("open/link.remote")).unwrap();
    let meta = fs::symlink_metadata(all.join("open/null.remote")).unwrap();
    assert_eq!((meta.rdev(), meta.mode() & 0o7777), (device, 0o640));
    assert_eq!(fs::read_link(all.join("open/link.remote")).unwrap(), Path::new("x"));
    all.enforce();
    assert_eq!(fs::symlink_metadata(all.join("open/null.remote")).unwrap().rdev(), device, "no enforcer breaks it");
    assert_eq!(all.found_on("open/null.remote").len(), 1);
}
