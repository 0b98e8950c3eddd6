//! Fill levels, for `status`.

use std::fmt::Write as _;

use umbrella_fs::control::protocol::{EvictState, EvictStatus, EvictStay, EvictStays};
use umbrella_units::{Amount, ByteSize};

use crate::text::{count, quoted, visible};

/// One fill level: how full, what happens now, what leaves next, what may not leave.
pub(super) fn line(evict: &EvictStatus) -> String {
    let excluded: u64 =
        evict.stays.iter().map(|stays| if stays.why == EvictStay::Excluded { stays.files } else { 0 }).sum();
    let none_may = format!("no file may leave: \"only\" or \"min_age\" excludes all {excluded}");
    let is_none = evict.files_moved == 0 && evict.stays.iter().all(|stays| stays.why == EvictStay::Excluded);
    let state = match evict.state {
        EvictState::Below => "nothing has to leave",
        EvictState::Due => "too full; files that may leave are looked for next",
        EvictState::AwaitsHours => "too full; files leave during its hours",
        EvictState::Moving => "files leave now",
        EvictState::MovingShort => "less than min_free is free: files leave now, whatever the hour",
        EvictState::Rests if is_none && excluded > 0 => none_may.as_str(),
        EvictState::Rests
            if evict.stays.iter().all(|stays| matches!(stays.why, EvictStay::Nowhere | EvictStay::Excluded)) =>
        {
            "every file that may leave has left"
        }
        EvictState::Rests => "too full, but no more files can leave now",
        EvictState::Offline => "offline",
    };
    let full = match evict.state {
        EvictState::Offline => String::new(),
        _ => format!(" {} full,", fill_level(evict)),
    };
    let mut text = format!("evict: {}{full} from {} down to {}: {state}", quoted(&evict.of), evict.above, evict.until);
    if evict.files_moved > 0 {
        let _ = write!(text, "; {} ({}) left", count(evict.files_moved, "file"), evict.bytes_moved);
    }
    if !evict.next.is_empty() {
        let next: Vec<String> = evict.next.iter().map(|path| visible(path)).collect();
        let _ = write!(text, "; next {}", next.join(", "));
    }
    for stays in evict.stays.iter().filter(|stays| stays.why != EvictStay::Excluded) {
        let _ = write!(text, "; {}", stay(stays));
    }
    text
}

fn stay(stays: &EvictStays) -> String {
    let why = match stays.why {
        EvictStay::Excluded => "are excluded",
        EvictStay::Nowhere => "may not leave (their lists name no other branch)",
        EvictStay::NoRoom => "would leave, but no branch has room for them",
        EvictStay::Held => "came too recently (min_stay)",
        EvictStay::InUse => "stay while they are in use",
        EvictStay::Failed => "could not be moved",
    };
    format!("{} ({}) {why}", count(stays.files, "file"), stays.bytes)
}

/// In the unit of its marks.
fn fill_level(evict: &EvictStatus) -> String {
    let EvictStatus { used, total, above, .. } = evict;
    match above {
        Amount::Bytes(_) => used.to_string(),
        Amount::MilliPercent(_) => format!("{:.1}%", share(*used, *total)),
    }
}

fn share(used: ByteSize, total: ByteSize) -> f64 {
    used.0 as f64 * 100.0 / total.0.max(1) as f64
}
