//! Figure 4.1: what staging costs when files are only created.
//!
//! The processor's part of making a file in a file system, of making one in staging and of moving one is not modelled. So what
//! moving empty files takes, alone or beside making them, is not measured. That moving a large file takes little beside making
//! it would hold of any time that is not modelled, and is left out.

use umbrella_lab::experiment::LabError;
use umbrella_lab::result::Outcome;
use umbrella_lab::write_back::WriteBackCell;

use super::setting::{Method, Run, longer};
use crate::{Effort, Measured};

const FILES: [u64; 2] = [32_768, 65_536];

const PAIR: [Method; 2] = [Method::Original, Method::Staging];

/// Said beside the figure.
pub(super) const ASSUMED: &str = "The model does not charge processor time for making or moving a file: what moving empty files takes is not \
     measured. For the same reason the claim that moving large files takes little is not judged.";

/// Each of the three workloads in the original and with staging.
pub(super) fn cells(effort: Effort) -> Result<Vec<WriteBackCell>, LabError> {
    let empty = FILES.map(|files| format!("data-backup:files={files},total=1B,per-dir=1000000"));
    let large = "data-backup:files=100,total=10GB,sigma=0,per-dir=1000000".to_owned();
    let all = empty.into_iter().chain([large]);
    Ok(all.flat_map(|work| PAIR.map(|method| Run::new(method, work.clone(), effort).cell())).collect())
}

/// Times against the original's. Empty files stay in staging; large ones leave it as they grow.
pub(super) fn measure(outcomes: &[Outcome]) -> Vec<Measured> {
    let names = ["created.32768", "created.65536", "moved.large"];
    let pairs = names.into_iter().zip(outcomes.chunks_exact(PAIR.len()));
    pairs.map(|(name, pair)| Measured::new(name, longer(pair[0].time_s, pair[1].time_s))).collect()
}
