//! `[scrub]`: when, and how fast, all that has checksums is read and compared with them.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;
use umbrella_units::{ByteSize, format_duration};

use crate::config::complaints::Complaints;
use crate::config::problem::Problem;
use crate::config::values::Scalar;

/// Slow enough that others hardly notice, and a terabyte in half a day.
const DEFAULT_BANDWIDTH: ByteSize = ByteSize(20 << 20);
const LEAST_BANDWIDTH: ByteSize = ByteSize(64 << 10);
/// What it may be, for people.
pub(crate) const VALID_BANDWIDTH: &str = "64KiB or more (a second)";
const LEAST_INTERVAL: Duration = Duration::from_secs(60);
const VALID_INTERVAL: &str = "a minute or longer";

/// The table as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScrubFile {
    every: Option<Spanned<Scalar>>,
    bandwidth: Option<Spanned<Scalar>>,
}

/// How a disk is scrubbed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ScrubSpec {
    /// From the end of one to the beginning of the next. None by itself if nothing is said.
    #[serde(serialize_with = "duration")]
    pub(crate) every: Option<Duration>,
    /// Bytes a second at most.
    pub(crate) bandwidth: ByteSize,
}

impl Default for ScrubSpec {
    fn default() -> ScrubSpec {
        ScrubSpec { every: None, bandwidth: DEFAULT_BANDWIDTH }
    }
}

#[expect(clippy::ref_option, reason = "serde hands over a reference")]
fn duration<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => serializer.serialize_str(&format_duration(*duration)),
        None => serializer.serialize_none(),
    }
}

/// Whether it may read this much a second.
pub(crate) fn is_bandwidth(bandwidth: ByteSize) -> bool {
    bandwidth >= LEAST_BANDWIDTH
}

/// Reads the table.
pub(super) fn scrub(c: &mut Complaints, file: &ScrubFile) -> ScrubSpec {
    let every = file.every.as_ref().map(|given| {
        let every = c.duration("every", Some(given), LEAST_INTERVAL);
        if every < LEAST_INTERVAL {
            let reported = Problem::OutOfRange { key: "every", given: given.get_ref().text(), valid: VALID_INTERVAL };
            c.fail(given.span(), reported);
        }
        every
    });
    let bandwidth = c.size("bandwidth", file.bandwidth.as_ref(), VALID_BANDWIDTH);
    if let (Some(bandwidth), Some(given)) = (bandwidth, &file.bandwidth)
        && !is_bandwidth(bandwidth)
    {
        let reported = Problem::OutOfRange { key: "bandwidth", given: given.get_ref().text(), valid: VALID_BANDWIDTH };
        c.fail(given.span(), reported);
    }
    ScrubSpec { every, bandwidth: bandwidth.unwrap_or(DEFAULT_BANDWIDTH) }
}
