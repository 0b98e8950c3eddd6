//! The hybrid disk: a flash log before a disk that sleeps.
//!
//! While the disk sleeps, writes go to the log. While it spins, they go to the disk, except those that overlap data
//! still in the log. Reads gather from both, and wake the disk only if they need it. The policy
//! ([`FlushTrigger`](umbrella_policy::flash_cache::FlushTrigger)) decides when the contents of the log go to the disk,
//! in the order of a plan ([`FlushPlanner`](umbrella_policy::flash_cache::FlushPlanner)).
//!
//! A write, while the disk sleeps (`commit`):
//! 1. It joins the record that is being built: one record takes all writes that come while the one before is being
//!    written.
//! 2. The record, header and data, is written to flash in one piece. Now the write returns, and reads see it; it
//!    survives a kill of this program.
//! 3. With FUA, and at every flush: the flash is flushed. That makes all records before it durable too, so the log has
//!    no gaps.
//!
//! A drain (`drain`):
//! 1. The disk is woken.
//! 2. Chunk after chunk is read from flash and written to the disk. Until step 7, reads go to the log, and so do writes
//!    that overlap it.
//! 3. The disk is flushed.
//! 4. The flash is flushed: data that was replaced in the log meanwhile was not written to the disk, and its
//!    replacement must not get lost.
//! 5. The superblock with the new tail is written to flash, and flushed. A crash before this repeats the drain, which
//!    changes nothing.
//! 6. The tag with the new tail is written to the disk, and flushed: after this, a flash that was restored from an
//!    older copy is recognised.
//! 7. The log forgets what was drained. Only now may writes to it go straight to the disk, and its place be
//!    overwritten: earlier, a crash would bring the old data back over the new.
//!
//! Where the flash returns something else than what was written, those sectors are lost (`lost_sectors`). The drain
//! continues without them, and the superblock of step 5 lists them. Where the flash fails to read, all other data goes
//! to the disk, but the log keeps everything: steps 3 to 7 are skipped, and the drain fails.
//!
//! Putting the disk to sleep (`motor`):
//! 1. New calls no longer go to the disk.
//! 2. Those under way end.
//! 3. The disk is flushed.
//! 4. The superblock records the beginning of the disk (`label`). A write that changes the beginning first removes this
//!    from the superblock.
//! 5. The disk goes to standby.
//!
//! After a failed flush, or when the log cannot be written, the disk refuses writes. Reads continue as far as possible,
//! and [`Hybrid::at_risk`] names the sectors that are only in the log. A log that is damaged when it is opened is
//! refused; [`DamagedPair`] gives the whole parts, or continues without the rest.
//!
//! Source: Bisson and Brandt (see [`umbrella_policy::flash_cache`]). All that concerns crashes is ours; the paper does
//! not treat them.

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
pub use half::PairHalf;
pub use losses::Losses;
pub use occupied::refuse_occupied;
pub use pair::{
    Created, LABEL, LEAST_FLASH, create, disk_of, finish_detach, flash_of, forget_flash, free_flash, has_tag,
};
pub use salvage::DamagedPair;
pub use stats::{HybridStats, Motion};
pub use umbrella_policy::flash_cache::Options;
