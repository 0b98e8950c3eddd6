//! Results of stores and hybrid disks as plain tables and as CSV.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// The table for people.
pub(super) fn plain(of: &umbrella_lab::result::Table) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(std::iter::once("").chain(of.head.iter().map(String::as_str)));
    for row in &of.rows {
        table.add_row(std::iter::once("").chain(row.iter().map(String::as_str)));
    }
    // Names to the left, figures to the right.
    for (place, column) in table.column_iter_mut().enumerate().skip(1) {
        let mut cells = of.rows.iter().filter_map(|row| row.get(place - 1));
        if cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit() || first == '-')) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// One line a run, with a column for each single figure of it.
pub(super) fn csv<'a, T: Serialize + 'a>(outcomes: impl Iterator<Item = &'a T>) -> anyhow::Result<String> {
    let mut text = String::new();
    for outcome in outcomes {
        let mut columns = Vec::new();
        flatten("", &serde_json::to_value(outcome)?, &mut columns);
        if text.is_empty() {
            text = columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",") + "\n";
        }
        text += &(columns.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(",") + "\n");
    }
    Ok(text)
}

fn flatten(prefix: &str, value: &serde_json::Value, columns: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}_{name}") };
                flatten(&name, value, columns);
            }
        }
        Value::Array(_) => {}
        Value::String(text) => columns.push((prefix.to_owned(), quoted(text))),
        Value::Null => columns.push((prefix.to_owned(), String::new())),
        other => columns.push((prefix.to_owned(), other.to_string())),
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
