//! What to do about an error of the laboratory, in the options of its commands. The library knows no command line.

use std::error::Error;

use anyhow::anyhow;
use umbrella_lab::experiment::LabError;
use umbrella_lab::machine::RunError;
use umbrella_lab::trace::{Format, Problem, TraceError, Unwritable, WriteError};

use crate::output::reasons;

/// The error, with the options that help in parentheses behind it.
pub(in crate::commands) fn with_hint(error: anyhow::Error) -> anyhow::Error {
    let Some(hint) = error.chain().find_map(hint) else { return error };
    let text = reasons(&error);
    match text.strip_suffix(')') {
        Some(text) => anyhow!("{text}; {hint})"),
        None => anyhow!("{text} ({hint})"),
    }
}

fn hint(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<LabError>() {
        of_lab(error)
    } else if let Some(error) = error.downcast_ref::<RunError>() {
        of_run(error).map(str::to_owned)
    } else if let Some(error) = error.downcast_ref::<TraceError>() {
        of_trace(error)
    } else if let Some(WriteError::Unwritable { why, .. }) = error.downcast_ref() {
        let one = if *why == Unwritable::SecondDevice { "choose one: --device; " } else { "" };
        Some(format!("{one}leave such records out: --skip-unwritable"))
    } else {
        None
    }
}

fn of_lab(error: &LabError) -> Option<String> {
    match error {
        LabError::BeyondEnd { larger, .. } if larger.is_empty() => {
            Some("no --disk is large enough: use --fit wrap, which begins again at its start".to_owned())
        }
        LabError::BeyondEnd { larger, .. } => {
            Some(format!("a larger --disk: {larger}; or --fit wrap, which begins again at its start"))
        }
        LabError::SweptTwice { name } => Some(format!("write all values in one: --sweep {name}=A,B,C")),
        _ => None,
    }
}

fn of_run(error: &RunError) -> Option<&'static str> {
    match error {
        RunError::NoSpace { .. } | RunError::LargerThanDisk { .. } => {
            Some("a larger --disk or a smaller --scale makes room")
        }
        RunError::BeyondEnd { .. } => Some("choose a larger --disk, or --fit wrap"),
        RunError::TooMuchToForesee { .. } => {
            Some("umbrella lab trace convert --until takes a part of a trace; a smaller --scale shrinks a workload")
        }
        _ => None,
    }
}

fn of_trace(error: &TraceError) -> Option<String> {
    let hint = match error {
        TraceError::UnknownFormat => {
            return Some(format!("name the format with --format if it is one of {}", Format::NAMES));
        }
        TraceError::UncertainFormat { .. } => "name the format with --format",
        TraceError::Malformed { problem: Problem::TooManyDevices, .. } => "is it another format? name it with --format",
        TraceError::Malformed { .. } => "leave out what cannot be read: --lenient",
        TraceError::Unsorted { .. } => "sort it: umbrella lab trace convert --sort",
        TraceError::TimeJump { .. } => "a corrupt time? to skip it, leave out --strict; to accept it, give --max-gap",
        TraceError::TooManyToSort { .. } => "cut the trace first: --from, --until, --device",
        _ => return None,
    };
    Some(hint.to_owned())
}
