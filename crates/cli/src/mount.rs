//! One mounted pool, from the first look at its directories to the last signal.
//!
//! The file system itself is one call, [`umbrella_fs::mount::run`]. Around it this module makes the directories that it
//! needs, and has a thread that turns signals into requests to the pool's own control socket. Once the mount is ready
//! it sets mount flags, and notifies systemd and the starter.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use rustix::mount::MountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use umbrella_fs::branch::cover::uncover_all;
use umbrella_fs::control::protocol::{Answer, Request};
use umbrella_fs::spec::PoolSpec;

use crate::advice;
use crate::client::{Client, ClientError};
use crate::daemon::Starter;
use crate::mount_options::MountOptions;
use crate::pool::Pool;
use crate::systemd;
use crate::text::visible_path;
use crate::{config, first_look, mounts};

/// How long the daemon may take to finish what is under way when it is asked to unmount.
pub(crate) const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(600);

/// How often a tree that is busy is tried.
const UNMOUNT_AGAIN: Duration = Duration::from_secs(1);

/// What a mount needs besides its pool.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) pool: Pool,
    pub(crate) state_dir: PathBuf,
    /// Read again on SIGHUP.
    pub(crate) config: PathBuf,
    /// The mount point is not that of the configuration.
    pub(crate) is_elsewhere: bool,
    pub(crate) allow_missing: Vec<String>,
    pub(crate) options: MountOptions,
    /// What the table of mounts shows as the source.
    pub(crate) source: Option<PathBuf>,
    /// Waits for word that the mount is ready.
    pub(crate) starter: Option<Starter>,
    /// Each request adds a line to this file.
    pub(crate) trace_requests: Option<PathBuf>,
}

/// Mounts, and serves until the pool is unmounted.
pub(crate) fn serve(spec: PoolSpec, session: Session) -> anyhow::Result<()> {
    umbrella_fs::set_advice(advice::of);
    advice::name_configuration(&session.config);
    if let Some(dir) = session.pool.socket.parent() {
        private_dir(dir)?;
    }
    let is_import = !session.state_dir.exists() && spec.branches.iter().any(|branch| holds_files(&branch.path));
    let mounted = Arc::new(AtomicBool::new(false));
    install_signal_handlers(&session, Arc::clone(&mounted))?;
    let Session { pool, state_dir, config, is_elsewhere, allow_missing, options, source, starter, trace_requests } =
        session;
    let socket = pool.socket.clone();
    let failure = Arc::new(OnceLock::new());
    let setback = Arc::clone(&failure);
    let ready = move || {
        mounted.store(true, Ordering::Relaxed);
        if let Err(error) = finish_mount(&pool, options, starter.as_ref()) {
            tracing::error!("{error:#}; unmounting");
            let _ = setback.set(error);
            request_unmount(pool, mounted);
        }
    };
    let first_look: Option<umbrella_fs::mount::FirstLook> = is_import.then(|| {
        let config = config.clone();
        Box::new(move |roots: &[_], goes_on: &dyn Fn() -> bool| first_look::survey_branches(roots, &config, goes_on))
            as _
    });
    let options = umbrella_fs::mount::Options {
        control_socket: socket,
        state_dir,
        ready: Box::new(ready),
        allow_missing,
        source,
        config,
        is_elsewhere,
        trace_requests,
        first_look,
    };
    umbrella_fs::mount::run(spec, options)?;
    Arc::into_inner(failure).and_then(OnceLock::into_inner).map_or(Ok(()), Err)
}

/// Whether the directory holds files. What may hang is not asked.
fn holds_files(branch: &Path) -> bool {
    let is_own = |name: &std::ffi::OsStr| name == umbrella_fs::branch::HIDDEN_DIR || name == "lost+found";
    matches!(mounts::locate(branch), mounts::PathLocality::Here)
        && std::fs::read_dir(branch).is_ok_and(|names| names.flatten().any(|entry| !is_own(&entry.file_name())))
}

fn private_dir(dir: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("the directory {}", visible_path(dir)))
}

fn finish_mount(pool: &Pool, options: MountOptions, starter: Option<&Starter>) -> anyhow::Result<()> {
    // A change of flags names them all.
    let had = mounts::at(&pool.mount).map(|mounted| mounted.options).unwrap_or_default();
    if let Some(flags) = options.flags(&had) {
        rustix::mount::mount_remount(&pool.mount, flags | MountFlags::BIND, c"")
            .map_err(io::Error::from)
            .with_context(|| format!("setting the mount options of {}", visible_path(&pool.mount)))?;
    }
    if let Some(starter) = starter {
        starter.report_ready().context("the process that started the daemon is gone")?;
    }
    systemd::notify("READY=1");
    Ok(())
}

/// Requests the unmount from a separate thread, because the calling thread may have to serve the request.
fn request_unmount(pool: Pool, mounted: Arc<AtomicBool>) {
    std::thread::spawn(move || unmount(&pool, &mounted));
}

/// Asks until it is done: what keeps the tree busy may end, and no second signal may come.
fn unmount(pool: &Pool, mounted: &AtomicBool) {
    systemd::notify("STOPPING=1");
    let mut reported = false;
    loop {
        match Client::new(&pool.socket).with_timeout(UNMOUNT_TIMEOUT).call(&Request::Unmount { keep_staged: true }) {
            // Before the mount there is nothing to unmount.
            Err(ClientError::NotRunning { .. }) if !mounted.load(Ordering::Relaxed) => std::process::exit(1),
            // A daemon that is already gone may hang up before it answers; later no daemon answers.
            Ok(_) | Err(ClientError::HungUp | ClientError::NotRunning { .. }) => return,
            Err(error) if !reported => {
                reported = true;
                tracing::error!(
                    "cannot unmount yet: {error}; trying again every second (a second signal detaches the mount at \
                    once)"
                );
            }
            Err(_) => {}
        }
        std::thread::sleep(UNMOUNT_AGAIN);
    }
}

/// SIGTERM and SIGINT unmount; a second one detaches the mount and ends the program. SIGHUP reloads the configuration
/// of a daemon, and ends a foreground mount, whose terminal is gone.
fn install_signal_handlers(session: &Session, mounted: Arc<AtomicBool>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    let pool = session.pool.clone();
    let config = session.config.clone();
    let in_background = session.starter.is_some() || systemd::wants_notifications();
    let heed = move || {
        let mut asked = false;
        for signal in signals.forever() {
            if signal == SIGHUP && in_background {
                reload(&pool, &config);
            } else if asked {
                tracing::warn!("second signal: detaching {}", visible_path(&pool.mount));
                let _ = mounts::detach(&pool.mount, true);
                uncover_all(&pool.mount);
                std::process::exit(128 + signal);
            } else {
                asked = true;
                tracing::info!(
                    "signal received: finishing requests, then unmounting (a second signal detaches at once)"
                );
                request_unmount(pool.clone(), Arc::clone(&mounted));
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(heed).context("starting a thread")?;
    Ok(())
}

fn reload(pool: &Pool, path: &Path) {
    let spec = match config::read(path) {
        Ok(config) => Box::new(config.spec),
        Err(errors) => return tracing::error!("not reloaded; the old configuration stays in force: {errors}"),
    };
    match Client::new(&pool.socket).call(&Request::RulesReload { spec, dry_run: false }) {
        Ok(Answer::Reloaded { changes, not_in_force }) => {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            tracing::info!(changes = changes.join("; "), "configuration reloaded");
            if !not_in_force.is_empty() {
                tracing::warn!("these changes take effect at the next mount: {}", not_in_force.join("; "));
            }
        }
        Ok(_) => tracing::error!("the daemon sent an unexpected answer; the configuration may not be reloaded"),
        Err(error) => tracing::error!("not reloaded; the old configuration stays in force: {error}"),
    }
}
