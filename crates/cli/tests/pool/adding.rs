//! `umbrella branch add`, and what `--save` of all `branch` commands writes: what is taken for a disk, the lists that
//! it is on, and the configuration.

use std::fs;
use std::path::Path;

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, temp_dir};
use crate::{append, disks};

/// A directory of the root file system.
fn on_root() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("umbrella-root-").tempdir_in("/").unwrap()
}

#[track_caller]
fn refused(pool: &Pool, args: &[&str], path: &Path, told: &str) {
    let mut args: Vec<_> = args.iter().map(std::ffi::OsStr::new).collect();
    args.push(path.as_os_str());
    let output = pool.umbrella(&args);
    assert!(!output.status.success() && text(&output).contains(told), "{args:?}: {}", text(&output));
    assert!(!path.join(".umbrella").exists(), "nothing is written there");
}

#[test]
fn a_directory_of_the_root_file_system_is_no_disk() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.mount();
    let dir = on_root();
    refused(
        &pool,
        &["branch", "add", "b"],
        dir.path(),
        "lies on the root file system; mount the disk first; to use the directory itself, add --require-mount false",
    );
    refused(
        &pool,
        &["branch", "replace", "a"],
        dir.path(),
        "lies on the root file system; mount the disk first; to use the directory itself, add --force",
    );
    let add = ["branch", "add", "b", dir.path().to_str().unwrap(), "--require-mount", "false"];
    pool.say(add);
    assert!(pool.is_online("b"));
}

#[test]
fn a_directory_that_fstab_has_a_file_system_for_is_no_disk_before_that_is_mounted() {
    let (_disks, builder) = disks(["a"]);
    let house = Disk::tmpfs(8 * MIB);
    let fstab = temp_dir("fstab");
    let new = house.join("my new");
    fs::create_dir_all(new.join("below")).unwrap();
    fs::create_dir(house.join("plain")).unwrap();
    let line = format!("UUID=1234 {}/ ext4 defaults,noauto 0 0\n", new.display().to_string().replace(' ', "\\040"));
    fs::write(fstab.path().join("fstab"), line).unwrap();
    let pool = builder.fstab(&fstab.path().join("fstab")).mount();
    refused(&pool, &["branch", "add", "b"], &new, "/etc/fstab has a file system for");
    refused(&pool, &["branch", "add", "b"], &new.join("below"), "/etc/fstab has a file system for");
    pool.say(["branch", "add", "b", house.join("plain").to_str().unwrap()]);
    crate::support::run("mount", ["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), new.as_os_str()]);
    let added = pool.umbrella(["branch".as_ref(), "add".as_ref(), "c".as_ref(), new.as_os_str()]);
    drop(pool);
    crate::support::disk::unmount(&new);
    assert!(added.status.success(), "{}", text(&added));
}

#[test]
fn a_directory_that_fstab_has_a_file_system_for_is_no_branch_at_the_first_mount_either() {
    let house = Disk::tmpfs(8 * MIB);
    let fstab = temp_dir("fstab");
    let file = fstab.path().join("fstab");
    let [a, b] = ["a", "b"].map(|name| house.join(name));
    for path in [&a, &b] {
        fs::create_dir(path).unwrap();
    }
    fs::write(&file, format!("UUID=1234 {} ext4 defaults,noauto 0 0\n", b.display())).unwrap();
    let builder = || Pool::builder().branch("a", &a).fstab(&file);
    let mut pool = builder().branch_with("b", &b, "optional = true").mount();
    assert!(!pool.is_online("b"));
    let status = pool.say(["status"]);
    assert!(
        status.contains("/etc/fstab has a file system for") && status.contains("require_mount = false"),
        "{status}"
    );
    assert_eq!(fs::read_dir(&b).unwrap().count(), 0, "nothing is written there");
    pool.write_branch("b", "require_mount = false");
    pool.remount();
    assert!(pool.is_online("b"));
}

#[test]
fn the_answer_says_which_lists_the_branch_is_on() {
    let (_disks, builder) = disks(["a"]);
    let new = [Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB)];
    let pool = builder.mount();
    let paths = new.each_ref().map(|disk| disk.path().display().to_string());
    let said = pool.say(["branch", "add", "b", &paths[0]]);
    assert!(said.contains("it is on no list") && said.contains("then run `umbrella rules reload`"), "{said}");
    assert!(said.contains("[[branch]]"), "{said}");
    let added = pool.json(["branch", "add", "c", &paths[1], "--default"]).remove(0);
    assert_eq!((added["lists"].to_string().as_str(), &added["saved"]), ("[\"default\"]", &serde_json::Value::Null));
    let default = pool.status().rules.pop().unwrap();
    assert_eq!(default.to, ["a", "c"]);
}

#[test]
fn a_branch_that_is_saved_is_in_the_next_mount_and_comments_stay() {
    let (_disks, builder) = disks(["a"]);
    let new = Disk::tmpfs(8 * MIB);
    let mut pool = builder.mount();
    append(&pool.config_path(), b"# mine\n").unwrap();
    let said =
        pool.say(["branch", "add", "b", new.path().to_str().unwrap(), "--min-free", "1MiB", "--default", "--save"]);
    assert!(
        said.contains("last on the default list") && said.contains("saved to ") && said.contains("pool.toml"),
        "{said}"
    );
    let config = fs::read_to_string(pool.config_path()).unwrap();
    assert!(config.contains("# mine\n") && config.contains("[\"a\", \"b\"]"), "{config}");
    pool.remount();
    assert!(pool.is_online("b"));
    assert_eq!(pool.branch_status("b").min_free.0, MIB);
    assert_eq!(pool.status().rules.pop().unwrap().to, ["a", "b"]);
}

#[test]
fn a_branch_that_joins_a_group_gets_files_by_it_and_stays_in_it() {
    let (_disks, builder) = disks(["a", "b"]);
    let new = Disk::tmpfs(64 * MIB);
    let group = "[[group]]\nname = \"hdds\"\nbranches = [\"a\", \"b\"]\nmin_free = \"1MiB\"\n[[group]]\nname = \"no-c\"\nbranches = [\"*\", \"!b\"]\n";
    let mut pool = builder.default(&["hdds"]).rules(group).mount();
    let path = new.path().display().to_string();
    let refused = pool.umbrella(["branch", "add", "c", &path, "--group", "hdd"]);
    assert!(text(&refused).contains("no group is called \"hdd\"; there are: hdds, no-c"), "{}", text(&refused));
    let said = pool.say(["branch", "add", "c", &path, "--group", "hdds", "--save"]);
    assert!(said.contains("new files go there by \"default\""), "{said}");
    for round in ["now", "after the next mount"] {
        fs::write(pool.join("file"), "x").unwrap();
        assert_eq!(pool.branch_of("file"), "c", "{round}: it has most free space");
        assert_eq!(pool.branch_status("c").min_free.0, MIB, "{round}: as the group says");
        fs::remove_file(pool.join("file")).unwrap();
        pool.remount();
    }
}

#[test]
fn what_cannot_be_saved_is_not_added() {
    let (_disks, builder) = disks(["a"]);
    let new = Disk::tmpfs(8 * MIB);
    let pool = builder.mount();
    fs::rename(pool.config_path(), pool.dir().join("elsewhere.toml")).unwrap();
    let output = pool.umbrella(["branch", "add", "b", new.path().to_str().unwrap(), "--save"]);
    assert!(!output.status.success() && text(&output).contains("leave out --save"), "{}", text(&output));
    assert_eq!(pool.status().branches.len(), 1);
    fs::rename(pool.dir().join("elsewhere.toml"), pool.config_path()).unwrap();
}

#[test]
fn a_branch_that_is_removed_and_saved_is_in_no_later_mount_and_comments_stay() {
    let (_disks, builder) = disks(["a", "b"]);
    let rules = "# where films go\n[[rule]]\nname = \"films\"\nmatch = [{ glob = \"/**.avi\", to = [\"b\", \"a\"] }]\n";
    let mut pool = builder.default(&["a", "b"]).rules(rules).mount();
    append(&pool.config_path(), b"# mine\n").unwrap();
    let said = pool.say(["branch", "remove", "b", "--save"]);
    assert!(said.contains("removed from the pool, and from ") && said.contains("pool.toml"), "{said}");
    assert!(said.contains("still named by") && said.contains("`umbrella rules reload`"), "{said}");
    let config = fs::read_to_string(pool.config_path()).unwrap();
    assert!(config.contains("# mine\n") && config.contains("# where films go\n"), "{config}");
    assert!(!config.contains("\"b\"") && config.contains("to = [\"a\"]"), "{config}");
    pool.say(["rules", "reload"]);
    let to: Vec<_> = pool.status().rules.into_iter().map(|rule| rule.to).collect();
    assert_eq!(to, [["a"], ["a"]]);
    pool.remount();
    assert_eq!(pool.status().branches.len(), 1);
}

#[test]
fn a_branch_that_cannot_be_taken_out_of_the_configuration_is_not_removed() {
    let (_disks, builder) = disks(["a", "b"]);
    let pool = builder.rules("[[rule]]\nname = \"films\"\nmatch = [{ glob = \"/**.avi\", to = [\"b\"] }]\n").mount();
    let output = pool.umbrella(["branch", "remove", "b", "--save"]);
    let said = text(&output);
    assert!(
        !output.status.success()
            && said.contains("would become invalid")
            && said.contains("no branch or group is called"),
        "{said}"
    );
    assert_eq!(pool.status().branches.len(), 2);
}

#[test]
fn a_disk_that_replaces_another_elsewhere_and_is_saved_is_mounted_the_next_time() {
    let (_disks, builder) = disks(["a", "b"]);
    let new = [Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB)];
    let paths = new.each_ref().map(|disk| disk.path().display().to_string());
    let mut pool = builder.mount();
    append(&pool.config_path(), b"# mine\n").unwrap();
    let said = pool.say(["branch", "replace", "b", &paths[0], "--save"]);
    assert!(said.contains("saved to ") && said.contains("pool.toml"), "{said}");
    let config = fs::read_to_string(pool.config_path()).unwrap();
    assert!(config.contains(&paths[0]) && config.contains("# mine\n"), "{config}");
    pool.remount();
    assert!(pool.is_online("b"));
    // The same of a pool that is not mounted.
    pool.stop();
    let file = pool.config_path().display().to_string();
    let replace = ["branch", "replace", "b", &paths[1], "--pool", &file];
    let refused = pool.umbrella(replace);
    assert!(!refused.status.success() && text(&refused).contains("with --save"), "{}", text(&refused));
    pool.say(replace.iter().chain(&["--save"]));
    pool.start();
    assert_eq!(pool.branch_status("b").path, new[1].path());
    assert!(pool.is_online("b"));
}

#[test]
fn rules_are_reloaded_from_the_configuration_that_the_pool_was_mounted_with() {
    let (_disks, builder) = disks(["a", "b"]);
    let mut pool = builder.mount();
    pool.write_rules("[[rule]]\nname = \"films\"\nmatch = [{ glob = \"/**.avi\", to = [\"b\"] }]\n");
    let said = pool.say(["rules", "reload"]);
    assert!(said.contains("1 rule in force"), "{said}");
    fs::write(pool.join("a.avi"), "x").unwrap();
    pool.expect_on("b", "a.avi");
    fs::remove_file(pool.config_path()).unwrap();
    let gone = pool.umbrella(["rules", "reload"]);
    assert!(!gone.status.success() && text(&gone).contains("pool.toml: does not exist"), "{}", text(&gone));
}
