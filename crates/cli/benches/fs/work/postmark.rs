//! The real postmark, with the numbers of the UmbrellaFS paper. `buffering false`: blocks reach the file system as they
//! are.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

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
    let output = host::run_with_input(&mut Command::new("postmark"), &script)?;
    samples.push((row, begin.elapsed().as_secs_f64()));
    let text = String::from_utf8_lossy(&output.stdout);
    // It ends with success also when it could not do its work.
    let complaint = text.lines().find(|line| line.contains("Error") || line.contains("Cannot"));
    ensure!(complaint.is_none(), "postmark: {}", complaint.unwrap_or_default());
    ensure!(text.contains("transactions"), "postmark did not report");
    Ok(())
}
