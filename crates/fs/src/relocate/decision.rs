//! Decides what becomes of a change that hangs, and knows where it is. The thread that carries it out decides, or the
//! caller that waits for it, by leaving it alone.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::RelocateError;

/// See the module.
#[derive(Debug, Default)]
pub struct Decision {
    state: AtomicU8,
    /// Twice the number of the calls that began, and 1 where the last is on the source's branch.
    calls: AtomicU64,
}

/// A branch of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveSide {
    /// The one that has the file.
    Source,
    /// The one it goes to.
    Target,
}

/// A call of a change that is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Another for each call.
    pub number: u64,
    /// The branch it is made on.
    pub side: MoveSide,
}

/// How far a change was when it was left alone. The step under way may still happen, and none that changes a name comes
/// after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reversibility {
    /// It can be taken back, and is: now, or by recovery.
    Open,
    /// It cannot be taken back any more, and recovery finishes it.
    Ending,
    /// It had failed, and was being taken back; recovery has the last word.
    Undoing,
}

impl Decision {
    const OPEN: u8 = 0;
    const ENDING: u8 = 1;
    const UNDOING: u8 = 2;
    const ABANDONED: u8 = 3;

    /// The caller no longer waits.
    pub fn abandon(&self) -> Reversibility {
        match self.state.swap(Decision::ABANDONED, Ordering::AcqRel) {
            Decision::OPEN => Reversibility::Open,
            Decision::ENDING => Reversibility::Ending,
            _ => Reversibility::Undoing,
        }
    }

    /// Where it is now.
    pub fn call(&self) -> Call {
        let calls = self.calls.load(Ordering::Acquire);
        Call { number: calls / 2, side: if calls % 2 == 1 { MoveSide::Source } else { MoveSide::Target } }
    }

    /// A call is next on this branch.
    pub(super) fn on(&self, side: MoveSide) {
        let next = self.calls.load(Ordering::Relaxed) / 2 + 1;
        self.calls.store(next * 2 + u64::from(side == MoveSide::Source), Ordering::Release);
    }

    /// The step is next that cannot be taken back.
    pub(super) fn end(&self) -> Result<(), RelocateError> {
        self.advance(Decision::ENDING)
    }

    /// What was done is taken back next.
    pub(super) fn undo(&self) -> Result<(), RelocateError> {
        self.advance(Decision::UNDOING)
    }

    /// Another step is next.
    pub(super) fn check(&self) -> Result<(), RelocateError> {
        if self.state.load(Ordering::Acquire) == Decision::ABANDONED { Err(RelocateError::GivenUp) } else { Ok(()) }
    }

    fn advance(&self, to: u8) -> Result<(), RelocateError> {
        let unless_abandoned = |now| (now != Decision::ABANDONED).then_some(to);
        match self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_abandoned) {
            Ok(_) => Ok(()),
            Err(_) => Err(RelocateError::GivenUp),
        }
    }
}
