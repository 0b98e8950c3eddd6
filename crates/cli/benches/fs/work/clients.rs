//! Several clients at once, each creating files in a directory of its own. Samples say how many times the work of one
//! client is done in the same time.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::files::{KIB, create};
use super::{Lab, Samples};
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let count = lab.scaled(20_000);
    let alone = seconds(stack, 1, count)?;
    samples.push(("two-clients", alone / seconds(stack, 2, count)?));
    samples.push(("four-clients", alone / seconds(stack, 4, count)?));
    Ok(())
}

/// Seconds in which `clients` clients together make `count` files.
fn seconds(stack: &Stack, clients: usize, count: usize) -> Result<f64> {
    let places: Vec<_> = (0..clients).map(|client| stack.root().join(format!("{clients}-{client}"))).collect();
    for place in &places {
        fs::create_dir(place)?;
    }
    stack.sync()?;
    let start = Barrier::new(clients + 1);
    thread::scope(|scope| {
        let start = &start;
        let client = |place| move || create_files(place, count / clients, start);
        let threads: Vec<_> = places.iter().map(|place| scope.spawn(client(place))).collect();
        start.wait();
        let begin = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok(begin.elapsed().as_secs_f64())
    })
}

fn create_files(place: &Path, count: usize, start: &Barrier) -> Result<()> {
    let path = |number: usize| CString::new(place.join(format!("f{number:06}")).as_os_str().as_bytes());
    let paths: Vec<_> = (0..count).map(path).collect::<Result<_, _>>()?;
    start.wait();
    paths.iter().try_for_each(|path| create(path, &[b'x'; KIB]))
}
