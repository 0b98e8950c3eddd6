//! Where the blocks of files lie, by FIEMAP as `filefrag` shows it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::host;
use crate::report::Figures;

/// Adds, as means over the files below `folder` that have blocks: `fragments`, and `spread_blocks` between the first
/// and the last block.
pub(crate) fn look(folder: &Path, figures: &mut Figures) -> Result<()> {
    let mut command = Command::new("find");
    // What a pool keeps for itself is no file of anybody's, and may go at any time.
    command
        .arg(folder)
        .args(["-name", ".umbrella", "-prune", "-o"])
        .args(["-type", "f", "-size", "+0", "-exec", "filefrag", "-v", "-b4096", "{}", "+"]);
    let output = host::run(&mut command)?;
    let Layout { files, fragments, spread } = parse(&String::from_utf8_lossy(&output.stdout))?;
    let mean = |sum: u64| sum as f64 / (files as f64).max(1.0);
    figures.extend([("files", files as f64), ("fragments", mean(fragments)), ("spread_blocks", mean(spread))]);
    Ok(())
}

/// Sums over files.
#[derive(Debug, Default, PartialEq)]
struct Layout {
    files: u64,
    fragments: u64,
    spread: u64,
}

/// A file's lines are its extents, `0: 0.. 15: 34816.. 34831: 16: last,eof`, and then how many fragments that are.
fn parse(text: &str) -> Result<Layout> {
    let mut layout = Layout::default();
    let mut ends = None;
    for line in text.lines() {
        let parts: Vec<&str> = line.split(':').map(str::trim).collect();
        if let [number, _, physical, ..] = parts.as_slice()
            && number.parse::<u32>().is_ok()
        {
            let (first, last) = physical.split_once("..").with_context(|| format!("no extent: {line}"))?;
            let (first, last): (u64, u64) = (first.trim().parse()?, last.trim().parse()?);
            let (begin, _) = ends.unwrap_or((first, last));
            ends = Some((begin, last));
        } else if let Some((begin, last)) = ends
            && let Some((_, count)) = line.rsplit_once(": ")
            && let Some(count) = count.split(' ').next().filter(|_| line.ends_with("found"))
        {
            layout.files += 1;
            layout.fragments += count.parse::<u64>()?;
            layout.spread += last.abs_diff(begin);
            ends = None;
        }
    }
    Ok(layout)
}
