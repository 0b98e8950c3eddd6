//! Text from outside, made harmless; and text made to fit a chart.

use std::fmt::{self, Display, Formatter, Write};

use super::super::{Better, Metric};

/// Text as it may stand in an element or in a quoted attribute. What steers (control characters, and those that turn the
/// direction of writing) is shown escaped.
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

/// The text in at most `longest` characters; what is too long loses its middle, because names of runs differ at the end.
pub(super) fn fit(text: &str, longest: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= longest {
        return text.to_owned();
    }
    let tail = longest / 2;
    let head = longest - tail - 1;
    chars[..head].iter().chain(&['\u{2026}']).chain(&chars[chars.len() - tail..]).collect()
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
}
