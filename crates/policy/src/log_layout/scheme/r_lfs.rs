//! R-LFS: as many streams as regions. An update promotes a block one region towards the middle, cleaning demotes it one
//! outwards. What is written for the first time starts in the coldest region (the paper does not say; as in DAC, its
//! model).
//!
//! Source: Chiang and Huang, "Improving the Performance of Log-Structured File Systems with Adaptive Block
//! Rearrangement", section 2.

use super::{Copied, Scheme, SchemeInfo, Written};
use crate::flash_cache::Percent;
use crate::log_layout::free::Geography;
use crate::log_layout::ids::Stream;
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "r_lfs",
    help: "regions from the edges to the middle of the disk: updates move a block inwards, cleaning moves it outwards",
    source: "R-LFS, section 2",
    params: &[
        ParamInfo {
            name: "regions",
            kind: ParamKind::Number,
            default: "3",
            min: "1",
            max: "8",
            help: "how many regions; 1 is a plain log",
        },
        ParamInfo {
            name: "inside",
            kind: ParamKind::Number,
            default: "0",
            min: "0",
            max: "100",
            help: "a region short of segments cleans its own segments that are less than this percentage live, else \
                it borrows one; 100: as in the paper; 0: only segments hardly fuller than the emptiest of all",
        },
    ],
    make: |values| {
        let inside = values.number("inside") as u8;
        Box::new(RLfs { regions: values.number("regions") as u8, inside: (inside > 0).then_some(Percent(inside)) })
    },
};

#[derive(Debug)]
struct RLfs {
    regions: u8,
    inside: Option<Percent>,
}

impl Scheme for RLfs {
    fn streams(&self) -> u8 {
        self.regions
    }

    fn geography(&self) -> Geography {
        if self.regions == 1 { Geography::Log } else { Geography::Regions }
    }

    fn cleans_inside(&self) -> Option<Percent> {
        self.inside
    }

    fn written(&mut self, write: &Written) -> Stream {
        write.old.map_or(Stream(0), |old| Stream((old.stream.0 + 1).min(self.regions - 1)))
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        Stream(copy.from.0.saturating_sub(1))
    }
}
