//! R-LFS: as many streams as regions. An update promotes a block one region towards the middle, cleaning demotes it one outwards. What is
//! written for the first time starts in the coldest region (the paper does not say; as in DAC, its model).
//!
//! Source: Chiang and Huang, "Improving the Performance of Log-Structured File Systems with Adaptive Block Rearrangement", section 2.

use super::registry::SchemeInfo;
use super::{Copied, Scheme, Written};
use crate::log_layout::free::Geography;
use crate::log_layout::ids::Stream;
use crate::params::{ParamInfo, ParamKind};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "r_lfs",
    help: "regions from the edges to the middle of the disk: updates move a block inwards, cleaning moves it outwards",
    source: "R-LFS, section 2",
    params: &[ParamInfo {
        name: "regions",
        kind: ParamKind::Number,
        default: "3",
        min: "1",
        max: "8",
        help: "how many regions; 1 is a plain log",
    }],
    make: |values| Box::new(RLfs { regions: values.number("regions") as u8 }),
};

#[derive(Debug)]
struct RLfs {
    regions: u8,
}

impl Scheme for RLfs {
    fn streams(&self) -> u8 {
        self.regions
    }

    fn geography(&self) -> Geography {
        if self.regions == 1 { Geography::Log } else { Geography::Regions }
    }

    fn written(&mut self, write: &Written) -> Stream {
        write.old.map_or(Stream(0), |old| Stream((old.stream.0 + 1).min(self.regions - 1)))
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        Stream(copy.from.0.saturating_sub(1))
    }
}
