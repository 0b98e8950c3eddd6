//! Events to text. Adjacent pages to which the same happened at the same time become one line.

use std::fmt::Write;

use umbrella_units::{BlockNo, Nanos, PageKey, Pages};

use super::{Fnv1a, LONGEST_RUN, MAGIC, VERSION};
use crate::params::Spec;
use crate::writeback::{DirtyPage, Event};

/// Writes a record. The text is taken out whenever its owner likes ([`Recorder::take`]).
#[derive(Debug)]
pub struct Recorder {
    text: String,
    line: String,
    lines: u64,
    sum: Fnv1a,
    /// The time of the last line.
    last: Nanos,
    /// A line that may become longer.
    run: Option<EventRun>,
}

/// What a line says of adjacent pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Dirty { active: bool },
    Rewrite,
    Touch,
    Activate,
    Deactivate,
    Clean,
    Remap,
    Foresee { next: Nanos },
}

#[derive(Debug, Clone, Copy)]
struct EventRun {
    what: What,
    at: Nanos,
    first: PageKey,
    pages: u64,
    block: BlockNo,
}

impl EventRun {
    fn new(what: What, at: Nanos, first: PageKey, block: BlockNo) -> EventRun {
        EventRun { what, at, first, pages: 1, block }
    }

    /// Takes another page in, if it is the next one.
    fn extend(&mut self, other: EventRun) -> bool {
        let placed = matches!(self.what, What::Dirty { .. } | What::Remap);
        let next = self.what == other.what
            && self.at == other.at
            && self.pages < LONGEST_RUN
            && self.first.file == other.first.file
            && self.first.index.0.checked_add(self.pages) == Some(other.first.index.0)
            && (!placed || self.block.0.checked_add(self.pages) == Some(other.block.0));
        self.pages += u64::from(next);
        next
    }
}

impl Recorder {
    /// A record of what this policy decides, from its first event on.
    pub fn new(policy: &Spec) -> Recorder {
        let mut recorder = Recorder {
            text: String::new(),
            line: String::new(),
            lines: 0,
            sum: Fnv1a::EMPTY,
            last: Nanos(0),
            run: None,
        };
        recorder.put(format_args!("{MAGIC} {VERSION}"));
        recorder.put(format_args!("policy {policy}"));
        recorder
    }

    /// Something happened. Times never go back; one that does counts as the last.
    pub fn on(&mut self, now: Nanos, event: &Event) {
        let at = now.max(self.last_time());
        let none = BlockNo(0);
        let run = match *event {
            Event::Dirty { page, block, active } => EventRun::new(What::Dirty { active }, at, page, block),
            Event::Rewrite { page } => EventRun::new(What::Rewrite, at, page, none),
            Event::Touch { page } => EventRun::new(What::Touch, at, page, none),
            Event::Activate { page } => EventRun::new(What::Activate, at, page, none),
            Event::Deactivate { page } => EventRun::new(What::Deactivate, at, page, none),
            Event::Clean { page } => EventRun::new(What::Clean, at, page, none),
            Event::Remap { page, block } => EventRun::new(What::Remap, at, page, block),
            Event::Foresee { page, next_write } => EventRun::new(What::Foresee { next: next_write }, at, page, none),
            Event::Truncate { file, from } => {
                let since = self.since(at);
                return self.put(format_args!("x {since} {} {}", file.0, from.0));
            }
            Event::Delete { file } => {
                let since = self.since(at);
                return self.put(format_args!("k {since} {}", file.0));
            }
        };
        if !self.run.as_mut().is_some_and(|before| before.extend(run)) {
            self.end_run();
            self.run = Some(run);
        }
    }

    /// The policy was asked for `want` pages, and this is its answer.
    pub fn selected(&mut self, now: Nanos, want: Pages, pages: &[DirtyPage]) {
        let since = self.since(now.max(self.last_time()));
        let mut runs: Vec<EventRun> = Vec::new();
        for page in pages {
            let run = EventRun::new(What::Remap, now, page.page, page.block);
            if !runs.last_mut().is_some_and(|last| last.extend(run)) {
                runs.push(run);
            }
        }
        self.put(format_args!("s {since} {} {}", want.0, runs.len()));
        for run in runs {
            self.put(format_args!("> {} {} {} {}", run.first.file.0, run.first.index.0, run.pages, run.block.0));
        }
    }

    /// What was written since the last time. It ends with a whole line.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Bytes that wait to be taken.
    pub fn waiting(&self) -> usize {
        self.text.len()
    }

    /// Ends the record, and gives the rest of its text.
    pub fn finish(mut self) -> String {
        self.end_run();
        let (lines, sum) = (self.lines, self.sum.0);
        self.put(format_args!("end {lines} {sum:016x}"));
        self.text
    }

    /// The time of the latest record.
    fn last_time(&self) -> Nanos {
        self.run.map_or(self.last, |run| run.at)
    }

    /// Ends the open line; time since the last one, which is `at` from now on.
    fn since(&mut self, at: Nanos) -> u64 {
        self.end_run();
        let since = at - self.last;
        self.last = self.last.max(at);
        since.0
    }

    fn end_run(&mut self) {
        let Some(EventRun { what, at, first, pages, block }) = self.run.take() else { return };
        let since = self.since(at);
        let (file, index, block) = (first.file.0, first.index.0, block.0);
        match what {
            What::Dirty { active } => {
                let active = if active { 'a' } else { '-' };
                self.put(format_args!("d {since} {file} {index} {pages} {block} {active}"));
            }
            What::Rewrite => self.put(format_args!("w {since} {file} {index} {pages}")),
            What::Touch => self.put(format_args!("t {since} {file} {index} {pages}")),
            What::Activate => self.put(format_args!("a {since} {file} {index} {pages}")),
            What::Deactivate => self.put(format_args!("i {since} {file} {index} {pages}")),
            What::Clean => self.put(format_args!("c {since} {file} {index} {pages}")),
            What::Remap => self.put(format_args!("m {since} {file} {index} {pages} {block}")),
            What::Foresee { next } => self.put(format_args!("f {since} {file} {index} {pages} {}", next.0)),
        }
    }

    fn put(&mut self, line: std::fmt::Arguments<'_>) {
        self.line.clear();
        // A string takes all that is written.
        let _ = self.line.write_fmt(line);
        self.sum.add(&self.line);
        self.lines += 1;
        self.text.push_str(&self.line);
        self.text.push('\n');
    }
}
