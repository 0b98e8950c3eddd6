//! Umbrella's decisions: pure, deterministic state machines. No I/O, no clock, no threads, no randomness of their own.

pub mod balance;
mod error;
pub mod flash_cache;
pub mod heat;
pub mod log_layout;
mod natural_order;
mod param_info;
mod params;
pub mod placement;
pub mod schedule;
pub mod spin_down;
pub mod staging;
pub mod writeback;

pub use error::PolicyError;
pub use natural_order::natural_order;
pub use param_info::{ParamInfo, ParamKind};
pub use params::{ParamValues, Params, Spec};
