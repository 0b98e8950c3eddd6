//! Files follow their names: what belongs elsewhere when names have changed moves without a walk that somebody asks
//! for.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, RenameFlags};

use crate::{disks, pool};

const BY_DIRECTORY: &str = r#"
[[rule]]
name = "by directory"
match = [{ glob = "/one/**", to = ["one"] }, { glob = "/two/**", to = ["two"] }]
"#;

fn two_branches() -> crate::On<2> {
    let pool = pool(["one", "two"], BY_DIRECTORY);
    for dir in ["one", "two"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    pool
}

#[test]
fn the_files_below_a_renamed_directory_follow_it() {
    let pool = two_branches();
    fs::create_dir_all(pool.join("one/dir/deep")).unwrap();
    for name in ["one/dir/file", "one/dir/deep/file"] {
        fs::write(pool.join(name), name).unwrap();
    }
    fs::rename(pool.join("one/dir"), pool.join("two/dir")).unwrap();
    pool.expect_on("two", "two/dir/file");
    pool.expect_on("two", "two/dir/deep/file");
    assert_eq!(fs::read_to_string(pool.join("two/dir/deep/file")).unwrap(), "one/dir/deep/file");
}

#[test]
fn the_files_below_exchanged_directories_follow_them() {
    let pool = two_branches();
    for dir in ["one", "two"] {
        fs::create_dir(pool.join(dir).join("dir")).unwrap();
        fs::write(pool.join(dir).join("dir/file"), dir).unwrap();
    }
    rustix::fs::renameat_with(CWD, pool.join("one/dir"), CWD, pool.join("two/dir"), RenameFlags::EXCHANGE).unwrap();
    pool.expect_on("one", "one/dir/file");
    pool.expect_on("two", "two/dir/file");
    assert_eq!(fs::read_to_string(pool.join("one/dir/file")).unwrap(), "two");
}

#[test]
fn a_file_that_is_open_follows_its_renamed_directory_when_it_is_closed() {
    let pool = two_branches();
    fs::create_dir(pool.join("one/dir")).unwrap();
    fs::write(pool.join("one/dir/file"), "x").unwrap();
    let writer = fs::File::options().append(true).open(pool.join("one/dir/file")).unwrap();
    fs::write(pool.join("one/dir/other"), "x").unwrap();
    fs::rename(pool.join("one/dir"), pool.join("two/dir")).unwrap();
    pool.expect_on("two", "two/dir/other");
    assert_eq!(pool.found_on("two/dir/file"), ["one"]);
    drop(writer);
    pool.expect_on("two", "two/dir/file");
}

#[test]
fn a_file_follows_the_names_that_are_left() {
    let mut pool = two_branches();
    for name in ["removed", "replaced", "removed later"] {
        fs::write(pool.join("one").join(name), name).unwrap();
        fs::hard_link(pool.join("one").join(name), pool.join("two").join(name)).unwrap();
        pool.expect_stays_on("one", format!("two/{name}"));
    }
    fs::remove_file(pool.join("one/removed")).unwrap();
    pool.expect_on("two", "two/removed");
    fs::write(pool.join("one/new"), "new").unwrap();
    fs::rename(pool.join("one/new"), pool.join("one/replaced")).unwrap();
    pool.expect_on("two", "two/replaced");
    pool.expect_on("one", "one/replaced");
    assert_eq!(fs::read_to_string(pool.join("two/replaced")).unwrap(), "replaced");
    // Since the mount nobody has looked at the other name.
    pool.pool.remount();
    fs::remove_file(pool.join("one/removed later")).unwrap();
    pool.expect_on("two", "two/removed later");
}

#[test]
fn a_file_follows_a_name_that_is_made_or_renamed_although_others_were_never_looked_up() {
    let mut pool = two_branches();
    for name in ["linked", "renamed"] {
        fs::write(pool.join("two").join(name), name).unwrap();
        fs::hard_link(pool.join("two").join(name), pool.join("two").join(format!("{name} too"))).unwrap();
    }
    pool.pool.remount();
    fs::hard_link(pool.join("two/linked"), pool.join("one/linked")).unwrap();
    fs::rename(pool.join("two/renamed"), pool.join("one/renamed")).unwrap();
    for name in ["linked", "renamed"] {
        pool.expect_on("one", format!("one/{name}"));
        pool.expect_on("one", format!("two/{name} too"));
        let meta = fs::metadata(pool.join(format!("two/{name} too"))).unwrap();
        assert_eq!(meta.ino(), fs::metadata(pool.join(format!("one/{name}"))).unwrap().ino());
    }
}

#[test]
fn a_file_with_names_in_and_outside_of_a_renamed_directory_follows_with_all_of_them() {
    let pool = two_branches();
    fs::create_dir(pool.join("two/dir")).unwrap();
    fs::write(pool.join("two/dir/file"), "x").unwrap();
    fs::hard_link(pool.join("two/dir/file"), pool.join("two/other")).unwrap();
    fs::rename(pool.join("two/dir"), pool.join("one/dir")).unwrap();
    pool.expect_on("one", "one/dir/file");
    pool.expect_on("one", "two/other");
}

#[test]
fn what_a_killed_daemon_had_not_walked_yet_follows_after_the_next_mount() {
    let (_disks, builder) = disks(["one", "two"]);
    // So slow that it is killed in the first file.
    let mut pool = builder.rules(BY_DIRECTORY).keys("[enforce]\nbandwidth = \"64KiB\"").mount();
    fs::create_dir_all(pool.join("one/dir")).unwrap();
    fs::create_dir(pool.join("two")).unwrap();
    for name in ["a", "b"] {
        fs::write(pool.join("one/dir").join(name), vec![7; 600_000]).unwrap();
    }
    fs::rename(pool.join("one/dir"), pool.join("two/dir")).unwrap();
    pool.kill_9();
    let config = fs::read_to_string(pool.config_path()).unwrap();
    fs::write(pool.config_path(), config.replace("64KiB", "64MiB")).unwrap();
    pool.start();
    for name in ["a", "b"] {
        pool.expect_on("two", format!("two/dir/{name}"));
        assert_eq!(fs::read(pool.join("two/dir").join(name)).unwrap().len(), 600_000);
    }
}

#[test]
fn a_renamed_directory_is_not_walked_where_no_rule_looks_at_names() {
    let pool = pool(["one", "two"], "[[rule]]\nname = \"large\"\nwhen = { size = \"> 1MiB\" }\nto = [\"two\"]");
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/file"), "x").unwrap();
    fs::rename(pool.join("dir"), pool.join("other")).unwrap();
    pool.expect_stays_on("one", "other/file");
    assert_eq!(pool.metric("umbrella_name_walks_done_count"), 0);
}
