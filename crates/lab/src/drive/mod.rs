//! Drives as they were measured: profiles in files of their own, and how near the model comes to what the real drive
//! did.

mod demerit;
pub mod disksim;
mod profile;
pub mod timed;
mod validate;

pub use demerit::Demerit;
pub use profile::{Commands, DriveProfile, ExtraDisconnect, ProfileError, Sources};
pub use validate::{Measurements, MeasurementsError, Validation, replay, validate};
