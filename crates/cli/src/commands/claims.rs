//! A paper's claims beside what was measured, for people and as rows of JSON.

use std::collections::BTreeMap;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use umbrella_reproductions::{Claim, Verdict};

use crate::output;

/// A claim and the paper that makes it.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    paper: &'a str,
    #[serde(flatten)]
    claim: &'a Claim,
    #[serde(skip_serializing_if = "str::is_empty")]
    assumed: &'a str,
    #[serde(flatten)]
    watts: Option<&'a WattSources>,
}

/// Where the watts come from that energies were reckoned with: for each profile, what its watts are.
#[derive(Serialize)]
pub(super) struct WattSources {
    pub(super) disk_watts: String,
    pub(super) flash_watts: String,
}

/// A figure with its claims.
pub(super) struct Shown<'a> {
    pub(super) figure: &'a str,
    pub(super) title: &'a str,
    pub(super) assumed: &'a str,
    /// If energies are part of it.
    pub(super) watts: Option<WattSources>,
    pub(super) claims: &'a [Claim],
}

/// All claims, as the JSON has them.
pub(super) fn rows<'a>(paper: &'a str, shown: &'a [Shown<'a>]) -> Vec<Row<'a>> {
    let row = |shown: &'a Shown<'a>| {
        let (assumed, watts) = (shown.assumed, shown.watts.as_ref());
        shown.claims.iter().map(move |claim| Row { paper, claim, assumed, watts })
    };
    shown.iter().flat_map(row).collect()
}

/// The table of a figure's claims, and what was assumed.
pub(super) fn print_claims(shown: &Shown) -> anyhow::Result<()> {
    if !shown.claims.is_empty() {
        output::line(&table(shown.claims))?;
    }
    if !shown.assumed.is_empty() {
        output::line(&format!("  assumed: {}", shown.assumed))?;
    }
    Ok(())
}

/// How many of all claims hold, and a note; apart from them the other readings and new inputs.
pub(super) fn print_count(shown: &[Shown], note: &str) -> anyhow::Result<()> {
    let claims = || shown.iter().flat_map(|shown| shown.claims);
    let (counts, all) = (counts(claims().map(|claim| claim.verdict)), claims().count());
    if all == counts.not_measured {
        output::line(&format!("no claim was judged{note}"))?;
    } else {
        let unmeasured = match counts.not_measured {
            0 => String::new(),
            count => format!(", {count} not measured"),
        };
        output::line(&format!(
            "{} of {all} claims hold, {} more in sign only{unmeasured}{note}",
            counts.hold, counts.sign
        ))?;
    }
    let mut apart: BTreeMap<String, Vec<Verdict>> = BTreeMap::new();
    for claim in claims() {
        for other in &claim.other_readings {
            apart.entry(format!("in another reading ({})", other.reading.says)).or_default().push(other.verdict);
        }
        for new in &claim.new_inputs {
            apart.entry(format!("on {}, which is not in the list", new.input)).or_default().push(new.verdict);
        }
    }
    for (what, verdicts) in &apart {
        let of = self::counts(verdicts.iter().copied());
        output::line(&format!("{what}: {} of {} hold, {} more in sign only", of.hold, verdicts.len(), of.sign))?;
    }
    Ok(())
}

/// Of some claims.
#[derive(Default)]
struct Counts {
    hold: usize,
    sign: usize,
    not_measured: usize,
}

fn counts(verdicts: impl Iterator<Item = Verdict>) -> Counts {
    verdicts.fold(Counts::default(), |mut counts, verdict| {
        match verdict {
            Verdict::Holds => counts.hold += 1,
            Verdict::SignOnly => counts.sign += 1,
            Verdict::NotMeasured => counts.not_measured += 1,
            Verdict::Fails => {}
        }
        counts
    })
}

/// `8` is a figure; `Table I` says itself what it is.
pub(super) fn heading(id: &str) -> String {
    if id.starts_with(|first: char| first.is_ascii_digit()) { format!("figure {id}") } else { id.to_owned() }
}

fn table(claims: &[Claim]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["", "claim", "published", "measured", ""]);
    for claim in claims {
        let measured = claim.measured.map_or_else(|| "-".to_owned(), |measured| claim.shown(measured));
        table.add_row([" ", &claim.claim, &claim.wanted(), &measured, mark(claim.verdict)]);
        for other in &claim.other_readings {
            let says = format!("  {}", other.reading.says);
            table.add_row([" ", &says, "", &claim.shown(other.measured), mark(other.verdict)]);
        }
        for new in &claim.new_inputs {
            let input = format!("  {}", new.input);
            table.add_row([" ", &input, "", &claim.shown(new.measured), mark(new.verdict)]);
        }
    }
    table.trim_fmt()
}

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::SignOnly => "sign only",
        Verdict::Fails => "FAILS",
        Verdict::NotMeasured => "not measured",
    }
}
