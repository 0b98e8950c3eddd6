//! A year of a household with a media server, by strategy: what moves, how often disks spin up, how much is read from
//! the SSD.
//!
//! The household is a model and the same for each strategy; the decisions are those of the real rules. The table stands
//! in the guide for media servers, and this test keeps it true (`UPDATE_GOLDEN=1` writes it).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a model of its own making")]

mod household;
mod motors;
mod strategy;
mod year;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use year::Year;

const SEED: u64 = 2026;

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/media-server.md")
}

fn table(years: &[(&str, Year)]) -> String {
    let mut text = String::from(
        "| strategy | files moved | bytes moved | reads from the SSD | spin-ups a day | disk hours a day |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for (name, year) in years {
        let a_day = |count: u64| count as f64 / household::DAYS as f64;
        writeln!(
            text,
            "| {name} | {} | {:.1} TiB | {:.0}% | {:.1} | {:.1} |",
            year.moves,
            year.bytes_moved as f64 / (1_u64 << 40) as f64,
            100.0 * year.reads_from_ssd as f64 / year.reads as f64,
            a_day(year.spin_ups),
            a_day(year.spinning_secs) / 3600.0,
        )
        .unwrap();
    }
    text
}

#[test]
fn the_guide_has_the_table_of_a_simulated_year() {
    let years: Vec<_> = strategy::all().into_iter().map(|it| (it.name, year::simulate(&it, SEED))).collect();
    let table = table(&years);
    let text = std::fs::read_to_string(guide()).unwrap();
    let start = text.find("| strategy |").expect("the guide has the table");
    let end = text[start..].find("\n\n").map_or(text.len(), |end| start + end + 1);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(guide(), format!("{}{table}{}", &text[..start], &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[start..end], table, "UPDATE_GOLDEN=1 writes the table anew");
}

#[test]
fn nothing_moves_where_all_disks_are_equal_and_what_moved_stays_moved() {
    for strategy in strategy::all() {
        let year = year::simulate(&strategy, SEED + 1);
        let moves = strategy.walks || !strategy.rules.evicts.is_empty();
        assert_eq!(year.moves == 0, !moves, "{}: {} moves", strategy.name, year.moves);
        let comes_back = !strategy.rules.rules.is_empty() && !strategy.rules.evicts.is_empty();
        // Away and back, each time somebody takes it up again: not to and fro.
        let most = if comes_back { 12 } else { 1 };
        assert!(year.most_moves <= most, "{}: a file moved {} times", strategy.name, year.most_moves);
        assert_eq!(year.refused, 0, "{}: there is room for all", strategy.name);
    }
}
