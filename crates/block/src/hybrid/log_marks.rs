//! What the log of an open pair says of itself; see [`super::marks`].

use std::time::Instant;

use umbrella_units::SectorRange;

use super::format::{Header, RecordNo};

/// What the records that were written say, and what the next one is to say.
#[derive(Debug)]
pub(super) struct LogMarks {
    /// The highest promised mark on flash, except marks that only expected a flush.
    pub(super) promised: RecordNo,
    /// The last record, if it promises itself because a flush is expected.
    pub(super) expected: Option<RecordNo>,
    /// The highest certain mark on flash, in a record or the superblock.
    pub(super) noted: RecordNo,
    /// The last record that is no mark.
    pub(super) last_data: RecordNo,
    /// What the last record holds.
    pub(super) addresses: Option<Vec<SectorRange>>,
    /// Records with data since the last flush began, and how many there were between that and the one before.
    records: u64,
    last_records: u64,
    /// How many there will be before the next flush, if the last two came in a rhythm.
    expected_records: Option<u64>,
    /// Whether a flush follows the record that is being put together.
    pub(super) flush_follows: bool,
    /// When a mark is due.
    pub(super) note_at: Option<Instant>,
}

impl LogMarks {
    /// After an opening, which has made all records durable.
    pub(super) fn behind(last: RecordNo, addresses: Option<Vec<SectorRange>>) -> LogMarks {
        let (promised, noted, last_data) = (last, last, last);
        LogMarks {
            promised,
            expected: None,
            noted,
            last_data,
            addresses,
            records: 0,
            last_records: 1,
            expected_records: Some(1),
            flush_follows: false,
            note_at: None,
        }
    }

    /// Whether a flush can be expected behind the next record with data.
    pub(super) fn expects_flush(&self) -> bool {
        self.expected_records == Some(self.records + 1)
    }

    /// A flush begins.
    pub(super) fn flush_begins(&mut self) {
        let records = std::mem::take(&mut self.records);
        self.expected_records = (records == self.last_records).then_some(records);
        self.last_records = records;
    }

    /// A record is on flash.
    pub(super) fn written(&mut self, header: &Header) {
        if self.expected != Some(header.sequence) {
            self.promised = self.promised.max(header.marks.promised);
        }
        self.noted = self.noted.max(header.marks.certain);
        self.addresses = Some(header.addresses());
        if !header.is_mark() {
            self.last_data = header.sequence;
            self.records += 1;
        }
    }

    /// A superblock is on flash that says that records up to this one are durable.
    pub(super) fn superblock_written(&mut self, durable: RecordNo) {
        self.noted = self.noted.max(durable);
    }

    /// When a mark is due, with records up to `durable` flushed; `None` if the log has no more to record.
    pub(super) fn due_at(&self, durable: RecordNo) -> Option<Instant> {
        self.note_at.filter(|_| self.noted < self.last_data.min(durable))
    }
}
