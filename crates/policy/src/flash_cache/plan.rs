//! The flush plan: which parts of the log are read into which buffer, and which of their sectors are written where.
//!
//! A plan is asked for chunk by chunk, so it needs no memory for a large log, and the log may grow meanwhile. It covers
//! what was in the log when it was made, and `whole` leaves out what was replaced since. A chunk fits into its buffer.
//! With one buffer, a chunk is read, then written, then the next is read. With two, the next one is read while this one
//! is written.
//!
//! Algorithms 2 to 4 read as much as the buffer holds in one read. A request that is cut by its end is ignored, and
//! read again with the next chunk; one that is larger than a buffer goes in parts. (Section 2.3.)

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::algorithm::Algorithm;
use super::log::{Log, Logged};
use super::map::{CachedExtent, LogMap, LogSector, Source};

/// One read from flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashRead {
    /// From where in the log; it does not run over the end.
    pub at: LogSector,
    /// How many sectors.
    pub sectors: u64,
    /// To where in the buffer, in sectors.
    pub buffer: u64,
}

/// A piece of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteSource {
    /// From there in the buffer, in sectors.
    Buffer {
        /// The first sector.
        from: u64,
        /// How many.
        sectors: u64,
    },
    /// This number of sectors of zeroes.
    Zeroes(u64),
}

/// One write to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskWrite {
    /// Where.
    pub range: SectorRange,
    /// The sources of its data, in order; together as long as the range.
    pub parts: Vec<WriteSource>,
}

/// What goes through a buffer at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlushChunk {
    /// Flash is read so.
    pub reads: Vec<FlashRead>,
    /// Then the disk is written so, in this order.
    pub writes: Vec<DiskWrite>,
    /// When the writes are durable, all that begins before this in the log is on the disk.
    pub done: Option<LogSector>,
}

/// Makes the chunks of one flush.
#[derive(Debug, Clone)]
pub struct FlushPlanner {
    algorithm: Algorithm,
    /// Sectors of a buffer.
    buffer: u64,
    until: LogSector,
    /// The number of the next request in log order, and how many sectors of it have been dealt with.
    next: u64,
    part: u64,
    /// `whole`: the next address.
    lba: Lba,
}

impl FlushPlanner {
    /// A plan for what the log holds now, with this memory for all buffers together.
    pub fn new(algorithm: Algorithm, memory: ByteSize, log: &Log) -> FlushPlanner {
        let buffer = (memory.0 / SECTOR_BYTES / algorithm.buffers()).max(1);
        FlushPlanner { algorithm, buffer, until: log.committed(), next: 0, part: 0, lba: Lba(0) }
    }

    /// The same for the oldest part only: what begins before `end` in the log. The plan ends where a record does.
    #[must_use]
    pub fn up_to(self, end: LogSector, log: &Log) -> FlushPlanner {
        let until = log.requests(0).map(|(_, logged)| logged.begin()).find(|begin| *begin >= end);
        FlushPlanner { until: until.map_or(self.until, |until| until.min(self.until)), ..self }
    }

    /// What is before this in the log is on the disk when the plan has come to its end.
    pub fn until(&self) -> LogSector {
        self.until
    }

    /// The next chunk; nothing when all is planned. The log may have got more and may have been released up to `done`
    /// meanwhile.
    pub fn next_chunk(&mut self, log: &Log) -> Option<FlushChunk> {
        match self.algorithm {
            Algorithm::Whole => self.next_sorted(log.map()),
            _ => self.next_in_log_order(log),
        }
    }

    fn next_in_log_order(&mut self, log: &Log) -> Option<FlushChunk> {
        let until = self.until;
        let mut waiting = log.requests(self.next).take_while(|(_, logged)| logged.source.at() < until).peekable();
        let (number, request) = waiting.next()?;
        if self.part > 0 || u64::from(request.metadata) + request.data() > self.buffer {
            let chunk = self.next_part(&request);
            self.next = number + u64::from(self.part == 0);
            return Some(self.finished_before(waiting.peek(), chunk));
        }
        let mut taken = vec![request];
        if self.algorithm != Algorithm::Alg1 {
            let begin = request.begin();
            let lap = begin.0 / log.size();
            let fits = |(_, logged): &(u64, Logged)| {
                logged.end().0 - begin.0 <= self.buffer && logged.source.at().0 / log.size() == lap
            };
            while let Some((_, logged)) = waiting.next_if(fits) {
                taken.push(logged);
            }
        }
        self.next = number + taken.len() as u64;
        let mut chunk = self.chunk_of(&taken);
        if self.algorithm != Algorithm::Alg1
            && waiting.peek().is_some()
            && let Some(read) = chunk.reads.first_mut()
        {
            let end_of_lap = log.size() - read.at.0 % log.size();
            read.sectors = self.buffer.min(end_of_lap).min(self.until.0 - read.at.0);
        }
        Some(self.finished_before(waiting.peek(), chunk))
    }

    /// All is done before the next request, if none is done in part.
    fn finished_before(&self, next: Option<&(u64, Logged)>, mut chunk: FlushChunk) -> FlushChunk {
        if self.part == 0 {
            chunk.done = Some(next.map_or(self.until, |(_, logged)| logged.begin().min(self.until)));
        }
        chunk
    }

    /// A chunk of whole requests that lie one behind the other.
    fn chunk_of(&self, taken: &[Logged]) -> FlushChunk {
        let mut chunk = FlushChunk::default();
        let data = || taken.iter().filter(|logged| logged.data() > 0);
        let Some(begin) = data().map(Logged::begin).min() else {
            chunk.writes.extend(taken.iter().map(|logged| whole_write(logged, LogSector(0))));
            return chunk;
        };
        let end = data().map(Logged::end).max().unwrap_or(begin);
        chunk.reads.push(FlashRead { at: begin, sectors: end.0 - begin.0, buffer: 0 });
        if self.algorithm == Algorithm::Alg4 {
            let mut newest = LogMap::default();
            for logged in taken {
                newest.insert(logged.range, logged.source);
            }
            for piece in newest.pieces_from(Lba(0)) {
                join(&mut chunk.writes, piece, |at| at.0 - begin.0);
            }
        } else {
            chunk.writes.extend(taken.iter().map(|logged| whole_write(logged, begin)));
        }
        chunk
    }

    /// The next part of a request that is larger than a buffer.
    fn next_part(&mut self, request: &Logged) -> FlushChunk {
        let metadata = if self.part == 0 { u64::from(request.metadata).min(self.buffer - 1) } else { 0 };
        let sectors = (self.buffer - metadata).min(request.range.sectors - self.part);
        let data_at = request.source.at().0 + self.part;
        let read = FlashRead { at: LogSector(data_at - metadata), sectors: metadata + sectors, buffer: 0 };
        let range = SectorRange { start: Lba(request.range.start.0 + self.part), sectors };
        self.part += sectors;
        if self.part == request.range.sectors {
            self.part = 0;
        }
        let write = DiskWrite { range, parts: vec![WriteSource::Buffer { from: metadata, sectors }] };
        FlushChunk { reads: vec![read], writes: vec![write], done: None }
    }

    /// The next chunk in order of address, of the newest data only.
    fn next_sorted(&mut self, map: &LogMap) -> Option<FlushChunk> {
        let mut chunk = FlushChunk::default();
        let mut filled = 0;
        for piece in map.pieces_from(self.lba).filter(|piece| piece.source.at() < self.until) {
            let room = self.buffer - filled;
            let in_buffer = matches!(piece.source, Source::Log(_));
            if in_buffer && room == 0 {
                break;
            }
            let sectors = if in_buffer { piece.range.sectors.min(room) } else { piece.range.sectors };
            let cut = CachedExtent { range: SectorRange { sectors, ..piece.range }, ..piece };
            join(&mut chunk.writes, cut, |_| filled);
            if let Source::Log(at) = piece.source {
                match chunk.reads.last_mut() {
                    // A run that crosses the end of the log is two pieces already: they were two records.
                    Some(read) if read.at.0 + read.sectors == at.0 => read.sectors += sectors,
                    _ => chunk.reads.push(FlashRead { at, sectors, buffer: filled }),
                }
                filled += sectors;
            }
            self.lba = cut.range.end();
            if sectors < piece.range.sectors {
                break;
            }
        }
        (!chunk.writes.is_empty()).then_some(chunk)
    }
}

fn part_of(source: Source, sectors: u64, buffer: impl Fn(LogSector) -> u64) -> WriteSource {
    match source {
        Source::Log(at) => WriteSource::Buffer { from: buffer(at), sectors },
        Source::Zeroes(_) => WriteSource::Zeroes(sectors),
    }
}

fn whole_write(logged: &Logged, begin: LogSector) -> DiskWrite {
    let part = part_of(logged.source, logged.range.sectors, |at| at.0 - begin.0);
    DiskWrite { range: logged.range, parts: vec![part] }
}

/// Adds a piece to the write before it where they are adjacent.
fn join(writes: &mut Vec<DiskWrite>, piece: CachedExtent, buffer: impl Fn(LogSector) -> u64) {
    let part = part_of(piece.source, piece.range.sectors, buffer);
    match writes.last_mut() {
        Some(write) if write.range.end() == piece.range.start => {
            write.range.sectors += piece.range.sectors;
            match (write.parts.last_mut(), part) {
                (Some(WriteSource::Buffer { from, sectors }), WriteSource::Buffer { from: next, sectors: more })
                    if *from + *sectors == next =>
                {
                    *sectors += more;
                }
                (Some(WriteSource::Zeroes(sectors)), WriteSource::Zeroes(more)) => *sectors += more,
                _ => write.parts.push(part),
            }
        }
        _ => writes.push(DiskWrite { range: piece.range, parts: vec![part] }),
    }
}
