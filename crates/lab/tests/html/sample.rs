//! Outcomes made by hand, of the size of real ones.

use umbrella_lab::result::{Outcome, PhaseTime, Setting, Times, WindowCounts, WrittenBecause, html};
use umbrella_units::ByteSize;

/// The policies of [`comparison`], the slowest first.
pub(crate) const POLICIES: [&str; 6] = ["file", "recency", "cscan", "wow", "zone_segment:alpha=20,zone=8MiB", "sweep"];

/// One outcome; `speed` is how much faster than the first.
pub(crate) fn outcome(policy: &str, input: &str, speed: f64) -> Outcome {
    let times = |count, mean: f64| Times {
        count,
        mean,
        p50: mean / 4.0,
        p90: mean * 2.0,
        p99: mean * 9.0,
        p999: mean * 40.0,
        max: mean * 300.0,
    };
    let whole = |value: f64| (value / speed) as u64;
    Outcome {
        setting: Setting {
            policy: policy.to_owned(),
            input: input.to_owned(),
            disk: "maxtor_80gb_7200".to_owned(),
            scheduler: "deadline".to_owned(),
            memory: ByteSize(512 << 20),
            staging: false,
            seed: 42,
            scale: 0.25,
            ..Setting::default()
        },
        time_s: 187.3 / speed,
        drained_s: 193.1 / speed,
        operations: 250_000,
        bytes_requested_write: 3 << 30,
        bytes_requested_read: 1 << 30,
        read: times(60_000, 5_300.0 / speed),
        write: times(190_000, 810.0 / speed),
        phases: ["create", "transactions", "delete"]
            .map(|name| PhaseTime { name: name.to_owned(), time_s: 62.0 / speed, operations: 80_000, bytes: 1 << 30 })
            .into(),
        bytes_written: whole(3.4e9),
        bytes_read: 1_200_000_000,
        write_requests: whole(91_000.0),
        read_requests: 44_000,
        write_distance: 410_000.0 / speed.powi(3),
        seek_cylinders: whole(8.1e7),
        seeks: whole(77_000.0),
        disk_busy_s: 171.0 / speed,
        windows: WindowCounts { windows: [812, 430, 122, 60, whole(33.0).min(33), 4], sixteen: 3 },
        boundary_crossings: whole(61_000.0),
        throttled_s: 55.0 / speed.powi(2),
        written_because: WrittenBecause { threshold: 600_000, expired: 120_000, reclaim: 0, sync: 0, drained: 50_000 },
        policy_bytes: whole(7.7e6),
        peak_dirty: 52_000,
        ..Outcome::default()
    }
}

/// Where the pages come from.
pub(crate) fn origin() -> html::Provenance {
    let command = "umbrella lab compare --workload 'a & b'".to_owned();
    html::Provenance { program: "Umbrella 1.2.3".to_owned(), date: "2026-01-02 03:04 UTC".to_owned(), command }
}

/// The page of all runs that were asked for.
pub(crate) fn page(title: &str, outcomes: &[Outcome]) -> String {
    html::page(title, outcomes, outcomes.len(), &origin())
}

/// Some policies on one input.
pub(crate) fn comparison(input: &str) -> Vec<Outcome> {
    POLICIES
        .iter()
        .zip([1.0, 0.94, 1.22, 1.31, 1.38, 1.52])
        .map(|(policy, speed)| outcome(policy, input, speed))
        .collect()
}

/// Three policies over four zone sizes, and one that the size does not concern.
pub(crate) fn sweep(input: &str) -> Vec<Outcome> {
    let mut outcomes = vec![outcome("file", input, 1.0)];
    for (policy, gain) in [("zone", 0.11), ("zone_segment", 0.15), ("wasl_zone", 0.07)] {
        for (step, size) in ["2MiB", "4MiB", "8MiB", "16MiB"].into_iter().enumerate() {
            let mut swept = outcome(policy, input, 1.0 + gain * (1.0 + step as f64).sqrt());
            swept.setting.swept.insert("zone".to_owned(), size.to_owned());
            outcomes.push(swept);
        }
    }
    outcomes
}
