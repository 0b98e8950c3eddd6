//! A paper's claims beside what was measured, for people and as rows of JSON.

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
    watts: Option<&'a Watts>,
}

/// Where the watts come from that energies were reckoned with: for each profile, what its watts are.
#[derive(Serialize)]
pub(super) struct Watts {
    pub(super) disk_watts: String,
    pub(super) flash_watts: String,
}

/// A figure with its claims.
pub(super) struct Shown<'a> {
    pub(super) figure: &'a str,
    pub(super) title: &'a str,
    pub(super) assumed: &'a str,
    /// If energies are part of it.
    pub(super) watts: Option<Watts>,
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

/// How many of all claims hold, and a note.
pub(super) fn print_count(shown: &[Shown], note: &str) -> anyhow::Result<()> {
    let claims = || shown.iter().flat_map(|shown| shown.claims);
    let (hold, all) = (claims().filter(|claim| claim.holds).count(), claims().count());
    if all == 0 {
        return Ok(output::line(&format!("no claim was judged{note}"))?);
    }
    let sign = claims().filter(|claim| claim.verdict == Verdict::SignOnly).count();
    Ok(output::line(&format!("{hold} of {all} claims hold, {sign} more in sign only{note}"))?)
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
        let mark = match claim.verdict {
            Verdict::Holds => "holds",
            Verdict::SignOnly => "sign only",
            Verdict::Fails => "FAILS",
        };
        table.add_row([" ".to_owned(), claim.claim.clone(), claim.wanted(), claim.shown(), mark.to_owned()]);
    }
    table.trim_fmt()
}
