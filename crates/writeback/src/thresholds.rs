//! How much may be dirty: below the kernel's own background threshold, so that the kernel's flusher, which knows
//! nothing of the order, stays out of it.
//!
//! | at | happens |
//! | --- | --- |
//! | background | write-back begins |
//! | set point | writers are slowed down, the more the nearer the limit |
//! | limit | writers wait |

use std::sync::atomic::{AtomicU64, Ordering};

use umbrella_units::{PAGE_BYTES, Pages};

use crate::settings::{LEAST_LIMIT, Limits};
use crate::sys::{DiskShare, KernelDirty};

/// Where the kernel does not say what it allows: 64 MiB.
const DEFAULT_ALLOWANCE: Pages = Pages(1 << 14);

/// Flushers of this process, and the pages that they know to be dirty.
static FLUSHERS: AtomicU64 = AtomicU64::new(0);
static DIRTY: AtomicU64 = AtomicU64::new(0);

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    pub(crate) background: Pages,
    pub(crate) set_point: Pages,
    pub(crate) limit: Pages,
}

impl Thresholds {
    /// For what was asked, and what the kernel leaves for it.
    pub(crate) fn new(asked: Limits, allowance: Pages) -> Thresholds {
        let most = allowance.0.max(LEAST_LIMIT.0);
        let limit = asked.limit.map_or(most, |limit| (limit.0 / PAGE_BYTES).clamp(LEAST_LIMIT.0, most));
        let background = asked.background.map(|size| size.0 / PAGE_BYTES).filter(|&pages| pages < limit);
        let background = background.unwrap_or(limit / 2);
        // The more is dirty, the more there is to choose from: writers are let fill all but the last eighth.
        let set_point = limit - (limit - background) / 8;
        Thresholds { background: Pages(background), set_point: Pages(set_point), limit: Pages(limit) }
    }
}

/// The dirty pages of other programs are not known; those of this process's flushers are. The allowance is at most
/// three quarters of the disk's own share of the threshold (`millionths` of it), which other disks cannot use.
fn allowance(kernel: Option<KernelDirty>, ours: Pages, flushers: u64, millionths: u64) -> Pages {
    let Some(kernel) = kernel else { return DEFAULT_ALLOWANCE };
    let others = kernel.dirty.0.saturating_sub(ours.0);
    let most = kernel.background.0 / 4 * 3;
    let disks = u128::from(most) * u128::from(millionths) / 1_000_000;
    Pages((most.saturating_sub(others) / flushers.max(1)).min(disks as u64))
}

/// A flusher's share in what the kernel allows.
#[derive(Debug)]
pub(crate) struct Share {
    disk: DiskShare,
    reported: AtomicU64,
}

impl Share {
    /// The share of a flusher of this disk.
    pub(crate) fn new(disk: DiskShare) -> Share {
        FLUSHERS.fetch_add(1, Ordering::Relaxed);
        Share { disk, reported: AtomicU64::new(0) }
    }

    /// Publishes the number of dirty pages of this flusher.
    pub(crate) fn publish(&self, dirty: Pages) {
        let before = self.reported.swap(dirty.0, Ordering::Relaxed);
        DIRTY.fetch_add(dirty.0.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The number of pages that may be dirty here, and whether the kernel has far fewer dirty pages than the flushers
    /// count.
    pub(crate) fn allowance(&self, kernel: Option<KernelDirty>) -> (Pages, bool) {
        let ours = Pages(DIRTY.load(Ordering::Relaxed));
        let allowance = allowance(kernel, ours, FLUSHERS.load(Ordering::Relaxed), self.disk.millionths());
        // The kernel's counters lag by up to some hundred pages a processor.
        let wrong = kernel.is_some_and(|kernel| kernel.dirty.0 + 1024 + ours.0 / 16 < ours.0);
        (allowance, wrong)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.publish(Pages(0));
        FLUSHERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbrella_units::ByteSize;

    fn left(dirty: u64, background: u64, ours: u64, flushers: u64) -> Pages {
        let kernel = KernelDirty { dirty: Pages(dirty), background: Pages(background) };
        allowance(Some(kernel), Pages(ours), flushers, 1_000_000)
    }

    #[test]
    fn what_others_have_dirty_is_not_ours_to_use() {
        assert_eq!(left(500, 4000, 200, 1), Pages(2700));
        assert_eq!(left(500, 4000, 200, 3), Pages(900));
        assert_eq!(left(9000, 4000, 200, 1), Pages(0));
        assert_eq!(left(100, 4000, 200, 0), Pages(3000), "counters lag");
        assert_eq!(allowance(None, Pages(200), 1, 0), DEFAULT_ALLOWANCE);
    }

    #[test]
    fn a_disk_that_the_kernel_keeps_short_is_kept_short_here() {
        let kernel = Some(KernelDirty { dirty: Pages(0), background: Pages(4000) });
        assert_eq!(allowance(kernel, Pages(0), 1, 100_000), Pages(300));
        assert_eq!(allowance(kernel, Pages(0), 20, 100_000), Pages(150));
    }

    #[test]
    fn the_limit_is_never_above_what_the_kernel_leaves() {
        let asked = |limit, background| Limits { limit, background };
        let mib = |mib: u64| Some(ByteSize(mib << 20));
        let thresholds = |[background, set_point, limit]: [u64; 3]| Thresholds {
            background: Pages(background),
            set_point: Pages(set_point),
            limit: Pages(limit),
        };
        let got = Thresholds::new(asked(mib(64), None), Pages(1000));
        assert_eq!(got, thresholds([500, 938, 1000]));
        let got = Thresholds::new(asked(mib(2), mib(1)), Pages(1000));
        assert_eq!(got, thresholds([256, 480, 512]));
        let got = Thresholds::new(asked(mib(64), mib(32)), Pages(0));
        assert_eq!(got, thresholds([128, 240, 256]));
    }
}
