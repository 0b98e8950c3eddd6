//! The pool through an idmapped mount, as a container without root's rights gets it (Linux 6.12).

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::support::disk::unmount;
use super::support::{assert_errno, temp_dir};
use super::{Data, Two};

/// Ids from 0 on the branches are ids from here on through the mount.
const BASE: u32 = 100_000;

/// A process in a user namespace of its own.
struct Namespace(Child);

impl Namespace {
    fn new() -> Namespace {
        let mut sleep = Command::new("sleep");
        // SAFETY: one system call between fork and exec.
        unsafe {
            sleep.pre_exec(|| rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER).map_err(Into::into))
        };
        let child = sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap();
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", child.id()), format!("0 {BASE} 65536")).unwrap();
        }
        Namespace(child)
    }

    fn open(&self) -> File {
        File::open(format!("/proc/{}/ns/user", self.0.id())).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that shows a tree with other ids.
struct Mapped {
    dir: tempfile::TempDir,
}

impl Mapped {
    fn new(tree: &Path) -> std::io::Result<Mapped> {
        let (dir, namespace) = (temp_dir("mapped"), Namespace::new());
        let users = namespace.open();
        let path = CString::new(tree.as_os_str().as_bytes()).unwrap();
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
        // SAFETY: the path ends with a zero, and what is returned is a new descriptor.
        let tree = unsafe {
            match libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) {
                -1 => return Err(std::io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd as i32),
            }
        };
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: users.as_raw_fd() as u64,
        };
        let size = size_of::<libc::mount_attr>();
        // SAFETY: the struct is as long as is said, and the descriptors are open.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size,
            )
        };
        if done != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&tree, c"", rustix::fs::CWD, dir.path(), flags)?;
        Ok(Mapped { dir })
    }

    fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        unmount(self.dir.path());
    }
}

#[track_caller]
fn run_as(uid: u32, command: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-ec", command]).uid(uid).gid(uid).stderr(Stdio::null()).status().unwrap().success()
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn the_pool_through_an_idmapped_mount_keeps_and_shows_the_right_owners() {
    let two = Two::new(Data::Passthrough);
    fs::write(two.join("before"), "x").unwrap();
    chown(two.join("before"), Some(7), Some(8)).unwrap();
    let mapped = Mapped::new(&two.mount_point()).unwrap();
    assert_eq!(owner(&mapped.join("before")), (BASE + 7, BASE + 8));
    // What is root on the branches is the first id of the container.
    let at = mapped.join("");
    let make = format!(
        "umask 022; cd {}; echo x > new; mkdir dir; ln -s new link; mkfifo pipe; ln new second; chmod 640 new; touch new.b",
        at.display()
    );
    assert!(run_as(BASE, &make), "{make}");
    for name in ["new", "dir", "link", "pipe"] {
        assert_eq!(owner(&mapped.join(name)), (BASE, BASE), "{name} through the mapped mount");
        assert_eq!(owner(&two.join(name)), (0, 0), "{name} through the pool");
        assert_eq!(owner(&two.on("a", name)), (0, 0), "{name} on the branch");
    }
    assert_eq!(owner(&two.on("b", "new.b")), (0, 0));
    lchown(mapped.join("link"), Some(BASE + 5), Some(BASE + 6)).unwrap();
    chown(mapped.join("new"), Some(BASE + 5), Some(BASE + 6)).unwrap();
    for name in ["new", "link"] {
        assert_eq!(owner(&two.on("a", name)), (5, 6), "{name}");
    }
    let listed = Command::new("ls").arg("-ln").arg(&at).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains(&format!("{} {}", BASE + 5, BASE + 6)), "{listed}");
    // A user that is not in the map makes nothing and is nobody.
    assert_errno(File::create(mapped.join("by-root")), libc::EOVERFLOW);
    assert_errno(chown(mapped.join("new"), Some(5), None), libc::EOVERFLOW);
    // Another one of the container changes nothing that is not theirs.
    assert!(!run_as(BASE + 9, &format!("chmod 777 {}", mapped.join("new").display())));
    assert!(!run_as(BASE + 9, &format!("echo x > {}", mapped.join("new").display())));
    assert!(!run_as(BASE + 9, &format!("touch {}", mapped.join("theirs").display())));
}

/// Once mounts may be mapped, the kernel leaves out the caller in most requests.
#[test]
fn the_rights_of_who_changes_something_are_known_although_the_kernel_does_not_say_who_it_is() {
    let two = Two::new(Data::Mediated);
    for root in [two.mount_point(), two.plain.path().clone()] {
        let path = root.join("program");
        let bits = || fs::metadata(&path).unwrap().mode() & 0o7777;
        fs::write(&path, "x").unwrap();
        let set = || fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        set();
        let room = || {
            rustix::fs::fallocate(
                File::options().write(true).open(&path).unwrap(),
                rustix::fs::FallocateFlags::empty(),
                0,
                100,
            )
        };
        room().unwrap();
        assert_eq!(bits(), 0o6777, "root keeps the bits");
        assert!(run_as(1234, &format!("fallocate -l 200 {}", path.display())));
        assert_eq!(bits(), 0o777, "others do not");
        rustix::fs::setxattr(&path, "trusted.mark", b"x", rustix::fs::XattrFlags::empty()).unwrap();
        let mut names = [0; 256];
        let length = rustix::fs::listxattr(&path, &mut names).unwrap();
        assert!(names[..length].starts_with(b"trusted.mark\0"), "root sees them");
        set();
        chown(&path, None, None).unwrap();
        assert_eq!(bits(), 0o777, "a change of owner to nobody else, by root");
    }
}
