//! The positions of one stretch of [`SPAN`]: a sorted list of those that are in it while they are few, a bitmap when
//! they are many. A list costs two bytes a position; a bitmap at most [`SPAN`] / 8 bytes / [`BITMAP_FROM`] = 8 of them.
//!
//! Above the bitmap lie two of a bit a word: which words hold something, and which are full. So both ends of a run and
//! the next position are found in a few steps, however long the run or the gap. (The containers of Roaring bitmaps:
//! Lemire et al., Software: Practice and Experience 2018.)

/// Positions of a chunk.
pub(super) const SPAN: u32 = 1 << 15;
const WORDS: usize = (SPAN / 64) as usize;
/// Number of positions from which on a list becomes a bitmap.
const BITMAP_FROM: usize = 512;
/// Number of positions below which a bitmap becomes a list again.
const LIST_BELOW: u32 = 384;

/// A run in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u32,
    pub(super) len: u32,
}

#[derive(Debug)]
struct Bits {
    words: [u64; WORDS],
    /// A bit for each word that is not zero.
    some: [u64; WORDS / 64],
    /// A bit for each word without a zero.
    full: [u64; WORDS / 64],
}

#[derive(Debug)]
enum Body {
    List(Vec<u16>),
    Bits(Box<Bits>),
}

/// The positions of a stretch, as offsets from its beginning.
#[derive(Debug)]
pub(super) struct Chunk {
    /// How many.
    pub(super) count: u32,
    body: Body,
}

/// The first set bit at `from` or later.
fn next_one(words: &[u64], from: usize) -> Option<usize> {
    let first = words.get(from / 64)? & (u64::MAX << (from % 64));
    if first != 0 {
        return Some(from / 64 * 64 + first.trailing_zeros() as usize);
    }
    let rest = words.iter().enumerate().skip(from / 64 + 1).find(|(_, word)| **word != 0)?;
    Some(rest.0 * 64 + rest.1.trailing_zeros() as usize)
}

/// The first clear bit at `from` or later.
fn next_zero(words: &[u64], from: usize) -> Option<usize> {
    let first = !words.get(from / 64)? & (u64::MAX << (from % 64));
    if first != 0 {
        return Some(from / 64 * 64 + first.trailing_zeros() as usize);
    }
    let rest = words.iter().enumerate().skip(from / 64 + 1).find(|(_, word)| **word != u64::MAX)?;
    Some(rest.0 * 64 + rest.1.trailing_ones() as usize)
}

/// The last clear bit at `from` or earlier.
fn last_zero(words: &[u64], from: usize) -> Option<usize> {
    let first = !words.get(from / 64)? & (u64::MAX >> (63 - from % 64));
    if first != 0 {
        return Some(from / 64 * 64 + 63 - first.leading_zeros() as usize);
    }
    let rest = words.iter().enumerate().take(from / 64).rev().find(|(_, word)| **word != u64::MAX)?;
    Some(rest.0 * 64 + 63 - rest.1.leading_ones() as usize)
}

impl Bits {
    fn new() -> Box<Bits> {
        Box::new(Bits { words: [0; WORDS], some: [0; WORDS / 64], full: [0; WORDS / 64] })
    }

    fn set(&mut self, at: usize, word: u64) {
        self.words[at] = word;
        let bit = 1 << (at % 64);
        let (some, full) = (&mut self.some[at / 64], &mut self.full[at / 64]);
        *some = if word == 0 { *some & !bit } else { *some | bit };
        *full = if word == u64::MAX { *full | bit } else { *full & !bit };
    }

    /// Changes `len` bits from `start` on, word by word.
    fn change(&mut self, start: usize, len: usize, change: impl Fn(u64, u64) -> u64) {
        let (mut at, end) = (start, start + len);
        while at < end {
            let upto = end.min((at / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (upto - at))) << (at % 64);
            self.set(at / 64, change(self.words[at / 64], mask));
            at = upto;
        }
    }

    fn next_one(&self, from: usize) -> Option<usize> {
        let word = self.words.get(from / 64)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(from / 64 * 64 + word.trailing_zeros() as usize);
        }
        let at = next_one(&self.some, from / 64 + 1)?;
        Some(at * 64 + self.words[at].trailing_zeros() as usize)
    }

    fn next_zero(&self, from: usize) -> Option<usize> {
        let word = !self.words.get(from / 64)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(from / 64 * 64 + word.trailing_zeros() as usize);
        }
        let at = next_zero(&self.full, from / 64 + 1)?;
        Some(at * 64 + self.words[at].trailing_ones() as usize)
    }

    fn last_zero(&self, from: usize) -> Option<usize> {
        let word = !self.words.get(from / 64)? & (u64::MAX >> (63 - from % 64));
        if word != 0 {
            return Some(from / 64 * 64 + 63 - word.leading_zeros() as usize);
        }
        let at = last_zero(&self.full, (from / 64).checked_sub(1)?)?;
        Some(at * 64 + 63 - self.words[at].leading_ones() as usize)
    }
}

/// Finds the longest of runs that come in order.
struct Longest {
    best: Stretch,
    /// The run that is being read.
    open: Stretch,
}

impl Longest {
    fn new() -> Longest {
        let none = Stretch { start: 0, len: 0 };
        Longest { best: none, open: none }
    }

    fn more(&mut self, start: u32, len: u32) {
        if self.open.start + self.open.len == start {
            self.open.len += len;
        } else {
            self.open = Stretch { start, len };
        }
        if self.open.len > self.best.len {
            self.best = self.open;
        }
    }

    /// A word that is neither empty nor full.
    fn word(&mut self, start: u32, word: u64) {
        let (low, high) = (word.trailing_ones(), word.leading_ones());
        if low > 0 {
            self.more(start, low);
        }
        // Bits that begin as many adjacent ones as the best run has, and one more.
        let mut begins = word & (u64::MAX << low) & (u64::MAX >> high);
        if self.best.len < 63 {
            for _ in 0..self.best.len {
                begins &= begins >> 1;
                if begins == 0 {
                    break;
                }
            }
            while begins != 0 {
                self.best = Stretch { start: start + begins.trailing_zeros(), len: self.best.len + 1 };
                begins &= begins >> 1;
            }
        }
        if high > 0 {
            self.more(start + 64 - high, high);
        }
    }
}

impl Chunk {
    /// An empty one.
    pub(super) fn new() -> Chunk {
        Chunk { count: 0, body: Body::List(Vec::new()) }
    }

    /// Reads what is near an offset, so that the processor has it in its cache.
    pub(super) fn warm(&self, offset: u32) {
        match &self.body {
            Body::List(list) => _ = std::hint::black_box(list.get(list.len() / 2)),
            Body::Bits(bits) => _ = std::hint::black_box(bits.words[offset as usize / 64]),
        }
    }

    pub(super) fn has(&self, offset: u32) -> bool {
        match &self.body {
            Body::List(list) => list.binary_search(&(offset as u16)).is_ok(),
            Body::Bits(bits) => bits.words[offset as usize / 64] >> (offset % 64) & 1 != 0,
        }
    }

    /// Adds offsets none of which is there.
    pub(super) fn insert(&mut self, start: u32, len: u32) {
        self.count += len;
        if let Body::List(list) = &mut self.body {
            if list.len() + len as usize <= BITMAP_FROM {
                let at = list.partition_point(|&other| u32::from(other) < start);
                if list.len() + len as usize > list.capacity() {
                    list.reserve_exact(len as usize + (list.len() / 8).max(3));
                }
                if len == 1 {
                    list.insert(at, start as u16);
                } else {
                    list.splice(at..at, (start..start + len).map(|offset| offset as u16));
                }
                return;
            }
            let mut bits = Bits::new();
            for &offset in &*list {
                bits.change(offset as usize, 1, |word, mask| word | mask);
            }
            self.body = Body::Bits(bits);
        }
        if let Body::Bits(bits) = &mut self.body {
            bits.change(start as usize, len as usize, |word, mask| word | mask);
        }
    }

    /// Takes out offsets all of which are there.
    pub(super) fn remove(&mut self, start: u32, len: u32) {
        self.count -= len;
        match &mut self.body {
            Body::List(list) => {
                let at = list.partition_point(|&other| u32::from(other) < start);
                list.drain(at..at + len as usize);
                if list.len() + 16 + list.len() / 4 < list.capacity() {
                    list.shrink_to(list.len() + 4);
                }
            }
            Body::Bits(bits) => {
                bits.change(start as usize, len as usize, |word, mask| word & !mask);
                if self.count < LIST_BELOW {
                    let mut list = Vec::with_capacity(self.count as usize);
                    let mut next = bits.next_one(0);
                    while let Some(offset) = next {
                        list.push(offset as u16);
                        next = bits.next_one(offset + 1);
                    }
                    self.body = Body::List(list);
                }
            }
        }
    }

    /// The first offset that is there, at `from` or later.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        match &self.body {
            Body::List(list) => {
                list.get(list.partition_point(|&other| u32::from(other) < from)).map(|&offset| u32::from(offset))
            }
            Body::Bits(bits) => bits.next_one(from as usize).map(|offset| offset as u32),
        }
    }

    /// The first offset that is not there, at `from` or later; [`SPAN`] if there is none.
    pub(super) fn end(&self, from: u32) -> u32 {
        match &self.body {
            Body::List(list) => {
                let Ok(at) = list.binary_search(&(from as u16)) else { return from };
                // In a run offsets grow as places do.
                let run = list[at..].iter().enumerate();
                let run = run.take_while(|&(place, &offset)| u32::from(offset) == from + place as u32);
                from + run.count() as u32
            }
            Body::Bits(bits) => bits.next_zero(from as usize).map_or(SPAN, |offset| offset as u32),
        }
    }

    /// The first offset of the run that holds `offset`, which is there.
    pub(super) fn start(&self, offset: u32) -> u32 {
        match &self.body {
            Body::List(list) => {
                let at = list.partition_point(|&other| u32::from(other) < offset);
                let run = list[..at].iter().rev().zip((0..offset).rev());
                offset - run.take_while(|&(&other, wanted)| u32::from(other) == wanted).count() as u32
            }
            Body::Bits(bits) => bits.last_zero(offset as usize).map_or(0, |zero| zero as u32 + 1),
        }
    }

    /// The longest run that begins at `from` or later; the first on a tie. [`Stretch::len`] is zero if there is none.
    pub(super) fn longest(&self, from: u32) -> Stretch {
        let mut longest = Longest::new();
        match &self.body {
            Body::List(list) => {
                let at = list.partition_point(|&other| u32::from(other) < from);
                list[at..].iter().for_each(|&offset| longest.more(u32::from(offset), 1));
            }
            Body::Bits(bits) => {
                for (at, &word) in bits.words.iter().enumerate().skip(from as usize / 64) {
                    let word = if at == from as usize / 64 { word & (u64::MAX << (from % 64)) } else { word };
                    match word {
                        0 => {}
                        u64::MAX => longest.more(at as u32 * 64, 64),
                        word => longest.word(at as u32 * 64, word),
                    }
                }
            }
        }
        longest.best
    }

    /// Bytes held beside the chunk itself.
    pub(super) fn bytes(&self) -> usize {
        match &self.body {
            Body::List(list) => list.capacity() * size_of::<u16>(),
            Body::Bits(_) => size_of::<Bits>(),
        }
    }
}
