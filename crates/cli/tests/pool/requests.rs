//! The trace of requests, and what it shows that the kernel asks.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::MIB;
use super::support::disk::Disk;
use super::support::pool::Pool;
use super::support::{eventually, run, temp_dir};

/// A mounted pool of one branch, and the file with the trace of its requests.
struct Traced {
    pool: Pool,
    file: PathBuf,
    _disk: Disk,
    _dir: tempfile::TempDir,
}

fn traced() -> Traced {
    let (disk, dir) = (Disk::tmpfs(64 * MIB), temp_dir("trace"));
    let file = dir.path().join("trace");
    let builder = Pool::builder().branch_with("a", disk.path(), "headroom = \"1MiB\"");
    let builder = builder.mount_args(["--trace-requests".into(), file.clone()]);
    Traced { pool: builder.mount(), file, _disk: disk, _dir: dir }
}

impl Traced {
    /// Waits for a line that has all these pieces.
    #[track_caller]
    fn expect(&self, pieces: &[&str]) {
        let has = |line: &str| pieces.iter().all(|piece| line.contains(piece));
        let found = || fs::read_to_string(&self.file).unwrap_or_default().lines().any(has);
        eventually(&format!("a line with {pieces:?}"), found);
    }

    /// What the kernel asks while somebody works. What nobody waits for is left out: it may come later. So are the
    /// attributes of the root, which the marks here ask for as well.
    fn requests_of(&self, work: impl FnOnce()) -> Vec<String> {
        let mark = |name: &str| {
            let name = format!("{name}-{}", fs::read_to_string(&self.file).unwrap_or_default().len());
            fs::metadata(self.pool.join(&name)).unwrap_err();
            self.expect(&[" lookup node=1 ", &name]);
            name
        };
        let begin = mark("begin");
        work();
        let end = mark("end");
        let text = fs::read_to_string(&self.file).unwrap();
        let asked = text.lines().skip_while(|line| !line.contains(&begin)).skip(1);
        let of_work = asked.take_while(|line| !line.contains(&end)).filter(|line| !line.contains(" getattr node=1 "));
        let operations = of_work.filter_map(|line| line.split(' ').nth(2));
        let waits = |operation: &&str| !matches!(*operation, "release" | "releasedir" | "forget" | "batch_forget");
        operations.filter(waits).map(str::to_owned).collect()
    }

    /// A directory of `files` files of which the kernel knows nothing yet.
    fn unknown_directory(&mut self, files: usize) -> PathBuf {
        let dir = self.pool.join("dir");
        fs::create_dir(&dir).unwrap();
        for number in 0..files {
            fs::write(dir.join(format!("file{number}")), "x").unwrap();
        }
        self.pool.remount();
        dir
    }
}

#[test]
fn a_trace_of_requests_shows_a_create_a_stat_and_a_failed_open() {
    let mut traced = traced();
    let path = traced.pool.join("new");
    fs::write(&path, "x").unwrap();
    traced.expect(&["lookup node=1 name=\"new\" pid=", "result=ok found=nothing"]);
    traced.expect(&["create node=1 name=\"new\" pid=", " handler_us=", "result=ok found="]);
    traced.pool.remount();
    fs::metadata(&path).unwrap();
    let made = |line: &&str| line.contains("lookup node=1 name=\"new\"") && !line.ends_with("nothing");
    let node = || {
        let text = fs::read_to_string(&traced.file).unwrap();
        text.lines().find(made)?.rsplit_once("found=").map(|(_, node)| node.to_owned())
    };
    eventually("the stat is a lookup", || node().is_some());
    fs::remove_file(traced.pool.on("a", "new")).unwrap();
    fs::File::open(&path).unwrap_err();
    traced.expect(&[&format!(" open node={} pid=", node().unwrap()), "result=E"]);
}

#[test]
fn ls_asks_once_for_labels_and_gets_attributes_with_the_listing() {
    const FILES: usize = 1000;
    let mut traced = traced();
    let dir = traced.unknown_directory(FILES);
    let before = fs::metadata(&traced.file).unwrap().len() as usize;
    let shown = run("ls", ["-l".as_ref(), dir.as_os_str()]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout).lines().count(), FILES + 1);
    traced.pool.stop();
    let text = fs::read_to_string(&traced.file).unwrap().split_off(before);
    let requests = |piece: &str| text.lines().filter(|line| line.contains(piece)).count();
    assert_eq!(requests(" lookup "), 1, "only of the directory");
    assert!(requests("\"security.selinux\"") <= 1 || selinux(), "{}", requests("\"security.selinux\""));
    assert!(requests("\"system.posix_acl_access\"") <= FILES + 1);
    assert!(requests(" readdir") < FILES / 50, "{}", requests(" readdir"));
}

#[test]
fn rm_looks_up_nothing_that_came_with_the_listing() {
    let mut traced = traced();
    let dir = traced.unknown_directory(1000);
    let before = fs::metadata(&traced.file).unwrap().len() as usize;
    run("rm", ["-r".as_ref(), dir.as_os_str()]);
    traced.pool.stop();
    let text = fs::read_to_string(&traced.file).unwrap().split_off(before);
    let requests = |piece: &str| text.lines().filter(|line| line.contains(piece)).count();
    assert_eq!((requests(" lookup "), requests(" unlink ")), (1, 1000), "only of the directory");
}

/// As `docs/performance.md` lists them.
#[test]
fn common_operations_send_what_the_page_on_performance_says() {
    let traced = traced();
    let path = |name: &str| traced.pool.join(name);
    fs::write(path("first"), "x").unwrap();
    let create = traced.requests_of(|| fs::write(path("file"), "text").unwrap());
    assert_eq!(create, ["lookup", "create", "getxattr"]);
    let stat = traced.requests_of(|| assert_eq!(fs::metadata(path("file")).unwrap().len(), 4));
    assert!(stat.len() <= 1 && stat.iter().all(|request| request == "statx"), "as it was written: {stat:?}");
    let again = traced.requests_of(|| assert_eq!(fs::metadata(path("file")).unwrap().len(), 4));
    assert_eq!(again, [""; 0], "the kernel knows it");
    let read = traced.requests_of(|| assert_eq!(fs::read(path("file")).unwrap(), b"text"));
    assert_eq!(read.iter().filter(|request| *request == "open").count(), 1, "{read:?}");
    let options = fs::File::options().read(true).write(true).create(true).to_owned();
    let create = traced.requests_of(|| options.open(path("both")).unwrap().write_all(b"text").unwrap());
    assert_eq!(create, ["lookup", "create", "getxattr"], "for reading too");
    let open = traced.requests_of(|| drop(fs::File::open(path("both")).unwrap()));
    assert_eq!(open, ["open"], "a write changes no rights");
    let rename = traced.requests_of(|| fs::rename(path("file"), path("other")).unwrap());
    assert_eq!(rename, ["lookup", "rename"]);
    let unlink = traced.requests_of(|| fs::remove_file(path("other")).unwrap());
    assert_eq!(unlink, ["unlink"]);
    let copy =
        traced.requests_of(|| drop(run("cp", ["-a".as_ref(), path("first").as_os_str(), path("copy").as_os_str()])));
    for (request, times) in [("open", 1), ("create", 1), ("copy_file_range", 1), ("setxattr", 1)] {
        assert_eq!(copy.iter().filter(|asked| *asked == request).count(), times, "{request} in {copy:?}");
    }
    assert!(copy.len() <= 20, "{copy:?}");
}

fn selinux() -> bool {
    fs::read_to_string("/proc/filesystems").unwrap().contains("selinuxfs")
}

#[test]
fn who_wants_names_only_makes_the_daemon_read_few_attributes() {
    let mut traced = traced();
    let dir = traced.unknown_directory(1000);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1000);
    let known = traced.pool.status().inodes;
    assert!(known < 100, "the daemon knows {known} inodes");
}

#[test]
fn a_trace_that_cannot_be_written_is_said_at_mount() {
    let disk = Disk::tmpfs(MIB * 8);
    let refused = |file: &Path| {
        let builder = Pool::builder().branch("a", disk.path()).mount_args(["--trace-requests".into(), file.to_owned()]);
        builder.prepare().try_start().unwrap_err()
    };
    let missing = refused(Path::new("/nowhere/trace"));
    assert!(missing.contains("--trace-requests /nowhere/trace: No such file"), "{missing}");
    let device = refused(Path::new("/dev/full"));
    assert!(device.contains("trace requests to /dev/full: not a regular file"), "{device}");
    let dir = temp_dir("trace");
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Without a reader an open for writing fails, and must not wait.
    assert!(refused(&fifo).contains("No such device or address"));
    let public = dir.path().join("public");
    std::fs::write(&public, "").unwrap();
    std::fs::set_permissions(&public, std::fs::Permissions::from_mode(0o644)).unwrap();
    let told = refused(&public);
    assert!(told.contains("other users can read it"), "{told}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&public, &link).unwrap();
    assert!(refused(&link).contains("symbolic links"));
}

#[test]
fn a_trace_in_the_pool_or_on_a_branch_is_refused() {
    let (disk, dir) = (Disk::tmpfs(MIB * 8), temp_dir("trace"));
    let mut pool = Pool::builder().branch("a", disk.path()).prepare();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(pool.mount_point(), &link).unwrap();
    for file in [pool.join("trace"), link.join("trace"), disk.path().join("trace")] {
        let output = pool.umbrella([
            "mount".as_ref(),
            "--trace-requests".as_ref(),
            file.as_os_str(),
            pool.config_path().as_os_str(),
        ]);
        let said = super::support::pool::text(&output);
        assert!(!output.status.success() && said.contains("lies in the pool"), "{said}");
    }
    pool.start();
}

#[test]
fn a_full_disk_ends_the_trace_and_nothing_else() {
    let (disk, small) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(MIB));
    let file = small.path().join("trace");
    let pool = Pool::builder().branch("a", disk.path()).mount_args(["--trace-requests".into(), file]).mount();
    fs::write(small.path().join("rest"), vec![0; 2 * MIB as usize]).unwrap_err();
    let said = || pool.log().contains("cannot write the trace of requests");
    let mut number = 0;
    eventually("the trace ends", || {
        for _ in 0..200 {
            number += 1;
            fs::create_dir(pool.join(number.to_string())).unwrap();
        }
        said()
    });
    fs::write(pool.join("later"), "x").unwrap();
    assert_eq!(fs::read_to_string(pool.join("later")).unwrap(), "x");
}
