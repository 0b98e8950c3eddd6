//! Figure 4.1: the cost of staging when files are only created.
//!
//! The processor's part of it is the scan of the directory:
//! - Making a file in ext2 searches for its name without finding it, and then for room.
//! - Making one in staging searches for its name among those on disk.
//! - Moving it searches for room.
//!
//! Other costs of moving, such as copying the fields of an inode, are not charged. With any such cost, moving a large
//! file takes little compared with making it.

use umbrella_lab::result::Outcome;

use super::setting::{Method, Run};
use crate::statistics::{change, mean};
use crate::{Effort, Measured, WriteBackCells};

const FILES: [u64; 2] = [32_768, 65_536];

const PAIR: [Method; 2] = [Method::Original, Method::Staging];

/// Said beside the figure.
pub(super) const ASSUMED: &str = "Of making and moving a file the processor's time for scanning directory entries is charged, and nothing else. So the \
     claim that moving large files takes little is not judged.";

/// Each of the three workloads in the original and with staging.
pub(super) fn cells(effort: Effort) -> WriteBackCells {
    let empty = FILES.map(|files| format!("data-backup:files={files},total=1B,per-dir=1000000"));
    let large = "data-backup:files=100,total=10GB,sigma=0,per-dir=1000000".to_owned();
    let all = empty.into_iter().chain([large]);
    Ok(all.flat_map(|work| PAIR.map(|method| Run::new(method, work.clone(), effort).cell())).collect())
}

/// Times against the original's. Empty files stay in staging until the end; large ones leave it as they grow.
pub(super) fn measure(outcomes: &[Outcome]) -> Vec<Measured> {
    let mut measured = Vec::new();
    let mut shares = Vec::new();
    for (files, pair) in FILES.into_iter().zip(outcomes.chunks_exact(PAIR.len())) {
        let [original, staging] = [&pair[0], &pair[1]];
        // Where moving costs no processor time it was not measured.
        let moving = if staging.moving_s > 0.0 { staging.moving_s } else { f64::NAN };
        measured.push(Measured::new(format!("created.{files}"), change(original.time_s, staging.time_s)));
        measured.push(Measured::new(format!("moved.{files}"), change(original.time_s, staging.time_s + moving)));
        shares.push(100.0 * moving / original.time_s);
    }
    measured.push(Measured::new("moving", mean(shares)));
    if let [original, staging] = outcomes.split_at(FILES.len() * PAIR.len()).1 {
        measured.push(Measured::new("moved.large", change(original.time_s, staging.time_s)));
    }
    measured
}
