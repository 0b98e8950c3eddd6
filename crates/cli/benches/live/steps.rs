//! Does on a real file system what the lab's workloads ask for, step by step, a thread a client.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use umbrella_lab::workload::{BoxedWorkload, ClientId, FileOperation};
use umbrella_units::{FileId, Nanos};

use crate::{disk, host};

/// The largest read or write call.
const LARGEST: usize = 1 << 20;
/// Files that a single client keeps open; one of several closes a file before it opens the next, which another one may
/// delete.
const OPEN_FILES: usize = 4096;

/// Lets this process have as many files open as a client wants.
pub(crate) fn allow_open_files() -> Result<()> {
    let count = 2 * OPEN_FILES as u64;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(count, |maximum| maximum.min(count));
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).context("cannot open so many files")?;
    }
    Ok(())
}

/// Where the workload's files and directories are.
#[derive(Debug, Default)]
struct Names(HashMap<FileId, PathBuf>);

impl Names {
    fn with_root(root: &Path) -> Self {
        // Directory 1 is the root.
        Self(HashMap::from([(FileId(1), root.to_owned())]))
    }

    fn of(&self, file: FileId) -> Result<PathBuf> {
        self.0.get(&file).cloned().with_context(|| format!("the workload uses file {} before it makes it", file.0))
    }

    fn add(&mut self, file: FileId, parent: FileId) -> Result<PathBuf> {
        let path = self.of(parent)?.join(file.0.to_string());
        self.0.insert(file, path.clone());
        Ok(path)
    }
}

/// A step with the path that it is about.
struct Order {
    step: FileOperation,
    path: PathBuf,
}

fn order(step: FileOperation, names: &mut Names) -> Result<Order> {
    let path = match step {
        FileOperation::Mkdir { dir: file, parent: dir } | FileOperation::Create { file, dir } => {
            names.add(file, dir)?
        }
        FileOperation::Write { file, .. }
        | FileOperation::Read { file, .. }
        | FileOperation::Truncate { file, .. }
        | FileOperation::Fsync { file } => names.of(file)?,
        FileOperation::Delete { file } => names.0.remove(&file).context("the workload deletes a file twice")?,
        FileOperation::Sync => names.of(FileId(1))?,
        FileOperation::Think { .. } | FileOperation::Phase { .. } => PathBuf::new(),
    };
    Ok(Order { step, path })
}

/// Does what the workload wants to find: files below `root`.
pub(crate) fn prepare(workload: BoxedWorkload, root: &Path) -> Result<()> {
    prepare_apart(workload, std::slice::from_ref(&root.to_owned()), |_, _| 0)
}

/// The same on several disks, of which all have the directories; `choose` says on which a file of a directory goes.
pub(crate) fn prepare_apart(
    mut workload: BoxedWorkload,
    roots: &[PathBuf],
    choose: impl Fn(FileId, FileId) -> usize,
) -> Result<()> {
    let mut places: Vec<(Names, Client)> =
        roots.iter().map(|root| (Names::with_root(root), Client::new(OPEN_FILES, 1.0))).collect();
    while let Some(step) = workload.prepare() {
        host::check()?;
        for (number, (names, client)) in places.iter_mut().enumerate() {
            let here = match step {
                FileOperation::Mkdir { .. } => true,
                FileOperation::Create { file, dir } => choose(file, dir) == number,
                FileOperation::Write { file, .. } => names.0.contains_key(&file),
                _ => bail!("a workload prepares more than files"),
            };
            if here {
                client.carry_out(&order(step, names)?)?;
            }
        }
    }
    Ok(())
}

struct Shared {
    workload: BoxedWorkload,
    names: Names,
    failure: Option<anyhow::Error>,
}

/// Runs the workload below `root`, where [`prepare`] has been, on a disk that is `speed` times as fast as a real one.
/// How many steps were done.
pub(crate) fn run(mut workload: BoxedWorkload, root: &Path, speed: f64) -> Result<u64> {
    let mut names = Names::with_root(root);
    while let Some(step) = workload.prepare() {
        order(step, &mut names)?;
    }
    let clients = workload.clients();
    let shared = Mutex::new(Shared { workload, names, failure: None });
    let begin = Instant::now();
    let steps: u64 = thread::scope(|scope| {
        let spawn = |number| {
            scope.spawn({
                let shared = &shared;
                move || serve(shared, ClientId(number), clients, begin, speed)
            })
        };
        let threads: Vec<_> = (0..clients).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
    });
    let ended = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    host::check()?;
    ended.failure.map_or(Ok(steps), Err)
}

/// One client, from its first step to its last. How many it did.
fn serve(shared: &Mutex<Shared>, id: ClientId, clients: u32, begin: Instant, speed: f64) -> u64 {
    let mut client = Client::new(if clients == 1 { OPEN_FILES } else { 1 }, speed);
    let mut done = 0;
    loop {
        let next = {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if shared.failure.is_some() || host::check().is_err() {
                return done;
            }
            let now = Nanos(begin.elapsed().mul_f64(speed).as_nanos() as u64);
            let Some(step) = shared.workload.next(id, now) else { return done };
            order(step, &mut shared.names)
        };
        match next.and_then(|order| client.carry_out(&order)) {
            Ok(()) => done += 1,
            Err(error) => {
                shared.lock().unwrap_or_else(PoisonError::into_inner).failure.get_or_insert(error);
                return done;
            }
        }
    }
}

/// What one thread holds.
struct Client {
    open: HashMap<FileId, File>,
    /// In the order in which they were opened.
    order: VecDeque<FileId>,
    most: usize,
    buffer: Vec<u8>,
    speed: f64,
}

impl Client {
    fn new(most: usize, speed: f64) -> Self {
        // Nothing that compresses, or is a hole.
        let buffer = (0..LARGEST as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1).collect();
        Self { open: HashMap::new(), order: VecDeque::new(), most, buffer, speed }
    }

    fn carry_out(&mut self, Order { step, path }: &Order) -> Result<()> {
        match *step {
            FileOperation::Mkdir { .. } => fs::create_dir(path).with_context(|| shown("mkdir", path)),
            FileOperation::Create { file, .. } => {
                let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
                self.keep(file, made.with_context(|| shown("create", path))?);
                Ok(())
            }
            FileOperation::Write { file, offset, size } => {
                self.pieces(offset.0, size.0, file, path, |opened, at, piece| {
                    opened.write_all_at(piece, at).with_context(|| shown("write", path))
                })
            }
            FileOperation::Read { size, .. } if size.0 == 0 => {
                fs::metadata(path).map(drop).with_context(|| shown("stat", path))
            }
            FileOperation::Read { file, offset, size } => {
                self.pieces(offset.0, size.0, file, path, |opened, at, piece| {
                    // A file may be shorter than what a program asks for.
                    opened.read_at(piece, at).map(drop).with_context(|| shown("read", path))
                })
            }
            FileOperation::Truncate { file, size } => {
                self.opened(file, path)?.set_len(size.0).with_context(|| shown("truncate", path))
            }
            FileOperation::Delete { file } => {
                self.open.remove(&file);
                let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
                removed.with_context(|| shown("delete", path))
            }
            FileOperation::Fsync { file } => self.opened(file, path)?.sync_all().with_context(|| shown("fsync", path)),
            FileOperation::Sync => disk::sync(path),
            FileOperation::Think { time } => {
                thread::sleep(Duration::from_nanos(time.0).div_f64(self.speed));
                Ok(())
            }
            FileOperation::Phase { .. } => Ok(()),
        }
    }

    fn pieces(
        &mut self,
        mut at: u64,
        mut left: u64,
        file: FileId,
        path: &Path,
        transfer: impl Fn(&File, u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.opened(file, path)?;
        let Some(opened) = self.open.get(&file) else { bail!("{} is not open", path.display()) };
        while left > 0 {
            let length = left.min(LARGEST as u64);
            transfer(opened, at, &mut self.buffer[..length as usize])?;
            at += length;
            left -= length;
        }
        Ok(())
    }

    fn opened(&mut self, file: FileId, path: &Path) -> Result<&File> {
        if !self.open.contains_key(&file) {
            let opened = OpenOptions::new().read(true).write(true).open(path);
            self.keep(file, opened.with_context(|| shown("open", path))?);
        }
        self.open.get(&file).context("just opened")
    }

    fn keep(&mut self, file: FileId, opened: File) {
        while self.open.len() >= self.most {
            let Some(oldest) = self.order.pop_front() else { break };
            self.open.remove(&oldest);
        }
        self.open.insert(file, opened);
        self.order.push_back(file);
    }
}

fn shown(what: &str, path: &Path) -> String {
    format!("{what} {}", path.display())
}
