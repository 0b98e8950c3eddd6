//! What the papers' bookkeeping costs in instructions: our own short versions of it, to be run under a counter.
//!
//! ```text
//! cargo build --release -p umbrella-lab --example bookkeeping
//! valgrind --tool=callgrind target/release/examples/bookkeeping entries 1
//! valgrind --tool=callgrind target/release/examples/bookkeeping entries 2
//! ```
//!
//! The difference is one round of 50,000 entries (`zones`, `pages`). Each of the 50,000 of `pages` either enters a page
//! or takes it out, so that both take twice as much. The constants that come of it are in docs/models.md.

use std::hint::black_box;

const BLOCK: usize = 4096;
/// Entries that one round of `entries` scans.
const ENTRIES: usize = 50_000;
/// Zones that one round of `zones` looks at.
const ZONES: usize = 50_000;
/// Pages that one round of `pages` enters and takes out again.
const PAGES: usize = 50_000;

/// Directory blocks as ext2 has them: inode, length of the record, length of the name, type, name.
fn directory() -> Vec<u8> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    for number in 0..ENTRIES {
        let name = format!("{}", 100_000 + number);
        let length = (8 + name.len()).div_ceil(4) * 4;
        if block.len() + length > BLOCK {
            block.resize(BLOCK, 0);
            blocks.append(&mut block);
        }
        block.extend((number as u32 + 1).to_le_bytes());
        block.extend((length as u16).to_le_bytes());
        block.extend([name.len() as u8, 1]);
        block.extend(name.as_bytes());
        block.resize(block.len().div_ceil(4) * 4, 0);
    }
    block.resize(BLOCK, 0);
    blocks.append(&mut block);
    blocks
}

/// Looks for a name from the first entry on, as `ext2_find_entry` does: lengths first, then letters.
fn find(blocks: &[u8], name: &[u8]) -> Option<u32> {
    for block in blocks.chunks_exact(BLOCK) {
        let mut at = 0;
        while at + 8 <= BLOCK {
            let length = usize::from(u16::from_le_bytes([block[at + 4], block[at + 5]]));
            if length == 0 {
                break;
            }
            let letters = usize::from(block[at + 6]);
            let inode = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
            if letters == name.len() && inode != 0 && &block[at + 8..at + 8 + letters] == name {
                return Some(inode);
            }
            at += length;
        }
    }
    None
}

/// A zone: its dirty pages and segments.
#[derive(Clone, Copy)]
struct Zone {
    pages: u32,
    segments: u32,
}

/// TESA's choice: the mean of dirty pages, then the longest mean segment among zones that have at least as many, or the
/// zone with most pages.
fn choose(zones: &[Zone], alpha: u32) -> usize {
    let mean = zones.iter().map(|zone| u64::from(zone.pages)).sum::<u64>() / zones.len().max(1) as u64;
    let (mut longest, mut fullest) = ((0, 0), (0, 0));
    for (number, zone) in zones.iter().enumerate() {
        let length = if u64::from(zone.pages) >= mean { zone.pages / zone.segments.max(1) } else { 0 };
        if length > longest.0 {
            longest = (length, number);
        }
        if zone.pages > fullest.0 {
            fullest = (zone.pages, number);
        }
    }
    if longest.0 >= alpha { longest.1 } else { fullest.1 }
}

/// A zone with its bitmap and its segments by the first block, modulo 256 (TESA, section III-C).
struct ZonePages {
    dirty: [u64; 32],
    segments: Vec<Vec<(u32, u32)>>,
    pages: u32,
}

impl ZonePages {
    fn new() -> ZonePages {
        ZonePages { dirty: [0; 32], segments: vec![Vec::new(); 256], pages: 0 }
    }

    fn is_dirty(&self, block: u32) -> bool {
        self.dirty.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    fn take(&mut self, first: u32) -> Option<(u32, u32)> {
        let bucket = &mut self.segments[first as usize % 256];
        let at = bucket.iter().position(|segment| segment.0 == first)?;
        Some(bucket.swap_remove(at))
    }

    /// The first block of the run of dirty blocks that ends there.
    fn first_of(&self, block: u32) -> u32 {
        let mut first = block;
        while first > 0 && self.is_dirty(first - 1) {
            first -= 1;
        }
        first
    }

    fn enter(&mut self, block: u32) {
        let before = if block > 0 && self.is_dirty(block - 1) { Some(self.first_of(block - 1)) } else { None };
        let mut segment = before.and_then(|first| self.take(first)).unwrap_or((block, block));
        segment.1 = block + 1;
        if self.is_dirty(block + 1)
            && let Some(behind) = self.take(block + 1)
        {
            segment.1 = behind.1;
        }
        self.dirty[block as usize / 64] |= 1 << (block % 64);
        self.segments[segment.0 as usize % 256].push(segment);
        self.pages += 1;
    }

    fn leave(&mut self, block: u32) {
        let first = self.first_of(block);
        if let Some(segment) = self.take(first) {
            if first < block {
                self.segments[first as usize % 256].push((first, block));
            }
            if block + 1 < segment.1 {
                self.segments[(block as usize + 1) % 256].push((block + 1, segment.1));
            }
        }
        self.dirty[block as usize / 64] &= !(1 << (block % 64));
        self.pages -= 1;
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let rounds: usize = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let blocks = directory();
    let zones: Vec<Zone> =
        (0..ZONES as u32).map(|number| Zone { pages: number * 7919 % 2048, segments: 1 + number * 31 % 64 }).collect();
    let mut zone = ZonePages::new();
    for _ in 0..rounds {
        match kind.as_str() {
            "entries" => drop(black_box(find(black_box(&blocks), b"999999"))),
            "zones" => drop(black_box(choose(black_box(&zones), 50))),
            // Files of about ten pages, one beside the other, as PostMark writes them.
            "pages" => {
                for number in 0..PAGES as u32 {
                    let block = number % 1000 / 10 * 20 + number % 10;
                    if zone.is_dirty(block) {
                        zone.leave(black_box(block));
                    } else {
                        zone.enter(black_box(block));
                    }
                }
            }
            _ => println!("give entries, zones or pages, and how many rounds"),
        }
    }
    println!("{}", zone.pages);
}
