//! The laboratory: the same decisions that run live, against modelled disks: replay a trace, run a workload, compare
//! policies, reproduce a paper. Never touches a real device.

pub mod events;
pub mod experiment;
pub mod hybrid;
pub mod log_store;
pub mod machine;
pub mod paper;
pub mod result;
pub mod trace;
pub mod workload;
