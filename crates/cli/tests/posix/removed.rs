//! What has no name any more, and is still open, or somebody's current directory.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dev, FileType, Mode, OFlags, RenameFlags, XattrFlags};

use crate::support::{TIMEOUT, poll};
use crate::{Data, Two};

fn errno<T>(result: rustix::io::Result<T>) -> i32 {
    result.err().map_or(0, rustix::io::Errno::raw_os_error)
}

/// What stat says of a directory that is to be the same everywhere.
fn look(dir: &File) -> (u64, u32, u32, u32, i64) {
    let meta = dir.metadata().unwrap();
    (meta.nlink(), meta.mode(), meta.uid(), meta.gid(), meta.mtime())
}

/// All that a program can do with a directory that is gone.
fn use_up(dir: &File) -> Vec<String> {
    let mut said = Vec::new();
    let mut say = |what: &str, result: String| said.push(format!("{what}: {result}"));
    say("stat", format!("{:?}", (look(dir).0, look(dir).1)));
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    say("names", format!("{:?}", fs::read_dir(&path).map(Iterator::count).map_err(|error| error.kind())));
    say("chmod", format!("{:?}", dir.set_permissions(fs::Permissions::from_mode(0o2711))));
    say("chown", format!("{:?}", fchown(dir, Some(1), Some(2))));
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
    say("utimens", format!("{:?}", dir.set_times(fs::FileTimes::new().set_accessed(then).set_modified(then))));
    say("stat", format!("{:?}", look(dir)));
    say("setxattr", format!("{}", errno(rustix::fs::fsetxattr(dir, "user.a", b"1", XattrFlags::CREATE))));
    let mut value = [0; 64];
    let got = rustix::fs::fgetxattr(dir, "user.a", &mut value).map(|got| value[..got].to_vec());
    say("getxattr", format!("{got:?}"));
    let got = rustix::fs::flistxattr(dir, &mut value).map(|got| value[..got].to_vec());
    say("listxattr", format!("{got:?}"));
    say("removexattr", format!("{}", errno(rustix::fs::fremovexattr(dir, "user.a"))));
    say("getxattr", format!("{}", errno(rustix::fs::fgetxattr(dir, "user.a", &mut value))));
    say("fsync", format!("{:?}", dir.sync_all()));
    let mode = Mode::from_raw_mode(0o644);
    say("create", format!("{}", errno(rustix::fs::openat(dir, "new", OFlags::CREATE | OFlags::WRONLY, mode))));
    say("mkdir", format!("{}", errno(rustix::fs::mkdirat(dir, "new", mode))));
    say("mkfifo", format!("{}", errno(rustix::fs::mknodat(dir, "new", FileType::Fifo, mode, Dev::default()))));
    say("symlink", format!("{}", errno(rustix::fs::symlinkat("to", dir, "new"))));
    say("open", format!("{}", errno(rustix::fs::openat(dir, "new", OFlags::RDONLY, mode))));
    say("open .", format!("{}", errno(rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY, mode))));
    say("stat ..", format!("{}", errno(rustix::fs::statat(dir, "..", AtFlags::empty()))));
    said
}

/// A directory that both branches have, and that is empty again.
fn make_empty(two: &Two, name: &str) {
    for root in two.both() {
        fs::create_dir(root.join(name)).unwrap();
        for file in ["x", "y.b"] {
            fs::write(root.join(name).join(file), "x").unwrap();
            File::open(root.join(name).join(file)).unwrap().sync_all().unwrap();
        }
    }
    assert_eq!(two.found_on(name), ["a", "b"]);
    for root in two.both() {
        for file in ["x", "y.b"] {
            fs::remove_file(root.join(name).join(file)).unwrap();
        }
    }
}

#[test]
fn an_open_directory_that_is_removed_can_be_used_as_on_ext4() {
    for data in Data::ALL {
        let two = Two::new(data);
        make_empty(&two, "both");
        for root in two.both() {
            fs::create_dir(root.join("one")).unwrap();
        }
        for name in ["both", "one"] {
            two.same(name, |root| {
                let dir = File::open(root.join(name)).unwrap();
                let again = File::open(root.join(name)).unwrap();
                fs::remove_dir(root.join(name)).unwrap();
                (use_up(&dir), look(&again))
            });
            assert!(two.found_on(name).is_empty(), "{name} is gone from the branches");
        }
    }
}

#[test]
fn a_directory_that_another_replaces_can_be_used_as_on_ext4() {
    for data in Data::ALL {
        let two = Two::new(data);
        for name in ["both", "one.b"] {
            if name == "both" {
                make_empty(&two, name);
            } else {
                two.both().iter().for_each(|root| fs::create_dir(root.join(name)).unwrap());
            }
            two.same(name, |root| {
                let new = root.join("new");
                fs::create_dir(&new).unwrap();
                fs::write(new.join("kept.b"), "kept").unwrap();
                let (old, moved) = (File::open(root.join(name)).unwrap(), File::open(&new).unwrap());
                fs::rename(&new, root.join(name)).unwrap();
                let used = use_up(&old);
                (used, look(&moved).0 > 0, fs::read(root.join(name).join("kept.b")).unwrap())
            });
        }
    }
}

#[test]
fn a_directory_is_used_on_when_a_new_one_has_its_name() {
    let two = Two::new(Data::Passthrough);
    make_empty(&two, "dir");
    two.same("dir", |root| {
        let path = root.join("dir");
        let old = File::open(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "new").unwrap();
        let used = use_up(&old);
        let new = fs::metadata(&path).unwrap();
        (used, new.mode(), new.uid(), fs::read(path.join("file")).unwrap())
    });
}

#[test]
fn a_directory_that_is_exchanged_and_then_removed_can_be_used() {
    let two = Two::new(Data::Staged);
    make_empty(&two, "one");
    for root in two.both() {
        fs::create_dir_all(root.join("deep/other")).unwrap();
        fs::write(root.join("deep/other/file.b"), "x").unwrap();
    }
    two.same("exchange", |root| {
        let (one, other) = (root.join("one"), root.join("deep/other"));
        let dir = File::open(&one).unwrap();
        rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        fs::remove_dir(&other).unwrap();
        (use_up(&dir), fs::read(one.join("file.b")).unwrap())
    });
}

/// What a shell says that sits in a directory which is removed meanwhile.
fn run_shell_in(dir: &Path, remove: impl FnOnce()) -> (String, String) {
    let script = "echo in; read go; stat -c '%h %a %F' .; ls -A; echo listed; chmod 700 . && stat -c %a .; true >new; mkdir new; cd . && stat -c %h .; \
                  test -d .. && echo above";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .env("LC_ALL", "C")
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut there = [0; 3];
    shell.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
    remove();
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_current_directory_that_is_removed_can_be_used_as_on_ext4() {
    for data in [Data::Passthrough, Data::Staged] {
        let two = Two::new(data);
        make_empty(&two, "dir");
        two.same("rmdir", |root| {
            let dir = root.join("dir");
            let said = run_shell_in(&dir, || fs::remove_dir(&dir).unwrap());
            assert!(said.0.contains("listed"), "{said:?}");
            said
        });
        make_empty(&two, "dir");
        two.same("rename", |root| {
            let dir = root.join("dir");
            fs::create_dir(root.join("other")).unwrap();
            run_shell_in(&dir, || fs::rename(root.join("other"), &dir).unwrap())
        });
    }
}

#[test]
fn a_pipe_that_is_open_can_be_used_without_its_name() {
    let two = Two::new(Data::Passthrough);
    two.same("pipe", |root| {
        let used = |gone: &dyn Fn(&Path)| -> io::Result<(u64, u32, i32)> {
            let path = root.join("pipe.b");
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), Dev::default())?;
            let pipe = File::options().read(true).write(true).open(&path)?;
            gone(&path);
            pipe.set_permissions(fs::Permissions::from_mode(0o640))?;
            let meta = pipe.metadata()?;
            Ok((
                meta.nlink(),
                meta.mode(),
                errno(rustix::fs::fsetxattr(pipe.as_fd(), "trusted.a", b"1", XattrFlags::empty())),
            ))
        };
        let removed = used(&|path| fs::remove_file(path).unwrap()).unwrap();
        let replaced = used(&|path| {
            fs::write(root.join("other"), "x").unwrap();
            fs::rename(root.join("other"), path).unwrap();
        });
        (removed, replaced.unwrap())
    });
}

#[test]
fn a_removed_directory_costs_no_descriptor_once_nobody_has_it() {
    let two = Two::new(Data::Passthrough);
    // The daemon opens other things whenever it likes: only those of removed directories count.
    let descriptors = || -> Vec<PathBuf> {
        let open = fs::read_dir(format!("/proc/{}/fd", two.pid())).unwrap();
        let links = open.filter_map(|descriptor| fs::read_link(descriptor.unwrap().path()).ok());
        links.filter(|link| link.to_string_lossy().ends_with(" (deleted)")).collect()
    };
    let removed = |number: u32| -> File {
        let dir = two.join(format!("dir-{number}"));
        fs::create_dir(&dir).unwrap();
        let open = File::open(&dir).unwrap();
        fs::remove_dir(&dir).unwrap();
        open
    };
    let open: Vec<File> = (0..64).map(removed).collect();
    assert!(descriptors().len() >= 64, "they are used through descriptors");
    drop(open);
    let closed = poll(TIMEOUT, || descriptors().is_empty().then_some(()));
    assert!(closed.is_some(), "still open: {:?}", descriptors());
}
