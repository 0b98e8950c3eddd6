//! The core against a model, without FUSE: `Pool` is driven directly, on plain directories and small tmpfs mounts.
//!
//! - `model`: what users should see; `world`: a pool beside a model, and the operations on both
//! - `ops`: operations and their generator; `check`: comparing the two, and what must hold on the branches
//! - `calls`: how many system calls an operation may cost
//! - `kernel`: what the kernel is told to forget
//! - `sequences`, `threads`: generated runs; `races`, `arrivals`, `batches`, `dir_times`, `staging`, `regressions`:
//!   single statements; kills are `tests/kills`
//!
//! No test of this binary may start a process: see `tests/kills`.
//!
//! Needs root. `UMBRELLA_MODEL_SECONDS` lengthens each generated run, `UMBRELLA_MODEL_SEED` says where its seeds begin.

mod arrivals;
mod batches;
mod bench;
mod calls;
mod check;
mod dir_times;
mod kernel;
mod model;
mod ops;
mod races;
mod regressions;
mod sequences;
mod staging;
mod threads;
mod world;
