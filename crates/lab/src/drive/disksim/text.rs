//! The parameter text of DiskSim 4: blocks of `key = value`, lists, and `source FILE` for what is in another file.
//!
//! Keys and values are words; a key may have several. A comment runs from `#` to the end of its line. Each word knows
//! where it is, for what is said about it.

use std::sync::Arc;

use super::error::{ImportError, SourceLine};

/// Blocks and lists within each other.
const DEEPEST: usize = 32;

/// The smallest piece of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Symbol {
    /// One of `{ } [ ] = ,`.
    Mark(char),
    Word(String),
}

/// A piece, and where it is.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) symbol: Symbol,
    pub(super) line: SourceLine,
}

/// What is behind a `=` or in a list, and where it begins.
#[derive(Debug, Clone)]
pub(super) struct ParvValue {
    pub(super) kind: ValueKind,
    line: SourceLine,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(super) enum ValueKind {
    Text(String),
    List(Vec<ParvValue>),
    Block(Block),
}

/// `kind name { key = value, ... }`.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) kind: String,
    pub(super) name: String,
    /// Where it begins.
    pub(super) line: SourceLine,
    entries: Vec<(String, ParvValue)>,
}

/// The words and marks of the file `name`.
pub(super) fn tokens(name: &str, text: &str) -> Vec<Token> {
    let name: Arc<str> = Arc::from(name);
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let mut add = |symbol| all.push(Token { symbol, line: SourceLine { file: Arc::clone(&name), number } });
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            let mark = matches!(c, '{' | '}' | '[' | ']' | '=' | ',');
            if (mark || c.is_whitespace()) && !word.is_empty() {
                add(Symbol::Word(std::mem::take(&mut word)));
            }
            if mark {
                add(Symbol::Mark(c));
            } else if !c.is_whitespace() {
                word.push(c);
            }
        }
    }
    all
}

/// The blocks of the outermost level; what else is there is passed over.
pub(super) fn blocks(tokens: Vec<Token>) -> Result<Vec<Block>, ImportError> {
    let mut reader = Parser { tokens: tokens.into_iter().peekable(), depth: 0 };
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    while let Some(Token { symbol, line }) = reader.tokens.next() {
        match symbol {
            Symbol::Word(word) => words.push(word),
            Symbol::Mark('{') => {
                found.push(reader.block(&words, line)?);
                words.clear();
            }
            Symbol::Mark('[') => {
                reader.list(&line)?;
                words.clear();
            }
            Symbol::Mark(_) => words.clear(),
        }
    }
    Ok(found)
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    fn enter(&mut self, line: &SourceLine) -> Result<(), ImportError> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(ImportError::TooDeep { line: line.clone(), most: DEEPEST }) } else { Ok(()) }
    }

    /// The words up to the next mark.
    fn words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(Token { symbol: Symbol::Word(word), .. }) =
            self.tokens.next_if(|token| matches!(token.symbol, Symbol::Word(_)))
        {
            words.push(word);
        }
        words
    }

    /// The mark, if it comes next.
    fn mark(&mut self, mark: char) -> Option<SourceLine> {
        self.tokens.next_if(|token| token.symbol == Symbol::Mark(mark)).map(|token| token.line)
    }

    /// A block whose `{` has been read on `line`, behind `words`.
    fn block(&mut self, words: &[String], line: SourceLine) -> Result<Block, ImportError> {
        self.enter(&line)?;
        let name = words.last().cloned().unwrap_or_default();
        let kind = words.len().checked_sub(2).and_then(|at| words.get(at)).unwrap_or(&name).clone();
        let mut entries = Vec::new();
        loop {
            let key = self.words();
            match self.tokens.next() {
                Some(Token { symbol: Symbol::Mark('='), line }) => entries.push((key.join(" "), self.value(line)?)),
                Some(Token { symbol: Symbol::Mark('}'), .. }) => break,
                Some(Token { symbol: Symbol::Mark(','), .. }) => {}
                Some(Token { line, .. }) => return Err(ImportError::Unexpected { line, after: key.join(" ") }),
                None => return Err(ImportError::Unfinished { line, block: kind }),
            }
        }
        self.depth -= 1;
        Ok(Block { kind, name, line, entries })
    }

    /// A value whose `=` is on `line`; its own line if it has a word.
    fn value(&mut self, line: SourceLine) -> Result<ParvValue, ImportError> {
        let line = self.tokens.peek().map_or(line, |token| token.line.clone());
        let words = self.words();
        let kind = if let Some(begins) = self.mark('{') {
            ValueKind::Block(self.block(&words, begins)?)
        } else if words.is_empty() && self.mark('[').is_some() {
            ValueKind::List(self.list(&line)?)
        } else {
            ValueKind::Text(words.join(" "))
        };
        Ok(ParvValue { kind, line })
    }

    /// A list whose `[` has been read on `begins`. Commas are optional between what cannot run together.
    fn list(&mut self, begins: &SourceLine) -> Result<Vec<ParvValue>, ImportError> {
        self.enter(begins)?;
        let mut items = Vec::new();
        loop {
            let Some(Token { symbol, line }) = self.tokens.peek() else {
                return Err(ImportError::Unfinished { line: begins.clone(), block: "[".to_owned() });
            };
            let line = line.clone();
            match symbol {
                Symbol::Mark(']') => break,
                Symbol::Mark(',') => {
                    self.tokens.next();
                }
                Symbol::Mark('}' | '=') => return Err(ImportError::Unexpected { line, after: "[".to_owned() }),
                _ => items.push(self.value(line)?),
            }
            // A list may follow words, as in a topology.
            if let Some(line) = self.mark('[') {
                items.push(ParvValue { kind: ValueKind::List(self.list(&line)?), line });
            }
        }
        self.tokens.next();
        self.depth -= 1;
        Ok(items)
    }
}

impl Block {
    /// The last value of that key.
    pub(super) fn get(&self, key: &str) -> Option<&ParvValue> {
        self.entries.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(ParvValue { kind: ValueKind::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    /// A number; `None` if the key is not there.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ImportError> {
        self.get(key).map(|value| value.number(key)).transpose()
    }

    pub(super) fn need(&self, key: &str) -> Result<f64, ImportError> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number that counts something, up to `most`.
    pub(super) fn count(&self, key: &str, most: u64) -> Result<u64, ImportError> {
        self.in_range(key, self.need(key)?, most)
    }

    /// The same, `default` if the key is not there.
    pub(super) fn count_or(&self, key: &str, most: u64, default: u64) -> Result<u64, ImportError> {
        self.number(key)?.map_or(Ok(default), |number| self.in_range(key, number, most))
    }

    /// A time of up to a minute, in milliseconds; 0 if the key is not there.
    pub(super) fn millis(&self, key: &str) -> Result<f64, ImportError> {
        let millis = self.number(key)?.unwrap_or_default();
        if millis.abs() <= 60_000.0 { Ok(millis) } else { Err(self.out_of_range(key, millis)) }
    }

    pub(super) fn block(&self, key: &str) -> Result<&Block, ImportError> {
        match self.get(key) {
            Some(ParvValue { kind: ValueKind::Block(block), .. }) => Ok(block),
            _ => Err(self.missing(key)),
        }
    }

    /// A list of numbers; an empty one if the key is not there.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, ImportError> {
        match self.get(key) {
            Some(ParvValue { kind: ValueKind::List(items), .. }) => items.iter().map(|item| item.number(key)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn missing(&self, key: &str) -> ImportError {
        ImportError::Missing { line: self.line.clone(), block: self.kind.clone(), key: key.to_owned() }
    }

    /// The error for a value that is not among the known ones.
    pub(super) fn unknown(&self, key: &str, value: &str, known: &'static str) -> ImportError {
        ImportError::Unknown { line: self.line_of(key), key: key.to_owned(), value: value.to_owned(), known }
    }

    pub(super) fn out_of_range(&self, key: &str, value: f64) -> ImportError {
        ImportError::OutOfRange { line: self.line_of(key), key: key.to_owned(), value }
    }

    fn in_range(&self, key: &str, number: f64, most: u64) -> Result<u64, ImportError> {
        if number >= 0.0 && number <= most as f64 { Ok(number as u64) } else { Err(self.out_of_range(key, number)) }
    }

    /// Where the value of that key is, else where the block begins.
    pub(super) fn line_of(&self, key: &str) -> SourceLine {
        self.get(key).map_or_else(|| self.line.clone(), |value| value.line.clone())
    }
}

impl ParvValue {
    fn number(&self, key: &str) -> Result<f64, ImportError> {
        let wrong = || ImportError::NotANumber { line: self.line.clone(), key: key.to_owned() };
        let ValueKind::Text(text) = &self.kind else { return Err(wrong()) };
        if let Some(digits) = text.strip_prefix("0x") {
            return u32::from_str_radix(digits, 16).map(f64::from).map_err(|_| wrong());
        }
        text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(wrong)
    }
}
