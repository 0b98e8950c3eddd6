//! The flush under way: what it wants of the flash and of the disk next.

use std::collections::VecDeque;

use umbrella_policy::flash_cache::{
    Algorithm, DiskWrite, FlashRead, FlushChunk, FlushPlanner, Log, LogSector, MOST_WRITE,
};
use umbrella_units::{ByteSize, Lba, SectorRange};

/// A chunk, and how much of it was asked for.
struct ChunkProgress {
    chunk: FlushChunk,
    /// The next read or write of it.
    next: usize,
    /// Sectors of that write which were asked for already.
    part: u64,
}

impl From<FlushChunk> for ChunkProgress {
    fn from(chunk: FlushChunk) -> ChunkProgress {
        ChunkProgress { chunk, next: 0, part: 0 }
    }
}

/// A part of one write of the plan.
pub(super) struct WritePart<'a> {
    /// Where.
    pub(super) range: SectorRange,
    /// The chunk and its write, if this is the first part of it.
    pub(super) begins: Option<(&'a FlushChunk, &'a DiskWrite)>,
}

/// See the module.
pub(super) struct Flush {
    /// Nothing once all is planned.
    planner: Option<FlushPlanner>,
    until: LogSector,
    buffers: usize,
    /// The chunk that is read from flash.
    reading: Option<ChunkProgress>,
    /// Chunks that are in memory and wait for the disk.
    filled: VecDeque<FlushChunk>,
    /// The chunk that is written.
    writing: Option<ChunkProgress>,
    pub(super) read_under_way: bool,
    pub(super) write_under_way: bool,
    pub(super) sync_under_way: bool,
}

impl Flush {
    pub(super) fn new(algorithm: Algorithm, memory: ByteSize, log: &Log) -> Flush {
        let planner = FlushPlanner::new(algorithm, memory, log);
        Flush {
            until: planner.until(),
            planner: Some(planner),
            buffers: usize::try_from(algorithm.buffers()).unwrap_or(usize::MAX),
            reading: None,
            filled: VecDeque::new(),
            writing: None,
            read_under_way: false,
            write_under_way: false,
            sync_under_way: false,
        }
    }

    /// What is before this in the log is on the disk when the flush has ended.
    pub(super) fn until(&self) -> LogSector {
        self.until
    }

    /// What is to be read from flash now. To be asked after [`Flush::next_write`], which frees buffers.
    pub(super) fn next_read(&mut self, log: &Log) -> Option<FlashRead> {
        while !self.read_under_way {
            let Some(step) = &mut self.reading else {
                let used = self.filled.len() + usize::from(self.writing.is_some());
                let planner = self.planner.as_mut().filter(|_| used < self.buffers)?;
                self.reading = planner.next_chunk(log).map(ChunkProgress::from);
                if self.reading.is_none() {
                    self.planner = None;
                }
                continue;
            };
            if let Some(read) = step.chunk.reads.get(step.next) {
                step.next += 1;
                self.read_under_way = true;
                return Some(*read);
            }
            self.filled.extend(self.reading.take().map(|step| step.chunk));
        }
        None
    }

    /// What is to be written to the disk now.
    pub(super) fn next_write(&mut self) -> Option<WritePart<'_>> {
        if self.write_under_way {
            return None;
        }
        // What was read last may be complete.
        if !self.read_under_way && self.reading.as_ref().is_some_and(|step| step.next == step.chunk.reads.len()) {
            self.filled.extend(self.reading.take().map(|step| step.chunk));
        }
        if self.writing.as_ref().is_some_and(|step| step.next == step.chunk.writes.len()) {
            self.writing = None;
        }
        if self.writing.is_none() {
            self.writing = self.filled.pop_front().map(ChunkProgress::from);
        }
        let step = self.writing.as_mut()?;
        let write = step.chunk.writes.get(step.next)?;
        let (start, left) = (Lba(write.range.start.0 + step.part), write.range.sectors - step.part);
        let range = SectorRange { start, sectors: left.min(MOST_WRITE) };
        let begins = (step.part == 0).then_some((&step.chunk, write));
        (step.next, step.part) =
            if range.sectors == left { (step.next + 1, 0) } else { (step.next, step.part + range.sectors) };
        self.write_under_way = true;
        Some(WritePart { range, begins })
    }

    /// Whether all is read and written.
    pub(super) fn is_written(&self) -> bool {
        let at_rest = !self.read_under_way && !self.write_under_way && !self.sync_under_way;
        self.planner.is_none() && at_rest && self.reading.is_none() && self.filled.is_empty() && self.writing.is_none()
    }
}
