//! Another disk in a branch's place.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::disk::{Disk, unmount};
use crate::support::pool::{Pool, text};
use crate::support::{MIB, TIMEOUT, bytes, run, temp_dir};
use crate::{disks, names};

const B_BY_NAME: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";

#[test]
fn a_disk_that_replaces_a_drained_one_takes_new_files() {
    let (_disks, builder) = disks(["a", "b"]);
    let new = Disk::tmpfs(32 * MIB);
    let pool = builder.rules(B_BY_NAME).mount();
    pool.say(["branch", "drain", "b"]);
    pool.say(["branch".as_ref(), "replace".as_ref(), "b".as_ref(), new.path().as_os_str()]);
    assert!(!pool.branch_status("b").draining, "the drain was the old disk's");
    fs::write(pool.join("file.b"), "x").unwrap();
    assert!(new.join("file.b").exists(), "it is on {:?}", pool.found_on("file.b"));
}

#[test]
fn a_configuration_that_names_the_place_of_a_replaced_disk_is_refused() {
    let (disks, builder) = disks(["a", "b"]);
    let new = Disk::tmpfs(32 * MIB);
    let mut pool = builder.rules(B_BY_NAME).mount();
    pool.say(["branch".as_ref(), "replace".as_ref(), "b".as_ref(), new.path().as_os_str()]);
    pool.stop();
    let error = pool.try_start().unwrap_err();
    let by = format!("\"b\" was replaced by the disk at \"{}\"", new.path().display());
    let config = pool.config_path();
    let help = format!("umbrella branch replace b --pool {}`", config.display());
    assert!(error.contains(&by) && error.contains(&help), "{error}");

    let old_text = fs::read_to_string(&config).unwrap();
    let new_text = old_text.replace(&format!("{}", disks[1].path().display()), &format!("{}", new.path().display()));
    assert_ne!(old_text, new_text);
    fs::write(&config, new_text).unwrap();
    let mount = ["mount".as_ref(), config.as_os_str(), OsStr::new("--daemon")];
    let mounted = pool.umbrella(mount);
    assert!(mounted.status.success(), "with the new path it mounts: {}", text(&mounted));
    fs::write(pool.join("file.b"), "x").unwrap();
    assert!(new.join("file.b").exists());
    let unmounted = pool.umbrella(["unmount".as_ref(), pool.mount_point().as_os_str()]);
    assert!(unmounted.status.success(), "{}", text(&unmounted));

    fs::write(&config, old_text).unwrap();
    pool.try_start().expect_err("after another mount too");
    pool.say(["branch".as_ref(), "replace".as_ref(), "b".as_ref(), "--pool".as_ref(), config.as_os_str()]);
    pool.start();
    assert!(pool.is_online("b"), "taken back on purpose");
}

#[test]
fn advice_for_another_disk_can_be_pasted_while_the_pool_is_not_mounted() {
    let (disks, builder) = disks(["a", "b"]);
    let mut pool = builder.mount();
    pool.stop();
    unmount(&disks[1].path());
    disks[1].mount();
    let config = pool.config_path();
    let help = format!("umbrella branch replace b --pool {}", config.display());
    let check = text(&pool.umbrella(["check".as_ref(), config.as_os_str()]));
    assert!(check.contains(&help), "{check}");
    let doctor = text(&pool.umbrella(["doctor".as_ref(), config.as_os_str()]));
    let todo = doctor.lines().skip_while(|line| !line.contains("holds another file system")).nth(1).unwrap_or_default();
    assert!(todo.trim_start().starts_with("-> ") && todo.contains(&help), "{doctor}");
    let error = pool.try_start().unwrap_err();
    assert!(error.contains(&help), "{error}");
    pool.say(["branch".as_ref(), "replace".as_ref(), "b".as_ref(), "--pool".as_ref(), config.as_os_str()]);
    pool.start();
    assert!(pool.is_online("b"));
}

#[test]
fn a_replaced_branch_that_lost_its_marker_is_told_as_that() {
    let (disks, builder) = disks(["a", "b"]);
    let new = Disk::tmpfs(32 * MIB);
    let mut pool = builder.mount();
    let replace = |to: &Disk| ["branch".into(), "replace".into(), "b".into(), to.path().into_os_string()];
    // There and back again: the place of the second is also that of the first.
    pool.say(replace(&new));
    pool.say(replace(&disks[1]));
    pool.stop();
    fs::remove_dir_all(disks[1].join(".umbrella")).unwrap();
    let error = pool.try_start().unwrap_err();
    assert!(error.contains("has no marker") && !error.contains("was replaced by"), "{error}");
}

#[test]
fn what_overflows_onto_a_branch_that_is_being_removed_is_in_the_tree() {
    const ROUNDS: u64 = 8;
    const FILES: u64 = 30;
    let (small, large, other) = (Disk::tmpfs(4 * MIB), Disk::tmpfs(64 * MIB), Disk::tmpfs(64 * MIB));
    fs::write(small.join("filler"), vec![0; 3 * MIB as usize + 700_000]).unwrap();
    let builder = Pool::builder().branch("a", small.path()).branch("b", large.path()).branch("c", other.path());
    let pool = builder.default(&["a", "b", "c"]).mount();
    let file = |number: u64| pool.join(format!("file-{number}"));
    let (mut removed, mut round, start) = (0, 0, Instant::now());
    while round < ROUNDS || (removed == 0 && start.elapsed() < TIMEOUT) {
        let data = |number| bytes(round * FILES + number + 1, 500_000);
        std::thread::scope(|scope| {
            // Each begins on `a`, outgrows it, and goes to the next branch.
            let writer = scope.spawn(|| {
                // The removal comes at another moment in each round.
                std::thread::sleep(std::time::Duration::from_millis(round % 40 * 3));
                (0..FILES).for_each(|number| fs::write(file(number), data(number)).unwrap());
            });
            while !writer.is_finished() {
                removed += u32::from(pool.umbrella(["branch", "remove", "b"]).status.success());
            }
        });
        for number in 0..FILES {
            assert!(fs::read(file(number)).is_ok_and(|found| found == data(number)), "round {round}, file {number}");
        }
        if pool.status().branches.iter().all(|branch| branch.name != "b") {
            assert_eq!(names(&large.path()), [".umbrella"], "nothing is left on a branch that was removed");
            pool.say(["branch".as_ref(), "add".as_ref(), "b".as_ref(), large.path().as_os_str()]);
        }
        (0..FILES).for_each(|number| fs::remove_file(file(number)).unwrap());
        round += 1;
    }
    assert!(removed > 0, "the branch was removed while files were written");
    assert!(pool.metric("umbrella_overflows_done_count") > 0);
}

#[test]
fn disks_at_each_others_place_are_called_by_their_names() {
    let (disks, builder) = disks(["a", "b"]);
    let mut pool = builder.mount();
    pool.stop();
    let config = pool.config_path();
    let text = fs::read_to_string(&config).unwrap();
    let [a, b] = [0, 1].map(|disk: usize| disks[disk].path().display().to_string());
    fs::write(&config, text.replace(&a, "@").replace(&b, &a).replace('@', &b)).unwrap();
    let told = crate::support::pool::text(&pool.umbrella(["check".as_ref(), config.as_os_str()]));
    assert!(told.contains("holds the disk of branch \"b\"") && !told.contains("branch replace"), "{told}");
    let error = pool.try_start().unwrap_err();
    assert!(error.contains("it is the disk of branch \"b\"") && !error.contains("branch replace"), "{error}");
    fs::write(&config, text).unwrap();
    pool.start();
}

#[test]
fn a_branch_that_left_the_configuration_is_missed_until_it_is_removed() {
    let (_disks, builder) = disks(["a", "b"]);
    let mut pool = builder.mount();
    pool.stop();
    let config = pool.config_path();
    let text = fs::read_to_string(&config).unwrap();
    let (without, _) = text.split_at(text.rfind("[[branch]]").unwrap());
    fs::write(&config, without).unwrap();
    pool.start();
    let warned = |pool: &Pool| pool.status().warnings.iter().any(|it| it.contains("branch \"b\" was in this pool"));
    assert!(warned(&pool), "{:?}", pool.status().warnings);
    pool.remount();
    assert!(warned(&pool), "at every mount");
    pool.say(["branch", "remove", "b"]);
    assert!(!warned(&pool));
    pool.remount();
    assert!(!warned(&pool), "{:?}", pool.status().warnings);
}

#[test]
fn a_branch_whose_path_has_changed_is_still_the_disk_that_it_was() {
    let (a, b, fresh) = (Disk::tmpfs(8 * MIB), Disk::ext4(16 * MIB), Disk::ext4(16 * MIB));
    let mut pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).default(&["b"]).mount();
    fs::write(pool.join("file"), "on b").unwrap();
    pool.stop();
    let (file, bare) = (pool.config_path(), temp_dir("bare"));
    let config = fs::read_to_string(&file).unwrap();
    let point_to = |path: &Path| {
        fs::write(&file, config.replace(b.path().to_str().unwrap(), path.to_str().unwrap())).unwrap();
    };
    for (path, expected) in [(bare.path(), "is not mounted, but was"), (&fresh.path(), "another file system")] {
        point_to(path);
        let told = text(&pool.umbrella(["check".as_ref(), file.as_os_str()]));
        assert!(told.contains(expected), "{told}");
    }
    for path in [bare.path(), &fresh.path()] {
        point_to(path);
        let error = pool.try_start().unwrap_err();
        assert!(error.contains("not mounted") || error.contains("another file system"), "{error}");
        assert_eq!(names(path).iter().filter(|name| *name != "lost+found").count(), 0, "nothing is written there");
    }
    // The disk itself may have another mount point.
    run("mount", ["--bind".as_ref(), b.path().as_os_str(), bare.path().as_os_str()]);
    point_to(bare.path());
    let started = pool.try_start();
    let found = fs::read(pool.join("file"));
    pool.stop();
    unmount(bare.path());
    started.unwrap();
    assert_eq!(found.unwrap(), b"on b");
}

#[test]
fn a_disk_that_is_still_in_place_is_not_replaced_and_serves_on() {
    let (_disks, builder) = disks(["a", "b"]);
    let pool = builder.mount();
    fs::write(pool.join("file"), "x").unwrap();
    let (is_over, file) = (AtomicBool::new(false), pool.join("file"));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::read(&file)?;
            }
            std::io::Result::Ok(())
        });
        let refused = pool.umbrella(["branch", "replace", "a", "--force"]);
        is_over.store(true, Ordering::Relaxed);
        let told = text(&refused);
        assert!(!refused.status.success() && told.contains("is still the old disk"), "{told}");
        reader.join().unwrap().expect("the file is read all the time");
    });
    fs::write(pool.join("another"), "x").unwrap();
    pool.expect_on("a", "another");
}
