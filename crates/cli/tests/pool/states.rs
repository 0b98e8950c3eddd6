//! A pool that is not simply mounted or not: detached with files open, dead, one of several; and what has no place yet.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use nix::sys::signal::Signal;
use rustix::mount::UnmountFlags;

use crate::support::disk::is_mount_point;
use crate::support::foreign::delay;
use crate::support::pool::{Pool, UMBRELLA, text};
use crate::support::process::signal;
use crate::support::{eventually, temp_dir};
use crate::{disks, pool};

#[test]
fn a_detached_pool_is_called_so_until_its_last_file_is_closed() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.mount();
    fs::write(pool.join("file"), "still here").unwrap();
    let open = File::open(pool.join("file")).unwrap();
    let said = pool.say(["unmount", "--lazy"]);
    assert!(said.contains("files still open: 1;"), "{said}");
    assert!(!is_mount_point(&pool.mount_point()));
    let status = text(&pool.umbrella(["status"]));
    assert!(status.contains("is detached") && status.contains(&pool.pid().to_string()), "{status}");
    assert!(pool.status().detached);
    let again = pool.umbrella(["unmount"]);
    assert!(!again.status.success() && text(&again).contains("is detached"), "{}", text(&again));
    let lazily = pool.umbrella(["unmount", "--lazy"]);
    assert!(lazily.status.success() && text(&lazily).contains("is detached"), "{}", text(&lazily));
    let config = pool.config_path();
    let mounted = pool.umbrella(["mount".as_ref(), config.as_os_str(), "--daemon".as_ref()]);
    assert!(!mounted.status.success() && text(&mounted).contains("is detached"), "{}", text(&mounted));
    assert_eq!(std::io::read_to_string(&open).unwrap(), "still here");
    drop(open);
    assert_eq!(pool.wait_for_end(), Some(true), "{}", pool.log());
    pool.start();
    assert!(!pool.status().detached);
    pool.stop();
}

#[test]
fn a_pool_that_is_unmounted_and_still_has_work_to_do_is_said_to_be_ending() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.keys("[staging]\nmode = \"always\"").mount();
    fs::write(pool.join("file"), "staged until the end").unwrap();
    let slow = delay(pool.pid(), "fsync,fdatasync", "delay_enter", "3s");
    let mount = pool.mount_point();
    eventually("it is unmounted", || rustix::mount::unmount(&mount, UnmountFlags::empty()).is_ok());
    let status = pool.umbrella(["status"]);
    let told = text(&status);
    assert!(status.status.success() && told.contains("finishes its work"), "{told}");
    assert!(!told.contains("files still open"), "{told}");
    assert!(pool.status().ending);
    drop(slow);
    assert_eq!(pool.wait_for_end(), Some(true), "{}", pool.log());
}

#[test]
fn a_pool_whose_daemon_ends_while_it_is_asked_is_said_to_be_ending() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    let socket = std::os::unix::net::UnixListener::bind(pool.run_dir().join("gone.sock")).unwrap();
    // Hangs up on everybody, as a daemon does that is at its very end.
    std::thread::spawn(move || socket.incoming().for_each(drop));
    for args in [&["status"][..], &["status", "/gone"]] {
        let status = pool.umbrella(args);
        assert!(status.status.success() && text(&status).contains("/gone is unmounted"), "{}", text(&status));
    }
    assert_eq!(pool.json(["status"]), [serde_json::json!({ "schema": 1, "mount": "/gone", "ending": true })]);
}

/// The kernel is handing over what closing the files asks for while it lets the mount go.
#[test]
fn a_detached_pool_ends_well_however_many_files_are_closed_at_once() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.mount();
    for round in 0..10 {
        let open: Vec<File> =
            (0..100).map(|number| File::create(pool.join(format!("file-{number}"))).unwrap()).collect();
        pool.say(["unmount", "--lazy"]);
        drop(open);
        assert_eq!(pool.wait_for_end(), Some(true), "round {round}: {}", pool.log());
        pool.start();
    }
    pool.stop();
}

#[test]
fn who_meets_what_a_killed_daemon_left_is_told_of_the_staged_files() {
    let (_disks, builder) = disks(["a"]);
    let keys = "[staging]\nmode = \"always\"\nmax_age = \"1h\"\n";
    let mut pool = builder.keys(keys).mount();
    let (_other_disks, other) = disks(["a"]);
    let mut other = other.keys(keys).mount();
    for pool in [&mut pool, &mut other] {
        fs::write(pool.join("file"), "waits").unwrap();
        signal(pool.pid(), Signal::SIGKILL);
        pool.wait_for_end();
    }
    let areas_told = |said: &str, pool: &Pool| {
        let areas = said.split("staged files wait in memory (").nth(1);
        areas.is_some_and(|areas| areas.contains(&*pool.dir().to_string_lossy()))
    };
    let mount = pool.mount_point();
    let of_all = text(&pool.umbrella(["status"]));
    assert!(of_all.contains("is gone and left a dead mount") && areas_told(&of_all, &pool), "{of_all}");
    let of_one = text(&pool.umbrella(["status".as_ref(), mount.as_os_str()]));
    assert!(of_one.contains("is gone and left a dead mount"), "{of_one}");
    let unmounted = pool.umbrella(["unmount"]);
    assert!(unmounted.status.success(), "{}", text(&unmounted));
    // Messages about one pool name its own memory, and no other's.
    for said in [&of_one, &text(&unmounted)] {
        assert!(areas_told(said, &pool) && !areas_told(said, &other), "{said}");
        assert!(said.contains("before you switch the machine off"), "{said}");
    }
    other.start();
    other.stop();
    pool.start();
    assert_eq!(fs::read(pool.join("file")).unwrap(), b"waits");
    pool.stop();
}

#[test]
fn what_a_killed_daemon_left_is_named_and_the_only_one_is_taken_away_unasked() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.mount();
    signal(pool.pid(), Signal::SIGKILL);
    pool.wait_for_end();
    let mount = pool.mount_point();
    for args in [&["status"][..], &["status", mount.to_str().unwrap()], &["enforce"]] {
        let said = text(&pool.umbrella(args));
        assert!(said.contains("is gone and left a dead mount"), "{args:?}: {said}");
        assert!(said.contains(mount.to_str().unwrap()), "{args:?}: {said}");
    }
    let file = pool.join("file");
    let said = text(&pool.umbrella(["explain".as_ref(), file.as_os_str()]));
    assert!(said.contains("is gone and left a dead mount"), "{said}");
    pool.say(["unmount"]);
    assert!(!is_mount_point(&mount));
    let said = text(&pool.umbrella(["status"]));
    assert!(said.contains("no pool is mounted"), "{said}");
    pool.start();
    signal(pool.pid(), Signal::SIGKILL);
    pool.wait_for_end();
    pool.say(["unmount".as_ref(), mount.as_os_str()]);
    assert!(!is_mount_point(&mount));
}

#[test]
fn several_pools_have_a_line_each_and_in_one_of_them_it_is_meant() {
    let pool = pool(["a"], "");
    let other = temp_dir("other");
    for name in ["mnt", "disk"] {
        fs::create_dir(other.path().join(name)).unwrap();
    }
    let (mount, disk) = (other.path().join("mnt"), other.path().join("disk"));
    let config = other.path().join("pool.toml");
    let text =
        format!("mount = {mount:?}\n[[branch]]\nname = \"other disk\"\npath = {disk:?}\nrequire_mount = false\n");
    fs::write(&config, text).unwrap();
    let log = other.path().join("log");
    pool.say(["mount".as_ref(), config.as_os_str(), "--daemon".as_ref(), "--log".as_ref(), log.as_os_str()]);
    let said = pool.say(["status"]);
    let json = pool.json(["status"]);
    let inside = pool.command().arg("status").current_dir(&mount).output().unwrap();
    let ambiguous = pool.umbrella(["enforce"]);
    pool.say(["unmount".as_ref(), mount.as_os_str()]);
    for mount in [&mount, &pool.mount_point()] {
        let line = said.lines().find(|line| line.starts_with(mount.to_str().unwrap())).expect(&said);
        assert!(line.split_whitespace().count() >= 6, "{line}");
        assert!(
            json[0].as_array().unwrap().iter().any(|one| Path::new(one["mount"].as_str().unwrap()) == mount),
            "{json:?}"
        );
    }
    let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
    assert!(inside.contains("other disk"), "{inside}");
    assert!(crate::support::pool::text(&ambiguous).contains("name one: "), "{ambiguous:?}");
}

#[test]
fn a_path_whose_directories_do_not_exist_is_explained_as_a_new_file() {
    let rules = "[[rule]]\nname = \"films\"\nmatch = [{ glob = \"/films/**\", to = [\"b\"] }]\n";
    let pool = pool(["a", "b"], rules);
    let told = pool.explain("films/2026/november/new.mkv");
    assert!(!told.exists && told.on.is_empty(), "{told:?}");
    assert_eq!(told.belongs.as_deref(), Some("b"));
    assert_eq!(told.path, "/films/2026/november/new.mkv");
    fs::write(pool.join("file"), "x").unwrap();
    let below = pool.join("file/below");
    let output = pool.umbrella(["explain".as_ref(), below.as_os_str()]);
    assert!(!output.status.success(), "nothing can be below a file: {}", text(&output));
}

#[test]
fn a_new_file_begins_where_there_is_room_and_not_on_a_branch_that_is_full_to_the_last_byte() {
    let (disks, builder) = crate::disks(["a", "b"]);
    let pool = builder.default(&["a", "any"]).mount();
    // Past the pool, so that nothing moves.
    let mut filler = File::create(disks[0].join("filler")).unwrap();
    let page = [0; 4096];
    while filler.write_all(&page).is_ok() {}
    eventually("the space is seen", || pool.branch_status("a").free.0 == 0);
    assert_eq!(pool.explain("new").belongs.as_deref(), Some("b"));
    fs::write(pool.join("new"), "x").unwrap();
    assert_eq!(pool.found_on("new"), ["b"]);
}

#[test]
fn a_limit_on_the_size_of_files_where_the_daemon_is_started_is_not_the_daemons() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.keys("").prepare();
    let (config, log) = (pool.config_path(), pool.dir().join("daemon.log"));
    let script = "ulimit -S -f 64; exec \"$0\" mount \"$1\" --daemon --log \"$2\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, UMBRELLA]).args([&config, &log]);
    for (name, value) in pool.command().get_envs() {
        shell.env(name, value.unwrap());
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let written = fs::write(pool.join("file"), vec![1; 8 << 20]);
    let status = pool.umbrella(["status"]);
    pool.say(["unmount"]);
    assert!(written.is_ok() && status.status.success(), "{written:?} {}", text(&status));
}
