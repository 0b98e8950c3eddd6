//! `[log]`: how a log store is made, and how it behaves while it is used.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;
use umbrella_block::log_store::{CreateOptions, Options};
use umbrella_policy::flash_cache::Percent;
use umbrella_policy::log_layout::{SchemeInfo, Victim};
use umbrella_policy::{PolicyError, Spec};
use umbrella_units::{ByteSize, format_duration};

use super::values::{percent, word};
use crate::config::complaints::Complaints;
use crate::config::problem::Problem;
use crate::config::values::Scalar;

const LEAST_SEGMENT: ByteSize = ByteSize(64 << 10);
const MOST_SEGMENT: ByteSize = ByteSize(256 << 20);
/// What a segment may be, for people.
pub(crate) const VALID_SEGMENT: &str = "a power of two from \"64KiB\" to \"256MiB\"";
const MOST_SPARE: Percent = Percent(90);
/// What may be spare, for people.
pub(crate) const VALID_SPARE: &str = "a share from \"1%\" to \"90%\"";
const LEAST_MAP: ByteSize = ByteSize(64 << 10);
const VALID_MAP: &str = "64KiB or more";
const LEAST_CHECKPOINT: ByteSize = ByteSize(1 << 20);
const VALID_CHECKPOINT: &str = "1MiB or more";

/// The table as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogFile {
    scheme: Option<Spanned<String>>,
    segment: Option<Spanned<Scalar>>,
    spare: Option<Spanned<Scalar>>,
    victim: Option<Spanned<String>>,
    map_memory: Option<Spanned<Scalar>>,
    clean_share: Option<Spanned<Scalar>>,
    checkpoint_every: Option<Spanned<Scalar>>,
    quiet: Option<Spanned<Scalar>>,
}

/// What makes a disk a log store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LogSpec {
    /// For a new store only, as the two below.
    pub(crate) scheme: SchemeSpec,
    /// What suits the size of the device if nothing is said.
    pub(crate) segment: Option<ByteSize>,
    /// The share of the device that is kept free, so that cleaning is cheap.
    pub(crate) spare: Percent,
    #[serde(serialize_with = "name_of")]
    pub(crate) victim: Victim,
    /// The most for the map.
    pub(crate) map_memory: ByteSize,
    /// Of the disk's time for cleaning, while others want the disk too and cleaning is not urgent.
    pub(crate) clean_share: Percent,
    /// The most log between two checkpoints.
    pub(crate) checkpoint_every: ByteSize,
    /// How long no request may have come before it cleans ahead.
    #[serde(serialize_with = "duration")]
    pub(crate) quiet: Duration,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn name_of<S: Serializer>(victim: &Victim, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(victim.name())
}

fn duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

impl Default for LogSpec {
    fn default() -> LogSpec {
        let (create, options) = (CreateOptions::default(), Options::default());
        LogSpec {
            scheme: SchemeSpec { text: create.scheme },
            segment: create.segment,
            spare: Percent((create.spare / 10) as u8),
            victim: options.victim,
            map_memory: options.map_memory,
            clean_share: Percent(options.clean_share as u8),
            checkpoint_every: options.checkpoint_every,
            quiet: options.quiet,
        }
    }
}

impl LogSpec {
    /// How it behaves.
    pub(crate) fn options(&self) -> Options {
        Options {
            victim: self.victim,
            map_memory: self.map_memory,
            clean_share: u32::from(self.clean_share.0),
            quiet: self.quiet,
            checkpoint_every: self.checkpoint_every,
            threads: true,
        }
    }

    /// How it is made.
    pub(crate) fn create_options(&self, force: bool) -> CreateOptions {
        let scheme = self.scheme.to_string();
        CreateOptions { scheme, segment: self.segment, spare: u32::from(self.spare.0) * 10, force }
    }
}

/// A placement scheme with its parameters, `r_lfs:regions=3`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct SchemeSpec {
    text: String,
}

impl FromStr for SchemeSpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<SchemeSpec, PolicyError> {
        let spec: Spec = text.parse()?;
        SchemeInfo::make_for_disk(&spec)?;
        Ok(SchemeSpec { text: text.trim().to_owned() })
    }
}

impl fmt::Display for SchemeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Whether segments can be so large.
pub(crate) fn is_segment(size: ByteSize) -> bool {
    size.0.is_power_of_two() && (LEAST_SEGMENT..=MOST_SEGMENT).contains(&size)
}

/// A share of the device that may be spare.
pub(crate) fn parse_spare(text: &str) -> Option<Percent> {
    let share = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    (1..=MOST_SPARE.0).contains(&share).then_some(Percent(share))
}

/// From the shape of the table.
pub(super) fn log(c: &mut Complaints, file: &LogFile) -> LogSpec {
    let default = LogSpec::default();
    let scheme = file.scheme.as_ref().and_then(|given| {
        given.get_ref().parse().map_err(|error| c.fail(given.span(), Problem::LogScheme { error })).ok()
    });
    LogSpec {
        scheme: scheme.unwrap_or(default.scheme),
        segment: segment(c, file.segment.as_ref()),
        spare: spare(c, file.spare.as_ref()).unwrap_or(default.spare),
        victim: word(c, file.victim.as_ref(), &[Victim::CostBenefit, Victim::Greedy].map(Victim::name)),
        map_memory: at_least(c, "map_memory", file.map_memory.as_ref(), LEAST_MAP, VALID_MAP)
            .unwrap_or(default.map_memory),
        clean_share: percent(c, "clean_share", file.clean_share.as_ref(), default.clean_share),
        checkpoint_every: at_least(
            c,
            "checkpoint_every",
            file.checkpoint_every.as_ref(),
            LEAST_CHECKPOINT,
            VALID_CHECKPOINT,
        )
        .unwrap_or(default.checkpoint_every),
        quiet: c.duration("quiet", file.quiet.as_ref(), default.quiet),
    }
}

fn segment(c: &mut Complaints, given: Option<&Spanned<Scalar>>) -> Option<ByteSize> {
    let size = c.size("segment", given, VALID_SEGMENT)?;
    if !is_segment(size) {
        let given = given?;
        let reported = Problem::OutOfRange { key: "segment", given: given.get_ref().text(), valid: VALID_SEGMENT };
        c.fail(given.span(), reported);
    }
    Some(size)
}

fn spare(c: &mut Complaints, given: Option<&Spanned<Scalar>>) -> Option<Percent> {
    let given = given?;
    let text = given.get_ref().text();
    let spare = parse_spare(&text);
    if spare.is_none() {
        c.fail(given.span(), Problem::OutOfRange { key: "spare", given: text, valid: VALID_SPARE });
    }
    spare
}

fn at_least(
    c: &mut Complaints,
    key: &'static str,
    given: Option<&Spanned<Scalar>>,
    least: ByteSize,
    valid: &'static str,
) -> Option<ByteSize> {
    let size = c.size(key, given, valid)?;
    if size < least {
        let given = given?;
        c.fail(given.span(), Problem::OutOfRange { key, given: given.get_ref().text(), valid });
    }
    Some(size)
}
