//! What a sequence of records comes to.

use rustc_hash::{FxHashMap, FxHashSet};

use super::number::{self, Range};
use super::record::{InodeEntry, Record};

/// The state of a branch after all records of its log.
#[derive(Debug, Default)]
pub(super) struct LogSummary {
    slot: u16,
    pub(super) entries: FxHashMap<(u64, u64), InodeEntry>,
    pub(super) lent: FxHashSet<u64>,
    /// Counters of made-up numbers below this may have been used.
    pub(super) counter: u64,
}

impl LogSummary {
    /// Adds up the log of the branch with this slot.
    pub(super) fn of(slot: u16, records: &[Record]) -> LogSummary {
        let mut sum = LogSummary { slot, ..LogSummary::default() };
        sum.add(records);
        sum
    }

    /// Goes on with later records.
    pub(super) fn add(&mut self, records: &[Record]) {
        for record in records {
            match *record {
                Record::Assign { dev, ino, entry } => {
                    // Also of a file that moved away since: its number is in use elsewhere.
                    if let Range::Fresh(home, counter) = number::range(entry.number)
                        && home == self.slot
                    {
                        self.counter = self.counter.max(counter + 1);
                    }
                    self.entries.insert((dev, ino), entry);
                }
                Record::Forget { dev, ino } => {
                    self.entries.remove(&(dev, ino));
                }
                Record::Lent(number) => {
                    self.lent.insert(number);
                }
                Record::Returned(number) => {
                    self.lent.remove(&number);
                }
                Record::HighWater(counter) => self.counter = self.counter.max(counter),
            }
        }
    }

    /// The shortest log that comes to this.
    pub(super) fn records(&self) -> Vec<Record> {
        let entries = self.entries.iter().map(|(&(dev, ino), &entry)| Record::Assign { dev, ino, entry });
        let lent = self.lent.iter().map(|&number| Record::Lent(number));
        entries.chain(lent).chain([Record::HighWater(self.counter)]).collect()
    }
}
