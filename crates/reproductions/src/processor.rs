//! What bookkeeping took on the papers' processors: instructions, counted on our own short versions of it
//! (crates/lab/examples/bookkeeping.rs, under valgrind's callgrind), at one instruction a cycle. Assumed is that one: a
//! scan of a directory that is larger than the processor's cache takes longer.

use umbrella_lab::machine::Bookkeeping;
use umbrella_units::Nanos;

/// For a directory entry that is scanned.
const ENTRY: u64 = 20;
/// For a page that enters a zone's bitmap and segments, and leaves them.
const ZONE_PAGE: u64 = 236;
/// For a zone that is looked at.
const ZONE: u64 = 19;

/// The times on a processor of that clock rate.
pub(crate) fn bookkeeping(megahertz: u64) -> Bookkeeping {
    let time = |instructions: u64| Nanos((instructions * 1000).div_ceil(megahertz));
    Bookkeeping { entry: time(ENTRY), zone_page: time(ZONE_PAGE), zone: time(ZONE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_processor_takes_less_time() {
        let [slow, fast] = [1600, 3200].map(bookkeeping);
        assert_eq!((slow.entry, slow.zone_page, slow.zone), (Nanos(13), Nanos(148), Nanos(12)));
        assert_eq!((fast.entry, fast.zone_page, fast.zone), (Nanos(7), Nanos(74), Nanos(6)));
    }
}
