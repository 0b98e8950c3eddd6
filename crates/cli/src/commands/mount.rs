//! `umbrella mount`: mounts a pool, in the foreground or as a daemon.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use rustix::io::Errno;
use umbrella_fs::Warning;
use umbrella_fs::branch::StateDir;
use umbrella_fs::branch::cover::uncover_all;
use umbrella_fs::spec::STAGING;

use crate::advice::with_advice;
use crate::client;
use crate::config::{self, Config, ErrorReport};
use crate::daemon::{self, Starter};
use crate::ending;
use crate::mount::{self, Session};
use crate::mount_options::{self, MountOptions};
use crate::pool::{self, Pool};
use crate::probe::ProbeReply;
use crate::text::{quoted, quoted_list, visible, visible_path};

/// Mount a pool.
///
/// Stays in the foreground and logs to standard error, until it is unmounted (`umbrella unmount`, Ctrl-C or SIGTERM).
/// The first signal finishes or undoes the move under way and unmounts; the second detaches at once.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella mount pool.toml                          in the foreground
  umbrella mount pool.toml --daemon                 return when the mount is ready
  umbrella mount pool.toml --allow-missing usb      continue without the branch \"usb\"
  mount -t fuse.umbrella /etc/umbrella/pool.toml /srv/pool
                                                    the same from fstab (docs/mounting.md)")]
pub(crate) struct MountArgs {
    /// The configuration file.
    config: PathBuf,
    /// Go to the background once the mount is ready. If it fails, print the reason and end with 1.
    #[arg(short, long)]
    daemon: bool,
    /// Stay in the foreground (the default).
    #[arg(short, long, conflicts_with = "daemon")]
    foreground: bool,
    /// Start without this branch if it is missing (may be repeated).
    #[arg(long, value_name = "BRANCH")]
    allow_missing: Vec<String>,
    /// Where a daemon logs [default: /var/log/umbrella/MOUNT.log].
    #[arg(long, value_name = "FILE", requires = "daemon")]
    log: Option<PathBuf>,
    /// Mount here instead of at the mount point in the configuration.
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// General options of mount(8): ro, nosuid, nodev, noexec, noatime... (separated by commas).
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',', value_parser = mount_options::checked)]
    options: Vec<String>,
    /// Write a line for each kernel request to this file: operation, node, name, time in the daemon, result
    /// (docs/performance.md). The file must be outside the pool.
    #[arg(long, value_name = "FILE")]
    trace_requests: Option<PathBuf>,
    /// What the table of mounts shows as the source [default: the mount point].
    #[arg(long, hide = true)]
    source: Option<PathBuf>,
    /// This is the daemon, and its standard output is the pipe to the process that started it.
    #[arg(long, hide = true)]
    announce: bool,
}

impl MountArgs {
    pub(crate) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        if self.announce {
            let starter = Starter::detach()?;
            return self.serve(Some(starter.clone())).inspect_err(|error| starter.report_failure(error));
        }
        if self.daemon {
            return self.start(verbose);
        }
        self.serve(None)
    }

    /// Starts the daemon and waits for its word.
    fn start(self, verbose: u8) -> anyhow::Result<ExitCode> {
        let options = MountOptions::of(self.options.iter().map(String::as_str))?;
        let config = self.load(options, &|finding| report!("{}", finding.as_warning()))?;
        for warning in forgotten(&config) {
            report!("warning: {}", visible(&warning));
        }
        let log = self.log.clone().unwrap_or_else(|| pool::log_file(&config.spec.mount));
        let mut args = vec!["mount".into(), "--announce".into()];
        // The daemon does not keep the directory it was started in.
        args.push(std::path::absolute(&self.config)?.into_os_string());
        args.extend(["--at".into(), config.spec.mount.clone().into_os_string()]);
        if let Some(source) = self.source {
            args.extend(["--source".into(), source.into_os_string()]);
        }
        if let Some(file) = self.trace_requests {
            args.extend(["--trace-requests".into(), std::path::absolute(&file)?.into_os_string()]);
        }
        for branch in self.allow_missing {
            args.extend(["--allow-missing".into(), branch.into()]);
        }
        for option in self.options {
            args.extend(["--options".into(), option.into()]);
        }
        args.extend((0..verbose).map(|_| "--verbose".into()));
        daemon::start(&args, &log, |_| {}, &mut |_| {})?;
        Ok(ExitCode::SUCCESS)
    }

    fn serve(self, starter: Option<Starter>) -> anyhow::Result<ExitCode> {
        let options = MountOptions::of(self.options.iter().map(String::as_str))?;
        let config = self.load(options, &|finding| tracing::warn!("{finding}"))?;
        let mount = config.spec.mount.clone();
        let session = Session {
            pool: Pool::at(&mount),
            state_dir: pool::state_dir(&mount),
            config: std::path::absolute(&self.config)?,
            is_elsewhere: config::read(&self.config).is_ok_and(|config| config.spec.mount != mount),
            allow_missing: self.allow_missing,
            options,
            source: self.source,
            starter,
            trace_requests: self.trace_requests,
        };
        mount::serve(config.spec, session)?;
        Ok(ExitCode::SUCCESS)
    }

    /// With --daemon this happens twice: for the user, and in the daemon, whose `tell` writes to its log.
    fn load(&self, options: MountOptions, tell: &dyn Fn(&ErrorReport)) -> anyhow::Result<Config> {
        may_mount()?;
        let at = self.at.as_deref().map(pool::absolute).transpose()?;
        remove_leftover_covers(&self.config, at.as_deref());
        let (config, findings) = config::load(&self.config, at.as_deref(), options.access_times())?;
        allowed_branches(&config, &self.allow_missing)?;
        // The error of a branch that the mount cannot do without follows.
        let is_needed = |name: &str| {
            let mut branches = config.spec.branches.iter();
            branches.any(|branch| branch.name == name && !branch.optional)
                && self.allow_missing.iter().all(|allowed| allowed != name)
        };
        for finding in &findings {
            if !finding.is_remark() && !finding.missing_branch().is_some_and(is_needed) {
                tell(&config.report(&finding.span, finding.notice.to_string()));
            }
        }
        // A pool that was detached keeps its branches until the last file in it is closed.
        ending::wait_at(&config.spec.mount)?;
        let branches: Vec<PathBuf> = config.spec.branches.iter().map(|branch| branch.path.clone()).collect();
        ending::wait_for_branches(&branches)?;
        ending::refuse_branches_of_others(&branches, &config.spec.mount)?;
        usable_mount_point(&config.spec.mount)?;
        if let Some(file) = &self.trace_requests {
            outside(file, &config.spec.mount, &branches)?;
        }
        Ok(config)
    }
}

/// What the daemon warns of too: branches of an earlier mount that the configuration does not name.
fn forgotten(config: &Config) -> Vec<String> {
    let mount = &config.spec.mount;
    let names = StateDir::remembered(&pool::state_dir(mount), mount).into_keys();
    let is_named = |name: &String| config.spec.branches.iter().any(|branch| branch.name == *name);
    let forgotten = names.filter(|name| name != STAGING && !is_named(name));
    forgotten.map(|name| with_advice(&Warning::Forgotten { name })).collect()
}

/// Removes the covers that a killed daemon left over its branches. Mistakes in the configuration are reported later.
fn remove_leftover_covers(config: &Path, at: Option<&Path>) {
    let Ok(config) = config::read(config) else { return };
    let mount = crate::mounts::resolve(at.unwrap_or(&config.spec.mount));
    let is_nobody = |error: std::io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
    if client::connect(&Pool::at(&mount).socket).is_err_and(is_nobody) {
        uncover_all(&mount);
    }
}

/// Asked before anything is written to a branch.
fn may_mount() -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let shared = std::fs::read_to_string("/etc/fuse.conf")
        .is_ok_and(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
    if device.is_ok() && shared {
        return Ok(());
    }
    bail!("only root can mount a pool: run this as root (nothing was changed)");
}

fn allowed_branches(config: &Config, allowed: &[String]) -> anyhow::Result<()> {
    let names = || config.spec.branches.iter().map(|branch| branch.name.as_str());
    let Some(unknown) = allowed.iter().find(|name| names().all(|known| known != name.as_str())) else { return Ok(()) };
    let hint = umbrella_units::did_you_mean(unknown, names());
    bail!("--allow-missing: unknown branch {}{hint}; branches: {}", quoted(unknown), quoted_list(names()));
}

/// The mount point is a directory. One whose daemon died is taken away first.
fn usable_mount_point(mount: &Path) -> anyhow::Result<()> {
    let shown = visible_path(mount);
    if crate::mounts::is_dead(mount) {
        tracing::warn!("the daemon of {shown} is gone: detaching the dead mount");
        crate::mounts::detach(mount, false).with_context(|| format!("detaching the dead mount at {shown}"))?;
    }
    crate::mounts::refuse_unresponsive(mount)?;
    match crate::mounts::found_at(mount) {
        ProbeReply::Yes(found) if found.is_dir => Ok(()),
        ProbeReply::Yes(_) => bail!("the mount point {shown} is not a directory"),
        ProbeReply::No(Errno::NOENT) => bail!("the mount point {shown} does not exist (create it with `mkdir -p`)"),
        ProbeReply::No(error) => Err(error).with_context(|| format!("the mount point {shown}")),
        ProbeReply::Silent => bail!("the mount point {shown} does not answer"),
    }
}

/// A trace in the pool, or on one of its branches, would trace its own writing without end.
fn outside(file: &Path, mount: &Path, branches: &[PathBuf]) -> anyhow::Result<()> {
    let absolute = std::path::absolute(file)?;
    // A file that is still to be made is where its directory is.
    let there = if absolute.exists() { &absolute } else { absolute.parent().unwrap_or(Path::new("/")) };
    let real = std::fs::canonicalize(there).with_context(|| format!("--trace-requests {}", visible_path(file)))?;
    let on_branch = |branch: &PathBuf| real.starts_with(crate::mounts::resolve(branch));
    let in_pool = real.starts_with(std::fs::canonicalize(mount)?);
    if in_pool || branches.iter().any(on_branch) {
        bail!("--trace-requests: {} lies in the pool: name a file outside of it", visible_path(file));
    }
    Ok(())
}
