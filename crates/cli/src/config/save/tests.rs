use std::os::unix::fs::symlink;

use super::*;

const TEXT: &str = "# the house\nmount = \"/srv/pool\"   # where\n\ndefault = [\"a\"] # files\n\n[[branch]]\nname = \"a\"\npath = \"/mnt/a\"  # old\n\n\
                    # rules come last\n[[rule]]\nwhen = { size = \"> 1MiB\" }\nto = [\"a\"]\n";

fn branch(name: &str, path: &str) -> BranchSpec {
    BranchSpec::new(name, path)
}

/// The text after a branch `b` was added.
fn with_b(text: &str, path: &str, to_default: bool) -> anyhow::Result<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, text).unwrap();
    let branch = branch("b", path);
    let lines = format!("[[branch]]\nname = \"b\"\npath = {path:?}\n");
    prepare(&file, &Change::Add(Addition { branch: &branch, lines: &lines, to_default, to_group: None }))?.write()?;
    Ok(std::fs::read_to_string(&file).unwrap())
}

#[test]
fn a_branch_comes_behind_the_others_and_everything_else_stays() {
    let new = with_b(TEXT, "/mnt/b", false).unwrap();
    let expected = TEXT.replace("# old\n", "# old\n\n[[branch]]\nname = \"b\"\npath = \"/mnt/b\"\n");
    assert_eq!(new, expected);
    let new = with_b(TEXT, "/mnt/b", true).unwrap();
    assert_eq!(new, expected.replace("[\"a\"] # files", "[\"a\", \"b\"] # files"));
}

#[test]
fn comments_of_the_default_list_stay_where_they_are() {
    let new = with_b(&TEXT.replace("[\"a\"] # files", "\"a\" # files"), "/mnt/b", true).unwrap();
    assert!(new.contains("default = [\"a\", \"b\"] # files\n"), "{new}");
    let lines = |last: &str| TEXT.replace("[\"a\"] # files", &format!("[\n  # fast\n  \"a\"{last} # first\n] # files"));
    for last in [",", ""] {
        let new = with_b(&lines(last), "/mnt/b", true).unwrap();
        assert!(new.contains("[\n  # fast\n  \"a\""), "{new}");
        let (_, behind) = new.split_once("\"a\"").unwrap();
        let (first, next) = behind.split_once('\n').unwrap();
        assert!(first.contains("# first") && next.starts_with("  \"b\""), "{new}");
        assert!(new.contains("] # files"), "{new}");
    }
}

#[test]
fn a_branch_joins_a_group_unless_a_pattern_of_the_group_matches_it() {
    let joined = |branches: &str| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pool.toml");
        let text = format!("{TEXT}[[group]]\nname = \"g\"\nbranches = {branches} # mine\nmin_free = \"5%\"\n");
        std::fs::write(&file, &text).unwrap();
        let branch = branch("b", "/mnt/b");
        let lines = "[[branch]]\nname = \"b\"\npath = \"/mnt/b\"\n";
        let addition = Addition { branch: &branch, lines, to_default: false, to_group: Some("g") };
        let prepared = prepare(&file, &Change::Add(addition)).unwrap();
        assert_eq!(prepared.branch("b").unwrap().min_free.to_string(), "5%", "the group's");
        prepared.write().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        text.split_once("name = \"g\"\nbranches = ").unwrap().1.lines().next().unwrap().to_owned()
    };
    assert_eq!(joined("[\"a\"]"), "[\"a\", \"b\"] # mine");
    assert_eq!(joined("\"a\""), "[\"a\", \"b\"] # mine");
    assert_eq!(joined("\"*\""), "\"*\" # mine");
}

#[test]
fn what_somebody_writes_meanwhile_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, TEXT).unwrap();
    let branch = branch("b", "/mnt/b");
    let lines = "[[branch]]\nname = \"b\"\npath = \"/mnt/b\"\n";
    let prepared =
        prepare(&file, &Change::Add(Addition { branch: &branch, lines, to_default: true, to_group: None })).unwrap();
    let theirs = format!("{TEXT}# mine\n");
    std::fs::write(&file, &theirs).unwrap();
    prepared.write().unwrap_err();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), theirs);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no new file is left beside it");
}

#[test]
fn a_default_list_that_has_every_branch_already_stays_as_it_is() {
    let bare = TEXT.replace("default = [\"a\"] # files\n", "");
    for to_default in [false, true] {
        let new = with_b(&bare, "/mnt/b", to_default).unwrap();
        assert!(!new.contains("default =") && new.contains("# where"), "{new}");
    }
    let any = TEXT.replace("default = [\"a\"]", "default = [\"a\", \"any\"]");
    assert!(with_b(&any, "/mnt/b", true).unwrap().contains("default = [\"a\", \"any\"]"));
    let name_alone = TEXT.replace("default = [\"a\"]", "default = \"a\"");
    assert!(with_b(&name_alone, "/mnt/b", true).unwrap().contains("default = [\"a\", \"b\"]"));
}

#[test]
fn what_the_file_has_already_is_not_written_twice_and_another_branch_of_the_name_is_refused() {
    let has_it = with_b(TEXT, "/mnt/b", true).unwrap();
    assert_eq!(with_b(&has_it, "/mnt/b", true).unwrap(), has_it);
    let error = format!("{:#}", with_b(&has_it, "/mnt/other", true).unwrap_err());
    assert!(error.contains("it has another branch \"b\" at /mnt/b"), "{error}");
}

#[test]
fn a_link_stays_one_and_the_file_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("real.toml"), dir.path().join("pool.toml"));
    std::fs::write(&file, TEXT).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    symlink("real.toml", &link).unwrap();
    let branch = branch("b", "/mnt/b");
    let lines = "[[branch]]\nname = \"b\"\npath = \"/mnt/b\"\n";
    prepare(&link, &Change::Add(Addition { branch: &branch, lines, to_default: false, to_group: None }))
        .unwrap()
        .write()
        .unwrap();
    assert!(link.is_symlink() && std::fs::read_to_string(&file).unwrap().contains("/mnt/b"));
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(dir.path().read_dir().unwrap().count(), 2, "nothing else is left");
}

#[test]
fn what_is_no_file_is_not_written() {
    let branch = branch("b", "/mnt/b");
    let addition = || Addition { branch: &branch, lines: "", to_default: false, to_group: None };
    for no_file in ["/dev/null", "/does/not/exist", ""] {
        let error = prepare(Path::new(no_file), &Change::Add(addition())).unwrap_err().to_string();
        assert!(error.contains("cannot find the configuration file"), "{no_file}: {error}");
    }
}

#[test]
fn a_branch_that_goes_leaves_the_lists_of_fill_levels() {
    let evict =
        |to: &str| format!("path = \"/mnt/a\"\nevict = {{ above = \"80%\", until = \"70%\", to = [{to}] }} # full\n");
    let text = THREE.replace("path = \"/mnt/a\"  # old\n", &evict("\"b\", \"c\""));
    let left = after(&text, &Change::Remove { name: "b" }).unwrap();
    assert!(left.contains(&evict("\"c\"")), "{left}");
}

/// The text after a change.
fn after(text: &str, change: &Change<'_>) -> anyhow::Result<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, text).unwrap();
    prepare(&file, change)?.write()?;
    Ok(std::fs::read_to_string(&file).unwrap())
}

const THREE: &str = "# the house
mount = \"/srv/pool\"
default = [\"a\", \"b\", \"c\"] # files

# the disks, fast ones first

# the old one
[[branch]]
name = \"a\"
path = \"/mnt/a\"  # old

[[branch]]   # the new one
name = \"b\"
path = \"/mnt/b\"  # new

# the last one
[[branch]]
name = \"c\"
path = \"/mnt/c\"

# rules come last
[[rule]]
when = { size = \"> 1MiB\" }
to = [
  \"a\",  # first
  # then
  \"b\",  # second
  \"c\"   # third
]
[[rule]]
match = [{ glob = \"/**.avi\", to = [\"c\", \"a\"] }]  # films
";

#[test]
fn a_branch_that_goes_takes_its_own_comments_and_leaves_the_others() {
    let left = |name| after(THREE, &Change::Remove { name }).unwrap();
    let a = THREE
        .replace("\n# the old one\n[[branch]]\nname = \"a\"\npath = \"/mnt/a\"  # old\n", "")
        .replace("default = [\"a\", ", "default = [")
        .replace("  \"a\",  # first\n", "")
        .replace("[\"c\", \"a\"]", "[\"c\"]");
    assert_eq!(left("a"), a);
    let b = THREE
        .replace("\n[[branch]]   # the new one\nname = \"b\"\npath = \"/mnt/b\"  # new\n", "")
        .replace("\"a\", \"b\", ", "\"a\", ")
        .replace("  # then\n  \"b\",  # second\n", "");
    assert_eq!(left("b"), b);
    let c = THREE
        .replace("\n# the last one\n[[branch]]\nname = \"c\"\npath = \"/mnt/c\"\n", "")
        .replace(", \"c\"] # files", "] # files")
        .replace(",  # second\n  \"c\"   # third\n", "  # second\n")
        .replace("[\"c\", \"a\"]", "[\"a\"]");
    assert_eq!(left("c"), c);
    assert_eq!(left("none"), THREE);
}

#[test]
fn a_branch_that_a_rule_sends_files_to_alone_is_not_taken_out() {
    let alone = THREE.replace("[\"c\", \"a\"]", "[\"a\"]");
    let error = format!("{:#}", after(&alone, &Change::Remove { name: "a" }).unwrap_err());
    assert!(error.contains("would become invalid") && error.contains("no branch or group is called \"a\""), "{error}");
}

#[test]
fn a_branch_that_is_elsewhere_keeps_its_comments() {
    let change = Change::Move { name: "a", path: Path::new("/mnt/new") };
    assert_eq!(after(THREE, &change).unwrap(), THREE.replace("\"/mnt/a\"", "\"/mnt/new\""));
    let unknown = Change::Move { name: "x", path: Path::new("/mnt/new") };
    let error = format!("{:#}", after(THREE, &unknown).unwrap_err());
    assert!(error.contains("it has no branch \"x\""), "{error}");
}

fn settings(write_back: &[(String, Option<WriteBackSpec>)]) -> Change<'_> {
    Change::Settings { write_back, rule: None }
}

#[test]
fn a_rule_comes_behind_the_others() {
    let rule = "[[rule]]\nname = \"small\"\nwhen = { size = \"<= 1MiB\" }\nto = [\"a\", \"default\"]\n";
    let with = after(TEXT, &Change::Settings { write_back: &[], rule: Some(rule) }).unwrap();
    assert_eq!(with, format!("{TEXT}\n{rule}"));
}

#[test]
fn a_branch_that_is_written_back_otherwise_keeps_its_comments_and_nothing_else_changes() {
    let spec = |policy: &str| {
        let (limit, background) = (Some(ByteSize(64 << 20)), Some(ByteSize(16 << 20)));
        Some(WriteBackSpec { limit, background, ..WriteBackSpec::of(policy) })
    };
    let lines =
        |end| format!("write_back = \"sweep\"{end}write_back_limit = \"64MiB\"\nwrite_back_background = \"16MiB\"\n");
    let set = |text: &str, write_back| after(text, &settings(&[("b".to_owned(), write_back)])).unwrap();
    let swept = THREE.replace("\"/mnt/b\"  # new\n", &format!("\"/mnt/b\"  # new\n{}", lines("\n")));
    assert_eq!(set(THREE, spec("sweep")), swept);
    let commented = swept.replace("\"sweep\"\n", "\"sweep\" # tried\n");
    assert_eq!(set(&commented.replace("sweep", "cscan"), spec("sweep")), commented);
    let by_kernel = THREE.replace("# new\n\n", "# new\nwrite_back = \"kernel\"\n\n");
    assert_eq!(set(&swept, None), by_kernel);
    assert_eq!(after(THREE, &settings(&[])).unwrap(), THREE);
    let unknown = format!("{:#}", after(THREE, &settings(&[("x".to_owned(), None)])).unwrap_err());
    assert!(unknown.contains("it has no branch \"x\"") && unknown.contains("leave out --apply"), "{unknown}");
}
