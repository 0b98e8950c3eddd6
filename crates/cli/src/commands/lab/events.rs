//! `umbrella lab run --events`: a recorded live run, decided again.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use umbrella_lab::events::{Replayed, Written, replay};
use umbrella_writeback::{FlusherError, Settings};

use crate::output;
use crate::text::{count, visible, visible_path};

/// Replays the record, and shows what was written live and what is chosen now.
pub(super) fn run(path: &Path, other: Option<&str>, json: bool) -> anyhow::Result<ExitCode> {
    // The policy that was asked for is not the record's mistake. Those that need the future are refused with their own
    // reason.
    if let Some(Err(FlusherError::Policy(unknown))) = other.map(Settings::parse) {
        return Err(unknown.into());
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", visible_path(path)))?;
    let replayed = replay(BufReader::new(file), other).with_context(|| visible_path(path))?;
    if json {
        output::json(&replayed)?;
    } else {
        output::print(&format_replay(&replayed))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_replay(replayed: &Replayed) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} over {:.3} s, decided by {}",
        count(replayed.events, "event"),
        replayed.ends_at.as_secs_f64(),
        visible(&replayed.recorded_by)
    );
    if !replayed.complete {
        text.push_str("the record was cut short; it is replayed as far as it goes\n");
    }
    if replayed.recorded.selections == 0 {
        text.push_str(
            "the policy chose nothing during the recording: dirty data stayed below the background \
            threshold\n",
        );
    }
    let line = |name: &str, written: &Written| {
        format!(
            "  {name:<24} {:>8} selections {:>10} pages {:>9} runs {:>9.1} pages a run {:>12.1} blocks between runs\n",
            written.selections,
            written.pages,
            written.runs,
            written.mean_run(),
            written.mean_distance()
        )
    };
    if replayed.policy == replayed.recorded_by {
        text.push_str(&line(&visible(&replayed.policy), &replayed.chosen));
        text.push_str("decided again: every decision is the same\n");
    } else {
        text.push_str(&line(&visible(&replayed.recorded_by), &replayed.recorded));
        text.push_str(&line(&visible(&replayed.policy), &replayed.chosen));
    }
    text
}
