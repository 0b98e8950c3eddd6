//! Shared by the tests of devices: a client that keeps a number of requests under way, and requests for it.

use umbrella_units::{Lba, Nanos, SplitMix64};

use super::{Completion, Device, Op, Request, RequestId};

/// Keeps `depth` requests under way until all are done; returns the completions and when the last one was.
pub(crate) fn run(
    device: &mut dyn Device,
    requests: impl IntoIterator<Item = (Op, Lba, u32)>,
    depth: usize,
) -> (Vec<Completion>, Nanos) {
    let mut requests = requests.into_iter().enumerate();
    let (mut now, mut done, mut under_way) = (Nanos(0), Vec::new(), 0);
    loop {
        while under_way < depth && device.room() > 0 {
            let Some((id, (op, lba, sectors))) = requests.next() else { break };
            device.submit(now, Request { id: RequestId(id as u64), op, lba, sectors });
            under_way += 1;
        }
        let Some(at) = device.next_event() else { break };
        let before = done.len();
        device.advance(at, &mut done);
        under_way -= done.len() - before;
        now = at;
    }
    let end = done.iter().map(|completion| completion.at).max().unwrap_or_default();
    (done, end)
}

/// Requests of 4 KiB all over the first `capacity` sectors.
pub(crate) fn random(op: Op, count: usize, capacity: Lba, seed: u64) -> Vec<(Op, Lba, u32)> {
    let mut numbers = SplitMix64::new(seed);
    (0..count).map(|_| (op, Lba(numbers.below(capacity.0 / 8) * 8), 8)).collect()
}

/// Requests one behind the other from `start`.
pub(crate) fn sequential(op: Op, count: usize, start: Lba, sectors: u32) -> Vec<(Op, Lba, u32)> {
    (0..count as u64).map(|index| (op, Lba(start.0 + index * u64::from(sectors)), sectors)).collect()
}
