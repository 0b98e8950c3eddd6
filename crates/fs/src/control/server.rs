//! How a pool's daemon answers requests.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::protocol::{Answer, Progress, Request};
use crate::control::socket::{BindError, Listener, Service};
use crate::error::Error;
use crate::ground::advice::advised;
use crate::pool::Pool;

/// Takes the mount away.
pub(crate) type Unmount = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// Binds the socket. If a daemon answers there, the pool is mounted already.
pub(crate) fn bind(path: &Path, mount: &Path) -> Result<Listener, Error> {
    Listener::bind(path).map_err(|error| match error {
        BindError::Answered { pid, .. } => Error::AlreadyMounted { path: mount.to_owned(), pid },
        BindError::Io { path, source } => Error::Control { path, source },
    })
}

/// How long a tree in use is tried again: a program that only looks at it, or is just starting, releases it soon.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// A pool, and how to take its mount away.
pub(crate) struct PoolService {
    pub(crate) pool: Arc<Pool>,
    pub(crate) config: PathBuf,
    /// It is mounted at another place than its configuration says.
    pub(crate) is_elsewhere: bool,
    pub(crate) unmount: Unmount,
}

impl Service for PoolService {
    type Request = Request;
    type Answer = Answer;
    type Progress = Progress;

    fn carry_out(&self, request: Request, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<Answer, String> {
        self.answer(request, tell).map_err(|error| advised(&error))
    }

    fn is_followed(progress: &Progress) -> bool {
        progress.is_followed
    }
}

impl PoolService {
    fn answer(&self, mut request: Request, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<Answer, Error> {
        let mount = &self.pool.context().spec.mount;
        if let Request::RulesReload { spec, .. } = &mut request
            && self.is_elsewhere
        {
            spec.mount.clone_from(mount);
        }
        let unmounts = matches!(request, Request::Unmount { .. });
        let mut answer = self.pool.answer(request, tell)?;
        if let Answer::Status(status) = &mut answer {
            status.config.clone_from(&self.config);
        }
        if unmounts {
            self.unmount_with_retries().map_err(|source| Error::Unmount { path: mount.clone(), source })?;
        }
        Ok(answer)
    }

    fn unmount_with_retries(&self) -> std::io::Result<()> {
        let until = Instant::now() + BUSY_TIMEOUT;
        loop {
            match (self.unmount)() {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(BUSY_RETRY);
                }
                done => return done,
            }
        }
    }
}
