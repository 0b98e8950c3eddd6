//! A branch that fills up: the file moves on and the write continues, or it fails and the file is as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, XattrFlags};

use crate::support::disk::Disk;
use crate::support::foreign::{Mirror, Remote};
use crate::support::pool::Pool;
use crate::support::process::Mapping;
use crate::support::{KIB, MIB, assert_errno, bytes};

/// `tiny` has room for a mebibyte, `large` for 32.
#[derive(Debug)]
struct Tiny {
    pool: Pool,
    tiny: Disk,
    large: Disk,
}

impl std::ops::Deref for Tiny {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

fn tiny() -> Tiny {
    let (tiny, large) = (Disk::tmpfs(MIB), Disk::tmpfs(32 * MIB));
    let pool = Pool::builder().branch("tiny", tiny.path()).branch("large", large.path()).mount();
    Tiny { pool, tiny, large }
}

/// All files go to these branches; the default list is `large`.
fn only(to: &[&str]) -> Tiny {
    let (tiny, large) = (Disk::tmpfs(MIB), Disk::tmpfs(32 * MIB));
    let rules = format!("[[rule]]\nname = \"sensitive\"\nmatch = [{{ glob = \"/**\", to = {to:?} }}]\n");
    let pool =
        Pool::builder().branch("tiny", tiny.path()).branch("large", large.path()).default(&["large"]).rules(&rules);
    Tiny { pool: pool.mount(), tiny, large }
}

/// Writes until it fails; how much was acknowledged, and why it failed.
fn fill(file: &mut File, seed: u64) -> (Vec<u8>, std::io::Error) {
    let all = bytes(seed, 64 * MIB);
    let mut done = 0;
    loop {
        match file.write(&all[done..done + 40_000]) {
            Ok(written) => done += written,
            Err(error) => return (all[..done].to_vec(), error),
        }
        assert!(done + 40_000 < all.len(), "the disks have room for less than this");
    }
}

#[test]
fn a_growing_file_moves_and_the_write_goes_on() {
    let tiny = tiny();
    let data = bytes(1, 5 * MIB);
    let mut file = File::create(tiny.join("file")).unwrap();
    file.write_all(&data[..100_000]).unwrap();
    assert_eq!(tiny.found_on("file"), ["tiny"]);
    for chunk in data[100_000..].chunks(70_000) {
        file.write_all(chunk).unwrap();
    }
    assert_eq!(tiny.found_on("file"), ["large"], "it moved while it was open");
    assert!(fs::read(tiny.join("file")).unwrap() == data);
    drop(file);
    tiny.expect_on("large", "file");
    assert_eq!(tiny.tiny.files().len(), 0);
    crate::support::eventually("its old space is free again", || tiny.tiny.free() > 900 * KIB);
}

#[test]
fn what_a_file_is_goes_with_it_when_it_overflows() {
    let tiny = tiny();
    let path = tiny.join("file");
    let mut file = File::create(&path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, Some(4711), Some(4712)).unwrap();
    rustix::fs::setxattr(&path, "trusted.note", b"kept", XattrFlags::empty()).unwrap();
    let inode = file.metadata().unwrap().ino();
    file.write_all(&bytes(1, 3 * MIB)).unwrap();
    drop(file);
    tiny.expect_on("large", "file");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.ino()), (0o640, 4711, 4712, inode));
    let mut note = [0; 16];
    let length = rustix::fs::getxattr(&path, "trusted.note", &mut note[..]).unwrap();
    assert_eq!(&note[..length], b"kept");
}

#[test]
fn appends_of_two_handles_go_on_across_the_overflow() {
    let tiny = tiny();
    let path = tiny.join("log");
    let open = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let (mut one, mut other) = (open(), open());
    let mut reader = File::open(&path).unwrap();
    let mut expected = Vec::new();
    for i in 0..60 {
        let data = bytes(i, 50_000);
        if i % 2 == 0 { &mut one } else { &mut other }.write_all(&data).unwrap();
        expected.extend(data);
    }
    assert_eq!(tiny.found_on("log"), ["large"]);
    let mut seen = Vec::new();
    reader.read_to_end(&mut seen).unwrap();
    assert!(seen == expected, "a reader that was open all along sees everything");
    drop((one, other, reader));
    assert!(fs::read(&path).unwrap() == expected);
    tiny.expect_on("large", "log");
}

#[test]
fn writers_at_different_places_all_land_in_the_moved_file() {
    let tiny = tiny();
    let path = tiny.join("file");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let handles = [open(), open(), open()];
    let mut expected = vec![0; 6 * MIB as usize];
    for i in 0..90_u64 {
        let (data, at) = (bytes(i, 60_000), (i * 7_919_000) % (6 * MIB - 60_000));
        handles[i as usize % 3].write_all_at(&data, at).unwrap();
        expected[at as usize..at as usize + data.len()].copy_from_slice(&data);
    }
    let length = fs::metadata(&path).unwrap().len() as usize;
    for handle in &handles {
        let mut seen = vec![0; length];
        handle.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == expected[..length]);
    }
    drop(handles);
    assert!(fs::read(&path).unwrap() == expected[..length]);
    tiny.expect_on("large", "file");
}

#[test]
fn an_allocation_that_does_not_fit_moves_the_file() {
    let tiny = tiny();
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(tiny.join("file")).unwrap();
    file.write_all(b"begun").unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 * MIB);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut begun = [0; 6];
    file.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"begun\0");
    drop(file);
    tiny.expect_on("large", "file");
}

#[test]
fn a_sparse_file_stays_however_large_it_says_it_is() {
    let tiny = tiny();
    let file = File::create(tiny.join("sparse")).unwrap();
    file.set_len(100 * MIB).unwrap();
    file.write_all_at(b"far", 50 * MIB).unwrap();
    drop(file);
    tiny.expect_stays_on("tiny", "sparse");
    assert_eq!(fs::metadata(tiny.join("sparse")).unwrap().len(), 100 * MIB);
}

#[test]
fn a_mapping_that_fills_holes_overflows_too() {
    let (tiny, large) = (Disk::tmpfs(MIB), Disk::tmpfs(32 * MIB));
    let pool = Pool::builder()
        .branch_with("tiny", tiny.path(), "passthrough = false")
        .branch_with("large", large.path(), "passthrough = false")
        .mount();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(pool.join("file")).unwrap();
    file.set_len(3 * MIB).unwrap();
    let mut mapping = Mapping::new(&file, 3 * MIB as usize).unwrap();
    for at in (0..3 * MIB as usize).step_by(1000) {
        mapping.set(at, 1 + (at % 251) as u8);
    }
    mapping.sync().unwrap();
    drop((mapping, file));
    let seen = fs::read(pool.join("file")).unwrap();
    assert!((0..3 * MIB as usize).step_by(1000).all(|at| seen[at] == 1 + (at % 251) as u8));
    pool.expect_on("large", "file");
}

#[test]
fn a_file_whose_list_is_full_fails_with_enospc_and_is_as_it_was() {
    let tiny = only(&["tiny"]);
    let mut file = File::create(tiny.join("secret")).unwrap();
    let (written, error) = fill(&mut file, 1);
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(written.len() > 500_000, "{} bytes fitted", written.len());
    assert!(fs::read(tiny.join("secret")).unwrap() == written, "the file is as the last good write left it");
    assert_errno(file.write_all_at(&bytes(2, 100_000), 2 * MIB), libc::ENOSPC);
    assert_errno(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4 * MIB).map_err(Into::into), libc::ENOSPC);
    drop(file);
    tiny.expect_stays_on("tiny", "secret");
    assert_eq!(tiny.large.files().len(), 0, "nothing of it was ever elsewhere");
    assert_errno(fs::write(tiny.join("another"), bytes(3, 500_000)), libc::ENOSPC);
    assert_eq!(tiny.large.files().len(), 0);
    let warnings = tiny.status().warnings;
    assert!(warnings.iter().any(|one| one.contains("\"sensitive: /**\" (tiny) had room for /")), "{warnings:?}");
    fs::remove_file(tiny.join("secret")).unwrap();
    // A test beside this one that starts a program holds copies of this process's descriptors until the program runs.
    crate::support::eventually("the room is free", || tiny.tiny.free() > MIB / 2);
    let warns = || tiny.status().warnings.iter().any(|one| one.contains("had room"));
    crate::support::eventually("the warning goes when space is back", || !warns());
    fs::write(tiny.join("another"), bytes(3, 500_000)).expect("what was removed made room");
    fs::write(tiny.join("third"), "x").unwrap();
    assert!(!warns());
}

#[test]
fn a_list_that_ends_with_default_or_any_goes_on_there() {
    for end in ["default", "any"] {
        let tiny = only(&["tiny", end]);
        fs::write(tiny.join("file"), bytes(1, 4 * MIB)).unwrap();
        tiny.expect_on("large", "file");
        assert!(fs::read(tiny.join("file")).unwrap() == bytes(1, 4 * MIB));
    }
}

#[test]
fn when_every_branch_is_full_the_write_fails_and_nothing_is_lost() {
    let disks = [Disk::tmpfs(MIB), Disk::tmpfs(2 * MIB)];
    let pool = Pool::builder().branch("one", disks[0].path()).branch("two", disks[1].path()).mount();
    let mut file = File::create(pool.join("file")).unwrap();
    let (written, error) = fill(&mut file, 1);
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(written.len() as u64 > MIB, "it used the larger branch: {} bytes fitted", written.len());
    drop(file);
    assert!(fs::read(pool.join("file")).unwrap() == written);
    pool.expect_on("two", "file");
    fs::write(pool.join("small"), bytes(2, 100_000)).expect("the first branch has room for a small one");
}

#[test]
fn a_file_overflows_into_room_that_was_made_a_moment_ago() {
    let tiny = tiny();
    let mut file = File::create(tiny.join("file")).unwrap();
    file.write_all(&bytes(1, 900_000)).unwrap();
    let filler = tiny.large.join("filler");
    assert_errno(fs::write(&filler, vec![1; 33 * MIB as usize]), libc::ENOSPC);
    let seen = rustix::fs::statvfs(tiny.mount_point()).unwrap();
    assert!(seen.f_bavail * seen.f_frsize < MIB, "the pool knows that both are full");
    fs::remove_file(&filler).unwrap();
    // A test beside this one that starts a program holds copies of this process's descriptors until the program runs.
    crate::support::eventually("the room is free", || tiny.large.free() > 31 * MIB);
    file.write_all(&bytes(2, 300_000)).unwrap();
    drop(file);
    tiny.expect_on("large", "file");
}

#[test]
fn many_small_files_run_over_into_the_next_branch() {
    let tiny = tiny();
    fs::create_dir(tiny.join("dir")).unwrap();
    for i in 0..200 {
        fs::write(tiny.join(format!("dir/{i}")), bytes(i, 10_000)).unwrap();
    }
    tiny.settle();
    for i in 0..200 {
        assert!(fs::read(tiny.join(format!("dir/{i}"))).unwrap() == bytes(i, 10_000), "file {i}");
        assert_eq!(tiny.found_on(format!("dir/{i}")).len(), 1);
    }
    let (on_tiny, on_large) = (tiny.tiny.files().len(), tiny.large.files().len());
    assert_eq!(on_tiny + on_large, 200);
    assert!(on_tiny >= 50 && on_large >= 100, "{on_tiny} on the tiny branch, {on_large} on the large one");
}

#[test]
fn a_branch_without_inodes_is_full_too() {
    let (tiny, large) = (Disk::tmpfs_with_inodes(MIB, 12), Disk::tmpfs(32 * MIB));
    let pool = Pool::builder().branch("tiny", tiny.path()).branch("large", large.path()).mount();
    for i in 0..40 {
        fs::write(pool.join(format!("file-{i}")), "x").unwrap();
        std::os::unix::fs::symlink("x", pool.join(format!("link-{i}"))).unwrap();
    }
    fs::create_dir_all(pool.join("a/b/c")).unwrap();
    fs::write(pool.join("a/b/c/file"), "x").unwrap();
    pool.settle();
    assert_eq!(crate::names(&pool.mount_point()).len(), 81);
    assert_eq!(fs::read(pool.join("a/b/c/file")).unwrap(), b"x");
}

#[test]
fn names_of_one_file_stay_one_file_when_it_overflows() {
    let tiny = tiny();
    fs::create_dir(tiny.join("dir")).unwrap();
    fs::write(tiny.join("one"), "begun ").unwrap();
    fs::hard_link(tiny.join("one"), tiny.join("dir/other")).unwrap();
    let inode = fs::metadata(tiny.join("one")).unwrap().ino();
    crate::append(&tiny.join("dir/other"), &bytes(1, 3 * MIB)).unwrap();
    for name in ["one", "dir/other"] {
        tiny.expect_on("large", name);
        let meta = fs::metadata(tiny.join(name)).unwrap();
        assert_eq!((meta.ino(), meta.nlink(), meta.len()), (inode, 2, 3 * MIB + 6), "{name}");
    }
}

#[test]
fn an_unlinked_file_overflows_like_any_other() {
    let tiny = tiny();
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(tiny.join("gone")).unwrap();
    file.write_all(b"begun").unwrap();
    fs::remove_file(tiny.join("gone")).unwrap();
    let data = bytes(1, 3 * MIB);
    file.write_all(&data).unwrap();
    let mut seen = Vec::new();
    file.seek(SeekFrom::Start(5)).unwrap();
    file.read_to_end(&mut seen).unwrap();
    assert!(seen == data);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    assert_eq!(crate::names(&tiny.mount_point()), Vec::<String>::new());
    crate::support::eventually("its space is free again", || tiny.large.free() > 31 * MIB);
}

fn unnamed(dir: &Path) -> File {
    File::from(rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o640)).unwrap())
}

fn path_to(file: &File) -> String {
    format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))
}

#[test]
fn an_unnamed_file_overflows_and_gets_its_name_later() {
    for moves in [1, 2] {
        let (first, second, third) = (Disk::tmpfs(MIB), Disk::tmpfs(4 * MIB), Disk::ext4(64 * MIB));
        let mut pool = Pool::builder()
            .branch_with("first", first.path(), "passthrough = false")
            .branch_with("second", second.path(), "passthrough = false")
            .branch_with("third", third.path(), "passthrough = false")
            .mount();
        fs::create_dir(pool.join("d")).unwrap();
        let mut file = unnamed(&pool.join("d"));
        file.write_all(b"begun").unwrap();
        rustix::fs::fsetxattr(&file, "trusted.kept", b"1", XattrFlags::empty()).unwrap();
        let second_handle = File::open(path_to(&file)).unwrap();
        let inode = file.metadata().unwrap().ino();
        let data = bytes(1, moves * 3 * MIB);
        file.write_all(&data).unwrap();
        let all = [b"begun".as_slice(), &data].concat();
        let mut seen = vec![0; all.len()];
        second_handle.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == all, "all handles follow");
        assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().ino()), (0, inode));
        rustix::fs::linkat(CWD, path_to(&file), CWD, pool.join("d/named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        file.write_all(b"and more").unwrap();
        assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().ino()), (1, inode));
        drop((file, second_handle));
        pool.settle();
        for _ in 0..2 {
            let meta = fs::metadata(pool.join("d/named")).unwrap();
            assert_eq!((meta.ino(), meta.nlink(), meta.permissions().mode() & 0o7777), (inode, 1, 0o640));
            assert!(fs::read(pool.join("d/named")).unwrap() == [all.as_slice(), b"and more"].concat());
            assert_eq!(crate::support::tree::xattrs(&pool.join("d/named")).len(), 1);
            pool.remount();
        }
        assert_eq!(pool.found_on("d/named"), [["second", "third"][moves as usize - 1]]);
    }
}

#[test]
fn an_unnamed_file_that_overflowed_and_is_closed_leaves_nothing() {
    let tiny = tiny();
    let mut file = unnamed(&tiny.mount_point());
    file.write_all(&bytes(1, 3 * MIB)).unwrap();
    drop(file);
    assert_eq!(crate::names(&tiny.mount_point()), Vec::<String>::new());
    crate::support::eventually("its space is free again", || tiny.large.free() > 31 * MIB);
    assert_eq!(fs::read_dir(tiny.large.join(".umbrella/tmp")).unwrap().count(), 0);
}

#[test]
fn files_without_a_name_obey_the_rule_of_the_place_where_they_were_made() {
    let (tiny, large) = (Disk::tmpfs(MIB), Disk::tmpfs(32 * MIB));
    let pool = Pool::builder()
        .branches([("tiny", tiny.path()), ("large", large.path())])
        .rules("[[rule]]\nname = \"sensitive\"\nmatch = [{ glob = \"/secret/**\", to = [\"tiny\"] }]\n")
        .mount();
    fs::create_dir(pool.join("secret")).unwrap();
    let mut gone = File::create_new(pool.join("secret/gone")).unwrap();
    fs::remove_file(pool.join("secret/gone")).unwrap();
    for file in [&mut gone, &mut unnamed(&pool.join("secret"))] {
        let (acknowledged, error) = fill(file, 1);
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        assert!(acknowledged.len() < MIB as usize);
        file.set_len(0).unwrap();
    }
    assert!(large.free() > 31 * MIB);
}

#[test]
fn a_copy_that_overflows_is_whole() {
    let tiny = tiny();
    let source = tiny.dir().join("source");
    fs::write(&source, bytes(9, 4 * MIB)).unwrap();
    fs::copy(&source, tiny.join("copy")).unwrap();
    assert!(fs::read(tiny.join("copy")).unwrap() == bytes(9, 4 * MIB));
    tiny.expect_on("large", "copy");
}

/// A name of a file whose list has named branches only decides. It also does where the file moves because its branch is
/// full or because it leaves memory.
#[test]
fn a_file_that_has_a_name_with_a_list_of_named_branches_stays_on_those() {
    let (a, b) = (Disk::tmpfs(2 * MIB), Disk::tmpfs(32 * MIB));
    let secret = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/secret/**\", to = [\"a\"] }]\n";
    let builder = Pool::builder()
        .branch_with("a", a.path(), "passthrough = false")
        .branch("b", b.path())
        .default(&["a", "b"])
        .rules(secret);
    let pool = builder.mount();
    for dir in ["pub", "secret"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    fs::write(pool.join("pub/file"), "begun").unwrap();
    fs::hard_link(pool.join("pub/file"), pool.join("secret/file")).unwrap();
    let failed = crate::append(&pool.join("pub/file"), &bytes(1, 4 * MIB));
    crate::support::assert_errno(failed, libc::ENOSPC);
    assert_eq!(pool.found_on("secret/file"), ["a"]);
    drop(pool);

    let (a, b) = (Disk::tmpfs(16 * MIB), Disk::tmpfs(16 * MIB));
    let pool = Pool::builder()
        .branches([("a", a.path()), ("b", b.path())])
        .default(&["b"])
        .rules(secret)
        .keys("[staging]\nmode = \"always\"\nsize = \"4MiB\"\nmax_age = \"1h\"")
        .mount();
    for dir in ["pub", "secret"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    fs::write(pool.join("pub/file"), "top").unwrap();
    fs::hard_link(pool.join("pub/file"), pool.join("secret/file")).unwrap();
    pool.say(["sync"]);
    assert_eq!(pool.found_on("secret/file"), ["a"]);
    assert_eq!(pool.found_on("pub/file"), ["a"]);
}

/// Appends to a file while it overflows to `next`, with others looking at it all the time, and again after it was
/// closed.
fn append_while_others_look(next: &Path, served: &Path) {
    let small = Disk::tmpfs(4 * MIB);
    let pool = Pool::builder().branch("small", small.path()).branch("next", next).mount();
    let path = pool.join("log");
    let lines: Vec<u8> = (0..10_000).flat_map(|i| format!("line {i:09}|").repeat(50).into_bytes()).collect();
    let (first, rest) = lines.split_at(lines.len() - 7500);
    let append = || OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let mut file = append();
    let done = AtomicBool::new(false);
    let attribute = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir(pool.mount_point()).unwrap() {
                    entry.unwrap().metadata().unwrap();
                }
                fs::metadata(&path).unwrap();
                let _none = rustix::fs::getxattr(&path, "user.none", &mut [0; 8]);
                thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let written = first.chunks(750).try_for_each(|line| file.write_all(line));
        let attribute = rustix::fs::fsetxattr(&file, "user.a", b"1", XattrFlags::empty());
        done.store(true, Ordering::Relaxed);
        written.map(|()| attribute)
    });
    attribute.unwrap().or_else(unless_it_has_none).unwrap();
    pool.expect_on("next", "log");
    drop(file);
    assert!(fs::read(&path).unwrap() == first, "what was appended");
    append().write_all(rest).unwrap();
    assert!(fs::read(&path).unwrap() == lines, "what was appended later");
    assert!(fs::read(served.join("log")).unwrap() == lines, "on the branch");
}

fn unless_it_has_none(error: rustix::io::Errno) -> rustix::io::Result<()> {
    if error == rustix::io::Errno::NOTSUP { Ok(()) } else { Err(error) }
}

/// To the kernel each name of a file on such a branch may be a file of its own, with its own size.
#[test]
fn what_is_appended_is_in_a_file_that_overflows_to_a_fuse_branch_whoever_looks_meanwhile() {
    let mirror = Mirror::new();
    append_while_others_look(&mirror.path(), &mirror.below());
}

#[test]
fn what_is_appended_is_in_a_file_that_overflows_to_a_network_branch_whoever_looks_meanwhile() {
    let remote = Remote::new();
    append_while_others_look(&remote.path(), &remote.served());
}

#[test]
fn space_that_cannot_be_had_changes_no_length_and_who_appends_appends() {
    let disk = Disk::ext4(64 * MIB);
    let pool = Pool::builder().branch_with("disk", disk.path(), "passthrough = false").mount();
    let too_much = |file: &File| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 100 * MIB);
    let own = File::create(disk.join("own")).unwrap();
    assert_errno(too_much(&own).map_err(Into::into), libc::ENOSPC);
    assert!(own.metadata().unwrap().len() > 0, "ext4 leaves what it had room for");
    drop(own);
    fs::remove_file(disk.join("own")).unwrap();

    let data = bytes(1, 1000);
    fs::write(pool.join("file"), &data).unwrap();
    let mut file = OpenOptions::new().append(true).open(pool.join("file")).unwrap();
    assert_errno(too_much(&file).map_err(Into::into), libc::ENOSPC);
    assert_eq!(disk.join("file").metadata().unwrap().len(), 1000);
    file.write_all(b"end").unwrap();
    assert!(fs::read(pool.join("file")).unwrap() == [&data[..], b"end"].concat());
}
