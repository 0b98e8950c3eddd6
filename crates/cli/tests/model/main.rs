//! Random sequences of operations on a mounted pool and on a plain ext4 directory. After each operation both have
//! answered the same, and all that can be seen is the same. The rules of the pool make files move at close, and its
//! first branch is tiny. Operations that only a pool has (walks of the enforcer, remounts) come in between and must
//! change nothing.
//!
//! `UMBRELLA_MODEL_SECONDS` sets how long (40), `UMBRELLA_MODEL_SEED` where it begins. A failure is printed with its
//! seed and the shortest sequence found that still fails. Failures that were found become named tests in
//! `regressions.rs`.
#![allow(
    clippy::too_many_lines,
    clippy::unnecessary_debug_formatting,
    reason = "one arm for each operation; paths are quoted as they are"
)]

mod operation;
mod regressions;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use operation::Operation;
use support::choices::Choices;
use support::number_from_env;
use world::{Twins, World};

/// Operations in one sequence.
const LENGTH: usize = 80;

/// Runs a sequence on both; what differs, and after how many operations.
fn run(twins: &mut Twins, operations: &[Operation]) -> Result<(), (usize, String)> {
    twins.empty();
    let mut worlds = [World::new(twins.pool.mount_point()), World::new(twins.plain.path())];
    for (index, operation) in operations.iter().enumerate() {
        let [pool, plain] = worlds.each_mut().map(|world| world.apply(operation));
        twins.beside(operation, &mut worlds);
        if pool != plain {
            return Err((index + 1, format!("{operation:?}\n  gives {pool:?}\n  on plain ext4 {plain:?}")));
        }
        let difference = twins.difference();
        if !difference.is_empty() {
            return Err((index + 1, format!("after {operation:?}\n{difference}")));
        }
    }
    drop(worlds);
    twins.at_rest().map_err(|difference| (operations.len(), format!("at rest\n{difference}")))
}

/// Leaves out what is not needed for the failure, for a while.
fn shrink(twins: &mut Twins, operations: Vec<Operation>) -> Vec<Operation> {
    let start = Instant::now();
    let mut shortest = operations;
    let mut size = shortest.len() / 2;
    while size > 0 && start.elapsed() < Duration::from_secs(60) {
        let mut at = 0;
        while at < shortest.len() {
            let mut shorter = shortest.clone();
            shorter.drain(at..(at + size).min(shortest.len()));
            match run(twins, &shorter) {
                Err((used, _)) => {
                    shorter.truncate(used);
                    shortest = shorter;
                }
                Ok(()) => at += size,
            }
        }
        size /= 2;
    }
    shortest
}

/// Fails with the sequence, as short as it could be made.
fn check(twins: &mut Twins, what: &str, mut operations: Vec<Operation>) {
    let Err((used, first)) = run(twins, &operations) else { return };
    eprintln!("{what} fails: {first}\nlooking for a shorter sequence");
    operations.truncate(used);
    let shortest = shrink(twins, operations);
    let again =
        run(twins, &shortest).err().map_or_else(|| format!("(not every time) {first}"), |(_, difference)| difference);
    let list: Vec<_> = shortest.iter().map(|operation| format!("    {operation:?},")).collect();
    panic!("{what}:\n{}\n{again}", list.join("\n"));
}

/// New files wait for a moment, if they are not large.
const STAGED: &str = "[staging]\nmode = \"always\"\nmax_age = \"20ms\"\nmax_file = \"48KiB\"";

fn random_sequences(data: &str, top: &str, first_seed: u64) {
    let seconds = number_from_env("UMBRELLA_MODEL_SECONDS", 40) / 2;
    let first_seed = number_from_env("UMBRELLA_MODEL_SEED", first_seed);
    let mut twins = Twins::new(data, top, Duration::from_secs(10 * seconds + 900));
    let start = Instant::now();
    let mut seed = first_seed;
    let enough = |twins: &Twins| twins.moves() > 0 || start.elapsed() > Duration::from_secs(10 * seconds);
    while start.elapsed() < Duration::from_secs(seconds) || seed == first_seed || !enough(&twins) {
        let mut choices = Choices::new(seed);
        let operations = (0..LENGTH).map(|_| Operation::random(&mut choices)).collect();
        let what = format!("UMBRELLA_MODEL_SEED={seed}");
        let checked = catch_unwind(AssertUnwindSafe(|| check(&mut twins, &what, operations)));
        if let Err(panic) = checked {
            eprintln!("in {what}");
            std::panic::resume_unwind(panic);
        }
        seed += 1;
    }
    eprintln!("{} sequences of {LENGTH} operations were the same", seed - first_seed);
    assert!(twins.moves() > 0, "files moved between branches");
}

#[test]
fn a_pool_and_a_plain_directory_cannot_be_told_apart() {
    random_sequences("passthrough = false", "", 1);
}

#[test]
fn a_pool_with_ordered_write_back_and_a_plain_directory_cannot_be_told_apart() {
    random_sequences(&support::ordered_write_back(), "", 2_000_000);
}

#[test]
fn a_pool_with_passthrough_and_a_plain_directory_cannot_be_told_apart() {
    random_sequences("passthrough = true", "", 1_000_000);
}

#[test]
fn a_pool_that_stages_new_files_and_a_plain_directory_cannot_be_told_apart() {
    random_sequences("passthrough = true", STAGED, 3_000_000);
}

#[test]
fn a_pool_that_stages_new_files_with_ordered_write_back_and_a_plain_directory_cannot_be_told_apart() {
    random_sequences(&support::ordered_write_back(), STAGED, 4_000_000);
}
