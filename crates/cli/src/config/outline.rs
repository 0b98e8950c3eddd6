//! Writes a new configuration, with comments: the one place that does.

use std::fmt::Write as _;

use crate::text::visible;

/// A configuration that is to be written.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Outline {
    /// Lines of comment at the top.
    pub(crate) about: Vec<String>,
    pub(crate) mount: String,
    pub(crate) default: Vec<String>,
    /// Further keys of the pool.
    pub(crate) keys: Vec<Key>,
    pub(crate) branches: Vec<BranchTable>,
    pub(crate) groups: Vec<Group>,
    pub(crate) rules: Vec<Rule>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Behind it on its line.
    pub(crate) comment: Option<String>,
}

impl Key {
    pub(crate) fn text(name: &'static str, value: impl Into<String>) -> Key {
        Key { name, value: Value::Text(value.into()), comment: None }
    }

    pub(crate) fn flag(name: &'static str, value: bool) -> Key {
        Key { name, value: Value::Flag(value), comment: None }
    }

    pub(crate) fn with_comment(self, comment: impl Into<String>) -> Key {
        Key { comment: Some(comment.into()), ..self }
    }
}

/// What a key is set to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Flag(bool),
}

/// `[[branch]]`
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BranchTable {
    pub(crate) about: Vec<String>,
    /// `None`: the last component of the path, or of each path that a pattern means.
    pub(crate) name: Option<String>,
    pub(crate) path: String,
    pub(crate) keys: Vec<Key>,
}

/// `[[group]]`
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Group {
    pub(crate) about: Vec<String>,
    pub(crate) name: String,
    pub(crate) branches: Vec<String>,
    pub(crate) spread: Vec<&'static str>,
    /// Lines of comment at its end.
    pub(crate) more: Vec<String>,
}

/// `[[rule]]`
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rule {
    pub(crate) about: Vec<String>,
    pub(crate) name: String,
    /// The conditions, as TOML.
    pub(crate) when: &'static str,
    pub(crate) to: Vec<String>,
}

impl Outline {
    /// The text of the configuration.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        comment(&mut text, &self.about);
        if !self.about.is_empty() {
            text.push('\n');
        }
        set(&mut text, "mount", &quoted(&self.mount));
        set(&mut text, "default", &names(&self.default));
        keys(&mut text, &self.keys);
        for branch in &self.branches {
            heading(&mut text, &branch.about, "branch");
            if let Some(name) = &branch.name {
                set(&mut text, "name", &quoted(name));
            }
            set(&mut text, "path", &quoted(&branch.path));
            keys(&mut text, &branch.keys);
        }
        for group in &self.groups {
            heading(&mut text, &group.about, "group");
            set(&mut text, "name", &quoted(&group.name));
            set(&mut text, "branches", &list(&group.branches));
            let spread: Vec<String> = group.spread.iter().map(|word| (*word).to_owned()).collect();
            set(&mut text, "spread", &names(&spread));
            comment(&mut text, &group.more);
        }
        for rule in &self.rules {
            heading(&mut text, &rule.about, "rule");
            set(&mut text, "name", &quoted(&rule.name));
            set(&mut text, "when", rule.when);
            set(&mut text, "to", &names(&rule.to));
        }
        text
    }
}

fn heading(text: &mut String, about: &[String], table: &str) {
    text.push('\n');
    comment(text, about);
    let _ = writeln!(text, "[[{table}]]");
}

/// Comments may quote what came from outside: nothing of it begins a new line.
fn comment(text: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(text, "{}", format!("# {}", visible(line)).trim_end());
    }
}

fn set(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name} = {value}");
}

fn keys(text: &mut String, keys: &[Key]) {
    for key in keys {
        let value = match &key.value {
            Value::Text(value) => quoted(value),
            Value::Flag(value) => value.to_string(),
        };
        let why = key.comment.as_ref().map(|why| format!("   # {}", visible(why))).unwrap_or_default();
        set(text, key.name, &format!("{value}{why}"));
    }
}

/// One name alone, several as a list.
fn names(names: &[String]) -> String {
    match names {
        [name] => quoted(name),
        names => list(names),
    }
}

fn list(names: &[String]) -> String {
    format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "))
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if visible(c.encode_utf8(&mut [0; 4])).len() > c.len_utf8() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Names for branches at these paths: the last component, and as much before it as tells two apart.
pub(crate) fn branch_names(paths: &[&str]) -> Vec<String> {
    let mut taken: Vec<String> = Vec::with_capacity(paths.len());
    for path in paths {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let ending = |length: usize| {
            let from = parts.len().saturating_sub(length);
            truncate_name(&parts.get(from..).unwrap_or_default().join("-"))
        };
        let last = |path: &str| path.rsplit('/').find(|part| !part.is_empty()).map(str::to_owned);
        let is_shared = paths.iter().filter(|other| last(other) == last(path)).count() > 1;
        let candidates = (if is_shared { 2 } else { 1 }..=parts.len()).map(ending);
        let is_free = |name: &String| !name.is_empty() && !RESERVED.contains(&name.as_str()) && !taken.contains(name);
        let numbered = (1..).map(|number| format!("branch{number}"));
        taken.extend(candidates.chain(numbered).find(is_free));
    }
    taken
}

/// Words that mean something else in a list of branches.
const RESERVED: [&str; 2] = ["any", "default"];

/// A name of what may stand in one, and as long as one may be.
fn truncate_name(name: &str) -> String {
    const LONGEST: usize = 64;
    name.chars()
        .map(|c| if c.is_control() || matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '!') { '_' } else { c })
        .take(LONGEST)
        .collect()
}

/// A name that none of these is: the wanted one, or with a number.
pub(crate) fn free_name(wanted: &str, taken: &[String]) -> String {
    let numbered = (2..).map(|number| format!("{wanted}{number}"));
    let mut candidates = std::iter::once(wanted.to_owned()).chain(numbered);
    candidates.find(|name| !taken.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_begins_no_line_and_ends_no_text() {
        let about = vec!["a\nmount = \"/x\"".to_owned()];
        let branch = BranchTable { path: "/mnt/a\"b\nc\u{1b}".to_owned(), ..BranchTable::default() };
        let outline = Outline { about, mount: "/srv".to_owned(), branches: vec![branch], ..Outline::default() };
        let text = outline.text();
        let read: toml_edit::DocumentMut = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read["mount"].as_str(), Some("/srv"));
        assert_eq!(read["branch"][0]["path"].as_str(), Some("/mnt/a\"b\nc\u{1b}"));
    }

    #[test]
    fn branches_are_named_so_that_each_is_told_apart() {
        let names = branch_names(&["/mnt/disk1", "/mnt/a/data", "/mnt/b/data/", "/mnt/any", "/", "/x/*", "/x/data"]);
        assert_eq!(names, ["disk1", "a-data", "b-data", "mnt-any", "branch1", "_", "x-data"]);
        let same = branch_names(&["/a/b", "/a/b"]);
        assert_eq!(same, ["a-b", "branch1"]);
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        assert_eq!(free_name("pool", &["pool".to_owned(), "pool2".to_owned()]), "pool3");
    }
}
