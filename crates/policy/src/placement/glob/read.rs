//! Reads a pattern and expands its braces.

use super::{ByteSet, GlobError, MAX_ALTERNATIVES, MAX_EXPANDED, MAX_NESTING, PatternToken};

/// Reads a pattern into its alternatives.
pub(super) struct PatternParser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl<'a> PatternParser<'a> {
    pub(super) fn new(pattern: &'a str) -> Self {
        PatternParser { rest: pattern.chars().peekable() }
    }

    pub(super) fn read(mut self) -> Result<Vec<Vec<PatternToken>>, GlobError> {
        self.alternative(0)
    }

    /// Reads up to the end, or inside braces up to (not including) the `,` or `}` that ends the alternative.
    fn alternative(&mut self, depth: usize) -> Result<Vec<Vec<PatternToken>>, GlobError> {
        let mut all: Vec<Vec<PatternToken>> = vec![Vec::new()];
        while let Some(&next) = self.rest.peek() {
            if depth > 0 && (next == ',' || next == '}') {
                return Ok(all);
            }
            self.rest.next();
            match next {
                '}' => return Err(GlobError::UnbalancedBraces),
                '{' => all = product(&all, &self.braces(depth + 1)?)?,
                '*' if self.rest.next_if_eq(&'*').is_some() => append(&mut all, PatternToken::Cross),
                '*' => append(&mut all, PatternToken::Star),
                '?' => append(&mut all, PatternToken::One),
                '[' => {
                    let set = self.class()?;
                    append(&mut all, PatternToken::Class(Box::new(set)));
                }
                '\\' => append_char(&mut all, self.rest.next().ok_or(GlobError::DanglingEscape)?),
                character => append_char(&mut all, character),
            }
            if all.iter().map(Vec::len).sum::<usize>() > MAX_EXPANDED {
                return Err(GlobError::TooManyAlternatives);
            }
        }
        if depth > 0 { Err(GlobError::UnbalancedBraces) } else { Ok(all) }
    }

    fn braces(&mut self, depth: usize) -> Result<Vec<Vec<PatternToken>>, GlobError> {
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
                if self.rest.peek() == Some(&']') {
                    // A dash at the end is a dash.
                    set[usize::from(b'-')] = true;
                } else {
                    let last = self.rest.next().ok_or(GlobError::UnclosedClass)?;
                    to = self.class_byte(last)?;
                }
            }
            if from > to {
                return Err(GlobError::BadRange { from: from.into(), to: to.into() });
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
        let character = if character == '\\' { self.rest.next().ok_or(GlobError::UnclosedClass)? } else { character };
        if character.is_ascii() { Ok(character as u8) } else { Err(GlobError::WideCharacterInClass { character }) }
    }
}

fn append(all: &mut [Vec<PatternToken>], piece: PatternToken) {
    if let Some((last, others)) = all.split_last_mut() {
        for pieces in others {
            pieces.push(piece.clone());
        }
        last.push(piece);
    }
}

fn append_char(all: &mut [Vec<PatternToken>], character: char) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        append(all, PatternToken::Byte(byte));
    }
}

fn product(heads: &[Vec<PatternToken>], tails: &[Vec<PatternToken>]) -> Result<Vec<Vec<PatternToken>>, GlobError> {
    let bytes: usize = heads.iter().map(Vec::len).sum::<usize>() * tails.len()
        + tails.iter().map(Vec::len).sum::<usize>() * heads.len();
    if heads.len() * tails.len() > MAX_ALTERNATIVES || bytes > MAX_EXPANDED {
        return Err(GlobError::TooManyAlternatives);
    }
    let pairs = heads.iter().flat_map(|head| tails.iter().map(move |tail| [head.as_slice(), tail].concat()));
    Ok(pairs.collect())
}
