//! Where a file comes to be: at create, at close, after a rename or chmod.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};

use crate::support::process::{NOBODY, as_nobody};
use crate::support::{KIB, MIB, bytes, eventually};
use crate::{LARGE_FILES, append, disks, names, pool};

/// The worked example of the paper: figure 8.
const FIGURE_8: &str = r#"
[[rule]]
name = "read-only files on flash"
when = { access = "read-only" }
to = ["fs2", "fs1"]
[[rule]]
name = "by name"
match = [
  { glob = "/home/dave/**", to = ["fs3"] },
  { glob = "/home/dave/**.avi", to = ["fs1", "fs3"] },
  { glob = "/**", to = ["fs1"] },
]
"#;

#[test]
fn figure_8_sends_each_file_where_the_paper_says() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    fs::create_dir_all(pool.join("home/dave/films")).unwrap();
    for (name, branch, rule) in [
        ("home/dave/letter", "fs3", "/home/dave/**"),
        ("home/dave/holiday.avi", "fs1", "/home/dave/**.avi"),
        ("home/dave/films/deep.avi", "fs1", "/home/dave/**.avi"),
        ("home/dave/films/notes", "fs3", "/home/dave/**"),
        ("home/other", "fs1", "/**"),
    ] {
        fs::write(pool.join(name), name).unwrap();
        pool.expect_on(branch, name);
        let explanation = pool.explain(name);
        assert_eq!(explanation.belongs.as_deref(), Some(branch), "{name}");
        assert!(explanation.rule.contains(rule), "{name}: {explanation:?}");
        assert_eq!(fs::read_to_string(pool.join(name)).unwrap(), name);
    }
    let none_moved = pool.moves();
    assert_eq!(none_moved, 0, "names are known at create: nothing had to move");

    // "If user Dave creates a read only .avi file in his home directory, it will be placed on /fs2."
    let film = "home/dave/read-only.avi";
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(pool.join(film)).unwrap().write_all(b"x").unwrap();
    pool.expect_on("fs2", film);
    assert_eq!(pool.explain(film).rule, "read-only files on flash");
}

#[test]
fn chmod_moves_a_file_and_back_again() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    fs::write(pool.join("paper"), "x").unwrap();
    pool.expect_on("fs1", "paper");
    fs::set_permissions(pool.join("paper"), fs::Permissions::from_mode(0o444)).unwrap();
    pool.expect_on("fs2", "paper");
    fs::set_permissions(pool.join("paper"), fs::Permissions::from_mode(0o644)).unwrap();
    pool.expect_on("fs1", "paper");
    assert_eq!(pool.moves(), 2);
    assert_eq!(fs::read(pool.join("paper")).unwrap(), b"x");
}

#[test]
fn a_rule_on_size_waits_for_close() {
    let pool = pool(["small", "large"], LARGE_FILES);
    let mut file = File::create(pool.join("file")).unwrap();
    file.write_all(&bytes(1, MIB)).unwrap();
    pool.settle();
    assert_eq!(pool.found_on("file"), ["small"], "an open file stays");
    drop(file);
    pool.expect_on("large", "file");
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, MIB));
    File::create(pool.join("file")).unwrap().write_all(b"short").unwrap();
    pool.expect_on("small", "file");
    assert_eq!(fs::read(pool.join("file")).unwrap(), b"short");
}

#[test]
fn a_new_file_begins_where_the_last_ones_like_it_belong() {
    let pool = pool(["small", "large"], LARGE_FILES);
    for dir in ["one", "two"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    fs::write(pool.join("one/1.mkv"), bytes(1, MIB)).unwrap();
    pool.expect_on("large", "one/1.mkv");
    assert_eq!(pool.moves(), 1, "nobody knew how large it would be");
    let said = pool.explain("two/1.mkv");
    assert_eq!(said.belongs.as_deref(), Some("large"));
    assert!(said.outcome.contains("if its size is about 1 MiB (a guess, as the last .mkv files)"), "{}", said.outcome);
    let file = File::create(pool.join("two/1.mkv")).unwrap();
    assert_eq!(pool.found_on("two/1.mkv"), ["large"]);
    (&file).write_all(&bytes(2, MIB)).unwrap();
    drop(file);
    let short = File::create(pool.join("one/2.mkv")).unwrap();
    assert_eq!(pool.found_on("one/2.mkv"), ["large"]);
    (&short).write_all(b"short").unwrap();
    drop(short);
    pool.expect_on("small", "one/2.mkv");
    pool.settle();
    assert_eq!(pool.moves(), 2, "only the guess that was wrong costs a move");
}

#[test]
fn truncating_by_path_is_judged_too() {
    let pool = pool(["small", "large"], LARGE_FILES);
    fs::write(pool.join("file"), bytes(1, MIB)).unwrap();
    pool.expect_on("large", "file");
    nix::unistd::truncate(&pool.join("file"), 10).unwrap();
    pool.expect_on("small", "file");
}

#[test]
fn a_file_made_read_only_is_written_before_it_moves() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(pool.join("f")).unwrap();
    for i in 0..10 {
        file.write_all(&bytes(i, 10_000)).unwrap();
    }
    assert_eq!(pool.found_on("f"), ["fs1"]);
    drop(file);
    pool.expect_on("fs2", "f");
    assert_eq!(fs::metadata(pool.join("f")).unwrap().len(), 100_000);
}

#[test]
fn every_attribute_can_decide() {
    let rules = r#"
[[rule]]
name = "links and pipes"
when = { type = ["symlink", "fifo"] }
to = ["special"]
[[rule]]
name = "films"
when = { extension = ["avi", "mkv"] }
to = ["films"]
[[rule]]
name = "nobody's"
when = { user = "nobody" }
to = ["nobody"]
[[rule]]
name = "group 4242"
when = { gid = 4242 }
to = ["group"]
[[rule]]
name = "programs"
when = { mode = { bits = "0111", is = "!= 0" } }
to = ["programs"]
[[rule]]
name = "linked often"
when = { links = ">= 3" }
to = ["linked"]
[[rule]]
name = "middle-sized"
when = { size = [">= 10KiB", "< 100KiB"], uid = 0 }
to = ["middle"]
"#;
    let mut pool = pool(["disk", "special", "films", "nobody", "group", "programs", "linked", "middle"], rules);
    fs::set_permissions(pool.mount_point(), fs::Permissions::from_mode(0o777)).unwrap();
    symlink("x", pool.join("link")).unwrap();
    nix::unistd::mkfifo(&pool.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    for name in ["a.avi", "b.MKV", "plain", "theirs", "program", "linked"] {
        fs::write(pool.join(name), "x").unwrap();
    }
    as_nobody(|| fs::write(pool.join("nobodys"), "x")).unwrap();
    chown(pool.join("theirs"), None, Some(4242)).unwrap();
    fs::set_permissions(pool.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(pool.join("middle"), bytes(1, 20 * KIB)).unwrap();
    fs::write(pool.join("too-large"), bytes(1, 100 * KIB)).unwrap();
    for name in ["linked-2", "linked-3"] {
        fs::hard_link(pool.join("linked"), pool.join(name)).unwrap();
    }
    let expected = [
        ("link", "special"),
        ("pipe", "special"),
        ("a.avi", "films"),
        ("b.MKV", "films"),
        ("nobodys", "nobody"),
        ("theirs", "group"),
        ("program", "programs"),
        ("middle", "middle"),
        ("plain", "disk"),
        ("too-large", "disk"),
    ];
    for (name, branch) in expected {
        pool.expect_on(branch, name);
    }
    pool.enforce();
    for name in ["linked", "linked-2", "linked-3"] {
        pool.expect_on("linked", name);
    }
    chown(pool.join("plain"), Some(NOBODY), None).unwrap();
    pool.expect_on("nobody", "plain");
    pool.pool.remount();
    assert_eq!(pool.enforce().files_moved, 0, "everything is in its place");
}

#[test]
fn a_rule_on_the_state_of_a_branch_decides_by_its_free_space() {
    let rules = r#"
[[rule]]
name = "flash while it is emptyish"
when = { free = { flash = ">= 50%" } }
to = ["flash"]
"#;
    let pool = pool(["disk", "flash"], rules);
    fs::write(pool.join("first"), "x").unwrap();
    pool.expect_on("flash", "first");
    fs::write(pool.on("flash", "filler"), bytes(1, 20 * MIB)).unwrap();
    pool.settle_room();
    fs::write(pool.join("second"), "x").unwrap();
    pool.expect_on("disk", "second");
}

#[test]
fn the_first_branch_with_room_is_taken() {
    let (disks, builder) = disks(["disk"]);
    let (one, two) = (crate::Disk::tmpfs(4 * MIB), crate::Disk::tmpfs(16 * MIB));
    let pool = builder
        .branch_with("one", one.path(), "min_free = \"50%\"")
        .branch("two", two.path())
        .rules("[[rule]]\nname = \"all\"\nwhen = {}\nto = [\"one\", \"two\"]\n")
        .mount();
    for i in 0..8 {
        fs::write(pool.join(format!("file-{i}")), bytes(i, 512 * KIB)).unwrap();
        pool.settle_room();
    }
    pool.settle();
    assert!(one.free() >= 2 * MIB - 256 * KIB, "min_free is kept: {} bytes are free", one.free());
    assert!(one.free() < 3 * MIB, "the first choice is used: {} bytes are free", one.free());
    let (on_one, on_two) = (names(&one.path()), two.files());
    assert!(on_two.len() >= 4, "the rest is on the second choice: {on_one:?} {on_two:?}");
    assert_eq!(disks[0].files().len(), 0, "and none on the default");
    for i in 0..8 {
        assert!(fs::read(pool.join(format!("file-{i}"))).unwrap() == bytes(i, 512 * KIB));
    }
}

#[test]
fn a_rename_is_judged_by_the_new_name() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    fs::create_dir_all(pool.join("home/dave")).unwrap();
    fs::write(pool.join("letter"), "to dave").unwrap();
    fs::rename(pool.join("letter"), pool.join("home/dave/letter")).unwrap();
    pool.expect_on("fs3", "home/dave/letter");
    fs::rename(pool.join("home/dave/letter"), pool.join("letter")).unwrap();
    pool.expect_on("fs1", "letter");
    assert_eq!(fs::read(pool.join("letter")).unwrap(), b"to dave");
}

#[test]
fn the_files_of_a_renamed_directory_follow_each_to_its_own_branch() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    fs::create_dir_all(pool.join("home/dave")).unwrap();
    fs::create_dir_all(pool.join("work/deep")).unwrap();
    for name in ["work/a", "work/deep/b", "work/c.avi"] {
        fs::write(pool.join(name), name).unwrap();
    }
    fs::rename(pool.join("work"), pool.join("home/dave/work")).unwrap();
    pool.expect_on("fs3", "home/dave/work/a");
    pool.expect_on("fs3", "home/dave/work/deep/b");
    pool.expect_on("fs1", "home/dave/work/c.avi");
    assert_eq!(fs::read_to_string(pool.join("home/dave/work/deep/b")).unwrap(), "work/deep/b");
}

#[test]
fn what_only_the_default_list_names_stays_where_it_is() {
    let (disks, builder) = disks(["one", "two", "three"]);
    fs::write(disks[1].path().join("old"), "there before the pool").unwrap();
    fs::write(disks[2].path().join("stray"), "not on the list").unwrap();
    let mut pool = builder.default(&["one", "two"]).mount();
    let explanation = pool.explain("old");
    assert_eq!(explanation.belongs.as_deref(), Some("two"));
    assert!(explanation.outcome.contains("the default list names"), "{}", explanation.outcome);
    append(&pool.join("old"), b", and changed").unwrap();
    pool.settle();
    pool.enforce();
    pool.expect_on("one", "stray");
    assert_eq!(pool.found_on("old"), ["two"], "neither a close nor the enforcer moves it");
    fs::write(pool.join("new"), "").unwrap();
    assert_eq!(pool.found_on("new"), ["one"], "a new file begins on the first");
    pool.kill_9();
    // The walk after that moves what is elsewhere, which tells that it came by.
    fs::write(disks[2].path().join("late"), "").unwrap();
    pool.start();
    pool.expect_on("one", "late");
    pool.expect_stays_on("two", "old");
    pool.say(["branch", "drain", "two"]);
    pool.expect_on("one", "old");
}

#[test]
fn explain_tells_of_files_directories_and_names_that_do_not_exist() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    fs::create_dir_all(pool.join("home/dave")).unwrap();
    let future = pool.explain("home/dave/not-yet");
    assert!(!future.exists && future.on.is_empty());
    assert_eq!(future.belongs.as_deref(), Some("fs3"));
    fs::write(pool.join("home/dave/film.avi"), "").unwrap();
    fs::write(pool.join("home/dave/text"), "").unwrap();
    let directory = pool.explain("home/dave");
    assert!(directory.exists);
    assert_eq!(directory.on, ["fs1", "fs3"], "a directory is where its files are");
    let steps = pool.explain("home/dave/text").steps;
    assert!(steps.iter().any(|step| !step.matched && step.rule.contains("read-only")), "{steps:?}");
    assert!(steps.iter().any(|step| step.matched && step.rule.contains("/home/dave/**")), "{steps:?}");
    let for_people = pool.say(["explain".as_ref(), pool.join("home/dave/text").as_os_str()]);
    assert!(for_people.contains("fs3"), "{for_people}");
}

#[test]
fn explain_of_a_path_on_a_branch_says_which_path_of_the_pool_it_is() {
    let pool = pool(["fs1", "fs2", "fs3"], FIGURE_8);
    fs::write(pool.join("file"), "").unwrap();
    let on = pool.explain("file").on[0].clone();
    let branch = pool.status().branches.into_iter().find(|branch| branch.name == on).unwrap();
    let refused = pool.umbrella(["explain".as_ref(), branch.path.join("file").as_os_str()]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(told.contains(&on) && told.contains(pool.join("file").to_str().unwrap()), "{told}");
}

#[test]
fn status_counts_hits_moves_and_open_files() {
    let pool = pool(["small", "large"], LARGE_FILES);
    fs::write(pool.join("a"), bytes(1, 100 * KIB)).unwrap();
    fs::write(pool.join("b"), "x").unwrap();
    pool.expect_on("large", "a");
    pool.settle_closed();
    let open = [File::open(pool.join("a")).unwrap(), File::open(pool.join("b")).unwrap()];
    let status = pool.status();
    assert_eq!(status.mount, pool.mount_point());
    assert_eq!(status.pid, pool.pid());
    assert_eq!(status.open_files, 2);
    let rules: Vec<_> = status.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(rules, ["large files", "default"]);
    assert!(status.rules.iter().all(|rule| rule.hits > 0), "{:?}", status.rules);
    assert_eq!((status.branches[1].files_moved_in, status.branches[0].files_moved_out), (1, 1));
    assert!(status.branches.iter().all(|branch| branch.total.0 == 32 * MIB && branch.fs_type == "tmpfs"));
    drop(open);
    eventually("they are closed", || pool.status().open_files == 0);
    let for_people = pool.say(["status"]);
    for word in ["small", "large", "large files"] {
        assert!(for_people.contains(word), "{word:?} is in:\n{for_people}");
    }
}

#[test]
fn a_file_that_is_read_while_it_would_move_is_whole() {
    let pool = pool(["small", "large"], LARGE_FILES);
    for round in 0..20 {
        let (short, long) = (bytes(round, KIB), bytes(round + 100, 300 * KIB));
        fs::write(pool.join("file"), &short).unwrap();
        append(&pool.join("file"), &long).unwrap();
        for _ in 0..5 {
            let seen = fs::read(pool.join("file")).unwrap();
            assert!(seen[..short.len()] == short[..] && seen[short.len()..] == long[..], "round {round}");
        }
    }
    pool.expect_on("large", "file");
}

#[test]
fn what_no_close_ever_follows_is_judged_when_it_is_made() {
    let little = "[[rule]]\nname = \"little\"\nwhen = { size = \"< 64KiB\" }\nto = [\"little\"]\n";
    let shared = "[[rule]]\nname = \"shared\"\nwhen = { links = \"> 1\" }\nto = [\"shared\"]\n";
    let pool = pool(["large", "little", "shared"], &format!("{shared}{little}"));
    symlink("nowhere", pool.join("link")).unwrap();
    pool.expect_on("little", "link");
    for (name, kind) in [("pipe", libc::S_IFIFO), ("null", libc::S_IFCHR), ("file", libc::S_IFREG)] {
        let kind = rustix::fs::FileType::from_raw_mode(kind);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, pool.join(name), kind, mode, rustix::fs::makedev(1, 3)).unwrap();
        pool.expect_on("little", name);
    }
    fs::write(pool.join("one"), bytes(1, 100 * KIB)).unwrap();
    pool.expect_stays_on("large", "one");
    fs::hard_link(pool.join("one"), pool.join("two")).unwrap();
    pool.expect_on("shared", "one");
    pool.expect_on("shared", "two");
}

#[test]
fn rules_on_the_age_since_birth_look_at_the_birth_that_a_move_keeps() {
    let on = pool(["young", "old"], "[[rule]]\nname = \"grown up\"\nwhen = { btime = \"> 2s\" }\nto = [\"old\"]\n");
    fs::write(on.join("file"), "x").unwrap();
    on.expect_on("young", "file");
    let grown = || on.explain("file").belongs.as_deref() == Some("old");
    eventually("it is old enough", grown);
    on.enforce();
    assert_eq!(on.found_on("file"), ["old"]);
    // Its inode there is younger than the file.
    assert!(grown());
    let facts = on.explain("file").facts;
    assert!(facts.iter().any(|(name, age)| name == "btime" && age.ends_with("ago")), "{facts:?}");
    on.enforce();
    assert_eq!(on.found_on("file"), ["old"]);
}

#[test]
fn what_goes_to_and_fro_under_a_strict_rule_is_on_its_branch_in_the_end() {
    let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/secret/**\", to = [\"b\"] }]\n";
    let pool = pool(["a", "b"], rules);
    for dir in ["secret", "out"] {
        fs::create_dir(pool.join(dir)).unwrap();
    }
    let at = |dir: &str, number: u32| pool.join(dir).join(format!("file-{number}"));
    for number in 0..200 {
        fs::write(at("secret", number), vec![b'x'; 10_000]).unwrap();
        fs::rename(at("secret", number), at("out", number)).unwrap();
        fs::rename(at("out", number), at("secret", number)).unwrap();
    }
    eventually("nothing waits", || pool.metric("umbrella_relocations_pending_count") == 0);
    for number in 0..200 {
        assert_eq!(pool.found_on(format!("secret/file-{number}")), ["b"]);
    }
}
