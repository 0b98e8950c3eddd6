//! Sequences that once told a pool from a plain directory, and scenarios that random sequences find rarely.

use std::time::Duration;

use crate::operation::{Flags, How, Operation, Who};
use crate::world::Twins;
use crate::{STAGED, check};

fn holds(what: &str, operations: &[Operation]) {
    for (data, top) in [("passthrough = false", ""), ("passthrough = true", ""), ("passthrough = true", STAGED)] {
        check(&mut Twins::new(data, top, Duration::from_secs(900)), what, operations.to_vec());
    }
}

#[test]
fn a_file_that_is_open_is_exchanged_and_overflows() {
    holds(
        "exchange",
        &[
            Operation::MakeDir { name: "d", mode: 0o755, who: Who::Root },
            Operation::Write { name: "d/f", size: 5_000, seed: 1, who: Who::Root },
            Operation::Write { name: "d/g.b", size: 100, seed: 2, who: Who::Root },
            Operation::Open { handle: 0, name: "d/g.b", how: How::Append },
            Operation::Write { name: "h", size: 33_000, seed: 3, who: Who::Root },
            Operation::Rename { from: "d/g.b", to: "h", flags: Flags::Exchange, who: Who::Root },
            Operation::HandleWrite { handle: 0, at: 0, size: 70_000, seed: 4 },
            Operation::Remount,
            Operation::Enforce,
        ],
    );
}

#[test]
fn a_file_with_two_names_overflows_through_a_handle_and_loses_one() {
    holds(
        "links",
        &[
            Operation::Write { name: "f", size: 30_000, seed: 1, who: Who::Root },
            Operation::Link { from: "f", to: "g.b", who: Who::Root },
            Operation::Open { handle: 1, name: "f", how: How::Create },
            Operation::HandleWrite { handle: 1, at: 70_000, size: 70_000, seed: 2 },
            Operation::HandleWrite { handle: 1, at: 140_000, size: 70_000, seed: 3 },
            Operation::Unlink { name: "f", who: Who::Root },
            Operation::HandleStat { handle: 1 },
            Operation::Close { handle: 1 },
            Operation::Enforce,
        ],
    );
}
