//! Messages about the paths of a configuration that exist.

use umbrella_fs::spec::AccessTimes;

use super::*;
use crate::config::disks::is_disk;

/// A directory with `a`, `a/inside`, `b`, `mount`, and a link `to-a`.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a/inside", "b", "mount"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink("a", dir.path().join("to-a")).unwrap();
    dir
}

fn look_at(dir: &Path, mount: &str, one: &str, two: &str) -> Result<(Config, Vec<SpannedNotice>), ConfigErrors> {
    let shown = dir.display();
    let text = format!(
        "mount = \"{shown}/{mount}\"\ndefault = \"one\"\n[[branch]]\nname = \"one\"\npath = \"{shown}/{one}\"\n\
         [[branch]]\nname = \"two\"\npath = \"{shown}/{two}\"\n"
    );
    let file = dir.join("pool.toml");
    std::fs::write(&file, text).unwrap();
    load(&file, None, AccessTimes::default())
}

#[test]
fn a_staging_area_is_neither_in_a_branch_nor_in_the_mount_point() {
    let dir = place();
    let shown = dir.path().display();
    for (area, other) in [("a/inside", "the branch \"one\""), ("mount/area", "the mount point"), ("", "the branch")] {
        let text = format!(
            "mount = \"{shown}/mount\"\n[staging]\npath = \"{shown}/{area}\"\n[[branch]]\nname = \"one\"\npath = \"{shown}/a\"\n"
        );
        let file = dir.path().join("pool.toml");
        std::fs::write(&file, text).unwrap();
        let errors = load(&file, None, AccessTimes::default()).unwrap_err();
        assert!(errors.to_string().contains(other), "{errors}");
        assert_eq!(errors.reports()[0].line, Some(3), "{errors}");
    }
}

fn one_error(mount: &str, one: &str, two: &str) -> (Option<usize>, Problem) {
    let dir = place();
    let errors = look_at(dir.path(), mount, one, two).unwrap_err();
    assert_eq!(errors.problems().len(), 1, "{errors}");
    (errors.reports()[0].line, errors.problems()[0].clone())
}

#[test]
fn a_branch_inside_another_is_an_error() {
    for (one, two) in [("a", "a/inside"), ("a", "to-a/inside"), ("a", "a/not/there"), ("no", "no/where")] {
        let (line, problem) = one_error("mount", one, two);
        assert!(matches!(&problem, Problem::BranchInsideBranch { inner, .. } if inner == "two"), "{problem}");
        assert_eq!(line, Some(8));
    }
}

#[test]
fn two_branches_of_one_directory_are_an_error() {
    for two in ["a", "to-a", "a/./"] {
        let (line, problem) = one_error("mount", "a", two);
        assert!(matches!(problem, Problem::SameDirectory { .. }), "{problem}");
        assert_eq!(line, Some(8));
    }
}

#[test]
fn a_branch_inside_the_mount_point_is_an_error() {
    for one in ["mount", "mount/x"] {
        let (line, problem) = one_error("mount", one, "b");
        assert!(matches!(&problem, Problem::BranchInsideMount { name, .. } if name == "one"), "{problem}");
        assert_eq!(line, Some(5));
    }
}

#[test]
fn a_mount_point_inside_a_branch_is_an_error() {
    for mount in ["a/inside", "to-a/inside", "a/not-there"] {
        let (line, problem) = one_error(mount, "a", "b");
        assert!(matches!(&problem, Problem::MountInsideBranch { name, .. } if name == "one"), "{problem}");
        assert_eq!(line, Some(1));
    }
}

#[test]
fn oddities_are_reported_and_are_no_errors() {
    let dir = place();
    let (_, findings) = look_at(dir.path(), "nowhere", "a", "gone").unwrap();
    let reported: Vec<_> = findings.iter().map(|finding| finding.notice.to_string()).collect();
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(reported[0].contains("nowhere does not exist"), "{reported:?}");
    assert!(reported[1].contains("branch \"one\"") && reported[1].contains("is a plain directory"), "{reported:?}");
    assert!(reported[2].contains("branch \"two\"") && reported[2].contains("gone does not exist"), "{reported:?}");
}

#[test]
fn branches_on_one_file_system_are_reported_unless_one_of_them_is_offline() {
    let dir = place();
    let shown = dir.path().display();
    let file = dir.path().join("pool.toml");
    for (required, shared) in [("false", true), ("true", false)] {
        let text = format!(
            "mount = \"{shown}/mount\"\ndefault = \"a\"\n[[branch]]\nname = \"a\"\npath = \"{shown}/a\"\nrequire_mount = false\n\
             [[branch]]\nname = \"b\"\npath = \"{shown}/b\"\nrequire_mount = {required}\n"
        );
        std::fs::write(&file, text).unwrap();
        let (_, findings) = load(&file, None, AccessTimes::default()).unwrap();
        let reported = findings.iter().any(|finding| matches!(finding.notice, notice::Notice::SameFileSystem { .. }));
        assert_eq!(reported, shared, "{required}: {findings:?}");
    }
}

#[test]
fn a_min_free_of_a_few_bytes_is_reported() {
    let dir = place();
    let shown = dir.path().display();
    let file = dir.path().join("pool.toml");
    for (min_free, reported) in [("5", true), ("\"5\"", true), ("\"5%\"", false), ("0", false), ("\"1MiB\"", false)] {
        let text = format!(
            "mount = \"{shown}/mount\"\n[[branch]]\nname = \"a\"\npath = \"{shown}/a\"\nmin_free = {min_free}\n"
        );
        std::fs::write(&file, text).unwrap();
        let (_, findings) = load(&file, None, AccessTimes::default()).unwrap();
        let tiny = findings.iter().any(|finding| finding.notice.to_string().contains("write for example \"5%\""));
        assert_eq!(tiny, reported, "{min_free}");
    }
}

#[test]
fn a_staging_area_that_cannot_be_used_is_reported() {
    let dir = place();
    let shown = dir.path().display();
    let file = dir.path().join("pool.toml");
    let cases = [
        ("path = \"PATH/a\"", "is not empty"),
        ("path = \"PATH/b\"", ""),
        ("path = \"PATH/not-there\"", ""),
        ("path = \"/dev/shm\"\nvolatile = false", "loses its contents"),
        ("path = \"PATH/not-there\"\nvolatile = false", "No such file"),
        ("size = \"64MiB\"", ""),
    ];
    for (keys, reason) in cases {
        let keys = keys.replace("PATH", &shown.to_string());
        let text =
            format!("mount = \"{shown}/mount\"\n[[branch]]\nname = \"c\"\npath = \"{shown}/c\"\n[staging]\n{keys}\n");
        std::fs::write(&file, text).unwrap();
        let (_, findings) = load(&file, None, AccessTimes::default()).unwrap();
        let reported = findings
            .iter()
            .map(|finding| finding.notice.to_string())
            .find(|reported| reported.contains("staging area"));
        let as_expected = if reason.is_empty() {
            reported.is_none()
        } else {
            reported.as_deref().is_some_and(|reported| reported.contains(reason))
        };
        assert!(as_expected, "{keys}: {reported:?}");
    }
}

#[test]
fn persistent_memory_is_told_from_disks_and_their_partitions() {
    let dir = place();
    let device = |name: &str, dax: Option<&str>| {
        let device = dir.path().join(name);
        std::fs::create_dir_all(device.join("partition")).unwrap();
        if let Some(dax) = dax {
            std::fs::create_dir(device.join("queue")).unwrap();
            std::fs::write(device.join("queue/dax"), dax).unwrap();
        }
        [is_disk(&device), is_disk(&device.join("partition"))]
    };
    assert_eq!(device("pmem0", Some("1\n")), [false, false]);
    assert_eq!(device("sda", Some("0\n")), [true, true]);
    assert_eq!(device("unknown", None), [false, false]);
}

#[test]
fn the_mount_point_is_known_by_its_real_path() {
    let dir = place();
    std::os::unix::fs::symlink("mount", dir.path().join("link")).unwrap();
    let (config, _) = look_at(dir.path(), "link", "a", "b").unwrap();
    assert_eq!(config.spec.mount, dir.path().canonicalize().unwrap().join("mount"));
}

#[test]
fn rules_that_can_place_nothing_are_reported() {
    let dir = place();
    let shown = dir.path().display();
    let text = format!(
        "mount = \"{shown}/mount\"\n[[branch]]\nname = \"a\"\npath = \"{shown}/a\"\nread_only = true\n\
         require_mount = false\n[[rule]]\nname = \"r\"\nwhen = {{ mtime = \"30d\" }}\nto = \"a\"\n"
    );
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, text).unwrap();
    let (_, findings) = load(&file, None, AccessTimes::default()).unwrap();
    let reported: Vec<_> = findings.into_iter().map(|finding| finding.notice).collect();
    let rule = "r".to_owned();
    assert_eq!(
        reported,
        [
            notice::Notice::DefaultReadOnly,
            notice::Notice::RuleReadOnly { rule: rule.clone() },
            notice::Notice::AgeEquality { rule }
        ]
    );
}

#[test]
fn a_mount_point_that_holds_something_is_reported() {
    let dir = place();
    std::fs::write(dir.path().join("mount/hidden"), "").unwrap();
    let (config, findings) = look_at(dir.path(), "mount", "a", "b").unwrap();
    let reported = notice::Notice::MountNotEmpty { mount: config.spec.mount };
    assert!(findings.iter().any(|finding| finding.notice == reported && !finding.is_remark()), "{findings:?}");
}

#[test]
fn a_pattern_that_begins_with_the_mount_point_is_reported() {
    let dir = place();
    let shown = dir.path().canonicalize().unwrap();
    let shown = shown.display();
    let text = format!(
        "mount = \"{shown}/mount\"\n[[branch]]\nname = \"a\"\npath = \"{shown}/a\"\nrequire_mount = false\n[[rule]]\n\
         match = [{{ glob = \"{shown}/mount/films/**\", to = \"a\" }}, {{ glob = \"/mount/**\", to = \"a\" }}]\n"
    );
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, text).unwrap();
    let (_, findings) = load(&file, None, AccessTimes::default()).unwrap();
    let reported: Vec<_> = findings.iter().map(|finding| finding.notice.to_string()).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(
        reported[0].contains("begins with the mount point") && reported[0].contains("\"/films/**\""),
        "{reported:?}"
    );
}

#[test]
fn a_pattern_that_looks_like_a_directory_is_reported() {
    let dir = place();
    let shown = dir.path().canonicalize().unwrap();
    let shown = shown.display();
    let globs = ["/films", "/photos/2024", "/README", "/README/**", "/a.txt", "/dir.d/name*", "Makefile"];
    let entries: Vec<_> = globs.iter().map(|glob| format!("{{ glob = \"{glob}\", to = \"a\" }}")).collect();
    let text = format!(
        "mount = \"{shown}/mount\"\n[[branch]]\nname = \"a\"\npath = \"{shown}/a\"\nrequire_mount = false\n[[rule]]\nmatch = [{}]\n",
        entries.join(", ")
    );
    let file = dir.path().join("pool.toml");
    std::fs::write(&file, text).unwrap();
    let (_, findings) = load(&file, None, AccessTimes::default()).unwrap();
    let reported: Vec<_> = findings.iter().map(|finding| finding.notice.to_string()).collect();
    assert_eq!(reported.len(), 2, "{reported:?}");
    for (reported, meant) in reported.iter().zip(["/films/**", "/photos/2024/**"]) {
        assert!(
            reported.contains("matches only this name") && reported.contains(&format!("\"{meant}\"")),
            "{reported}"
        );
    }
}

#[test]
fn a_pipe_is_no_configuration_and_nobody_waits_for_it() {
    let dir = place();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let error = read(&pipe).map(|config| config.spec).unwrap_err().to_string();
    assert!(error.contains("it is not a file"), "{error}");
}
