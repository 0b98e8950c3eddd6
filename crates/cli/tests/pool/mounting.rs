//! One mount after another, what mounting and unmounting say, and the general options of a mount.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{SigHandler, Signal};
use rustix::mount::UnmountFlags;

use crate::disks;
use crate::support::disk::{Disk, is_mount_point, unmount};
use crate::support::looped::Looped;
use crate::support::pool::{Pool, UMBRELLA, text};
use crate::support::process::{Process, is_alive, signal};
use crate::support::{MIB, TIMEOUT, errno, eventually, poll, run};

/// As umount(8): a process that another test starts holds a copy of our files until it runs its program.
fn umount(mount: &Path) {
    eventually("it is unmounted", || rustix::mount::unmount(mount, UnmountFlags::empty()).is_ok());
}

/// `umbrella mount CONFIG --daemon`, with more arguments.
fn mount(pool: &Pool, more: &[&Path]) -> Command {
    let mut command = pool.command();
    command.arg("mount").arg(pool.config_path()).arg("--daemon").arg("--log").arg(pool.dir().join("log")).args(more);
    command
}

#[track_caller]
fn must_mount(pool: &Pool) {
    let output = mount(pool, &[]).output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output), pool.log());
}

#[test]
fn a_mount_right_after_an_unmount_is_never_refused() {
    let (_disks, builder) = disks(["a", "b"]);
    let pool = builder.keys("[staging]\nmode = \"always\"").prepare();
    must_mount(&pool);
    for round in 0..30 {
        fs::write(pool.join(format!("file{round}")), "staged until the end").unwrap();
        umount(&pool.mount_point());
        must_mount(&pool);
        assert!(pool.join(format!("file{round}")).exists(), "round {round}");
    }
    pool.say(["unmount"]);
}

#[test]
fn a_start_that_fails_makes_nothing_on_any_disk() {
    let (disks, builder) = disks(["a", "b"]);
    let pool = builder.prepare();
    let state = pool.dir().join("state");
    unmount(&disks[1].path());
    fs::remove_dir(disks[1].path()).unwrap();
    let output = mount(&pool, &[]).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("--allow-missing"), "{}", text(&output));
    let below = |dir: &Path| -> Vec<_> { fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect() };
    assert_eq!([below(&state), below(&disks[0].path())].concat(), Vec::<std::path::PathBuf>::new());
    fs::create_dir(disks[1].path()).unwrap();
    disks[1].mount();
    must_mount(&pool);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(below(&state).iter().map(|own| mode(own)).collect::<Vec<_>>(), [0o700]);
    pool.say(["unmount"]);
}

/// A process that stands still until this is dropped, also when a test fails.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        signal(pid, Signal::SIGSTOP);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if is_alive(self.0) {
            signal(self.0, Signal::SIGCONT);
        }
    }
}

/// Stops the daemon of a pool, unmounts it, and mounts what has its branch; gives the process ids before and after.
fn mount_while_it_ends(pool: &Pool, more: &[&Path], mount_point: &Path) -> (u32, u32) {
    let old = pool.status().pid;
    let stopped = Stopped::new(old);
    umount(&pool.mount_point());
    let said = pool.dir().join("said");
    let mut next = mount(pool, more).stdout(Stdio::null()).stderr(File::create(&said).unwrap()).spawn().unwrap();
    eventually("who waits is told so", || fs::read_to_string(&said).unwrap().contains("waiting for its daemon"));
    assert!(next.try_wait().unwrap().is_none() && is_alive(old) && !is_mount_point(mount_point));
    drop(stopped);
    let ended = poll(TIMEOUT, || next.try_wait().unwrap()).expect("it is mounted");
    assert!(ended.success(), "{}\n{}", fs::read_to_string(&said).unwrap(), pool.log());
    (old, pool.status().pid)
}

#[test]
fn a_mount_waits_for_the_daemon_that_had_the_mount_point_and_says_so() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    must_mount(&pool);
    let (old, new) = mount_while_it_ends(&pool, &[], &pool.mount_point());
    assert!(old != new && !is_alive(old));
    pool.say(["unmount"]);
}

#[test]
fn a_mount_waits_for_the_daemon_that_had_its_branch_and_says_so() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    must_mount(&pool);
    let elsewhere = pool.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (old, new) = mount_while_it_ends(&pool, &["--at".as_ref(), &elsewhere], &elsewhere);
    assert!(old != new && !is_alive(old));
    assert!(is_mount_point(&elsewhere));
    pool.say(["unmount".as_ref(), elsewhere.as_os_str()]);
}

extern "C" fn nothing(_signal: i32) {}

/// A process asks for many names, and is interrupted all the time.
fn interrupted_requests(pool: &Pool) {
    let folder = pool.mount_point();
    let mut asker = Process::start(|parent| {
        // SAFETY: the handler does nothing.
        let _ = unsafe { nix::sys::signal::signal(Signal::SIGUSR1, SigHandler::Handler(nothing)) };
        parent.say(1);
        for number in 0..3000 {
            let _ = fs::metadata(folder.join(format!("absent{number}")));
        }
        parent.hear()
    });
    assert_eq!(asker.hear(), Some(1));
    for _ in 0..3000 {
        signal(asker.pid(), Signal::SIGUSR1);
        std::thread::yield_now();
    }
    asker.say(0);
    assert_eq!(asker.exit_code(), Some(0));
}

#[test]
fn the_log_of_a_pool_that_is_well_has_no_warning_and_no_error() {
    for staging in ["", "[staging]\nmode = \"always\"\n"] {
        for by_umount in [true, false] {
            let (_disks, builder) = disks(["a", "b"]);
            let mut pool = builder.keys(staging).mount();
            fs::create_dir_all(pool.join("d/e")).unwrap();
            fs::write(pool.join("d/e/file"), "x").unwrap();
            fs::write(pool.join("d/gone"), "x").unwrap();
            fs::remove_file(pool.join("d/gone")).unwrap();
            fs::rename(pool.join("d/e"), pool.join("e")).unwrap();
            for number in 0..300 {
                fs::create_dir(pool.join(format!("dir{number}"))).unwrap();
                fs::write(pool.join(format!("dir{number}/file")), "x").unwrap();
            }
            for number in 100..200 {
                fs::remove_dir_all(pool.join(format!("dir{number}"))).unwrap();
            }
            interrupted_requests(&pool);
            assert!(pool.status().warnings.is_empty(), "{:?}", pool.status().warnings);
            if by_umount {
                umount(&pool.mount_point());
                assert_eq!(pool.wait_for_end(), Some(true), "{}", pool.log());
            } else {
                pool.stop();
            }
            let log = pool.log();
            assert!(!log.contains("WARN") && !log.contains("ERROR"), "{staging:?}, umount(8): {by_umount}\n{log}");
        }
    }
}

#[test]
fn a_limit_of_descriptors_that_is_really_short_is_warned_of() {
    let disk = Disk::tmpfs(8 * MIB);
    // As a shell starts it.
    let pool = Pool::builder().branch("a", disk.path()).launched_by(["prlimit", "--nofile=256:"]).mount();
    let warned = || pool.status().warnings.iter().any(|warning| warning.contains("descriptors"));
    assert!(!warned(), "the daemon raises its limit");
    run("prlimit", ["--pid", &pool.pid().to_string(), "--nofile=1000:"]);
    assert!(warned());
}

/// What a scene gives on a pool and on a plain ext4, both mounted with these options.
fn on_both<T: std::fmt::Debug + PartialEq>(options: &str, scene: impl Fn(&Path) -> T) {
    let (plain, branch) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let pool = Pool::builder().branch("a", branch.path()).options(options).mount();
    run("mount", ["-o".as_ref(), format!("remount,{options}").as_ref(), plain.path().as_os_str()]);
    assert_eq!(scene(&pool.mount_point()), scene(&plain.path()), "{options}");
}

#[test]
fn links_are_not_followed_on_a_mount_with_nosymfollow() {
    let scene = |folder: &Path| {
        fs::write(folder.join("file"), "x").unwrap();
        symlink("file", folder.join("link")).unwrap();
        (errno(&fs::read(folder.join("link"))), fs::read_link(folder.join("link")).unwrap())
    };
    on_both("nosymfollow", scene);
    on_both("symfollow", scene);
}

#[test]
fn of_options_that_forbid_something_the_last_holds() {
    let scene = |folder: &Path| {
        let program = folder.join("program");
        if let Ok(mut file) = File::create(&program) {
            file.write_all(b"#!/bin/sh\nexit 3\n").unwrap();
            drop(file);
            run("chmod", ["755".as_ref(), program.as_os_str()]);
        }
        let run = Command::new(&program).status();
        (errno(&File::create(folder.join("new"))), errno(&run))
    };
    on_both("noexec", scene);
    on_both("noexec,exec", scene);
    on_both("ro", scene);
    on_both("ro,rw,nosuid,nodev", scene);
}

#[test]
fn options_that_a_pool_cannot_honour_are_refused_by_name() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    for (option, told) in [
        ("sync", "mount the branches with it"),
        ("lazytime", "mount the branches with it"),
        ("remount", "cannot be remounted"),
        ("context=system_u:object_r:tmp_t:s0", "no security label"),
        ("nosuch", "honoured: ro, rw"),
    ] {
        let output = pool.umbrella(["mount".as_ref(), pool.config_path().as_os_str(), "-o".as_ref(), option.as_ref()]);
        assert!(!output.status.success() && text(&output).contains(told), "{option}: {}", text(&output));
    }
    assert!(!is_mount_point(&pool.mount_point()));
}

/// mount(8) makes a loop device of the configuration, and calls us with that in its place.
#[test]
fn a_configuration_that_is_mounted_as_an_image_is_refused_by_name() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    let looped = Looped::on(&pool.config_path());
    let helper = pool.dir().join("mount.fuse.umbrella");
    symlink(UMBRELLA, &helper).unwrap();
    let output = Command::new(&helper).arg(looped.path()).arg(pool.mount_point()).args(["-o", "rw"]).output().unwrap();
    assert!(
        !output.status.success() && text(&output).contains("leave out the mount option \"loop\""),
        "{}",
        text(&output)
    );
    assert!(!is_mount_point(&pool.mount_point()));
}

#[test]
fn a_pool_gets_its_requests_as_configured_and_says_how() {
    let disk = Disk::ext4(32 * MIB);
    for key in ["dev", "auto", "io_uring"] {
        let pool = Pool::builder().branch("disk", disk.path()).keys(&format!("transport = {key:?}")).mount();
        fs::write(pool.join("file"), "text").unwrap();
        assert_eq!(fs::read_to_string(pool.join("file")).unwrap(), "text");
        let said = pool.say(["status"]);
        let how = said.lines().find(|line| line.starts_with("requests ")).unwrap_or_else(|| panic!("{said}"));
        match key {
            "dev" => assert_eq!(how, "requests from /dev/fuse"),
            // A kernel without it is no reason not to mount.
            _ => assert!(how == "requests over io_uring" || how.contains(", not over io_uring: "), "{said}"),
        }
    }
}

#[test]
fn nothing_of_a_pool_over_io_uring_is_left_when_its_daemon_is_killed() {
    let disk = Disk::ext4(32 * MIB);
    let mut pool = Pool::builder().branch("disk", disk.path()).keys("transport = \"io_uring\"").mount();
    fs::write(pool.join("file"), "text").unwrap();
    let started = children(pool.pid());
    pool.kill_9();
    eventually("the processes that it started are gone", || !started.iter().any(|child| is_alive(*child)));
    pool.start();
    assert_eq!(fs::read_to_string(pool.join("file")).unwrap(), "text");
}

/// Processes that a process started.
fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after_name.split(' ').nth(1) == Some(&parent.to_string())
    };
    all.filter(is_child).collect()
}
