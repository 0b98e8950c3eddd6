//! Puts records into the order of time within a window, finds times that cannot be, and counts from the first record.
//!
//! Recorders write a request when it completes, or from several CPUs, so neighbours in a trace are often swapped. The
//! window holds a bounded number of records, oldest first; what is older than a record that has already left it comes
//! too late. A record whose time lies far from both its neighbours' has a corrupt time (one bad line in a recording of
//! months): it is counted and left out. When the records after it are as far away, the clock itself jumped, and that is
//! an error.

use std::collections::VecDeque;

use umbrella_units::Nanos;

use super::Record;
use super::problem::Position;

/// A record and where it came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) record: Record,
    pub(super) position: Position,
}

/// What leaves the window.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ordered {
    /// The next record in the order of time.
    Record(Record),
    /// A record alone with a time far from all others.
    LoneTime(Position, Nanos),
    /// A jump that the trace continues after.
    Jump(Position, Nanos),
}

/// A record that came too late; its time, and the time that was reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct TooLate {
    pub(super) time: Nanos,
    pub(super) latest: Nanos,
}

/// The window.
#[derive(Debug)]
pub(super) struct Window {
    waiting: VecDeque<Placed>,
    limit: usize,
    max_gap: Nanos,
    left: Option<Nanos>,
}

/// Records that must be visible to judge a gap before one.
const AHEAD: usize = 2;

impl Window {
    pub(super) fn new(limit: usize, max_gap: Nanos) -> Self {
        Self { waiting: VecDeque::new(), limit: limit.max(AHEAD), max_gap, left: None }
    }

    /// Takes a record in.
    pub(super) fn push(&mut self, placed: Placed) -> Result<(), TooLate> {
        let time = placed.record.time;
        if let Some(latest) = self.left.filter(|latest| time < *latest) {
            return Err(TooLate { time, latest });
        }
        if self.waiting.back().is_none_or(|last| last.record.time <= time) {
            self.waiting.push_back(placed);
        } else {
            let after = self.waiting.partition_point(|other| other.record.time <= time);
            self.waiting.insert(after, placed);
        }
        Ok(())
    }

    /// The oldest record, when the window is full or (`last`) no more will come.
    pub(super) fn pop(&mut self, last: bool) -> Option<Ordered> {
        if !last && self.waiting.len() <= self.limit {
            return None;
        }
        let oldest = self.waiting.pop_front()?;
        let time = oldest.record.time;
        let ahead = |position: usize| self.waiting.get(position).map(|next| next.record.time);
        match self.left {
            Some(left) if time - left > self.max_gap => {
                let alone = ahead(0).is_none_or(|next| next - time > self.max_gap);
                if alone {
                    return Some(Ordered::LoneTime(oldest.position, time - left));
                }
                self.left = Some(time);
                Some(Ordered::Jump(oldest.position, time - left))
            }
            None => {
                let gap = ahead(0).map(|next| next - time).filter(|gap| *gap > self.max_gap);
                let others_agree = ahead(0).zip(ahead(1)).is_some_and(|(next, then)| then - next <= self.max_gap);
                if let Some(gap) = gap.filter(|_| others_agree) {
                    return Some(Ordered::LoneTime(oldest.position, gap));
                }
                self.left = Some(time);
                Some(Ordered::Record(oldest.record))
            }
            Some(_) => {
                self.left = Some(time);
                Some(Ordered::Record(oldest.record))
            }
        }
    }
}
