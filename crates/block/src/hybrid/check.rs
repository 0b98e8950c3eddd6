//! Verifies a pair without changing it.

use serde::Serialize;
use umbrella_policy::flash_cache::Source;
use umbrella_units::{ByteSize, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

use super::error::HybridError;
use super::format::Epoch;
use super::half::PairHalf;
use super::losses::Losses;
use super::ranges::joined;
use super::survey::Survey;

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairReport {
    /// The flash.
    pub flash: Uuid,
    /// The disk.
    pub disk: Uuid,
    /// How often the pair was opened.
    pub epoch: Epoch,
    /// Records that count.
    pub records: u64,
    /// Bytes of the log that they take.
    pub log_used: ByteSize,
    /// Bytes of the log.
    pub log_size: ByteSize,
    /// Bytes of the disk whose newest data is only in the log, and whole.
    pub cached: ByteSize,
    /// The zeroes among them, which take no room in the log.
    pub cached_zeroes: ByteSize,
    /// Bytes ever written to the flash.
    pub flash_written: ByteSize,
    /// Whether a record was being written when it ended; no flush reported it as durable.
    pub torn: bool,
    /// The damage; `None` when all is well.
    pub damage: Option<String>,
    /// The sectors whose newest data is only in the log, and whole.
    pub only_in_log: Vec<SectorRange>,
    /// What is perhaps lost by damage: if a flush was answered that the log does not say was.
    pub perhaps_lost: Losses,
    /// What is lost by damage.
    #[serde(flatten)]
    pub losses: Losses,
}

/// Reads both halves and all of the log. An error if they are no pair; damage of the log is part of the report.
pub fn check(disk: &PairHalf, flash: &PairHalf) -> Result<PairReport, HybridError> {
    let survey = Survey::of(disk, flash)?;
    let superblock = &survey.superblock;
    let bytes = |sectors: u64| ByteSize(sectors * SECTOR_BYTES);
    let whole: Vec<_> = survey.whole().collect();
    let zeroes = whole.iter().filter(|piece| matches!(piece.source, Source::Zeroes(_)));
    Ok(PairReport {
        flash: superblock.flash,
        disk: superblock.disk,
        epoch: superblock.epoch,
        records: survey.records,
        log_used: bytes(survey.end.at.0 - superblock.tail.0),
        log_size: bytes(superblock.log_size),
        cached: bytes(whole.iter().map(|piece| piece.range.sectors).sum()),
        cached_zeroes: bytes(zeroes.map(|piece| piece.range.sectors).sum()),
        flash_written: ByteSize(superblock.written),
        torn: survey.end.torn,
        damage: survey.damage.as_ref().map(ToString::to_string),
        perhaps_lost: survey.perhaps_lost(),
        only_in_log: joined(whole.iter().map(|piece| piece.range)),
        losses: survey.losses(),
    })
}
