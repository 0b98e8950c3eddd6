//! Searching a group's bitmap as ext2 does. A set bit is a block in use.

/// The first clear bit in `from..to`.
pub(super) fn next_zero(bits: &[u64], from: usize, to: usize) -> Option<usize> {
    let mut at = from;
    while at < to {
        let free = !bits[at / 64] >> (at % 64);
        if free != 0 {
            let found = at + free.trailing_zeros() as usize;
            return (found < to).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// The first set bit in `from..to`, or `to`.
pub(super) fn next_one(bits: &[u64], from: usize, to: usize) -> usize {
    let mut at = from;
    while at < to {
        let used = bits[at / 64] >> (at % 64);
        if used != 0 {
            return (at + used.trailing_zeros() as usize).min(to);
        }
        at = (at / 64 + 1) * 64;
    }
    to
}

/// The first bit of the first eight clear bits at a multiple of eight, from the byte that holds `from`.
fn next_zero_byte(bits: &[u64], from: usize, to: usize) -> Option<usize> {
    let mut at = from / 8 * 8;
    while at < to {
        let word = bits[at / 64];
        if word == u64::MAX {
            at = (at / 64 + 1) * 64;
            continue;
        }
        if (word >> (at % 64)).trailing_zeros() >= 8 {
            return Some(at);
        }
        at += 8;
    }
    None
}

pub(super) fn is_set(bits: &[u64], at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 != 0
}

pub(super) fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

pub(super) fn clear(bits: &mut [u64], at: usize) {
    bits[at / 64] &= !(1 << (at % 64));
}

/// Where a new block goes in a group of `size` blocks, near `goal` (`grab_block`, Linux 2.6.12 `fs/ext2/balloc.c`). The
/// first of these that is free:
/// 1. the goal
/// 2. the next block in the goal's group of 64
/// 3. the next aligned eight blocks in a row, from the beginning of their free run
/// 4. the next block
///
/// Never before the goal.
pub(super) fn grab_block(bits: &[u64], size: usize, goal: usize) -> Option<usize> {
    if !is_set(bits, goal) {
        return Some(goal);
    }
    if goal > 0 {
        let near = goal.next_multiple_of(64);
        if let Some(found) = next_zero(bits, goal, near.min(size)) {
            return Some(found);
        }
    }
    let Some(mut found) = next_zero_byte(bits, goal, size) else { return next_zero(bits, goal, size) };
    while found > 0 && !is_set(bits, found - 1) {
        found -= 1;
    }
    Some(found)
}
