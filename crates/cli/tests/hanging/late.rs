//! Files that a branch makes after its caller has got an error: they hide nothing that was made elsewhere meanwhile.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::disk::Disk;
use crate::support::foreign::{HELD, Mirror, fail};
use crate::support::pool::Pool;
use crate::support::{MIB, TIMEOUT, eventually, poll};
use crate::{B_BY_NAME, alone, wait_until};

const KEYS: &str =
    "probe_interval = \"200ms\"\nprobe_timeout = \"1s\"\non_branch_error = \"skip\"\ncache_timeout = \"0s\"";

/// Files whose names end in ".b" belong on a mirror.
fn pool(a: &Disk, b: &Mirror) -> Pool {
    let builder = Pool::builder().branch("a", a.path()).branch("b", b.path()).default(&["a"]);
    let pool = builder.rules(B_BY_NAME).keys(KEYS).mount();
    wait_until(&pool, "b", true);
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/there.b"), "the directory is on both").unwrap();
    pool
}

/// The first try fails; as soon as the branch is away another makes it elsewhere.
fn until_made<T>(mut make: impl FnMut() -> io::Result<T>) -> T {
    let mut failed = 0;
    let made = poll(TIMEOUT, || make().inspect_err(|_| failed += 1).ok());
    assert!(failed > 0, "the first is too late");
    made.expect("it can be made elsewhere")
}

#[test]
fn a_file_that_a_branch_makes_too_late_hides_no_other() {
    let _alone = alone();
    let (a, b) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&a, &b);
    let path = pool.join("dir/letter.b");
    let delayed = b.delay_of("dir/letter.b", "open,openat,openat2,creat", HELD);
    let mut file = until_made(|| OpenOptions::new().write(true).create_new(true).mode(0o6755).open(&path));
    assert!(a.join("dir/letter.b").exists());
    file.write_all(b"important").unwrap();
    file.sync_all().unwrap();
    // As cp -p and tar do.
    file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))).unwrap();
    drop(file);
    drop(delayed);
    wait_until(&pool, "b", true);
    eventually("it is as it was written", || fs::read(&path).is_ok_and(|found| found == b"important"));
    pool.settle();
    assert_eq!(fs::read(&path).unwrap(), b"important");
    fs::remove_file(&path).unwrap();
    assert!(!path.exists() && !a.join("dir/letter.b").exists() && !b.below().join("dir/letter.b").exists());
}

#[test]
fn what_else_a_branch_makes_too_late_goes_as_well() {
    let _alone = alone();
    let (a, b) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&a, &b);
    let delayed = b.delay("symlink,symlinkat,mknod,mknodat,link,linkat", "delay_enter", HELD);
    until_made(|| std::os::unix::fs::symlink("here", pool.join("dir/symlink.b")));
    drop(delayed);
    wait_until(&pool, "b", true);
    eventually("the late one is gone", || !b.below().join("dir/symlink.b").is_symlink());
    assert_eq!(fs::read_link(pool.join("dir/symlink.b")).unwrap().to_str(), Some("here"));
    let delayed = b.delay("link,linkat", "delay_enter", HELD);
    fs::hard_link(pool.join("dir/there.b"), pool.join("dir/link.b")).unwrap_err();
    drop(delayed);
    File::create(pool.join("dir/link.b")).and_then(|mut file| file.write_all(b"another")).ok();
    wait_until(&pool, "b", true);
    eventually("no second name is left", || {
        fs::metadata(pool.join("dir/there.b")).is_ok_and(|it| std::os::unix::fs::MetadataExt::nlink(&it) == 1)
    });
}

/// Until it has said so it is not used, so that nobody gets the name in between.
#[test]
fn an_empty_file_with_a_name_that_a_branch_may_have_made_before_stays() {
    let _alone = alone();
    let (a, mut b) = (Disk::ext4(32 * MIB), Mirror::new());
    let pool = pool(&a, &b);
    let name = b.below().join("dir/letter.b");
    fs::set_permissions(pool.join("dir"), Permissions::from_mode(0o777)).unwrap();
    // It makes the file, and then fails to give it its owner and to take it away.
    let calls = "chown,lchown,fchown,fchownat,chmod,fchmod,fchmodat,unlink,unlinkat";
    let failing = fail(b.pid(), calls, "EIO", name.to_str().unwrap());
    let touched = Command::new("touch").arg(pool.join("dir/letter.b")).uid(1000).gid(1000).output().unwrap();
    assert!(!touched.status.success() && name.exists(), "{touched:?}");
    eventually("it is known", || pool.log().contains("did not confirm a creation"));
    drop(failing);
    wait_until(&pool, "b", true);
    eventually("the branch takes it away before it is used", || !name.exists());
    File::create_new(pool.join("dir/other.b")).unwrap();
    fs::rename(pool.join("dir/other.b"), pool.join("dir/letter.b")).unwrap();
    assert!(name.exists());
    b.kill();
    wait_until(&pool, "b", false);
    b.start();
    wait_until(&pool, "b", true);
    assert!(name.exists() && pool.join("dir/letter.b").exists());
}
