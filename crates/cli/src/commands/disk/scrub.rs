//! `umbrella disk scrub`: compares all that has checksums with them.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use umbrella_units::{ByteSize, format_duration};

use super::DiskArg;
use super::progress::ProgressDisplay;
use crate::client::ClientError;
use crate::config::disk::{VALID_BANDWIDTH, is_bandwidth};
use crate::disk::place;
use crate::disk::protocol::{Answer, Request};
use crate::disk::protocol::{ScrubResult, ScrubState, ScrubStatus};
use crate::output;
use crate::text::count;

/// How long a daemon may say nothing: it waits for the disk then.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Damaged ranges that are printed; `--json` has all.
const MOST_LINES: usize = 20;

/// Read all data of a log store, or of a hybrid disk's flash, and compare it with its checksums.
///
/// Finds damage while you still have a backup. Ctrl-C interrupts a scrub; the next one continues from there, also after
/// a restart. Ends with 1 if something is damaged. `[scrub]` in the configuration runs it at intervals.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk scrub
  umbrella disk scrub media --bandwidth 200MiB    as fast as the disk can, almost
  umbrella disk scrub media --json | jq .damaged")]
pub(super) struct ScrubArgs {
    #[command(flatten)]
    disk: DiskArg,
    /// At most this much a second [default: the configuration's, or 20MiB].
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<ByteSize>,
    /// Start from the beginning, even if a scrub was interrupted.
    #[arg(long)]
    restart: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl ScrubArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if self.bandwidth.is_some_and(|bandwidth| !is_bandwidth(bandwidth)) {
            bail!("--bandwidth: valid is {VALID_BANDWIDTH}");
        }
        let target = place::find(self.disk.disk.as_deref())?;
        let name = &target.name;
        if !place::is_served(name) {
            bail!("{name} is not served: use `umbrella disk check --data`, which reads a disk that is not served");
        }
        let request = Request::Scrub { bandwidth: self.bandwidth, restart: self.restart };
        let mut view = ProgressDisplay::new("{bar:30} {bytes} of {total_bytes} compared  {eta} left");
        let answer = target.client()?.with_timeout(TIMEOUT).call_with_heartbeat(&request, &mut |progress| {
            view.show(progress.done.0, progress.total.0, || {
                format!("{} of {} compared with their checksums", progress.done, progress.total)
            });
        });
        drop(view);
        let Answer::Scrubbed(result) = answer? else { return Err(ClientError::Unexpected.into()) };
        if self.json {
            output::json(&result)?;
        } else {
            output::print(&summary(&name.to_string(), &result))?;
        }
        Ok(if result.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The state of the scrubs of a disk, in a line.
pub(super) fn status(scrub: &ScrubStatus) -> String {
    let so_far = || {
        let damaged = (scrub.damaged_ranges > 0).then(|| format!(", {} damaged", count(scrub.damaged_ranges, "range")));
        format!("{} compared so far{}", scrub.read, damaged.unwrap_or_default())
    };
    match (scrub.state, &scrub.last) {
        (ScrubState::Running, _) => format!("running, {}", so_far()),
        (ScrubState::Interrupted, _) => format!("interrupted, {}; the next one continues there", so_far()),
        (ScrubState::Idle, None) => "never".to_owned(),
        (ScrubState::Idle, Some(last)) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let ago = format_duration(Duration::from_secs(now.saturating_sub(last.ended)));
            let found = if last.is_clean() {
                "no damage".to_owned()
            } else {
                format!("{} damaged", count(last.ranges(), "range"))
            };
            format!("last one {ago} ago: {} compared, {found}", last.read)
        }
    }
}

fn summary(name: &str, result: &ScrubResult) -> String {
    let ScrubResult { read, damaged, .. } = result;
    if result.is_clean() {
        return format!("{name}: {read} compared with their checksums, no damage found\n");
    }
    let ranges = count(result.ranges(), "range");
    let mut text = format!(
        "{name}: {read} compared with their checksums; {ranges} damaged or unreadable. Restore the files there from a backup:\n"
    );
    for range in damaged.iter().take(MOST_LINES) {
        let _ = writeln!(text, "  {range}");
    }
    if damaged.len() > MOST_LINES {
        text.push_str("  ... (--json lists all)\n");
    }
    text
}
