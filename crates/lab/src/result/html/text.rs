//! Text from outside, made harmless; and text made to fit a chart.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write};

use super::super::{Better, Metric};

/// Text as it may be in an element or in a quoted attribute. What steers (control characters, and those that turn
/// the direction of writing) is shown escaped.
pub(super) struct Safe<'a>(pub(super) &'a str);

impl Display for Safe<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                _ if steers(c) => write!(f, "{}", c.escape_default())?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text in at most `longest` characters; what is too long loses its middle, because names of runs differ at the
/// end.
pub(super) fn fit(text: &str, longest: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= longest {
        return text.to_owned();
    }
    let tail = longest / 2;
    let head = longest - tail - 1;
    chars[..head].iter().chain(&['\u{2026}']).chain(&chars[chars.len() - tail..]).collect()
}

/// The texts in at most `longest` characters each, so that different texts look different. If necessary, the parts that
/// they share at both ends are left out. If that is not enough, they are numbered.
pub(super) fn fit_all(texts: &[&str], longest: usize) -> Vec<String> {
    let fitted: Vec<String> = texts.iter().map(|text| fit(text, longest)).collect();
    if all_differ(&fitted) {
        return fitted;
    }
    let own: Vec<String> = without_shared(texts).iter().map(|text| fit(text, longest)).collect();
    if all_differ(&own) {
        return own;
    }
    let numbered = |(place, text): (usize, &&str)| {
        let number = format!("{}. ", place + 1);
        let rest = longest.saturating_sub(number.len());
        if rest < 3 { number.trim_end().to_owned() } else { number + &fit(text, rest) }
    };
    texts.iter().enumerate().map(numbered).collect()
}

fn all_differ(texts: &[String]) -> bool {
    texts.iter().collect::<BTreeSet<_>>().len() == texts.len()
}

/// The texts without what all of them begin and end with.
fn without_shared(texts: &[&str]) -> Vec<String> {
    let chars: Vec<Vec<char>> = texts.iter().map(|text| text.chars().collect()).collect();
    let shortest = chars.iter().map(Vec::len).min().unwrap_or(0);
    let shared = |at: &dyn Fn(&[char], usize) -> char, most: usize| {
        (0..most).take_while(|n| chars.iter().all(|text| at(text, *n) == at(&chars[0], *n))).count()
    };
    let head = shared(&|text, n| text[n], shortest);
    let tail = shared(&|text, n| text[text.len() - 1 - n], shortest - head);
    chars.iter().map(|text| format!("\u{2026}{}", text[head..text.len() - tail].iter().collect::<String>())).collect()
}

/// Which way the figure is better, in words.
pub(super) fn direction(metric: &Metric) -> &'static str {
    match metric.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "neither way is better by itself",
    }
}

/// The head of a chart: the figure's heading, which way is better, and its meaning.
pub(super) fn caption(out: &mut String, metric: &Metric) -> fmt::Result {
    writeln!(
        out,
        "<figcaption><b>{}</b> <span class=\"way\">{}</span><span class=\"help\">{}</span></figcaption>",
        Safe(metric.heading),
        direction(metric),
        Safe(metric.help)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_an_element_or_an_attribute_or_steers_the_writing() {
        assert_eq!(Safe("<a b='\"&>").to_string(), "&lt;a b=&#39;&quot;&amp;&gt;");
        assert_eq!(Safe("a\u{0}\u{202e}b\u{ffff}").to_string(), "a\\u{0}\\u{202e}b\u{fffd}");
        assert_eq!(Safe("Größe 東").to_string(), "Größe 東");
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        assert_eq!(fit("zone", 4), "zone");
        assert_eq!(fit("zone_segment:alpha=5", 9), "zone\u{2026}ha=5");
    }

    #[test]
    fn names_that_differ_still_do_when_they_are_shortened() {
        assert_eq!(fit_all(&["zone", "zone_segment:alpha=5"], 9), ["zone", "zone\u{2026}ha=5"]);
        let middle = ["zone_segment:alpha=5,zone=8MiB", "zone_segment:alpha=9,zone=8MiB"];
        assert_eq!(fit_all(&middle, 9), ["\u{2026}5", "\u{2026}9"]);
        let three = ["ab-long-1-name-x", "ab-long-2-name-x", "zz-long-1-name-y"];
        assert_eq!(fit_all(&three, 7), ["1. a\u{2026}-x", "2. a\u{2026}-x", "3. z\u{2026}-y"]);
        assert_eq!(fit_all(&["aaaaa1aaaaa", "aaaaa2aaaaa", "aaaaa"], 3), ["1.", "2.", "3."]);
    }
}
