//! Fields of a line, as bytes: nothing is copied, nothing is allocated unless it is an error.

use smallvec::SmallVec;

use super::digits;
use super::problem::{Excerpt, Problem};

/// Walks over the fields of a line.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
}

#[derive(Debug, Clone, Copy)]
enum Separator {
    Comma,
    Blanks,
}

impl<'a> Cursor<'a> {
    /// Fields between commas, blanks around them left out.
    pub(super) fn commas(line: &'a [u8]) -> Self {
        Self { rest: Some(line), separator: Separator::Comma }
    }

    /// Fields between blanks.
    pub(super) fn blanks(line: &'a [u8]) -> Self {
        Self { rest: Some(line), separator: Separator::Blanks }
    }

    /// The next field, if there is one.
    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        match self.separator {
            Separator::Comma => {
                let end = rest.iter().position(|byte| *byte == b',');
                let (field, after) = match end {
                    Some(end) => (rest.get(..end)?, rest.get(end + 1..)),
                    None => (rest, None),
                };
                self.rest = after;
                Some(field.trim_ascii())
            }
            Separator::Blanks => {
                let rest = rest.trim_ascii_start();
                if rest.is_empty() {
                    self.rest = None;
                    return None;
                }
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                self.rest = Some(after);
                Some(field)
            }
        }
    }

    /// The next field, or what is missing.
    pub(super) fn field(&mut self, field: &'static str) -> Result<&'a [u8], Problem> {
        self.next().ok_or(Problem::Missing { field })
    }

    /// The next field as a whole number.
    pub(super) fn number(&mut self, field: &'static str) -> Result<u64, Problem> {
        whole(self.field(field)?, field)
    }

    /// The next field as a decimal number, times ten to the power of `places`; digits beyond that are cut off.
    pub(super) fn decimal(&mut self, field: &'static str, places: u32) -> Result<u64, Problem> {
        decimal(self.field(field)?, field, places)
    }
}

/// The fields of a line, for finding out which format it is in. More than any format looks at are not kept.
#[derive(Debug)]
pub(super) struct Fields<'a>(SmallVec<[&'a [u8]; MOST_FIELDS]>);

const MOST_FIELDS: usize = 16;

impl<'a> Fields<'a> {
    /// Fields between commas, blanks around them left out.
    pub(super) fn commas(line: &'a [u8]) -> Self {
        Self::of(Cursor::commas(line))
    }

    /// Fields between blanks.
    pub(super) fn blanks(line: &'a [u8]) -> Self {
        Self::of(Cursor::blanks(line))
    }

    fn of(mut cursor: Cursor<'a>) -> Self {
        Self(std::iter::from_fn(|| cursor.next()).take(MOST_FIELDS).collect())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The field at a place, from 0; empty if there is none.
    pub(super) fn at(&self, place: usize) -> &'a [u8] {
        self.0.get(place).copied().unwrap_or_default()
    }

    /// Whether it is a whole number, of any size: one that is too large is the reader's to refuse.
    pub(super) fn is_whole(&self, place: usize) -> bool {
        is_digits(self.at(place))
    }

    /// Whether it is a number without a sign, with or without a fraction.
    pub(super) fn is_decimal(&self, place: usize) -> bool {
        self.is_whole(place) || self.is_fraction(place)
    }

    /// Whether it is a number with a point.
    pub(super) fn is_fraction(&self, place: usize) -> bool {
        let mut parts = self.at(place).splitn(2, |byte| *byte == b'.');
        let whole = parts.next().unwrap_or_default();
        is_digits(whole) && parts.next().is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    }

    /// How many digits a number has before its point.
    pub(super) fn whole_digits(&self, place: usize) -> usize {
        self.at(place).iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    /// Whether it is one of these words.
    pub(super) fn is_one_of(&self, place: usize, words: &[&str]) -> bool {
        words.iter().any(|word| word.as_bytes() == self.at(place))
    }
}

fn is_digits(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

fn digit(byte: u8) -> Option<u64> {
    let digit = byte.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

fn not_a_number(bytes: &[u8], field: &'static str) -> Problem {
    Problem::NotANumber { field, found: Excerpt::new(bytes) }
}

fn overflow(bytes: &[u8], field: &'static str) -> Problem {
    Problem::Overflow { field, found: Excerpt::new(bytes) }
}

/// The bytes as a whole number.
pub(super) fn whole(bytes: &[u8], field: &'static str) -> Result<u64, Problem> {
    if let Some((number, length)) = digits::leading(bytes)
        && length == bytes.len()
    {
        return Ok(number);
    }
    if bytes.is_empty() {
        return Err(not_a_number(bytes, field));
    }
    let mut value = 0u64;
    for byte in bytes {
        let Some(digit) = digit(*byte) else { return Err(not_a_number(bytes, field)) };
        value =
            value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or_else(|| overflow(bytes, field))?;
    }
    Ok(value)
}

/// The bytes as a decimal number times ten to the power of `places`; digits beyond that are cut off.
pub(super) fn decimal(bytes: &[u8], field: &'static str, places: u32) -> Result<u64, Problem> {
    let point = bytes.iter().position(|byte| *byte == b'.').unwrap_or(bytes.len());
    let (before, after) = bytes.split_at(point);
    let after = after.get(1..).unwrap_or_default();
    if before.is_empty() || !after.iter().all(u8::is_ascii_digit) {
        return Err(not_a_number(bytes, field));
    }
    let number = whole(before, field).map_err(|problem| match problem {
        Problem::Overflow { .. } => overflow(bytes, field),
        _ => not_a_number(bytes, field),
    })?;
    let mut fraction = 0;
    for place in 0..places as usize {
        fraction = fraction * 10 + after.get(place).copied().and_then(digit).unwrap_or(0);
    }
    number
        .checked_mul(10u64.pow(places))
        .and_then(|number| number.checked_add(fraction))
        .ok_or_else(|| overflow(bytes, field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_between_commas_lose_their_blanks_and_may_be_empty() {
        let mut cursor = Cursor::commas(b"a, b ,,c,");
        let fields: Vec<_> = std::iter::from_fn(|| cursor.next()).collect();
        assert_eq!(fields, [&b"a"[..], b"b", b"", b"c", b""]);
    }

    #[test]
    fn fields_between_blanks_are_never_empty() {
        let mut cursor = Cursor::blanks(b"  a \t b  ");
        let fields: Vec<_> = std::iter::from_fn(|| cursor.next()).collect();
        assert_eq!(fields, [&b"a"[..], b"b"]);
    }

    #[test]
    fn whole_numbers_reach_to_64_bits_and_no_further() {
        assert_eq!(whole(b"18446744073709551615", "n"), Ok(u64::MAX));
        assert_eq!(whole(b"00000000000000000000007", "n"), Ok(7));
        assert!(matches!(whole(b"18446744073709551616", "n"), Err(Problem::Overflow { .. })));
        for bad in [&b""[..], b"-1", b"+1", b"1x", b"\0", b"1 "] {
            assert!(matches!(whole(bad, "n"), Err(Problem::NotANumber { .. })), "{bad:?}");
        }
    }

    #[test]
    fn decimals_are_exact_and_cut_off() {
        assert_eq!(decimal(b"35.081", "t", 3), Ok(35_081));
        assert_eq!(decimal(b"7", "t", 9), Ok(7_000_000_000));
        assert_eq!(decimal(b"7.", "t", 3), Ok(7_000));
        assert_eq!(decimal(b"0.0000000019", "t", 9), Ok(1));
        assert!(matches!(decimal(b"18446744073709.551616", "t", 9), Err(Problem::Overflow { .. })));
        for bad in [&b""[..], b".5", b"1e3", b"1.2.3", b"-1.0", b"1.x"] {
            assert!(matches!(decimal(bad, "t", 3), Err(Problem::NotANumber { .. })), "{bad:?}");
        }
    }
}
