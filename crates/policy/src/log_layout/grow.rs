//! A log that becomes larger.

use super::free::FreeSegments;
use super::ids::SegmentNo;
use super::layout::Layout;
use super::room::Room;
use super::table::{Segment, State};

impl Layout {
    /// The log has become larger: `system` says which of all segments are not part of it. Segments that were not until
    /// now become free. Regions move with the middle of the disk; what lies in another one now is a guest there.
    pub fn grow(&mut self, segments: u32, system: impl Fn(SegmentNo) -> bool) {
        self.shape.segments = self.shape.segments.max(segments);
        self.table.resize(self.shape.segments as usize, Segment::FREE);
        let (streams, all) = (self.scheme.streams(), self.growing.len());
        self.free = FreeSegments::new(self.free.geography(), self.shape, streams, all);
        let mut count = 0;
        for (number, segment) in (0..).map(SegmentNo).zip(&mut self.table) {
            match (system(number), segment.state) {
                (true, _) => {
                    segment.state = State::System;
                    count += 1;
                }
                (false, State::System | State::Free) => {
                    segment.state = State::Free;
                    self.free.add(number);
                }
                (false, _) => {}
            }
        }
        let room = Room { shape: self.shape, system: count, streams: all as u8, chunk: self.chunk, map: self.has_map };
        (self.reserve, self.map_room) = (room.reserve(), room.map_segments());
        self.scheme.laid_out(self.shape);
        self.choose_nexts();
    }
}
