//! Repeats the decisions of a run that was recorded live. The policy that decided then has to give the same answers bit
//! for bit; another policy shows what it would have written.
//!
//! Another policy is asked whenever the recorded one was, for as many pages as that one gave, so that both write the
//! same amount. Writes in between stay as recorded: the record says when pages became dirty, not why.

use std::io::{BufRead, Read};

use serde::Serialize;
use thiserror::Error;
use umbrella_policy::writeback::record::{RecordEntry, RecordError, RecordReader};
use umbrella_policy::writeback::{DirtyPage, WriteBack, WriteBackError, find_policy};
use umbrella_units::{BlockNo, Nanos, PageKey, Pages};

/// A line of a record is far shorter.
const LONGEST_LINE: u64 = 4096;
/// 16 GiB of dirty pages.
const MOST_DIRTY: Pages = Pages(4 << 20);

/// Why a record was not replayed to its end.
#[derive(Debug, Error)]
pub enum EventsError {
    /// It cannot be read.
    #[error("the record cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is no record, or a damaged one.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// A line is too long for one.
    #[error("line {line}: longer than {LONGEST_LINE} bytes; not a record of write-back events")]
    LongLine {
        /// Which line.
        line: u64,
    },
    /// Its policy is not known here, or the other one is not.
    #[error("{0}")]
    Policy(#[from] WriteBackError),
    /// It refers to more dirty pages than any machine it could come from has.
    #[error("more than {} dirty pages at a time", MOST_DIRTY.0)]
    TooMuchDirty,
    /// It ends before it says which policy decided.
    #[error("the record ends before it names a policy; record again")]
    Empty,
    /// The other policy has to know the future, which no record of a live run contains.
    #[error(
        "{0} needs to know when pages are written again, which a live record does not contain; choose another \
        policy"
    )]
    Offline(String),
    /// The policy decides otherwise than it did.
    #[error(
        "selection {number} at {at}: page {place} of the answer was {}, and is now {} (recorded by another version, \
        or changed since)",
        format_page(*recorded), format_page(*chosen)
    )]
    Differs {
        /// Which selection, from 1.
        number: u64,
        /// When it was made.
        at: Nanos,
        /// Which page of it, from 1.
        place: usize,
        /// What was recorded; `None`: the answer was shorter.
        recorded: Option<(PageKey, BlockNo)>,
        /// What is chosen now.
        chosen: Option<(PageKey, BlockNo)>,
    },
}

fn format_page(page: Option<(PageKey, BlockNo)>) -> String {
    page.map_or_else(
        || "none".to_owned(),
        |(page, block)| format!("page {} of file {} at block {}", page.index.0, page.file.0, block.0),
    )
}

/// What was written, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Times that pages were asked for.
    pub selections: u64,
    /// Pages written.
    pub pages: u64,
    /// Runs of adjacent blocks, in the order of writing.
    pub runs: u64,
    /// Blocks between the end of each run and the beginning of the next, summed up.
    pub distance: u64,
    #[serde(skip)]
    last: Option<BlockNo>,
}

impl Written {
    fn add(&mut self, pages: &[DirtyPage]) {
        self.selections += 1;
        for page in pages {
            self.pages += 1;
            let next = self.last.map(BlockNo::next);
            if next != Some(page.block) {
                self.runs += 1;
                // The blocks are what the record says: any.
                self.distance = self.distance.saturating_add(next.map_or(0, |next| next.distance(page.block)));
            }
            self.last = Some(page.block);
        }
    }

    /// Pages of a run, on average.
    pub fn mean_run(&self) -> f64 {
        self.pages as f64 / self.runs.max(1) as f64
    }

    /// Blocks between two runs, on average.
    pub fn mean_distance(&self) -> f64 {
        self.distance as f64 / self.runs.saturating_sub(1).max(1) as f64
    }
}

/// A record, decided again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The policy that decided live.
    pub recorded_by: String,
    /// The policy that decides now.
    pub policy: String,
    /// Events of the record.
    pub events: u64,
    /// When the last thing happened, from the start of the flusher.
    pub ends_at: Nanos,
    /// Whether the record has its end; one without was cut short, and was replayed as far as it goes.
    pub complete: bool,
    /// What was written live.
    pub recorded: Written,
    /// What the policy writes now; the same, if it is the policy that decided.
    pub chosen: Written,
    /// Pages still dirty at the end.
    pub left: u64,
}

/// Decides a record again: by `other`, or by the policy that decided then. A difference from what that one did is an
/// error.
pub fn replay(mut input: impl BufRead, other: Option<&str>) -> Result<Replayed, EventsError> {
    let mut reader = RecordReader::new();
    let mut steps = Vec::new();
    let mut line = Vec::new();
    let mut number = 0;
    let mut run: Option<Run> = None;
    let mut differs = None;
    loop {
        line.clear();
        number += 1;
        let got = input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if line.pop_if(|last| *last == b'\n').is_none() {
            if got as u64 == LONGEST_LINE {
                return Err(EventsError::LongLine { line: number });
            }
            // The last line was not written whole: what it says may be half a number.
            break;
        }
        reader.line(&String::from_utf8_lossy(&line), &mut steps)?;
        if run.is_none()
            && let Some(policy) = reader.policy()
        {
            run = Some(Run::new(&policy?.to_string(), other)?);
        }
        let Some(run) = &mut run else { continue };
        match steps.drain(..).filter(|_| differs.is_none()).try_for_each(|step| run.step(step)) {
            // The rest is read nevertheless: if it does not add up, the record is damaged, and the policy is not to
            // blame.
            Err(error @ EventsError::Differs { .. }) => differs = Some(error),
            other => other?,
        }
    }
    if let Some(error) = differs {
        return Err(error);
    }
    let run = run.ok_or(EventsError::Empty)?;
    let left = run.policy.dirty().0;
    Ok(Replayed { complete: reader.is_complete(), left, ..run.so_far })
}

struct Run {
    policy: WriteBack,
    is_other: bool,
    so_far: Replayed,
    answer: Vec<DirtyPage>,
}

impl Run {
    fn new(recorded_by: &str, other: Option<&str>) -> Result<Run, EventsError> {
        let name = other.unwrap_or(recorded_by);
        let so_far = Replayed {
            recorded_by: recorded_by.to_owned(),
            policy: name.to_owned(),
            events: 0,
            ends_at: Nanos(0),
            complete: false,
            recorded: Written::default(),
            chosen: Written::default(),
            left: 0,
        };
        let is_other = other.is_some_and(|other| other != recorded_by);
        if is_other && find_policy(name.split(':').next().unwrap_or_default().trim())?.offline {
            return Err(EventsError::Offline(name.to_owned()));
        }
        Ok(Run { policy: WriteBack::parse(name)?, is_other, so_far, answer: Vec::new() })
    }

    fn step(&mut self, step: RecordEntry) -> Result<(), EventsError> {
        match step {
            RecordEntry::Event(now, event) => {
                self.so_far.events += 1;
                self.so_far.ends_at = now;
                self.policy.on(now, event);
                // What a short file can make of itself in memory is bounded.
                if self.policy.dirty() > MOST_DIRTY { Err(EventsError::TooMuchDirty) } else { Ok(()) }
            }
            RecordEntry::Selected { now, want, pages } => self.select(now, want, &pages),
        }
    }

    fn select(&mut self, now: Nanos, want: Pages, recorded: &[DirtyPage]) -> Result<(), EventsError> {
        let so_far = &mut self.so_far;
        so_far.ends_at = now;
        so_far.recorded.add(recorded);
        self.answer.clear();
        let want = if self.is_other { Pages(recorded.len() as u64) } else { want };
        self.policy.select(now, want, &mut self.answer);
        so_far.chosen.add(&self.answer);
        if self.is_other || self.answer == recorded {
            return Ok(());
        }
        let place = self.answer.iter().zip(recorded).take_while(|(chosen, recorded)| chosen == recorded).count();
        let page_at = |pages: &[DirtyPage]| pages.get(place).map(|page| (page.page, page.block));
        Err(EventsError::Differs {
            number: so_far.recorded.selections,
            at: now,
            place: place + 1,
            recorded: page_at(recorded),
            chosen: page_at(&self.answer),
        })
    }
}
