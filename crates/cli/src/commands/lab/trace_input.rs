//! Which trace a command reads, and the options that name it.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Context;
use clap::{Args, ValueEnum};
use umbrella_lab::trace::{self, Event, Format, OpenOptions, Order, Progress, Skipped, Strictness, TraceReader};
use umbrella_units::{Nanos, parse_duration};

use crate::text::{count, visible_path};
use indicatif::{ProgressBar, ProgressStyle};

/// How to read a trace.
#[derive(Debug, Clone, Args)]
pub(in crate::commands) struct ReadArgs {
    /// Its format: csv, msr, spc, ascii, iotrace, blkparse, fio2, fio3, vscsi, systor, blktrace, disksim, srt, alibaba,
    /// tencent, fiu, biosnoop or parquet [default: detected from the content].
    #[arg(long)]
    format: Option<Format>,
    /// blkparse: which event of a request counts.
    #[arg(long, value_enum, default_value_t = EventArg::Auto)]
    event: EventArg,
    /// Treat a record with a corrupt time as an error; otherwise it is counted and left out.
    #[arg(long, conflicts_with = "lenient")]
    strict: bool,
    /// Count and leave out whatever is unreadable or too late; of a damaged compressed file, use the intact part.
    #[arg(long)]
    lenient: bool,
    /// By how many records a record may be out of order.
    #[arg(long, value_name = "RECORDS", default_value_t = 1024, value_parser = window)]
    window: usize,
    /// A longer time without a record is a corrupt time.
    #[arg(long, value_name = "TIME", default_value = "366d", value_parser = duration)]
    max_gap: Nanos,
}

impl ReadArgs {
    /// Whether an event of blkparse was chosen.
    pub(super) fn names_event(&self) -> bool {
        self.event != EventArg::Auto
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventArg {
    /// The first of the others that the beginning of the trace has.
    Auto,
    /// Q: it was queued by a program.
    Queue,
    /// D: it went to the device.
    Issue,
    /// I: it went into the scheduler's queue.
    Insert,
    /// C: it was done.
    Complete,
}

/// A length of time as on every command line.
pub(super) fn duration(text: &str) -> Result<Nanos, String> {
    let duration = parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(duration.as_nanos()).map(Nanos).map_err(|_| format!("{text:?} is longer than 584 years"))
}

fn window(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 20;
    text.parse().ok().filter(|window| *window <= MOST).ok_or_else(|| {
        format!(
            "not a number of records up to {MOST} (for a trace further out of order: umbrella lab trace convert \
            --sort)"
        )
    })
}

impl ReadArgs {
    /// The same for the reader.
    pub(in crate::commands) fn options(&self) -> OpenOptions {
        let strictness = match (self.strict, self.lenient) {
            (true, _) => Strictness::Strict,
            (false, true) => Strictness::Lenient,
            (false, false) => Strictness::Normal,
        };
        let event = match self.event {
            EventArg::Auto => Event::Auto,
            EventArg::Queue => Event::Queue,
            EventArg::Issue => Event::Issue,
            EventArg::Insert => Event::Insert,
            EventArg::Complete => Event::Complete,
        };
        OpenOptions {
            format: self.format,
            event,
            strictness,
            order: Order::Time { window: self.window },
            max_gap: self.max_gap,
            ..OpenOptions::default()
        }
    }
}

/// Opens a trace; `-` is standard input.
pub(in crate::commands) fn open(path: &Path, options: &OpenOptions) -> anyhow::Result<TraceReader> {
    if path == Path::new("-") {
        return trace::from_reader(io::stdin(), options).context("standard input");
    }
    // Errors of opening name the file themselves, those of its content do not.
    trace::open(path, options).map_err(|error| match error {
        trace::TraceError::Open { .. } | trace::TraceError::NotAFile { .. } => error.into(),
        _ => anyhow::Error::new(error).context(visible_path(path)),
    })
}

/// A bar on a terminal, over the bytes of the file.
#[derive(Debug)]
pub(super) struct Bar {
    drawn: ProgressBar,
    progress: Progress,
    records: u64,
}

impl Bar {
    pub(super) fn new(progress: Progress) -> Bar {
        let drawn = match (io::stderr().is_terminal(), progress.length()) {
            (false, _) => ProgressBar::hidden(),
            (true, None) => ProgressBar::no_length(),
            (true, Some(length)) => ProgressBar::new(length).with_style(
                ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  {eta} left  {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            ),
        };
        Bar { drawn, progress, records: 0 }
    }

    /// Counts a record, and draws the bar every few thousand records.
    pub(super) fn step(&mut self) {
        const EVERY: u64 = 1 << 14;
        self.records += 1;
        if self.records.is_multiple_of(EVERY) {
            self.drawn.set_position(self.progress.read());
            self.drawn.set_message(format!("{} records", self.records));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.drawn.finish_and_clear();
    }
}

/// Says on standard error what was left out.
pub(in crate::commands) fn warn_of_skipped(path: &Path, skipped: &Skipped) {
    if let Some(byte) = skipped.cut_after {
        let name = visible_path(path);
        report!(
            "umbrella: {name}: the compressed data are cut or damaged after byte {byte} of their content; the rest is \
            left out"
        );
    }
    let Some(first) = skipped.first else { return };
    let parts = [
        (skipped.times, "record with a corrupt time", "records with a corrupt time"),
        (skipped.malformed, "line that cannot be read", "lines that cannot be read"),
        (skipped.late, "record that comes too late", "records that come too late"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, one, many)| format!("{number} {}", if *number == 1 { one } else { many }))
        .collect();
    report!("umbrella: {}: left out {}; the first is {first}", visible_path(path), parts.join(", "));
}

/// `3 records`.
pub(super) fn records(number: u64) -> String {
    count(number, "record")
}
