//! What is to go wrong, and when.

use std::time::Duration;

use rustix::io::Errno;
use umbrella_units::{Lba, SectorRange};

use crate::error::Operation;

/// What a device does with writes that need not be durable yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriteCache {
    /// Passes them on at once.
    #[default]
    Through,
    /// Holds them back until a flush, so that a power cut can lose them. Reads see them. Makes calls one after another.
    Volatile,
}

/// What becomes of writes that no flush has covered when the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unflushed {
    /// All of them land.
    Kept,
    /// None does.
    Dropped,
    /// The seed decides for each whether it lands, does not, or which of its blocks do.
    Torn,
}

/// When the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// While the call is under way: it fails, and a write is one of those that were not flushed.
    During,
    /// After it has ended as it would have.
    After,
}

/// What can happen to any call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// It fails and changes nothing. A flush that fails makes the device refuse writes from then on.
    Error(Errno),
    /// The power is cut: this call, or the next one on, fails with `ENODEV`.
    PowerCut {
        /// When.
        moment: Moment,
        /// What is lost.
        unflushed: Unflushed,
    },
    /// It waits until [`release`](super::Faulty::release) is called or the power is cut.
    Hang,
    /// It takes longer.
    Delay(Duration),
}

/// What can happen to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// One bit of every sector in question is turned over; of one sector always the same.
    BitFlip,
    /// It fails with `EIO` until all of the sectors in question that it wants have been written again.
    Latent,
}

/// Which blocks of a write land.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TornWrite {
    /// None.
    Nothing,
    /// The first sectors, up to this number, rounded down to whole logical blocks.
    First(u64),
    /// Each or not, as the seed decides.
    Some,
}

/// What a write that did not land as it should returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// That all is well.
    Done,
    /// This.
    Error(Errno),
}

/// What can happen to a write of data or zeroes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteFault {
    /// A part of it lands: a short write, a torn write, a write that is lost.
    Partial {
        /// Which part.
        landed: TornWrite,
        /// What it returns.
        answer: Answer,
    },
    /// It lands elsewhere, and returns that all is well.
    Misdirected {
        /// Where.
        to: Lba,
    },
}

/// Which of the calls that a rule is for are struck. Calls are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    Always,
    Nth(u64),
    First(u64),
    From(u64),
    OneIn(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InjectedFault {
    Call(Option<Operation>, CallFault),
    Read(ReadFault),
    Write(WriteFault),
    LostFlush,
}

/// One fault. Strikes every call that it is for, unless limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub(super) fault: InjectedFault,
    pub(super) within: Option<SectorRange>,
    pub(super) when: Occurrence,
}

impl Rule {
    fn new(fault: InjectedFault) -> Rule {
        Rule { fault, within: None, when: Occurrence::Always }
    }

    /// For calls of all kinds.
    pub fn on_any(fault: CallFault) -> Rule {
        Rule::new(InjectedFault::Call(None, fault))
    }

    /// For reads, writes (of data or zeroes), flushes or discards.
    pub fn on(calls: Operation, fault: CallFault) -> Rule {
        Rule::new(InjectedFault::Call(Some(calls), fault))
    }

    /// For reads.
    pub fn on_read(fault: ReadFault) -> Rule {
        Rule::new(InjectedFault::Read(fault))
    }

    /// For writes of data or zeroes.
    pub fn on_write(fault: WriteFault) -> Rule {
        Rule::new(InjectedFault::Write(fault))
    }

    /// For flushes: they return that all is well, and do nothing.
    pub fn lost_flush() -> Rule {
        Rule::new(InjectedFault::LostFlush)
    }

    /// Only for calls that touch one of these sectors, which a flush never does.
    #[must_use]
    pub fn within(self, range: SectorRange) -> Rule {
        Rule { within: Some(range), ..self }
    }

    /// Only the n-th of them, from 1 on.
    #[must_use]
    pub fn nth(self, n: u64) -> Rule {
        Rule { when: Occurrence::Nth(n), ..self }
    }

    /// Only for the first `calls` of them.
    #[must_use]
    pub fn first(self, calls: u64) -> Rule {
        Rule { when: Occurrence::First(calls), ..self }
    }

    /// For the n-th of them and all later ones.
    #[must_use]
    pub fn from_nth(self, n: u64) -> Rule {
        Rule { when: Occurrence::From(n), ..self }
    }

    /// For one in `calls` of them, as the seed decides.
    #[must_use]
    pub fn one_in(self, calls: u64) -> Rule {
        Rule { when: Occurrence::OneIn(calls), ..self }
    }

    /// Whether the rule applies to a call.
    pub(super) fn is_for(&self, call: Operation, range: Option<SectorRange>) -> bool {
        let kind = match &self.fault {
            InjectedFault::Call(None, _) => true,
            InjectedFault::Call(Some(wanted), _) => *wanted == call,
            InjectedFault::Read(_) => call == Operation::Read,
            InjectedFault::Write(_) => call == Operation::Write,
            InjectedFault::LostFlush => call == Operation::Flush,
        };
        kind && self.within.is_none_or(|within| range.is_some_and(|range| range.overlaps(within)))
    }

    /// Whether later rules apply to a call as well.
    pub(super) fn continues(&self) -> bool {
        matches!(self.fault, InjectedFault::Call(_, CallFault::Hang | CallFault::Delay(_)))
    }
}

/// All that is to go wrong with a device. Of the rules that strike a call the first counts; those that only make it
/// wait all do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub(super) seed: u64,
    pub(super) cache: WriteCache,
    pub(super) rules: Vec<Rule>,
}

impl Plan {
    /// Nothing goes wrong. The seed is for rules that draw.
    pub fn new(seed: u64) -> Plan {
        Plan { seed, ..Plan::default() }
    }

    /// With a volatile write cache.
    #[must_use]
    pub fn volatile(self) -> Plan {
        Plan { cache: WriteCache::Volatile, ..self }
    }

    /// With one more rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Plan {
        self.rules.push(rule);
        self
    }
}
