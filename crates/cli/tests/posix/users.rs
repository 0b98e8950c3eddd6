//! Who may do what: owners, groups, setuid bits, umask, ACLs. The caller's rights count, not the daemon's.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags};

use crate::support::process::{NOBODY, Process, as_nobody, as_user};
use crate::support::tree::xattrs;
use crate::support::{assert_errno, errno, poll, run};
use crate::{Data, Two};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn setfacl(acl: &str, path: &Path) {
    run("setfacl", ["-m".as_ref(), acl.as_ref(), path.as_os_str()]);
}

#[test]
fn a_write_by_another_user_clears_the_setuid_bits() {
    for data in Data::ALL {
        let two = Two::new(data);
        for name in ["suid", "suid.b"] {
            two.same("mode after a write", |root| {
                // Without a right to execute for the group, the kernel's FUSE client keeps the setgid bit.
                [0o6777, 0o4777, 0o2777, 0o4666].map(|before| {
                    let path = root.join(name);
                    fs::write(&path, "x").unwrap();
                    set_mode(&path, before);
                    as_nobody(|| OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap());
                    mode(&path)
                })
            });
            two.same("mode after a truncation", |root| {
                let path = root.join(name);
                set_mode(&path, 0o6777);
                as_nobody(|| OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap());
                mode(&path)
            });
            two.same("mode after an open with O_TRUNC", |root| {
                let path = root.join(name);
                fs::write(&path, "x").unwrap();
                set_mode(&path, 0o6777);
                as_nobody(|| drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap()));
                mode(&path)
            });
            two.same("mode after a write by root", |root| {
                let path = root.join(name);
                set_mode(&path, 0o6777);
                OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
                mode(&path)
            });
        }
    }
}

/// The mode alone, as the kernel knows it: a whole `stat` has it ask anew.
fn known_mode(path: &Path) -> u32 {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
    u32::from(stat.stx_mode) & 0o7777
}

/// The user that a program runs as when the user nobody starts it.
fn effective_user(program: &Path) -> String {
    let start = || Command::new(program).arg("-u").uid(NOBODY).gid(NOBODY).output();
    // Another test's child has every open file for the moment between its fork and its exec.
    let is_busy = |shown: &std::io::Result<Output>| errno(shown) == libc::ETXTBSY;
    let shown = poll(Duration::from_secs(10), || Some(start()).filter(|shown| !is_busy(shown)));
    String::from_utf8(shown.expect("not busy").unwrap().stdout).unwrap()
}

/// What it is called, and what it does with a file below a folder.
type ChangeByOthers = (&'static str, fn(&File, &Path));

/// What a user may do with a file that he may write, which takes set-user-id away.
fn changes_by_others() -> [ChangeByOthers; 6] {
    [
        ("write", |file, _| file.write_all_at(&fs::read("/usr/bin/id").unwrap(), 0).unwrap()),
        ("fallocate", |file, _| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap()),
        ("punch", |file, _| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, 1 << 30, 4096).unwrap();
        }),
        ("zero range", |file, _| {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, 1 << 20, 4096).unwrap();
        }),
        ("copy_file_range", |file, root| {
            let program = File::open(root.join("source")).unwrap();
            let mut at = 0;
            let copied = rustix::fs::copy_file_range(program, Some(&mut 0), file, Some(&mut at), 4096).unwrap();
            assert_eq!(copied, 4096);
        }),
        ("truncation", |file, _| file.set_len(fs::metadata("/usr/bin/id").unwrap().len()).unwrap()),
    ]
}

#[test]
fn set_user_id_that_a_write_took_away_is_gone_for_who_starts_the_program() {
    for data in Data::ALL {
        let two = Two::new(data);
        for name in ["program", "program.b"] {
            for (what, change) in changes_by_others() {
                two.same(what, |root| {
                    let program = root.join(name);
                    fs::copy("/usr/bin/id", root.join("source")).unwrap();
                    fs::copy("/usr/bin/id", &program).unwrap();
                    set_mode(&program, 0o4777);
                    let before = (mode(&program), known_mode(&program), effective_user(&program));
                    let file = as_nobody(|| OpenOptions::new().write(true).open(&program).unwrap());
                    as_nobody(|| change(&file, root));
                    let known = known_mode(&program);
                    drop(file);
                    (before, known, effective_user(&program))
                });
            }
        }
    }
}

#[test]
fn set_user_id_that_is_set_while_somebody_may_write_goes_with_the_next_write() {
    for data in Data::ALL {
        let two = Two::new(data);
        for name in ["program", "program.b"] {
            for (what, change) in changes_by_others() {
                two.same(what, |root| {
                    let program = root.join(name);
                    fs::copy("/usr/bin/id", root.join("source")).unwrap();
                    fs::copy("/usr/bin/id", &program).unwrap();
                    set_mode(&program, 0o777);
                    let file = as_nobody(|| OpenOptions::new().write(true).open(&program).unwrap());
                    as_nobody(|| file.write_all_at(b"\x7f", 0).unwrap());
                    set_mode(&program, 0o4777);
                    let before = (mode(&program), known_mode(&program));
                    as_nobody(|| change(&file, root));
                    let known = known_mode(&program);
                    drop(file);
                    (before, known, mode(&program), effective_user(&program))
                });
            }
        }
        two.same("root may keep it", |root| {
            let program = root.join("root's");
            let file = File::create(&program).unwrap();
            set_mode(&program, 0o4777);
            file.write_all_at(b"x", 0).unwrap();
            (known_mode(&program), mode(&program))
        });
    }
}

#[test]
fn a_write_removes_file_capabilities() {
    // VFS_CAP_REVISION_2 with cap_net_raw permitted.
    let capability: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for data in Data::ALL {
        Two::new(data).same("capabilities after a write", |root| {
            let path = root.join("program");
            fs::write(&path, "x").unwrap();
            rustix::fs::setxattr(&path, "security.capability", &capability, XattrFlags::empty()).unwrap();
            let before = xattrs(&path).len();
            OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
            (before, xattrs(&path).len())
        });
    }
}

#[test]
fn a_file_may_be_made_with_set_id_bits() {
    for data in Data::ALL {
        let two = Two::new(data);
        for name in ["suid", "suid.b"] {
            two.same("modes", |root| {
                let dir = root.join("everybody's");
                fs::create_dir_all(&dir).unwrap();
                set_mode(&dir, 0o777);
                [0o6755, 0o4700, 0o2755, 0o1755].map(|wanted| {
                    let path = dir.join(format!("{wanted:o}-{name}"));
                    let make = || OpenOptions::new().write(true).create_new(true).mode(wanted).open(&path).map(drop);
                    as_nobody(make).unwrap();
                    mode(&path)
                })
            });
        }
    }
}

#[test]
fn only_root_sees_the_names_of_trusted_attributes() {
    let two = Two::new(Data::Passthrough);
    two.same("attributes", |root| {
        let path = root.join("attributes.b");
        fs::write(&path, "x").unwrap();
        for key in ["user.a", "trusted.a", "security.a", "user.b"] {
            rustix::fs::setxattr(&path, key, b"v", rustix::fs::XattrFlags::empty()).unwrap();
        }
        let listed = || {
            let mut names = [0_u8; 200];
            let read = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
            let asked = rustix::fs::listxattr(&path, &mut [0_u8; 0][..]).unwrap();
            let mut names: Vec<_> = names[..read].split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
            names.sort();
            (names, asked)
        };
        (listed(), as_nobody(listed))
    });
}

#[test]
fn chown_clears_the_setuid_bits() {
    let two = Two::new(Data::Passthrough);
    two.same("mode after chown", |root| {
        let path = root.join("file");
        fs::write(&path, "x").unwrap();
        let by_owner = [0o6755, 0o6745, 0o2644].map(|before| {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            set_mode(&path, before);
            let result = as_user(NOBODY, NOBODY, &[4242], || errno(&chown(&path, None, Some(4242))));
            (result, mode(&path), fs::metadata(&path).unwrap().gid())
        });
        let by_root = [0o6755, 0o2644].map(|before| {
            set_mode(&path, before);
            chown(&path, Some(7), Some(7)).unwrap();
            mode(&path)
        });
        (by_owner, by_root)
    });
}

/// Whether a file was changed, in any way that it tells.
fn changes(path: &Path, call: impl FnOnce() -> i32) -> (i32, bool, u32) {
    let changed = || fs::symlink_metadata(path).map(|data| (data.ctime(), data.ctime_nsec())).unwrap();
    let before = changed();
    std::thread::sleep(Duration::from_millis(20));
    let result = call();
    (result, changed() != before, mode(path))
}

#[test]
fn a_chown_that_names_neither_owner_nor_group_takes_set_id_bits_for_the_owner_and_root_only() {
    const OTHER: u32 = 4711;
    let name_none = |path: &Path| errno(&chown(path, None, None));
    for data in Data::ALL {
        let two = Two::new(data);
        for name in ["program", "program.b"] {
            for before in [0o4755, 0o6755, 0o2755, 0o2745, 0o4644, 0o755, 0o1666] {
                for user in [0, NOBODY, OTHER] {
                    two.same(&format!("mode {before:o}, user {user}"), |root| {
                        let path = root.join(name);
                        fs::write(&path, "x").unwrap();
                        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
                        set_mode(&path, before);
                        let done = changes(&path, || as_user(user, user, &[], || name_none(&path)));
                        (done, known_mode(&path))
                    });
                }
            }
        }
        two.same("the owner is not of the group", |root| {
            let path = root.join("foreign group");
            fs::write(&path, "x").unwrap();
            chown(&path, Some(NOBODY), Some(OTHER)).unwrap();
            [0o2745, 0o6755, 0o2644].map(|before| {
                set_mode(&path, before);
                changes(&path, || as_nobody(|| name_none(&path)))
            })
        });
        two.same("an open file that nobody may write", |root| {
            let path = root.join("held");
            fs::copy("/usr/bin/id", &path).unwrap();
            set_mode(&path, 0o4755);
            let held = File::open(&path).unwrap();
            let done = changes(&path, || as_nobody(|| errno(&std::os::unix::fs::fchown(&held, None, None))));
            (done, effective_user(&path))
        });
        two.same("a directory", |root| {
            let path = root.join("dir");
            fs::create_dir(&path).unwrap();
            set_mode(&path, 0o6755);
            [0, NOBODY].map(|user| changes(&path, || as_user(user, user, &[], || name_none(&path))))
        });
        two.same("a link", |root| {
            let path = root.join("link");
            std::os::unix::fs::symlink("nowhere", &path).unwrap();
            let lchown = || errno(&std::os::unix::fs::lchown(&path, None, None));
            [0, NOBODY].map(|user| changes(&path, || as_user(user, user, &[], lchown)))
        });
    }
}

#[test]
fn a_chown_by_somebody_who_cannot_write_leaves_a_program_that_is_open_for_writing_as_it_is() {
    for data in Data::ALL {
        Two::new(data).same("a stranger", |root| {
            let path = root.join("program");
            fs::write(&path, "x").unwrap();
            set_mode(&path, 0o4755);
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let mut writer = Command::new("sleep").arg("1000").stdin(file).spawn().unwrap();
            let done = changes(&path, || as_nobody(|| errno(&chown(&path, None, None))));
            let known = known_mode(&path);
            writer.kill().unwrap();
            writer.wait().unwrap();
            (done, known)
        });
    }
}

#[test]
fn nobody_cannot_give_files_away() {
    let two = Two::new(Data::Passthrough);
    two.same("chown by the owner", |root| {
        let path = root.join("mine");
        fs::write(&path, "x").unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        as_nobody(|| {
            [
                errno(&chown(&path, Some(0), None)),
                errno(&chown(&path, None, Some(0))),
                errno(&chown(&path, Some(NOBODY), Some(NOBODY))),
                errno(&fs::set_permissions(&path, fs::Permissions::from_mode(0o4711))),
                errno(&fs::set_permissions(root, fs::Permissions::from_mode(0o777))),
            ]
        })
    });
}

#[test]
fn setgid_directories_pass_their_group_on() {
    let two = Two::new(Data::Passthrough);
    two.same("setgid directories", |root| {
        let dir = root.join("shared");
        fs::create_dir(&dir).unwrap();
        chown(&dir, None, Some(4242)).unwrap();
        set_mode(&dir, 0o2777);
        as_nobody(|| {
            fs::create_dir(dir.join("sub")).unwrap();
            for name in ["file", "file.b", "sub/deep.b"] {
                File::create(dir.join(name)).unwrap();
            }
            OpenOptions::new().write(true).create_new(true).mode(0o2775).open(dir.join("setgid.b")).unwrap();
        });
        ["sub", "file", "file.b", "sub/deep.b", "setgid.b"].map(|name| {
            let meta = fs::metadata(dir.join(name)).unwrap();
            (meta.uid(), meta.gid(), meta.mode())
        })
    });
    for branch in two.found_on("shared/sub") {
        let meta = fs::metadata(two.on(&branch, "shared/sub")).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7000), (NOBODY, 4242, 0o2000), "on branch {branch}");
    }
}

#[test]
fn supplementary_groups_count() {
    let two = Two::new(Data::Passthrough);
    two.same("supplementary groups", |root| {
        let file = root.join("secret.b");
        fs::write(&file, "for the group").unwrap();
        chown(&file, Some(0), Some(4242)).unwrap();
        set_mode(&file, 0o660);
        let dir = root.join("dir");
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(0), Some(4242)).unwrap();
        set_mode(&dir, 0o770);
        let own = root.join("own");
        fs::write(&own, "").unwrap();
        chown(&own, Some(NOBODY), Some(4242)).unwrap();
        [vec![], vec![4242], (4000..4300).collect::<Vec<_>>()].map(|groups| {
            as_user(NOBODY, NOBODY, &groups, || {
                (
                    errno(&fs::read(&file)),
                    errno(&OpenOptions::new().write(true).open(&file)),
                    errno(&fs::write(dir.join("made.b"), "x")),
                    errno(&fs::set_permissions(&own, fs::Permissions::from_mode(0o2755))),
                    mode(&own),
                )
            })
        })
    });
}

#[test]
fn a_child_process_of_another_user_meets_the_same_rights() {
    let two = Two::new(Data::Passthrough);
    fs::write(two.join("secret.b"), "x").unwrap();
    set_mode(&two.join("secret.b"), 0o640);
    chown(two.join("secret.b"), Some(0), Some(4242)).unwrap();
    let cat = |groups: &str| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", groups, "cat"])
            .arg(two.join("secret.b"))
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(!cat("--clear-groups"));
    assert!(cat("--groups=4242"));
}

#[test]
fn umask_and_default_acls_decide_the_mode_of_new_files() {
    let two = Two::new(Data::Passthrough);
    two.same("umask", |root| {
        fs::create_dir(root.join("acl")).unwrap();
        setfacl("d:u::rwx,d:g::rx,d:o::-,d:u:4711:rwx", &root.join("acl"));
        let mut child = Process::start(|_| {
            rustix::process::umask(rustix::fs::Mode::from(0o027));
            let make =
                |name: &str| OpenOptions::new().write(true).create_new(true).mode(0o666).open(root.join(name)).is_ok();
            let made = make("file")
                && make("file.b")
                && make("acl/file")
                && make("acl/file.b")
                && fs::create_dir(root.join("dir")).is_ok()
                && fs::create_dir(root.join("acl/dir")).is_ok()
                && nix::unistd::mkfifo(&root.join("acl/pipe.b"), nix::sys::stat::Mode::from_bits_truncate(0o666))
                    .is_ok();
            u8::from(!made)
        });
        assert_eq!(child.exit_code(), Some(0));
        ["file", "file.b", "dir", "acl/file", "acl/file.b", "acl/dir", "acl/pipe.b"]
            .map(|name| (mode(&root.join(name)), xattrs(&root.join(name))))
    });
}

#[test]
fn acls_are_enforced_and_inherited() {
    let two = Two::new(Data::Passthrough);
    two.same("ACLs", |root| {
        let file = root.join("file.b");
        fs::write(&file, "x").unwrap();
        set_mode(&file, 0o600);
        let read = |user| as_user(user, 4000, &[], || errno(&fs::read(&file)));
        let write = |user| as_user(user, 4000, &[], || errno(&OpenOptions::new().append(true).open(&file)));
        let mut seen = vec![(read(NOBODY), write(NOBODY), mode(&file))];
        setfacl("u:65534:rw", &file);
        seen.push((read(NOBODY), write(NOBODY), mode(&file)));
        seen.push((read(4711), write(4711), 0));
        setfacl("m::r", &file);
        seen.push((read(NOBODY), write(NOBODY), mode(&file)));
        setfacl("g:4000:r,m::rw", &file);
        seen.push((read(4711), write(4711), mode(&file)));
        set_mode(&file, 0o604);
        seen.push((read(NOBODY), read(4711), mode(&file)));
        run("setfacl", ["-b".as_ref(), file.as_os_str()]);
        seen.push((read(NOBODY), write(NOBODY), mode(&file)));
        (seen, xattrs(&file))
    });
}

#[test]
fn cached_paths_are_still_guarded() {
    let two = Two::new(Data::Passthrough);
    for name in ["file", "file.b"] {
        let dir = two.join(format!("dir-{name}"));
        fs::create_dir(&dir).unwrap();
        let path = dir.join(name);
        fs::write(&path, "x").unwrap();
        set_mode(&dir, 0o700);
        for _ in 0..3 {
            fs::metadata(&path).unwrap();
            fs::read(&path).unwrap();
            assert_errno(as_nobody(|| fs::metadata(&path).map(|_| ())), libc::EACCES);
            assert_errno(as_nobody(|| fs::read(&path)), libc::EACCES);
            assert_errno(as_nobody(|| fs::read_dir(&dir).map(|_| ())), libc::EACCES);
            assert_errno(as_nobody(|| fs::write(dir.join("new"), "")), libc::EACCES);
        }
        set_mode(&dir, 0o755);
        assert!(as_nobody(|| fs::read(&path)).is_ok(), "the way is open at once");
        assert_errno(as_nobody(|| fs::remove_file(&path)), libc::EACCES);
        set_mode(&path, 0o600);
        assert_errno(as_nobody(|| fs::read(&path)), libc::EACCES);
        set_mode(&path, 0o644);
        set_mode(&dir, 0o700);
        assert_errno(as_nobody(|| fs::read(&path)), libc::EACCES);
    }
}

#[test]
fn the_sticky_bit_guards_the_files_of_others() {
    let two = Two::new(Data::Passthrough);
    two.same("a sticky directory", |root| {
        let dir = root.join("tmp");
        fs::create_dir(&dir).unwrap();
        set_mode(&dir, 0o1777);
        fs::write(dir.join("roots.b"), "").unwrap();
        set_mode(&dir.join("roots.b"), 0o666);
        as_nobody(|| {
            fs::write(dir.join("mine.b"), "").unwrap();
            (
                errno(&fs::remove_file(dir.join("roots.b"))),
                errno(&fs::rename(dir.join("roots.b"), dir.join("x"))),
                errno(&fs::rename(dir.join("mine.b"), dir.join("roots.b"))),
                errno(&fs::rename(dir.join("mine.b"), dir.join("mine"))),
                errno(&fs::remove_file(dir.join("mine"))),
            )
        })
    });
}

#[test]
fn new_files_belong_to_their_maker_on_every_branch() {
    let two = Two::new(Data::Passthrough);
    set_mode(&two.mount_point(), 0o777);
    as_user(4711, 4712, &[], || {
        fs::create_dir(two.join("dir")).unwrap();
        for name in ["dir/file", "dir/file.b"] {
            fs::write(two.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("x", two.join("dir/link.b")).unwrap();
    });
    for name in ["dir", "dir/file", "dir/file.b", "dir/link.b"] {
        for path in two.found_on(name).iter().map(|branch| two.on(branch, name)).chain([two.join(name)]) {
            let meta = fs::symlink_metadata(&path).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (4711, 4712), "{}", path.display());
        }
    }
}
