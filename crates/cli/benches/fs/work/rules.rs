//! What it costs to judge a new file by many rules, once at create and once at close, or to choose among the branches
//! of a group.

use anyhow::Result;

use super::files::{KIB, Paths, create, time_each};
use super::{Lab, Samples};
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, row: &'static str, samples: &mut Samples) -> Result<()> {
    let paths = Paths::new(stack.root(), lab.scaled(5_000))?;
    let content = [b'x'; KIB];
    samples.push((row, time_each(paths.files.iter(), |path| create(path, &content))?));
    Ok(())
}
