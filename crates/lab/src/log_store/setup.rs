//! What a log is made of.

use std::fmt;
use std::num::NonZeroU32;

use umbrella_policy::Spec;
use umbrella_policy::log_layout::{Room, Scheme, SchemeInfo, Shape, Victim};

use super::error::LogError;
use super::input::LogInput;
use super::percent::Percent;

/// A log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSetup {
    /// Where blocks go, such as `r_lfs:regions=3`.
    pub scheme: String,
    /// Which segment is cleaned.
    pub victim: Victim,
    /// How much of the log the data are.
    pub utilisation: Percent,
    /// Blocks of a segment; nothing for what suits the input ([`LogInput::segment_blocks`]).
    pub segment_blocks: Option<NonZeroU32>,
}

impl fmt::Display for LogSetup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {}%", self.scheme, self.victim.name(), self.utilisation.0)
    }
}

impl LogSetup {
    /// The scheme.
    pub(super) fn make_scheme(&self) -> Result<Box<dyn Scheme>, LogError> {
        let spec: Spec = self.scheme.parse()?;
        Ok(SchemeInfo::make(&spec)?)
    }

    /// The log for that input; nothing when it is too small for the scheme to keep going.
    pub(super) fn shape(&self, input: &LogInput) -> Result<Option<Shape>, LogError> {
        let segment_blocks = self.segment_blocks.map_or_else(|| input.segment_blocks(), NonZeroU32::get);
        let segments = input.log_blocks(self.utilisation).div_ceil(u64::from(segment_blocks)) as u32;
        let shape = Shape { segments, segment_blocks };
        let streams = self.make_scheme()?.streams();
        let room = Room { shape, system: 0, streams, chunk: None, map: false };
        let live = input.live(self.utilisation);
        let fits = |promised: &u64| *promised >= live && !input.is_too_full(self.utilisation);
        Ok(room.advertised(0).filter(fits).map(|_| shape))
    }

    /// Whether the scheme can keep a log of that input going.
    pub fn fits(&self, input: &LogInput) -> Result<bool, LogError> {
        Ok(self.shape(input)?.is_some())
    }
}
