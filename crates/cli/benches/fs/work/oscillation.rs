//! Size oscillation (UmbrellaFS, chapter III): every file grows by 1 KiB over the border of a size rule, later shrinks
//! by as much. Samples are seconds for one file. A `-moved` row counts until the last file is where it belongs, moves
//! in the background included.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};

use super::files::{KIB, Paths, create, time_each};
use super::{Lab, Samples};
use crate::host;
use crate::system::Stack;

const BORDER: usize = 8 * KIB;

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let work = Oscillation::prepare(lab, stack)?;
    let count = work.paths.files.len();
    for (row, moved_row, grow) in [("append", "append-moved", true), ("truncate", "truncate-moved", false)] {
        stack.sync()?;
        let begin = Instant::now();
        let each = if grow { work.append() } else { work.truncate() }?;
        samples.push((row, each));
        wait_for(stack, if grow { count } else { 0 })?;
        samples.push((moved_row, begin.elapsed().as_secs_f64() / count as f64));
    }
    Ok(())
}

pub(crate) fn run_with_band(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let work = Oscillation::prepare(lab, stack)?;
    // The first crossing moves the files; from there on they are inside the hysteresis.
    work.append()?;
    wait_for(stack, work.paths.files.len())?;
    stack.sync()?;
    let truncate = work.truncate()?;
    stack.sync()?;
    let append = work.append()?;
    wait_for(stack, work.paths.files.len())?;
    samples.extend([("append-hysteresis", append), ("truncate-hysteresis", truncate)]);
    Ok(())
}

struct Oscillation {
    paths: Paths,
}

impl Oscillation {
    fn prepare(lab: &Lab, stack: &Stack) -> Result<Self> {
        let paths = Paths::new(stack.root(), lab.scaled(2_000))?;
        for path in &paths.files {
            create(path, &[b'x'; BORDER])?;
        }
        Ok(Self { paths })
    }

    fn append(&self) -> Result<f64> {
        time_each(self.paths.files.iter(), |path| {
            let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
            let written = rustix::io::write(&file, &[b'y'; KIB]).context("append")?;
            ensure!(written == KIB, "a short write");
            Ok(())
        })
    }

    fn truncate(&self) -> Result<f64> {
        time_each(self.paths.files.iter(), |path| {
            let file = open(path, OFlags::WRONLY)?;
            rustix::fs::ftruncate(&file, BORDER as u64).context("truncate")
        })
    }
}

fn open(path: &CString, flags: OFlags) -> Result<rustix::fd::OwnedFd> {
    rustix::fs::open(path.as_c_str(), flags | OFlags::CLOEXEC, Mode::empty()).context("open")
}

/// Waits until the second branch of a pool holds `wanted` files (nothing moves where there is no pool).
pub(super) fn wait_for(stack: &Stack, wanted: usize) -> Result<()> {
    let branch = stack.second_branch();
    while stack.is_pool() && count_files(&branch) != wanted {
        host::check().with_context(|| format!("{} of {wanted} files on the second branch", count_files(&branch)))?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Files in the work's own directories (a branch may hold others, hidden ones, for its own use).
fn count_files(branch: &Path) -> usize {
    let Ok(directories) = fs::read_dir(branch) else { return 0 };
    let of_work = directories.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"d"));
    of_work.filter_map(|entry| fs::read_dir(entry.path()).ok()).map(Iterator::count).sum()
}
