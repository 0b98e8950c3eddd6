//! The facts of a file that does not exist: `size=2GiB,mtime=30d,path=/x`.

use std::collections::BTreeSet;

use nix::unistd::{Group, User};
use thiserror::Error;
use umbrella_fs::control::protocol::HypotheticalFile;
use umbrella_units::{ParseDurationError, ParseSizeError, did_you_mean, parse_duration};

use crate::config::FILE_TYPES;

const KEYS: [&str; 15] = [
    "path",
    "size",
    "type",
    "uid",
    "gid",
    "user",
    "group",
    "mode",
    "links",
    "heat",
    "atime",
    "mtime",
    "ctime",
    "btime",
    "xattr.NAME",
];

/// What cannot be read.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum BadFact {
    #[error("\"{0}\" has no value (write KEY=VALUE,KEY=VALUE)")]
    NoValue(String),
    #[error("unknown key \"{key}\"{}; valid keys: {}", did_you_mean(key, KEYS), KEYS.join(", "))]
    UnknownKey { key: String },
    #[error("{key}: this fact is given twice (leave one)")]
    Twice { key: String },
    #[error("size: {0}")]
    Size(ParseSizeError),
    #[error("{key}: {error}")]
    Age { key: String, error: ParseDurationError },
    #[error("{key}: \"{value}\" is not {what}")]
    Value { key: String, value: String, what: &'static str },
}

/// Reads the facts.
pub(super) fn parse(text: &str) -> Result<HypotheticalFile, BadFact> {
    let mut file = HypotheticalFile::default();
    let mut given = BTreeSet::new();
    for fact in text.split(',').filter(|fact| !fact.trim().is_empty()) {
        let (key, value) = fact.split_once('=').ok_or_else(|| BadFact::NoValue(fact.trim().to_owned()))?;
        let key = key.trim();
        set(&mut file, key, value.trim())?;
        let sets = match key {
            "user" => "uid",
            "group" => "gid",
            key => key,
        };
        if !given.insert(sets) {
            return Err(BadFact::Twice { key: key.to_owned() });
        }
    }
    Ok(file)
}

/// Whether a path inside the pool is one that a file can have.
fn is_file(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|names| names.split('/').all(|name| !matches!(name, "" | "." | "..")))
}

fn set(file: &mut HypotheticalFile, key: &str, value: &str) -> Result<(), BadFact> {
    let bad = |what| BadFact::Value { key: key.to_owned(), value: value.to_owned(), what };
    let number = || value.parse::<u32>().map_err(|_| bad("a whole number"));
    let age = || parse_duration(value).map(Some).map_err(|error| BadFact::Age { key: key.to_owned(), error });
    match key {
        "path" if is_file(value) => file.path = value.as_bytes().to_vec(),
        "path" if value.starts_with('/') => {
            return Err(bad("the path of a file (without \".\", \"..\" and doubled or trailing slashes)"));
        }
        "path" => return Err(bad("a path inside the pool (it begins with \"/\")")),
        "size" => file.size = Some(value.parse().map_err(BadFact::Size)?),
        "type" => {
            let found = FILE_TYPES.iter().find(|(name, _)| *name == value).map(|(_, kind)| *kind);
            file.kind = found.ok_or_else(|| bad("file, symlink, fifo, socket, char-device or block-device"))?;
        }
        "uid" => file.uid = number()?,
        "gid" => file.gid = number()?,
        "user" => {
            let found = User::from_name(value).ok().flatten();
            file.uid = found.ok_or_else(|| bad("a user of this machine"))?.uid.as_raw();
        }
        "group" => {
            let found = Group::from_name(value).ok().flatten();
            file.gid = found.ok_or_else(|| bad("a group of this machine"))?.gid.as_raw();
        }
        "mode" => {
            let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
            file.mode = Some(mode.ok_or_else(|| bad("an octal mode, 0 to 7777"))?);
        }
        "links" => file.links = Some(number()?),
        "heat" => file.heat = Some(value.parse().map_err(|_| bad("a number of opens"))?),
        "atime" => file.atime = age()?,
        "mtime" => file.mtime = age()?,
        "ctime" => file.ctime = age()?,
        "btime" => file.btime = age()?,
        _ => match key.strip_prefix("xattr.") {
            Some(name) if !name.is_empty() => {
                file.xattrs.insert(name.to_owned(), value.to_owned());
            }
            _ => return Err(BadFact::UnknownKey { key: key.to_owned() }),
        },
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbrella_units::ByteSize;

    use super::*;

    #[test]
    fn facts_are_read_and_the_rest_is_as_of_a_new_file_of_root() {
        let file = parse("size=2GiB, mtime=30d,path=/x,mode=0444,xattr.user.keep=ssd,user=root").unwrap();
        let expected = HypotheticalFile {
            path: b"/x".to_vec(),
            size: Some(ByteSize(2 << 30)),
            mtime: Some(Duration::from_secs(30 * 86_400)),
            mode: Some(0o444),
            xattrs: [("user.keep".to_owned(), "ssd".to_owned())].into(),
            ..HypotheticalFile::default()
        };
        assert_eq!(file, expected);
        assert_eq!(parse(""), Ok(HypotheticalFile::default()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, said) in [
            ("size", "\"size\" has no value (write KEY=VALUE,KEY=VALUE)"),
            ("sise=1", "unknown key \"sise\" (did you mean \"size\"?); valid keys: path, size"),
            ("path=x", "path: \"x\" is not a path inside the pool"),
            ("path=/", "path: \"/\" is not the path of a file"),
            ("path=/a/../b", "path: \"/a/../b\" is not the path of a file"),
            ("path=/a/", "path: \"/a/\" is not the path of a file"),
            ("size=1,size=2", "size: this fact is given twice"),
            ("uid=0,user=root", "user: this fact is given twice"),
            ("mode=9", "mode: \"9\" is not an octal mode"),
            ("mtime=soon", "mtime: "),
            ("type=directory", "type: \"directory\" is not file, symlink"),
            ("xattr.=x", "unknown key \"xattr.\""),
        ] {
            let reported = parse(text).unwrap_err().to_string();
            assert!(reported.starts_with(said), "{text}: {reported}");
        }
    }
}
