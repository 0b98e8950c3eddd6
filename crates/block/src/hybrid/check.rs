//! Verifies a pair without changing it.

use serde::Serialize;
use umbrella_policy::flash_cache::LogMap;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

use super::error::HybridError;
use super::pair::{Half, read_labels};
use super::recover::{behind_damage, joined, scan};

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckReport {
    /// The flash.
    pub flash: Uuid,
    /// The disk.
    pub disk: Uuid,
    /// How often the pair was opened.
    pub epoch: u64,
    /// Records that count.
    pub records: u64,
    /// Bytes of the log that they take.
    pub log_used: ByteSize,
    /// Bytes of the log.
    pub log_size: ByteSize,
    /// Bytes of the disk whose newest data is only in the log.
    pub cached: ByteSize,
    /// Bytes ever written to the flash.
    pub flash_written: ByteSize,
    /// Whether a record was being written when it ended; nobody was told that it was durable.
    pub torn: bool,
    /// What is wrong; nothing when all is well.
    pub damage: Option<String>,
    /// The sectors whose newest data is only in the log, as far as its records count.
    pub only_in_log: Vec<SectorRange>,
    /// After damage: the sectors whose newest data may be lost, of the damaged record (if its header can be read) and of those behind it.
    pub at_risk: Vec<SectorRange>,
}

/// Reads both halves and all of the log. An error if they are no pair; damage of the log is part of the report.
pub fn check(disk: &Half, flash: &Half) -> Result<CheckReport, HybridError> {
    let labels = read_labels(disk, flash)?;
    labels.refuse_changed_disk(disk, flash)?;
    let superblock = labels.superblock;
    let mut map = LogMap::default();
    let (mut records, mut end, mut last_epoch) = (0, superblock.tail, superblock.tail_epoch);
    let scanned = scan(flash, &superblock, |header| {
        for logged in header.logged() {
            map.insert(logged.range, logged.source);
        }
        records += 1;
        (end, last_epoch) = (header.end(), header.epoch);
    });
    labels.refuse_records_of(last_epoch, disk, flash)?;
    let (torn, damage, at_risk) = match scanned {
        Ok(found) => (found.torn, None, Vec::new()),
        Err(HybridError::Corrupt { sequence, at, ref range, .. }) => {
            let mut at_risk = behind_damage(flash, &superblock, at, sequence)?;
            at_risk.extend(*range);
            at_risk.sort();
            (false, scanned.as_ref().err().map(ToString::to_string), joined(at_risk))
        }
        Err(error) => return Err(error),
    };
    let bytes = |sectors: u64| ByteSize(sectors * SECTOR_BYTES);
    Ok(CheckReport {
        flash: superblock.flash,
        disk: superblock.disk,
        epoch: superblock.epoch,
        records,
        log_used: bytes(end.0 - superblock.tail.0),
        log_size: bytes(superblock.log_size),
        cached: bytes(map.sectors()),
        flash_written: ByteSize(superblock.written),
        torn,
        damage,
        at_risk,
        only_in_log: joined(map.pieces_from(Lba(0)).map(|piece| piece.range)),
    })
}
