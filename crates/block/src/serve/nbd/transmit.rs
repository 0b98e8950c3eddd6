//! The transmission phase: threads that take turns to lead, see the module above.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use umbrella_units::{SECTOR_BYTES, SectorRange};

use super::budget::{Account, FREE, Permit};
use super::errors::{Broken, Ended};
use super::input::{Input, LARGEST};
use super::negotiate::Session;
use super::output::{Output, PIECE};
use super::perform::RequestOutcome;
use super::shared::ServerShared;
use super::socket::Socket;
use super::wire::reply::ErrorCode;
use super::wire::request::{Command, REQUEST_BYTES, Request};
use super::wire::{CommandFlags, MAX_TRANSFER};
use crate::file::{AlignedBuffer, Allocation, Cache, FileDevice};

/// The most threads that a connection has.
const MAX_THREADS: u32 = 32;
/// The part of a file that is read and sent at once in chunks.
const CHUNK: u64 = FREE as u64;
/// Reads of files from this length on leave out holes.
const SPARSE: u32 = 64 << 10;
/// A write to the page cache that took this long was held back, or had to read.
const SLOW_WRITE: Duration = Duration::from_millis(1);
/// Number of writes that are handed on afterwards, before one is tried at once again.
const HANDED_ON_WRITES: u32 = 64;

/// A request whose thread does not lead any more, with the memory that it may use.
struct Job<'a> {
    request: Request,
    range: SectorRange,
    _memory: Permit<'a>,
}

/// See the module.
pub(super) struct Transmission<'c> {
    session: Session<'c>,
    socket: &'c Socket,
    shared: &'c ServerShared,
    /// Held by the leader.
    input: Mutex<Input>,
    output: Mutex<Output<'c>>,
    /// How many threads wait for the lead, and how many there are.
    waiting: AtomicU32,
    threads: AtomicU32,
    most_threads: u32,
    account: Account<'c>,
    /// Cached writes that are still to be handed on.
    writes_to_hand_on: AtomicU32,
    over: AtomicBool,
    ended: Mutex<Option<Ended>>,
}

impl<'c> Transmission<'c> {
    pub(super) fn new(
        session: Session<'c>,
        socket: &'c Socket,
        shared: &'c ServerShared,
        input: Input,
    ) -> Transmission<'c> {
        Transmission {
            session,
            socket,
            shared,
            input: Mutex::new(input),
            output: Mutex::new(Output::new(socket)),
            waiting: AtomicU32::new(0),
            threads: AtomicU32::new(1),
            most_threads: session.export.device().geometry().queue_depth.clamp(1, MAX_THREADS),
            account: shared.budget.account(),
            writes_to_hand_on: AtomicU32::new(0),
            over: AtomicBool::new(false),
            ended: Mutex::new(None),
        }
    }

    /// Serves requests until one side ends it; those under way are answered first.
    pub(super) fn run(self) -> Ended {
        std::thread::scope(|scope| self.work(scope));
        self.ended.into_inner().unwrap_or(Ended::Closed)
    }

    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let mut data = AlignedBuffer::default();
        loop {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let mut input = self.input.lock();
            let alone = self.waiting.fetch_sub(1, Ordering::Relaxed) == 1;
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let job = match self.lead(&mut input, &mut data) {
                Ok(job) => job,
                Err(ended) => return self.end(ended),
            };
            drop(input);
            if alone && self.threads.load(Ordering::Relaxed) < self.most_threads {
                self.follow(scope);
            }
            if let Err(ended) = self.finish(&job, &mut data) {
                return self.end(ended);
            }
        }
    }

    /// Adds a thread, if the system has one to give.
    fn follow<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let thread = std::thread::Builder::new().name("nbd".to_owned());
        if thread.spawn_scoped(scope, move || self.work(scope)).is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn end(&self, ended: Ended) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes a leader that waits for a request; answers under way still leave.
        self.socket.stop_receiving();
        let _ = self.ended.lock().get_or_insert(ended);
    }

    /// Reads requests and answers those that take no waiting; returns the first one that does, with a write's data in
    /// `data`.
    fn lead(&self, input: &mut Input, data: &mut AlignedBuffer) -> Result<Job<'_>, Ended> {
        let mut answered = 0;
        loop {
            let request = self.next(input, &mut answered)?;
            answered += 1;
            let payload = request.payload();
            if payload > MAX_TRANSFER as usize {
                return Err(Ended::Protocol(Broken::LongWrite(request.length)));
            }
            let range = match self.session.check(&request) {
                Ok(range) => range,
                Err(code) => {
                    self.skip(input, payload, data)?;
                    self.refuse(&request, code)?;
                    continue;
                }
            };
            self.shared.count(&request);
            if self.try_immediately(&request, range, input)? {
                continue;
            }
            let memory = self.memory(request.length as usize, request.command)?;
            if payload > 0 {
                input.fill(data.room(payload), self.socket, self.shared.limits.pause)?;
            }
            let job = Job { request, range, _memory: memory };
            if self.most_threads > 1 {
                self.output.lock().flush()?;
                return Ok(job);
            }
            self.execute(&job, data)?;
        }
    }

    /// Waits for a request. Answers that wait leave before that.
    fn next(&self, input: &mut Input, answered: &mut u32) -> Result<Request, Ended> {
        loop {
            if self.over.load(Ordering::Relaxed) || self.shared.is_stopping() {
                self.output.lock().flush()?;
                return Err(Ended::Stopped);
            }
            if let Some(bytes) = input.peek::<REQUEST_BYTES>() {
                let request = Request::parse(bytes).ok_or(Ended::Protocol(Broken::RequestMagic))?;
                input.consume(REQUEST_BYTES);
                if request.command == Command::Disconnect {
                    self.output.lock().flush()?;
                    return Err(Ended::Closed);
                }
                return Ok(request);
            }
            self.output.lock().flush()?;
            input.note(std::mem::take(answered));
            match input.receive(self.socket) {
                // A client may be silent between requests for as long as it likes.
                Err(Ended::Io(error)) if is_timeout(&error) && input.buffered().is_empty() => {}
                Err(Ended::Io(error)) if is_timeout(&error) => return Err(Ended::Stalled(self.shared.limits.pause)),
                received => received?,
            }
        }
    }

    /// Answers a request on the leading thread if that needs no waiting. Returns whether it did.
    fn try_immediately(&self, request: &Request, range: SectorRange, input: &mut Input) -> Result<bool, Ended> {
        let length = request.length as usize;
        let device = self.session.export.device();
        let cached = self.session.export.file().filter(|file| file.cache() == Cache::Page);
        let serial = self.most_threads == 1;
        match request.command {
            Command::Read if length == 0 => {
                self.session.answer_empty(&mut self.output.lock(), request.cookie)?;
                Ok(true)
            }
            Command::Read if length <= PIECE && serial => {
                let read = |room: &mut [u8]| match device.read(range.start, room) {
                    Ok(()) => Ok(true),
                    Err(error) => Err(self.session.failed(&error)),
                };
                self.session.answer_in_place(&mut self.output.lock(), request, read)
            }
            Command::Read if length <= PIECE => {
                let Some(file) = cached else { return Ok(false) };
                let read =
                    |room: &mut [u8]| file.read_cached(range.start, room).map_err(|error| self.session.failed(&error));
                self.session.answer_in_place(&mut self.output.lock(), request, read)
            }
            Command::Write if length <= LARGEST => {
                if !serial && (cached.is_none() || !self.takes_writes_at_once(request)) {
                    return Ok(false);
                }
                let payload = input.complete(length, self.socket, self.shared.limits.pause)?;
                let outcome = self.write_at_once(request, range, payload, serial);
                input.consume(length);
                self.session.answer(&mut self.output.lock(), request.cookie, &outcome)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn write_at_once(&self, request: &Request, range: SectorRange, payload: &[u8], serial: bool) -> RequestOutcome {
        if serial {
            return self.session.perform(request, range, payload);
        }
        let begun = Instant::now();
        let outcome = self.session.perform(request, range, payload);
        if begun.elapsed() > SLOW_WRITE {
            self.writes_to_hand_on.store(HANDED_ON_WRITES, Ordering::Relaxed);
        }
        outcome
    }

    /// Whether a write to the page cache is worth trying without handing it on: others do not wait behind it for long.
    fn takes_writes_at_once(&self, request: &Request) -> bool {
        let left = self.writes_to_hand_on.load(Ordering::Relaxed);
        self.writes_to_hand_on.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0 && !request.flags.contains(CommandFlags::FUA)
    }

    /// Takes memory for a large transfer. Answers that wait leave before that, since it may last.
    fn memory(&self, length: usize, command: Command) -> Result<Permit<'_>, Ended> {
        let moves = matches!(command, Command::Read | Command::Write);
        let length = if moves { length } else { 0 };
        if length > FREE {
            self.output.lock().flush()?;
        }
        Ok(self.account.take(length))
    }

    fn refuse(&self, request: &Request, code: ErrorCode) -> Result<(), Ended> {
        self.session.answer(&mut self.output.lock(), request.cookie, &RequestOutcome::Failed(code))
    }

    /// Reads over the data of a write that is refused.
    fn skip(&self, input: &mut Input, mut bytes: usize, data: &mut AlignedBuffer) -> Result<(), Ended> {
        while bytes > 0 {
            let part = bytes.min(PIECE);
            input.fill(data.room(part), self.socket, self.shared.limits.pause)?;
            bytes -= part;
        }
        Ok(())
    }

    /// Carries out a request after giving up the lead.
    fn finish(&self, job: &Job<'_>, data: &mut AlignedBuffer) -> Result<(), Ended> {
        self.execute(job, data)?;
        self.output.lock().flush()
    }

    fn execute(&self, job: &Job<'_>, data: &mut AlignedBuffer) -> Result<(), Ended> {
        let Job { request, range, .. } = job;
        let carried_out = if request.command == Command::Read {
            self.read(request, *range, data)
        } else {
            let payload = data.as_slice().get(..request.payload()).unwrap_or_default();
            let outcome = self.session.perform(request, *range, payload);
            self.session.answer(&mut self.output.lock(), request.cookie, &outcome)
        };
        if data.len() > FREE {
            *data = AlignedBuffer::default(); // It belongs to the budget.
        }
        carried_out
    }

    fn read(&self, request: &Request, range: SectorRange, data: &mut AlignedBuffer) -> Result<(), Ended> {
        let in_pieces = self.session.structured
            && !request.flags.contains(CommandFlags::DF)
            && request.length >= SPARSE
            && self.session.export.has_extents();
        if let Some(file) = self.session.export.file().filter(|_| in_pieces) {
            return self.read_in_pieces(file, request, range, data);
        }
        let length = request.length as usize;
        let room = data.room(length);
        match self.session.export.device().read(range.start, room) {
            Ok(()) => self.session.answer_with(&mut self.output.lock(), request, room),
            Err(error) => self.refuse(request, self.session.failed(&error)),
        }
    }

    /// Reads a file piece by piece, and leaves out its holes; other answers may leave between the pieces.
    fn read_in_pieces(
        &self,
        file: &FileDevice,
        request: &Request,
        range: SectorRange,
        data: &mut AlignedBuffer,
    ) -> Result<(), Ended> {
        let failed = |error| self.refuse(request, self.session.failed(&error));
        let extents = match file.extents(range) {
            Ok(extents) => extents,
            Err(error) => return failed(error),
        };
        for extent in extents {
            match extent {
                Ok((hole, Allocation::Hole)) => {
                    self.session.answer_hole(&mut self.output.lock(), request.cookie, hole)?;
                }
                Ok((extent, Allocation::Data)) => {
                    let mut at = extent.start;
                    while at < extent.end() {
                        let piece = SectorRange { start: at, sectors: CHUNK / SECTOR_BYTES }.intersection(extent);
                        let length = piece.bytes().0 as usize;
                        let room = data.room(length);
                        if let Err(error) = self.session.export.device().read(piece.start, room) {
                            return failed(error);
                        }
                        self.session.answer_piece(&mut self.output.lock(), request.cookie, piece, room)?;
                        at = piece.end();
                    }
                }
                Err(error) => return failed(error),
            }
        }
        self.session.answer_empty(&mut self.output.lock(), request.cookie)
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}
