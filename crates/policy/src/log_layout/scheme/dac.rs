//! Dynamic data clustering: as many streams as classes of heat. An update moves a block to the next hotter one,
//! cleaning to the next colder one; what is written for the first time starts in the coldest. R-LFS is this with a
//! geography.
//!
//! Source: Chiang, Lee and Chang, "Using Data Clustering to Improve Cleaning Performance for Flash Memory", Software:
//! Practice and Experience 29(3), 1999.

use super::{Copied, Scheme, SchemeInfo, Written};
use crate::log_layout::ids::Stream;
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "dac",
    help: "an update moves a block one class hotter, cleaning one class colder",
    source: "DAC, SP&E 1999",
    params: &[ParamInfo {
        name: "classes",
        kind: ParamKind::Number,
        default: "6",
        min: "1",
        max: "13",
        help: "how many classes of heat",
    }],
    make: |values| Box::new(Dac { classes: values.number("classes") as u8 }),
};

#[derive(Debug)]
struct Dac {
    classes: u8,
}

impl Scheme for Dac {
    fn streams(&self) -> u8 {
        self.classes
    }

    fn written(&mut self, write: &Written) -> Stream {
        write.old.map_or(Stream(0), |old| Stream((old.stream.0 + 1).min(self.classes - 1)))
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        Stream(copy.from.0.saturating_sub(1))
    }
}
