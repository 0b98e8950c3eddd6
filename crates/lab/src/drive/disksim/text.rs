//! The parameter text of DiskSim 4: blocks of `key = value`, lists, and `source FILE` for what stands in another file.
//!
//! Keys and values are words; a key may have several. A comment runs from `#` to the end of its line.

use super::error::ImportError;

/// Blocks and lists within each other.
const DEEPEST: usize = 32;

/// The smallest piece of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// One of `{ } [ ] = ,`.
    Mark(char),
    Word(String),
}

/// What stands behind a `=` or in a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    List(Vec<Value>),
    Block(Block),
}

/// `kind name { key = value, ... }`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Block {
    pub(super) kind: String,
    pub(super) name: String,
    entries: Vec<(String, Value)>,
}

/// The words and marks of one file.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            let mark = matches!(c, '{' | '}' | '[' | ']' | '=' | ',');
            if (mark || c.is_whitespace()) && !word.is_empty() {
                all.push(Token::Word(std::mem::take(&mut word)));
            }
            if mark {
                all.push(Token::Mark(c));
            } else if !c.is_whitespace() {
                word.push(c);
            }
        }
    }
    all
}

/// The blocks of the outermost level; what else stands there is passed over.
pub(super) fn blocks(tokens: Vec<Token>) -> Result<Vec<Block>, ImportError> {
    let mut reader = Reader { tokens: tokens.into_iter().peekable(), depth: 0 };
    let mut found = Vec::new();
    let mut words: Vec<String> = Vec::new();
    while let Some(token) = reader.tokens.next() {
        match token {
            Token::Word(word) => words.push(word),
            Token::Mark('{') => {
                found.push(reader.block(&words)?);
                words.clear();
            }
            Token::Mark('[') => {
                reader.list()?;
                words.clear();
            }
            Token::Mark(_) => words.clear(),
        }
    }
    Ok(found)
}

struct Reader {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    depth: usize,
}

impl Reader {
    fn enter(&mut self) -> Result<(), ImportError> {
        self.depth += 1;
        if self.depth > DEEPEST { Err(ImportError::TooDeep(DEEPEST)) } else { Ok(()) }
    }

    /// The words up to the next mark.
    fn words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.tokens.next_if(|token| matches!(token, Token::Word(_))) {
            words.push(word);
        }
        words
    }

    /// A block whose `{` has been read, behind `words`.
    fn block(&mut self, words: &[String]) -> Result<Block, ImportError> {
        self.enter()?;
        let name = words.last().cloned().unwrap_or_default();
        let kind = words.len().checked_sub(2).and_then(|at| words.get(at)).unwrap_or(&name).clone();
        let mut entries = Vec::new();
        loop {
            let key = self.words();
            match self.tokens.next() {
                Some(Token::Mark('=')) => entries.push((key.join(" "), self.value()?)),
                Some(Token::Mark('}')) => break,
                Some(Token::Mark(',')) => {}
                Some(_) => return Err(ImportError::Unexpected { after: key.join(" ") }),
                None => return Err(ImportError::Unfinished { block: kind }),
            }
        }
        self.depth -= 1;
        Ok(Block { kind, name, entries })
    }

    fn value(&mut self) -> Result<Value, ImportError> {
        let words = self.words();
        if self.tokens.next_if_eq(&Token::Mark('{')).is_some() {
            return Ok(Value::Block(self.block(&words)?));
        }
        if words.is_empty() && self.tokens.next_if_eq(&Token::Mark('[')).is_some() {
            return Ok(Value::List(self.list()?));
        }
        Ok(Value::Text(words.join(" ")))
    }

    /// A list whose `[` has been read. Commas are optional between what cannot run together.
    fn list(&mut self) -> Result<Vec<Value>, ImportError> {
        self.enter()?;
        let mut items = Vec::new();
        loop {
            match self.tokens.peek() {
                Some(Token::Mark(']')) => break,
                Some(Token::Mark(',')) => {
                    self.tokens.next();
                }
                Some(Token::Mark('}' | '=')) => return Err(ImportError::Unexpected { after: "[".to_owned() }),
                Some(_) => items.push(self.value()?),
                None => return Err(ImportError::Unfinished { block: "[".to_owned() }),
            }
            // A list may stand behind words, as in a topology.
            if self.tokens.next_if_eq(&Token::Mark('[')).is_some() {
                items.push(Value::List(self.list()?));
            }
        }
        self.tokens.next();
        self.depth -= 1;
        Ok(items)
    }
}

impl Block {
    /// The last value of that key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A number, none if the key is not there.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ImportError> {
        self.get(key).map(|value| value.number(key)).transpose()
    }

    pub(super) fn need(&self, key: &str) -> Result<f64, ImportError> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number that counts something, up to `most`.
    pub(super) fn count(&self, key: &str, most: u64) -> Result<u64, ImportError> {
        in_range(key, self.need(key)?, most)
    }

    /// The same, `default` if the key is not there.
    pub(super) fn count_or(&self, key: &str, most: u64, default: u64) -> Result<u64, ImportError> {
        self.number(key)?.map_or(Ok(default), |number| in_range(key, number, most))
    }

    /// A time of up to a minute, in milliseconds; 0 if the key is not there.
    pub(super) fn millis(&self, key: &str) -> Result<f64, ImportError> {
        let millis = self.number(key)?.unwrap_or_default();
        if millis.abs() <= 60_000.0 { Ok(millis) } else { Err(out_of_range(key, millis)) }
    }

    pub(super) fn block(&self, key: &str) -> Result<&Block, ImportError> {
        match self.get(key) {
            Some(Value::Block(block)) => Ok(block),
            _ => Err(self.missing(key)),
        }
    }

    /// A list of numbers; an empty one if the key is not there.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>, ImportError> {
        match self.get(key) {
            Some(Value::List(items)) => items.iter().map(|item| item.number(key)).collect(),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn missing(&self, key: &str) -> ImportError {
        ImportError::Missing { block: self.kind.clone(), key: key.to_owned() }
    }
}

impl Value {
    fn number(&self, key: &str) -> Result<f64, ImportError> {
        let wrong = || ImportError::NotANumber { key: key.to_owned() };
        let Value::Text(text) = self else { return Err(wrong()) };
        text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(wrong)
    }
}

fn in_range(key: &str, number: f64, most: u64) -> Result<u64, ImportError> {
    if number >= 0.0 && number <= most as f64 { Ok(number as u64) } else { Err(out_of_range(key, number)) }
}

pub(super) fn out_of_range(key: &str, value: f64) -> ImportError {
    ImportError::OutOfRange { key: key.to_owned(), value }
}
