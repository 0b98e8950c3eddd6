//! Whether copies of a file are equal.

use std::fs::File;
use std::io::{ErrorKind, Read};

/// How much of the copies is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Their sizes.
    Sizes,
    /// Every byte of those of one size.
    Bytes,
}

/// As much of each file is read at once, so that two disks do not seek for every page.
const PIECE: usize = 1 << 20;

/// Whether two files have the same bytes, from their positions to their ends.
pub(crate) fn same_bytes(one: &mut File, other: &mut File) -> std::io::Result<bool> {
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let (read, also) = (fill(one, &mut left)?, fill(other, &mut right)?);
        if left.get(..read) != right.get(..also) {
            return Ok(false);
        }
        if read < PIECE {
            return Ok(true);
        }
    }
}

/// Reads until the piece is full or the file ends.
fn fill(file: &mut File, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
