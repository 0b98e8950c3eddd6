//! What a store is asked for.

use std::sync::Arc;

use umbrella_units::{BlockNo, Extent, Pages};

use super::error::LogError;
use crate::trace::{Skipped, TraceOp};

/// A request, of packed blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub op: TraceOp,
    /// With which blocks; never none.
    pub extent: Extent,
}

/// Requests for blocks that are numbered without gaps.
#[derive(Debug, Clone)]
pub struct LogInput {
    /// What it is called in results.
    pub name: String,
    /// What was left out of the trace that it is.
    pub skipped: Skipped,
    /// How many disks it is of; they lie one behind the other.
    pub disks: usize,
    requests: Arc<[Request]>,
    blocks: Pages,
    /// Blocks that hold nothing at the beginning.
    empty: Arc<[bool]>,
    most_live: Pages,
}

/// Fewer segments make the open ones a large part of the log.
const SEGMENTS: u64 = 2048;
const LARGEST_SEGMENT: u64 = 256;
const SMALLEST_SEGMENT: u64 = 8;
/// Less data than this fills only 512 of the smallest segments.
const LEAST: Pages = Pages(4096);
const MOST: Pages = Pages(1 << 30);

impl LogInput {
    /// These requests for the first `blocks` blocks; what lies beyond them is cut off.
    pub fn new(name: &str, requests: Vec<Request>, blocks: Pages) -> Result<LogInput, LogError> {
        let input = || name.to_owned();
        if blocks > MOST {
            return Err(LogError::TooLarge { input: input(), pages: blocks, most: MOST });
        }
        let within = |mut request: Request| {
            let left = blocks.0.checked_sub(request.extent.start.0)?;
            request.extent.blocks = request.extent.blocks.min(left);
            (request.extent.blocks > 0).then_some(request)
        };
        let requests: Arc<[Request]> = requests.into_iter().filter_map(within).collect();
        if !requests.iter().any(|request| request.op == TraceOp::Write) {
            return Err(LogError::NoWrites { input: input() });
        }
        let (empty, most_live) = life(&requests, blocks);
        if most_live < LEAST {
            return Err(LogError::TooSmall { input: input(), pages: most_live, least: LEAST });
        }
        Ok(LogInput {
            name: input(),
            skipped: Skipped::default(),
            disks: 1,
            requests,
            blocks,
            empty: empty.into(),
            most_live,
        })
    }

    /// How many requests it has.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none; never.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many blocks are ever read or written.
    pub fn blocks(&self) -> Pages {
        self.blocks
    }

    /// How many blocks hold data at a time, at most: all, but for those that are discarded.
    pub fn most_live(&self) -> Pages {
        self.most_live
    }

    /// The blocks that hold data at the beginning, as they will each time that the requests begin again: all but those that end discarded.
    pub(super) fn filled(&self) -> impl Iterator<Item = BlockNo> + '_ {
        let filled = self.empty.iter().enumerate().filter(|(_, empty)| !**empty);
        filled.map(|(block, _)| BlockNo(block as u64))
    }

    /// Blocks of a segment: the largest power of two up to 256 (1 MiB) of which the data fill 2,048, but at least 8.
    pub fn segment_blocks(&self) -> u32 {
        let fitting = (self.most_live.0 / SEGMENTS).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT);
        1 << fitting.ilog2()
    }

    /// The requests, from the beginning again and again.
    pub(super) fn endless(&self) -> impl Iterator<Item = Request> + '_ {
        self.requests.iter().copied().cycle()
    }

    /// The block numbers of a request.
    pub(super) fn blocks_of(request: &Request) -> impl Iterator<Item = BlockNo> + use<> {
        (request.extent.start.0..request.extent.end().0).map(BlockNo)
    }
}

/// Which blocks hold nothing when the requests have come to their end, and how many held something at a time, at most, when they begin from there.
fn life(requests: &[Request], blocks: Pages) -> (Vec<bool>, Pages) {
    let mut empty = vec![false; blocks.0 as usize];
    let pass = |empty: &mut Vec<bool>| {
        let mut live = empty.iter().filter(|empty| !**empty).count() as u64;
        let mut most = live;
        for request in requests.iter().filter(|request| request.op != TraceOp::Read) {
            let discard = request.op == TraceOp::Discard;
            for block in LogInput::blocks_of(request) {
                let Some(empty) = empty.get_mut(block.0 as usize).filter(|empty| **empty != discard) else { continue };
                *empty = discard;
                live = if discard { live - 1 } else { live + 1 };
            }
            most = most.max(live);
        }
        most
    };
    pass(&mut empty);
    let most = pass(&mut empty);
    (empty, Pages(most))
}
