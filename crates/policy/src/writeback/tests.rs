//! Tests of the policies: the papers' worked examples, naive models, invariants of all, the registry.

mod examples;
mod invariants;
mod models;
mod registry;
pub(super) mod script;
