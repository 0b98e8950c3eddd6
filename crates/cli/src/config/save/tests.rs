use std::os::unix::fs::symlink;

use umbrella_units::{Amount, ByteSize};

use super::*;

const TEXT: &str = "# the house\nmount = \"/srv/pool\"   # where\n\ndefault = [\"a\"] # files\n\n[[branch]]\nname = \"a\"\npath = \"/mnt/a\"  # old\n\n\
                    # rules come last\n[[rule]]\nwhen = { size = \"> 1MiB\" }\nto = [\"a\"]\n";

fn branch(name: &str, path: &str) -> BranchSpec {
    BranchSpec {
        name: name.to_owned(),
        path: path.into(),
        keep_free: Amount::Bytes(ByteSize(0)),
        headroom: None,
        read_only: false,
        optional: false,
        require_mount: None,
        min_stay: std::time::Duration::ZERO,
        passthrough: true,
        write_back: None,
    }
}

/// The text after a branch `b` was added.
fn with_b(text: &str, path: &str, to_default: bool) -> anyhow::Result<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, text).unwrap();
    let branch = branch("b", path);
    let lines = format!("[[branch]]\nname = \"b\"\npath = {path:?}\n");
    prepare(&file, &Addition { branch: &branch, lines: &lines, to_default })?.write()?;
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
fn what_somebody_writes_meanwhile_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, TEXT).unwrap();
    let addition = Addition {
        branch: &branch("b", "/mnt/b"),
        lines: "[[branch]]\nname = \"b\"\npath = \"/mnt/b\"\n",
        to_default: true,
    };
    let prepared = prepare(&file, &addition).unwrap();
    let theirs = format!("{TEXT}# mine\n");
    std::fs::write(&file, &theirs).unwrap();
    prepared.write().unwrap_err();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), theirs);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no new file is left beside it");
}

#[test]
fn a_default_list_that_is_not_written_is_written_with_what_it_was() {
    let bare = TEXT.replace("default = [\"a\"] # files\n", "");
    let new = with_b(&bare, "/mnt/b", false).unwrap();
    assert!(new.contains("\ndefault = [\"a\"]\n") && new.contains("# where"), "{new}");
    assert!(with_b(&bare, "/mnt/b", true).unwrap().contains("\ndefault = [\"a\", \"b\"]\n"));
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
    let addition =
        Addition { branch: &branch, lines: "[[branch]]\nname = \"b\"\npath = \"/mnt/b\"\n", to_default: false };
    prepare(&link, &addition).unwrap().write().unwrap();
    assert!(link.is_symlink() && std::fs::read_to_string(&file).unwrap().contains("/mnt/b"));
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(dir.path().read_dir().unwrap().count(), 2, "nothing else is left");
}

#[test]
fn what_is_no_file_is_not_written() {
    let branch = branch("b", "/mnt/b");
    let addition = Addition { branch: &branch, lines: "", to_default: false };
    for no_file in ["/dev/null", "/does/not/exist", ""] {
        let error = prepare(Path::new(no_file), &addition).unwrap_err().to_string();
        assert!(error.contains("cannot find the configuration file"), "{no_file}: {error}");
    }
}
