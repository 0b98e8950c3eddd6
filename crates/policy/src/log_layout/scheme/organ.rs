//! Organ: streams by how soon a block will be written again, laid out as an organ pipe.
//!
//! A stream is a level of heat. Each holds blocks that live a quarter as long as those of the next colder one; the
//! coldest holds those that outlive 2 rewrites of the whole log. Only the level of a block and its last write are
//! remembered, so the level is made to remember much:
//!
//! 1. A write moves a block half the way from the level of the version before to the level that fits the life of this
//!    version. One short or long life does not throw it far; several do.
//! 2. Cleaning moves a block half the way to the level that fits its age, but never to a hotter one: that it still
//!    lives says only that it is colder.
//! 3. A block that is written for the first time starts in the coldest level.
//! 4. The user's blocks and the cleaner's share the streams: when levels are right, it does not matter who wrote.
//! 5. The hottest stream lies in the middle of the disk, each colder one around it ([`Geography::Centred`]). There are
//!    no borders, so no region is ever short, and the cleaner takes the best victim anywhere. Under cost-benefit, it
//!    takes a victim the sooner, the nearer to the middle it lies and the less full the log is.
//! 6. First writes take the middle too, unless `centre` keeps them out. That is better where the blocks that are read
//!    were updated, worse where they were not.
//!
//! Source: our own, found with the lab (docs/placement-schemes.md); lives inferred as in SepBIT, places as in R-LFS,
//! one step at a time as in DAC.

use super::{Copied, Scheme, SchemeInfo, Written};
use crate::log_layout::free::Geography;
use crate::log_layout::ids::{Shape, Stream};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "organ",
    help: "levels by how soon a block is written again, the hottest in the middle of the disk",
    source: "our own",
    params: &[
        ParamInfo {
            name: "levels",
            kind: ParamKind::Number,
            default: "6",
            min: "2",
            max: "13",
            help: "how many levels of heat",
        },
        ParamInfo {
            name: "centre",
            kind: ParamKind::Number,
            default: "0",
            min: "0",
            max: "50",
            help: "percent of the disk, in its middle, that cold data avoid while there is room elsewhere",
        },
    ],
    make: |values| {
        Box::new(Organ { levels: values.number("levels") as u8, centre: values.number("centre") as u8, longest: 1.0 })
    },
};

/// How much longer blocks live a level colder.
const FACTOR: f64 = 4.0;
/// The coldest level ends where a block lives as long as it takes to write the log that many times, divided by
/// [`FACTOR`].
const REWRITES: f64 = 8.0;

#[derive(Debug)]
struct Organ {
    levels: u8,
    centre: u8,
    /// The life with which level 0 begins.
    longest: f64,
}

impl Organ {
    /// The level of blocks with this life; its fraction says where in the level.
    fn level(&self, life: u64) -> f64 {
        let level = libm::log(self.longest / life.max(1) as f64) / libm::log(FACTOR);
        level.clamp(0.0, f64::from(self.levels) - 0.001)
    }

    /// Half the way from the middle of a level to another.
    fn between(from: Stream, to: f64) -> u8 {
        f64::midpoint(f64::from(from.0) + 0.5, to) as u8
    }
}

impl Scheme for Organ {
    fn streams(&self) -> u8 {
        self.levels
    }

    fn geography(&self) -> Geography {
        Geography::Centred { centre: self.centre }
    }

    fn laid_out(&mut self, shape: Shape) {
        self.longest = shape.blocks() as f64 * REWRITES;
    }

    fn written(&mut self, write: &Written) -> Stream {
        let Some(old) = write.old else { return Stream(0) };
        let life = write.now.since(old.written);
        Stream(Organ::between(old.stream, self.level(life)).min(self.levels - 1))
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        let age = copy.now.since(copy.written);
        Stream(Organ::between(copy.from, self.level(age)).min(copy.from.0).min(self.levels - 1))
    }
}
