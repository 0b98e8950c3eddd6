//! What a parameter of a policy is: its kind, its default and its limits.

use umbrella_units::{ByteSize, PAGE_BYTES, parse_duration};

/// What the value of a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// A size in whole pages: `8MiB`.
    Bytes,
    /// A whole number: `50`.
    Number,
    /// A number with up to three decimals: `0.08`.
    Decimal,
    /// A time: `30s`, `500ms`.
    Duration,
    /// `true` or `false`.
    Flag,
}

/// A parameter of a policy. The limits are written as a user would write a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamInfo {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub kind: ParamKind,
    /// The value when none is given.
    pub default: &'static str,
    /// The least value; nothing for a flag.
    pub min: &'static str,
    /// The greatest value; nothing for a flag.
    pub max: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
}

impl ParamInfo {
    /// What a user may give, in words.
    pub fn allowed(&self) -> String {
        let what = match self.kind {
            ParamKind::Bytes => "a size in whole pages of 4 KiB",
            ParamKind::Number => "a whole number",
            ParamKind::Decimal => "a number",
            ParamKind::Duration => "a time",
            ParamKind::Flag => return "true or false".to_owned(),
        };
        format!("{what} from {} to {}, for example {}", self.min, self.max, self.default)
    }

    /// Reads a value, without looking at the limits.
    fn read(&self, text: &str) -> Option<u64> {
        match self.kind {
            ParamKind::Bytes => {
                let size = text.parse::<ByteSize>().ok()?.0;
                size.is_multiple_of(PAGE_BYTES).then_some(size)
            }
            ParamKind::Number => text.trim().parse().ok(),
            ParamKind::Decimal => thousandths(text.trim()),
            ParamKind::Duration => parse_duration(text).ok().and_then(|time| u64::try_from(time.as_nanos()).ok()),
            ParamKind::Flag => match text.trim() {
                "true" => Some(1),
                "false" => Some(0),
                _ => None,
            },
        }
    }

    /// Reads a value within the limits.
    pub(crate) fn value(&self, text: &str) -> Option<u64> {
        let value = self.read(text)?;
        if self.kind == ParamKind::Flag {
            return Some(value);
        }
        (self.read(self.min)?..=self.read(self.max)?).contains(&value).then_some(value)
    }
}

/// Reads `12`, `0.5` or `0.125` in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let fraction: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction)
}
