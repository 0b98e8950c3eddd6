//! Guesses how large a new file will be: as large as the last files like it.
//!
//! The first of these that is known says it:
//!
//! 1. the last files with its extension in its directory,
//! 2. the last files with its extension in any directory (a new season),
//! 3. the last files in its directory (programs that write to a temporary name).
//!
//! A guess chooses between rules and nothing else: no branch counts as full because of it, and the file is judged by
//! its real size when it is closed.
//!
//! Memory is bounded: two generations of at most [`GENERATION`] keys, and what was not closed for a whole generation is
//! forgotten. A key is a hash; where two meet, a guess is wrong.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use umbrella_units::ByteSize;

use super::condition::extension;
use super::facts::SizePeers;

/// Keys of a generation: 48 bytes each in the table.
const GENERATION: usize = 4096;
/// How many of the last files count. The guess is the middle one, so that a single odd file does not change it.
const LAST: usize = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct LastSizes {
    young: FxHashMap<u64, Sizes>,
    old: FxHashMap<u64, Sizes>,
}

/// The sizes of the last files of a key, the latest first.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    last: [u64; LAST],
    known: u8,
}

impl Sizes {
    fn push(&mut self, size: ByteSize) {
        self.last.rotate_right(1);
        self.last[0] = size.0;
        self.known = self.known.saturating_add(1).min(LAST as u8);
    }

    /// The middle one; of two the smaller.
    fn middle(&self) -> Option<ByteSize> {
        let mut known = self.last;
        let known = known.get_mut(..usize::from(self.known))?;
        known.sort_unstable();
        known.get(known.len().checked_sub(1)? / 2).copied().map(ByteSize)
    }
}

impl LastSizes {
    /// A file was written and closed. An empty one says nothing: many programs fill it later.
    pub fn closed(&mut self, path: &[u8], size: ByteSize) {
        if size.0 == 0 {
            return;
        }
        for (_, key) in keys(path) {
            let mut sizes = self.known(key).copied().unwrap_or_default();
            sizes.push(size);
            self.young.insert(key, sizes);
        }
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// How large a new file of this path will be, and like which files.
    pub fn guess(&self, path: &[u8]) -> Option<(ByteSize, SizePeers)> {
        keys(path).find_map(|(alike, key)| Some((self.known(key)?.middle()?, alike)))
    }

    fn known(&self, key: u64) -> Option<&Sizes> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }
}

/// The keys that a file falls under, the nearest first.
fn keys(path: &[u8]) -> impl Iterator<Item = (SizePeers, u64)> {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let dir = path.get(..slash).unwrap_or_default();
    let extension = extension(path);
    let key = move |alike: SizePeers| {
        let mut hasher = FxHasher::default();
        (alike as u8).hash(&mut hasher);
        if alike != SizePeers::Extension {
            dir.hash(&mut hasher);
        }
        if alike != SizePeers::Directory {
            extension?.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
        }
        Some((alike, hasher.finish()))
    };
    [SizePeers::ExtensionAndDirectory, SizePeers::Extension, SizePeers::Directory].into_iter().filter_map(key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(closed: &[(&str, u64)]) -> LastSizes {
        let mut sizes = LastSizes::default();
        for (path, size) in closed {
            sizes.closed(path.as_bytes(), ByteSize(*size));
        }
        sizes
    }

    fn guess(sizes: &LastSizes, path: &str) -> Option<(u64, SizePeers)> {
        sizes.guess(path.as_bytes()).map(|(size, alike)| (size.0, alike))
    }

    #[test]
    fn the_nearest_files_that_are_known_say_it() {
        let sizes = after(&[("/tv/one/1.mkv", 900), ("/tv/one/1.nfo", 5), ("/home/clip.MKV", 70)]);
        assert_eq!(guess(&sizes, "/tv/one/2.mkv"), Some((900, SizePeers::ExtensionAndDirectory)));
        assert_eq!(
            guess(&sizes, "/home/b.mkv"),
            Some((70, SizePeers::ExtensionAndDirectory)),
            "case makes no difference"
        );
        assert_eq!(guess(&sizes, "/tv/two/1.mkv"), Some((70, SizePeers::Extension)), "of two the smaller");
        assert_eq!(guess(&sizes, "/tv/one/.2.mkv.Xy12"), Some((5, SizePeers::Directory)));
        assert_eq!(guess(&sizes, "/tv/one/README"), Some((5, SizePeers::Directory)));
        assert_eq!(guess(&sizes, "/tv/two/1.srt"), None);
        assert_eq!(guess(&sizes, "/README"), None);
        assert_eq!(guess(&LastSizes::default(), "/tv/one/2.mkv"), None);
    }

    #[test]
    fn files_of_the_top_directory_are_no_others() {
        let sizes = after(&[("/a", 3), ("/d/a", 4)]);
        assert_eq!([guess(&sizes, "/b"), guess(&sizes, "/d/b")].map(|guess| guess.unwrap().0), [3, 4]);
    }

    #[test]
    fn one_odd_file_does_not_change_the_guess_and_two_do() {
        let mut sizes = after(&[("/d/a.iso", 100), ("/d/b.iso", 110), ("/d/c.iso", 1)]);
        assert_eq!(guess(&sizes, "/d/x.iso").unwrap().0, 100);
        sizes.closed(b"/d/d.iso", ByteSize(2));
        assert_eq!(guess(&sizes, "/d/x.iso").unwrap().0, 2, "of 110, 1 and 2");
    }

    #[test]
    fn an_empty_file_is_not_learned_from() {
        assert_eq!(guess(&after(&[("/d/lock", 0)]), "/d/x"), None);
        assert_eq!(guess(&after(&[("/d/a", 7), ("/d/lock", 0), ("/d/lock", 0)]), "/d/x").unwrap().0, 7);
    }

    #[test]
    fn memory_is_bounded_and_what_closes_now_and_then_stays_known() {
        let mut sizes = after(&[("/forgotten/a.bin", 8)]);
        for number in 0..3 * GENERATION {
            sizes.closed(format!("/d{number}/{number}.x{number}").as_bytes(), ByteSize(1));
            sizes.closed(b"/kept/a.iso", ByteSize(9));
            assert!(sizes.young.len() + sizes.old.len() <= 2 * (GENERATION + 3));
        }
        assert_eq!(guess(&sizes, "/kept/b.iso").unwrap().0, 9);
        assert_eq!(guess(&sizes, "/forgotten/b.bin"), None);
    }

    proptest! {
        #[test]
        fn a_guess_is_the_size_of_one_of_the_last_three(sizes in prop::collection::vec(1u64..1000, 1..20), path in "/[a-z./]{0,12}") {
            let mut last = LastSizes::default();
            for size in &sizes {
                last.closed(path.as_bytes(), ByteSize(*size));
            }
            let guess = last.guess(path.as_bytes()).unwrap().0.0;
            prop_assert!(sizes.iter().rev().take(LAST).any(|size| *size == guess));
        }
    }
}
