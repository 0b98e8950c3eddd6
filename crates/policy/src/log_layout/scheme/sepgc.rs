//! Two streams: what the user writes, and what the cleaner moves.
//!
//! Source: Van Houdt, "Performance of garbage collection algorithms for flash-based solid state drives with hot/cold
//! data" (double write frontier).

use super::{Copied, Scheme, SchemeInfo, Written};
use crate::log_layout::ids::Stream;

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "sepgc",
    help: "blocks written by users apart from blocks moved by the cleaner",
    source: "Van Houdt 2013 (double write frontier)",
    params: &[],
    make: |_| Box::new(SepGc),
};

#[derive(Debug)]
struct SepGc;

impl Scheme for SepGc {
    fn streams(&self) -> u8 {
        2
    }

    fn written(&mut self, _write: &Written) -> Stream {
        Stream(1)
    }

    fn copied(&mut self, _copy: &Copied) -> Stream {
        Stream(0)
    }
}
