//! The kernel's log, and which of its lines report a disk that fails. Source: printk's
//! `Documentation/ABI/testing/dev-kmsg`, and the messages of Linux 3.2 to 6.18 (`blk_print_req_error`,
//! `buffer_io_error`, and the file systems' own).
//!
//! A record is `priority,sequence,time,flags;message`, then lines that begin with a blank. Any process that may write
//! to `/dev/kmsg` can write a message, but never as the kernel: its facility is not 0. Only the beginnings of the
//! kernel's own lines are compared, as names of files and processes may stand further on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// Most bytes of a line that are looked at.
const LONGEST_LINE: usize = 1024;
/// More than a record can have.
const RECORD: usize = 16 << 10;

/// A line about a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskError {
    /// As the kernel names it, in the form of sysfs.
    pub(crate) device: String,
    /// On that device, in units of 512 bytes; `None` where the line does not say.
    pub(crate) sector: Option<u64>,
    /// The line.
    pub(crate) line: String,
}

/// Why a request failed, where that speaks of the disk: not when it is reserved, or the kernel lacks something. A disk
/// that has less room than it says (a thin volume, a sparse image) loses what was written like a broken one.
const REASONS: [&str; 8] = [
    "critical space allocation",
    "I/O",
    "critical medium",
    "critical target",
    "timeout",
    "recoverable transport",
    "protection",
    "device offline",
];
/// Requests that move data. A discard, for example, may be refused by a sound disk.
const OPERATIONS: [&str; 4] = ["READ", "WRITE", "FLUSH", "ZONE_APPEND"];

/// Words before the device's name, and beginnings of the text after it. Without beginnings any text counts.
const FILE_SYSTEMS: [(&str, &[&str]); 14] = [
    ("EXT4-fs error", &[]),
    ("EXT3-fs error", &[]),
    ("EXT2-fs error", &[]),
    ("EXT4-fs warning", &["ext4_end_bio:"]),
    ("EXT4-fs", &["I/O error", "previous I/O error"]),
    ("EXT3-fs", &["I/O error", "previous I/O error"]),
    ("EXT2-fs", &["I/O error", "previous I/O error"]),
    (
        "XFS",
        &[
            "metadata I/O error",
            "log I/O error",
            "I/O error",
            "writeback error",
            "Metadata corruption",
            "Metadata CRC error",
            "Corruption",
            "Internal error",
        ],
    ),
    ("BTRFS error", BTRFS),
    ("BTRFS critical", BTRFS),
    ("BTRFS warning", BTRFS),
    ("FAT-fs", &["error, ", "Directory bread(", "FAT read failed", "bread failed", "unable to read"]),
    ("exFAT-fs", &["error, "]),
    ("F2FS-fs", &["I/O error", "inconsistent "]),
];
const BTRFS: &[&str] = &[
    "bdev ",
    "csum failed",
    "checksum ",
    "corrupt ",
    "bad tree block",
    "level verify failed",
    "parent transid verify failed",
    "unable to fixup",
    "fixed up error",
    "read error",
    "i/o error",
];

/// The error of a disk that a record reports, if it does.
pub(crate) fn parse(record: &[u8]) -> Option<DiskError> {
    let end = record.iter().position(|byte| *byte == b';')?;
    let (prefix, message) = (record.get(..end)?, record.get(end + 1..)?);
    let priority = prefix.split(|byte| *byte == b',').next()?;
    let priority: u32 = std::str::from_utf8(priority).ok()?.parse().ok()?;
    let facility = priority >> 3;
    if facility != 0 {
        return None;
    }
    let line = message.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line.get(..LONGEST_LINE).unwrap_or(line));
    let (device, sector) = request(&line).or_else(|| buffer(&line)).or_else(|| file_system(&line))?;
    Some(DiskError { device: in_sysfs(device)?, sector, line: line.into_owned() })
}

/// `I/O error, dev sda, sector 5 op 0x0:(READ) flags ...`; before Linux 5.14 with a function's name before it.
fn request(line: &str) -> Option<(&str, Option<u64>)> {
    const FUNCTIONS: [&str; 3] = ["blk_update_request: ", "print_req_error: ", "end_request: "];
    let line = FUNCTIONS.iter().find_map(|function| line.strip_prefix(function)).unwrap_or(line);
    let (reason, rest) = line.split_once(" error, dev ")?;
    if !REASONS.contains(&reason) {
        return None;
    }
    let (device, rest) = rest.split_once(", sector ")?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    if let Some(operation) = rest.split_once(":(").and_then(|(_, after)| after.split(')').next())
        && !OPERATIONS.contains(&operation)
    {
        return None;
    }
    Some((device, digits.parse().ok()))
}

/// `Buffer I/O error on dev sda1, logical block 5, lost async page write`.
fn buffer(line: &str) -> Option<(&str, Option<u64>)> {
    let rest = line.strip_prefix("Buffer I/O error on dev")?;
    let (device, _) = rest.strip_prefix("ice ").or_else(|| rest.strip_prefix(' '))?.split_once(", logical block ")?;
    Some((device, None))
}

/// `EXT4-fs error (device sda1): ...`, `XFS (dm-0): metadata I/O error in ...`,
/// `BTRFS: error (device sda1) in ...: errno=-5 IO failure`.
fn file_system(line: &str) -> Option<(&str, Option<u64>)> {
    let (who, rest) = line.split_once(" (")?;
    let (device, text) = rest.split_once(')')?;
    let device = device.strip_prefix("device ").unwrap_or(device).split(' ').next()?;
    if who == "BTRFS: error" {
        // EIO and EUCLEAN. A line of this kind contains no user's words.
        return (text.contains(": errno=-5 ") || text.contains(": errno=-117 ")).then_some((device, None));
    }
    let (_, beginnings) = FILE_SYSTEMS.iter().find(|(name, _)| *name == who)?;
    let text = text.strip_prefix(": ").unwrap_or(text);
    let tells = beginnings.is_empty() || beginnings.iter().any(|beginning| text.starts_with(beginning));
    tells.then_some((device, None))
}

/// A device's name as sysfs has it, if it can be one.
fn in_sysfs(device: &str) -> Option<String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_!./:".contains(letter);
    let sound = (1..=64).contains(&device.len()) && !device.starts_with('.') && device.chars().all(fits);
    sound.then(|| device.replace('/', "!"))
}

/// The log, from the moment in which it was opened.
#[derive(Debug)]
pub(crate) struct KernelLog {
    file: OwnedFd,
    record: Vec<u8>,
}

impl KernelLog {
    pub(crate) fn open() -> rustix::io::Result<KernelLog> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/kmsg", flags, Mode::empty())?;
        rustix::fs::seek(&file, SeekFrom::End(0))?;
        Ok(KernelLog { file, record: vec![0; RECORD] })
    }

    /// The next line about a disk; `None`: none is left for now.
    pub(crate) fn next(&mut self) -> rustix::io::Result<Option<DiskError>> {
        loop {
            match rustix::io::read(&self.file, self.record.as_mut_slice()) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(None),
                Ok(length) => {
                    if let Some(error) = self.record.get(..length).and_then(parse) {
                        return Ok(Some(error));
                    }
                }
                // Lines were overwritten before they were read: the next one is there.
                Err(Errno::PIPE | Errno::INTR) => {}
                // Longer than any record is.
                Err(Errno::INVAL) => _ = rustix::fs::seek(&self.file, SeekFrom::End(0))?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_message(message: &str) -> Option<(String, Option<u64>)> {
        parse(format!("3,4711,123456789,-;{message}\n SUBSYSTEM=block\n").as_bytes()).map(|it| (it.device, it.sector))
    }

    #[test]
    fn lines_of_the_kernel_that_tell_of_a_disk_are_known() {
        for (line, device, sector) in [
            (
                "I/O error, dev loop0, sector 20482 op 0x0:(READ) flags 0x80700 phys_seg 126 prio class 2",
                "loop0",
                Some(20482),
            ),
            (
                "blk_update_request: I/O error, dev sdb, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 0 prio class 0",
                "sdb",
                Some(0),
            ),
            ("blk_update_request: critical medium error, dev sda, sector 976773167", "sda", Some(976_773_167)),
            ("print_req_error: I/O error, dev nvme0n1, sector 123 flags 80700", "nvme0n1", Some(123)),
            ("end_request: I/O error, dev cciss/c0d0, sector 7", "cciss!c0d0", Some(7)),
            (
                "critical space allocation error, dev dm-2, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1",
                "dm-2",
                Some(8),
            ),
            (
                "critical target error, dev sdc, sector 2048 op 0x1:(WRITE) flags 0x103000 phys_seg 16 prio class 2",
                "sdc",
                Some(2048),
            ),
            ("Buffer I/O error on dev dm-3, logical block 12, lost async page write", "dm-3", None),
            ("Buffer I/O error on device sdd1, logical block 488", "sdd1", None),
            (
                "EXT4-fs error (device loop0): ext4_find_entry:1482: inode #2: comm ls: reading directory lblock 0",
                "loop0",
                None,
            ),
            (
                "EXT4-fs warning (device sda1): ext4_end_bio:343: I/O error 10 writing to inode 12 starting block 1234)",
                "sda1",
                None,
            ),
            ("EXT4-fs (sda1): I/O error while writing superblock", "sda1", None),
            (
                "XFS (dm-0): metadata I/O error in \"xfs_da_read_buf+0xd9/0x130 [xfs]\" at daddr 0x1480 len 8 error 5",
                "dm-0",
                None,
            ),
            ("XFS (loop0): writeback error on inode 133, offset 0, sector 12345", "loop0", None),
            ("BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 0, rd 1, flush 0, corrupt 0, gen 0", "sdb1", None),
            (
                "BTRFS warning (device sdb1 state EA): csum failed root 5 ino 257 off 0 csum 0x8941f998 expected csum 0x1 mirror 1",
                "sdb1",
                None,
            ),
            (
                "BTRFS: error (device sdb1) in btrfs_commit_transaction:2271: errno=-5 IO failure (Error while writing out transaction)",
                "sdb1",
                None,
            ),
            ("FAT-fs (sdb1): Directory bread(block 19999) failed", "sdb1", None),
        ] {
            assert_eq!(parse_message(line), Some((device.to_owned(), sector)), "{line}");
        }
    }

    #[test]
    fn lines_that_tell_of_no_failing_disk_are_passed_over() {
        for line in [
            "EXT4-fs (vda): mounted filesystem 00000000-0000-0000-0000-000000000000 r/w without journal. Quota mode: none.",
            "loop0: detected capacity change from 0 to 131072",
            "reservation conflict error, dev sda, sector 1 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
            "critical target error, dev sda, sector 1 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
            "operation not supported error, dev loop0, sector 64 op 0x9:(WRITE_ZEROES) flags 0x800 phys_seg 0 prio class 0",
            "BTRFS info (device sdb1): bdev /dev/sdb1 errs: wr 0, rd 10, flush 0, corrupt 0, gen 0",
            "BTRFS error (device sdb1): balance: reduces metadata redundancy, use --force if you want this",
            "BTRFS: error (device sdb1) in btrfs_run_delayed_refs:2971: errno=-28 No space left",
            "FAT-fs (sda1): Volume was not properly unmounted. Some data may be corrupt. Please run fsck.",
            "XFS (loop0): User initiated shutdown received.",
            "EXT4-fs warning (device sda1): dx_probe:893: inode #2: comm I/O error: dx entry: limit 0",
            "bash (11254): drop_caches: 3",
            "",
        ] {
            assert_eq!(parse_message(line), None, "{line}");
        }
    }

    #[test]
    fn what_a_user_writes_into_the_log_fools_nobody() {
        let line = "I/O error, dev sda, sector 1 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2";
        // 12: user, error; what `echo > /dev/kmsg` gives. 11: the same with a level of its own.
        for priority in [12, 11, 8, 30, u32::MAX] {
            assert_eq!(parse(format!("{priority},1,1,-;{line}\n").as_bytes()), None);
        }
        assert!(parse(format!("3,1,1,-;{line}\n").as_bytes()).is_some());
        // A process may call itself what it likes, and so may a file.
        assert_eq!(parse_message("I/O error, dev (77): drop_caches: 3"), None);
        assert_eq!(parse_message("usb 1-1: Product: I/O error, dev sda, sector 1"), None);
        for device in ["../../etc", "..", ".", "", "a b", "sda\u{e9}", &"x".repeat(65)] {
            assert_eq!(parse_message(&format!("I/O error, dev {device}, sector 1")), None, "{device}");
        }
    }

    #[test]
    fn a_line_is_looked_at_to_a_bounded_length() {
        let long = format!("EXT4-fs error (device sda1): {}", "x".repeat(1 << 20));
        assert_eq!(parse(format!("3,1,1,-;{long}").as_bytes()).unwrap().line.len(), LONGEST_LINE);
        assert_eq!(parse(b"3,1,1,-;I/O error, dev sda, sector 99999999999999999999999 x").unwrap().sector, None);
        assert_eq!(parse(b"3,1,1,-;Buffer I/O error on dev sd\xff\xfe, logical block 1"), None);
    }

    proptest! {
        #[test]
        fn no_record_is_too_much(record in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&record);
        }

        #[test]
        fn no_end_of_a_line_is_too_much(cut in 0..90_usize, junk in prop::collection::vec(any::<u8>(), 0..40)) {
            let line = b"3,1,2,-;blk_update_request: I/O error, dev sda, sector 5 op 0x0:(READ) flags 0x0 phys_seg 1";
            let mut record = line[..cut.min(line.len())].to_vec();
            record.extend(junk);
            if let Some(error) = parse(&record) {
                prop_assert!(!error.device.contains('/') && !error.device.starts_with('.'));
            }
        }
    }
}
