//! RAID 5 in the way of Linux's md: chunks of 64 KiB, parity left-symmetric.
//!
//! In stripe `s` of `n` disks, parity lies on disk `n - 1 - s mod n` and the data chunks follow it, wrapping around. So
//! a long read uses all disks. A write is planned stripe by stripe. A full stripe is written without reading; another
//! one in the way that needs fewer reads:
//!
//! - read-modify-write: reads the old data and the old parity of the changed part;
//! - reconstruct-write: reads the unchanged part.
//!
//! Writes are sent when all reads of the request are done; the request is complete when all its parts are. Not
//! modelled: a stripe cache, locks between requests to one stripe, a failed disk.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use smallvec::SmallVec;
use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES};

use super::{Completion, Device, DeviceStats, Op, Request, RequestId};

/// A member of an array.
type Member = Box<dyn Device + Send>;

/// Requests that an array works on at once.
const DEPTH: usize = 128;

/// A part of a request: adjacent sectors of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemberRange {
    disk: usize,
    start: u64,
    end: u64,
}

type Parts = SmallVec<[MemberRange; 8]>;

/// A request under way.
#[derive(Debug, Default)]
struct ArrayRequest {
    id: Option<RequestId>,
    outstanding: usize,
    /// What is written when all reads are done.
    writes: Parts,
}

/// An array of disks with rotating parity.
pub struct Raid5 {
    members: Vec<Member>,
    waiting: Vec<VecDeque<Request>>,
    work: Vec<ArrayRequest>,
    free: Vec<usize>,
    instant: VecDeque<Completion>,
    in_flight: usize,
    chunk: u64,
    capacity: u64,
    now: Nanos,
    finished: Vec<Completion>,
}

/// Adds a part, as one with the last of its disk if they are adjacent.
fn add(parts: &mut Parts, part: MemberRange) {
    if part.start >= part.end {
        return;
    }
    let before = parts.iter_mut().rev().find(|other| other.disk == part.disk);
    match before {
        Some(before) if before.end == part.start => before.end = part.end,
        _ => parts.push(part),
    }
}

impl Raid5 {
    /// An array of `members` (at least three, all alike) with chunks of `chunk`. With fewer than three there is no
    /// parity to rotate: none is added, and the capacity is that of two members' stripes.
    pub fn new(members: Vec<Member>, chunk: ByteSize) -> Raid5 {
        let chunk = (chunk.0 / SECTOR_BYTES).max(1);
        let smallest = members.iter().map(|member| member.capacity().0).min().unwrap_or(0);
        let data = members.len().saturating_sub(1) as u64;
        Raid5 {
            waiting: members.iter().map(|_| VecDeque::new()).collect(),
            work: Vec::new(),
            free: Vec::new(),
            instant: VecDeque::new(),
            in_flight: 0,
            chunk,
            capacity: smallest / chunk * chunk * data,
            now: Nanos(0),
            finished: Vec::new(),
            members,
        }
    }

    /// Makes the first `capacity` sectors all there is.
    #[must_use]
    pub fn with_capacity(mut self, capacity: Lba) -> Raid5 {
        self.capacity = self.capacity.min(capacity.0.max(1));
        self
    }

    fn data_disks(&self) -> u64 {
        self.members.len().saturating_sub(1).max(1) as u64
    }

    fn parity_disk(&self, stripe: u64) -> usize {
        let disks = self.members.len().max(1) as u64;
        (disks - 1 - stripe % disks) as usize
    }

    fn data_disk(&self, stripe: u64, index: u64) -> usize {
        (self.parity_disk(stripe) + 1 + index as usize) % self.members.len().max(1)
    }

    fn plan_read(&self, start: u64, end: u64) -> Parts {
        let mut parts = Parts::new();
        let mut at = start;
        while at < end {
            let (chunk, offset) = (at / self.chunk, at % self.chunk);
            let (stripe, index) = (chunk / self.data_disks(), chunk % self.data_disks());
            let here = (self.chunk - offset).min(end - at);
            let first = stripe * self.chunk + offset;
            add(&mut parts, MemberRange { disk: self.data_disk(stripe, index), start: first, end: first + here });
            at += here;
        }
        parts
    }

    /// What a write reads first, and what it then writes.
    fn plan_write(&self, start: u64, end: u64) -> (Parts, Parts) {
        let (mut reads, mut writes) = (Parts::new(), Parts::new());
        let stripe_sectors = self.chunk * self.data_disks();
        let mut at = start;
        while at < end {
            let stripe = at / stripe_sectors;
            let until = end.min((stripe + 1) * stripe_sectors);
            self.plan_stripe(
                stripe,
                at - stripe * stripe_sectors,
                until - stripe * stripe_sectors,
                &mut reads,
                &mut writes,
            );
            at = until;
        }
        (reads, writes)
    }

    /// Plans the sectors `from..to` of one stripe's data.
    fn plan_stripe(&self, stripe: u64, from: u64, to: u64, reads: &mut Parts, writes: &mut Parts) {
        let base = stripe * self.chunk;
        let touched = |index: u64| {
            let (first, last) = (index * self.chunk, (index + 1) * self.chunk);
            let (low, high) = (from.max(first), to.min(last));
            (low < high).then(|| (low - first, high - first))
        };
        let chunks = || (0..self.data_disks()).map(|index| (index, touched(index)));
        // The parity of a range of the chunk protects the same range of all chunks.
        let (mut low, mut high, mut changed, mut covered) = (self.chunk, 0, 0, 0);
        for (_, range) in chunks() {
            if let Some((first, last)) = range {
                (low, high) = (low.min(first), high.max(last));
                changed += 1;
            }
        }
        for (_, range) in chunks() {
            covered += u64::from(range.is_some_and(|(first, last)| first <= low && high <= last));
        }
        let part = |disk: usize, first: u64, last: u64| MemberRange { disk, start: base + first, end: base + last };
        let parity = part(self.parity_disk(stripe), low, high);
        let (modify, reconstruct) = (changed + 1, self.data_disks() - covered);
        for (index, range) in chunks() {
            let disk = self.data_disk(stripe, index);
            match range {
                Some((first, last)) if modify <= reconstruct => add(reads, part(disk, first, last)),
                Some((first, last)) if first <= low && high <= last => {}
                _ if modify <= reconstruct => {}
                _ => add(reads, part(disk, low, high)),
            }
            if let Some((first, last)) = range {
                add(writes, part(disk, first, last));
            }
        }
        if modify <= reconstruct {
            add(reads, parity);
        }
        add(writes, parity);
    }

    fn send(&mut self, slot: usize, op: Op, parts: &Parts) {
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let sectors = (part.end - at).min(u64::from(u32::MAX)) as u32;
                self.work[slot].outstanding += 1;
                self.waiting[part.disk].push_back(Request { id: RequestId(slot as u64), op, lba: Lba(at), sectors });
                at += u64::from(sectors);
            }
        }
    }

    fn dispatch(&mut self, now: Nanos) {
        for (member, waiting) in self.members.iter_mut().zip(&mut self.waiting) {
            while member.room() > 0 {
                let Some(request) = waiting.pop_front() else { break };
                member.submit(now, request);
            }
        }
    }

    fn part_done(&mut self, slot: usize, at: Nanos, done: &mut Vec<Completion>) {
        let Some(work) = self.work.get_mut(slot) else { return };
        work.outstanding = work.outstanding.saturating_sub(1);
        if work.outstanding > 0 {
            return;
        }
        let writes = std::mem::take(&mut work.writes);
        if !writes.is_empty() {
            self.send(slot, Op::Write, &writes);
            return;
        }
        if let Some(id) = work.id.take() {
            self.in_flight -= 1;
            self.free.push(slot);
            done.push(Completion { id, at });
        }
    }
}

impl Device for Raid5 {
    fn room(&self) -> usize {
        DEPTH.saturating_sub(self.in_flight)
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        self.now = self.now.max(now);
        self.in_flight += 1;
        let (start, end) = request.clamped(Lba(self.capacity));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.work.push(ArrayRequest::default());
            self.work.len() - 1
        });
        self.work[slot].id = Some(request.id);
        match request.op {
            Op::Read => {
                let parts = self.plan_read(start, end);
                self.send(slot, Op::Read, &parts);
            }
            Op::Write => {
                let (reads, writes) = self.plan_write(start, end);
                if reads.is_empty() {
                    self.send(slot, Op::Write, &writes);
                } else {
                    self.send(slot, Op::Read, &reads);
                    self.work[slot].writes = writes;
                }
            }
            Op::Flush => {
                self.work[slot].outstanding = self.members.len();
                for waiting in &mut self.waiting {
                    waiting.push_back(Request { id: RequestId(slot as u64), ..request });
                }
            }
            Op::Discard => {}
        }
        if self.work[slot].outstanding == 0 {
            self.work[slot].id = None;
            self.free.push(slot);
            self.instant.push_back(Completion { id: request.id, at: self.now });
        }
        self.dispatch(self.now);
    }

    fn next_event(&self) -> Option<Nanos> {
        let instant = self.instant.front().map(|completion| completion.at);
        self.members.iter().filter_map(|member| member.next_event()).chain(instant).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.next_event() {
            if at > now {
                break;
            }
            self.now = self.now.max(at);
            while self.instant.front().is_some_and(|completion| completion.at <= at) {
                done.extend(self.instant.pop_front());
                self.in_flight -= 1;
            }
            let mut finished = std::mem::take(&mut self.finished);
            for member in &mut self.members {
                if member.next_event().is_some_and(|next| next <= at) {
                    member.advance(at, &mut finished);
                }
            }
            for part in finished.drain(..) {
                self.part_done(part.id.0 as usize, at, done);
            }
            self.finished = finished;
            self.dispatch(self.now);
        }
        self.now = self.now.max(now);
    }

    fn capacity(&self) -> Lba {
        Lba(self.capacity)
    }

    /// The sum over its members; the parts of a request count here.
    fn stats(&self) -> DeviceStats {
        let mut sum = DeviceStats::default();
        for stats in self.members.iter().map(|member| member.stats()) {
            sum.reads += stats.reads;
            sum.writes += stats.writes;
            sum.sectors_read += stats.sectors_read;
            sum.sectors_written += stats.sectors_written;
            sum.busy = sum.busy + stats.busy;
            sum.seek_cylinders += stats.seek_cylinders;
            sum.seeks += stats.seeks;
            sum.erases += stats.erases;
            sum.boundary_crossings += stats.boundary_crossings;
            sum.pages_copied += stats.pages_copied;
        }
        sum
    }
}
