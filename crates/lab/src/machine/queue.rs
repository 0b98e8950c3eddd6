//! Between the page cache and the disk: pages wait here, adjacent ones become one request, and completions are split
//! into pages again.
//!
//! Reads go first; writes leave an eighth of the device's queue to them, as Linux's congestion threshold does. A page
//! becomes "under write-back" only when its request is made, not when a policy chose it. So a page that is rewritten or
//! deleted in between costs no second write.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use umbrella_model::device::{Completion, Device, DeviceStats, Op, Request, RequestId};
use umbrella_units::{BLOCK_SECTORS, BlockNo, Extent, Lba, Nanos, PageKey};

use crate::result::WriteWindows;

/// The largest request, in pages: 512 KiB, what Linux sends to a disk.
const LARGEST_REQUEST: usize = 128;

/// Why a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteReason {
    /// A threshold was passed.
    Threshold,
    /// It was dirty for too long.
    Expired,
    /// Memory was short.
    Reclaim,
    /// A client waits for it.
    Sync,
    /// The run is over.
    Drained,
}

/// A page that waits to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) page: PageKey,
    pub(crate) block: BlockNo,
    pub(crate) reason: WriteReason,
}

/// Pages that came in or went out with one request.
#[derive(Debug)]
pub(crate) struct FinishedRequest {
    pub(crate) write: bool,
    pub(crate) pages: Vec<PageKey>,
}

/// Requests to one device.
pub(crate) struct DiskQueue {
    device: Box<dyn Device>,
    dispatched: Rc<RefCell<WriteWindows>>,
    writes: VecDeque<Waiting>,
    urgent: VecDeque<Waiting>,
    reads: VecDeque<(Extent, Vec<PageKey>)>,
    /// Writes past the cache.
    through: VecDeque<(Extent, Vec<PageKey>)>,
    in_flight: Vec<Option<FinishedRequest>>,
    free: Vec<u64>,
    spare: Vec<Vec<PageKey>>,
    done: Vec<Completion>,
    largest_room: usize,
}

impl DiskQueue {
    /// A queue before `device`; `dispatched` sees what [`Tap`] sees below the scheduler.
    pub(crate) fn new(device: Box<dyn Device>, dispatched: Rc<RefCell<WriteWindows>>) -> DiskQueue {
        let largest_room = device.room().max(1);
        DiskQueue {
            device,
            dispatched,
            writes: VecDeque::new(),
            urgent: VecDeque::new(),
            reads: VecDeque::new(),
            through: VecDeque::new(),
            in_flight: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            done: Vec::new(),
            largest_room,
        }
    }

    /// Pages that wait to be written and are not yet part of a request.
    pub(crate) fn waiting_writes(&self) -> usize {
        self.writes.len() + self.urgent.len()
    }

    /// Whether nothing waits and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.writes.is_empty()
            && self.urgent.is_empty()
            && self.reads.is_empty()
            && self.through.is_empty()
            && self.free.len() == self.in_flight.len()
    }

    /// Queues a page. One that a client waits for goes before the others.
    pub(crate) fn write(&mut self, page: Waiting) {
        match page.reason {
            WriteReason::Sync => self.urgent.push_back(page),
            _ => self.writes.push_back(page),
        }
    }

    /// Writes a page that is not in the cache.
    pub(crate) fn write_through(&mut self, block: BlockNo, page: PageKey) {
        let mut list = self.spare.pop().unwrap_or_default();
        list.push(page);
        self.through.push_back((Extent { start: block, blocks: 1 }, list));
    }

    /// Reads adjacent blocks into `pages`, one a block.
    pub(crate) fn read(&mut self, start: BlockNo, pages: &[PageKey]) {
        let mut start = start;
        for part in pages.chunks(LARGEST_REQUEST) {
            let mut list = self.spare.pop().unwrap_or_default();
            list.extend_from_slice(part);
            let extent = Extent { start, blocks: part.len() as u64 };
            start = extent.end();
            self.reads.push_back((extent, list));
        }
    }

    /// When the device next has something to say.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    /// Hands over as many requests as the device has room for. `begin` says for each page whether it still has to be
    /// written.
    pub(crate) fn pump(&mut self, now: Nanos, mut begin: impl FnMut(&Waiting) -> bool) {
        while self.device.room() > 0
            && let Some((extent, pages)) = self.reads.pop_front()
        {
            self.submit(now, Op::Read, extent, FinishedRequest { write: false, pages });
        }
        while self.device.room() > 0
            && let Some((extent, pages)) = self.through.pop_front()
        {
            self.submit(now, Op::Write, extent, FinishedRequest { write: true, pages });
        }
        let reserve = self.largest_room / 8;
        while self.device.room() > reserve {
            let Some((extent, pages)) = self.next_write(&mut begin) else { break };
            self.submit(now, Op::Write, extent, FinishedRequest { write: true, pages });
        }
    }

    /// The next run of adjacent pages that all still have to be written.
    fn next_write(&mut self, begin: &mut impl FnMut(&Waiting) -> bool) -> Option<(Extent, Vec<PageKey>)> {
        let (first, queue) = loop {
            let queue = if self.urgent.is_empty() { &mut self.writes } else { &mut self.urgent };
            let first = queue.pop_front()?;
            if begin(&first) {
                let queue = if first.reason == WriteReason::Sync { &mut self.urgent } else { &mut self.writes };
                break (first, queue);
            }
        };
        let mut pages = self.spare.pop().unwrap_or_default();
        pages.push(first.page);
        while pages.len() < LARGEST_REQUEST
            && let Some(next) = queue.front().filter(|next| next.block.0 == first.block.0 + pages.len() as u64)
        {
            if !begin(next) {
                queue.pop_front();
                break;
            }
            pages.push(next.page);
            queue.pop_front();
        }
        Some((Extent { start: first.block, blocks: pages.len() as u64 }, pages))
    }

    fn submit(&mut self, now: Nanos, op: Op, extent: Extent, what: FinishedRequest) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() as u64 - 1
        });
        self.in_flight[id as usize] = Some(what);
        self.device.submit(
            now,
            Request { id: RequestId(id), op, lba: extent.start.lba(), sectors: (extent.blocks * BLOCK_SECTORS) as u32 },
        );
    }

    /// Lets the device work until `now`, and takes what completed.
    pub(crate) fn advance(&mut self, now: Nanos, arrived: &mut Vec<FinishedRequest>) {
        self.device.advance(now, &mut self.done);
        for completion in self.done.drain(..) {
            let id = completion.id.0;
            if let Some(what) = self.in_flight.get_mut(id as usize).and_then(Option::take) {
                self.free.push(id);
                arrived.push(what);
            }
        }
    }

    /// Gives a list back for reuse.
    pub(crate) fn recycle(&mut self, mut pages: Vec<PageKey>) {
        if self.spare.len() < 64 {
            pages.clear();
            self.spare.push(pages);
        }
    }

    /// The pages that are part of a write request, or written past the cache.
    pub(crate) fn being_written(&self) -> impl Iterator<Item = PageKey> {
        let in_flight = self.in_flight.iter().flatten().filter(|what| what.write).flat_map(|what| &what.pages);
        in_flight.chain(self.through.iter().flat_map(|(_, pages)| pages)).copied()
    }

    /// What the device did.
    pub(crate) fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    /// What was dispatched to it.
    pub(crate) fn windows(&self) -> WriteWindows {
        self.dispatched.borrow().clone()
    }
}

/// Stands between scheduler and device, and notes each write request as it is dispatched.
pub(crate) struct Tap {
    device: Box<dyn Device>,
    dispatched: Rc<RefCell<WriteWindows>>,
}

impl Tap {
    pub(crate) fn new(device: Box<dyn Device>, dispatched: Rc<RefCell<WriteWindows>>) -> Tap {
        Tap { device, dispatched }
    }
}

impl Device for Tap {
    fn room(&self) -> usize {
        self.device.room()
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        if request.op == Op::Write {
            let extent =
                Extent { start: request.lba.block(), blocks: u64::from(request.sectors).div_ceil(BLOCK_SECTORS) };
            self.dispatched.borrow_mut().record(now, extent);
        }
        self.device.submit(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.device.advance(now, done);
    }

    fn capacity(&self) -> Lba {
        self.device.capacity()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

#[cfg(test)]
mod tests {
    use umbrella_model::device::profiles::{Options, profile};

    use super::*;

    #[test]
    fn pages_that_nobody_needs_any_more_hide_no_others() {
        let disk = profile("cheetah_10k7").expect("a profile").build(&Options::default());
        let mut queue = DiskQueue::new(disk, Rc::default());
        let waiting = |block, reason| Waiting { page: PageKey::device(BlockNo(block)), block: BlockNo(block), reason };
        queue.write(waiting(1, WriteReason::Sync));
        queue.write(waiting(2, WriteReason::Threshold));
        queue.pump(Nanos(0), |page| page.reason != WriteReason::Sync);
        assert_eq!(queue.being_written().collect::<Vec<_>>(), [PageKey::device(BlockNo(2))]);
        assert_eq!(queue.waiting_writes(), 0);
    }
}
