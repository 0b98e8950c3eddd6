//! What to do about an error or a warning of a pool. Commands can be pasted into a shell, whatever a branch or a file
//! is called.

use std::error::Error;
use std::path::Path;
use std::sync::OnceLock;

use umbrella_fs::branch::BranchError;
use umbrella_fs::error::AddedAs;
use umbrella_fs::{Error as PoolError, Warning};
use umbrella_lab::result::shell_words;

use super::command;

pub(super) fn of(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(warning) = error.downcast_ref::<Warning>() {
        return of_warning(warning);
    }
    if let Some(error) = error.downcast_ref::<PoolError>() {
        return of_pool(error);
    }
    of_branch(error.downcast_ref::<BranchError>()?)
}

fn of_warning(warning: &Warning) -> Option<String> {
    Some(match warning {
        Warning::Misplaced { mount, path, .. } => {
            let (mount, file) = (mount.to_string_lossy(), inside(mount, path));
            format!(
                "{} says which. Correct that, then run {}, which moves it and names all such files",
                command(["explain", &file]),
                command(["enforce", &mount])
            )
        }
        Warning::DirectoriesDiffer { mount, .. } => {
            let mount = mount.to_string_lossy();
            format!(
                "to list them: {}. To make the copies equal: the same without --dry-run; `--like BRANCH` copies what \
                that branch has",
                command(["repair", "--equalise", &mount, "--dry-run"])
            )
        }
        Warning::Forgotten { name } => {
            format!(
                "bring it back with `umbrella branch add` or in the configuration, or forget it with {}",
                command(["branch", "remove", name])
            )
        }
        Warning::Draining { name } => {
            format!("continue with {}, end it with --stop", command(["branch", "drain", name]))
        }
        Warning::HiddenFolderGone { name } => {
            format!("after the unmount: {}, then mount again", replace(name))
        }
        Warning::ListFull { most_free: None, draining, .. } if !draining.is_empty() => {
            let stop = draining.iter().map(|name| command(["branch", "drain", name, "--stop"])).collect::<Vec<_>>();
            format!("name another branch in the list, or end the drain with {}", stop.join(" and "))
        }
        Warning::ListFull { group, more, is_default, .. } => {
            let add = match group {
                Some(group) => command(["branch", "add", "NAME", "PATH", "--group", group, "--save"]),
                None if *is_default => command(["branch", "add", "NAME", "PATH", "--default", "--save"]),
                None => {
                    format!("{}, then name it in the rule's list", command(["branch", "add", "NAME", "PATH", "--save"]))
                }
            };
            let elsewhere = more.map_or_else(String::new, |more| format!(", or put {more} at the end of the list"));
            format!("delete files, or add a disk with {add}{elsewhere}")
        }
        Warning::Failing { name, .. } => format!(
            "move its files with {}, or reset the counts with {}",
            command(["branch", "drain", name]),
            command(["branch", "clear-errors", name])
        ),
        Warning::MovesUnnoted { .. } => "`umbrella enforce` is such a walk".to_owned(),
        _ => return None,
    })
}

fn of_pool(error: &PoolError) -> Option<String> {
    Some(match error {
        PoolError::BranchMissing { name, .. } => {
            format!("or start without it: `{}`", shell_words(["--allow-missing", name]))
        }
        PoolError::BranchExists { .. } => {
            "to put it on a list, edit the configuration and run `umbrella rules reload`".to_owned()
        }
        PoolError::Sync(_) => "`umbrella status` names files that cannot leave the staging area".to_owned(),
        PoolError::Unsynced { .. } => "what was written in the last two minutes before may be lost; bring the disk back, look at the files, and run `umbrella sync` again".to_owned(),
        PoolError::StagedLeft { .. } => {
            format!("see `umbrella status`, remove the cause and try again ({LAZY})")
        }
        PoolError::BranchesHang { .. } => LAZY.to_owned(),
        PoolError::BranchNotMounted { comes, .. } => {
            let anyway = match comes {
                AddedAs::New => "--require-mount false",
                AddedAs::InPlace => "--force",
            };
            format!("to use the directory itself, add {anyway}")
        }
        PoolError::NotDrained { name, .. } => {
            format!("correct that and run the command again, or {}", stop_drain(name))
        }
        PoolError::DrainOffline { name, .. } => format!(
            "bring its disk back and run the command again, or take another disk in its place with {}",
            command(["branch", "replace", name, "PATH"])
        ),
        PoolError::DrainUnread { name, .. } => {
            format!("see `umbrella status`, and run the command again, or {}", stop_drain(name))
        }
        PoolError::DrainEnded { name } => {
            format!("continue with {} after the next mount", command(["branch", "drain", name]))
        }
        PoolError::NothingToRecord { .. } => "set a policy with `umbrella write-back set`".to_owned(),
        PoolError::RecordUnderWay { .. } => "end it with --stop first".to_owned(),
        PoolError::BranchNotEmpty { name, .. } => {
            format!("run {} first, or remove it with --force to hide them", command(["branch", "drain", name]))
        }
        PoolError::ReplacesFiles { name, .. } => {
            format!("run {} first, or replace it with --force", command(["branch", "drain", name]))
        }
        PoolError::StillInPlace { name, .. } => format!(
            "mount the new disk there first, or give its path: {}",
            command(["branch", "replace", name, "PATH"])
        ),
        PoolError::BranchUnreadable { .. } => "to continue anyway, add --force".to_owned(),
        PoolError::Unmount { path, .. } => {
            let path = path.to_string_lossy();
            format!(
                "see which programs use it: `{}` or `{}`; detach it anyway: {}",
                shell_words(["fuser", "-vm", &path]),
                shell_words(["lsof", &path]),
                command(["unmount", "--lazy", &path])
            )
        }
        PoolError::AlreadyMounted { path, .. } => format!("see {}", command(["status", &path.to_string_lossy()])),
        _ => return None,
    })
}

fn of_branch(error: &BranchError) -> Option<String> {
    Some(match error {
        BranchError::NoMarker { name, .. } => {
            format!("if the folder was deleted: {}", replace(name))
        }
        BranchError::Another { name, theirs: None, .. } => {
            format!("mount the old disk, or use this one from now on: {}", replace(name))
        }
        BranchError::ReplacedElsewhere { path, name, .. } => {
            format!("to use \"{}\" instead: {}", path.display(), replace(name))
        }
        BranchError::Covered { pool, .. } => {
            format!("unmount it first ({})", command(["unmount", &pool.to_string_lossy()]))
        }
        BranchError::InUse { .. } => {
            "`umbrella status` lists pools: unmount the one that has it; a disk that this pool uses cannot be added again"
                .to_owned()
        }
        BranchError::Marker { .. } => {
            "or remove it, and add the branch as a new one with `umbrella branch replace`".to_owned()
        }
        _ => return None,
    })
}

/// The configuration of this process's pool, where that is known.
static CONFIG: OnceLock<String> = OnceLock::new();

/// Sets the configuration that commands name.
pub(crate) fn name_configuration(config: &Path) {
    let _ = CONFIG.set(config.to_string_lossy().into_owned());
}

const LAZY: &str = "with --lazy they stay in memory until the next mount, and are lost with the power";

/// The commands that accept the directory as a new branch, for a mounted or unmounted pool.
fn replace(name: &str) -> String {
    let config = CONFIG.get().map_or("CONFIG", String::as_str);
    command(["branch", "replace", name, "--pool", config])
}

fn stop_drain(name: &str) -> String {
    format!("place new files there again with {}", command(["branch", "drain", name, "--stop"]))
}

/// A path of the pool, below its mount point.
fn inside(mount: &Path, path: &str) -> String {
    mount.join(path.trim_start_matches('/')).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::io::Errno;
    use umbrella_units::ByteSize;

    use super::*;

    /// What a shell makes of the first command in the text.
    fn words_of(text: &str) -> Vec<String> {
        let command = text.split('`').nth(1).unwrap_or_else(|| panic!("no command in {text:?}"));
        let output = Command::new("sh").args(["-c", &format!("printf '%s\\0' {command}")]).output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        words.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_can_be_pasted_whatever_the_branch_or_the_file_is_called() {
        let name = "it's $(my) disk".to_owned();
        let failing = Warning::Failing {
            name: name.clone(),
            path: "/mnt/a".into(),
            counted: "1 error".to_owned(),
            last: "EIO".to_owned(),
        };
        assert_eq!(words_of(&of(&failing).unwrap()), ["umbrella", "branch", "drain", &name]);
        let misplaced = Warning::Misplaced {
            mount: "/srv/my pool".into(),
            path: "/a \"b\"/c;d".to_owned(),
            on: "a".to_owned(),
            list: "its list".to_owned(),
        };
        assert_eq!(words_of(&of(&misplaced).unwrap()), ["umbrella", "explain", "/srv/my pool/a \"b\"/c;d"]);
        let full = Warning::ListFull {
            list: "the default list (hdds)".to_owned(),
            path: "/film".to_owned(),
            most_free: Some(("disk1".to_owned(), ByteSize(40 << 20))),
            draining: vec![],
            is_default: true,
            group: Some("hdds".to_owned()),
            more: None,
        };
        assert_eq!(
            super::super::with_advice(&full),
            "no room: no branch of the default list (hdds) had room for /film; most free is disk1, 40 MiB; delete files, or add a disk with `umbrella branch add NAME PATH --group hdds --save`"
        );
        let gone = BranchError::NoMarker { path: "/mnt/a".into(), name: name.clone() };
        assert_eq!(words_of(&of(&gone).unwrap()), ["umbrella", "branch", "replace", &name, "--pool", "CONFIG"]);
    }

    #[test]
    fn an_error_of_the_pool_goes_with_the_command_that_helps() {
        let held = PoolError::BranchNotEmpty { name: "b".to_owned(), example: "/film".to_owned() };
        assert_eq!(
            super::super::with_advice(&held),
            "branch \"b\" still holds files (for example /film); run `umbrella branch drain b` first, or remove it with --force to hide them"
        );
        let missing = PoolError::BranchMissing { name: "b c".to_owned(), reason: "gone".to_owned() };
        assert_eq!(of(&missing).unwrap(), "or start without it: `--allow-missing 'b c'`");
        let open = BranchError::Open { path: "/mnt/a".into(), source: Errno::NOENT };
        assert_eq!(of(&open), None);
    }
}
