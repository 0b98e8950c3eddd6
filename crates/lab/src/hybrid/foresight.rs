//! The future for the offline spin-down policy: when the disk would next be needed, if it slept from now on.

use umbrella_policy::flash_cache::{Fill, Log, LogMap, LogSector, Moment, Source};
use umbrella_units::{Nanos, SectorRange};

use super::input::{Arrival, Direction};
use super::setup::HybridSetup;

/// When one of the arrivals in `coming` would need a sleeping disk; `NEVER` if none does. None of them is later than
/// `until`. Space that the log could not use at its end is not considered.
pub(super) fn next_need(setup: &HybridSetup, log: &Log, coming: &[Arrival], until: Nanos, endless: bool) -> Nanos {
    let mut added = LogMap::default();
    let Fill { mut used, size } = log.fill();
    for arrival in coming.iter().take_while(|arrival| arrival.at <= until) {
        match arrival.direction {
            Direction::Read if !covers(log.map(), &added, arrival.range) => return arrival.at,
            Direction::Read => {}
            Direction::Write => {
                used += arrival.range.sectors + 1;
                let marked = setup.when.flushes(Moment::Logged, Fill { used, size }, setup.high);
                if !endless && (used > size || marked) {
                    return arrival.at;
                }
                added.insert(arrival.range, Source::Log(LogSector(0)));
            }
        }
    }
    Nanos::NEVER
}

/// Whether one of the two maps has every sector of `range`.
fn covers(log: &LogMap, added: &LogMap, range: SectorRange) -> bool {
    let has = |map: &LogMap, range| map.pieces(range).map(|piece| piece.range.sectors).sum::<u64>();
    let mut at = range.start;
    for piece in log.pieces(range) {
        let gap = SectorRange::between(at, piece.range.start);
        if has(added, gap) < gap.sectors {
            return false;
        }
        at = piece.range.end();
    }
    let rest = SectorRange::between(at, range.end());
    has(added, rest) == rest.sectors
}
