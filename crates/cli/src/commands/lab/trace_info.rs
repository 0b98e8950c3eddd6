//! `umbrella lab trace info`: what a trace holds.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use umbrella_lab::result::Unit;
use umbrella_lab::trace::{Event, Sizes, Summary};
use umbrella_units::{ByteSize, Nanos, PAGE_BYTES};

use super::hint::with_hint;
use super::trace_input::{Bar, ReadArgs, open, warn_of_skipped};
use crate::output;
use crate::text::{count, visible, visible_path};

/// Show what a block trace contains: requests, bytes, addresses, rewrites, idle times, sizes.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab trace info web.csv.gz
  umbrella lab trace info --json *.blkparse.txt | jq '{file, writes: .summary.writes}'
  blkparse -i sda | umbrella lab trace info -")]
pub(super) struct InfoArgs {
    /// Traces, plain or compressed (gzip, Zstandard); `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
    /// Print JSON, one object a line for each file.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Info {
    file: String,
    format: &'static str,
    /// Of blkparse: which event of a request was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    compression: String,
    rewrites: f64,
    address_span: ByteSize,
    summary: Summary,
}

impl InfoArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut failed = false;
        for (index, file) in self.files.iter().enumerate() {
            match self.read(file) {
                Ok(info) if self.json => output::json_line(&info)?,
                Ok(info) => output::print(&format!("{}{}", if index > 0 { "\n" } else { "" }, text(&info)))?,
                Err(error) => {
                    report!("umbrella: {}", output::reasons(&with_hint(error)));
                    failed = true;
                }
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn read(&self, file: &Path) -> anyhow::Result<Info> {
        let mut reader = open(file, &self.read.options())?;
        let mut bar = Bar::new(reader.progress());
        let mut summary = Summary::default();
        for record in &mut reader {
            summary.add(&record.with_context(|| visible_path(file))?);
            bar.step();
        }
        drop(bar);
        summary.finish(&reader);
        warn_of_skipped(file, &reader.skipped());
        Ok(Info {
            file: file.to_string_lossy().into_owned(),
            format: reader.format().name(),
            event: reader.event().map(Event::name),
            compression: reader.compression().to_string(),
            rewrites: summary.rewrites(),
            address_span: summary.span(),
            summary,
        })
    }
}

/// Exact, unless it is too long to read.
fn time(time: Nanos) -> String {
    if time > Nanos::from_secs(120) { Unit::Seconds.show(time.as_secs_f64()) } else { time.to_string() }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

fn text(info: &Info) -> String {
    let summary = &info.summary;
    let event = info.event.map_or_else(String::new, |event| format!(", event {event}"));
    let mut text = format!("{} ({}{event}, {})\n", visible(&info.file), info.format, info.compression);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<16}{value}");
    };
    let kinds = [(summary.writes, "write"), (summary.reads, "read"), (summary.discards, "discard")];
    let kinds = format!("{} ({})", summary.records, kinds.map(|(number, kind)| count(number, kind)).join(", "));
    row("records", kinds);
    row("writes", percent(summary.writes, summary.records));
    row(
        "written",
        format!("{}; {} of the writes sequential", summary.written, percent(summary.sequential_writes, summary.writes)),
    );
    row("read", summary.read.to_string());
    if summary.discards > 0 {
        row("discarded", summary.discarded.to_string());
    }
    row("length", time(summary.length));
    let largest = if summary.devices.len() > 1 { ", of the largest device" } else { "" };
    row("address span", format!("{}{largest}", info.address_span));
    let distinct = ByteSize(summary.distinct_pages_written.saturating_mul(PAGE_BYTES));
    row("pages written", format!("{distinct} distinct, each {:.2} times on average", info.rewrites));
    let (partial, pages) = (summary.partial_page_writes, summary.page_writes);
    row("partial pages", format!("{partial} of {} ({})", count(pages, "written page"), percent(partial, pages)));
    row("idle over 60 s", format!("{}, longest {}", count(summary.idle.over_60_s, "time"), time(summary.idle.longest)));
    row("write sizes", sizes(&summary.write_sizes, summary.writes));
    row("read sizes", sizes(&summary.read_sizes, summary.reads));
    if summary.devices.len() > 1 {
        let mut devices: Vec<_> = summary.devices.iter().collect();
        devices.sort_by_key(|device| (device.name.len(), device.name.clone()));
        for device in devices.into_iter().take(DEVICES_SHOWN) {
            row(
                &format!("device {}", visible(&device.name)),
                format!("{}, span {}", count(device.records, "record"), device.span()),
            );
        }
        if summary.devices.len() > DEVICES_SHOWN {
            row("...", format!("{} devices in all", summary.devices.len()));
        }
    }
    if summary.skipped.total() > 0 {
        row("left out", count(summary.skipped.total(), "record"));
    }
    text
}

const DEVICES_SHOWN: usize = 32;

/// `512 B to 128 KiB; rounded up to powers of two: 12 % 4 KiB, ...`, without the classes that less than one in a
/// hundred is of.
fn sizes(sizes: &Sizes, requests: u64) -> String {
    if requests == 0 {
        return "-".to_owned();
    }
    let mut classes = Vec::new();
    for (power, count) in sizes.up_to_512_doubling.iter().enumerate() {
        if *count * 100 >= requests {
            classes.push(format!("{} {}", percent(*count, requests), ByteSize(512 << power)));
        }
    }
    if sizes.min == sizes.max {
        return format!("all {}", sizes.min);
    }
    format!("{} to {}; rounded up to powers of two: {}", sizes.min, sizes.max, classes.join(", "))
}
