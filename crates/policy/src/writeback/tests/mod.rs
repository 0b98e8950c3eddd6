//! Tests of the policies: the papers' worked examples, naive models, invariants of all, the registry.

mod examples;
mod invariants;
mod memory;
mod models;
mod registry;
pub(in crate::writeback) mod script;
