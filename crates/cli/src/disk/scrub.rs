//! Scrubs of a served disk: by hand and by its configuration, one at a time, no faster than they may be.
//!
//! How far one is lies in the state directory, `@scrubs/NAME.json`: it is written every ten seconds, so that one that
//! was interrupted continues. Between two reads a scrub holds nothing of the disk, which can be taken away at any
//! moment.

use std::path::PathBuf;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use umbrella_block::scrub::{Buffer, Scrub, ScrubId, Scrubbing};
use umbrella_units::ByteSize;

use super::protocol::{Progress, ScrubResult, ScrubState, ScrubStatus};
use crate::config::disk::DiskName;
use crate::state_file;
use crate::text::count;

/// How often what was done is written down.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Interval between two reports of how far a scrub is.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// How long a thread that waits for the next scrub trusts a monotonic clock.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// The kept record of a disk's scrubs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Record {
    /// Id of the store or pair: another one of the same name begins anew.
    id: ScrubId,
    /// One that has not come to its end.
    begun: Option<Scrubbing>,
    last: Option<ScrubResult>,
}

/// See the module.
pub(crate) struct Scrubs {
    name: DiskName,
    file: PathBuf,
    record: Mutex<Record>,
    /// Held while one runs.
    turn: Mutex<()>,
}

impl Scrubs {
    /// The saved scrubs of a disk whose store or pair with this id keeps checksums.
    pub(crate) fn of(name: DiskName, id: Option<ScrubId>) -> Scrubs {
        let id = id.unwrap_or_default();
        let file = state_file::path("@scrubs", &format!("{name}.json"));
        let kept = state_file::read(&file).filter(|kept: &Record| kept.id == id);
        let record = Mutex::new(kept.unwrap_or(Record { id, ..Record::default() }));
        Scrubs { name, file, record, turn: Mutex::new(()) }
    }

    /// Their state.
    pub(crate) fn status(&self) -> ScrubStatus {
        let record = self.record.lock();
        let state = match (&record.begun, self.turn.is_locked()) {
            (_, true) => ScrubState::Running,
            (Some(_), false) => ScrubState::Interrupted,
            (None, false) => ScrubState::Idle,
        };
        let begun = record.begun.clone().unwrap_or_default();
        let damaged_ranges = begun.damaged.len() as u64 + begun.unnamed;
        ScrubStatus { state, read: begun.read, damaged_ranges, last: record.last.clone() }
    }

    /// The damage that the last scrub found, in words; `None` if it found none.
    pub(crate) fn problems(&self) -> Option<String> {
        let record = self.record.lock();
        let last = record.last.as_ref().filter(|last| !last.is_clean())?;
        Some(found(&self.name, last))
    }

    /// Scrubs a disk, from where the last one was interrupted, or from the beginning if `restart`. Ends early when
    /// no client wants progress any more.
    pub(crate) fn run(
        &self,
        disk: &Weak<dyn Scrub>,
        bandwidth: ByteSize,
        restart: bool,
        report: &mut dyn FnMut(&Progress) -> bool,
    ) -> anyhow::Result<ScrubResult> {
        let name = &self.name;
        let Some(_turn) = self.turn.try_lock() else {
            bail!("{name} is already being scrubbed (`umbrella disk status {name}` shows its progress)");
        };
        let mut scrubbing = self.record.lock().begun.take().filter(|_| !restart).unwrap_or_default();
        // When the next part may be read: a time in which nothing could be read is not made up for.
        let mut due = Instant::now();
        let (mut saved, mut reported) = (due, None::<Instant>);
        let mut buffer = Buffer::default();
        loop {
            let Some(now) = disk.upgrade() else {
                self.interrupt(scrubbing);
                bail!("{name} is being detached; the next scrub continues where this one stopped");
            };
            let (total, began) = (now.checksummed(), Instant::now());
            let read = scrubbing.step(&*now, &mut buffer);
            drop(now);
            let Some(read) = read else { return Ok(self.end(scrubbing)) };
            if saved.elapsed() >= SAVE_EVERY {
                saved = Instant::now();
                self.interrupt(scrubbing.clone());
            }
            due = due.max(began) + time_for(read, bandwidth);
            loop {
                if reported.is_none_or(|reported| reported.elapsed() >= TELL_EVERY) {
                    reported = Some(Instant::now());
                    self.record.lock().begun = Some(scrubbing.clone());
                    let progress = Progress { done: scrubbing.read, total: total.max(scrubbing.read), ending: false };
                    if !report(&progress) {
                        self.interrupt(scrubbing);
                        bail!("the scrub of {name} is interrupted; the next one continues where it stopped");
                    }
                }
                let wait = due.saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    break;
                }
                std::thread::sleep(wait.min(TELL_EVERY));
            }
        }
    }

    fn interrupt(&self, scrubbing: Scrubbing) {
        self.record.lock().begun = Some(scrubbing);
        self.save();
    }

    fn end(&self, Scrubbing { read, damaged, unnamed, .. }: Scrubbing) -> ScrubResult {
        let result = ScrubResult { ended: now(), read, damaged, unnamed };
        {
            let mut record = self.record.lock();
            record.begun = None;
            record.last = Some(result.clone());
        }
        self.save();
        if result.is_clean() {
            tracing::info!("{}: scrubbed {}, no damage found", self.name, result.read);
        } else {
            tracing::error!("{}", found(&self.name, &result));
        }
        result
    }

    fn save(&self) {
        let record = self.record.lock().clone();
        if let Err(error) = state_file::write(&self.file, &record) {
            let file = crate::text::visible_path(&self.file);
            tracing::warn!("{file}: {error}; after a restart the scrub of {} begins anew", self.name);
        }
    }

    /// Scrubs a disk whenever it is time, until the daemon ends.
    pub(crate) fn run_every(&self, every: Duration, bandwidth: ByteSize, disk: &Weak<dyn Scrub>, ends: &Receiver<()>) {
        let mut failed = false;
        loop {
            let wait = if failed { LOOK_AGAIN } else { self.time_until_due(every).min(LOOK_AGAIN) };
            if ends.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if !self.time_until_due(every).is_zero() {
                continue;
            }
            let mut goes_on = |_: &Progress| ends.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty);
            let done = self.run(disk, bandwidth, false, &mut goes_on);
            failed = done.is_err();
            if let Err(error) = done {
                tracing::info!("{error}");
            }
        }
    }

    fn time_until_due(&self, every: Duration) -> Duration {
        let record = self.record.lock();
        match (&record.begun, &record.last) {
            (None, Some(last)) => Duration::from_secs(last.ended.saturating_add(every.as_secs()).saturating_sub(now())),
            _ => Duration::ZERO,
        }
    }
}

/// The damage that a scrub found, in words.
fn found(name: &DiskName, result: &ScrubResult) -> String {
    let ranges = count(result.ranges(), "range");
    format!(
        "{name}: the last scrub found {ranges} damaged or unreadable (`umbrella disk status {name} --json` lists them): restore the files there from a backup, and scrub again"
    )
}

fn time_for(bytes: ByteSize, bandwidth: ByteSize) -> Duration {
    Duration::from_secs_f64(bytes.0 as f64 / bandwidth.0.max(1) as f64)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
