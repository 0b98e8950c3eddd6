//! Files on file systems that hold different things: what a move makes of a file is what a write to that file system
//! would have made.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Timespec, Timestamps, fallocate, utimensat};
use rustix::io::Errno;

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{KIB, MIB, bytes, run};

const STAGED: &str = "[staging]\nmode = \"always\"\nmax_age = \"1h\"\nmax_file = \"256 KiB\"\n";

/// In 1601, 1874, 1969, 2009, 2096 and 5138.
const TIMES: [(i64, i64); 6] = [
    (-11_644_473_600, 5),
    (-3_000_000_000, 999_999_999),
    (-1_000, 1),
    (1_234_567_891, 123_456_789),
    (4_000_000_000, 7),
    (99_999_999_999, 987_654_321),
];

fn set_times(path: &Path, mtime: (i64, i64)) {
    let times = Timestamps {
        last_access: Timespec { tv_sec: -12_000_000_000, tv_nsec: 3 },
        last_modification: Timespec { tv_sec: mtime.0, tv_nsec: mtime.1 },
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn times(path: &Path) -> [(i64, i64); 2] {
    let meta = fs::symlink_metadata(path).unwrap();
    [(meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec())]
}

/// What a file system makes of these times.
fn measured(disk: &Disk, mtime: (i64, i64)) -> [(i64, i64); 2] {
    let beside = disk.join("beside");
    fs::write(&beside, "x").unwrap();
    set_times(&beside, mtime);
    let times = times(&beside);
    fs::remove_file(beside).unwrap();
    times
}

/// A pool on disks of these kinds; a file goes to the one that its name ends in, all others to the first.
fn by_name<const N: usize>(disks: &[(&str, Disk); N], keys: &str) -> Pool {
    let mut entries = String::new();
    let mut builder = Pool::builder().keys(keys);
    for (kind, disk) in disks {
        writeln!(entries, "{{ glob = \"/**.{kind}\", to = [\"{kind}\", \"default\"] }},").unwrap();
        builder = builder.branch(kind, disk.path());
    }
    builder.rules(&format!("[[rule]]\nname = \"by name\"\nmatch = [\n{entries}]\n")).mount()
}

#[test]
fn a_file_moves_with_times_that_its_new_branch_cannot_hold() {
    let disks = [
        ("memory", Disk::tmpfs(32 * MIB)),
        ("ext4", Disk::ext4(32 * MIB)),
        ("ext4small", Disk::ext4_with_small_inodes(32 * MIB)),
        ("xfs", Disk::xfs(300 * MIB)),
        ("xfsold", Disk::xfs_without_bigtime(300 * MIB)),
        ("btrfs", Disk::btrfs(128 * MIB)),
    ];
    let pool = by_name(&disks, "");
    let names = || (0..TIMES.len()).flat_map(|number| disks.iter().map(move |(kind, disk)| (number, *kind, disk)));
    for (number, kind, _) in names() {
        let path = pool.join(format!("{number}.{kind}.first"));
        fs::write(&path, kind).unwrap();
        set_times(&path, TIMES[number]);
        assert_eq!(times(&path)[1], TIMES[number], "memory holds any time");
    }
    pool.settle_closed();
    for (number, kind, _) in names() {
        fs::rename(pool.join(format!("{number}.{kind}.first")), pool.join(format!("{number}.{kind}"))).unwrap();
    }
    pool.settle();
    for (number, kind, disk) in names() {
        let name = format!("{number}.{kind}");
        pool.expect_on(kind, &name);
        assert_eq!(times(&pool.on(kind, &name)), measured(disk, TIMES[number]), "{name}");
        assert_eq!(times(&pool.join(&name))[1], measured(disk, TIMES[number])[1], "{name}, as users see it");
        if kind != "memory" {
            assert_eq!(fs::read(pool.join(&name)).unwrap(), kind.as_bytes());
        }
    }
    // What a rule keeps there moves all the same when the branch is emptied: here onto the one after it.
    pool.say(["branch", "drain", "memory"]);
    for (number, mtime) in TIMES.into_iter().enumerate() {
        let name = format!("{number}.memory");
        pool.expect_on("ext4", &name);
        assert_eq!(times(&pool.on("ext4", &name)), measured(&disks[1].1, mtime), "{name}");
    }
}

#[test]
fn a_staged_file_with_times_that_its_branch_cannot_hold_leaves() {
    let disks = [("ext4", Disk::ext4(32 * MIB)), ("xfsold", Disk::xfs_without_bigtime(300 * MIB))];
    let mut pool = by_name(&disks, STAGED);
    for (number, mtime) in TIMES.into_iter().enumerate() {
        for (kind, disk) in &disks {
            let name = format!("{number}.{kind}");
            fs::write(pool.join(&name), "x").unwrap();
            assert!(!pool.on(kind, &name).exists(), "it waits in memory");
            set_times(&pool.join(&name), mtime);
            assert_eq!(times(&pool.join(&name)), measured(disk, mtime), "{name}, as {kind} has it");
            // Each of the ways out.
            match number % 3 {
                0 => File::open(pool.join(&name)).unwrap().sync_all().unwrap(),
                1 => drop(pool.say(["sync"])),
                _ => {}
            }
        }
    }
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/file"), "x").unwrap();
    set_times(&pool.join("dir"), TIMES[0]);
    pool.stop();
    for (number, mtime) in TIMES.into_iter().enumerate() {
        for (kind, disk) in &disks {
            assert_eq!(times(&pool.on(kind, format!("{number}.{kind}"))), measured(disk, mtime), "{number} on {kind}");
        }
    }
    assert_eq!(times(&pool.on("ext4", "dir"))[1], measured(&disks[0].1, TIMES[0])[1]);
}

/// 4 KiB of data in each `stride`.
fn write_sparse(file: &File, size: u64, stride: u64) {
    for at in (0..size).step_by(usize::try_from(stride).unwrap()) {
        file.write_all_at(&bytes(at + 1, 4 * KIB), at).unwrap();
    }
}

/// Bytes that a file occupies, when all of it is on the disk.
fn occupied(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn a_file_with_holes_takes_as_much_room_after_a_move_as_if_it_were_written_there() {
    const SIZE: u64 = 8 * MIB;
    const STRIDES: [u64; 4] = [8 * KIB, 64 * KIB, 260 * KIB, 2 * MIB];
    let disks = [
        ("ext4", Disk::ext4(96 * MIB)),
        ("xfs", Disk::xfs(300 * MIB)),
        ("btrfs", Disk::btrfs(256 * MIB)),
        ("tmpfs", Disk::tmpfs(96 * MIB)),
    ];
    let pool = by_name(&disks, "");
    let mut native = Vec::new();
    for (kind, disk) in &disks {
        for stride in STRIDES {
            let file = File::create(disk.join("beside")).unwrap();
            file.set_len(SIZE).unwrap();
            write_sparse(&file, SIZE, stride);
            native.push((*kind, stride, occupied(&disk.join("beside"))));
        }
        fs::remove_file(disk.join("beside")).unwrap();
    }
    let native = |kind: &str, stride| native.iter().find(|(it, of, _)| (*it, *of) == (kind, stride)).unwrap().2;
    // From each to each.
    let kinds =
        ["ext4", "xfs", "btrfs", "xfs", "tmpfs", "xfs", "ext4", "btrfs", "tmpfs", "ext4", "tmpfs", "btrfs", "ext4"];
    for stride in STRIDES {
        // As a program writes that does not know the end: xfs takes it for one that grows, and reserves ahead.
        write_sparse(&File::create(pool.join(format!("{stride}.xfs"))).unwrap(), SIZE, stride);
    }
    let mut before = "xfs";
    for kind in kinds {
        for stride in STRIDES {
            fs::rename(pool.join(format!("{stride}.{before}")), pool.join(format!("{stride}.{kind}"))).unwrap();
        }
        for stride in STRIDES {
            let name = format!("{stride}.{kind}");
            pool.expect_on(kind, &name);
            let (now, native) = (occupied(&pool.on(kind, &name)), native(kind, stride));
            // A few blocks say where the others are.
            assert!(now <= native + 64 * KIB, "4 KiB in {stride} take {now} bytes on {kind}, not {native}");
        }
        before = kind;
    }
    for stride in STRIDES {
        let file = File::open(pool.join(format!("{stride}.ext4"))).unwrap();
        for at in (0..SIZE).step_by(usize::try_from(stride).unwrap()) {
            let mut read = vec![0; 4096];
            file.read_exact_at(&mut read, at).unwrap();
            assert!(read == bytes(at + 1, 4 * KIB), "{stride}: {at}");
        }
    }
}

#[test]
fn room_that_was_reserved_stays_reserved_on_every_file_system() {
    let disks = [
        ("ext4", Disk::ext4(64 * MIB)),
        ("xfs", Disk::xfs(300 * MIB)),
        ("btrfs", Disk::btrfs(128 * MIB)),
        ("tmpfs", Disk::tmpfs(64 * MIB)),
    ];
    let pool = by_name(&disks, "");
    let file = File::create(pool.join("file.ext4")).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB).unwrap();
    drop(file);
    let mut before = "ext4";
    for kind in ["xfs", "ext4", "btrfs", "xfs", "tmpfs", "xfs", "tmpfs", "ext4"] {
        pool.settle_closed();
        fs::rename(pool.join(format!("file.{before}")), pool.join(format!("file.{kind}"))).unwrap();
        let name = format!("file.{kind}");
        pool.expect_on(kind, &name);
        assert!(occupied(&pool.on(kind, &name)) >= 4 * MIB, "from {before} to {kind}");
        before = kind;
    }
}

/// Contents, length and room of a file after a call, and what the call said.
type After = (io::Result<()>, Vec<u8>, u64);

fn after_fallocate(path: &Path, mode: FallocateFlags, offset: u64, length: u64) -> After {
    fs::write(path, bytes(1, 64 * KIB)).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    let said = fallocate(&file, mode, offset, length).map_err(io::Error::from);
    file.sync_all().unwrap();
    (said, fs::read(path).unwrap(), fs::metadata(path).unwrap().blocks())
}

#[test]
fn what_a_staged_file_is_asked_for_by_fallocate_its_branch_does() {
    let disks = [("ext4", Disk::ext4(32 * MIB))];
    let pool = by_name(&disks, STAGED);
    let plain = Disk::ext4(32 * MIB);
    let all = FallocateFlags::empty();
    let (keep, zero, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE);
    for (number, mode) in [all, keep, zero, zero | keep, punch | keep, punch, punch | zero].into_iter().enumerate() {
        for (offset, length) in [(4096, 8192), (5000, 20_000), (60_000, 100_000), (0, MIB), (0, 0)] {
            let name = format!("{number}.{offset}.{length}");
            let ours = after_fallocate(&pool.join(&name), mode, offset, length);
            let theirs = after_fallocate(&plain.join(&name), mode, offset, length);
            let said = |after: &After| after.0.as_ref().map_err(io::Error::raw_os_error).copied();
            assert_eq!(said(&ours), said(&theirs), "{mode:?} {offset} {length}");
            assert!(ours.1 == theirs.1, "{mode:?} {offset} {length}: other contents");
            // Memory has larger blocks than a small ext4: a hole may begin later.
            assert!(ours.2.abs_diff(theirs.2) <= 16, "{mode:?} {offset} {length}: {} blocks, not {}", ours.2, theirs.2);
            fs::remove_file(plain.join(&name)).unwrap();
            fs::remove_file(pool.join(&name)).unwrap();
        }
    }
}

#[test]
fn names_that_memory_keeps_and_a_branch_may_not_are_for_the_branch_to_judge() {
    let disks = [("ext4", Disk::ext4(32 * MIB))];
    let pool = by_name(&disks, STAGED);
    let waiting = || pool.status().staging.unwrap().files;
    let long = "n".repeat(200);
    fs::write(pool.join(&long), "x").unwrap();
    assert_eq!(waiting(), 0);
    fs::write(pool.join("short"), "x").unwrap();
    assert_eq!(waiting(), 1);
    fs::rename(pool.join("short"), pool.join("m".repeat(200))).unwrap();
    assert_eq!(waiting(), 0, "it has left for {}", text(&pool.umbrella(["status"])));
    fs::write(pool.join("linked"), "x").unwrap();
    for number in 0..100 {
        fs::hard_link(pool.join("linked"), pool.join(format!("link {number}"))).unwrap();
    }
    assert_eq!(waiting(), 0, "no file system has room for ever more names");
    assert_eq!(fs::metadata(pool.on("ext4", "link 99")).unwrap().nlink(), 101);
}

/// The names of a file's attributes on a disk, ACLs among them.
fn attribute_names(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    names.truncate(length);
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn an_acl_that_changed_elsewhere_does_not_come_back_on_xfs() {
    let disks = [("ext4", Disk::ext4(32 * MIB)), ("btrfs", Disk::btrfs(128 * MIB)), ("xfs", Disk::xfs(300 * MIB))];
    let pool = by_name(&disks, "");
    let setfacl = |args: &[&str], path: &Path| run("setfacl", args.iter().map(AsRef::as_ref).chain([path.as_os_str()]));
    let acl = |path: &Path| {
        let said = Command::new("getfacl").arg("-cpE").arg(path).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    for between in ["ext4", "btrfs"] {
        let (on_xfs, away) = (pool.join(format!("{between}.xfs")), pool.join(format!("file.{between}")));
        fs::write(&on_xfs, "secret").unwrap();
        pool.expect_on("xfs", format!("{between}.xfs"));
        setfacl(&["-m", "u:1000:rw"], &on_xfs);
        fs::rename(&on_xfs, &away).unwrap();
        pool.expect_on(between, format!("file.{between}"));
        let names = attribute_names(&pool.on(between, format!("file.{between}")));
        assert!(!names.iter().any(|name| name.contains("SGI")), "{names:?}");
        setfacl(&["-m", "u:1000:---,u:1001:r"], &away);
        let given = acl(&away);
        fs::rename(&away, &on_xfs).unwrap();
        pool.expect_on("xfs", format!("{between}.xfs"));
        assert_eq!(acl(&on_xfs), given);
        assert_eq!(acl(&pool.on("xfs", format!("{between}.xfs"))), given);
        // It is not seen, read or set by its other name through the pool either.
        assert!(!attribute_names(&on_xfs).iter().any(|name| name.contains("SGI")));
        let other = "trusted.SGI_ACL_FILE";
        assert_eq!(rustix::fs::getxattr(&on_xfs, other, &mut [0; 64][..]), Err(Errno::NODATA));
        assert!(rustix::fs::setxattr(&on_xfs, other, b"x", rustix::fs::XattrFlags::empty()).is_err());
    }
}
