//! Conditions, values and branches in words, for `explain` and for the list of rules that can never match.

use std::fmt::Display;
use std::time::Duration;

use umbrella_units::{Amount, BranchId, ByteSize, format_duration};

use super::condition::{Test, age, bit, extension, space};
use super::facts::{BranchView, FileFacts, SizePeers, Stage, view};
use super::rules::Rules;
use super::spec::{Access, Comparison, FileKind, PathPart, SpaceField, TimeField};

const KINDS: [(FileKind, &str); 7] = [
    (FileKind::File, "file"),
    (FileKind::Directory, "directory"),
    (FileKind::Symlink, "symlink"),
    (FileKind::Fifo, "fifo"),
    (FileKind::Socket, "socket"),
    (FileKind::CharDevice, "char-device"),
    (FileKind::BlockDevice, "block-device"),
];

impl FileFacts<'_> {
    /// The size for people, if it is a guess, and what it is from.
    pub fn guess_shown(&self) -> Option<String> {
        let Stage::Guessed(alike) = self.stage else { return None };
        Some(format!("about {} (a guess, as {})", self.size, like(alike, self.path)))
    }
}

impl Rules {
    /// A branch by its name, quoted; by its number when no rule names it.
    pub(super) fn branch_name(&self, id: BranchId) -> String {
        let found = self.names.iter().find(|(other, _)| *other == id);
        found.map_or_else(|| id.to_string(), |(_, name)| format!("\"{name}\""))
    }

    /// What a test looks at: `size`.
    pub(super) fn subject(&self, test: &Test) -> String {
        match test {
            Test::Size { .. } => "size".to_owned(),
            Test::Uid { .. } => "uid".to_owned(),
            Test::Gid { .. } => "gid".to_owned(),
            Test::Mode { mask: 0o7777, .. } => "mode".to_owned(),
            Test::Mode { mask, .. } => format!("mode & {mask:04o}"),
            Test::Access { .. } => "access".to_owned(),
            Test::Kind { .. } => "type".to_owned(),
            Test::Extension { .. } => "extension".to_owned(),
            Test::Age { of, .. } => format!("age of {}", time_name(*of)),
            Test::Heat { .. } => "heat".to_owned(),
            Test::Links { .. } => "link count".to_owned(),
            Test::Space { branch, of: SpaceField::Free, .. } => format!("free space of {}", self.branch_name(*branch)),
            Test::Space { branch, of: SpaceField::Used, .. } => format!("used space of {}", self.branch_name(*branch)),
            Test::Space { branch, of: SpaceField::Inodes, .. } => {
                format!("used inodes of {}", self.branch_name(*branch))
            }
            Test::Online { branch, .. } => self.branch_name(*branch),
            Test::Path { of: PathPart::Path, .. } => "path".to_owned(),
            Test::Path { of: PathPart::Name, .. } => "name".to_owned(),
            Test::Xattr { name, .. } => format!("xattr {name}"),
        }
    }

    /// The condition as a whole: `size >= 1 MiB`.
    pub(super) fn condition(&self, test: &Test) -> String {
        let is_state = matches!(test, Test::Online { .. } | Test::Xattr { any_of: None, .. });
        let joint = if is_state { "is " } else { "" };
        format!("{} {joint}{}", self.subject(test), wanted(test))
    }
}

/// What a test asks for: `>= 1 MiB`.
pub(super) fn wanted(test: &Test) -> String {
    match test {
        Test::Size { is, value, .. } => compared(*is, exact(ByteSize(*value))),
        Test::Uid { is, value } | Test::Gid { is, value } | Test::Links { is, value } => compared(*is, value),
        Test::Mode { is, value, .. } => compared(*is, format_args!("{value:04o}")),
        Test::Access { equal, value } => format!("{} {}", equal_sign(*equal), access_name(*value)),
        Test::Kind { any_of, negated } => {
            let named = KINDS.iter().filter(|(kind, _)| any_of & bit(*kind) != 0).map(|(_, name)| (*name).to_owned());
            format!("{} {}", equal_sign(!negated), list(&named.collect::<Vec<_>>()))
        }
        Test::Extension { any_of, negated } => {
            let named = any_of.iter().map(|extension| String::from_utf8_lossy(extension).into_owned());
            format!("{} {}", equal_sign(!negated), list(&named.collect::<Vec<_>>()))
        }
        Test::Age { is, value, .. } => compared(*is, format_duration(*value)),
        Test::Heat { is, value, .. } => compared(*is, value),
        Test::Space { is, of: SpaceField::Inodes, value: Amount::Bytes(count), .. } => compared(*is, count.0),
        Test::Space { is, value: Amount::Bytes(bytes), .. } => compared(*is, exact(*bytes)),
        Test::Space { is, value, .. } => compared(*is, value),
        Test::Online { value, .. } => online_name(*value).to_owned(),
        Test::Path { written, negated, .. } => format!("{} {}", equal_sign(!negated), list(written)),
        Test::Xattr { any_of: None, negated, .. } => if *negated { "not there" } else { "there" }.to_owned(),
        Test::Xattr { any_of: Some(any_of), negated, .. } => {
            let values = any_of.iter().map(|value| String::from_utf8_lossy(value).into_owned());
            format!("{} {}", equal_sign(!negated), list(&values.collect::<Vec<_>>()))
        }
    }
}

/// How far beyond the threshold a file stays once it is on the rule's branches; `None` when no further.
pub(super) fn hysteresis(test: &Test) -> Option<String> {
    if !test.has_band() {
        return None;
    }
    match test {
        Test::Size { hysteresis, .. } => Some(exact(ByteSize(*hysteresis))),
        Test::Age { hysteresis, .. } => Some(format_duration(*hysteresis)),
        Test::Heat { hysteresis, .. } => Some(hysteresis.to_string()),
        Test::Space { hysteresis, .. } => Some(hysteresis.to_string()),
        _ => None,
    }
}

/// What the file or branch has: `12 KiB`.
pub(super) fn actual(test: &Test, facts: &FileFacts<'_>, branches: &[BranchView]) -> String {
    match test {
        Test::Size { .. } => facts.guess_shown().unwrap_or_else(|| exact(facts.size)),
        Test::Uid { .. } => facts.uid.to_string(),
        Test::Gid { .. } => facts.gid.to_string(),
        Test::Mode { mask, .. } => format!("{:04o}", facts.mode & mask),
        Test::Access { .. } => format!("{} (mode {:04o})", accesses(facts.mode), facts.mode),
        Test::Kind { .. } => {
            KINDS.iter().find(|(kind, _)| *kind == facts.kind).map_or("unknown", |(_, name)| name).to_owned()
        }
        Test::Extension { .. } => extension(facts.path)
            .map_or_else(|| "none".to_owned(), |own| String::from_utf8_lossy(own).to_ascii_lowercase()),
        Test::Age { of, .. } => {
            age(facts, *of).map_or_else(|| "unknown".to_owned(), |age| format_duration(rounded(age)))
        }
        Test::Heat { .. } => facts.heat.rounded().to_string(),
        Test::Links { .. } => facts.links.to_string(),
        Test::Space { branch, of, value, .. } => match view(branches, *branch).and_then(|view| space(view, *of)) {
            None => "unknown".to_owned(),
            Some((part, whole)) => space_shown(*of, *value, part, whole),
        },
        Test::Online { branch, .. } => online_name(super::facts::is_online(branches, *branch)).to_owned(),
        Test::Path { of: PathPart::Path, .. } => String::from_utf8_lossy(facts.path).into_owned(),
        Test::Path { of: PathPart::Name, .. } => {
            let name = facts.path.rsplit(|byte| *byte == b'/').next();
            String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
        }
        Test::Xattr { name, .. } => match facts.xattrs {
            None => "unknown".to_owned(),
            Some(xattrs) => xattrs
                .iter()
                .find(|xattr| *xattr.name == **name)
                .map_or_else(|| "not there".to_owned(), |xattr| String::from_utf8_lossy(&xattr.value).into_owned()),
        },
    }
}

/// An age in its two largest units.
fn rounded(age: Duration) -> Duration {
    let unit = match age.as_secs() {
        0 => return age,
        1..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    Duration::from_secs(age.as_secs() / unit * unit)
}

/// The files that a guess is from.
fn like(alike: SizePeers, path: &[u8]) -> String {
    let of = match (alike, extension(path)) {
        (SizePeers::ExtensionAndDirectory | SizePeers::Extension, Some(own)) => {
            format!(".{} ", String::from_utf8_lossy(own))
        }
        _ => String::new(),
    };
    let place = if alike == SizePeers::Extension { "" } else { " of its directory" };
    format!("the last {of}files{place}")
}

/// A part of a branch's space, or of its inodes, in the unit of the value it is compared with.
fn space_shown(of: SpaceField, value: Amount, part: ByteSize, whole: ByteSize) -> String {
    let share = part.0 as f64 * 100.0 / whole.0.max(1) as f64;
    match (of, value) {
        (SpaceField::Inodes, _) => format!("{} ({share:.1}% of {})", part.0, whole.0),
        (_, Amount::Bytes(_)) => exact(part),
        (_, Amount::MilliPercent(_)) => format!("{part} ({share:.1}% of {whole})"),
    }
}

/// A size as people write it, with the bytes when that rounds.
pub(super) fn exact(size: ByteSize) -> String {
    let text = size.to_string();
    if text.parse() == Ok(size) { text } else { format!("{text} ({} bytes)", size.0) }
}

fn compared(is: Comparison, value: impl Display) -> String {
    let sign = match is {
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Equal => "=",
        Comparison::NotEqual => "!=",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Greater => ">",
    };
    format!("{sign} {value}")
}

fn equal_sign(equal: bool) -> &'static str {
    if equal { "=" } else { "!=" }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none of an empty list".to_owned() } else { names.join(" or ") }
}

fn time_name(of: TimeField) -> &'static str {
    match of {
        TimeField::Atime => "atime",
        TimeField::Mtime => "mtime",
        TimeField::Ctime => "ctime",
        TimeField::Btime => "btime",
    }
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "read-only",
        Access::Writable => "writable",
        Access::Executable => "executable",
    }
}

fn accesses(mode: u32) -> String {
    let write = if mode & 0o222 == 0 { "read-only" } else { "writable" };
    if mode & 0o111 == 0 { write.to_owned() } else { format!("{write} and executable") }
}

fn online_name(online: bool) -> &'static str {
    if online { "online" } else { "offline" }
}
