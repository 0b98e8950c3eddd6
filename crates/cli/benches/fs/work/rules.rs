//! What it costs to judge a new file by many rules, once at create and once at close, or to choose among the branches
//! of a group.

use anyhow::Result;

use super::files::{KIB, Paths, create, time_each};
use super::{Lab, Samples};
use crate::system::Stack;

pub(crate) fn run_1(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    run(lab, stack, "create-1-rule", samples)
}

pub(crate) fn run_32(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    run(lab, stack, "create-32-rules", samples)
}

pub(crate) fn run_1000(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    run(lab, stack, "create-1000-rules", samples)
}

pub(crate) fn run_most_free_4(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    run(lab, stack, "create-most-free-4", samples)
}

pub(crate) fn run_most_free_24(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    run(lab, stack, "create-most-free-24", samples)
}

fn run(lab: &Lab, stack: &Stack, row: &'static str, samples: &mut Samples) -> Result<()> {
    let paths = Paths::new(stack.root(), lab.scaled(5_000))?;
    let content = [b'x'; KIB];
    paths.make_directories()?;
    samples.push((row, time_each(paths.files.iter(), |path| create(path, &content))?));
    Ok(())
}
