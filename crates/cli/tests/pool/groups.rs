//! Groups with real files: where new ones go, what stays together, and that nothing moves between equals.

use std::fs;
use std::thread;

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, assert_errno, bytes, eventually};
use crate::{On, last_read_days_ago};

/// A pool over tmpfs branches of these sizes, in MiB; new files go to the group of all of them, which has these keys.
fn grouped<const N: usize>(branches: [(&str, u64); N], keys: &str) -> On<N> {
    grouped_on(Disk::tmpfs, branches, keys)
}

/// As [`grouped`], over branches of another kind.
fn grouped_on<const N: usize>(disk: fn(u64) -> Disk, branches: [(&str, u64); N], keys: &str) -> On<N> {
    let disks = branches.map(|(_, size)| disk(size * MIB));
    let mut builder = Pool::builder().default(&["all"]);
    for ((name, _), disk) in branches.iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    On { pool: builder.rules(&all(keys)).mount(), disks }
}

fn all(keys: &str) -> String {
    format!("[[group]]\nname = \"all\"\nbranches = \"*\"\n{keys}\n")
}

/// The branches that these files are on.
fn places(pool: &Pool, files: &[&str]) -> Vec<String> {
    files.iter().map(|file| pool.found_on(file).concat()).collect()
}

#[test]
fn a_season_stays_on_one_disk_while_another_has_more_room() {
    let pool = grouped_on(Disk::ext4, [("a", 40), ("b", 48)], "together = \"/TV/*/*\"");
    fs::create_dir_all(pool.join("TV/Show/S1")).unwrap();
    fs::create_dir_all(pool.join("TV/Show/S2")).unwrap();
    fs::write(pool.join("TV/Show/S1/e1"), bytes(1, 4 * MIB)).unwrap();
    assert_eq!(pool.found_on("TV/Show/S1/e1"), ["b"], "most free");
    fs::write(pool.disks[1].join("filler"), bytes(2, 20 * MIB)).unwrap();
    pool.settle_room();
    for episode in ["e2", "e3"] {
        fs::write(pool.join("TV/Show/S1").join(episode), bytes(3, 4 * MIB)).unwrap();
    }
    fs::write(pool.join("TV/Show/S2/e1"), "x").unwrap();
    fs::write(pool.join("TV/Show/poster"), "x").unwrap();
    let files = ["TV/Show/S1/e2", "TV/Show/S1/e3", "TV/Show/S2/e1", "TV/Show/poster"];
    assert_eq!(places(&pool, &files), ["b", "b", "a", "a"]);
    assert_eq!(pool.enforce().files_moved, 0);
    let explanation = pool.explain("TV/Show/S1/e4");
    assert!(explanation.outcome.contains("begins on b"), "{}", explanation.outcome);
    assert!(explanation.outcome.contains("holds most of /TV/Show/S1"), "{}", explanation.outcome);
}

#[test]
fn explain_says_of_a_file_on_any_member_that_it_is_where_it_belongs() {
    let in_order = "spread = \"in-order\"";
    let On { mut pool, disks: _disks } = grouped([("a", 16), ("b", 16)], in_order);
    pool.load_rules(&format!("{}[[rule]]\nwhen = {{}}\nto = [\"all\"]\n", all(in_order)));
    fs::write(pool.join("file"), "x").unwrap();
    pool.expect_on("a", "file");
    pool.settle_closed();
    assert_eq!(pool.explain("file").outcome, "nothing: it is where it belongs");
}

#[test]
fn a_dry_run_keeps_a_season_together_and_takes_turns_as_the_walk_does() {
    for (keys, expected) in [("together = \"/TV/*/*\"", ["b", "b", "b"]), ("spread = \"round-robin\"", ["a", "b", "a"])]
    {
        let disks = [64, 32, 34].map(|size| Disk::tmpfs(size * MIB));
        let group = format!("[[group]]\nname = \"hdds\"\nbranches = [\"a\", \"b\"]\n{keys}\n");
        let mut builder = Pool::builder().default(&["ssd"]).rules(&group);
        for (name, disk) in ["ssd", "a", "b"].into_iter().zip(&disks) {
            builder = builder.branch(name, disk.path());
        }
        let mut pool = builder.mount();
        fs::create_dir_all(pool.join("TV/Show/S1")).unwrap();
        let episodes = ["TV/Show/S1/e1", "TV/Show/S1/e2", "TV/Show/S1/e3"];
        for episode in episodes {
            fs::write(pool.join(episode), bytes(1, 4 * MIB)).unwrap();
        }
        pool.load_rules(&format!("{group}[[rule]]\nwhen = {{}}\nto = [\"hdds\"]\n"));
        pool.settle_closed();
        let (events, _) = pool.enforce_dry_run();
        let mut promised: Vec<_> = events.into_iter().map(|event| (event.path, event.to)).collect();
        // In the order of the walk; by name, to be compared with where they came to lie.
        let turns: Vec<_> = promised.iter().map(|(_, to)| to.clone()).collect();
        assert_eq!(turns, expected, "{keys}");
        promised.sort();
        pool.enforce();
        let moved: Vec<_> =
            episodes.iter().zip(places(&pool, &episodes)).map(|(path, on)| (format!("/{path}"), on)).collect();
        assert_eq!(moved, promised, "{keys}");
    }
}

#[test]
fn a_season_whose_disk_is_full_goes_on_elsewhere_or_nowhere() {
    for (spills, expected) in [(true, Some("a")), (false, None)] {
        let pool = grouped([("a", 16), ("b", 20)], &format!("together = 1\ntogether_spill = {spills}"));
        fs::create_dir(pool.join("album")).unwrap();
        fs::write(pool.join("album/1"), bytes(1, 4 * MIB)).unwrap();
        assert_eq!(pool.found_on("album/1"), ["b"]);
        // As much as fits: even a file without a byte finds no page for its entry's data.
        let _full = fs::write(pool.disks[1].join("filler"), bytes(2, 20 * MIB));
        let written = fs::write(pool.join("album/2"), bytes(3, MIB));
        match expected {
            Some(branch) => {
                written.unwrap();
                pool.expect_on(branch, "album/2");
            }
            None => assert_errno(written, libc::ENOSPC),
        }
    }
}

#[test]
fn files_of_one_directory_that_begin_at_once_go_to_one_disk() {
    let pool = grouped([("a", 32), ("b", 32), ("c", 32)], "together = \"/*\"\nspread = \"random\"");
    for round in 0..8 {
        let album = format!("album{round}");
        fs::create_dir(pool.join(&album)).unwrap();
        thread::scope(|scope| {
            for track in 0..6 {
                let path = pool.join(&album).join(track.to_string());
                scope.spawn(move || fs::write(path, "x").unwrap());
            }
        });
        let first = pool.found_on(format!("{album}/0"));
        for track in 1..6 {
            assert_eq!(pool.found_on(format!("{album}/{track}")), first, "{album}/{track}");
        }
    }
}

#[test]
fn files_that_waited_in_memory_come_to_the_disk_of_their_directory() {
    let disks = [Disk::tmpfs(32 * MIB), Disk::tmpfs(32 * MIB), Disk::tmpfs(32 * MIB)];
    let mut builder =
        Pool::builder().default(&["all"]).keys("[staging]\nmode = \"always\"\nmax_age = \"1h\"\nsize = \"4MiB\"");
    for (name, disk) in ["a", "b", "c"].into_iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let pool = builder.rules(&all("together = \"/*\"\nspread = \"random\"")).mount();
    for album in ["one", "two", "three", "four"] {
        fs::create_dir(pool.join(album)).unwrap();
        for track in 0..6 {
            fs::write(pool.join(album).join(track.to_string()), "x").unwrap();
        }
    }
    pool.say(["sync"]);
    for album in ["one", "two", "three", "four"] {
        let first = pool.found_on(format!("{album}/0"));
        assert_eq!(first.len(), 1, "{album}");
        for track in 1..6 {
            assert_eq!(pool.found_on(format!("{album}/{track}")), first, "{album}/{track}");
        }
    }
}

#[test]
fn a_drained_disk_gives_its_seasons_away_whole() {
    let pool = grouped([("a", 40), ("b", 24), ("c", 24)], "together = \"/TV/*\"\nspread = [\"same-path\", \"random\"]");
    fs::create_dir_all(pool.join("TV/S1")).unwrap();
    fs::create_dir_all(pool.disks[0].join("TV/S2")).unwrap();
    for season in ["S1", "S2"] {
        for episode in 0..5 {
            fs::create_dir_all(pool.disks[0].join("TV").join(season)).unwrap();
            fs::write(pool.disks[0].join(format!("TV/{season}/{episode}")), bytes(episode, MIB)).unwrap();
        }
    }
    pool.say(["branch", "drain", "a"]);
    for season in ["S1", "S2"] {
        let first = pool.found_on(format!("TV/{season}/0"));
        assert!(first == ["b"] || first == ["c"], "{first:?}");
        for episode in 1..5 {
            assert_eq!(pool.found_on(format!("TV/{season}/{episode}")), first, "{season}/{episode}");
        }
    }
}

#[test]
fn each_spread_chooses_in_its_own_way() {
    // Free and size in MiB: a 32 of 32, b 20 of 40, c 8 of 8.
    let cases = [
        ("most-free", ["a", "a"]),
        ("most-free-share", ["a", "c"]),
        ("least-free", ["c", "c"]),
        ("least-used", ["a", "c"]),
        ("in-order", ["a", "a"]),
        ("round-robin", ["a", "b"]),
        ("high-water", ["a", "a"]),
    ];
    for (spread, expected) in cases {
        let pool = grouped([("a", 32), ("b", 40), ("c", 8)], &format!("spread = {spread:?}"));
        fs::write(pool.disks[1].join("filler"), bytes(1, 20 * MIB)).unwrap();
        pool.settle_room();
        // A directory is no turn.
        fs::create_dir(pool.join("dir")).unwrap();
        fs::write(pool.join("dir/1"), bytes(2, MIB)).unwrap();
        pool.settle_room();
        fs::write(pool.join("dir/2"), bytes(3, MIB)).unwrap();
        assert_eq!(places(&pool, &["dir/1", "dir/2"]), expected, "{spread}");
    }
    let pool = grouped([("a", 32), ("b", 32)], "spread = \"random\"");
    for number in 0..64 {
        fs::write(pool.join(number.to_string()), "x").unwrap();
    }
    assert!(pool.disks.iter().all(|disk| !disk.files().is_empty()), "chance comes to each");
}

#[test]
fn existing_paths_are_preferred_kept_to_or_climbed() {
    let answers = [("same-path", Ok("c")), ("nearest-path", Ok("b")), ("only-same-path", Err(libc::ENOSPC))];
    for (spread, when_full) in answers {
        let pool = grouped([("a", 8), ("b", 16), ("c", 32)], &format!("spread = [{spread:?}, \"most-free\"]"));
        fs::create_dir_all(pool.disks[0].join("films/old")).unwrap();
        fs::create_dir_all(pool.disks[1].join("films")).unwrap();
        fs::write(pool.join("films/old/1"), "x").unwrap();
        assert_eq!(pool.found_on("films/old/1"), ["a"], "{spread}: it has the directory");
        fs::write(pool.disks[0].join("filler"), bytes(1, 8 * MIB)).unwrap_err();
        pool.settle_room();
        let written = fs::write(pool.join("films/old/2"), bytes(2, MIB));
        match when_full {
            Ok(branch) => {
                written.unwrap();
                pool.expect_on(branch, "films/old/2");
            }
            Err(errno) => assert_errno(written, errno),
        }
    }
}

#[test]
fn nothing_moves_on_two_used_disks_that_become_a_group() {
    let disks = [16, 32, 32].map(|size| Disk::ext4(size * MIB));
    let mut lists = Vec::new();
    for (number, disk) in disks.iter().enumerate().take(2) {
        for dir in ["TV/Show/S1", "music"] {
            fs::create_dir_all(disk.join(dir)).unwrap();
            fs::write(disk.join(format!("{dir}/{number}")), bytes(1, MIB)).unwrap();
            last_read_days_ago(&disk.join(format!("{dir}/{number}")), 90);
        }
        lists.push(disk.files());
    }
    // A library that is older than a month goes to the hard disks, and is there already.
    let rules = "[[group]]\nname = \"hdds\"\nbranches = [\"a\", \"b\"]\ntogether = \"/TV/*/*\"\n\
                 [[rule]]\nname = \"old\"\nwhen = { atime = \"> 30d\" }\nto = [\"hdds\"]\n";
    let builder = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path());
    let pool = builder.branch("ssd", disks[2].path()).default(&["hdds", "any"]).rules(rules).mount();
    let (events, promised) = pool.enforce_dry_run();
    assert_eq!((events.len(), promised.files_moved), (0, 0));
    assert_eq!(pool.enforce().files_moved, 0);
    for (disk, before) in disks.iter().zip(&lists) {
        assert_eq!(disk.files(), *before);
    }
    fs::write(pool.join("music/new"), "x").unwrap();
    assert_eq!(pool.found_on("music/new"), ["b"], "a new one goes where most is free");
}

#[test]
fn a_file_that_grows_moves_along_its_own_list_only() {
    let disks = [Disk::tmpfs(MIB), Disk::tmpfs(8 * MIB), Disk::tmpfs(64 * MIB)];
    let rules = "[[group]]\nname = \"hdds\"\nbranches = [\"ssd\", \"a\"]\nspread = \"in-order\"\n\
                 [[rule]]\nname = \"films\"\nwhen = { extension = \"mkv\" }\nto = [\"hdds\"]\n";
    let mut builder = Pool::builder().default(&["spare"]).rules(rules);
    for (name, disk) in ["ssd", "a", "spare"].into_iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let pool = builder.mount();
    fs::write(pool.join("one.mkv"), bytes(1, 4 * MIB)).unwrap();
    pool.expect_on("a", "one.mkv");
    assert_errno(fs::write(pool.join("two.mkv"), bytes(1, 16 * MIB)), libc::ENOSPC);
    assert_eq!(disks[2].files().len(), 0, "spare is on another list");
    let warnings = pool.status().warnings;
    assert!(
        warnings
            .iter()
            .any(|one| one
                .contains("no branch of the list of rule \"films\" (hdds) had room for /two.mkv; most free is ")),
        "{warnings:?}"
    );
}

#[test]
fn check_names_the_members_of_each_group() {
    let pool = grouped([("a", 8), ("b", 8)], "");
    let checked = pool.umbrella(["check".as_ref(), pool.config_path().as_os_str()]);
    assert!(text(&checked).contains("group \"all\": a, b"), "{}", text(&checked));
}

#[test]
fn a_disk_that_a_pattern_made_a_branch_is_offline_while_it_is_missing() {
    let (ssd, shelf) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(64 * MIB));
    for name in ["disk1", "disk2"] {
        fs::create_dir(shelf.join(name)).unwrap();
        fs::write(shelf.join(name).join(format!("on-{name}")), name).unwrap();
    }
    let rules = format!(
        "[[branch]]\npath = \"{}/disk*\"\noptional = true\n[[group]]\nname = \"hdds\"\nbranches = \"disk*\"\n",
        shelf.path().display()
    );
    let mut pool = Pool::builder().branch("ssd", ssd.path()).default(&["hdds"]).rules(&rules).mount();
    let states = |pool: &Pool| {
        let branches = pool.status().branches.into_iter();
        branches.map(|branch| (branch.name.clone(), pool.is_online(&branch.name))).collect::<Vec<_>>()
    };
    let named = |name: &str, online| (name.to_owned(), online);
    assert_eq!(states(&pool), [named("ssd", true), named("disk1", true), named("disk2", true)]);
    assert_eq!(fs::read(pool.join("on-disk2")).unwrap(), b"disk2");
    pool.stop();
    fs::rename(shelf.join("disk2"), shelf.join("away")).unwrap();
    fs::create_dir(shelf.join("disk3")).unwrap();
    pool.start();
    assert_eq!(states(&pool), [named("ssd", true), named("disk1", true), named("disk2", false), named("disk3", true)]);
    assert!(fs::read(pool.join("on-disk2")).is_err());
    pool.stop();
    fs::rename(shelf.join("away"), shelf.join("disk2")).unwrap();
    pool.start();
    assert_eq!(fs::read(pool.join("on-disk2")).unwrap(), b"disk2");
}

#[test]
fn a_pool_that_is_full_is_a_problem_with_the_command_that_makes_room() {
    let disks = ["a", "b"].map(|_| Disk::tmpfs(4 * MIB));
    let builder = Pool::builder().default(&["all"]).branch("a", disks[0].path()).branch("b", disks[1].path());
    let pool = builder.rules("[[group]]\nname = \"all\"\nbranches = [\"a\", \"b\"]\n").mount();
    let full = (0..20).find_map(|at| fs::write(pool.join(format!("{at}")), bytes(at, MIB)).err()).unwrap();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    let said = text(&pool.umbrella(["doctor", "--quick"]));
    let todo = "\n         -> delete files, or add a disk with `umbrella branch add NAME PATH --group all --save`\n";
    let problem = "problem  pool: no room: no branch of the default list (all) had room for /";
    assert!(said.contains(problem) && said.contains(todo), "{said}");
}

#[test]
fn more_free_space_is_a_better_chance() {
    let pool = grouped([("a", 16), ("b", 64)], "spread = \"random-by-free\"");
    for number in 0..200 {
        fs::write(pool.join(number.to_string()), "x").unwrap();
    }
    let [few, most] = [0, 1].map(|at| pool.disks[at].files().len());
    assert!(few > 0 && most > few, "a fifth and four fifths: {few} and {most}");
}

/// Young files of any rule leave `ssd` for `hdd` while this holds.
fn told(condition: &str) -> ([Disk; 4], Pool) {
    let disks =
        [(32, 1000), (8, 400), (24, 400), (32, 1000)].map(|(size, inodes)| Disk::tmpfs_with_inodes(size * MIB, inodes));
    let mut builder = Pool::builder().default(&["ssd"]).keys("probe_interval = \"1s\"");
    for (name, disk) in ["ssd", "a", "b", "hdd"].iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let group = "[[group]]\nname = \"both\"\nbranches = [\"a\", \"b\"]\n";
    let rule = format!("[[rule]]\nname = \"told\"\nwhen = {{ {condition} }}\nto = [\"hdd\"]\n");
    (disks, builder.rules(&format!("{group}{rule}")).mount())
}

/// Whether a rule with this condition takes a new file.
fn takes(pool: &Pool, name: &str) -> bool {
    pool.settle_room();
    fs::write(pool.join(name), "x").unwrap();
    pool.found_on(name) == ["hdd"]
}

#[test]
fn a_rule_asks_for_the_space_of_a_group() {
    // 32 MiB in both, of which 8 in the smaller one.
    for condition in ["free = { both = \"< 50%\" }", "used = { both = \"> 16MiB\" }"] {
        let ([_ssd, a, b, _hdd], pool) = told(condition);
        let _full = fs::write(a.join("filler"), bytes(1, 7 * MIB));
        assert!(!takes(&pool, "one"), "{condition}: a full member is less than half of both");
        fs::write(b.join("filler"), bytes(1, 12 * MIB)).unwrap();
        assert!(takes(&pool, "two"), "{condition}");
    }
}

#[test]
fn a_rule_asks_for_the_inodes_of_a_group() {
    let ([_ssd, a, b, _hdd], pool) = told("inodes = { both = \"> 50%\" }");
    let fill = |disk: &Disk, count: u64| (0..count).for_each(|at| fs::write(disk.join(format!("i{at}")), "").unwrap());
    fill(&a, 300);
    assert!(!takes(&pool, "one"));
    fill(&b, 200);
    assert!(takes(&pool, "two"));
}

#[test]
fn a_group_is_online_with_any_member_and_offline_without_all() {
    for (condition, expected) in
        [("online = \"both\"", [true, true, false]), ("offline = \"both\"", [false, false, true])]
    {
        let ([_ssd, a, b, _hdd], pool) = told(condition);
        fs::write(pool.join("0"), "x").unwrap();
        let mut found = vec![pool.found_on("0") == ["hdd"]];
        for (at, (name, disk)) in [("a", &a), ("b", &b)].into_iter().enumerate() {
            disk.vanish();
            eventually("it is offline", || !pool.is_online(name));
            let file = (at + 1).to_string();
            fs::write(pool.join(&file), "x").unwrap();
            found.push(pool.found_on(&file) == ["hdd"]);
        }
        assert_eq!(found, expected, "{condition}");
    }
}
