//! Users of a block device of this machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

use crate::mounts;
use crate::text::visible;

/// Where it is mounted, and which other processes have it open, in words; nothing if no user is found. Needs the rights
/// to look.
pub(crate) fn users_of(device: &Path) -> Option<String> {
    let number = std::fs::metadata(device).ok()?.rdev();
    let mounts = mounts_of(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, major(number), minor(number));
    let mounted = mounts.into_iter().map(|place| format!("mounted at {}", visible(&place)));
    let users: Vec<String> = mounted.chain(openers_of(number)).collect();
    (!users.is_empty()).then(|| users.join(", "))
}

fn mounts_of(table: &str, major: u32, minor: u32) -> Vec<String> {
    let wanted = format!("{major}:{minor}");
    let mounts = table.lines().filter(|line| line.split(' ').nth(2) == Some(&wanted));
    mounts.filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}

/// Processes but this one.
fn openers_of(number: u64) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    let others = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let opened = others.filter(|pid| *pid != own).filter_map(|pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        // Files elsewhere are not asked what they are: they may lie on a file system that hangs.
        let devices =
            files.flatten().filter(|file| std::fs::read_link(file.path()).is_ok_and(|opened| is_device(&opened)));
        let mut numbers = devices.filter_map(|file| std::fs::metadata(file.path()).ok().map(|data| data.rdev()));
        numbers.any(|other| other == number).then(|| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("held open by {} (process {pid})", visible(name.trim_end()))
        })
    });
    opened.collect()
}

fn is_device(opened: &Path) -> bool {
    opened.starts_with("/dev") && !mounts::may_hang(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_the_number_of_the_device() {
        let table = "22 1 7:0 / / rw - ext4 /dev/loop0 rw\n23 22 7:1 / /mnt rw - ext4 /dev/loop1 rw\n";
        assert_eq!(mounts_of(table, 7, 1), ["/mnt"]);
        assert!(mounts_of(table, 8, 1).is_empty());
    }

    #[test]
    fn this_process_is_not_listed_as_another_user() {
        assert_eq!(users_of(Path::new("/dev/does-not-exist")), None);
    }
}
