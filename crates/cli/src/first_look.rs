//! The first mount of a pool over disks that hold files already: what `umbrella check --import` would say, in a line.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::advice::command;
use crate::survey::{Contents, Root, Totals, walk};
use crate::text::count;

/// The survey was stopped.
struct Ended;

/// Surveys all branches while `goes_on` returns true. Returns a message about what it found, or `None` if there is
/// nothing to report or the survey was stopped. Only reads. Branches are given by name and open root, because their
/// paths may be hidden.
pub(crate) fn survey_branches(
    branches: &[(String, OwnedFd)],
    config: &Path,
    goes_on: &dyn Fn() -> bool,
) -> Option<String> {
    let root = |(name, root): &(String, OwnedFd)| {
        let path = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        Root { name: name.clone(), path }
    };
    let roots: Vec<Root> = branches.iter().map(root).collect();
    let totals = walk(&roots, Contents::Sizes, &mut |_| if goes_on() { Ok(()) } else { Err(Ended) }).ok()?;
    if totals.is_clean() {
        tracing::info!("first look at the branches: no file is on several of them, and all directories agree");
        return None;
    }
    Some(format!(
        "first look at the branches: {} ({} lists them and says what to do)",
        summary(&totals),
        command(["check", "--import", &config.to_string_lossy()])
    ))
}

fn summary(totals: &Totals) -> String {
    let reported = [
        (totals.files_on_several(), "file", "on several branches"),
        (totals.directories_differing, "directory", "with different owners, modes or ACLs"),
        (totals.kinds_differing, "name", "that is a directory here and a file there"),
        (totals.case_differing, "group of names", "that differ only in case"),
        (totals.unread, "name", "that could not be read"),
    ];
    let reported = reported.into_iter().filter(|(number, ..)| *number > 0);
    reported.map(|(number, what, how)| format!("{} {how}", many(number, what))).collect::<Vec<_>>().join(", ")
}

fn many(number: u64, what: &str) -> String {
    match (number, what) {
        (2.., "directory") => format!("{number} directories"),
        (2.., "group of names") => format!("{number} groups of names"),
        _ => count(number, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_what_was_found_and_nothing_else() {
        let found = Totals { files_same: 1, files_different: 2, directories_differing: 2, ..Totals::default() };
        let expected = "3 files on several branches, 2 directories with different owners, modes or ACLs";
        assert_eq!(summary(&found), expected);
        assert_eq!(
            summary(&Totals { case_differing: 1, ..Totals::default() }),
            "1 group of names that differ only in case"
        );
    }

    #[test]
    fn two_disks_are_looked_at_until_somebody_ends_it() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for dir in &dirs {
            std::fs::write(dir.path().join("film"), "film").unwrap();
        }
        let open = |dir: &tempfile::TempDir| ("disk".to_owned(), std::fs::File::open(dir.path()).unwrap().into());
        let roots = [open(&dirs[0]), open(&dirs[1])];
        let file = Path::new("/etc/pool.toml");
        let found = survey_branches(&roots, file, &|| true).unwrap();
        assert!(found.contains("1 file on several branches") && found.contains("--import /etc/pool.toml"), "{found}");
        assert_eq!(survey_branches(&roots, file, &|| false), None);
    }
}
