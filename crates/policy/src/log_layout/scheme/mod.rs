//! Placement schemes: which stream of the log a block is written to. Blocks that die at about the same time should lie
//! together, because a segment in which all is dead costs nothing to clean.
//!
//! A scheme is one file and one line of the registry.

mod dac;
mod oracle;
mod organ;
mod r_lfs;
mod registry;
mod sepbit;
mod sepgc;
mod sfs;
#[cfg(test)]
mod tests;

pub use registry::{schemes, schemes_for_disks};

use super::free::Geography;
use super::ids::{Clock, Shape, Stream};
use crate::flash_cache::Percent;
use crate::param_info::ParamInfo;
use crate::params::ParamValues;

/// A block that the user writes.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Now.
    pub now: Clock,
    /// What it replaces; nothing for a block that was not mapped.
    pub old: Option<ReplacedVersion>,
    /// When it will be overwritten or discarded, if the caller knows the future.
    pub death: Option<Clock>,
}

/// The version that a write replaces.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedVersion {
    /// The stream it lies in.
    pub stream: Stream,
    /// When the user wrote it.
    pub written: Clock,
}

/// A live block that the cleaner moves.
#[derive(Debug, Clone, Copy)]
pub struct Copied {
    /// Now.
    pub now: Clock,
    /// The stream it lies in.
    pub from: Stream,
    /// When the user wrote it.
    pub written: Clock,
    /// When it will be overwritten or discarded, if the caller knows the future.
    pub death: Option<Clock>,
}

/// A segment in which nothing is live any more.
#[derive(Debug, Clone, Copy)]
pub struct Reclaimed {
    /// The stream that wrote it.
    pub stream: Stream,
    /// When it was opened.
    pub opened: Clock,
    /// Now.
    pub now: Clock,
}

/// A scheme that can be chosen.
#[derive(Debug)]
pub struct SchemeInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
    /// Makes one.
    make: fn(&ParamValues) -> Box<dyn Scheme>,
}

/// Where blocks are placed. Streams are numbered from cold to hot.
pub trait Scheme: Send + std::fmt::Debug {
    /// How many streams it uses: 1 to 14.
    fn streams(&self) -> u8;

    /// Where on the disk its streams write.
    fn geography(&self) -> Geography {
        Geography::Log
    }

    /// How much of a segment may be live for a region that is short of free segments to clean it. `None`: hardly more
    /// than in the emptiest segment anywhere. Without a segment like that the region borrows.
    fn cleans_inside(&self) -> Option<Percent> {
        None
    }

    /// Called with the size of the log, before anything else.
    fn laid_out(&mut self, _shape: Shape) {}

    /// The stream of a block that the user writes.
    fn written(&mut self, write: &Written) -> Stream;

    /// The stream of a live block that the cleaner moves.
    fn copied(&mut self, copy: &Copied) -> Stream;

    /// Whether it asks when blocks die: only a simulation can tell.
    fn knows_the_future(&self) -> bool {
        false
    }

    /// A segment has become free.
    fn reclaimed(&mut self, _segment: &Reclaimed) {}
}
