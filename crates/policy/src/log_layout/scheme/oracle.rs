//! Future knowledge: blocks that die in the same stretch of time lie together. The first stretch is the time that it
//! takes to write a segment. Each further one is `factor` times as long as the one before. Blocks that die after the
//! last, or never, are in the coldest stream.
//!
//! For simulations, to see how much could be gained. It knows when each block dies, not which segment to clean: it is a
//! yardstick, not a bound.
//!
//! Source: the scheme FK of Wang et al. (SepBIT, FAST 2022, section 2.3), whose stretches all have one length
//! (`factor=1`).

use super::{Copied, Scheme, SchemeInfo, Written};
use crate::log_layout::ids::{Clock, Shape, Stream};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "oracle",
    help: "blocks that die at about the same time lie together; the simulation knows these times, a live store does \
        not",
    source: "FK in SepBIT, FAST 2022",
    params: &[
        ParamInfo {
            name: "classes",
            kind: ParamKind::Number,
            default: "12",
            min: "1",
            max: "13",
            help: "how many periods of time it distinguishes",
        },
        ParamInfo {
            name: "factor",
            kind: ParamKind::Decimal,
            default: "2",
            min: "1",
            max: "16",
            help: "how much longer each period is than the previous one",
        },
    ],
    make: |values| {
        let factor = values.number("factor") as f64 / 1000.0;
        Box::new(Oracle { classes: values.number("classes") as u8, factor, segment: 1.0 })
    },
};

#[derive(Debug)]
struct Oracle {
    classes: u8,
    factor: f64,
    /// Blocks of a segment.
    segment: f64,
}

impl Oracle {
    fn stream(&self, now: Clock, death: Option<Clock>) -> Stream {
        let Some(death) = death else { return Stream(0) };
        let mut left = death.since(now) as f64;
        let mut stretch = self.segment;
        let mut stream = self.classes - 1;
        while stream > 0 && left >= stretch {
            left -= stretch;
            stretch *= self.factor;
            stream -= 1;
        }
        Stream(stream)
    }
}

impl Scheme for Oracle {
    fn streams(&self) -> u8 {
        self.classes
    }

    fn laid_out(&mut self, shape: Shape) {
        self.segment = f64::from(shape.segment_blocks);
    }

    fn knows_the_future(&self) -> bool {
        true
    }

    fn written(&mut self, write: &Written) -> Stream {
        self.stream(write.now, write.death)
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        self.stream(copy.now, copy.death)
    }
}
