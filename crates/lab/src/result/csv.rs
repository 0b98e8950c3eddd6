//! Outcomes as CSV: the setting, then every figure of the one table of metrics.

use std::io::{self, Write};

use super::{METRICS, Outcome};

/// Writes one line an outcome, after a heading. A column a swept parameter, named by it, stands between.
pub fn write_csv(out: &mut impl Write, outcomes: &[Outcome]) -> io::Result<()> {
    let swept: std::collections::BTreeSet<&str> =
        outcomes.iter().flat_map(|outcome| outcome.setting.swept.keys().map(String::as_str)).collect();
    write!(out, "policy,input,disk,scheduler,memory_bytes,staging,seed,scale,interrupted")?;
    swept.iter().try_for_each(|name| write!(out, ",{}", field(name)))?;
    METRICS.iter().try_for_each(|metric| write!(out, ",{}", metric.name))?;
    writeln!(out)?;
    for outcome in outcomes {
        let of = &outcome.setting;
        write!(
            out,
            "{},{},{},{},{},{},{},{},{}",
            field(&of.policy),
            field(&of.input),
            field(&of.disk),
            field(&of.scheduler),
            of.memory.0,
            of.staging,
            of.seed,
            of.scale,
            outcome.interrupted
        )?;
        for name in &swept {
            write!(out, ",{}", field(of.swept.get(*name).map_or("", String::as_str)))?;
        }
        METRICS.iter().try_for_each(|metric| write!(out, ",{}", (metric.of)(outcome)))?;
        writeln!(out)?;
    }
    Ok(())
}

/// A field, quoted where commas, quotes or line ends ask for it (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_with_commas_or_quotes_is_quoted() {
        assert_eq!(field("zone"), "zone");
        assert_eq!(field("zone_segment:alpha=5,zone=8MiB"), "\"zone_segment:alpha=5,zone=8MiB\"");
        assert_eq!(field("a\"b"), "\"a\"\"b\"");
    }
}
