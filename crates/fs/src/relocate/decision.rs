//! Who decides what becomes of a change that hangs: whoever carries it out, or whoever waits for it, by leaving it alone.

use std::sync::atomic::{AtomicU8, Ordering};

use super::RelocateError;

/// See the module.
#[derive(Debug, Default)]
pub struct Decision(AtomicU8);

/// How far a change was when it was left alone. The step under way may still happen, and none that changes a name comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAt {
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
    const LEFT: u8 = 3;

    /// Nobody waits any longer.
    pub fn leave(&self) -> LeftAt {
        match self.0.swap(Decision::LEFT, Ordering::AcqRel) {
            Decision::OPEN => LeftAt::Open,
            Decision::ENDING => LeftAt::Ending,
            _ => LeftAt::Undoing,
        }
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
        if self.0.load(Ordering::Acquire) == Decision::LEFT { Err(RelocateError::GivenUp) } else { Ok(()) }
    }

    fn advance(&self, to: u8) -> Result<(), RelocateError> {
        let unless_left = |now| (now != Decision::LEFT).then_some(to);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_left) {
            Ok(_) => Ok(()),
            Err(_) => Err(RelocateError::GivenUp),
        }
    }
}
