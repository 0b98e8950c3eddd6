//! Opens a trace and gives its records one after the other, in the order of time.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbrella_units::Nanos;

use super::Record;
use super::compression::Compression;
use super::devices::Devices;
use super::error::TraceError;
use super::format::Format;
use super::frame::{Frame, Frames, Framing};
use super::input::{self, Counted, Source};
use super::order::{Ordered, Placed, Window};
use super::parquet::{FromFile, Rows};
use super::parse::{Event, Parse};
use super::problem::{Position, Problem};
use super::recording::{self, Merged};

/// What to do about records that are wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Any of them is an error.
    Strict,
    /// A record alone with a corrupt time is left out and counted; all else is an error.
    #[default]
    Normal,
    /// Lines that cannot be read and records that come too late are left out and counted as well; damaged compressed
    /// data end where they are damaged.
    Lenient,
}

/// In which order records are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Of time; a record may come this many records too late.
    Time {
        /// Records that wait.
        window: usize,
    },
    /// The order of the file. No record is sorted or refused by its time.
    File,
}

/// From when times count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeOrigin {
    /// From the first record.
    #[default]
    FirstRecord,
    /// As the format counts.
    AsRecorded,
}

/// How to read a trace.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The format; found out from the content if not given.
    pub format: Option<Format>,
    /// Which event of blkparse's text counts.
    pub event: Event,
    /// What to do about records that are wrong.
    pub strictness: Strictness,
    /// In which order records are given.
    pub order: Order,
    /// From when times count.
    pub origin: TimeOrigin,
    /// A longer time without a record is taken for a corrupt time.
    pub max_gap: Nanos,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            format: None,
            event: Event::Auto,
            strictness: Strictness::Normal,
            order: Order::Time { window: 1024 },
            origin: TimeOrigin::FirstRecord,
            max_gap: Nanos::from_secs(366 * 86_400),
        }
    }
}

/// What was left out, and the first place of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Lines that could not be read.
    pub malformed: u64,
    /// Records with a corrupt time.
    pub times: u64,
    /// Records that came too late.
    pub late: u64,
    /// Where the first of them is.
    pub first: Option<Position>,
    /// How many (decompressed) bytes came before the place where compressed data are cut or damaged; the rest is left
    /// out.
    pub cut_after: Option<u64>,
}

impl Skipped {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.malformed + self.times + self.late
    }

    fn note(&mut self, position: Position) {
        self.first.get_or_insert(position);
    }
}

/// How far a reader is in its file; may be asked from another thread.
#[derive(Debug, Clone)]
pub struct Progress {
    read: Arc<AtomicU64>,
    length: Option<u64>,
}

impl Progress {
    /// Bytes of the file (as it is stored) that were read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the file; `None` for pipes.
    pub fn length(&self) -> Option<u64> {
        self.length
    }
}

/// A trace that is being read. After an error it gives nothing more.
pub struct TraceReader {
    input: Input,
    format: Format,
    compression: Compression,
    devices: Devices,
    window: Option<Window>,
    strictness: Strictness,
    origin: Option<Nanos>,
    origin_rule: TimeOrigin,
    skipped: Skipped,
    progress: Progress,
    state: ReadState,
}

/// What records are made of.
enum Input {
    /// Lines or binary records.
    Units { frames: Frames, framing: Framing, parser: Box<dyn Parse> },
    /// Rows of columns.
    Rows(Box<Rows>),
}

/// Where a line, a binary record or a row is, and what it holds.
type Parsed = (Position, Result<Option<Record>, Problem>);

/// What the next record comes from.
enum ReadState {
    Records,
    Failed(TraceError),
    Ended,
}

/// Opens a file, pipe or character device. For a recording of blktrace (`sda.blktrace.0`) it reads the files
/// of all processors.
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<TraceReader, TraceError> {
    let path = path.as_ref();
    let (file, length) = input::open_file(path)?;
    let files = recording::files(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    if files.len() < 2 {
        let may_be_parquet = length.is_some() && options.format.is_none_or(|format| format == Format::Parquet);
        return if may_be_parquet { parquet_or_other(file, length, options) } else { reader(file, length, options) };
    }
    let read = Arc::new(AtomicU64::new(0));
    let (mut sources, mut all, mut compression) = (Vec::new(), Some(0), Compression::None);
    for path in files {
        let (file, length) = input::open_file(&path)?;
        all = all.and_then(|all: u64| all.checked_add(length?));
        let (source, packed) = decompressed(file, &read)?;
        sources.push(source);
        compression = packed;
    }
    let merged = Merged::new(sources).map_err(failed(compression, 0))?;
    of_source((Box::new(merged), compression), Progress { read, length: all }, options)
}

/// Parquet is read from its end, and so from the file itself.
fn parquet_or_other(file: File, length: Option<u64>, options: &OpenOptions) -> Result<TraceReader, TraceError> {
    let read = Arc::new(AtomicU64::new(0));
    match FromFile::of_file(file, &read).map_err(failed(Compression::None, 0))? {
        Ok(file) => {
            let input = Input::Rows(Box::new(Rows::new(file)?));
            Ok(of_input(input, Format::Parquet, Compression::None, Progress { read, length }, options))
        }
        Err(file) => reader(file, length, options),
    }
}

/// Reads from anything that gives bytes.
pub fn from_reader(source: impl Read + Send + 'static, options: &OpenOptions) -> Result<TraceReader, TraceError> {
    reader(source, None, options)
}

fn failed(compression: Compression, byte: u64) -> impl Fn(io::Error) -> TraceError {
    move |source| TraceError::Read { compression, byte, source }
}

fn decompressed(
    source: impl Read + Send + 'static,
    read: &Arc<AtomicU64>,
) -> Result<(Source, Compression), TraceError> {
    let counted = Counted { source, bytes: Arc::clone(read) };
    input::decompress(counted).map_err(failed(Compression::None, 0))
}

fn reader(
    source: impl Read + Send + 'static,
    length: Option<u64>,
    options: &OpenOptions,
) -> Result<TraceReader, TraceError> {
    let read = Arc::new(AtomicU64::new(0));
    of_source(decompressed(source, &read)?, Progress { read, length }, options)
}

fn of_source(
    (source, compression): (Source, Compression),
    progress: Progress,
    options: &OpenOptions,
) -> Result<TraceReader, TraceError> {
    let mut frames = Frames::new(source);
    let head = frames.head().map_err(failed(compression, 0))?;
    if head.is_empty() {
        return Err(TraceError::Empty);
    }
    let format = match options.format {
        Some(format) => format,
        None => Format::detect(head)?,
    };
    let input = if let Some(parser) = format.reader(options.event, head) {
        let framing = format.framing();
        if let Framing::Sized { text_until: Some(end), .. } = framing {
            frames.skip_past(end);
        }
        Input::Units { frames, framing, parser }
    } else {
        let byte = frames.read_bytes();
        let whole = frames.into_rest().and_then(|(head, rest)| FromFile::of_stream(head, rest));
        Input::Rows(Box::new(Rows::new(whole.map_err(failed(compression, byte))??)?))
    };
    Ok(of_input(input, format, compression, progress, options))
}

fn of_input(
    input: Input,
    format: Format,
    compression: Compression,
    progress: Progress,
    options: &OpenOptions,
) -> TraceReader {
    let window = match options.order {
        Order::Time { window } => Some(Window::new(window, options.max_gap)),
        Order::File => None,
    };
    TraceReader {
        input,
        format,
        compression,
        devices: Devices::default(),
        window,
        strictness: options.strictness,
        origin: None,
        origin_rule: options.origin,
        skipped: Skipped::default(),
        progress,
        state: ReadState::Records,
    }
}

impl TraceReader {
    /// The format it is read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Which of a request's events counts, where the format has several.
    pub fn event(&self) -> Option<Event> {
        match &self.input {
            Input::Units { parser, .. } => parser.event(),
            Input::Rows(_) => None,
        }
    }

    /// How it is compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The devices that were seen so far.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// What was left out so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The next record of the input, in the file's order.
    fn parse_next(&mut self) -> Result<Option<Placed>, TraceError> {
        loop {
            let Some((position, result)) = self.parse_one()? else { return Ok(None) };
            match result {
                Ok(Some(record)) => return Ok(Some(Placed { record, position })),
                Ok(None) => {}
                Err(problem) => self.malformed(position, problem)?,
            }
        }
    }

    /// The next line, binary record or row.
    fn parse_one(&mut self) -> Result<Option<Parsed>, TraceError> {
        let frame = match &mut self.input {
            Input::Rows(rows) => {
                let row = rows.next(&mut self.devices)?;
                return Ok(row.map(|(position, record)| (position, record.map(Some))));
            }
            Input::Units { frames, framing: Framing::Sized { prefix, bytes, .. }, .. } => {
                frames.record(*prefix, *bytes)
            }
            Input::Units { frames, framing: Framing::Lines, .. } => frames.line(),
        };
        let frame = match frame {
            Err(source) if self.ends_at(&source) => Frame::End,
            frame => frame.map_err(|source| failed(self.compression, self.read_bytes())(source))?,
        };
        Ok(match (frame, &mut self.input) {
            (Frame::Bad(position, problem), _) => Some((position, Err(problem))),
            (Frame::Unit(position, unit), Input::Units { frames, parser, .. }) => {
                let bytes = frames.bytes(unit);
                let parsed = if bytes.is_empty() { Ok(None) } else { parser.parse(bytes, &mut self.devices) };
                Some((position, parsed))
            }
            (Frame::End | Frame::Unit(..), _) => None,
        })
    }

    fn read_bytes(&self) -> u64 {
        match &self.input {
            Input::Units { frames, .. } => frames.read_bytes(),
            Input::Rows(_) => 0,
        }
    }

    /// Whether this failure is the end of a trace that need not be whole. A device that cannot be read is none.
    fn ends_at(&mut self, source: &io::Error) -> bool {
        let of_decoder = self.compression != Compression::None && source.raw_os_error().is_none();
        let ends = self.strictness == Strictness::Lenient && of_decoder;
        if ends {
            self.skipped.cut_after = Some(self.read_bytes());
        }
        ends
    }

    fn malformed(&mut self, position: Position, problem: Problem) -> Result<(), TraceError> {
        if self.strictness != Strictness::Lenient {
            return Err(TraceError::Malformed { position, format: self.format, problem });
        }
        self.skipped.malformed += 1;
        self.skipped.note(position);
        Ok(())
    }

    /// Takes one record from the input into the window.
    fn advance(&mut self) -> Result<(), TraceError> {
        let Some(placed) = self.parse_next()? else {
            self.state = ReadState::Ended;
            return Ok(());
        };
        let Some(window) = &mut self.window else { return Ok(()) };
        let Err(late) = window.push(placed) else { return Ok(()) };
        if self.strictness != Strictness::Lenient {
            return Err(TraceError::Unsorted { position: placed.position, time: late.time, latest: late.latest });
        }
        self.skipped.late += 1;
        self.skipped.note(placed.position);
        Ok(())
    }

    fn next_ordered(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let last = !matches!(self.state, ReadState::Records);
            match self.window.as_mut().and_then(|window| window.pop(last)) {
                Some(Ordered::Record(record)) => return Ok(Some(record)),
                Some(Ordered::LoneTime(position, gap)) if self.strictness == Strictness::Strict => {
                    return Err(TraceError::TimeJump { position, gap });
                }
                Some(Ordered::LoneTime(position, _)) => {
                    self.skipped.times += 1;
                    self.skipped.note(position);
                }
                Some(Ordered::Jump(position, gap)) => return Err(TraceError::TimeJump { position, gap }),
                None => match std::mem::replace(&mut self.state, ReadState::Ended) {
                    ReadState::Records => {
                        self.state = ReadState::Records;
                        // What waits in the window comes before the error that stopped the input.
                        if let Err(error) = self.advance() {
                            self.state = ReadState::Failed(error);
                        }
                    }
                    ReadState::Failed(error) => return Err(error),
                    ReadState::Ended => return Ok(None),
                },
            }
        }
    }

    fn next_in_file(&mut self) -> Result<Option<Record>, TraceError> {
        if matches!(self.state, ReadState::Ended) {
            return Ok(None);
        }
        let placed = self.parse_next()?;
        if placed.is_none() {
            self.state = ReadState::Ended;
        }
        Ok(placed.map(|placed| placed.record))
    }
}

impl Iterator for TraceReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = if self.window.is_some() { self.next_ordered() } else { self.next_in_file() };
        match next {
            Ok(record) => {
                let mut record = record?;
                if self.origin_rule == TimeOrigin::FirstRecord && self.window.is_some() {
                    let origin = *self.origin.get_or_insert(record.time);
                    record.time = record.time - origin;
                }
                Some(Ok(record))
            }
            Err(error) => {
                self.state = ReadState::Ended;
                self.window = None;
                Some(Err(error))
            }
        }
    }
}
