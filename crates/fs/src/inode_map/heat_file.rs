//! What a branch keeps of the heat of its files: `.umbrella/heat`, written anew each time.
//!
//! Steps of [`write`]: write `heat.new`, fdatasync, rename. All integers little endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0-7 | magic `UMBRHEAT` |
//! | 8-11 | version |
//! | 12-15 | CRC32C of all that follows |
//! | 16-23, 24-27 | bytes that moves because of heat count, and when that was: seconds since 1970 |
//! | then, a file each: 0-7 | its number |
//! | 8-11 | sum of its birth; 0 where it is not known |
//! | 12-15, 16-19 | its heat (f32), and when that was: seconds since 1970. Negative: a fill level moved it, and it has not been opened since |
//!
//! What is damaged, too long or of another version counts as nothing.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use umbrella_policy::heat::{Heat, Spending};

use super::InodeMapError;
use super::log::{read_all, write_all};

const NAME: &str = "heat";
const NEXT: &str = "heat.new";
const MAGIC: [u8; 8] = *b"UMBRHEAT";
const VERSION: u32 = 1;
const HEADER: usize = 28;
const LINE: usize = 20;
/// More is not ours: a million files and more.
const MOST_BYTES: i64 = 64 << 20;

/// The heat of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HeatRecord {
    pub(super) number: u64,
    pub(super) born: u32,
    pub(super) heat: Heat,
    /// A fill level moved it, and it has not been opened since.
    pub(super) rests: bool,
}

/// All that a branch keeps.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeatSnapshot {
    pub(super) lines: Vec<HeatRecord>,
    pub(super) spending: Spending,
}

/// What is kept in a hidden folder.
pub(super) fn read(hidden: BorrowedFd<'_>) -> Result<HeatSnapshot, InodeMapError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(hidden, NAME, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(HeatSnapshot::default()),
        Err(error) => return Err(error.into()),
    };
    if rustix::fs::fstat(&file)?.st_size > MOST_BYTES {
        return Ok(HeatSnapshot::default());
    }
    Ok(decode(&read_all(file.as_fd())?).unwrap_or_default())
}

/// Replaces what is kept in a hidden folder.
pub(super) fn write(hidden: BorrowedFd<'_>, kept: &HeatSnapshot) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(hidden, NEXT, flags, Mode::RUSR | Mode::WUSR)?;
    write_all(file.as_fd(), &encode(kept), 0)?;
    rustix::fs::fdatasync(&file)?;
    rustix::fs::renameat(hidden, NEXT, hidden, NAME)
}

fn encode(kept: &HeatSnapshot) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + kept.lines.len() * LINE);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let (spent, at) = kept.spending.parts();
    bytes.extend_from_slice(&spent.to_le_bytes());
    bytes.extend_from_slice(&at.to_le_bytes());
    for HeatRecord { number, born, heat, rests } in &kept.lines {
        let (value, at) = heat.parts();
        let value = if *rests { -value } else { value };
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&born.to_le_bytes());
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes.extend_from_slice(&at.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Never panics.
fn decode(bytes: &[u8]) -> Option<HeatSnapshot> {
    let body = bytes.get(16..)?;
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let long =
        |bytes: &[u8], at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    if bytes.get(..8)? != MAGIC || word(bytes, 8)? != VERSION || word(bytes, 12)? != crc32c::crc32c(body) {
        return None;
    }
    let spending = Spending::from_parts(long(bytes, 16)?, word(bytes, 24)?);
    let line = |bytes: &[u8]| {
        let value = f32::from_bits(word(bytes, 12)?);
        let heat = Heat::from_parts(value.abs(), word(bytes, 16)?);
        Some(HeatRecord { number: long(bytes, 0)?, born: word(bytes, 8)?, heat, rests: value < 0.0 })
    };
    let lines = bytes.get(HEADER..)?.chunks_exact(LINE).map_while(line).collect();
    Some(HeatSnapshot { lines, spending })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of version 1: they stay readable.
    #[test]
    fn version_one_is_read_for_good() {
        let heat = Heat::from_parts(2.5, 1_800_000_000);
        let kept = HeatSnapshot {
            lines: vec![
                HeatRecord { number: 0x0102_0304_0506_0708, born: 9, heat, rests: false },
                HeatRecord { number: 3, born: 0, heat, rests: true },
            ],
            spending: Spending::from_parts(77, 1_800_000_001),
        };
        let mut written = b"UMBRHEAT\x01\0\0\0".to_vec();
        let mut body = vec![77, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xd2, 0x49, 0x6b];
        body.extend([8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0x20, 0x40, 0x00, 0xd2, 0x49, 0x6b]);
        body.extend([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0xc0, 0x00, 0xd2, 0x49, 0x6b]);
        written.extend(crc32c::crc32c(&body).to_le_bytes());
        written.extend(body);
        assert_eq!(encode(&kept), written);
        assert_eq!(decode(&written), Some(kept));
    }
}
