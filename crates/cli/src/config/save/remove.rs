//! Takes a branch out of the text of a configuration, with the comments that are its own: above it without a blank
//! line, and behind its name in a list.

use std::ops::Range;

use anyhow::{Context, bail};
use toml_edit::{Array, ArrayOfTables, Document, DocumentMut, Item, RawString, Value};

/// The text without a branch. Rules that send files nowhere else still name it.
pub(super) fn without(text: &str, name: &str) -> anyhow::Result<String> {
    let document = Document::parse(text)?;
    let Some(tables) = document.get("branch").and_then(Item::as_array_of_tables) else {
        bail!("its branches are not written as [[branch]]");
    };
    super::refuse_pattern(tables, name)?;
    let table = tables.iter().find(|table| super::is_of(table, name));
    // It was removed already.
    let Some(table) = table else { return Ok(text.to_owned()) };
    let heading = table.span().context("its branch cannot be found")?;
    let end = table.iter().filter_map(|(_, item)| item.span()).map(|value| value.end).fold(heading.end, usize::max);
    let lines = lines_of(text, &(heading.start..end));
    let mut rest = text.to_owned();
    rest.replace_range(lines, "");
    let mut document: DocumentMut = rest.parse()?;
    if let Some(names) = document.get_mut("default").and_then(Item::as_array_mut) {
        remove(names, name);
    }
    let groups = document.get_mut("group").and_then(Item::as_array_of_tables_mut);
    for group in groups.into_iter().flat_map(ArrayOfTables::iter_mut) {
        if let Some(members) = group.get_mut("branches").and_then(Item::as_array_mut) {
            remove(members, name);
            remove(members, &format!("!{name}"));
        }
    }
    for key in ["branch", "group"] {
        let tables = document.get_mut(key).and_then(Item::as_array_of_tables_mut);
        for table in tables.into_iter().flat_map(ArrayOfTables::iter_mut) {
            let evict = table.get_mut("evict").and_then(Item::as_table_like_mut);
            if let Some(to) = evict.and_then(|evict| evict.get_mut("to")).and_then(Item::as_array_mut) {
                remove(to, name);
            }
        }
    }
    let rules = document.get_mut("rule").and_then(Item::as_array_of_tables_mut);
    for rule in rules.into_iter().flat_map(ArrayOfTables::iter_mut) {
        if let Some(to) = rule.get_mut("to").and_then(Item::as_array_mut) {
            remove(to, name);
        }
        let patterns = rule.get_mut("match").and_then(Item::as_array_mut);
        for pattern in patterns.into_iter().flat_map(Array::iter_mut).filter_map(Value::as_inline_table_mut) {
            if let Some(to) = pattern.get_mut("to").and_then(Value::as_array_mut) {
                remove(to, name);
            }
        }
    }
    Ok(document.to_string())
}

/// The lines of a table, its comment above them, and the blank lines before that.
fn lines_of(text: &str, table: &Range<usize>) -> Range<usize> {
    let (before, behind) = (text.get(..table.start).unwrap_or_default(), text.get(table.end..).unwrap_or_default());
    let end = behind.find('\n').map_or(text.len(), |line| table.end + line + 1);
    let above = before.get(..before.rfind('\n').map_or(0, |line| line + 1)).unwrap_or_default();
    let lines_above = |above: &str, such: fn(&str) -> bool| {
        let lines = above.split_inclusive('\n').rev();
        above.len() - lines.take_while(|line| such(line.trim())).map(str::len).sum::<usize>()
    };
    let comment = lines_above(above, |line| line.starts_with('#'));
    let blank = lines_above(above.get(..comment).unwrap_or_default(), str::is_empty);
    blank..end
}

/// Takes a name out of a list that has others. What is behind a name, up to the end of its line, belongs to it.
fn remove(names: &mut Array, name: &str) {
    let at = names.iter().position(|value| value.as_str() == Some(name));
    let Some(at) = at.filter(|_| names.len() > 1) else { return };
    let removed = names.remove(at);
    let before = text(removed.decor().prefix());
    let behind = match names.get(at) {
        Some(next) => text(next.decor().prefix()),
        // Without a comma behind it, a comment is the name's.
        None => text(removed.decor().suffix()) + names.trailing().as_str().unwrap_or_default(),
    };
    let joined = match (before.split_once('\n'), behind.split_once('\n')) {
        (Some((of_the_one_before, _)), Some((_, rest))) => format!("{of_the_one_before}\n{rest}"),
        _ if at == 0 => before,
        _ => behind,
    };
    match names.get_mut(at) {
        Some(next) => next.decor_mut().set_prefix(joined),
        None => names.set_trailing(joined),
    }
}

fn text(around: Option<&RawString>) -> String {
    around.and_then(RawString::as_str).unwrap_or_default().to_owned()
}
