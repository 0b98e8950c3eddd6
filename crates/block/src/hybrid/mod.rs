//! The hybrid disk: a flash log before a disk that sleeps.
//!
//! While the disk sleeps, writes go to the log; while it spins, they go to the disk, but for those that overlap what
//! the log still has. Reads gather from both, and wake the disk only if they need it. What the log has goes to the disk
//! when the policy says so ([`When`](umbrella_policy::flash_cache::When)), in the order of a plan
//! ([`Planner`](umbrella_policy::flash_cache::Planner)).
//!
//! A write, while the disk sleeps (`commit`):
//! 1. It joins the record that is being put together: one record for all that come while the one before is being
//!    written.
//! 2. The record, header and data, is written to flash in one piece. Now the write returns, and is read back; a kill of
//!    this program does not lose it.
//! 3. With FUA, and at every flush: the flash is flushed. Records before it are durable then too, so the log has no
//!    gaps.
//!
//! A drain (`drain`):
//! 1. The disk is woken.
//! 2. Chunk after chunk is read from flash and written to the disk. Until step 7 reads go to the log, and so do writes
//!    that overlap it.
//! 3. The disk is flushed.
//! 4. The flash is flushed: what was replaced in the log meanwhile was not written to the disk, and its replacement
//!    must not get lost.
//! 5. The superblock with the new tail is written to flash, and flushed. A crash before this repeats the drain, which
//!    changes nothing.
//! 6. The tag with the new tail is written to the disk, and flushed: a flash that is put back from an older copy is
//!    recognised from now on.
//! 7. The log forgets what was drained. Only now may such a write go past the log, or the place be overwritten:
//!    earlier, a crash would bring the old data back over the new.
//!
//! Where the flash does not give back what was written, the drain goes on around it: the sectors are lost
//! (`lost_sectors`), and the superblock of step 5 lists them. Where the flash fails to read, all else goes to the disk,
//! but the log keeps everything: steps 3 to 7 are left out, and the drain fails.
//!
//! Putting the disk to sleep (`motor`): 1. new calls no longer go to the disk; 2. those under way end; 3. the disk is
//! flushed; 4. the superblock says how it begins (`label`); 5. standby. A write that changes its beginning has the
//! superblock forget that first.
//!
//! After a failed flush, or when the log cannot be written, the disk refuses writes; what can be read is still read,
//! and [`Hybrid::at_risk`] names what is only in the log. A log that is damaged when it is opened is refused;
//! [`DamagedPair`] gives what is whole, or goes on without the rest.
//!
//! Source: Bisson and Brandt (see [`umbrella_policy::flash_cache`]); everything about crashes is ours, the paper has no
//! word on them.

mod building;
mod check;
mod commit;
mod contents;
mod drain;
mod engine;
mod error;
mod extents;
mod fillers;
mod format;
mod gather;
mod guess;
mod half;
mod keeper;
mod label;
mod later_marks;
mod log_marks;
mod losses;
mod lost_sectors;
mod marks;
mod motor;
mod occupied;
mod pair;
mod ranges;
mod record;
mod recover;
mod salvage;
mod scanner;
mod scrub;
mod stats;
mod sums;
mod survey;
#[cfg(test)]
mod tests;

pub use check::{PairReport, check};
pub use contents::{Contents, Signature};
pub use engine::Hybrid;
pub use error::{Fault, HybridError, Location};
pub use format::{Damage, Epoch, RecordNo};
pub use guess::PairRemains;
pub use half::Half;
pub use losses::Losses;
pub use occupied::refuse_occupied;
pub use pair::{
    Created, LABEL, LEAST_FLASH, create, disk_of, finish_detach, flash_of, forget_flash, free_flash, has_tag,
};
pub use salvage::DamagedPair;
pub use stats::{HybridStats, Motion};
pub use umbrella_policy::flash_cache::Options;
