//! Outcomes as CSV: the setting, then every figure of the one table of metrics.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::{METRICS, Outcome, Setting};

/// Swept parameters that have a column anyway. They are the machine's or the run's, never those of a policy or
/// workload.
const FIXED: [&str; 4] = ["disk", "scheduler", "seed", "scale"];

/// Writes one line an outcome, after a heading. Each swept parameter has a column, with its name.
pub fn write_csv(out: &mut impl Write, outcomes: &[Outcome]) -> io::Result<()> {
    let names = outcomes.iter().flat_map(|outcome| outcome.setting.swept.keys().map(String::as_str));
    let swept: BTreeSet<&str> = names.filter(|name| !FIXED.contains(name)).collect();
    write!(out, "policy,input,disk,scheduler,memory_bytes,staging,seed,scale,options,interrupted")?;
    swept.iter().try_for_each(|name| write!(out, ",{}", field(name)))?;
    METRICS.iter().try_for_each(|metric| write!(out, ",{}", metric.name))?;
    writeln!(out)?;
    for outcome in outcomes {
        let of = &outcome.setting;
        write!(
            out,
            "{},{},{},{},{},{},{},{},{},{}",
            field(&of.policy),
            field(&of.input),
            field(&of.disk),
            field(&of.scheduler),
            of.memory.0,
            of.staging,
            of.seed,
            of.scale,
            field(&options(of)),
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

/// What differs from the defaults: `background=5 delayed-allocation`. A flag has no value.
fn options(of: &Setting) -> String {
    let pair = |(name, value): (&String, &String)| {
        if value.is_empty() { name.clone() } else { format!("{name}={value}") }
    };
    of.options.iter().map(pair).collect::<Vec<_>>().join(" ")
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
