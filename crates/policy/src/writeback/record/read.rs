//! Text to events, a line at a time. Any text is read or refused; what it takes of memory is bounded: an answer by
//! [`MOST_SELECTED`], a line by its run.

use std::str::SplitAsciiWhitespace;

use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey, Pages};

use super::{Fnv1a, LONGEST_RUN, MAGIC, MOST_SELECTED, RecordEntry, RecordError, VERSION};
use crate::error::PolicyError;
use crate::params::Spec;
use crate::writeback::{DirtyPage, Event};

/// Reads a record. Lines go in, steps come out.
#[derive(Debug)]
pub struct RecordReader {
    lines: u64,
    sum: Fnv1a,
    last: Nanos,
    policy: Option<String>,
    /// A selection whose answer is not complete yet, with the lines that are missing.
    open: Option<(RecordEntry, u64)>,
    ended: bool,
}

impl Default for RecordReader {
    fn default() -> RecordReader {
        RecordReader { lines: 0, sum: Fnv1a::EMPTY, last: Nanos(0), policy: None, open: None, ended: false }
    }
}

/// The words of a line that are left.
struct Words<'a>(SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn number(&mut self) -> Option<u64> {
        self.0.next()?.parse().ok()
    }

    fn end(mut self) -> Option<()> {
        self.0.next().is_none().then_some(())
    }
}

/// Adjacent pages of a file.
#[derive(Clone, Copy)]
struct PageRun {
    file: FileId,
    first: u64,
    pages: u64,
}

impl PageRun {
    fn keys(self) -> impl Iterator<Item = (PageKey, u64)> {
        (0..self.pages)
            .map(move |at| (PageKey { file: self.file, index: PageIndex(self.first.saturating_add(at)) }, at))
    }
}

impl RecordReader {
    /// A reader before the first line.
    pub fn new() -> RecordReader {
        RecordReader::default()
    }

    /// The policy that decided, once its line was read; an error when no such policy could be written so.
    pub fn policy(&self) -> Option<Result<Spec, PolicyError>> {
        self.policy.as_ref().map(|policy| policy.parse())
    }

    /// Whether the record's end was read, with its sum.
    pub fn is_complete(&self) -> bool {
        self.ended
    }

    /// Reads the next line, without what ends it; appends what it tells.
    pub fn line(&mut self, line: &str, out: &mut Vec<RecordEntry>) -> Result<(), RecordError> {
        let number = self.lines + 1;
        if self.ended {
            return Err(RecordError::BehindEnd { line: number });
        }
        if let Some(trailer) = line.strip_prefix("end ") {
            self.end(line, trailer)?;
        } else {
            match number {
                1 => RecordReader::magic(line)?,
                2 => self.policy = Some(line.strip_prefix("policy ").ok_or_else(|| self.bad(line))?.to_owned()),
                _ => self.step(line, out)?,
            }
            self.sum.add(line);
        }
        self.lines = number;
        Ok(())
    }

    fn bad(&self, line: &str) -> RecordError {
        RecordError::BadLine { line: self.lines + 1, text: line.chars().take(80).collect() }
    }

    fn magic(line: &str) -> Result<(), RecordError> {
        let version =
            line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')).ok_or(RecordError::NotARecord)?;
        let known = version.parse() == Ok(VERSION);
        if known { Ok(()) } else { Err(RecordError::Version { found: version.chars().take(20).collect() }) }
    }

    fn end(&mut self, line: &str, trailer: &str) -> Result<(), RecordError> {
        let (count, sum) = trailer.split_once(' ').ok_or_else(|| self.bad(line))?;
        let count: u64 = count.parse().map_err(|_| self.bad(line))?;
        let sum = u64::from_str_radix(sum, 16).map_err(|_| self.bad(line))?;
        if self.open.is_some() || self.lines < 2 {
            return Err(self.bad(line));
        }
        if count != self.lines {
            return Err(RecordError::BadCount { line: self.lines + 1, found: self.lines, expected: count });
        }
        if sum != self.sum.0 {
            return Err(RecordError::BadSum { line: self.lines + 1, found: self.sum.0, expected: sum });
        }
        self.ended = true;
        Ok(())
    }

    fn step(&mut self, line: &str, out: &mut Vec<RecordEntry>) -> Result<(), RecordError> {
        let mut words = Words(line.split_ascii_whitespace());
        let kind = words.0.next().ok_or_else(|| self.bad(line))?;
        if self.open.is_some() != (kind == ">") {
            return Err(self.bad(line));
        }
        if kind == ">" {
            return self.answer(line, words, out);
        }
        let since = words.number().ok_or_else(|| self.bad(line))?;
        let now = self.last + Nanos(since);
        self.last = now;
        if kind == "s" {
            return self.selection(line, now, words, out);
        }
        self.event(line, kind, now, words, out)
    }

    fn selection(
        &mut self,
        line: &str,
        now: Nanos,
        mut words: Words<'_>,
        out: &mut Vec<RecordEntry>,
    ) -> Result<(), RecordError> {
        let (Some(want), Some(runs), Some(())) = (words.number(), words.number(), words.end()) else {
            return Err(self.bad(line));
        };
        let step = RecordEntry::Selected { now, want: Pages(want), pages: Vec::new() };
        if runs == 0 {
            out.push(step);
        } else {
            self.open = Some((step, runs));
        }
        Ok(())
    }

    fn answer(&mut self, line: &str, mut words: Words<'_>, out: &mut Vec<RecordEntry>) -> Result<(), RecordError> {
        let run = self.run(line, &mut words)?;
        let (Some(block), Some(())) = (words.number(), words.end()) else { return Err(self.bad(line)) };
        let Some((mut step, missing)) = self.open.take() else { return Err(self.bad(line)) };
        if let RecordEntry::Selected { pages, .. } = &mut step {
            if pages.len() as u64 + run.pages > MOST_SELECTED {
                return Err(RecordError::TooManySelected { line: self.lines + 1 });
            }
            pages.extend(run.keys().map(|(page, at)| DirtyPage { page, block: BlockNo(block.saturating_add(at)) }));
        }
        if missing > 1 {
            self.open = Some((step, missing - 1));
        } else {
            out.push(step);
        }
        Ok(())
    }

    fn run(&self, line: &str, words: &mut Words<'_>) -> Result<PageRun, RecordError> {
        let (Some(file), Some(first), Some(pages)) = (words.number(), words.number(), words.number()) else {
            return Err(self.bad(line));
        };
        if !(1..=LONGEST_RUN).contains(&pages) {
            return Err(RecordError::BadRun { line: self.lines + 1, pages });
        }
        Ok(PageRun { file: FileId(file), first, pages })
    }

    fn event(
        &self,
        line: &str,
        kind: &str,
        now: Nanos,
        mut words: Words<'_>,
        out: &mut Vec<RecordEntry>,
    ) -> Result<(), RecordError> {
        let bad = || self.bad(line);
        if matches!(kind, "x" | "k") {
            let file = FileId(words.number().ok_or_else(bad)?);
            let event = match kind {
                "x" => Event::Truncate { file, from: PageIndex(words.number().ok_or_else(bad)?) },
                _ => Event::Delete { file },
            };
            words.end().ok_or_else(bad)?;
            out.push(RecordEntry::Event(now, event));
            return Ok(());
        }
        let run = self.run(line, &mut words)?;
        // The page, and how far it is from the first.
        let event: Box<dyn Fn(PageKey, u64) -> Event> = match kind {
            "d" => {
                let block = words.number().ok_or_else(bad)?;
                let active = match words.0.next() {
                    Some("a") => true,
                    Some("-") => false,
                    _ => return Err(bad()),
                };
                Box::new(move |page, at| Event::Dirty { page, block: BlockNo(block.saturating_add(at)), active })
            }
            "w" => Box::new(|page, _| Event::Rewrite { page }),
            "t" => Box::new(|page, _| Event::Touch { page }),
            "a" => Box::new(|page, _| Event::Activate { page }),
            "i" => Box::new(|page, _| Event::Deactivate { page }),
            "c" => Box::new(|page, _| Event::Clean { page }),
            "m" => {
                let block = words.number().ok_or_else(bad)?;
                Box::new(move |page, at| Event::Remap { page, block: BlockNo(block.saturating_add(at)) })
            }
            "f" => {
                let next_write = Nanos(words.number().ok_or_else(bad)?);
                Box::new(move |page, _| Event::Foresee { page, next_write })
            }
            _ => return Err(bad()),
        };
        words.end().ok_or_else(bad)?;
        out.extend(run.keys().map(|(page, at)| RecordEntry::Event(now, event(page, at))));
        Ok(())
    }
}
