//! The policy with its record: all its events and all its answers go through here.

use umbrella_policy::writeback::record::Recorder;
use umbrella_policy::writeback::{DirtyPage, Event, WriteBack};
use umbrella_units::{BlockNo, ByteSize, FileId, Nanos, PageKey, Pages};

use crate::error::FlusherError;
use crate::journal::MOST_WAITING;
use crate::settings::Settings;

/// See the module.
pub(crate) struct RecordedPolicy {
    policy: WriteBack,
    settings: Settings,
    /// The time of its last event; time never goes back.
    last: Nanos,
    recorder: Option<Recorder>,
}

impl RecordedPolicy {
    pub(crate) fn new(settings: Settings) -> Result<RecordedPolicy, FlusherError> {
        Ok(RecordedPolicy { policy: settings.check()?, settings, last: Nanos(0), recorder: None })
    }

    fn at(&mut self, now: Nanos) -> Nanos {
        self.last = self.last.max(now);
        self.last
    }

    pub(crate) fn on(&mut self, now: Nanos, event: Event) {
        let now = self.at(now);
        self.policy.on(now, event);
        if let Some(recorder) = &mut self.recorder {
            recorder.on(now, &event);
            self.bound_record();
        }
    }

    /// A record that is not written to its file in time ends, without its end.
    fn bound_record(&mut self) {
        if self.record_waiting() > MOST_WAITING {
            self.recorder = None;
        }
    }

    /// Appends what is to be written next.
    pub(crate) fn select(&mut self, now: Nanos, want: Pages, out: &mut Vec<DirtyPage>) {
        let now = self.at(now);
        let before = out.len();
        self.policy.select(now, want, out);
        match (&mut self.recorder, out.get(before..)) {
            (Some(recorder), Some(chosen)) => recorder.selected(now, want, chosen),
            // What was there before is gone: a record would say that nothing was chosen.
            (recorder, None) => *recorder = None,
            (None, Some(_)) => {}
        }
        self.bound_record();
    }

    /// Changes policy or limits; all that is dirty stays known. A record ends with its policy: its rest is returned.
    pub(crate) fn change(&mut self, now: Nanos, settings: Settings) -> Result<Option<String>, FlusherError> {
        let next = settings.check()?;
        if settings.policy == self.settings.policy {
            self.settings = settings;
            return Ok(None);
        }
        self.settings = settings;
        let rest = self.end_record();
        self.transfer_pages(now, next);
        Ok(rest)
    }

    fn transfer_pages(&mut self, now: Nanos, next: WriteBack) {
        let now = self.at(now);
        let state = self.policy.state_as_events(now);
        self.policy = next;
        for (at, event) in state {
            self.policy.on(at, event);
            if let Some(recorder) = &mut self.recorder {
                recorder.on(at, &event);
            }
        }
    }

    /// Begins a record. The policy begins anew with all that is dirty, since a record has to begin where its replay
    /// does.
    pub(crate) fn begin_record(&mut self, now: Nanos) -> Result<(), FlusherError> {
        let next = self.settings.check()?;
        self.recorder = Some(Recorder::new(&self.settings.policy));
        self.transfer_pages(now, next);
        Ok(())
    }

    /// What the record grew by.
    pub(crate) fn take_record(&mut self) -> Option<String> {
        self.recorder.as_mut().map(Recorder::take)
    }

    /// Whether events are being recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Bytes of the record that were not taken yet.
    pub(crate) fn record_waiting(&self) -> usize {
        self.recorder.as_ref().map_or(0, Recorder::waiting)
    }

    /// Ends the record, and gives the rest of it.
    pub(crate) fn end_record(&mut self) -> Option<String> {
        self.recorder.take().map(Recorder::finish)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn inner(&self) -> &WriteBack {
        &self.policy
    }

    pub(crate) fn dirty(&self) -> Pages {
        self.policy.dirty()
    }

    pub(crate) fn dirty_in(&self, file: FileId) -> Pages {
        self.policy.index().dirty_in(file)
    }

    /// Where a dirty page is believed to lie.
    pub(crate) fn block_of(&self, page: PageKey) -> Option<BlockNo> {
        self.policy.index().page(page, self.last).map(|(block, _)| block)
    }

    pub(crate) fn bytes(&self) -> ByteSize {
        ByteSize(self.policy.memory().total().0 + self.record_waiting() as u64)
    }
}
