//! Staged files that go to a branch that hangs (a file system on which every change waits), and the messages about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::alone;
use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::{MIB, TIMEOUT, bytes, eventually, poll, run};

/// Nothing can be changed on a file system, until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(disk: &Disk) -> Frozen {
        run("fsfreeze", ["-f".as_ref(), disk.path().as_os_str()]);
        Frozen(disk.path())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[test]
fn an_unmount_and_the_status_name_the_branch_that_holds_up_staged_files() {
    let _alone = alone();
    let (a, hung) = (Disk::tmpfs(64 * MIB), Disk::ext4(64 * MIB));
    let mut pool = Pool::builder()
        .branches([("a", a.path()), ("b", hung.path())])
        .default(&["a"])
        .rules("[staging]\nmode = \"always\"\n[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"] }]\n")
        .mount();
    let frozen = Frozen::new(&hung);
    fs::write(pool.join("file.b"), bytes(1, 1000)).unwrap();
    fs::write(pool.join("other"), bytes(2, 1000)).unwrap();

    let mut unmount = pool.command().arg("unmount").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the other branch has its file", || exists(&pool.on("a", "other")));
    eventually("the status names it", || {
        let status = pool.umbrella(["status"]);
        String::from_utf8_lossy(&status.stdout).contains("branch \"b\" does not answer")
    });
    let ended = poll(TIMEOUT, || unmount.try_wait().unwrap());
    if ended.is_none() {
        drop(frozen);
        let _ = unmount.wait();
        panic!("the unmount does not give up");
    }
    let said = unmount.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("staged files (1) are not on their branches: b has not answered for 30 s"), "{said}");
    assert!(exists(&pool.join("file.b")), "the tree can be used");

    drop(frozen);
    eventually("it answers again", || exists(&pool.on("b", "file.b")));
    eventually("the warning has gone", || {
        let status = pool.umbrella(["status"]);
        !String::from_utf8_lossy(&status.stdout).contains("does not answer")
    });
    pool.stop();
}
