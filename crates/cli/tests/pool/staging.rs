//! New files that wait in memory, on a real mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FlockOperation, flock};

use crate::support::disk::Disk;
use crate::support::foreign::Encrypted;
use crate::support::group::Group;
use crate::support::pool::{Pool, text};
use crate::support::process::Mapping;
use crate::support::{MIB, TIMEOUT, bytes, eventually};
use crate::{LARGE_FILES, On, disks, names};

/// Nothing leaves by its age while a test runs.
const LONG: &str = "[staging]\nmode = \"always\"\nmax_age = \"1h\"\nmax_file = \"256 KiB\"\n";
/// Files leave soon.
const SHORT: &str = "[staging]\nmode = \"always\"\nmax_age = \"300ms\"\n";
/// In which a file is written whole before it can leave.
const TOO_SOON: Duration = Duration::from_millis(300);

fn staged(keys: &str) -> On<2> {
    let (disks, builder) = disks(["small", "large"]);
    On { pool: builder.rules(LARGE_FILES).keys(keys).mount(), disks }
}

fn nowhere(pool: &Pool, path: &str) -> bool {
    ["small", "large"].iter().all(|branch| !pool.on(branch, path).exists())
}

#[test]
fn a_new_file_waits_and_goes_where_its_size_belongs() {
    let pool = staged(SHORT);
    // A file that leaves before it is written moves once more: then, on a machine that stood still, it is done again in
    // another directory.
    let (mut moved, mut left) = (0, 0);
    let written = (0..50).any(|_| {
        let _ = fs::remove_dir_all(pool.join("dir"));
        pool.settle_closed();
        (moved, left) = (pool.moves(), pool.metric("umbrella_staging_left_count"));
        fs::create_dir(pool.join("dir")).unwrap();
        let begun = Instant::now();
        fs::write(pool.join("dir/little"), "little").unwrap();
        fs::write(pool.join("dir/big"), vec![b'x'; 100 << 10]).unwrap();
        begun.elapsed() < TOO_SOON
    });
    assert!(written, "two files cannot be written in {TOO_SOON:?}");
    let before = fs::metadata(pool.join("dir/big")).unwrap();
    eventually("it leaves for the branch of large files", || pool.on("large", "dir/big").exists());
    eventually("it leaves for the branch of small files", || pool.on("small", "dir/little").exists());
    let after = fs::metadata(pool.join("dir/big")).unwrap();
    let seen = |meta: &fs::Metadata| (meta.ino(), meta.size(), meta.mode(), meta.mtime(), meta.mtime_nsec());
    assert_eq!(seen(&after), seen(&before));
    assert_eq!(names(&pool.join("dir")), ["big", "little"]);
    eventually("both are counted", || pool.metric("umbrella_staging_left_count") == left + 2);
    assert_eq!(pool.moves(), moved, "neither was on another branch before");
}

#[test]
fn a_file_that_is_deleted_young_never_reaches_a_branch() {
    let pool = staged(LONG);
    for number in 0..50 {
        fs::write(pool.join("young"), format!("{number}")).unwrap();
        fs::remove_file(pool.join("young")).unwrap();
    }
    pool.settle_closed();
    assert_eq!(pool.metric("umbrella_staging_deleted_count"), 50);
    assert_eq!(pool.metric("umbrella_staging_left_count"), 0);
    assert_eq!(pool.status().staging.unwrap().files, 0);
}

#[test]
fn what_must_be_on_one_branch_only_does_not_wait_in_memory() {
    let (disks, builder) = disks(["small", "large"]);
    let secret = "[[rule]]\nname = \"n\"\nmatch = [{ glob = \"/secret/**\", to = [\"large\"] }]\n\
                  [[rule]]\nname = \"closed\"\nwhen = { access = \"read-only\" }\nto = [\"large\"]\n";
    let pool = On { pool: builder.rules(secret).keys(LONG).mount(), disks };
    let waiting = || pool.status().staging.unwrap().files;
    fs::create_dir(pool.join("secret")).unwrap();
    fs::write(pool.join("secret/key"), "x").unwrap();
    assert_eq!((pool.found_on("secret/key").concat().as_str(), waiting()), ("large", 0));

    // What comes under such a rule later leaves at once: by its name, by what it has become, by the name of its
    // directory.
    fs::write(pool.join("letter"), "x").unwrap();
    assert_eq!(waiting(), 1);
    fs::rename(pool.join("letter"), pool.join("secret/letter")).unwrap();
    eventually("it leaves when it is renamed", || pool.found_on("secret/letter") == ["large"]);
    fs::write(pool.join("done"), "x").unwrap();
    fs::set_permissions(pool.join("done"), fs::Permissions::from_mode(0o444)).unwrap();
    eventually("it leaves when it is read-only", || pool.found_on("done") == ["large"]);
    fs::write(pool.join("linked"), "x").unwrap();
    fs::hard_link(pool.join("linked"), pool.join("secret/linked")).unwrap();
    eventually("it leaves when it is linked", || pool.found_on("linked") == ["large"]);
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/inside"), "x").unwrap();
    fs::rename(pool.join("dir"), pool.join("secret/dir")).unwrap();
    pool.enforce();
    eventually("it leaves when the enforcer comes by", || pool.found_on("secret/dir/inside") == ["large"]);
    assert_eq!(waiting(), 0);
}

#[test]
fn what_a_program_syncs_is_on_a_branch_when_it_goes_on() {
    let pool = staged(LONG);
    let file = fs::File::create(pool.join("synced")).unwrap();
    (&file).write_all(b"safe").unwrap();
    assert!(nowhere(&pool, "synced"));
    file.sync_data().unwrap();
    assert_eq!(fs::read(pool.on("small", "synced")).unwrap(), b"safe");

    let mut options = OpenOptions::new();
    options.create_new(true).write(true).custom_flags(libc::O_DSYNC);
    options.open(pool.join("direct")).unwrap().write_all(b"safe too").unwrap();
    assert_eq!(fs::read(pool.on("small", "direct")).unwrap(), b"safe too");

    fs::write(pool.join("by command"), "all of it").unwrap();
    assert!(nowhere(&pool, "by command"));
    let said = pool.json(["sync"]);
    assert_eq!(said[0]["synced"], true);
    assert_eq!(fs::read(pool.on("small", "by command")).unwrap(), b"all of it");
}

#[test]
fn a_program_that_appends_goes_on_while_its_file_leaves() {
    let pool = staged(SHORT);
    let mut file = OpenOptions::new().create_new(true).append(true).read(true).open(pool.join("log")).unwrap();
    let mut expected = Vec::new();
    let mut left = false;
    let begun = Instant::now();
    for line in 0.. {
        let text = format!("line {line}\n");
        file.write_all(text.as_bytes()).unwrap();
        expected.extend_from_slice(text.as_bytes());
        left |= pool.on("small", "log").exists();
        if line >= 2000 && (left || begun.elapsed() > TIMEOUT) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    assert!(left, "it left while it was written");
    assert_eq!(fs::read(pool.join("log")).unwrap(), expected);
    assert_eq!(fs::read(pool.on("small", "log")).unwrap(), expected);
}

#[test]
fn mappings_and_locks_of_a_file_go_on_when_it_has_left() {
    const PAGES: usize = 16 << 10;
    let pool = staged(LONG);
    let open = || OpenOptions::new().read(true).write(true).open(pool.join("file")).unwrap();
    fs::write(pool.join("file"), vec![1; PAGES]).unwrap();
    let (file, other) = (open(), open());
    let mut mapping = Mapping::new(&file, PAGES).unwrap();
    mapping.set(0, 2);
    let part = |from, length| libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: from,
        l_len: length,
        l_pid: 0,
    };
    let record = |by: &fs::File, from| fcntl(by, FcntlArg::F_OFD_SETLK(&part(from, 10)));
    flock(&file, FlockOperation::LockExclusive).unwrap();
    record(&file, 100).unwrap();
    assert!(nowhere(&pool, "file"));
    pool.say(["sync"]);
    assert_eq!(fs::metadata(pool.on("small", "file")).unwrap().len(), PAGES as u64);

    assert_eq!(flock(&other, FlockOperation::NonBlockingLockShared), Err(rustix::io::Errno::WOULDBLOCK));
    assert_eq!(record(&other, 105), Err(nix::errno::Errno::EAGAIN));
    record(&other, 110).unwrap();
    assert_eq!((mapping.get(0), mapping.get(1)), (2, 1));
    mapping.set(PAGES - 1, 3);
    mapping.sync().unwrap();
    let kept = fs::read(pool.on("small", "file")).unwrap();
    assert_eq!(
        (kept[0], kept[1], kept[PAGES - 1]),
        (2, 1, 3),
        "what was stored before and after it left is on the branch"
    );
    drop((file, mapping));
    eventually("the last close frees its locks", || flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok());
    record(&other, 100).unwrap();
}

#[test]
fn a_daemon_whose_control_group_has_little_memory_stages_little_and_lives() {
    for keys in [
        "[staging]\nmode = \"always\"\nmax_age = \"1h\"\n",
        "[staging]\nmode = \"always\"\nmax_age = \"1h\"\nsize = \"2 GiB\"\n",
    ] {
        let group = Group::with_memory(128 * MIB);
        let disk = Disk::ext4(512 * MIB);
        let mut pool = Pool::builder().branch("disk", disk.path()).keys(keys).in_group(&group).mount();
        let content = |number: u64| bytes(number, 400 << 10);
        for number in 0..700 {
            fs::write(pool.join(format!("file{number}")), content(number)).unwrap();
            assert!(pool.status().staging.is_some_and(|staging| staging.limit.0 < 128 * MIB), "{keys}");
        }
        for number in 0..700 {
            assert!(fs::read(pool.join(format!("file{number}"))).unwrap() == content(number), "file {number}, {keys}");
        }
        pool.stop();
    }
}

#[test]
fn after_a_kill_staged_files_are_there_and_leave() {
    let mut pool = staged(LONG);
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/file"), "survives").unwrap();
    let number = fs::metadata(pool.join("dir/file")).unwrap().ino();
    pool.pool.kill_9();
    let said = text(&pool.umbrella(["status"]));
    assert!(said.contains("no pool is mounted, but staged files wait in memory"), "{said}");
    assert!(nowhere(&pool, "dir/file"));
    pool.pool.start();
    assert_eq!(fs::read(pool.join("dir/file")).unwrap(), b"survives");
    eventually("it leaves at once", || pool.on("small", "dir/file").exists());
    assert_eq!(fs::read(pool.join("dir/file")).unwrap(), b"survives");
    assert_eq!(fs::metadata(pool.join("dir/file")).unwrap().ino(), number);
}

#[test]
fn an_unmount_leaves_nothing_in_memory() {
    let mut pool = staged(LONG);
    fs::create_dir_all(pool.join("a/b/c")).unwrap();
    for number in 0..200 {
        fs::write(pool.join(format!("a/b/c/{number}")), format!("{number}")).unwrap();
    }
    let changed = fs::metadata(pool.join("a/b/c")).unwrap().mtime();
    pool.pool.stop();
    assert_eq!(names(&pool.on("small", "a/b/c")).len(), 200);
    assert_eq!(fs::metadata(pool.on("small", "a/b/c")).unwrap().mtime(), changed);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*pool.dir().to_string_lossy()), "the area is gone: {mounts}");
    pool.pool.start();
    assert_eq!(fs::read(pool.join("a/b/c/7")).unwrap(), b"7");
}

#[test]
fn staged_files_that_find_no_room_at_unmount_stay_and_are_there_again() {
    let disk = Disk::tmpfs(8 * MIB);
    let pool = Pool::builder().branch("only", disk.path()).keys(LONG).mount();
    let mut pool = On { pool, disks: [disk] };
    for number in 0..8 {
        fs::write(pool.join(format!("file-{number}")), vec![number; 200 << 10]).unwrap();
    }
    pool.disks[0].has_room_for(0);
    let said = text(&pool.umbrella(["sync"]));
    assert!(said.contains("not everything is on disk"), "{said}");
    assert!(
        pool.status().warnings.iter().any(|warning| warning.contains("staging area")),
        "{:?}",
        pool.status().warnings
    );
    let refused = pool.umbrella(["unmount"]);
    assert!(!refused.status.success());
    assert!(text(&refused).contains("staged files, which would stay in memory only"), "{}", text(&refused));
    assert_eq!(fs::read(pool.join("file-7")).unwrap(), vec![7; 200 << 10], "it is still mounted");
    // Who ends the daemon cannot be refused.
    let daemon = nix::unistd::Pid::from_raw(pool.pid() as i32);
    nix::sys::signal::kill(daemon, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(pool.pool.wait_for_end(), Some(true));
    assert!(pool.log().contains("kept in memory"), "{}", pool.log());
    pool.disks[0].has_room_for(8 * MIB);
    pool.pool.start();
    for number in 0..8 {
        assert_eq!(fs::read(pool.join(format!("file-{number}"))).unwrap(), vec![number; 200 << 10]);
    }
    pool.say(["sync"]);
    assert_eq!(names(&pool.disks[0].path()).iter().filter(|name| name.starts_with("file-")).count(), 8);
}

#[test]
fn a_disk_that_fills_up_is_full_for_who_writes_and_not_for_what_waits() {
    let disk = Disk::ext4(32 * MIB);
    let pool = Pool::builder().branch("only", disk.path()).keys(LONG).mount();
    let pool = On { pool, disks: [disk] };
    for number in 0..20 {
        fs::write(pool.join(format!("file-{number}")), vec![number; 200 << 10]).unwrap();
    }
    assert_eq!(pool.status().staging.unwrap().files, 20);
    let mut big = fs::File::create(pool.join("big")).unwrap();
    let refused = (0..64_u64).find_map(|_| big.write_all(&vec![b'x'; MIB as usize]).err());
    assert_eq!(refused.map(|error| error.kind()), Some(std::io::ErrorKind::StorageFull));
    let said = pool.json(["sync"]);
    assert_eq!(said[0]["synced"], true, "{said:?}");
    for number in 0..20 {
        assert_eq!(fs::read(pool.on("only", format!("file-{number}"))).unwrap(), vec![number; 200 << 10]);
    }
    assert!(fs::read(pool.join("big")).unwrap().iter().all(|byte| *byte == b'x'));
}

#[test]
fn a_disk_without_inodes_is_full_for_who_makes_files_and_not_for_what_waits() {
    let disk = Disk::tmpfs_with_inodes(64 * MIB, 400);
    let pool = Pool::builder().branch("only", disk.path()).keys(LONG).mount();
    let pool = On { pool, disks: [disk] };
    let made = (0..1000).take_while(|number| fs::write(pool.join(format!("file-{number}")), "x").is_ok()).count();
    assert!((200..400).contains(&made), "{made} files of 400 inodes");
    let said = pool.json(["sync"]);
    assert_eq!(said[0]["synced"], true, "{said:?}");
    assert!((0..made).all(|number| pool.on("only", format!("file-{number}")).exists()));
}

#[test]
fn the_tree_has_as_much_room_as_the_branches_and_users_see_no_area() {
    let pool = staged(LONG);
    let room = || {
        let space = rustix::fs::statvfs(pool.mount_point()).unwrap();
        (space.f_blocks * space.f_frsize, space.f_bfree * space.f_frsize)
    };
    let before = room();
    fs::write(pool.join("file"), vec![1; 200 << 10]).unwrap();
    let after = room();
    assert_eq!(after.0, before.0);
    assert_eq!(before.1 - after.1, 200 << 10);
    assert_eq!(names(&pool.mount_point()), ["file"]);
    assert_eq!(pool.json(["branch", "list"])[0].as_array().map_or(0, Vec::len).max(2), 2);
    let explained = pool.explain("file");
    assert_eq!((explained.on, explained.belongs.as_deref()), (vec!["(staging)".to_owned()], Some("large")));
    assert!(explained.outcome.contains("waits in memory"), "{}", explained.outcome);
    let status = text(&pool.umbrella(["status"]));
    assert!(status.contains("staging: 1 file (200 KiB of"), "{status}");
}

#[test]
fn attributes_that_a_branch_would_refuse_are_refused() {
    let (small, large) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let pool = Pool::builder()
        .branches([("small", small.path()), ("large", large.path())])
        .default(&["small"])
        .rules(LARGE_FILES)
        .keys(LONG)
        .mount();
    let set = |path: &str, name: &str, bytes: usize| {
        rustix::fs::setxattr(pool.join(path), name, &vec![b'v'; bytes], rustix::fs::XattrFlags::empty())
    };
    fs::write(pool.join("little"), "x").unwrap();
    assert_eq!(set("little", "user.little", 100), Ok(()));
    assert!(!pool.on("small", "little").exists(), "it waits as before");
    fs::write(pool.join("long"), "x").unwrap();
    assert_eq!(set("long", &format!("user.{}", "n".repeat(40)), 1), Ok(()));
    assert!(pool.on("small", "long").exists(), "a branch may not have room for long names");
    fs::write(pool.join("big"), "x").unwrap();
    assert_eq!(set("big", "user.big", 60_000), Err(rustix::io::Errno::NOSPC), "as ext4 says");
    assert!(pool.on("small", "big").exists());
    fs::write(pool.join("many"), "x").unwrap();
    let refused = (0..64).find(|number| set("many", &format!("user.number-{number}"), 200).is_err());
    assert!(refused.is_some(), "ext4 keeps less than 4 KiB of all together");
    pool.say(["sync"]);
    assert_eq!(fs::read(pool.on("small", "many")).unwrap(), b"x");
    assert_eq!(rustix::fs::getxattr(pool.on("small", "little"), "user.little", &mut [0; 200][..]), Ok(100));
}

#[test]
fn nothing_is_staged_for_a_branch_that_keeps_less_than_memory() {
    let (whole, less) = (Disk::ext4(32 * MIB), Encrypted::new());
    let pool = Pool::builder()
        .branches([("whole", whole.path()), ("less", less.path())])
        .default(&["less"])
        .rules("[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.w\", to = [\"whole\", \"any\"] }]\n")
        .keys(LONG)
        .mount();
    fs::write(pool.join("file"), "x").unwrap();
    assert!(less.path().join("file").exists());
    fs::write(pool.join("file.w"), "x").unwrap();
    assert!(!whole.join("file.w").exists(), "it waits");
}

/// Whether blocks of a file are still to be chosen: nothing of it is on disk.
fn is_only_in_memory(path: &std::path::Path) -> bool {
    let said = std::process::Command::new("filefrag").arg("-v").arg(path).output().unwrap();
    let said = text(&said);
    assert!(said.contains("extent"), "{said}");
    said.contains("delalloc")
}

#[test]
fn a_file_that_replaces_one_on_another_branch_is_on_disk_before_that_is_gone() {
    let disks = [Disk::ext4(32 * MIB), Disk::ext4(32 * MIB)];
    let pool = Pool::builder()
        .branches([("a", disks[0].path()), ("b", disks[1].path())])
        .default(&["a"])
        .rules("[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n")
        .mount();
    fs::write(pool.join("file.b"), "old").unwrap();
    // The kernel may write it by itself when this machine stands still.
    eventually("what nobody has synced is only in memory", || {
        fs::write(pool.join("plain"), vec![1; 100 << 10]).unwrap();
        is_only_in_memory(&pool.on("a", "plain"))
    });
    fs::write(pool.join("new"), vec![2; 100 << 10]).unwrap();
    let held = fs::File::open(pool.join("new")).unwrap();
    fs::rename(pool.join("new"), pool.join("file.b")).unwrap();
    assert!(!is_only_in_memory(&pool.on("a", "file.b")));
    drop(held);
    assert_eq!(fs::read(pool.join("file.b")).unwrap(), vec![2; 100 << 10]);
}

#[test]
fn a_staged_file_that_replaces_one_on_a_branch_is_on_its_way_to_the_disk() {
    let disk = Disk::ext4(32 * MIB);
    let pool = Pool::builder().branch("only", disk.path()).keys(LONG).mount();
    fs::write(pool.join("file"), "old").unwrap();
    pool.say(["sync"]);
    fs::write(pool.join("new"), vec![2; 100 << 10]).unwrap();
    assert!(!pool.on("only", "new").exists());
    fs::rename(pool.join("new"), pool.join("file")).unwrap();
    assert!(!is_only_in_memory(&pool.on("only", "file")));
    assert_eq!(fs::read(pool.on("only", "file")).unwrap(), vec![2; 100 << 10]);
}

/// The record of an exchange must not be in memory that loses it, while the exchange is on disks.
#[test]
fn a_staged_file_that_changes_names_with_a_directory_leaves_first() {
    let pool = staged(LONG);
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/inside"), "inside").unwrap();
    pool.say(["sync".as_ref(), pool.mount_point().as_os_str()]);
    fs::write(pool.join("file"), "staged").unwrap();
    assert_eq!(pool.status().staging.unwrap().files, 1);
    let (one, other) = (pool.join("file"), pool.join("dir"));
    rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, rustix::fs::RenameFlags::EXCHANGE)
        .unwrap();
    assert_eq!(pool.status().staging.unwrap().files, 0);
    assert_eq!(fs::read(pool.on("small", "dir")).unwrap(), b"staged");
    assert_eq!(fs::read(pool.join("file/inside")).unwrap(), b"inside");
}

#[test]
fn without_any_branch_nothing_is_said_to_be_full_or_read_only() {
    let disk = Disk::ext4(32 * MIB);
    let keys = format!("probe_interval = \"200ms\"\n{LONG}");
    let pool = Pool::builder().branch_with("disk", disk.path(), "optional = true").keys(&keys).mount();
    fs::write(pool.join("staged"), "x").unwrap();
    disk.vanish();
    eventually("it is away", || !pool.is_online("disk"));
    let refused = fs::write(pool.join("new"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let said = text(&pool.umbrella(["sync"]));
    assert!(said.contains("offline") && !said.contains("room"), "{said}");
    disk.mount();
    eventually("it is back", || pool.is_online("disk"));
    pool.say(["sync"]);
    assert_eq!(fs::read(disk.join("staged")).unwrap(), b"x");
}
