//! The settings of a flusher at its start, and those that can be changed while it runs.

use umbrella_policy::writeback::{Spec, WriteBack, WriteBackError, policies};
use umbrella_units::{ByteSize, PAGE_BYTES, Pages};

use crate::error::FlusherError;

/// The least limit, in pages: with less there is no order to choose.
pub const LEAST_LIMIT: Pages = Pages(256);

/// How much may be dirty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Writers are held back so that no more than this is dirty or on its way. `None`: three quarters of what the
    /// kernel lets be dirty before it writes by itself, less what others have dirty, shared among all flushers of the
    /// process.
    pub limit: Option<ByteSize>,
    /// Write-back begins above this. `None`: half of the limit.
    pub background: Option<ByteSize>,
}

impl Limits {
    /// Checks what can be checked without the kernel's thresholds.
    pub fn check(self) -> Result<Limits, FlusherError> {
        let least = ByteSize(LEAST_LIMIT.0 * PAGE_BYTES);
        if let Some(given) = self.limit.filter(|&limit| limit < least) {
            return Err(FlusherError::LimitTooLow { given, least });
        }
        match (self.background, self.limit) {
            (Some(background), Some(limit)) if background.0 / PAGE_BYTES >= limit.0 / PAGE_BYTES => {
                Err(FlusherError::BackgroundAboveLimit { background, limit })
            }
            _ => Ok(self),
        }
    }
}

/// The settings of a flusher at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The policy with its parameters.
    pub policy: Spec,
    /// How much may be dirty.
    pub limits: Limits,
}

impl Settings {
    /// Reads a policy as `zone_segment:alpha=50`; automatic limits.
    pub fn parse(policy: &str) -> Result<Settings, FlusherError> {
        let settings = Settings { policy: policy.parse().map_err(live)?, limits: Limits::default() };
        settings.check()?;
        Ok(settings)
    }

    /// The policy, without a dirty page; an error for one that cannot run live, and for limits that make no sense.
    pub fn check(&self) -> Result<WriteBack, FlusherError> {
        self.limits.check()?;
        let policy = WriteBack::new(&self.policy.name, &self.policy.params).map_err(live)?;
        match policy.info() {
            info if info.offline => Err(FlusherError::Offline { name: info.name }),
            _ => Ok(policy),
        }
    }
}

/// Limits the known policies that an error names to those that need not know the future.
fn live(error: WriteBackError) -> WriteBackError {
    let WriteBackError::UnknownPolicy { name, .. } = &error else { return error };
    let live = policies().iter().filter(|info| !info.offline).map(|info| info.name);
    WriteBackError::unknown(name, live.collect())
}
