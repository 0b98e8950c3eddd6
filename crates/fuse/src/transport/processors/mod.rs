//! The processors that requests come from, and whether io_uring can serve them.
//!
//! The kernel has a queue for each possible processor. A thread that serves a queue must be able to run on its
//! processor: only from there can it make the queue look for waiting requests ([`ring`](super::ring)).

use std::fs;
use std::io;
use std::thread::{self, Builder};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::Transport;
use crate::device::Device;

/// More processors than queues are made for.
const MOST_PROCESSORS: usize = 256;
/// Where root allows FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The number of queues, or the reason against io_uring. Switches it on in the kernel if nothing else is against it.
pub(crate) fn queues(transport: Transport) -> Result<usize, String> {
    if transport == Transport::Dev {
        return Err("it was asked for".to_owned());
    }
    let queues = queues_for(&list("possible")?)?;
    if let Some(forbidden) = first_forbidden(&list("online")?) {
        return Err(format!(
            "this process may not run on processor {forbidden}: allow it all processors (AllowedCPUs= in a unit, cpuset.cpus of its group)"
        ));
    }
    // Loads the kernel's module, which has the switch.
    let _ = Device::open();
    let switch = fs::read_to_string(SWITCH).map_err(|_| "this kernel has no FUSE over io_uring".to_owned())?;
    if switch.trim() != "Y" {
        fs::write(SWITCH, "Y").map_err(|error| format!("{SWITCH} is N and cannot be changed: {error}"))?;
        tracing::info!("FUSE over io_uring was off and is now on ({SWITCH})");
    }
    Ok(queues)
}

fn list(kind: &str) -> Result<String, String> {
    let path = format!("/sys/devices/system/cpu/{kind}");
    fs::read_to_string(&path).map_err(|error| format!("{path} cannot be read: {error}"))
}

/// One queue for each processor up to the last of this list of possible ones.
fn queues_for(possible: &str) -> Result<usize, String> {
    match processors(possible).last() {
        Some(last) if last < MOST_PROCESSORS => Ok(last + 1),
        Some(last) => Err(format!("it needs threads for each of {} possible processors", last + 1)),
        None => Err("the possible processors are not known".to_owned()),
    }
}

/// The processors of a list such as `0-3` or `0,2-5`.
fn processors(list: &str) -> impl Iterator<Item = usize> + '_ {
    list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

/// The first processor of a list that this process may not run on. A thread tries, and is left where it was put.
fn first_forbidden(online: &str) -> Option<usize> {
    let refuses = || processors(online).find(|processor| pin_this_thread(*processor).is_err());
    // Without a thread there are no rings either, which is noticed later.
    thread::scope(|scope| Builder::new().spawn_scoped(scope, refuses).ok()?.join().ok()?)
}

/// Keeps this thread on a processor. Fails where the processor is offline or the process is confined to others.
pub(crate) fn pin_this_thread(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests;
