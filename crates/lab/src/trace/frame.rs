//! Cuts a stream into lines or fixed records, in one buffer that never grows; knows line and byte of each.

use std::io::{self, Read as _};
use std::ops::Range;

use super::input::Source;
use super::problem::{Excerpt, MAX_LINE, Position, Problem};

const CAPACITY: usize = 512 << 10;

/// How a format cuts its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing {
    /// Into lines.
    Lines,
    /// Into records that name their own length.
    Sized {
        /// Number of bytes at the start of a record that are enough to know its length.
        prefix: usize,
        /// The length, from those bytes; `None` if it is no record.
        bytes: fn(&[u8]) -> Option<usize>,
        /// The stream begins with a text that this byte ends.
        text_until: Option<u8>,
    },
}

/// A stream and the part of it that is in memory.
pub(super) struct Frames {
    source: Source,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
    /// An error of the source, which is reported when its place is reached.
    failure: Option<io::Error>,
    /// The byte of the stream at the start of the buffer.
    base: u64,
    line: u64,
}

/// What the stream holds next.
#[derive(Debug)]
pub(super) enum Frame {
    /// These bytes of [`Frames::bytes`], without the line's end.
    Unit(Position, Range<usize>),
    /// Something that is no unit; it was skipped.
    Bad(Position, Problem),
    /// Nothing.
    End,
}

impl Frames {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            buffer: vec![0; CAPACITY].into(),
            start: 0,
            end: 0,
            ended: false,
            failure: None,
            base: 0,
            line: 0,
        }
    }

    /// Bytes of the stream that were read so far.
    pub(super) fn read_bytes(&self) -> u64 {
        self.base + self.end as u64
    }

    /// The bytes of a unit.
    pub(super) fn bytes(&self, unit: Range<usize>) -> &[u8] {
        self.buffer.get(unit).unwrap_or_default()
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    fn position(&self) -> Position {
        Position { line: self.line, byte: self.base + self.start as u64 }
    }

    /// Reads more, as long as there is more. What was not taken yet moves to the front.
    fn fill(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        loop {
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.source.read(free) {
                Ok(count) => {
                    self.end += count;
                    self.ended = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The beginning of the stream, nothing of it taken; a byte order mark is.
    pub(super) fn head(&mut self) -> io::Result<&[u8]> {
        while !self.ended && self.end - self.start < MAX_LINE {
            if let Err(error) = self.fill() {
                // What came before a damaged place is still worth reading.
                if self.end == self.start {
                    return Err(error);
                }
                self.failure = Some(error);
                break;
            }
        }
        if self.unread().starts_with(b"\xef\xbb\xbf") {
            self.start += 3;
        }
        Ok(self.unread())
    }

    /// Everything that is left: what is in memory, and the source.
    pub(super) fn into_rest(mut self) -> io::Result<(Vec<u8>, Source)> {
        self.failure.take().map_or(Ok(()), Err)?;
        Ok((self.unread().to_vec(), self.source))
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> io::Result<Frame> {
        let mut searched = 0;
        let (length, ending) = loop {
            let unread = self.unread();
            if let Some(found) = memchr::memchr(b'\n', unread.get(searched..).unwrap_or_default()) {
                break (searched + found, 1);
            }
            searched = unread.len();
            if self.ended && searched == 0 {
                return Ok(Frame::End);
            }
            if self.ended {
                break (searched, 0);
            }
            if searched > MAX_LINE {
                break (searched, 0);
            }
            self.fill()?;
        };
        self.line += 1;
        let position = self.position();
        if length > MAX_LINE {
            self.start += length + ending;
            if ending == 0 {
                self.skip_line()?;
            }
            return Ok(Frame::Bad(position, Problem::LineTooLong));
        }
        let unit = self.start..self.start + length;
        self.start += length + ending;
        let carriage_return = self.bytes(unit.clone()).ends_with(b"\r");
        Ok(Frame::Unit(position, unit.start..unit.end - usize::from(carriage_return)))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let unread = self.unread();
            if let Some(found) = memchr::memchr(b'\n', unread) {
                self.start += found + 1;
                return Ok(());
            }
            self.start = self.end;
            if self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Skips what is in memory up to this byte, that included.
    pub(super) fn skip_past(&mut self, end: u8) {
        let unread = self.unread();
        let found = memchr::memchr(end, unread).map_or(unread.len(), |found| found + 1);
        self.start += found;
    }

    /// The next record; its first bytes say how long it is. What is no record hides all that comes after.
    pub(super) fn record(&mut self, prefix: usize, bytes: fn(&[u8]) -> Option<usize>) -> io::Result<Frame> {
        self.fill_to(prefix)?;
        if self.start == self.end {
            return Ok(Frame::End);
        }
        self.line += 1;
        let position = self.position();
        let Some(begin) = self.unread().get(..prefix) else { return Ok(self.cut(position, prefix)) };
        let Some(bytes) = bytes(begin) else {
            let found = Excerpt::new(begin);
            self.start = self.end;
            self.skip_all()?;
            return Ok(Frame::Bad(position, Problem::NoRecord { found }));
        };
        self.fill_to(bytes)?;
        let unit = self.start..self.start + bytes;
        if unit.end > self.end {
            return Ok(self.cut(position, bytes));
        }
        self.start = unit.end;
        Ok(Frame::Unit(position, unit))
    }

    /// Reads until `bytes` bytes are in memory, or there are no more.
    fn fill_to(&mut self, bytes: usize) -> io::Result<()> {
        while self.end - self.start < bytes && !self.ended {
            self.fill()?;
        }
        Ok(())
    }

    fn cut(&mut self, position: Position, expected: usize) -> Frame {
        let found = self.end - self.start;
        self.start = self.end;
        Frame::Bad(position, Problem::CutRecord { found, expected })
    }

    fn skip_all(&mut self) -> io::Result<()> {
        while !self.ended {
            self.start = self.end;
            self.fill()?;
        }
        self.start = self.end;
        Ok(())
    }
}
