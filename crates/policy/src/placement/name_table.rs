//! The name table: of the patterns that match a path, the most specific one decides.
//!
//! Most specific is the longest overall match: the pattern with most literal characters. Wildcards and classes do not
//! count. The slash of `**/` does not count either, because it may stand for no directory. Of braces the alternative
//! with the fewest counts. On a tie a pattern without wildcards comes first, then the longer pattern, then the earlier
//! one.
//!
//! Patterns are found through their fixed ends: first those whose literal prefix begins the path, of these the ones
//! whose literal suffix ends it. So the cost grows with the number of patterns that nearly match, not with the size of
//! the table. Source: UmbrellaFS, chapter III, figure 8.

use std::cmp::{Ordering, Reverse};

use super::glob::{Flat, Glob};

/// Patterns and what finds them.
#[derive(Debug, Clone)]
pub(super) struct NameTable {
    /// Entry numbers inside the table, most specific first; a position here is a rank.
    by_rank: Vec<u32>,
    /// Alternatives of all patterns, by literal prefix.
    prefixes: Chains<Chains<Vec<(u32, Flat)>>>,
}

impl NameTable {
    /// Builds the table from patterns in the order of the rules.
    pub(super) fn new(globs: &[(String, Glob)]) -> NameTable {
        let mut by_rank: Vec<u32> = (0..globs.len() as u32).collect();
        by_rank.sort_by_key(|&entry| {
            let (text, glob) = &globs[entry as usize];
            (Reverse(glob.literals), Reverse(glob.is_exact()), Reverse(text.chars().count()), entry)
        });
        let mut flats: Vec<(u32, &Flat)> = Vec::new();
        for (rank, &entry) in by_rank.iter().enumerate() {
            flats.extend(globs[entry as usize].1.alternatives.iter().map(|flat| (rank as u32, flat)));
        }
        let prefixes = Chains::group(
            flats,
            |(_, flat)| flat.prefix.to_vec(),
            |same_prefix| {
                let reversed = |(_, flat): &(u32, &Flat)| flat.suffix.iter().rev().copied().collect();
                Chains::group(same_prefix, reversed, |same_ends| {
                    same_ends.into_iter().map(|(rank, flat)| (rank, flat.clone())).collect()
                })
            },
        );
        NameTable { by_rank, prefixes }
    }

    /// The most specific entry that matches and is usable.
    pub(super) fn find(&self, path: &[u8], usable: impl Fn(u32) -> bool) -> Option<u32> {
        let mut best = u32::MAX;
        for by_suffix in self.prefixes.beginning(|key| compare(key.iter(), path.iter())) {
            for flats in by_suffix.beginning(|key| compare(key.iter(), path.iter().rev())) {
                for (rank, flat) in flats {
                    if *rank >= best {
                        break;
                    }
                    if flat.matches_between(path) && usable(self.by_rank[*rank as usize]) {
                        best = *rank;
                        break;
                    }
                }
            }
        }
        self.by_rank.get(best as usize).copied()
    }

    /// Every entry that matches, most specific first.
    pub(super) fn find_all(&self, path: &[u8]) -> Vec<u32> {
        let mut ranks: Vec<u32> = Vec::new();
        for by_suffix in self.prefixes.beginning(|key| compare(key.iter(), path.iter())) {
            for flats in by_suffix.beginning(|key| compare(key.iter(), path.iter().rev())) {
                ranks.extend(flats.iter().filter(|(_, flat)| flat.matches_between(path)).map(|(rank, _)| *rank));
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into_iter().map(|rank| self.by_rank[rank as usize]).collect()
    }

    /// Entries, most specific first.
    pub(super) fn by_rank(&self) -> &[u32] {
        &self.by_rank
    }
}

/// How a key compares to a text.
enum PrefixOrder {
    /// The text begins with the key.
    Begins,
    /// The key sorts before, and does not begin the text.
    Before,
    /// The key sorts after.
    After,
}

fn compare<'a>(key: impl Iterator<Item = &'a u8>, mut text: impl Iterator<Item = &'a u8>) -> PrefixOrder {
    for byte in key {
        match text.next().map_or(Ordering::Greater, |other| byte.cmp(other)) {
            Ordering::Less => return PrefixOrder::Before,
            Ordering::Greater => return PrefixOrder::After,
            Ordering::Equal => {}
        }
    }
    PrefixOrder::Begins
}

/// Keys in order, each with a link to the longest other key that begins it: all keys that begin a text are one chain.
#[derive(Debug, Clone)]
struct Chains<T> {
    nodes: Vec<Node<T>>,
}

#[derive(Debug, Clone)]
struct Node<T> {
    key: Box<[u8]>,
    shorter: Option<u32>,
    value: T,
}

impl<T> Chains<T> {
    /// Groups items by key; items of one key keep their order.
    fn group<I>(mut items: Vec<I>, key: impl Fn(&I) -> Vec<u8>, value: impl Fn(Vec<I>) -> T) -> Chains<T> {
        items.sort_by_cached_key(&key);
        let mut nodes: Vec<Node<T>> = Vec::new();
        let mut items = items.into_iter().peekable();
        while let Some(first) = items.next() {
            let shared = key(&first);
            let mut same = vec![first];
            while let Some(item) = items.next_if(|item| key(item) == shared) {
                same.push(item);
            }
            let mut shorter = nodes.len().checked_sub(1);
            while let Some(index) = shorter {
                if shared.starts_with(&nodes[index].key) {
                    break;
                }
                shorter = nodes[index].shorter.map(|index| index as usize);
            }
            let shorter = shorter.map(|index| index as u32);
            nodes.push(Node { key: shared.into(), shorter, value: value(same) });
        }
        Chains { nodes }
    }

    /// Values of the keys that begin a text, longest key first.
    fn beginning(&self, compare: impl Fn(&[u8]) -> PrefixOrder) -> impl Iterator<Item = &T> {
        // The longest of them is the last key not after the text, or one of those that begin that key.
        let end = self.nodes.partition_point(|node| !matches!(compare(&node.key), PrefixOrder::After));
        let mut next = end.checked_sub(1);
        while let Some(index) = next {
            if matches!(compare(&self.nodes[index].key), PrefixOrder::Begins) {
                break;
            }
            next = self.nodes[index].shorter.map(|index| index as usize);
        }
        std::iter::from_fn(move || {
            let node = &self.nodes[next?];
            next = node.shorter.map(|index| index as usize);
            Some(&node.value)
        })
    }
}
