//! Disks that are offered: what they are made of, the daemon that offers one, and what is said to it.

mod attached;
mod figures;
pub(crate) mod last_resort;
pub(crate) mod log;
pub(crate) mod looped;
pub(crate) mod losses;
mod motor;
pub(crate) mod offered;
pub(crate) mod open;
pub(crate) mod pair;
pub(crate) mod place;
pub(crate) mod protocol;
pub(crate) mod remembered;
pub(crate) mod scrub;
pub(crate) mod serve;
mod service;
mod users;
mod xfs;

pub(crate) use figures::{Figure, meaning};
pub(crate) use users::users_of;
