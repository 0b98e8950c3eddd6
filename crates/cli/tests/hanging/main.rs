//! Branches that hang, or die in the middle of something: file systems whose daemons are stopped, slowed down and
//! killed.
//!
//! A program of its own, with one test at a time. A process that another test starts has, until it runs, every open
//! file of this program, and closes them on the way. Where one of them hangs, the other test hangs with it.

mod commands;
mod in_doubt;
mod late;
mod names;
mod slow;
mod staged;
mod stopped;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::Signal;
use support::eventually;
use support::foreign::{Mirror, Tampered};
use support::pool::Pool;
use support::process::signal;

/// Looks often, and does not wait for long.
const IMPATIENT: &str = "probe_interval = \"200ms\"\nprobe_timeout = \"5s\"\n";
const B_BY_NAME: &str =
    "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"] }]\n";

/// To be held by every test from its beginning to its end.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the mirror in the middle of a call that is delayed `slow`ly; it continues when it gets SIGCONT. The tracer
/// that slowed it down may take the stop along, so it is stopped once more.
fn stop(mirror: &Mirror, slow: Tampered) {
    signal(mirror.pid(), Signal::SIGSTOP);
    drop(slow);
    signal(mirror.pid(), Signal::SIGSTOP);
}

fn wait_until(pool: &Pool, branch: &str, online: bool) {
    eventually(&format!("branch {branch} is {}", if online { "online" } else { "offline" }), || {
        pool.is_online(branch) == online
    });
}
