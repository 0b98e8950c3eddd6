//! Generated sequences of operations, each compared with the model after every step. A failure is cut down before it is
//! shown.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::bench::Ground;
use crate::check;
use crate::ops::{Op, budget, first_seed, generate};
use crate::world::{Done, World};

/// Operations in one sequence.
const LENGTH: usize = 120;

/// Runs operations on a new pool; all that can be wrong is an error.
pub(crate) fn run(kind: Kind, rules: usize, ops: &[Op]) -> Done {
    run_telling(kind, rules, ops, &mut |_| {})
}

/// What a sequence runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) ground: Ground,
    pub(crate) staged: bool,
}

fn run_telling(kind: Kind, rules: usize, ops: &[Op], tell: &mut dyn FnMut(String)) -> Done {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut world = if kind.staged { World::staged(kind.ground, rules) } else { World::new(kind.ground, rules) };
        for op in ops {
            let done = world.step(*op);
            tell(format!("{op:?}: {:?}", check::where_all_is(&world)));
            done?;
            // What waits is judged when it leaves.
            if *op == Op::Enforce && !kind.staged {
                check::placed(&world).map_err(|text| format!("after {op:?}: {text}"))?;
            }
        }
        world.finish()?;
        world.step(Op::Sync)?;
        check::placed(&world).map_err(|text| format!("at the end: {text}"))
    }));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default())
    })
}

/// What a failure is about: its words, without names and numbers.
fn about(text: &str) -> String {
    let (_, text) = text.split_once("}: ").or_else(|| text.split_once(": ")).unwrap_or(("", text));
    text.split(' ').filter(|word| word.chars().all(char::is_alphabetic)).collect::<Vec<_>>().join(" ")
}

/// Leaves operations out for as long as it still fails in the same way, in bounded time.
fn shrink(on: Kind, rules: usize, mut ops: Vec<Op>, text: &str) -> Vec<Op> {
    let kind = about(text);
    let until = Instant::now() + Duration::from_secs(60);
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + size).min(fewer.len()));
            if run(on, rules, &fewer).is_err_and(|text| about(&text) == kind) {
                ops = fewer;
            } else {
                at += size;
            }
            if Instant::now() > until {
                return ops;
            }
        }
        size /= 2;
    }
    ops
}

fn sequences(kind: Kind, seconds: u64) {
    let until = Instant::now() + budget(seconds);
    let mut seed = first_seed();
    while Instant::now() < until {
        let (rules, ops) = (seed as usize, generate(seed, LENGTH));
        if let Err(text) = run(kind, rules, &ops) {
            let fewer = shrink(kind, rules, ops, &text);
            let mut steps = Vec::new();
            let again = run_telling(kind, rules, &fewer, &mut |step| steps.push(step)).err();
            // The end of the trace is what tells most.
            let steps = steps[steps.len().saturating_sub(4)..].join("\n  ");
            let rules = rules % 4;
            panic!("seed {seed} on {kind:?}, rules {rules}: {text}\ncut down, {again:?}\n{fewer:?}\n  {steps}");
        }
        seed += 1;
    }
    println!("{} sequences on {kind:?}", seed - first_seed());
}

#[test]
fn whatever_is_done_in_memory_the_pool_shows_what_the_model_says() {
    sequences(Kind { ground: Ground::Memory, staged: false }, 8);
}

#[test]
fn whatever_is_done_on_a_disk_the_pool_shows_what_the_model_says() {
    sequences(Kind { ground: Ground::Disk, staged: false }, 8);
}

#[test]
fn whatever_is_done_while_new_files_are_staged_the_pool_shows_what_the_model_says() {
    sequences(Kind { ground: Ground::Memory, staged: true }, 10);
    sequences(Kind { ground: Ground::Disk, staged: true }, 6);
}
