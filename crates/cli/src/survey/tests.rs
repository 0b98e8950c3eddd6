use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;

/// Branches `a`, `b` and `c` with these files and their contents; a path that ends with `/` is a directory.
fn roots(files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<Root>) {
    let dir = tempfile::tempdir().unwrap();
    let roots = ["a", "b", "c"].map(|name| Root { name: name.to_owned(), path: dir.path().join(name) });
    for root in &roots {
        fs::create_dir(&root.path).unwrap();
    }
    for (path, content) in files {
        let path_of = dir.path().join(path);
        if path.ends_with('/') {
            fs::create_dir_all(path_of).unwrap();
        } else {
            fs::create_dir_all(path_of.parent().unwrap()).unwrap();
            fs::write(path_of, content).unwrap();
        }
    }
    (dir, roots.into())
}

fn survey(roots: &[Root], contents: Contents) -> (Vec<Finding>, Totals) {
    let mut found = Vec::new();
    let totals = walk::<Infallible>(roots, contents, &mut |step| {
        if let Step::Found(finding) = step {
            found.push(finding);
        }
        Ok(())
    });
    (found, totals.unwrap())
}

/// Each finding in a line.
fn reported(found: &[Finding]) -> Vec<String> {
    let line = |finding: &Finding| match finding {
        Finding::File { place, content, copies } => {
            let on: Vec<_> = copies.iter().map(|copy| copy.branch.as_str()).collect();
            format!("{content:?} {} {}", place.path, on.join(","))
        }
        Finding::Directory { place, copies } => format!("rights {} {}", place.path, copies.len()),
        Finding::Kinds { place, directory_on, other_on } => {
            format!("kinds {} {}/{}", place.path, directory_on.join(","), other_on.join(","))
        }
        Finding::Case { names } => {
            let names: Vec<_> =
                names.iter().map(|name| format!("{}@{}", name.place.path, name.branches.join(","))).collect();
            format!("case {}", names.join(" "))
        }
        Finding::Unread(unread) => format!("unread {} {}", unread.place.path, unread.branch),
    };
    found.iter().map(line).collect()
}

#[test]
fn branches_without_a_common_name_have_nothing_to_tell() {
    let (_dir, roots) = roots(&[("a/films/one", "1"), ("b/films/two", "2"), ("c/empty/", "")]);
    let (found, totals) = survey(&roots, Contents::Bytes);
    assert_eq!(found, []);
    assert!(totals.is_clean());
    let counts: Vec<_> = totals.branches.iter().map(|branch| (branch.files, branch.directories)).collect();
    assert_eq!(counts, [(1, 1), (1, 1), (0, 1)]);
    assert!(totals.branches.iter().all(|branch| branch.total > branch.free));
}

#[test]
fn copies_are_told_apart_by_size_and_only_if_asked_by_content() {
    let files = [
        ("a/size", "1"),
        ("b/size", "22"),
        ("a/content", "one"),
        ("b/content", "two"),
        ("a/same", "same"),
        ("c/same", "same"),
    ];
    let (_dir, roots) = roots(&files);
    let order = |found: Vec<Finding>| {
        let mut reported = reported(&found);
        // Which copy is the newest is another test's.
        for line in &mut reported {
            line.truncate(line.rfind(' ').unwrap());
        }
        reported
    };
    let (found, totals) = survey(&roots, Contents::Sizes);
    assert_eq!(order(found), ["SameSize /content", "SameSize /same", "Different /size"]);
    assert_eq!((totals.files_on_several(), totals.files_same_size), (3, 2));
    let (found, _) = survey(&roots, Contents::Bytes);
    assert_eq!(order(found), ["Different /content", "Same /same", "Different /size"]);
}

#[test]
fn the_newest_copy_comes_first_as_the_pool_shows_it() {
    let (dir, roots) = roots(&[("a/file", "old"), ("b/file", "newer"), ("c/file", "oldest")]);
    for (path, seconds) in [("a/file", 2), ("b/file", 3), ("c/file", 1)] {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(dir.path().join(path)).unwrap().set_modified(at).unwrap();
    }
    let (found, totals) = survey(&roots, Contents::Sizes);
    assert_eq!(reported(&found), ["Different /file b,a,c"]);
    assert_eq!(totals.bytes_hidden.0, 3 + 6);
}

#[test]
fn a_difference_behind_the_first_piece_is_found() {
    let (dir, roots) = roots(&[]);
    let mut content = vec![7; (1 << 20) + 10];
    fs::write(dir.path().join("a/file"), &content).unwrap();
    *content.last_mut().unwrap() = 8;
    fs::write(dir.path().join("b/file"), &content).unwrap();
    let (found, _) = survey(&roots, Contents::Bytes);
    assert!(reported(&found)[0].starts_with("Different /file"), "{found:?}");
}

#[test]
fn directories_that_differ_in_mode_are_found_also_at_the_root() {
    let (dir, roots) = roots(&[("a/music/", ""), ("b/music/", ""), ("c/music/", "")]);
    for (path, mode) in
        [("a", 0o755), ("b", 0o755), ("c", 0o700), ("a/music", 0o700), ("b/music", 0o750), ("c/music", 0o700)]
    {
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (found, totals) = survey(&roots, Contents::Sizes);
    assert_eq!(reported(&found), ["rights / 3", "rights /music 3"]);
    assert_eq!(totals.directories_differing, 2);
}

#[test]
fn a_directory_here_and_a_file_there_are_found_and_the_directory_is_entered() {
    let files = [("a/name/in/twice", "1"), ("b/name", "file"), ("c/name/in/twice", "22")];
    let (_dir, roots) = roots(&files);
    let (found, _) = survey(&roots, Contents::Sizes);
    let reported = reported(&found);
    assert_eq!(reported[0], "kinds /name a,c/b");
    assert!(reported[1].starts_with("Different /name/in/twice"), "{reported:?}");
}

#[test]
fn names_that_differ_in_case_are_found_across_branches_only() {
    let files = [("a/Films/x", ""), ("b/films/y", ""), ("c/Both/", ""), ("c/both/", ""), ("a/ÄÖ", ""), ("b/äö", "")];
    let (_dir, roots) = roots(&files);
    let (found, totals) = survey(&roots, Contents::Sizes);
    assert_eq!(reported(&found), ["case /Films@a /films@b", "case /ÄÖ@a /äö@b"]);
    assert_eq!(totals.case_differing, 2);
}

#[test]
fn symbolic_links_are_compared_and_never_followed() {
    let (dir, roots) = roots(&[("a/real/file", "1"), ("b/real/file", "1")]);
    symlink("real", dir.path().join("a/same")).unwrap();
    symlink("real", dir.path().join("b/same")).unwrap();
    symlink("real", dir.path().join("a/other")).unwrap();
    symlink("/etc", dir.path().join("b/other")).unwrap();
    symlink("/", dir.path().join("c/up")).unwrap();
    let (found, totals) = survey(&roots, Contents::Bytes);
    let reported = reported(&found);
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(reported[0].starts_with("Different /other") && reported[1].starts_with("Same /same"), "{reported:?}");
    assert_eq!(totals.branches[2].others, 1);
}

#[test]
fn a_fifo_is_not_waited_for() {
    let (dir, roots) = roots(&[]);
    for branch in ["a", "b"] {
        nix::unistd::mkfifo(&dir.path().join(branch).join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let (found, _) = survey(&roots, Contents::Bytes);
    assert!(reported(&found)[0].starts_with("Same /fifo"));
}

#[test]
fn the_pools_own_folder_is_left_out_at_the_root_only() {
    let (_dir, roots) =
        roots(&[("a/.umbrella/x", "1"), ("b/.umbrella/x", "22"), ("a/d/.umbrella", "1"), ("b/d/.umbrella", "22")]);
    let (found, _) = survey(&roots, Contents::Sizes);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn access_times_stay() {
    let (dir, roots) = roots(&[("a/d/file", "1"), ("b/d/file", "1")]);
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
    let paths = ["a/d", "b/d", "a/d/file", "b/d/file"].map(|path| dir.path().join(path));
    let times = fs::FileTimes::new().set_accessed(old);
    for path in &paths {
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
    survey(&roots, Contents::Bytes);
    for path in &paths {
        assert_eq!(fs::metadata(path).unwrap().atime(), 1_000, "{}", path.display());
    }
}

#[test]
fn a_branch_that_is_missing_is_reported_and_the_others_are_read() {
    let (_dir, mut roots) = roots(&[("a/file", "1"), ("c/file", "22")]);
    roots[1].path = Path::new("/does/not/exist").to_owned();
    let (found, totals) = survey(&roots, Contents::Sizes);
    let reported = reported(&found);
    assert_eq!(reported[0], "unread / b");
    assert!(reported[1].starts_with("Different /file"), "{reported:?}");
    assert_eq!((totals.unread, totals.branches.len()), (1, 3));
}

#[test]
fn a_name_that_is_no_text_keeps_its_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (dir, roots) = roots(&[]);
    let name = OsStr::from_bytes(b"\xff\n");
    fs::write(dir.path().join("a").join(name), "1").unwrap();
    fs::write(dir.path().join("b").join(name), "22").unwrap();
    let (found, _) = survey(&roots, Contents::Sizes);
    let Finding::File { place, .. } = &found[0] else { panic!("{found:?}") };
    assert_eq!(place.path_bytes.as_deref(), Some(&b"/\xff\n"[..]));
}

#[test]
fn who_does_not_want_to_hear_more_ends_the_walk() {
    let (_dir, roots) = roots(&[("a/x", "1"), ("b/x", "22"), ("a/y", "1"), ("b/y", "22")]);
    let mut found = 0;
    let ended = walk(&roots, Contents::Sizes, &mut |step| match step {
        Step::Found(_) => {
            found += 1;
            Err("enough")
        }
        Step::At { .. } => Ok(()),
    });
    assert_eq!((ended.unwrap_err(), found), ("enough", 1));
}
