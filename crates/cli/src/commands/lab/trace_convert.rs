//! `umbrella lab trace convert`: the same trace in another format, or a part of it, or sorted.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use umbrella_lab::trace::{self, Devices, Format, Order, Record, WriteError, Writer};
use umbrella_units::Nanos;

use super::trace_input::{Bar, ReadArgs, duration, open, records, warn_of_skipped};
use crate::commands::trace_output::{Existing, Output, OutputStage};
use crate::output::OutputError;
use crate::text::visible_path;

/// Convert a trace to another format, cut a part out of it, or sort it.
///
/// The output gets its name only once it is complete. It is compressed if its name ends with .gz or .zst.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella lab trace convert sda.blkparse.txt sda.csv.gz
  umbrella lab trace convert --to fio3 web.csv.gz web.iolog       # replay it with fio
  umbrella lab trace convert web.csv.gz web.parquet               # for pandas
  umbrella lab trace convert --from 2h --until 3h week.msr.csv.gz hour.csv
  umbrella lab trace convert --sort jumbled.csv sorted.csv")]
pub(super) struct ConvertArgs {
    /// The trace; `-` is standard input.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The new file; `-` is standard output.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
    /// The format to write: csv, msr, spc, fio2, fio3, vscsi or parquet [default: by the ending of OUT (.msr.csv, .spc,
    /// .iolog, .vscsi, .parquet), else csv].
    #[arg(long, value_name = "FORMAT", value_parser = writable)]
    to: Option<Format>,
    /// Only the requests of this device: its number in the order of appearance, from 0.
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Only requests from this time on, counted from the first request.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    from: Option<Nanos>,
    /// Only requests before this time.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    until: Option<Nanos>,
    /// Sort by time first, in memory (64 bytes a request).
    #[arg(long)]
    sort: bool,
    /// Leave out what the format cannot hold (discards, misaligned requests), and count it.
    #[arg(long)]
    skip_unwritable: bool,
    /// Replace OUT if it exists.
    #[arg(long)]
    force: bool,
}

/// The most requests that are sorted in memory: 4 GiB.
const SORT_LIMIT: usize = 64 << 20;

/// What has been done so far.
#[derive(Debug, Default)]
struct ConvertCounts {
    written: u64,
    unwritable: u64,
}

impl ConvertArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if let (Some(from), Some(until)) = (self.from, self.until)
            && from >= until
        {
            bail!("no time is from {from} on and before {until}: --until must be later than --from");
        }
        let progress = OutputStage::default();
        progress.end_at_signals()?;
        let format = self.to.unwrap_or_else(|| format_by_extension(&self.output));
        let mut options = self.read.options();
        if self.sort {
            options.order = Order::File;
        }
        let mut reader = open(&self.input, &options)?;
        let existing = if self.force { Existing::Replace } else { Existing::Keep };
        let mut writer = Writer::new(Output::create(&self.output, existing, &progress)?, format)?;
        let mut bar = Bar::new(reader.progress());
        let mut tally = ConvertCounts::default();
        let of_input = || visible_path(&self.input);
        if self.sort {
            let watched = (&mut reader).inspect(|_| {
                bar.step();
            });
            let sorted = trace::sort(watched, &options, SORT_LIMIT).with_context(of_input)?;
            for record in &sorted.records {
                self.write(&mut writer, record, reader.devices(), &mut tally)?;
            }
            if sorted.corrupt_times > 0 {
                report!("umbrella: {}: left out {} with a corrupt time", of_input(), records(sorted.corrupt_times));
            }
        } else {
            while let Some(record) = reader.next() {
                let record = record.with_context(of_input)?;
                self.write(&mut writer, &record, reader.devices(), &mut tally)?;
                bar.step();
                if self.until.is_some_and(|until| record.time >= until) {
                    break;
                }
            }
        }
        drop(bar);
        warn_of_skipped(&self.input, &reader.skipped());
        let devices = reader.devices().len();
        if let Some(device) = self.device.filter(|device| tally.written == 0 && *device as usize >= devices) {
            bail!("{}: no device {device}: it has {devices} (numbered from 0)", of_input());
        }
        writer.finish().map_err(|error| self.failed(error))?.finish()?;
        self.report(&tally, format);
        Ok(ExitCode::SUCCESS)
    }

    fn is_selected(&self, record: &Record) -> bool {
        let after = self.from.is_none_or(|from| record.time >= from);
        let before = self.until.is_none_or(|until| record.time < until);
        after && before && self.device.is_none_or(|device| record.device == device)
    }

    fn write(
        &self,
        writer: &mut Writer<Output>,
        record: &Record,
        devices: &Devices,
        tally: &mut ConvertCounts,
    ) -> anyhow::Result<()> {
        if !self.is_selected(record) {
            return Ok(());
        }
        match writer.write(record, devices) {
            Ok(()) => tally.written += 1,
            Err(WriteError::Unwritable { .. }) if self.skip_unwritable => tally.unwritable += 1,
            Err(error @ WriteError::Unwritable { .. }) => return Err(error.into()),
            Err(error) => return Err(self.failed(error)),
        }
        Ok(())
    }

    fn failed(&self, error: WriteError) -> anyhow::Error {
        match error {
            WriteError::Output { source } if self.output == Path::new("-") => OutputError::from(source).into(),
            error => anyhow::Error::new(error).context(visible_path(&self.output)),
        }
    }

    fn report(&self, tally: &ConvertCounts, format: Format) {
        let left_out = match tally.unwritable {
            0 => String::new(),
            number => format!(", left out {} that the format cannot hold", records(number)),
        };
        let none = if tally.written == 0 { " (none match)" } else { "" };
        report!("{}: {} as {format}{none}{left_out}", visible_path(&self.output), records(tally.written));
    }
}

fn writable(text: &str) -> Result<Format, String> {
    Format::writable().find(|format| format.name() == text).ok_or_else(|| {
        let names: Vec<_> = Format::writable().map(Format::name).collect();
        format!("can be written: {}", names.join(", "))
    })
}

fn format_by_extension(path: &Path) -> Format {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let endings = [
        (".msr.csv", Format::Msr),
        (".msr", Format::Msr),
        (".spc", Format::Spc),
        (".iolog", Format::Fio3),
        (".vscsi", Format::Vscsi),
        (".parquet", Format::Parquet),
    ];
    endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map_or(Format::Csv, |(_, format)| format)
}
