//! The lab's prediction for the same workload: the same steps, on a modelled machine with the same allowance of dirty
//! pages.
//!
//! The lab's memory is ten times as large, and its shares of dirty pages a tenth (1 % and 4 %). A real machine too has
//! far more memory than the allowance, so nothing is read twice on either side. Blocks are allocated at write-back, as
//! ext4 does. Linux of today is `file:chunk=4MiB`.

use std::collections::BTreeMap;

use anyhow::Result;
use umbrella_lab::machine::{Allocation, Computer, Config, Layout};
use umbrella_lab::result::{Outcome, Setting};
use umbrella_lab::workload::BoxedWorkload;
use umbrella_model::device::{Options, profile};
use umbrella_model::page_cache::PageCacheConfig;
use umbrella_model::scheduler;
use umbrella_policy::writeback::WriteBack;
use umbrella_units::PAGE_BYTES;

use crate::report::Figures;
use crate::sizes::Sizes;

/// What Linux of today does.
pub(crate) const KERNEL: &str = "file:chunk=4MiB";
/// Memory in multiples of what stands for a hundredth of it.
const TIMES: u64 = 10;
const QUEUE: usize = 128;

/// What is assumed besides the policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assumed<'a> {
    pub(crate) disk: &'a str,
    pub(crate) sizes: Sizes,
    pub(crate) staging: bool,
}

/// One run; time is until everything is on disk.
pub(crate) fn predict(assumed: Assumed<'_>, policy: &str, mut workload: BoxedWorkload) -> Result<Figures> {
    let Assumed { disk, sizes, staging } = assumed;
    let cache = PageCacheConfig::default();
    let config = Config {
        cache: PageCacheConfig {
            pages: sizes.memory().0 * TIMES / PAGE_BYTES,
            background_percent: cache.background_percent / TIMES as u32,
            foreground_percent: cache.foreground_percent / TIMES as u32,
            batch: sizes.count(cache.batch),
            ..cache
        },
        allocation: Allocation::Delayed,
        staging,
        ..Config::default()
    };
    let device = profile(disk)?.build(&Options::default());
    let schedule = scheduler::scheduler("deadline")?;
    let setting = Setting { policy: policy.to_owned(), disk: disk.to_owned(), ..Setting::default() };
    let layout = Layout::FileSystem { seed: 1, aged_percent: 0 };
    let machine = Computer::new(config, layout, WriteBack::parse(policy)?, device, |disk| schedule.build(disk, QUEUE))?;
    let outcome = machine.run(setting, &mut *workload, &mut |_| true)?;
    Ok(figures(&outcome))
}

fn figures(outcome: &Outcome) -> Figures {
    let written = outcome.bytes_written as f64;
    let requests = outcome.write_requests as f64;
    BTreeMap::from([
        ("seconds", outcome.drained_s),
        ("bytes", (outcome.bytes_requested_read + outcome.bytes_requested_write) as f64),
        ("requests", requests),
        ("request_bytes", written / requests.max(1.0)),
        ("distance_bytes", outcome.write_distance * PAGE_BYTES as f64),
        ("seek_cylinders", outcome.seek_cylinders as f64),
    ])
}
