//! SFS: blocks of like heat lie together; the groups are found by clustering, not set beforehand.
//!
//! The heat of a block is how often it is written in a time: 1 / (now - last write). The heat of each group is the mean
//! of its members', and a block joins the group whose heat is nearest. Means follow the data, in logarithms, so that a
//! few very hot blocks do not draw a group after them.
//!
//! Two things differ from the original. Heat there is writes / time since the last write, with a count for every block.
//! The map here keeps the last write only, so the count is one. And the means follow each block as it is placed; there
//! they follow all segments each time that segments are written.
//!
//! Source: Min et al., "SFS: Random Write Considered Harmful in Solid State Drives", FAST 2012, sections 3.2 and 3.3.

use super::{Copied, Scheme, SchemeInfo, Written};
use crate::log_layout::ids::{Shape, Stream};
use crate::param_info::{ParamInfo, ParamKind};

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "sfs",
    help: "groups of like heat, found by clustering",
    source: "SFS, FAST 2012, with one write counted",
    params: &[ParamInfo {
        name: "groups",
        kind: ParamKind::Number,
        default: "6",
        min: "2",
        max: "13",
        help: "how many groups",
    }],
    make: |values| Box::new(Sfs { means: vec![0.0; values.number("groups") as usize], rate: 1.0 }),
};

#[derive(Debug)]
struct Sfs {
    /// Mean of the binary logarithm of the time between writes, of each group, from cold to hot.
    means: Vec<f64>,
    /// The share of a block in its group's mean.
    rate: f64,
}

impl Sfs {
    fn place(&mut self, time: u64) -> Stream {
        let time = libm::log2(time.max(1) as f64);
        let near = |(_, mean): &(usize, &f64)| (*mean - time).abs();
        let group = self.means.iter().enumerate().min_by(|one, other| near(one).total_cmp(&near(other)));
        let group = group.map_or(0, |(group, _)| group);
        if let Some(mean) = self.means.get_mut(group) {
            *mean += (time - *mean) * self.rate;
        }
        Stream(group as u8)
    }
}

impl Scheme for Sfs {
    fn streams(&self) -> u8 {
        self.means.len() as u8
    }

    fn laid_out(&mut self, shape: Shape) {
        let (whole, segment) = (libm::log2(shape.blocks() as f64), libm::log2(f64::from(shape.segment_blocks)));
        let last = (self.means.len() - 1) as f64;
        for (group, mean) in self.means.iter_mut().enumerate() {
            *mean = whole - (whole - segment) * group as f64 / last;
        }
        self.rate = 1.0 / (f64::from(shape.segment_blocks) * 16.0);
    }

    fn written(&mut self, write: &Written) -> Stream {
        let Some(old) = write.old else { return Stream(0) };
        self.place(write.now.since(old.written))
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        self.place(copy.now.since(copy.written))
    }
}
