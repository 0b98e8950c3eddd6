//! Copies that change behind the mount, come with a branch, or are changed while the daemon is killed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use rustix::fs::{Dir, Mode, OFlags};

use super::{copy, look, may, set_look, setfacl, two_disks};
use crate::support::MIB;
use crate::support::disk::Disk;
use crate::support::eventually;
use crate::support::pool::Pool;

/// Whether user 1234 may list a directory of the pool.
fn lists(pool: &Pool, name: &str) -> bool {
    may(1234, "1234", &format!("ls {}", pool.join(name).display()))
}

#[test]
fn an_acl_that_is_changed_on_a_branch_counts_from_the_next_look() {
    let (a, b, builder) = two_disks();
    for name in ["alike", "differs"] {
        for disk in [&a, &b] {
            copy(disk, name, (0, 0, 0o750));
            setfacl(&["-m", "u:1234:rwx"], &disk.join(name));
        }
    }
    set_look(&b.join("differs"), (0, 0, 0o2770));
    let pool = builder.keys("cache_timeout = \"0s\"").mount();
    assert!(lists(&pool, "alike") && lists(&pool, "differs"));
    let before = look(&b.join("alike"));
    setfacl(&["-n", "-m", "u:1234:---"], &b.join("alike"));
    assert_eq!(look(&b.join("alike")), before, "the mode is the same");
    for disk in [&a, &b] {
        setfacl(&["-n", "-m", "u:1234:---"], &disk.join("differs"));
    }
    assert!(!lists(&pool, "alike") && !lists(&pool, "differs"));
    setfacl(&["-n", "-m", "u:1234:r-x"], &b.join("alike"));
    assert!(lists(&pool, "alike"), "and back");
}

#[test]
fn a_walk_finds_an_acl_that_was_changed_on_a_branch_before_entries_were_made_there() {
    let (a, b, builder) = two_disks();
    for disk in [&a, &b] {
        copy(disk, "TV", (0, 0, 0o750));
        setfacl(&["-m", "u:1234:rwx"], &disk.join("TV"));
    }
    let pool = builder.mount();
    assert!(lists(&pool, "TV"));
    // Else the kernel would forget the directory, and its next user would meet it for the first time.
    let _in_use = fs::File::open(pool.join("TV")).unwrap();
    setfacl(&["-n", "-m", "u:1234:---"], &b.join("TV"));
    fs::write(pool.join("TV/new.b"), "").unwrap();
    eventually("a walk finds it", || {
        pool.enforce();
        !lists(&pool, "TV")
    });
}

#[test]
fn a_mode_that_is_set_on_a_branch_after_its_return_stays_where_nothing_had_to_be_carried_over() {
    let (a, b, builder) = two_disks();
    for disk in [&a, &b] {
        copy(disk, "dir", (0, 0, 0o755));
    }
    let mut pool = builder.keys("cache_timeout = \"0s\"").mount();
    assert_eq!(look(&pool.join("dir")).2, 0o755);
    a.vanish();
    eventually("a is away", || !pool.is_online("a"));
    for mode in [0o700, 0o755] {
        fs::set_permissions(pool.join("dir"), fs::Permissions::from_mode(mode)).unwrap();
    }
    a.mount();
    eventually("a is back", || pool.is_online("a"));
    assert_eq!(look(&pool.join("dir")).2, 0o755);
    set_look(&a.join("dir"), (0, 0, 0o700));
    for _ in 0..2 {
        assert_eq!([pool.join("dir"), a.join("dir"), b.join("dir")].map(|at| look(&at).2), [0o700, 0o700, 0o755]);
        pool.remount();
    }
}

#[test]
fn a_root_counts_while_it_holds_something() {
    let (a, b, builder) = two_disks();
    fs::write(a.join("file"), "").unwrap();
    set_look(&b.path(), (1000, 1000, 0o700));
    let pool = builder.mount();
    assert_eq!(look(&pool.mount_point()), (0, 0, 0o755));
    fs::write(b.join("secret.b"), "s").unwrap();
    let reads = || may(1234, "1234", &format!("cat {}", pool.join("secret.b").display()));
    eventually("b's root counts", || {
        pool.enforce();
        look(&pool.mount_point()) == (0, 0, 0o700)
    });
    assert!(!reads());
    fs::remove_file(b.join("secret.b")).unwrap();
    eventually("it counts no longer", || {
        pool.enforce();
        look(&pool.mount_point()) == (0, 0, 0o755)
    });
    assert_eq!(look(&b.path()), (1000, 1000, 0o700), "nothing is changed on the disk");
}

#[test]
fn a_branch_that_is_added_closes_the_pool_only_if_its_root_holds_something() {
    let disks = [Disk::ext4(32 * MIB), Disk::ext4(32 * MIB), Disk::ext4(32 * MIB)];
    let [a, empty, full] = &disks;
    fs::write(a.join("file"), "").unwrap();
    fs::write(full.join("theirs"), "").unwrap();
    for disk in [empty, full] {
        set_look(&disk.path(), (1000, 1000, 0o700));
    }
    let pool = Pool::builder().branch("a", a.path()).default(&["a"]).mount();
    for (name, disk, shown) in [("empty", empty, 0o755), ("full", full, 0o700)] {
        pool.say(["branch", "add", name, disk.path().to_str().unwrap()]);
        assert_eq!(look(&pool.mount_point()), (0, 0, shown), "{name}");
        assert_eq!(look(&disk.path()), (1000, 1000, 0o700), "{name}");
    }
}

#[test]
fn daemons_killed_while_users_change_rights_leave_no_directory_that_differs() {
    let (a, b, builder) = two_disks();
    let names: Vec<String> = (0..8).map(|number| format!("dir-{number}")).collect();
    for name in &names {
        copy(&a, name, (0, 0, 0o755));
        copy(&b, name, (0, 0, 0o755));
    }
    let mut pool = builder.mount();
    for round in 0..3 {
        let dirs: Vec<_> = names.iter().map(|name| pool.join(name)).collect();
        let user = std::thread::spawn(move || {
            // Until the daemon is dead.
            for (number, dir) in (0..).zip(dirs.iter().cycle()) {
                let mode = fs::Permissions::from_mode(0o700 | (number % 0o100));
                if chown(dir, Some(number % 5000), Some(number % 3000)).is_err()
                    || fs::set_permissions(dir, mode).is_err()
                {
                    return number;
                }
            }
            unreachable!()
        });
        std::thread::sleep(Duration::from_millis(150 + 70 * round));
        pool.kill_9();
        assert!(user.join().unwrap() > 0, "something was changed in round {round}");
        pool.start();
        for name in &names {
            let shown = look(&pool.join(name));
            assert_eq!((look(&a.join(name)), look(&b.join(name))), (shown, shown), "{name}, round {round}");
        }
        assert!(!pool.status().warnings.iter().any(|warning| warning.contains("repair --equalise")));
    }
}

#[test]
fn a_directory_opened_while_a_branch_was_away_lists_nothing_that_the_branch_denies() {
    let (a, b, builder) = two_disks();
    for (name, on_a) in [("TV", 0o700), ("films", 0o755)] {
        copy(&a, name, (0, 0, on_a));
        copy(&b, name, (0, 0, 0o755));
        fs::write(a.join(name).join("secret"), "").unwrap();
    }
    let pool = builder.mount();
    a.vanish();
    eventually("a is away", || !pool.is_online("a"));
    let open =
        |name: &str| rustix::fs::open(pool.join(name), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let before = ["TV", "films"].map(open);
    a.mount();
    eventually("a is back", || pool.is_online("a"));
    let has_secret = |dir: rustix::fd::OwnedFd| {
        Dir::new(dir).unwrap().any(|entry| entry.unwrap().file_name().to_bytes() == b"secret")
    };
    assert!(has_secret(open("TV")), "root may do all");
    assert_eq!(before.map(has_secret), [false, true]);
}
