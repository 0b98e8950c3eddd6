//! "Did you mean": the known word nearest to an unknown one.

/// Longer words are not compared: a hostile file could make it slow, and nobody means them.
const LONGEST: usize = 64;

/// ` (did you mean "zone"?)`, to append to an error; empty when no known word is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |known| format!(" (did you mean \"{known}\"?)"))
}

/// The known word that differs least from `word`, if it differs by no more than a third of its letters.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    known
        .into_iter()
        .filter_map(|candidate| {
            let letters: Vec<char> = candidate.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
            let distance = distance(&word, &letters);
            let allowed = (word.len().max(letters.len()) / 3).max(1);
            (distance <= allowed && distance < letters.len()).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, &to) in b.iter().enumerate() {
            let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX - 1);
            let mut best = (at(&last, j) + usize::from(from != to)).min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(&to) && b.get(j - 1) == Some(&from);
            if swapped {
                best = best.min(at(&before_last, j - 1) + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested_and_none_that_is_far() {
        let known = ["zone", "zone_segment", "cscan"];
        assert_eq!(did_you_mean("zone_segmnt", known), " (did you mean \"zone_segment\"?)");
        assert_eq!(did_you_mean("csacn", known), " (did you mean \"cscan\"?)");
        for far in ["", "elevator", "o", &"z".repeat(1 << 20)] {
            assert_eq!(did_you_mean(far, known), "");
        }
    }
}
