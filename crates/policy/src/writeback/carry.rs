//! One policy takes over from another: all dirty pages are reported anew, in the order in which they were written.

use umbrella_units::Nanos;

use super::{Event, WriteBack};

impl WriteBack {
    /// The events that give another policy the state of this one, the oldest write first. They carry over pages, their
    /// places, ages, writes and whether they are active. Nothing else that a policy made of the past carries over, such
    /// as the position of an arm, or marks on files and zones.
    pub fn state_as_events(&self, now: Nanos) -> Vec<(Nanos, Event)> {
        let mut events = Vec::with_capacity(self.index.len() as usize);
        for known in self.index.known(now) {
            let at = now - known.age;
            events.push((at, Event::Dirty { page: known.page, block: known.block, active: known.active }));
            let again = usize::from(known.writes.saturating_sub(1));
            events.extend(std::iter::repeat_n((at, Event::Rewrite { page: known.page }), again));
        }
        events
    }
}
