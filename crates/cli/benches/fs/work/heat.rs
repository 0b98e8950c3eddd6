//! What counting the opens of files costs: the same opens and closes of files that are known, with and without a rule
//! on heat that none of them fulfils.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};

use super::files::{KIB, Paths, create, time_each, warm};
use super::{Lab, Samples};
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, row: &'static str, samples: &mut Samples) -> Result<()> {
    let paths = Paths::new(stack.root(), lab.scaled(5_000))?;
    time_each(paths.files.iter(), |path| create(path, &[b'x'; KIB]))?;
    let open = |path: &std::ffi::CString| {
        rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop).context("open")
    };
    samples.push((row, warm(|| time_each(paths.files.iter(), open))?));
    Ok(())
}
