//! The order of names as people count: `episode 2` comes before `episode 10`.
//!
//! Adjacent digits compare as one number, all else byte by byte. Of names that are equal so (`e1` and
//! `e01`), the bytes decide.

use std::cmp::Ordering;

/// Compares two names. Allocates nothing.
pub fn natural_order(a: &[u8], b: &[u8]) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    loop {
        let (digits_a, after_a) = leading_digits(rest_a);
        let (digits_b, after_b) = leading_digits(rest_b);
        if !digits_a.is_empty() && !digits_b.is_empty() {
            let order = compare_numbers(digits_a, digits_b);
            if order != Ordering::Equal {
                return order;
            }
            (rest_a, rest_b) = (after_a, after_b);
            continue;
        }
        match (rest_a.split_first(), rest_b.split_first()) {
            (Some((first_a, after_a)), Some((first_b, after_b))) if first_a == first_b => {
                (rest_a, rest_b) = (after_a, after_b);
            }
            (Some((first_a, _)), Some((first_b, _))) => return first_a.cmp(first_b),
            (None, None) => return a.cmp(b),
            (rest_a, rest_b) => return rest_a.is_some().cmp(&rest_b.is_some()),
        }
    }
}

fn leading_digits(name: &[u8]) -> (&[u8], &[u8]) {
    name.split_at(name.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

/// Of any length: without leading zeros, the longer one is larger.
fn compare_numbers(a: &[u8], b: &[u8]) -> Ordering {
    let zeros = |digits: &'_ [u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let (a, b) = (a.get(zeros(a)..).unwrap_or_default(), b.get(zeros(b)..).unwrap_or_default());
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_names_compare_as_numbers() {
        let sorted = ["a", "a1b", "a2", "a10", "a010b", "a10c", "b", "episode 2.mkv", "episode 10.mkv", "é"];
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(natural_order(one.as_bytes(), other.as_bytes()), at.cmp(&other_at), "{one} {other}");
            }
        }
    }

    #[test]
    fn seasons_and_episodes_are_in_order_with_and_without_zeros() {
        let sorted = ["S1E9", "S01E010", "S2E1", "S10E1"];
        assert!(sorted.is_sorted_by(|a, b| natural_order(a.as_bytes(), b.as_bytes()).is_le()));
    }

    #[test]
    fn a_number_may_be_longer_than_any_integer() {
        let (small, large) = (format!("x{}", "9".repeat(100)), format!("x1{}", "0".repeat(100)));
        assert_eq!(natural_order(small.as_bytes(), large.as_bytes()), Ordering::Less);
    }

    /// A digit run as its number, another byte as itself; a number is where its digits are among the bytes.
    fn tokens(name: &str) -> Vec<(u8, u64)> {
        let mut tokens = Vec::new();
        for byte in name.bytes() {
            match tokens.last_mut() {
                Some((b'0', number)) if byte.is_ascii_digit() => *number = *number * 10 + u64::from(byte - b'0'),
                _ if byte.is_ascii_digit() => tokens.push((b'0', u64::from(byte - b'0'))),
                _ => tokens.push((byte, 0)),
            }
        }
        tokens
    }

    proptest! {
        #[test]
        fn it_is_the_order_of_bytes_and_numbers(names in prop::collection::vec("[0129 ./a:~]{0,9}", 2)) {
            let [a, b] = [&names[0], &names[1]];
            let naive = tokens(a).cmp(&tokens(b)).then_with(|| a.cmp(b));
            prop_assert_eq!(natural_order(a.as_bytes(), b.as_bytes()), naive, "{} {}", a, b);
        }

        #[test]
        fn it_is_a_total_order(names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..12)) {
            let mut sorted = names;
            // Panics where an order contradicts itself.
            sorted.sort_by(|a, b| natural_order(a, b));
            for pair in sorted.windows(2) {
                prop_assert_eq!(natural_order(&pair[0], &pair[1]) == Ordering::Equal, pair[0] == pair[1]);
                prop_assert_eq!(natural_order(&pair[0], &pair[1]), natural_order(&pair[1], &pair[0]).reverse());
            }
        }
    }
}
