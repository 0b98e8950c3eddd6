//! Ordered write-back, as people read it.

use std::fmt::Write as _;
use std::time::Duration;

use umbrella_fs::control::protocol::WriteBackStatus;
use umbrella_fs::spec::FlusherStatus;
use umbrella_units::{ByteSize, format_duration};

use super::{align_right, lines, new_table};
use crate::text::{quoted, visible};

/// Branches with what their flushers do.
pub(crate) fn table(ordered: &[(&str, &FlusherStatus)]) -> String {
    let mut table = new_table(&[
        "BRANCH",
        "WRITE-BACK",
        "DIRTY",
        "BACKGROUND",
        "LIMIT",
        "A SECOND",
        "WRITTEN",
        "MEAN RUN",
        "WAITS",
        "WAITED",
        "ERRORS",
    ]);
    for (branch, status) in ordered {
        table.add_row([
            visible(branch),
            visible(&status.policy),
            ByteSize(status.dirty.0 + status.in_flight.0).to_string(),
            status.background.to_string(),
            status.limit.to_string(),
            status.flush_rate.to_string(),
            status.flushed.to_string(),
            status.mean_run().to_string(),
            status.waits.to_string(),
            format_duration(Duration::from_millis(status.waited.0 / 1_000_000)),
            status.errors.to_string(),
        ]);
    }
    for column in 2..11 {
        align_right(&mut table, column);
    }
    let mut text = lines(&table);
    for (branch, status) in ordered {
        if status.stalled {
            let _ = writeln!(
                text,
                "branch {}: nothing reached its disk lately, so writers are not held back",
                quoted(branch)
            );
        }
        if status.recording {
            let _ = writeln!(text, "branch {}: recording its events", quoted(branch));
        }
    }
    text
}

/// Branches, with a policy or without.
pub(crate) fn branches(branches: &[WriteBackStatus]) -> String {
    let ordered: Vec<_> =
        branches.iter().filter_map(|it| Some((it.branch.as_str(), it.write_back.as_ref()?))).collect();
    let mut text = if ordered.is_empty() { String::new() } else { table(&ordered) };
    let others: Vec<_> = branches.iter().filter(|it| it.write_back.is_none()).map(|it| quoted(&it.branch)).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "written back by the kernel: {}", others.join(", "));
    }
    text
}
