//! What is lost to damage, in words.

use umbrella_block::hybrid::Losses;

use crate::text::count;

/// Ranges that a message names.
const NAMED: usize = 5;

/// Records that were damaged before it was known whether they had been flushed, in words.
pub(crate) fn perhaps_lost(lost: &Losses) -> String {
    let named: Vec<String> = lost.at_risk.iter().take(NAMED).map(ToString::to_string).collect();
    let more = lost.at_risk.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more ranges"));
    let unknown =
        (lost.unknown_records > 0).then(|| format!("{} of unknown sectors", count(lost.unknown_records, "record")));
    let held: Vec<String> = named.into_iter().chain(more).chain(unknown).collect();
    format!(
        "part of the log was damaged near its end. {} may hold older data now, if the last flush before the end was \
        answered: check the files there",
        held.join(", ")
    )
}

/// What a pair has lost that continues without it, in words.
pub(crate) fn skipped(lost: &Losses) -> Option<String> {
    (!lost.at_risk.is_empty()).then(|| {
        let ranges = count(lost.at_risk.len() as u64, "range");
        format!("damage of the flash destroyed {ranges} of sectors: reads of them fail until they are written again")
    })
}

/// Records that are lost without a trace, in words.
pub(crate) fn unknown(losses: &Losses) -> Option<String> {
    (losses.unknown_records > 0).then(|| {
        let records = count(losses.unknown_records, "record");
        format!("{records} of the log lost, and their sectors are unknown: any sector may hold old data")
    })
}
