//! The laboratory: the same decisions that run live, against modelled disks: replay a trace, run a workload, compare
//! policies. Never touches a real device.

pub mod advice;
pub mod drive;
pub mod events;
pub mod experiment;
pub mod hybrid;
pub mod log_store;
pub mod machine;
pub mod result;
pub mod trace;
pub mod workload;
pub mod write_back;

/// A suggestion such as ` (did you mean "zone"?)`. `known` is the list of names as an error prints it: separated by
/// commas, a remark after each.
fn suggest(name: &str, known: &str) -> String {
    umbrella_units::did_you_mean(name, known.split(", ").filter_map(|known| known.split(' ').next()))
}
