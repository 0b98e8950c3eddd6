//! Decimal digits, eight at a time: the eight bytes of a word are judged and added up together.
//!
//! Source: D. Lemire, "Quickly parsing eight digits" (2018).

/// The most digits that always fit into 64 bits.
const ALWAYS_FIT: usize = 19;

/// The number that the bytes begin with, and how many digits it has; nothing where it has none or more than fit.
#[inline]
pub(super) fn leading(bytes: &[u8]) -> Option<(u64, usize)> {
    let (mut value, mut length) = (0u64, 0);
    while let Some(eight) = bytes.get(length..).and_then(<[u8]>::first_chunk) {
        let (number, digits) = of_word(u64::from_le_bytes(*eight));
        length += digits;
        if length > ALWAYS_FIT {
            return None;
        }
        value = value * POWERS[digits] + number;
        if digits < 8 {
            return (length > 0).then_some((value, length));
        }
    }
    for byte in bytes.get(length..).unwrap_or_default() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        length += 1;
        if length > ALWAYS_FIT {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    (length > 0).then_some((value, length))
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The number that a word's bytes begin with, the lowest first, and how many of them are digits.
#[inline]
fn of_word(word: u64) -> (u64, usize) {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    // A digit's byte becomes 0 to 9; of any other byte the upper half, or that of it and 6, is not 0.
    let values = word ^ ZEROS;
    let other = (values | values.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0;
    let digits = (other.trailing_zeros() / 8) as usize;
    if digits == 0 {
        return (0, 0);
    }
    // The digits move to the upper end, zeros come before them.
    let values = values << (64 - 8 * digits);
    let pairs = (values.wrapping_mul(10).wrapping_add(values >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let number = (fours.wrapping_mul(10_000).wrapping_add(fours >> 32)) & 0xffff_ffff;
    (number, digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::leading;

    #[test]
    fn digits_end_where_something_else_begins() {
        assert_eq!(leading(b"123456789,7"), Some((123_456_789, 9)));
        assert_eq!(leading(b"00000000000000000007"), None, "20 digits may not fit");
        assert_eq!(leading(b"9999999999999999999"), Some((9_999_999_999_999_999_999, 19)));
        assert_eq!(leading(b""), None);
        assert_eq!(leading(b",1"), None);
        for other in 0..=255u8 {
            let bytes = [b'4', b'2', other, b'1', b'1', b'1', b'1', b'1', b'1'];
            let expected = if other.is_ascii_digit() { 9 } else { 2 };
            assert_eq!(leading(&bytes).map(|(_, length)| length), Some(expected), "{other:#x}");
        }
    }

    proptest! {
        #[test]
        fn eight_at_a_time_is_one_at_a_time(number in 0..10_000_000_000_000_000_000u64, after in "[ ,.a-z-]{0,12}") {
            let digits = number.to_string();
            let text = format!("{digits}{after}");
            prop_assert_eq!(leading(text.as_bytes()), Some((number, digits.len())));
        }
    }
}
