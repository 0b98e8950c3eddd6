//! Text from outside, made fit for a terminal.

use std::fmt::Write as _;
use std::path::Path;

/// The text with control characters (and those that change the direction of writing) escaped, so that a file name or a
/// daemon's answer cannot steer the terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let steers =
            c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers {
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A path as text for people.
pub(crate) fn visible_path(path: &Path) -> String {
    visible(&path.to_string_lossy())
}

/// The text in double quotes, escaped, and cut when it is very long.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start:?}...")
}

/// `"a", "b", "c"`.
pub(crate) fn quoted_list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
