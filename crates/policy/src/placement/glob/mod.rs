//! Patterns of the name table and of conditions, matched against the whole path inside the pool, byte by byte,
//! case-sensitively.
//!
//! - `*`: any bytes but `/`; `?`: one byte but `/`; `[abc]`, `[a-z]`, `[!a-z]`: one byte of (not of) a set, never `/`.
//! - `**`: any bytes, `/` too, anywhere in the pattern: `/home/dave/**` is everything below, `/home/dave/**.avi` every
//!   `.avi` below. Between slashes it also stands for no directory at all: `/a/**/b` matches `/a/b`.
//! - `{a,b}`: either; may be nested. `\` takes the next character as it is.
//! - A pattern that does not begin with `/` matches at any depth: `*.avi` means `/**/*.avi`.
//!
//! Braces are expanded when the pattern is read, so what is matched is a flat run of pieces. Most of those are a
//! literal, or a prefix and a suffix with one gap between, and are matched by comparing bytes; the others become an
//! anchored `regex::bytes`. Length, alternatives and compiled size are bounded, and matching is linear in the path.

#[cfg(test)]
pub(super) mod naive;
mod read;
#[cfg(test)]
mod tests;

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use read::PatternParser;

const MAX_PATTERN: usize = 4096;
const MAX_ALTERNATIVES: usize = 256;
const MAX_EXPANDED: usize = 64 * 1024;
const MAX_NESTING: usize = 8;
const MAX_REGEX: usize = 1 << 20;
const MAX_DFA: usize = 1 << 18;

/// An error in a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GlobError {
    /// Nothing in it.
    #[error("is empty")]
    Empty,
    /// Longer than any path.
    #[error("is longer than {MAX_PATTERN} bytes")]
    TooLong,
    /// A NUL, which no path contains.
    #[error("contains a NUL byte, which no path does")]
    Nul,
    /// Ends in a slash, as no file's path does.
    #[error("ends with \"/\", so no file matches (write \"/**\" for everything below)")]
    TrailingSlash,
    /// Two slashes in a row, which no path contains.
    #[error("contains \"//\", which no path does")]
    EmptyComponent,
    /// A backslash at the end.
    #[error("ends with \"\\\" (write \"\\\\\" for a backslash)")]
    DanglingEscape,
    /// `[` without `]`.
    #[error("\"[\" has no closing \"]\" (write \"\\[\" for the character)")]
    UnclosedClass,
    /// A range whose ends are the wrong way round.
    #[error("range \"{from}-{to}\" is reversed (write \"{to}-{from}\")")]
    BadRange {
        /// First character.
        from: char,
        /// Last character.
        to: char,
    },
    /// A class with a character of more than one byte.
    #[error("\"{character}\" cannot be in [...], which matches one byte (write {{...}})")]
    WideCharacterInClass {
        /// The character.
        character: char,
    },
    /// `{` without `}`, or the reverse.
    #[error("\"{{\" and \"}}\" do not pair up (write \"\\{{\" for the character)")]
    UnbalancedBraces,
    /// Braces in braces in braces...
    #[error("braces are nested deeper than {MAX_NESTING}")]
    NestedTooDeep,
    /// Braces that multiply.
    #[error("braces expand to more than {MAX_ALTERNATIVES} alternatives or {MAX_EXPANDED} bytes")]
    TooManyAlternatives,
    /// A pattern for names that could match a slash.
    #[error("contains \"/\" or \"**\", but a name is what follows the last slash (write path = ... for a whole path)")]
    SlashInName,
    /// A compiled pattern that is too large.
    #[error("is too complex")]
    TooComplex,
}

/// A piece of an expanded pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternToken {
    /// This byte.
    Byte(u8),
    /// One byte but `/`.
    One,
    /// One byte of a set, which never holds `/`.
    Class(Box<ByteSet>),
    /// Any bytes but `/`.
    Star,
    /// Any bytes.
    Cross,
    /// Nothing, or any bytes that end with `/`. Always follows a `/`.
    Dirs,
}

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSet([bool; 256]);

impl ByteSet {
    const EMPTY: ByteSet = ByteSet([false; 256]);

    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }
}

/// One pattern without braces.
#[derive(Debug, Clone)]
pub(super) struct Flat {
    /// Canonical: two alternatives with equal pieces match the same paths.
    pub(super) pieces: Vec<PatternToken>,
    /// Every match begins with these bytes.
    pub(super) prefix: Box<[u8]>,
    /// Every match ends with these bytes.
    pub(super) suffix: Box<[u8]>,
    /// What is between.
    middle: Middle,
}

#[derive(Debug, Clone)]
enum Middle {
    /// Nothing: the prefix is the whole.
    Exact,
    /// One `*`.
    Star,
    /// One `**`.
    Cross,
    /// Directories, or none.
    Dirs,
    /// Anything else: the whole pattern, anchored.
    Regex(Regex),
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Glob {
    /// What its braces stand for; one without braces.
    pub(super) alternatives: Vec<Flat>,
    /// Literal characters, of the alternative that has fewest.
    pub(super) literals: usize,
}

impl Glob {
    /// Reads and compiles a pattern.
    pub(super) fn new(pattern: &str) -> Result<Glob, GlobError> {
        Glob::of(read(pattern)?)
    }

    /// As [`Glob::new`], for a pattern of names: the glob matches the paths whose last part the pattern matches.
    pub(super) fn of_name(pattern: &str) -> Result<Glob, GlobError> {
        let expanded = read(pattern)?;
        if expanded.iter().flatten().any(|piece| matches!(piece, PatternToken::Byte(b'/') | PatternToken::Cross)) {
            return Err(GlobError::SlashInName);
        }
        Glob::of(expanded)
    }

    fn of(expanded: Vec<Vec<PatternToken>>) -> Result<Glob, GlobError> {
        let mut alternatives: Vec<Flat> = Vec::with_capacity(expanded.len());
        let mut literals = usize::MAX;
        for raw in expanded {
            let flat = Flat::new(&raw)?;
            literals = literals.min(flat.literals(raw.first() != Some(&PatternToken::Byte(b'/'))));
            if !alternatives.iter().any(|other| other.pieces == flat.pieces) {
                alternatives.push(flat);
            }
        }
        Ok(Glob { alternatives, literals })
    }

    /// Whether it has no wildcards.
    pub(super) fn is_exact(&self) -> bool {
        self.alternatives.iter().all(|flat| matches!(flat.middle, Middle::Exact))
    }

    /// Whether every path matches.
    pub(super) fn is_everything(&self) -> bool {
        self.alternatives
            .iter()
            .any(|flat| matches!(flat.pieces.as_slice(), [PatternToken::Byte(b'/'), PatternToken::Cross]))
    }

    /// Whether it is sure that no path matches: a set without a byte, or a `.` or `..` between slashes.
    pub(super) fn is_impossible(&self) -> bool {
        self.alternatives.iter().all(|flat| {
            let dots = |component: &[PatternToken]| {
                matches!(component, [PatternToken::Byte(b'.')] | [PatternToken::Byte(b'.'), PatternToken::Byte(b'.')])
            };
            flat.pieces.iter().any(|piece| matches!(piece, PatternToken::Class(set) if **set == ByteSet::EMPTY))
                || flat.pieces.split(|piece| *piece == PatternToken::Byte(b'/')).any(dots)
        })
    }

    /// Whether it is sure that every path that `other` matches matches this one.
    pub(super) fn covers(&self, other: &Glob) -> bool {
        self.is_everything()
            || other.alternatives.iter().all(|flat| self.alternatives.iter().any(|own| own.pieces == flat.pieces))
    }

    /// Whether the pattern matches a whole path.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.alternatives.iter().any(|flat| flat.matches(path))
    }
}

impl Flat {
    fn new(raw: &[PatternToken]) -> Result<Flat, GlobError> {
        let pieces = canonical(raw);
        if pieces.last() == Some(&PatternToken::Byte(b'/')) || matches!(pieces.last(), Some(PatternToken::Dirs)) {
            return Err(GlobError::TrailingSlash);
        }
        let doubled = |pair: &[PatternToken]| {
            matches!(pair, [PatternToken::Byte(b'/') | PatternToken::Dirs, PatternToken::Byte(b'/')])
        };
        if pieces.windows(2).any(doubled) {
            return Err(GlobError::EmptyComponent);
        }
        let prefix = literal_run(pieces.iter());
        let suffix = if prefix.len() == pieces.len() {
            Vec::new()
        } else {
            let mut run = literal_run(pieces.iter().rev());
            run.reverse();
            run
        };
        let middle = match &pieces[prefix.len()..pieces.len() - suffix.len()] {
            [] => Middle::Exact,
            [PatternToken::Star] => Middle::Star,
            [PatternToken::Cross] => Middle::Cross,
            [PatternToken::Dirs] => Middle::Dirs,
            _ => Middle::Regex(compile(&pieces)?),
        };
        Ok(Flat { pieces, prefix: prefix.into(), suffix: suffix.into(), middle })
    }

    /// Literal characters; the slash of `**/` belongs to the wildcard, and so does the first one when it was not
    /// written.
    fn literals(&self, relative: bool) -> usize {
        // A character of several bytes counts once.
        let literal = |piece: &&PatternToken| matches!(piece, PatternToken::Byte(byte) if byte & 0xC0 != 0x80);
        self.pieces.iter().filter(literal).count() - usize::from(relative)
    }

    /// Whether it matches a whole path.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        path.starts_with(&self.prefix) && path.ends_with(&self.suffix) && self.matches_between(path)
    }

    /// Whether it matches a path that is known to begin with the prefix and to end with the suffix.
    pub(super) fn matches_between(&self, path: &[u8]) -> bool {
        let fixed = self.prefix.len() + self.suffix.len();
        if path.len() < fixed {
            return false;
        }
        let gap_end = path.len() - self.suffix.len();
        match &self.middle {
            Middle::Exact => path.len() == fixed,
            Middle::Star => !path[self.prefix.len()..gap_end].contains(&b'/'),
            Middle::Cross => true,
            Middle::Dirs => path[..gap_end].ends_with(b"/"),
            Middle::Regex(regex) => regex.is_match(path),
        }
    }
}

fn read(pattern: &str) -> Result<Vec<Vec<PatternToken>>, GlobError> {
    if pattern.is_empty() {
        return Err(GlobError::Empty);
    }
    if pattern.len() > MAX_PATTERN {
        return Err(GlobError::TooLong);
    }
    if pattern.contains('\0') {
        return Err(GlobError::Nul);
    }
    PatternParser::new(pattern).read()
}

fn literal_run<'a>(pieces: impl Iterator<Item = &'a PatternToken>) -> Vec<u8> {
    pieces.map_while(|piece| if let PatternToken::Byte(byte) = piece { Some(*byte) } else { None }).collect()
}

/// Anchors a pattern at the root and joins neighbouring wildcards that together are one.
fn canonical(raw: &[PatternToken]) -> Vec<PatternToken> {
    const SLASH: PatternToken = PatternToken::Byte(b'/');
    let mut pieces: Vec<PatternToken> = Vec::with_capacity(raw.len() + 2);
    if raw.first() != Some(&SLASH) {
        pieces.extend([SLASH, PatternToken::Dirs]);
    }
    let mut rest = raw;
    let mut after_slash = true;
    while let Some((piece, tail)) = rest.split_first() {
        rest = tail;
        let mut piece = piece.clone();
        if after_slash && piece == PatternToken::Cross && rest.first() == Some(&SLASH) {
            piece = PatternToken::Dirs;
            rest = &rest[1..];
        }
        after_slash = matches!(piece, SLASH | PatternToken::Dirs);
        match (pieces.last(), &piece) {
            (Some(PatternToken::Star), PatternToken::Star)
            | (Some(PatternToken::Cross), PatternToken::Star | PatternToken::Cross)
            | (Some(PatternToken::Dirs), PatternToken::Dirs) => {}
            // `(.*/)?` before `*` or `**` is any bytes at all.
            (Some(PatternToken::Dirs), PatternToken::Star | PatternToken::Cross)
            | (Some(PatternToken::Star), PatternToken::Cross) => {
                pieces.pop();
                pieces.push(PatternToken::Cross);
            }
            _ => pieces.push(piece),
        }
    }
    pieces
}

fn compile(pieces: &[PatternToken]) -> Result<Regex, GlobError> {
    let mut text = String::from(r"(?s-u)\A");
    for piece in pieces {
        match piece {
            PatternToken::Byte(byte) => push_byte(&mut text, *byte),
            PatternToken::One => text.push_str("[^/]"),
            PatternToken::Star => text.push_str("[^/]*"),
            PatternToken::Cross => text.push_str(".*"),
            PatternToken::Dirs => text.push_str("(?:.*/)?"),
            PatternToken::Class(set) => {
                let members: Vec<u8> = (0..=u8::MAX).filter(|byte| set.contains(*byte)).collect();
                if members.is_empty() {
                    text.push_str(r"[^\x00-\xFF]");
                    continue;
                }
                text.push('[');
                for run in members.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
                    push_byte(&mut text, run[0]);
                    text.push('-');
                    push_byte(&mut text, run[run.len() - 1]);
                }
                text.push(']');
            }
        }
    }
    text.push_str(r"\z");
    RegexBuilder::new(&text)
        .unicode(false)
        .size_limit(MAX_REGEX)
        .dfa_size_limit(MAX_DFA)
        .build()
        .map_err(|_| GlobError::TooComplex)
}

fn push_byte(text: &mut String, byte: u8) {
    const HEX: [u8; 16] = *b"0123456789ABCDEF";
    text.push_str(r"\x");
    text.push(char::from(HEX[usize::from(byte >> 4)]));
    text.push(char::from(HEX[usize::from(byte & 15)]));
}
