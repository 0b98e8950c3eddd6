//! A pool, mounted: opens it, connects it with the kernel, runs its threads, and ends in order.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::branch::cover::{Covers, uncover_all};
use crate::branch::mounts::mount_id;
use crate::control::server;
use crate::control::server::PoolService;
use crate::error::Error;
use crate::fuse;
use crate::fuse::RequestTrace;
use crate::pool::Pool;
use crate::spec::PoolSpec;
use crate::warning::{Warning, WarningSubject};

/// How a pool is mounted.
pub struct Options {
    /// Where commands come in.
    pub control_socket: PathBuf,
    /// Where the pool's memory of itself and its branches lies, outside of them.
    pub state_dir: PathBuf,
    /// Called once the tree can be used.
    pub ready: Box<dyn FnOnce() + Send>,
    /// Branches that may be missing besides the optional ones.
    pub allow_missing: Vec<String>,
    /// What the table of mounts has as the source, so that mount(8) recognises the line of fstab; `None`: the mount
    /// point.
    pub source: Option<PathBuf>,
    /// The file that describes the pool, absolute; for `umbrella status`.
    pub config: PathBuf,
    /// The mount point is not that of the configuration.
    pub is_elsewhere: bool,
    /// A file to which each request adds a line. It must not lie in the pool.
    pub trace_requests: Option<PathBuf>,
    /// Looks at branches that hold files when the pool is mounted for the first time.
    pub first_look: Option<FirstLook>,
}

/// Looks at branches for as long as it may, and returns a message for people. Each branch is given by its name and its
/// open root, because its path may be hidden.
pub type FirstLook = Box<dyn FnOnce(&[(String, OwnedFd)], &dyn Fn() -> bool) -> Option<String> + Send>;

/// Mounts a pool and returns when it was unmounted.
///
/// Order of the end:
///
/// 1. The kernel has no more requests (unmounted).
/// 2. Staged files go to their branches.
/// 3. The mover drops the copy under way, or finishes its commit.
/// 4. The branches are closed.
/// 5. The control socket closes. While it is there, the next mount knows what it waits for.
pub fn run(spec: PoolSpec, options: Options) -> Result<(), Error> {
    raise_limits();
    crate::ground::lease::ignore_signal();
    let control = server::bind(&options.control_socket, &spec.mount)?;
    let trace = options.trace_requests.as_deref().map(begin_trace).transpose()?;
    // No other daemon has the pool now.
    uncover_all(&spec.mount);
    let mount_point = spec.mount.clone();
    let covers = Covers(&mount_point);
    let pool = Pool::assemble(spec, &options.state_dir, &options.allow_missing)?;
    let mount = pool.context().spec.mount.clone();
    let source = options.source.as_deref().unwrap_or(&mount);
    let observer = trace.as_ref().map(RequestTrace::observer);
    let serving = fuse::ServeOptions { threads: pool.context().settings().threads_kept(), observer };
    let mounted = fuse::mount(&pool, source, serving).map_err(|source| Error::Mount { path: mount.clone(), source })?;
    if let Some(id) = mount_id(&mount) {
        let _ = pool.context().mounted_as.set(id);
    }
    let mut helpers = Vec::new();
    for (name, work) in pool.begin() {
        let pool = Arc::clone(&pool);
        helpers.push(spawn(&name, move || work(&pool))?);
    }
    if let Some(look) = options.first_look {
        let (context, roots) = (Arc::clone(pool.context()), pool.local_roots());
        let look = move || {
            if let Some(found) = look(&roots, &|| !context.is_stopping()) {
                context.warn(WarningSubject::FirstLook, &Warning::FirstLook(found));
            }
        };
        // No thread waits for its end: a disk may hang.
        drop(spawn("first-look", look)?);
    }
    let serving = control.serve(PoolService {
        pool: Arc::clone(&pool),
        config: options.config,
        is_elsewhere: options.is_elsewhere,
        unmount: Box::new(mounted.unmounter()),
    });
    (options.ready)();
    tracing::info!(mount = %mount.display(), passthrough = pool.context().gives_passthrough(), "mounted");
    let ended = mounted.serve();
    drop(trace);
    pool.close_staging();
    pool.shut_down();
    for helper in helpers {
        // A panic of a helper was logged when it happened; the tree is unmounted either way.
        let _ = helper.join();
    }
    pool.close();
    drop(covers);
    drop(serving);
    tracing::info!(mount = %mount.display(), "unmounted");
    ended.map_err(|source| Error::Io { doing: format!("serve {}", mount.display()), source })
}

fn begin_trace(path: &Path) -> Result<RequestTrace, Error> {
    let doing = || format!("trace requests to {}", path.display());
    RequestTrace::begin(path).map_err(|source| Error::Io { doing: doing(), source })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|source| Error::NoThread { name: name.to_owned(), source })
}

/// Directories and open files hold descriptors. How long a file may grow is the caller's limit, which the kernel has
/// looked at before it asks: one that the daemon inherited must not end it.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let free = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Fsize, free).is_err() {
        let now = getrlimit(Resource::Fsize);
        let _ = setrlimit(Resource::Fsize, Rlimit { current: now.maximum, ..now });
    }
    // SAFETY: no handler is installed; a write beyond the limit, where it could not be lifted, fails with EFBIG.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let now = getrlimit(Resource::Nofile);
    let most = most_files().max(now.maximum.unwrap_or(u64::MAX));
    // The hard limit is root's to raise, up to what the kernel allows a process.
    if setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}

/// `fs.nr_open`: a process may have no more descriptors, whatever its limits.
fn most_files() -> u64 {
    const USUAL: u64 = 1 << 20;
    std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
}
