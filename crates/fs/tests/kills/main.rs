//! Kills of a process that has a pool; see `crash`. The comparison of a pool with its model is that of `core`.
//!
//! This is a test binary of its own, because it starts processes while `core` has pools. A child has every descriptor
//! of its parent until it runs a program, and with them the locks on branches and the open files. A pool of another
//! thread would find its branches in use.
//!
//! Needs root. `UMBRELLA_MODEL_SECONDS` and `UMBRELLA_MODEL_SEED` are as for `core`.
#![expect(dead_code, reason = "`core` uses the rest")]

#[path = "../core/bench.rs"]
mod bench;
#[path = "../core/check.rs"]
mod check;
mod crash;
#[path = "../core/model.rs"]
mod model;
#[path = "../core/ops.rs"]
mod ops;
#[path = "../core/world.rs"]
mod world;
