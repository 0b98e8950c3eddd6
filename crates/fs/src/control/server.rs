//! What a pool's daemon does when it is asked.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admin::{Equalise, Reloaded};
use crate::control::protocol::{Answer, Progress, Request, Status};
use crate::control::socket::{BindError, Listener, Service};
use crate::error::Error;
use crate::migrate::Walk;
use crate::pool::Pool;
use crate::staging::HANGS;

/// Takes the mount away.
pub(crate) type Unmount = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// Binds the socket. If a daemon answers there, the pool is mounted already.
pub(crate) fn bind(path: &Path, mount: &Path) -> Result<Listener, Error> {
    Listener::bind(path).map_err(|error| match error {
        BindError::Answered { pid, .. } => Error::AlreadyMounted { path: mount.to_owned(), pid },
        BindError::Io { path, source } => Error::Control { path, source },
    })
}

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
    type Error = Error;

    fn carry_out(&self, request: Request, mut tell: &mut dyn FnMut(&Progress) -> bool) -> Result<Answer, Error> {
        let pool = &self.pool;
        Ok(match request {
            Request::Status => Answer::Status(Box::new(Status { config: self.config.clone(), ..pool.admin.status() })),
            Request::Explain { path } => Answer::Explain(Box::new(pool.admin.explain(&path)?)),
            Request::WhatIf { file } => Answer::Explain(Box::new(pool.admin.what_if(&file))),
            Request::Enforce { dry_run, bandwidth } => {
                let bandwidth = bandwidth.or(pool.context.settings().enforce.bandwidth);
                Answer::Enforce(pool.migrate.enforce(Walk { dry_run, bandwidth, ..Walk::default() }, &mut tell))
            }
            Request::Equalise { path, like, dry_run } => {
                Answer::Equalised(pool.admin.make_equal(&Equalise { path, like, dry_run }, &mut tell)?)
            }
            Request::BranchList => Answer::Branches { branches: pool.admin.branch_statuses() },
            Request::BranchAdd { branch, to_default } => {
                let name = branch.name.clone();
                pool.admin.add_branch(branch)?;
                if to_default {
                    pool.placement.append_to_default(&name)?;
                }
                Answer::Ok
            }
            Request::BranchRemove { name, force } => {
                pool.admin.remove_branch(&name, force)?;
                Answer::Ok
            }
            Request::BranchReplace { name, path, force } => {
                pool.admin.replace_branch(&name, path, force)?;
                Answer::Ok
            }
            Request::BranchDrain { name } => Answer::Enforce(pool.migrate.drain(&name, &mut tell)?),
            Request::BranchDrainStop { name } => {
                pool.migrate.stop_drain(&name)?;
                Answer::Ok
            }
            Request::BranchClearErrors { name } => {
                pool.admin.clear_errors(&name)?;
                Answer::Ok
            }
            Request::WriteBackShow { branch } => {
                Answer::WriteBack { branches: pool.write_back.write_back(branch.as_deref())? }
            }
            Request::WriteBackSet { branch, write_back } => {
                pool.write_back.set_write_back(&branch, write_back)?;
                Answer::Ok
            }
            Request::WriteBackRecord { branch, file, most } => {
                pool.write_back.record_write_back(&branch, file.as_deref(), most)?;
                Answer::Ok
            }
            Request::RulesReload { mut spec, dry_run } => {
                if self.is_elsewhere {
                    spec.mount.clone_from(&pool.context.spec.mount);
                }
                let Reloaded { changes, not_in_force } = pool.admin.reload(*spec, dry_run)?;
                Answer::Reloaded { changes, not_in_force }
            }
            Request::Sync => {
                pool.sync_all().map_err(Error::Sync)?;
                Answer::Ok
            }
            Request::Unmount { keep_staged } => {
                // While the tree can be used and asked. What comes meanwhile follows at the end.
                pool.staging.empty_staging();
                let files = pool.admin.status().staging.map_or(0, |staging| staging.files);
                let branches = pool.staging.hanging_branches();
                if files > 0 && !keep_staged && !branches.is_empty() {
                    return Err(Error::BranchesHang { files, branches, waited: HANGS });
                }
                if files > 0 && !keep_staged {
                    return Err(Error::StagedLeft { files });
                }
                self.unmount_patiently()
                    .map_err(|source| Error::Unmount { path: pool.context.spec.mount.clone(), source })?;
                Answer::Ok
            }
        })
    }
}

/// How long a tree in use is tried again: who only looks at it, or is just starting a program, lets go of it soon.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
const BUSY_RETRY: Duration = Duration::from_millis(20);

impl PoolService {
    fn unmount_patiently(&self) -> std::io::Result<()> {
        let until = Instant::now() + BUSY_PATIENCE;
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
