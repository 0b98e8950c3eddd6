//! Many small files, one call after the other from one thread. Samples are seconds for one call on one file.
//!
//! Cold means that the kernel has dropped names and inodes, on the mount and below it. The blocks of the disk stay in
//! memory, so that the figures show the cost of the calls and not that of the disk.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, Mode, OFlags};

use super::{Lab, Samples};
use crate::caches::Caches;
use crate::host;
use crate::system::Stack;

const DIRECTORIES: usize = 20;
/// Passes over all files, for calls that take less than a millisecond in a thousand.
pub(super) const WARM_PASSES: usize = 5;
const COLD_PASSES: usize = 3;
pub(super) const KIB: usize = 1024;

/// Paths made before the clock runs.
pub(super) struct Paths {
    directories: Vec<CString>,
    pub(super) files: Vec<CString>,
    renamed: Vec<CString>,
}

impl Paths {
    /// `count` files over a few directories below `root`; makes the directories.
    pub(super) fn new(root: &Path, count: usize) -> Result<Self> {
        let path =
            |name: String| CString::new(root.join(name).into_os_string().into_vec()).context("a path with a zero byte");
        let files = |prefix: char| {
            let name = |number: usize| format!("d{:02}/{prefix}{number:06}", number % DIRECTORIES);
            (0..count).map(|number| path(name(number))).collect::<Result<Vec<_>>>()
        };
        let directories: Vec<CString> =
            (0..DIRECTORIES).map(|number| path(format!("d{number:02}"))).collect::<Result<_>>()?;
        for directory in &directories {
            rustix::fs::mkdir(directory.as_c_str(), Mode::from_raw_mode(0o755)).context("mkdir")?;
        }
        Ok(Self { directories, files: files('f')?, renamed: files('g')? })
    }
}

/// Seconds for one call of `work`, called for each of `items`.
pub(super) fn time_each<'a>(
    items: impl ExactSizeIterator<Item = &'a CString>,
    mut work: impl FnMut(&'a CString) -> Result<()>,
) -> Result<f64> {
    let count = items.len();
    let begin = Instant::now();
    for item in items {
        host::check()?;
        work(item)?;
    }
    Ok(begin.elapsed().as_secs_f64() / count as f64)
}

pub(super) fn create(path: &CString, content: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(path.as_c_str(), flags, Mode::from_raw_mode(0o644)).context("create")?;
    let written = rustix::io::write(&file, content).context("write")?;
    ensure!(written == content.len(), "a short write");
    Ok(())
}

pub(super) fn stat(path: &CString) -> Result<()> {
    rustix::fs::stat(path.as_c_str()).context("stat")?;
    Ok(())
}

fn read(path: &CString) -> Result<()> {
    let mut buffer = [0; KIB];
    let file = rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context("open")?;
    let count = rustix::io::read(&file, &mut buffer).context("read")?;
    ensure!(count == KIB && buffer[KIB - 1] == b'x', "read something else than was written");
    Ok(())
}

fn list(path: &CString) -> Result<usize> {
    let directory =
        rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .context("opendir")?;
    let mut buffer = Vec::with_capacity(32 * KIB);
    let mut entries = rustix::fs::RawDir::new(directory, buffer.spare_capacity_mut());
    let mut count = 0;
    while let Some(entry) = entries.next() {
        entry.context("readdir")?;
        count += 1;
    }
    Ok(count)
}

fn list_all(paths: &Paths) -> Result<f64> {
    let mut seen = 0;
    let each = time_each(paths.directories.iter(), |path| {
        seen += list(path)?;
        Ok(())
    })?;
    let wanted = paths.files.len() + 2 * DIRECTORIES;
    ensure!(seen == wanted, "listings gave {seen} entries instead of {wanted}");
    Ok(each * DIRECTORIES as f64 / paths.files.len() as f64)
}

/// Mean of several passes.
pub(super) fn mean(passes: usize, mut pass: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut sum = 0.0;
    for _ in 0..passes {
        sum += pass()?;
    }
    Ok(sum / passes as f64)
}

/// Mean of passes after one that is not counted.
pub(super) fn warm(mut pass: impl FnMut() -> Result<f64>) -> Result<f64> {
    pass()?;
    mean(WARM_PASSES, pass)
}

/// Mean of passes that each begin with dropped caches.
pub(super) fn cold(stack: &Stack, mut pass: impl FnMut() -> Result<f64>) -> Result<f64> {
    mean(COLD_PASSES, || {
        stack.cool(Caches::Metadata)?;
        pass()
    })
}

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let paths = Paths::new(stack.root(), lab.scaled(20_000))?;
    let content = [b'x'; KIB];
    samples.push(("create", time_each(paths.files.iter(), |path| create(path, &content))?));
    stack.sync()?;
    samples.push(("stat-warm", warm(|| time_each(paths.files.iter(), stat))?));
    samples.push(("stat-cold", cold(stack, || time_each(paths.files.iter(), stat))?));
    samples.push(("ls-cold", cold(stack, || list_all(&paths))?));
    samples.push(("ls-warm", warm(|| list_all(&paths))?));
    samples.push(("read-warm", warm(|| time_each(paths.files.iter(), read))?));
    stack.sync()?;
    let mut targets = paths.renamed.iter();
    let rename = time_each(paths.files.iter(), |path| {
        let target = targets.next().context("as many targets as files")?;
        rustix::fs::renameat(CWD, path.as_c_str(), CWD, target.as_c_str()).context("rename")
    })?;
    samples.push(("rename", rename));
    samples.push((
        "unlink",
        time_each(paths.renamed.iter(), |path| rustix::fs::unlink(path.as_c_str()).context("unlink"))?,
    ));
    for directory in &paths.directories {
        fs::remove_dir(directory.to_str()?).context("rmdir of an emptied directory")?;
    }
    Ok(())
}
