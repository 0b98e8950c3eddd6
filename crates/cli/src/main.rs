//! The `umbrella` binary: reads configurations, mounts pools, and speaks to the daemons of mounted ones.
//!
//! One file per subcommand under `commands`. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.

#[macro_use]
mod output;

mod advice;
mod client;
mod commands;
mod config;
mod covers;
mod daemon;
mod disk;
mod doctor;
mod duplicates;
mod ending;
mod first_look;
mod mergerfs;
mod mount;
mod mount_helper;
mod mount_options;
mod mounts;
mod pool;
mod probe;
mod render;
mod state_file;
mod storage;
mod survey;
mod systemd;
mod text;

use std::ffi::OsString;
use std::fmt;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Parser};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use commands::Command;

/// One directory tree over all the disks of a machine.
#[derive(Debug, Parser)]
#[command(name = "umbrella", version, about, long_about = None, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    /// Say more in the log; twice for everything (the variable RUST_LOG overrides it).
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
EXAMPLES:
  umbrella check pool.toml              is the configuration right?
  umbrella mount pool.toml --daemon     mount it, return when it is ready
  umbrella status                       branches, space, rules
  umbrella explain /srv/pool/film.avi   where is it, where does it belong, why?
  umbrella unmount                      finish what is under way, and unmount";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(answered) = probe::run_child(&args, config::probe_to_json) {
        return answered;
    }
    let cli = match mount_helper::command_line(&args) {
        Some(Ok(args)) => parse(args),
        Some(Err(error)) => {
            report!("umbrella: {error}");
            return ExitCode::from(2);
        }
        None => parse(args),
    };
    log_to_stderr(cli.verbose, cli.command.is_short());
    match cli.command.run(cli.verbose) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report!("umbrella: {}", output::visible_lines(&output::reasons(&error)));
            ExitCode::FAILURE
        }
    }
}

/// The command line. Names the command that a word stands for which is none.
fn parse(args: Vec<OsString>) -> Cli {
    Cli::try_parse_from(args).unwrap_or_else(|mut error| {
        let meant = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(word)) if word == "move" => Some("enforce"),
            Some(ContextValue::String(word)) if word == "reload" => Some("rules reload"),
            _ => None,
        };
        if let Some(meant) = meant {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant.to_owned()]));
        }
        error.exit()
    })
}

fn log_to_stderr(verbose: u8, is_short: bool) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(verbose > 0);
    if is_short && verbose == 0 { log.event_format(PlainFormat).init() } else { log.init() }
}

/// Messages of a command in the foreground, besides its result. It is no log, so they have no times.
struct PlainFormat;

impl<S, N> FormatEvent<S, N> for PlainFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        to.write_str(match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        })?;
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
