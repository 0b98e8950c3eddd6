//! Finds the process that holds a lock on a file.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// A process that holds the lock on a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name, as the kernel reports it.
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

/// The process that has a file locked, as a whole or as QEMU's programs do; `None` if the kernel names none.
pub(super) fn holder(path: &Path) -> Option<Holder> {
    let data = std::fs::metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(data.dev()), minor(data.dev()), data.ino());
    let pid = locker(&locks, &file).or_else(|| byte_locker(&file))?;
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

/// Another process that has locks on bytes of that file. In the list of all locks they belong to no process: only the
/// open file has them.
fn byte_locker(file: &str) -> Option<u32> {
    let own = std::process::id();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut others = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != own);
    others.find(|pid: &u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        open.filter_map(|open| std::fs::read_to_string(open.path()).ok()).any(|about| has_byte_lock(&about, file))
    })
}

/// Whether the kernel says of an open file that it has a lock on bytes of that file:
/// `lock: 1: OFDLCK ADVISORY READ -1 fe:00:77 100 100`.
fn has_byte_lock(about: &str, file: &str) -> bool {
    about.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(fields.as_slice(), ["lock:", _, "OFDLCK", _, _, _, id, ..] if *id == file)
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
    fn a_lock_on_bytes_is_found_where_the_kernel_tells_of_an_open_file() {
        let about = "pos:\t0\nflags:\t02100002\nlock:\t1: OFDLCK ADVISORY  READ -1 fe:00:77 100 101\n";
        assert!(has_byte_lock(about, "fe:00:77"));
        assert!(!has_byte_lock(about, "fe:00:78"));
        assert!(!has_byte_lock("lock:\t1: FLOCK ADVISORY  WRITE 5 fe:00:77 0 EOF\n", "fe:00:77"));
    }

    #[test]
    fn another_umbrella_is_said_to_serve_it_otherwise() {
        let by = |name: &str| Holder { pid: 7, name: name.to_owned() }.to_string();
        assert_eq!(by("qemu-img"), "qemu-img (process 7)");
        assert!(by("umbrella").ends_with("(process 7), which serves it under another name or with another run folder"));
    }
}
