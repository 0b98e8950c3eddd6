//! Which dirty pages go to disk next: one file per policy, one shared index of dirty pages, one registry.

mod event;

pub use event::{DirtyPage, Event};
