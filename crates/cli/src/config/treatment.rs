//! How the files of a rule are treated.

use std::ops::Range;

use umbrella_policy::placement::spec::Treatment;
use umbrella_units::parse_duration;

use super::conversion::Conversion;
use super::file::RuleFile;
use super::problem::Problem;

/// Reads what a rule says of its files.
pub(super) fn read(c: &mut Conversion, file: &RuleFile) -> Treatment {
    let min_stay = file.min_stay.as_ref().and_then(|given| {
        parse_duration(&given.get_ref().text())
            .map_err(|error| c.fail(given.span(), Problem::Duration { key: "min_stay", error }))
            .ok()
    });
    Treatment {
        staging: file.staging.as_ref().map(|mode| *mode.get_ref()),
        passthrough: file.passthrough.as_ref().map(|allowed| *allowed.get_ref()),
        min_stay,
    }
}

/// Where the first key is that says how files are treated, and its name.
pub(super) fn first_key(file: &RuleFile) -> Option<(&'static str, Range<usize>)> {
    let keys = [
        file.staging.as_ref().map(|value| ("staging", value.span())),
        file.passthrough.as_ref().map(|value| ("passthrough", value.span())),
        file.min_stay.as_ref().map(|value| ("min_stay", value.span())),
    ];
    keys.into_iter().flatten().min_by_key(|(_, span)| span.start)
}
