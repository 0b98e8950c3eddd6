//! Drives as they were measured: profiles in files of their own, and how near the model comes to what the real drive did.

pub mod disksim;
mod demerit;
mod plot;
mod profile;
mod validate;

pub use demerit::Demerit;
pub use plot::page;
pub use profile::{Commands, DriveProfile, ProfileError, Sources};
pub use validate::{Measurements, TraceError, Validation, validate};
