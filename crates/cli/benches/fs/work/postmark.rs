//! The real postmark, with the numbers of the UmbrellaFS paper. `buffering false`: blocks reach the file system as they
//! are.

use std::fs;
use std::time::Instant;

use anyhow::Result;

use super::{Lab, Samples};
use crate::host;
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    time(lab, stack, "postmark-512", 512, samples)?;
    time(lab, stack, "postmark-4096", 4096, samples)
}

/// One run with blocks of this many bytes.
pub(crate) fn time(lab: &Lab, stack: &Stack, row: &'static str, block: u32, samples: &mut Samples) -> Result<()> {
    let place = stack.root().join(row);
    fs::create_dir(&place)?;
    let script = format!(
        "set location {}\nset number {}\nset size 8192 65536\nset subdirectories 200\nset transactions {}\n\
         set read {block}\nset write {block}\nset buffering false\nrun\nquit\n",
        place.display(),
        lab.scaled(12_500),
        lab.scaled(25_000),
    );
    stack.sync()?;
    let begin = Instant::now();
    host::run_postmark(&script)?;
    samples.push((row, begin.elapsed().as_secs_f64()));
    Ok(())
}
