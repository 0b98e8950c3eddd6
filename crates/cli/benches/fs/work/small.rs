//! Small files under a rule that sends them to another branch than the default list: what creating them takes, and
//! until the last lies there. Samples are seconds for one file.

use std::time::Instant;

use anyhow::Result;

use super::files::{KIB, Paths, create, time_each};
use super::oscillation::wait_for;
use super::{Lab, Samples};
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let paths = Paths::new(stack.root(), lab.scaled(3_000))?;
    let content = [b'x'; KIB];
    let begin = Instant::now();
    samples.push(("create-small", time_each(paths.files.iter(), |path| create(path, &content))?));
    wait_for(stack, paths.files.len())?;
    samples.push(("create-small-placed", begin.elapsed().as_secs_f64() / paths.files.len() as f64));
    Ok(())
}
