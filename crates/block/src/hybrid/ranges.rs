//! Ranges of sectors, in order.

use umbrella_units::{Lba, SectorRange};

/// Which sectors of the disk have their newest data in the log, joined where they are adjacent.
pub(super) fn joined(ranges: impl IntoIterator<Item = SectorRange>) -> Vec<SectorRange> {
    let mut joined: Vec<SectorRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end() >= range.start => {
                *last = SectorRange::between(last.start, last.end().max(range.end()));
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Some ranges without a part.
pub(super) fn without(ranges: &[SectorRange], part: SectorRange) -> Vec<SectorRange> {
    let between = |start: Lba, end: Lba| (start < end).then(|| SectorRange::between(start, end));
    let rest = |range: &SectorRange| {
        [between(range.start, range.end().min(part.start)), between(range.start.max(part.end()), range.end())]
    };
    ranges.iter().flat_map(rest).flatten().collect()
}
