//! Patterns of the name table, matched against the whole path inside the pool, byte by byte, case-sensitively.
//!
//! - `*`: any bytes but `/`; `?`: one byte but `/`; `[abc]`, `[a-z]`, `[!a-z]`: one byte of (not of) a set, never `/`.
//! - `**`: any bytes, `/` too, anywhere in the pattern: `/home/dave/**` is everything below, `/home/dave/**.avi` every `.avi` below.
//!   Between slashes it also stands for no directory at all: `/a/**/b` matches `/a/b`.
//! - `{a,b}`: either; may be nested. `\` takes the next character as it is.
//! - A pattern that does not begin with `/` matches at any depth: `*.avi` means `/**/*.avi`.
//!
//! Braces are expanded when the pattern is read, so what is matched is a flat run of pieces. Most of those are a literal, or a
//! prefix and a suffix with one gap between, and are matched by comparing bytes; the others become an anchored `regex::bytes`.
//! Length, alternatives and compiled size are bounded, and matching is linear in the path.

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

const MAX_PATTERN: usize = 4096;
const MAX_ALTERNATIVES: usize = 256;
const MAX_EXPANDED: usize = 64 * 1024;
const MAX_NESTING: usize = 8;
const MAX_REGEX: usize = 1 << 20;
const MAX_DFA: usize = 1 << 18;

/// What is wrong with a pattern.
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
    #[error("\"[\" is not closed by \"]\" (write \"\\[\" for the character)")]
    UnclosedClass,
    /// A range whose ends are the wrong way round.
    #[error("range \"{from}-{to}\" is the wrong way round")]
    BadRange {
        /// First character.
        from: char,
        /// Last character.
        to: char,
    },
    /// A class with a character of more than one byte.
    #[error("\"{character}\" cannot stand in [...], which is one byte (write {{...}})")]
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
    #[error("braces stand for more than {MAX_ALTERNATIVES} alternatives or {MAX_EXPANDED} bytes")]
    TooManyAlternatives,
    /// A compiled pattern that is too large.
    #[error("is too complex")]
    TooComplex,
}

/// A piece of an expanded pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
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
    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte)]
    }
}

/// One pattern without braces.
#[derive(Debug, Clone)]
pub(super) struct Flat {
    /// Canonical: two alternatives with equal pieces match the same paths.
    pub(super) pieces: Vec<Piece>,
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
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        if pattern.len() > MAX_PATTERN {
            return Err(GlobError::TooLong);
        }
        if pattern.contains('\0') {
            return Err(GlobError::Nul);
        }
        let expanded = Reader::new(pattern).read()?;
        let mut alternatives: Vec<Flat> = Vec::with_capacity(expanded.len());
        let mut literals = usize::MAX;
        for raw in expanded {
            literals = literals.min(count_literals(&raw));
            let flat = Flat::new(&raw)?;
            if !alternatives.iter().any(|other| other.pieces == flat.pieces) {
                alternatives.push(flat);
            }
        }
        Ok(Glob {
            alternatives,
            literals,
        })
    }

    /// Whether the pattern matches a whole path.
    #[cfg(test)]
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.alternatives.iter().any(|flat| flat.matches(path))
    }
}

fn count_literals(raw: &[Piece]) -> usize {
    // A character of several bytes counts once.
    raw.iter()
        .filter(|piece| matches!(piece, Piece::Byte(byte) if byte & 0xC0 != 0x80))
        .count()
}

impl Flat {
    fn new(raw: &[Piece]) -> Result<Flat, GlobError> {
        let pieces = canonical(raw);
        if pieces.last() == Some(&Piece::Byte(b'/')) || matches!(pieces.last(), Some(Piece::Dirs)) {
            return Err(GlobError::TrailingSlash);
        }
        if pieces
            .windows(2)
            .any(|pair| pair == [Piece::Byte(b'/'), Piece::Byte(b'/')])
        {
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
            [Piece::Star] => Middle::Star,
            [Piece::Cross] => Middle::Cross,
            [Piece::Dirs] => Middle::Dirs,
            _ => Middle::Regex(compile(&pieces)?),
        };
        Ok(Flat {
            pieces,
            prefix: prefix.into(),
            suffix: suffix.into(),
            middle,
        })
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

fn literal_run<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Vec<u8> {
    pieces
        .map_while(|piece| {
            if let Piece::Byte(byte) = piece {
                Some(*byte)
            } else {
                None
            }
        })
        .collect()
}

/// Anchors a pattern at the root and joins neighbouring wildcards that together are one.
fn canonical(raw: &[Piece]) -> Vec<Piece> {
    const SLASH: Piece = Piece::Byte(b'/');
    let mut pieces: Vec<Piece> = Vec::with_capacity(raw.len() + 2);
    if raw.first() != Some(&SLASH) {
        pieces.extend([SLASH, Piece::Dirs]);
    }
    let mut rest = raw;
    let mut after_slash = true;
    while let Some((piece, tail)) = rest.split_first() {
        rest = tail;
        let mut piece = piece.clone();
        if after_slash && piece == Piece::Cross && rest.first() == Some(&SLASH) {
            piece = Piece::Dirs;
            rest = &rest[1..];
        }
        after_slash = matches!(piece, SLASH | Piece::Dirs);
        match (pieces.last(), &piece) {
            (Some(Piece::Star), Piece::Star)
            | (Some(Piece::Cross), Piece::Star | Piece::Cross)
            | (Some(Piece::Dirs), Piece::Dirs) => {}
            // `(.*/)?` before `*` or `**` is any bytes at all.
            (Some(Piece::Dirs), Piece::Star | Piece::Cross) | (Some(Piece::Star), Piece::Cross) => {
                pieces.pop();
                pieces.push(Piece::Cross);
            }
            _ => pieces.push(piece),
        }
    }
    pieces
}

fn compile(pieces: &[Piece]) -> Result<Regex, GlobError> {
    let mut text = String::from(r"(?s-u)\A");
    for piece in pieces {
        match piece {
            Piece::Byte(byte) => push_byte(&mut text, *byte),
            Piece::One => text.push_str("[^/]"),
            Piece::Star => text.push_str("[^/]*"),
            Piece::Cross => text.push_str(".*"),
            Piece::Dirs => text.push_str("(?:.*/)?"),
            Piece::Class(set) => {
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

/// Reads a pattern into its alternatives.
struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl<'a> Reader<'a> {
    fn new(pattern: &'a str) -> Self {
        Reader {
            rest: pattern.chars().peekable(),
        }
    }

    fn read(mut self) -> Result<Vec<Vec<Piece>>, GlobError> {
        self.alternative(0)
    }

    /// Reads up to the end, or inside braces up to (not including) the `,` or `}` that ends the alternative.
    fn alternative(&mut self, depth: usize) -> Result<Vec<Vec<Piece>>, GlobError> {
        let mut all: Vec<Vec<Piece>> = vec![Vec::new()];
        while let Some(&next) = self.rest.peek() {
            if depth > 0 && (next == ',' || next == '}') {
                return Ok(all);
            }
            self.rest.next();
            match next {
                '}' => return Err(GlobError::UnbalancedBraces),
                '{' => all = product(&all, &self.braces(depth + 1)?)?,
                '*' if self.rest.next_if_eq(&'*').is_some() => append(&mut all, Piece::Cross),
                '*' => append(&mut all, Piece::Star),
                '?' => append(&mut all, Piece::One),
                '[' => {
                    let set = self.class()?;
                    append(&mut all, Piece::Class(Box::new(set)));
                }
                '\\' => append_char(&mut all, self.rest.next().ok_or(GlobError::DanglingEscape)?),
                character => append_char(&mut all, character),
            }
            if all.iter().map(Vec::len).sum::<usize>() > MAX_EXPANDED {
                return Err(GlobError::TooManyAlternatives);
            }
        }
        if depth > 0 {
            Err(GlobError::UnbalancedBraces)
        } else {
            Ok(all)
        }
    }

    fn braces(&mut self, depth: usize) -> Result<Vec<Vec<Piece>>, GlobError> {
        if depth > MAX_NESTING {
            return Err(GlobError::NestedTooDeep);
        }
        let mut all = Vec::new();
        loop {
            all.extend(self.alternative(depth)?);
            if all.len() > MAX_ALTERNATIVES {
                return Err(GlobError::TooManyAlternatives);
            }
            if self.rest.next() == Some('}') {
                return Ok(all);
            }
        }
    }

    fn class(&mut self) -> Result<ByteSet, GlobError> {
        let negated = self.rest.next_if(|c| matches!(c, '!' | '^')).is_some();
        let mut set = [false; 256];
        let mut first = true;
        loop {
            let character = self.rest.next().ok_or(GlobError::UnclosedClass)?;
            if character == ']' && !first {
                break;
            }
            first = false;
            let from = self.class_byte(character)?;
            let mut to = from;
            if self.rest.peek() == Some(&'-') {
                self.rest.next();
                match self.rest.peek() {
                    // A dash at the end is a dash.
                    Some(']') => set[usize::from(b'-')] = true,
                    _ => {
                        let last = self.rest.next().ok_or(GlobError::UnclosedClass)?;
                        to = self.class_byte(last)?;
                    }
                }
            }
            if from > to {
                return Err(GlobError::BadRange {
                    from: from.into(),
                    to: to.into(),
                });
            }
            set[usize::from(from)..=usize::from(to)].fill(true);
        }
        if negated {
            for member in &mut set {
                *member = !*member;
            }
        }
        set[usize::from(b'/')] = false;
        Ok(ByteSet(set))
    }

    fn class_byte(&mut self, character: char) -> Result<u8, GlobError> {
        let character = if character == '\\' {
            self.rest.next().ok_or(GlobError::UnclosedClass)?
        } else {
            character
        };
        if character.is_ascii() {
            Ok(character as u8)
        } else {
            Err(GlobError::WideCharacterInClass { character })
        }
    }
}

fn append(all: &mut [Vec<Piece>], piece: Piece) {
    if let Some((last, others)) = all.split_last_mut() {
        for pieces in others {
            pieces.push(piece.clone());
        }
        last.push(piece);
    }
}

fn append_char(all: &mut [Vec<Piece>], character: char) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        append(all, Piece::Byte(byte));
    }
}

fn product(heads: &[Vec<Piece>], tails: &[Vec<Piece>]) -> Result<Vec<Vec<Piece>>, GlobError> {
    let bytes: usize = heads.iter().map(Vec::len).sum::<usize>() * tails.len()
        + tails.iter().map(Vec::len).sum::<usize>() * heads.len();
    if heads.len() * tails.len() > MAX_ALTERNATIVES || bytes > MAX_EXPANDED {
        return Err(GlobError::TooManyAlternatives);
    }
    let pairs = heads.iter().flat_map(|head| {
        tails
            .iter()
            .map(move |tail| [head.as_slice(), tail].concat())
    });
    Ok(pairs.collect())
}
