//! What can be wrong with a configuration, and how it is said.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;
use umbrella_policy::PolicyError;
use umbrella_policy::placement::{GlobError, RuleError};
use umbrella_units::{ByteSize, ParseDurationError, ParseSizeError};

use super::disk::{BadDiskName, BadListen, BadSleep, Listen};
use super::source::Source;
use crate::advice::with_advice;
use crate::text::{self, quoted, quoted_list, visible_path};

/// One mistake. The texts are lower case and say what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Problem {
    #[error("cannot be read: {reason}")]
    Unreadable { reason: String },
    /// What it lies on does not answer.
    #[error("{silence}")]
    Silent { silence: String },
    #[error("is a directory; name the configuration file ({page} describes it)")]
    IsDirectory {
        /// What describes it.
        page: &'static str,
    },
    #[error("does not exist; name a configuration file ({page} describes it)")]
    Missing {
        /// What describes it.
        page: &'static str,
    },
    #[error("is larger than {limit} bytes, the limit for a configuration; name the right file")]
    TooLarge { limit: u64 },
    #[error("not UTF-8: the byte 0x{byte:02x} is invalid; save the file as UTF-8")]
    NotUtf8 { byte: u8 },
    /// What the TOML reader says, in its words.
    #[error("{message}")]
    Toml { message: String },
    #[error("unknown key {}{}; valid keys: {}", quoted(key), did_you_mean(key, valid), valid.join(", "))]
    UnknownKey { key: String, valid: Vec<String> },
    #[error("the key {old:?} is now called {new:?}; its values are the same")]
    RenamedKey { old: &'static str, new: &'static str },
    #[error(
        "{} is not a condition of \"when\"; write path = \"/films/**\" for a path, or name = \"*.avi\" for its last part",
        quoted(key)
    )]
    PathInWhen { key: String },
    #[error(
        "{key:?} is a key of the pool: write it above the first line that begins with \"[\", because later keys \
        belong to that table"
    )]
    KeyOfPool { key: String },
    #[error("missing key {key:?}")]
    MissingKey { key: String },
    #[error(
        "{} is not valid here{}; valid values: {}",
        quoted(value),
        did_you_mean(value, valid),
        quoted_strings(valid)
    )]
    UnknownValue { value: String, valid: Vec<String> },
    #[error("the path is a pattern, and each matching directory becomes a branch named after it; leave the name out")]
    NameOfSeveral,
    #[error("only the last part of a path may be a pattern (\"/mnt/disk*\")")]
    PatternInFolder,
    #[error("no directory matches this path; mount the disks, or create their mount points")]
    PathMatchesNothing,
    #[error("no branch: write at least one [[branch]] with a name and a path")]
    NoBranch,
    #[error("volatile = false needs a path on memory that keeps its contents")]
    StagingWithoutPath,
    #[error("more than {limit} branches")]
    TooManyBranches { limit: usize },
    #[error(
        "no branch or group is called {}{}; there are: {}",
        quoted(name),
        did_you_mean(name, valid),
        quoted_strings(valid)
    )]
    UnknownBranch { name: String, valid: Vec<String> },
    #[error("a second branch {}; the first is at line {first_line}, and names must differ", quoted(name))]
    DuplicateBranch { name: String, first_line: usize },
    #[error("a second rule {}; the first is at line {first_line}, and names must differ", quoted(name))]
    DuplicateRule { name: String, first_line: usize },
    #[error("write_back: {reason}; \"kernel\" leaves the order to the kernel")]
    WriteBackPolicy { reason: String },
    #[error("write_back_{key}: {reason}")]
    WriteBackLimit { key: &'static str, reason: String },
    #[error("a limit needs a write_back policy (for example write_back = \"cscan\")")]
    LimitOfTheKernel,
    #[error("{} is in the list twice", quoted(name))]
    Repeated { name: String },
    #[error("{what} needs a name: 1 to {limit} characters, no slash, no control characters, no space at either end")]
    BadName { what: &'static str, limit: usize },
    #[error("no rule may be named \"default\": reports use this name for the default list")]
    ReservedName,
    #[error("no branch or group may be named {}: the word has a special meaning in lists", quoted(name))]
    ReservedWord { name: String },
    #[error(
        "a second group or branch {}; the first is at line {first_line}, and names of branches and groups must differ",
        quoted(name)
    )]
    DuplicateGroup { name: String, first_line: usize },
    #[error("\"default\" in the default list is the list itself; leave it out (\"any\" means all remaining branches)")]
    DefaultInDefault,
    #[error(
        "\"spill\" no longer exists; delete the key, and for spill = true end the list with \"default\" or \"any\", for \
        example to = [\"ssd\", \"any\"]"
    )]
    SpillIsGone,
    #[error("{}", with_advice(error))]
    Group { error: RuleError },
    #[error("{}", with_advice(error))]
    Evict { error: RuleError },
    #[error("evict moves files away, which read_only = true forbids: leave one of the two out")]
    EvictReadOnly,
    #[error(
        "spread takes one word, or two with \"same-path\", \"only-same-path\" or \"nearest-path\" first: for \
        example [\"same-path\", \"most-free\"]"
    )]
    SpreadWords,
    #[error("{key} needs tls = \"DIRECTORY\" (docs/disk.md lists the files in it)")]
    WithoutTls { key: &'static str },
    #[error("{key} must be an absolute path without \"..\" (it begins with \"/\"), not {}", quoted(path))]
    BadPath { key: &'static str, path: String },
    #[error(
        "the root directory cannot be the mount point; mount the pool at a directory of its own, for example \"/srv/pool\""
    )]
    MountOnRoot,
    #[error("the list is empty; name at least one {what}")]
    EmptyList { what: &'static str },
    #[error("a rule needs either \"when\" and \"to\", or \"match\" (the name table)")]
    RuleWithoutKind,
    #[error("\"when\" and \"match\" cannot both be in one rule; write two rules")]
    RuleWithBothKinds,
    #[error(
        "missing key \"to\": name the branches for the rule's files, for example to = [{}]",
        quoted_strings(branches)
    )]
    RuleWithoutTo { branches: Vec<String> },
    #[error("{key:?} of a name table belongs inside each pattern: {{ glob = \"/**\", {key} = ... }}")]
    KeyBesideMatch { key: &'static str },
    #[error("a second name table; the first is at line {first_line}: put these patterns there")]
    SecondNameTable { first_line: usize },
    #[error("the pattern {} is in the name table twice; the first is at line {first_line}", quoted(glob))]
    DuplicateGlob { glob: String, first_line: usize },
    #[error("{error}")]
    DiskName { error: BadDiskName },
    #[error("spin_down: {error}")]
    SpinDown { error: BadSleep },
    #[error("scheme: {error}")]
    LogScheme { error: PolicyError },
    #[error("listen: {error}")]
    Listen { error: BadListen },
    #[error("listen: {address} is in the list twice")]
    ListensTwice { address: Listen },
    #[error("[cache] needs [flash]; name the flash, or leave [cache] out")]
    CacheWithoutFlash,
    #[error("[power] needs [flash], because only a hybrid disk sleeps; leave it out")]
    PowerWithoutFlash,
    #[error("[power] needs {key:?}, in watts (or \"break_even\" alone)")]
    PowerNeedsKey { key: &'static str },
    #[error("{key:?} does nothing beside \"break_even\"; leave one of them out")]
    BesideBreakEven { key: &'static str },
    #[error("[flash] and [disk] are both {}; the flash must be a device of its own", visible_path(path))]
    SameDevice { path: PathBuf },
    #[error("{key:?} is only for kind {kinds}")]
    KeyOfOtherKind { key: &'static str, kinds: &'static str },
    #[error("a device of kind {kind:?} needs {key:?}")]
    KindNeedsKey { kind: String, key: &'static str },
    #[error("size: {size} is more than {most}, the size of {profile:?}")]
    LargerThanProfile { size: ByteSize, profile: &'static str, most: ByteSize },
    #[error("an emulated disk without a path is in memory and needs a size")]
    SizeOfMemory,
    #[error("{} has no value (write KIND:KEY=VALUE,KEY=VALUE)", quoted(text))]
    KeyWithoutValue { text: String },
    #[error("{key:?} is given twice (leave one)")]
    KeyTwice { key: String },
    #[error("{key}: {error}")]
    Size { key: &'static str, error: ParseSizeError },
    #[error("{key}: {error}")]
    Duration { key: &'static str, error: ParseDurationError },
    #[error("{key} must be {valid}, not {}", quoted(given))]
    OutOfRange { key: &'static str, given: String, valid: &'static str },
    #[error("{key}: {} is not {what}; write for example {examples}", quoted(given))]
    BadValue { key: &'static str, given: String, what: &'static str, examples: &'static str },
    #[error("{key} takes only \"=\" (which may be left out) and \"!=\"")]
    OnlyEquality { key: &'static str },
    #[error("{key}: either all values of the list begin with \"!=\", or none")]
    MixedNegation { key: &'static str },
    #[error(
        "this machine has no {what} {}; for one that exists elsewhere, write its number with {number_key}",
        quoted(name)
    )]
    UnknownAccount { what: &'static str, name: String, number_key: &'static str },
    #[error("cannot look up the {what} {}: {reason}", quoted(name))]
    AccountLookup { what: &'static str, name: String, reason: String },
    #[error("mode: {value:04o} has bits outside bits = {mask:04o}, so it never matches")]
    OutsideMask { value: u32, mask: u32 },
    #[error(
        "hysteresis has no effect here: it needs a condition on size, age (atime, mtime, ctime, btime) or space (free, used) in the same rule"
    )]
    BandWithoutThreshold,
    #[error(
        "hysteresis: {} is neither a size (\"64KiB\"), a duration (\"1d\"), a share (\"2%\") nor a number of opens (2) that fits the conditions of this rule",
        quoted(given)
    )]
    BadBand { given: String },
    #[error(
        "hysteresis: {} may mean minutes or MiB, and this rule has conditions on both; write \"min\" or \"MiB\"",
        quoted(given)
    )]
    AmbiguousBand { given: String },
    #[error("hysteresis applies to all conditions of the rule: write it at the top of \"when\", beside {key:?}")]
    HysteresisInside { key: &'static str },
    #[error("hysteresis needs \"to\": it holds files on the branches of the rule")]
    HysteresisWithoutTo,
    #[error(
        "{key:?} has no effect in a name table; write a rule with when = {{ path = ... }} for it, above the name table"
    )]
    TreatmentBesideMatch { key: &'static str },
    #[error("\"offline\" needs \"to\": it applies to the branches of that list; leave it out")]
    OfflineWithoutTo,
    #[error("\"together_spill\" needs \"together\"; name the directories to keep together, or leave it out")]
    SpillWithoutTogether,
    #[error(
        "no file of the pool is below /.umbrella, where each branch keeps Umbrella's own files; leave {} out",
        quoted(glob)
    )]
    HiddenPath { glob: String },
    #[error(
        "{} is an attribute of Umbrella's own, hidden in the pool; choose one of your own, for example \"user.keep\"",
        quoted(name)
    )]
    OwnXattr { name: String },
    #[error("{key:?} without a condition; write one between the braces, or leave {key:?} out")]
    EmptyCondition { key: &'static str },
    #[error("conditions are nested more than {limit} deep; write several rules")]
    NestedTooDeep { limit: usize },
    #[error(
        "{} is not the name of an extended attribute, which begins with \"user.\", \"trusted.\" or \"security.\"; \
        write for example xattr = {{ \"user.keep\" = \"ssd\" }}",
        quoted(name)
    )]
    BadXattrName { name: String },
    #[error("pattern {}: {reason}", quoted(glob))]
    BadGlob { glob: String, reason: GlobError },
    #[error("{}", with_advice(error))]
    Rules { error: RuleError },
    #[error(
        "branch {}: {} lies inside the branch {} ({}); every file would be there twice",
        quoted(inner),
        visible_path(inner_path),
        quoted(outer),
        visible_path(outer_path)
    )]
    BranchInsideBranch { inner: String, inner_path: PathBuf, outer: String, outer_path: PathBuf },
    #[error(
        "branch {}: {} is the same directory as the branch {}; every file would be there twice",
        quoted(name),
        visible_path(path),
        quoted(other)
    )]
    SameDirectory { name: String, path: PathBuf, other: String },
    #[error(
        "branch {}: {} is or lies inside the mount point {}; the pool would hide its own branch",
        quoted(name),
        visible_path(path),
        visible_path(mount)
    )]
    BranchInsideMount { name: String, path: PathBuf, mount: PathBuf },
    #[error(
        "the staging area {} lies inside {other}, or around it; give it a directory of its own",
        visible_path(path)
    )]
    StagingOverlaps { path: PathBuf, other: String },
    #[error(
        "the mount point {} lies inside the branch {} ({}); the pool would contain itself",
        visible_path(mount),
        quoted(name),
        visible_path(path)
    )]
    MountInsideBranch { name: String, path: PathBuf, mount: PathBuf },
    #[error("{kind} is mounted at {path}: unmount it first (`umount {path}`)", path = visible_path(mount))]
    MountTaken { mount: PathBuf, kind: String },
    #[error("{key} is true or false, without quotes")]
    NotBoolean { key: String },
    #[error("a list of tables has two brackets: write [[{table}]] for each")]
    OneOfList { table: String },
}

impl Problem {
    /// A file that cannot be opened or read.
    pub(crate) fn unreadable(error: &std::io::Error, page: &'static str) -> Problem {
        match error.kind() {
            std::io::ErrorKind::NotFound => Problem::Missing { page },
            std::io::ErrorKind::IsADirectory => Problem::IsDirectory { page },
            _ => Problem::Unreadable { reason: error.to_string() },
        }
    }

    /// An unknown key that had this name before says how it is called now.
    pub(super) fn with_rename_hint(self, renamed: &[(&'static str, &'static str)]) -> Problem {
        let Problem::UnknownKey { key, valid } = &self else { return self };
        let found = renamed.iter().find(|(old, new)| key == old && valid.iter().any(|valid| valid == new));
        found.map_or(self, |(old, new)| Problem::RenamedKey { old, new })
    }

    /// The TOML reader's complaint, with hints where it names the words it knows.
    ///
    /// serde reports unknown keys and values as text only, with every word in backquotes: the unknown one first.
    pub(super) fn from_toml(message: &str) -> Problem {
        let mut words = message.split('`').skip(1).step_by(2).map(str::to_owned);
        let mut split = || (words.next().unwrap_or_default(), words.by_ref().collect());
        if message.starts_with("unknown field `") {
            let (key, valid) = split();
            return Problem::UnknownKey { key, valid };
        }
        if message.starts_with("unknown variant `") {
            let (value, valid) = split();
            return Problem::UnknownValue { value, valid };
        }
        if message.starts_with("missing field `") {
            return Problem::MissingKey { key: split().0 };
        }
        let message = message.replace('`', "\"").replace("expected a map", "expected a table ({ ... = ... })");
        Problem::Toml { message: text::visible(&message) }
    }
}

fn did_you_mean(word: &str, valid: &[String]) -> String {
    umbrella_units::did_you_mean(word, valid.iter().map(String::as_str))
}

fn quoted_strings(words: &[String]) -> String {
    quoted_list(words.iter().map(String::as_str))
}

/// A mistake and where it is.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) problem: Problem,
    pub(crate) span: Range<usize>,
}

/// Everything that is wrong with one configuration, in the order of the text. Never empty.
#[derive(Debug)]
pub(crate) struct ConfigErrors {
    source: Source,
    errors: Vec<Located>,
    about_file: bool,
}

/// One mistake as `check --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ErrorReport {
    /// The configuration.
    pub(crate) file: String,
    /// From 1; absent when the whole file is meant.
    pub(crate) line: Option<usize>,
    /// From 1, in characters.
    pub(crate) column: Option<usize>,
    /// The cause.
    pub(crate) message: String,
}

impl ConfigErrors {
    /// One mistake at one place.
    pub(crate) fn one(source: Source, problem: Problem, span: Range<usize>) -> ConfigErrors {
        ConfigErrors { source, errors: vec![Located { problem, span }], about_file: false }
    }

    /// A mistake of the file as such.
    pub(crate) fn whole_file(path: &Path, problem: Problem) -> ConfigErrors {
        ConfigErrors { about_file: true, ..ConfigErrors::one(Source::unread(path), problem, 0..0) }
    }

    /// All mistakes of a file; `None` when there is none.
    pub(super) fn all(source: &Source, mut errors: Vec<Located>) -> Option<ConfigErrors> {
        errors.sort_by_key(|error| error.span.start);
        (!errors.is_empty()).then(|| ConfigErrors { source: source.clone(), errors, about_file: false })
    }

    /// The mistakes as data.
    pub(crate) fn reports(&self) -> Vec<ErrorReport> {
        let report = |error: &Located| {
            let report = ErrorReport::at(&self.source, &error.span, error.problem.to_string());
            if self.about_file { ErrorReport { line: None, column: None, ..report } } else { report }
        };
        self.errors.iter().map(report).collect()
    }

    /// Nothing is wrong but that mergerfs is still mounted at the mount point.
    pub(crate) fn is_mergerfs_mounted(&self) -> bool {
        let is_it =
            |error: &Located| matches!(&error.problem, Problem::MountTaken { kind, .. } if kind == "fuse.mergerfs");
        self.errors.iter().all(is_it)
    }

    #[cfg(test)]
    pub(super) fn problems(&self) -> Vec<&Problem> {
        self.errors.iter().map(|error| &error.problem).collect()
    }
}

/// `pool.toml:3:1: what is wrong`, each followed by the line it is about.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        for (index, (error, report)) in self.errors.iter().zip(self.reports()).take(SHOWN).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{report}")?;
            let excerpt = self.source.excerpt(&error.span);
            if !excerpt.is_empty() {
                write!(f, "\n{}", excerpt.trim_end())?;
            }
        }
        if self.errors.len() > SHOWN {
            write!(f, "\nand {} more", self.errors.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl ErrorReport {
    /// A message about a place in a file.
    pub(super) fn at(source: &Source, span: &Range<usize>, message: String) -> ErrorReport {
        let place = source.place(span.start);
        let file = visible_path(source.name());
        ErrorReport { file, line: Some(place.line), column: Some(place.column), message }
    }

    /// `pool.toml:3:1: warning: ...`
    pub(crate) fn as_warning(&self) -> String {
        ErrorReport { message: format!("warning: {}", self.message), ..self.clone() }.to_string()
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        // Values of the file may be in it.
        write!(f, ": {}", text::visible(&self.message))
    }
}

impl Source {
    /// Refuses text that is not UTF-8, and says where.
    pub(crate) fn new(name: &Path, bytes: Vec<u8>) -> Result<Source, ConfigErrors> {
        let name = name.to_owned();
        String::from_utf8(bytes).map(|text| Source::of(name.clone(), text)).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let byte = error.as_bytes().get(at).copied().unwrap_or_default();
            let text = String::from_utf8_lossy(error.as_bytes().get(..at).unwrap_or_default()).into_owned();
            ConfigErrors::one(Source::of(name, text), Problem::NotUtf8 { byte }, at..at)
        })
    }
}
