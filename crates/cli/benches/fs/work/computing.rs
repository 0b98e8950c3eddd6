//! A client that computes between its calls, as most programs do: what it asks for meets processors and threads that
//! have turned to something else. Samples are seconds for one call on one file, without the computing.

use std::ffi::CString;
use std::hint;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::files::{KIB, Paths, cold, create, stat, time_each};
use super::{Lab, Samples};
use crate::system::Stack;

const COMPUTING: Duration = Duration::from_micros(50);

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let paths = Paths::new(stack.root(), lab.scaled(5_000))?;
    samples.push(("create-computing", between(&paths, |path| create(path, &[b'x'; KIB]))?));
    stack.sync()?;
    samples.push(("stat-cold-computing", cold(stack, || between(&paths, stat))?));
    Ok(())
}

fn between(paths: &Paths, mut work: impl FnMut(&CString) -> Result<()>) -> Result<f64> {
    let mut computed = Duration::ZERO;
    let each = time_each(paths.files.iter(), |path| {
        computed += compute();
        work(path)
    })?;
    Ok(each - computed.as_secs_f64() / paths.files.len() as f64)
}

fn compute() -> Duration {
    let begin = Instant::now();
    while begin.elapsed() < COMPUTING {
        hint::spin_loop();
    }
    begin.elapsed()
}
