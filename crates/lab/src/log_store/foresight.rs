//! The future for a scheme that knows it: when each version of a block dies.

use umbrella_policy::log_layout::Clock;
use umbrella_units::{BlockNo, Pages};

use super::input::{LogInput, Request};
use super::percent::Percent;
use crate::trace::TraceOp;

/// When versions die, by the clock at which they were written.
#[derive(Debug)]
pub(super) struct Deaths {
    by_birth: Vec<u32>,
}

const NEVER: u32 = u32::MAX;

impl Deaths {
    /// Covers the first writing of the data in a log of that utilisation, and the run until `until` blocks are written.
    pub(super) fn of(input: &LogInput, utilisation: Percent, until: Pages) -> Deaths {
        let mut by_birth = Vec::new();
        let mut alive = vec![NEVER; (input.blocks().0 + input.cold(utilisation)) as usize];
        for (birth, block) in (0..).zip(input.filled(utilisation)) {
            by_birth.push(NEVER);
            alive[block.0 as usize] = birth;
        }
        let filled = by_birth.len() as u64;
        for request in input.endless() {
            if by_birth.len() as u64 >= filled + until.0 {
                break;
            }
            for block in LogInput::blocks_of(&request) {
                let now = by_birth.len() as u32;
                record_overwrite(&mut by_birth, &mut alive, block, now, &request);
            }
        }
        Deaths { by_birth }
    }

    /// When the version that is written at `birth` dies; `None` if it never does.
    pub(super) fn overwritten_at(&self, birth: Clock) -> Option<Clock> {
        let death = self.by_birth.get(birth.0 as usize).copied()?;
        (death != NEVER).then_some(Clock(u64::from(death)))
    }
}

/// Records the death of a block's version, and the version that replaces it.
fn record_overwrite(by_birth: &mut Vec<u32>, alive: &mut [u32], block: BlockNo, now: u32, request: &Request) {
    let Some(version) = alive.get_mut(block.0 as usize) else { return };
    if request.op == TraceOp::Read {
        return;
    }
    if let Some(death) = by_birth.get_mut(*version as usize) {
        *death = now;
    }
    *version = NEVER;
    if request.op == TraceOp::Write {
        *version = now;
        by_birth.push(NEVER);
    }
}
