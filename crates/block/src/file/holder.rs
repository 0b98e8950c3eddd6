//! Who holds the lock on a file that is in use.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// A process that holds the lock on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name, as the kernel has it.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, name } = self;
        write!(f, "{name} (process {pid})")?;
        if name == "umbrella" {
            f.write_str(", which serves it under another name or with another run folder")?;
        }
        Ok(())
    }
}

/// The process that has a file locked as a whole; nothing if the kernel names none.
pub(super) fn holder(path: &Path) -> Option<Holder> {
    let data = std::fs::metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locker(&locks, &format!("{:02x}:{:02x}:{}", major(data.dev()), minor(data.dev()), data.ino()))?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let name = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Some(Holder { pid, name })
}

/// The first whose lock on that file is held, not waited for.
fn locker(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields.as_slice() {
            [_, "FLOCK", _, _, pid, id, ..] if *id == file => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_and_who_waits_for_it_is_not() {
        let locks = "1: POSIX  ADVISORY  WRITE 5 fe:00:77 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 6 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 7 fe:00:77 0 EOF\n4: FLOCK  ADVISORY  WRITE 8 fe:00:78 0 EOF\n";
        assert_eq!(locker(locks, "fe:00:77"), Some(7));
        assert_eq!(locker(locks, "fe:00:79"), None);
    }

    #[test]
    fn another_umbrella_is_said_to_serve_it_otherwise() {
        let by = |name: &str| Holder { pid: 7, name: name.to_owned() }.to_string();
        assert_eq!(by("qemu-img"), "qemu-img (process 7)");
        assert!(by("umbrella").ends_with("(process 7), which serves it under another name or with another run folder"));
    }
}
