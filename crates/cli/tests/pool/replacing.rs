//! Another disk in a branch's place.

use std::ffi::OsStr;
use std::fs;

use crate::disks;
use crate::support::MIB;
use crate::support::disk::Disk;
use crate::support::pool::text;

const B_BY_NAME: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\"] }]\n";

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
    assert!(error.contains(&by) && error.contains("umbrella branch replace 'b'"), "{error}");

    let config = pool.config_path();
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
