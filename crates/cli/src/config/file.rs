//! The shape of the file: typed structs that refuse every unknown key. Values keep their place in the text.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use umbrella_fs::spec::{DirectoryRule, OnBranchError, Transport};
use umbrella_policy::placement::spec::{Offline, StagingMode};

use super::problem::Problem;
use super::values::{ModeValues, Names, Patterns, Scalar, Values, XattrValues};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolFile {
    pub(super) mount: Spanned<String>,
    pub(super) default: Option<Spanned<Names>>,
    pub(super) on_branch_error: Option<OnBranchError>,
    pub(super) directories: Option<DirectoryRule>,
    pub(super) cache_timeout: Option<Spanned<Scalar>>,
    pub(super) probe_interval: Option<Spanned<Scalar>>,
    pub(super) probe_timeout: Option<Spanned<Scalar>>,
    pub(super) threads: Option<Spanned<i64>>,
    pub(super) transport: Option<Transport>,
    #[serde(default)]
    pub(super) enforce: EnforceFile,
    pub(super) staging: Option<Spanned<StagingFile>>,
    pub(super) heat: Option<HeatFile>,
    #[serde(default)]
    pub(super) branch: Vec<Spanned<BranchFile>>,
    #[serde(default)]
    pub(super) group: Vec<Spanned<GroupFile>>,
    #[serde(default)]
    pub(super) rule: Vec<Spanned<RuleFile>>,
}

/// `[enforce]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnforceFile {
    pub(super) window: Option<Spanned<Names>>,
    pub(super) bandwidth: Option<Spanned<Scalar>>,
}

/// `[staging]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: write [staging] on a line of its own, below the keys of the pool")]
pub(super) struct StagingFile {
    pub(super) mode: Option<StagingMode>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) volatile: Option<bool>,
    pub(super) size: Option<Spanned<Scalar>>,
    pub(super) max_file: Option<Spanned<Scalar>>,
    pub(super) max_age: Option<Spanned<Scalar>>,
}

/// `[heat]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: write [heat] on a line of its own, below the keys of the pool")]
pub(super) struct HeatFile {
    pub(super) half_life: Option<Spanned<Scalar>>,
    pub(super) max_move: Option<Spanned<Scalar>>,
    pub(super) neighbours: Option<Spanned<i64>>,
}

/// `[[branch]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchFile {
    pub(super) name: Option<Spanned<String>>,
    pub(super) path: Spanned<String>,
    pub(super) min_free: Option<Spanned<Scalar>>,
    pub(super) headroom: Option<Spanned<Scalar>>,
    #[serde(default)]
    pub(super) read_only: bool,
    pub(super) create: Option<bool>,
    pub(super) max_files: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) hide: bool,
    #[serde(default)]
    pub(super) optional: bool,
    pub(super) require_mount: Option<bool>,
    pub(super) min_stay: Option<Spanned<Scalar>>,
    pub(super) passthrough: Option<bool>,
    pub(super) write_back: Option<Spanned<String>>,
    pub(super) write_back_limit: Option<Spanned<Scalar>>,
    pub(super) write_back_background: Option<Spanned<Scalar>>,
    pub(super) evict: Option<Spanned<EvictFile>>,
}

/// `[[group]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupFile {
    pub(super) name: Spanned<String>,
    pub(super) branches: Spanned<Names>,
    pub(super) spread: Option<Spanned<Names>>,
    pub(super) together: Option<Spanned<Patterns>>,
    pub(super) together_spill: Option<Spanned<bool>>,
    pub(super) min_free: Option<Spanned<Scalar>>,
    pub(super) evict: Option<Spanned<EvictFile>>,
}

/// `evict = { ... }`
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a fill level in braces: { above = \"80%\", until = \"70%\", to = [\"hdds\"] }"
)]
pub(super) struct EvictFile {
    pub(super) above: Spanned<Scalar>,
    pub(super) until: Spanned<Scalar>,
    pub(super) order: Option<Spanned<String>>,
    pub(super) to: Option<Spanned<Names>>,
    pub(super) only: Option<Spanned<WhenFile>>,
    pub(super) min_age: Option<Spanned<Scalar>>,
    pub(super) window: Option<Spanned<Names>>,
}

/// `[[rule]]`: either `when`, `to`, `offline` and how its files are treated, or `match`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFile {
    pub(super) name: Option<Spanned<String>>,
    pub(super) when: Option<Spanned<WhenFile>>,
    pub(super) to: Option<Spanned<Names>>,
    pub(super) offline: Option<Spanned<Offline>>,
    pub(super) staging: Option<Spanned<StagingMode>>,
    pub(super) passthrough: Option<Spanned<bool>>,
    pub(super) min_stay: Option<Spanned<Scalar>>,
    #[serde(rename = "match")]
    pub(super) names: Option<Spanned<NameTable>>,
}

/// The lines of a name table.
#[derive(Debug)]
pub(super) struct NameTable(pub(super) Vec<EntryFile>);

impl<'de> Deserialize<'de> for NameTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NameTable, D::Error> {
        list(deserializer, "a list of patterns: match = [{ glob = \"/**.avi\", to = [\"disk\"] }]").map(NameTable)
    }
}

/// Reads a list, and says what it should be where it is none.
fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Vec<T>, D::Error> {
    struct Lines<T>(&'static str, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Lines<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut lines = Vec::new();
            while let Some(line) = seq.next_element()? {
                lines.push(line);
            }
            Ok(lines)
        }
    }
    deserializer.deserialize_seq(Lines(expected, PhantomData))
}

/// One line of a name table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a pattern: { glob = \"/**.avi\", to = [\"disk\"] }")]
pub(super) struct EntryFile {
    pub(super) glob: Spanned<String>,
    pub(super) to: Spanned<Names>,
    pub(super) offline: Option<Offline>,
}

/// A map whose keys are branch names.
pub(super) type PerBranch = BTreeMap<Spanned<String>, Spanned<Values>>;

/// The conditions of a metadata rule.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhenFile {
    pub(super) path: Option<Spanned<Names>>,
    pub(super) name: Option<Spanned<Names>>,
    pub(super) size: Option<Spanned<Values>>,
    pub(super) uid: Option<Spanned<Values>>,
    pub(super) gid: Option<Spanned<Values>>,
    pub(super) user: Option<Spanned<String>>,
    pub(super) group: Option<Spanned<String>>,
    pub(super) mode: Option<Spanned<ModeValues>>,
    pub(super) access: Option<Spanned<String>>,
    #[serde(rename = "type")]
    pub(super) kind: Option<Spanned<Names>>,
    pub(super) extension: Option<Spanned<Names>>,
    pub(super) atime: Option<Spanned<Values>>,
    pub(super) mtime: Option<Spanned<Values>>,
    pub(super) ctime: Option<Spanned<Values>>,
    pub(super) btime: Option<Spanned<Values>>,
    pub(super) heat: Option<Spanned<Values>>,
    pub(super) links: Option<Spanned<Values>>,
    #[serde(default)]
    pub(super) free: PerBranch,
    #[serde(default)]
    pub(super) used: PerBranch,
    #[serde(default)]
    pub(super) inodes: PerBranch,
    pub(super) online: Option<Spanned<Names>>,
    pub(super) offline: Option<Spanned<Names>>,
    #[serde(default)]
    pub(super) xattr: XattrFile,
    pub(super) not: Option<Spanned<InnerFile>>,
    pub(super) any: Option<Spanned<Alternatives>>,
    pub(super) all: Option<Spanned<Alternatives>>,
    pub(super) hysteresis: Option<Spanned<Scalar>>,
}

impl WhenFile {
    /// This table and those inside.
    pub(super) fn tables(&self) -> Vec<&WhenFile> {
        let lists = [&self.any, &self.all].into_iter().flatten().flat_map(|list| &list.get_ref().0);
        let inside = lists.map(Spanned::get_ref).chain(self.not.as_ref().map(Spanned::get_ref));
        std::iter::once(self).chain(inside.flat_map(|inner| inner.0.tables())).collect()
    }
}

/// A map whose keys are names of extended attributes.
pub(super) type XattrFile = BTreeMap<Spanned<String>, Spanned<XattrValues>>;

/// A table of conditions inside another. Unlike a derived one, it is never a list.
#[derive(Debug)]
pub(super) struct InnerFile(pub(super) Box<WhenFile>);

impl<'de> Deserialize<'de> for InnerFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InnerFile, D::Error> {
        struct Table;
        impl<'de> Visitor<'de> for Table {
            type Value = InnerFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("conditions in braces: { path = \"/films/**\", size = \"> 1GiB\" }")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<InnerFile, A::Error> {
                WhenFile::deserialize(MapAccessDeserializer::new(map)).map(|table| InnerFile(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Table)
    }
}

/// The tables of `any` or `all`.
#[derive(Debug)]
pub(super) struct Alternatives(pub(super) Vec<Spanned<InnerFile>>);

impl<'de> Deserialize<'de> for Alternatives {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Alternatives, D::Error> {
        list(deserializer, "a list of conditions: any = [{ size = \"> 1GiB\" }, { mtime = \"> 30d\" }]")
            .map(Alternatives)
    }
}

/// The keys of [`PoolFile`] that are no lists of tables.
const POOL_KEYS: [&str; 12] = [
    "mount",
    "default",
    "on_branch_error",
    "directories",
    "cache_timeout",
    "probe_interval",
    "probe_timeout",
    "threads",
    "transport",
    "enforce",
    "staging",
    "heat",
];

/// Keys that had another name: the old one, and the new one.
const RENAMED_KEYS: [(&str, &str); 2] = [("keep_free", "min_free"), ("band", "hysteresis")];

/// Reads the text of a pool. One of its keys below a table is the mistake that TOML invites.
pub(super) fn parse_pool(text: &str) -> Result<PoolFile, (Problem, Range<usize>)> {
    parse(text).map_err(|(problem, span)| match problem.with_rename_hint(&RENAMED_KEYS) {
        Problem::UnknownKey { key, valid } if is_of_paths(&key) && valid.iter().any(|key| key == "atime") => {
            (Problem::PathInWhen { key }, span)
        }
        Problem::UnknownKey { key, valid } if key == "spill" && valid.iter().any(|key| key == "to") => {
            (Problem::SpillIsGone, span)
        }
        Problem::UnknownKey { key, .. } if POOL_KEYS.contains(&key.as_str()) => (Problem::KeyOfPool { key }, span),
        Problem::Toml { message } if message.starts_with("invalid type: map, expected a sequence") => {
            match table_at(text, &span) {
                Some(table) => (Problem::OneOfList { table }, span),
                None => (Problem::Toml { message }, span),
            }
        }
        Problem::Toml { message } => (syntax_problem(text, span.start, message), span),
        problem => (problem, span),
    })
}

/// What the TOML reader says at this place, with what to write instead where that is known.
fn syntax_problem(text: &str, at: usize, message: String) -> Problem {
    let begin = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let table = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(table) = table.filter(|table| message == "duplicate key" && ["branch", "group", "rule"].contains(table))
    {
        return Problem::OneOfList { table: table.to_owned() };
    }
    let Some(equals) = line.get(..at - begin).and_then(|before| before.rfind('=')) else {
        return Problem::Toml { message };
    };
    let (before, value) = line.split_at(equals);
    let value = value.trim_start_matches('=').split([',', '}', '#']).next().unwrap_or_default().trim();
    if message.ends_with("expected a boolean") || ["yes", "no", "on", "off", "True", "False"].contains(&value) {
        let is_of_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let key = before.trim_end().rsplit(|c: char| !is_of_key(c)).next().unwrap_or_default();
        return Problem::NotBoolean { key: key.to_owned() };
    }
    let is_amount = value.starts_with(|c: char| c.is_ascii_digit())
        && value.ends_with(|c: char| c.is_ascii_alphabetic() || c == '%')
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '%' | '/'));
    Problem::Toml { message: if is_amount { format!("{message}; write \"{value}\"") } else { message } }
}

/// Whether this key of a condition probably means the path of a file.
fn is_of_paths(key: &str) -> bool {
    matches!(
        key,
        "glob" | "match" | "paths" | "names" | "dir" | "directory" | "folder" | "file" | "filename" | "pattern"
    )
}

/// The name of a table whose heading begins there.
fn table_at(text: &str, span: &Range<usize>) -> Option<String> {
    let heading = text.get(span.start..)?.lines().next()?.trim();
    heading.strip_prefix('[')?.strip_suffix(']').map(str::to_owned)
}

/// Reads the text into its shape, or says what is wrong and where.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (Problem, Range<usize>)> {
    toml::from_str(text).map_err(|error| {
        let mut span = error.span().unwrap_or(0..0);
        let problem = Problem::from_toml(error.message());
        // An unfinished table is reported at its whole extent: its first line is enough.
        if let Problem::MissingKey { .. } = problem {
            span.end =
                text.get(span.clone()).and_then(|table| table.find('\n')).map_or(span.end, |end| span.start + end);
        }
        (problem, span)
    })
}
