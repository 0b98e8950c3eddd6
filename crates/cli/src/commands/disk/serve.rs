//! `umbrella disk serve`: offers a disk over NBD.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::progress::Waiting;
use super::source::SourceArgs;
use crate::client::ClientError;
use crate::config::disk::DiskName;
use crate::daemon::{self, Starter};
use crate::disk::open::OnDamage;
use crate::disk::place;
use crate::disk::protocol::{Answer, DiskClient, Request};
use crate::disk::serve::{LocalDevice, serve};
use crate::text::visible_path;
use crate::{output, pool};

/// Offer a disk over NBD.
///
/// Stays in the foreground and logs to standard error until the disk is detached (`umbrella disk detach`, Ctrl-C or
/// SIGTERM). The first signal finishes requests under way; data on the flash stays there for the next start. The second
/// ends at once, and loses no flushed data.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk serve /etc/umbrella/media.disk.toml
  umbrella disk serve media.disk.toml --daemon
  umbrella disk serve --disk /srv/image.raw --listen 127.0.0.1:10809
  umbrella disk serve --disk emulated:profile=modern,size=1GiB,speed=10 --name slow")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct ServeArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Also make the disk a block device of this machine (needs root). The log names it, and --daemon prints it.
    #[arg(long)]
    attach: bool,
    /// Continue without flushed data that is damaged. Lost blocks cannot be read until they are written again. The disk
    /// is read-only if the log does not show which blocks are lost.
    #[arg(long)]
    salvage: bool,
    /// Go to the background once the disk is ready. If it fails, print the reason and end with 1.
    #[arg(short, long)]
    daemon: bool,
    /// Where a daemon logs [default: /var/log/umbrella/disk-NAME.log].
    #[arg(long, value_name = "FILE", requires = "daemon")]
    log: Option<PathBuf>,
    /// With --daemon: print JSON.
    #[arg(long, requires = "daemon")]
    pub(super) json: bool,
    /// This is the daemon, and its standard output is the pipe to the process that started it.
    #[arg(long, hide = true)]
    announce: bool,
}

impl ServeArgs {
    pub(super) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        // Before the directory is left, which paths may be relative to.
        let spec = self.source.read()?;
        let on_damage = on_damage(self.salvage);
        if self.attach {
            spec.front.needs_to_be_built()?;
            needs_root()?;
        }
        if self.announce {
            let starter = Starter::detach()?;
            serve(spec, self.local_device(), on_damage, Some(&starter))
                .inspect_err(|error| starter.report_failure(error))?;
        } else if self.daemon {
            self.in_background(&spec.name, on_damage, verbose)?;
        } else {
            serve(spec, self.local_device(), on_damage, None)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn local_device(&self) -> LocalDevice {
        if self.attach { LocalDevice::Attached } else { LocalDevice::No }
    }

    fn in_background(&self, name: &DiskName, on_damage: OnDamage, verbose: u8) -> anyhow::Result<()> {
        start(&self.source, name, self.local_device(), on_damage, self.log.as_deref(), verbose)?;
        let client = DiskClient::new(&place::control(name));
        let Answer::Status(status) = client.call(&Request::Status).context("asking the new daemon")? else {
            return Err(ClientError::Unexpected.into());
        };
        let (name, device, listen, pid) = (status.name, status.device, status.listen, status.pid);
        match device {
            device if self.json => {
                output::json(&json!({ "name": name, "device": device, "listen": listen, "pid": pid }))?;
            }
            Some(device) => output::line(&device)?,
            None if listen.is_empty() => output::line(&name)?,
            None => output::line(&format!("{name}  {}", listen.join(", ")))?,
        }
        Ok(())
    }
}

/// Only root may make block devices.
pub(super) fn needs_root() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("attach needs root");
    }
    Ok(())
}

/// What `--salvage` asks for.
pub(super) fn on_damage(salvage: bool) -> OnDamage {
    if salvage { OnDamage::Salvage } else { OnDamage::Refuse }
}

/// Starts a daemon and waits for its word.
pub(super) fn start(
    source: &SourceArgs,
    name: &DiskName,
    here: LocalDevice,
    on_damage: OnDamage,
    log: Option<&Path>,
    verbose: u8,
) -> anyhow::Result<()> {
    let log = log.map_or_else(|| pool::log_dir().join(format!("disk-{name}.log")), Path::to_owned);
    let mut args = vec!["disk".into(), "serve".into(), "--announce".into()];
    if here == LocalDevice::Attached {
        args.push("--attach".into());
    }
    if on_damage == OnDamage::Salvage {
        args.push("--salvage".into());
    }
    args.extend((0..verbose).map(|_| "--verbose".into()));
    args.extend(source.to_args());
    let process = install_signal_handlers(name, &log)?;
    let mut view = Waiting::new(&format!("opening {name}"));
    daemon::start(&args, &log, |pid| process.store(pid, Ordering::Relaxed), &mut |so_far| view.show(so_far))
}

/// What becomes of a daemon whose starter gets a signal. Ctrl-C ends it in order, once it has opened the disk. A
/// starter that only loses its terminal, or is ended by others, still wants the disk.
///
/// Returns where the daemon's process is noted.
fn install_signal_handlers(name: &DiskName, log: &Path) -> anyhow::Result<Arc<AtomicU32>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    let process = Arc::new(AtomicU32::new(0));
    let noted = Arc::clone(&process);
    let (name, log) = (name.clone(), visible_path(log));
    let heed = move || {
        let Some(signal) = signals.forever().next() else { return };
        let pid = i32::try_from(noted.load(Ordering::Relaxed)).ok().and_then(Pid::from_raw);
        let cancels = signal == SIGINT && pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
        if cancels {
            report!("umbrella: cancelled: {name} is still opening, and is closed when that is done (see {log})");
        } else {
            report!(
                "umbrella: {name} is still opening and will then be served; to stop it: `umbrella disk detach \
                {name}`; its log is {log}"
            );
        }
        std::process::exit(128 + signal);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(heed).context("starting a thread")?;
    Ok(process)
}
