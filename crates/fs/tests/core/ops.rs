//! Operations, and how they are drawn. Each names what it acts on by a number that is taken modulo what is there, so
//! that any part of a sequence is a sequence.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Time for one kind of generated run.
pub(crate) fn budget(seconds: u64) -> Duration {
    let asked = std::env::var("UMBRELLA_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(seconds))
}

/// Where seeds begin.
pub(crate) fn first_seed() -> u64 {
    std::env::var("UMBRELLA_MODEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Which of the things that are there.
pub(crate) type Pick = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A whole file: created, written, closed.
    Put {
        dir: Pick,
        name: Pick,
        perm: u32,
        uid: u32,
        len: u32,
    },
    /// Created and left open.
    CreateOpen {
        dir: Pick,
        name: Pick,
    },
    Mkdir {
        dir: Pick,
        name: Pick,
        perm: u32,
    },
    Symlink {
        dir: Pick,
        name: Pick,
    },
    Mkfifo {
        dir: Pick,
        name: Pick,
    },
    Link {
        file: Pick,
        dir: Pick,
        name: Pick,
    },
    Open {
        file: Pick,
        write: bool,
        truncate: bool,
    },
    Write {
        handle: Pick,
        at: u32,
        len: u32,
    },
    Allocate {
        handle: Pick,
        len: u32,
    },
    CopyRange {
        from: Pick,
        to: Pick,
    },
    Close {
        handle: Pick,
    },
    Unlink {
        entry: Pick,
    },
    Rmdir {
        dir: Pick,
    },
    Rename {
        entry: Pick,
        dir: Pick,
        name: Pick,
        way: u8,
    },
    Exchange {
        entry: Pick,
        other: Pick,
    },
    Chmod {
        what: Pick,
        perm: u32,
    },
    Chown {
        what: Pick,
        uid: u32,
    },
    SetTime {
        what: Pick,
        secs: u32,
    },
    Truncate {
        file: Pick,
        len: u32,
    },
    SetXattr {
        what: Pick,
        name: u32,
        len: u32,
    },
    RemoveXattr {
        what: Pick,
        name: u32,
    },
    /// The mover moves what is queued.
    Settle,
    Enforce,
    /// Everything leaves the staging area.
    Sync,
    Fsync {
        handle: Pick,
    },
    Reload {
        rules: u32,
    },
    /// The kernel forgets every node.
    DropCaches,
    Remount {
        orderly: bool,
    },
    /// A branch goes; only what then is visible is changed.
    TakeAway {
        branch: Pick,
    },
    GiveBack,
    Drain {
        branch: Pick,
    },
}

/// What a seed stands for.
pub(crate) fn generate(seed: u64, count: usize) -> Vec<Op> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count).map(|_| draw(&mut rng)).collect()
}

fn perm(rng: &mut StdRng) -> u32 {
    [0o644, 0o600, 0o755, 0o444, 0o4755, 0o2750, 0o1777, 0][rng.random_range(0..8)]
}

/// Mostly small; some grow past the rules, some past the tiny branch.
fn len(rng: &mut StdRng) -> u32 {
    match rng.random_range(0..10) {
        0 => 0,
        1..=4 => rng.random_range(1..2000),
        5..=7 => rng.random_range(4000..20_000),
        _ => rng.random_range(100_000..260_000),
    }
}

fn draw(rng: &mut StdRng) -> Op {
    let mut pick = || rng.random_range(0..1000);
    let (a, b, c) = (pick(), pick(), pick());
    match rng.random_range(0..105) {
        0..=11 => Op::Put { dir: a, name: b, perm: perm(rng), uid: [0, 1000][c as usize % 2], len: len(rng) },
        12..=15 => Op::CreateOpen { dir: a, name: b },
        16..=20 => Op::Mkdir { dir: a, name: b, perm: perm(rng) },
        21..=22 => Op::Symlink { dir: a, name: b },
        23 => Op::Mkfifo { dir: a, name: b },
        24..=26 => Op::Link { file: a, dir: b, name: c },
        27..=31 => Op::Open { file: a, write: b % 3 != 0, truncate: c % 5 == 0 },
        32..=40 => Op::Write { handle: a, at: len(rng), len: len(rng) },
        41 => Op::Allocate { handle: a, len: len(rng) },
        42 => Op::CopyRange { from: a, to: b },
        43..=49 => Op::Close { handle: a },
        50..=53 => Op::Unlink { entry: a },
        54..=55 => Op::Rmdir { dir: a },
        56..=63 => Op::Rename { entry: a, dir: b, name: c, way: rng.random_range(0..8) },
        64..=65 => Op::Exchange { entry: a, other: b },
        66..=68 => Op::Chmod { what: a, perm: perm(rng) },
        69..=70 => Op::Chown { what: a, uid: [0, 1000, 1001][b as usize % 3] },
        71 => Op::SetTime { what: a, secs: b * 1000 },
        72..=74 => Op::Truncate { file: a, len: len(rng) },
        75..=76 => Op::SetXattr { what: a, name: b % 3, len: c % 100 },
        77 => Op::RemoveXattr { what: a, name: b % 3 },
        78..=84 => Op::Settle,
        85..=87 => Op::Enforce,
        88..=89 => Op::Reload { rules: a },
        90..=91 => Op::DropCaches,
        92..=93 => Op::Remount { orderly: a % 2 == 0 },
        94..=95 => Op::TakeAway { branch: a },
        96..=98 => Op::GiveBack,
        99 => Op::Drain { branch: a },
        100..=101 => Op::Sync,
        _ => Op::Fsync { handle: a },
    }
}
