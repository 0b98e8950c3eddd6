//! Who decides what becomes of a change whose branch hangs: whoever carries it out, or whoever waits for it, by leaving it alone.

use std::sync::atomic::{AtomicU8, Ordering};

use super::RelocateError;

/// See the module.
#[derive(Debug, Default)]
pub struct Decision(AtomicU8);

/// How far a change was when it was left alone. One step of it may still happen, and no more; recovery has the last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAt {
    /// Nothing has changed that users would see.
    Open,
    /// The first step that they see is under way or done.
    Begun,
    /// So is the last.
    Ending,
    /// It had failed, and is being taken back.
    Undoing,
}

impl Decision {
    const OPEN: u8 = 0;
    const BEGUN: u8 = 1;
    const ENDING: u8 = 2;
    const UNDOING: u8 = 3;
    const LEFT: u8 = 4;

    /// Nobody waits any longer.
    pub fn leave(&self) -> LeftAt {
        match self.0.swap(Decision::LEFT, Ordering::AcqRel) {
            Decision::OPEN => LeftAt::Open,
            Decision::BEGUN => LeftAt::Begun,
            Decision::ENDING => LeftAt::Ending,
            _ => LeftAt::Undoing,
        }
    }

    /// The first step that users see is next.
    pub(super) fn begin(&self) -> Result<(), RelocateError> {
        self.advance(Decision::BEGUN)
    }

    /// The last one is next.
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
