//! The daemon of one disk: opens it, offers it, and ends it.
//!
//! 1. The control socket is bound: a second daemon of the same name ends here.
//! 2. The disk is opened, a hybrid disk with its log, the NBD server started, and the disk attached if that is wanted.
//! 3. Requests are answered until a signal or a request ends the daemon.
//! 4. The block device is taken away, which waits until no process uses it. The server stops: requests under way are
//!    answered, and everything is flushed. Then the disk is closed, or taken apart.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use umbrella_block::serve::nbd::{Address, Exports, Limits, Server};
use umbrella_fs::control::socket::{BindError, Listener};

use super::offered::ServedDisk;
use super::open::OnDamage;
use super::place;
use super::protocol::AtDetach;
use super::scrub::Scrubs;
use super::service::{CLIENT_GONE, DiskService, EndReason, Served};
use crate::client::ClientError;
use crate::config::disk::{DiskSpec, Listen, ScrubSpec, TlsSpec};
use crate::daemon::Starter;
use crate::output::reasons;
use crate::systemd;

/// How often it is tried to take away a block device that is in use.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Where a disk is offered, besides over NBD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalDevice {
    /// Nowhere.
    No,
    /// As a block device of this machine.
    Attached,
}

/// Serves until a request or a signal ends it.
pub(crate) fn serve(
    spec: DiskSpec,
    here: LocalDevice,
    on_damage: OnDamage,
    starter: Option<&Starter>,
) -> anyhow::Result<()> {
    let name = spec.name.clone();
    let control = Listener::bind(&place::control(&name)).map_err(|error| match error {
        BindError::Answered { pid, .. } => match place::client_of(&spec) {
            Err(other) if !other.is::<ClientError>() => other,
            _ => anyhow::anyhow!("{name} is already served by process {pid} (see `umbrella disk status {name}`)"),
        },
        error @ BindError::Io { .. } => error.into(),
    })?;
    let (end, ends) = channel();
    let served = open(spec, here, on_damage, &end)?;
    let scrubbed = served.offered.scrubbed().and_then(|scrubbed| scrubbed.upgrade());
    let scrubs = Arc::new(Scrubs::of(name.clone(), scrubbed.map(|scrubbed| scrubbed.id())));
    let _ends_scrubs = start_periodic_scrubs(&served.offered, &scrubs)?;
    let served = Arc::new(Mutex::new(Some(served)));
    let serving = control.serve(DiskService { served: Arc::clone(&served), end, since: Instant::now(), scrubs });
    if let Some(Err(gone)) = starter.map(Starter::report_ready) {
        // The user who wanted the disk may only have lost their terminal.
        tracing::warn!("the process that started the daemon is gone ({gone}); {name} stays served");
    }
    systemd::notify("READY=1");
    let (end, served) = wait_until_detached(&ends, &served)?;
    systemd::notify("STOPPING=1");
    let result = match end {
        EndReason::Signal => stop(served, AtDetach::Keep),
        EndReason::Detach { flash, requester } => {
            let result = stop(served, flash);
            let reported =
                |error| format!("{name} is detached and its daemon has ended, but with an error: {}", reasons(error));
            requester.done(result.as_ref().copied().map_err(reported));
            result
        }
    };
    drop(serving);
    result
}

/// Starts the thread for periodic scrubs, if they are configured. The thread ends when the sender is dropped.
fn start_periodic_scrubs(offered: &ServedDisk, scrubs: &Arc<Scrubs>) -> anyhow::Result<Option<Sender<()>>> {
    let ScrubSpec { every: Some(every), bandwidth } = offered.spec.scrub else { return Ok(None) };
    let Some(scrubbed) = offered.scrubbed() else {
        let name = &offered.spec.name;
        tracing::warn!("{name}: [scrub] does nothing, because {} keeps no checksums", offered.kind());
        return Ok(None);
    };
    let (sender, ends) = channel();
    let scrubs = Arc::clone(scrubs);
    let run = move || scrubs.run_every(every, bandwidth, &scrubbed, &ends);
    std::thread::Builder::new().name("scrub".to_owned()).spawn(run).context("starting a thread")?;
    Ok(Some(sender))
}

/// Opens the disk and offers it (step 2).
fn open(spec: DiskSpec, here: LocalDevice, on_damage: OnDamage, end: &Sender<EndReason>) -> anyhow::Result<Served> {
    install_signal_handlers(end.clone())?;
    let name = spec.name.clone();
    let (front, addresses) = (spec.front, addresses(&spec));
    let limits = Limits { connections: usize::from(spec.nbd.connections), ..Limits::default() };
    for address in spec.nbd.open_to_others() {
        tracing::warn!("{}", open_to_others(address));
    }
    let tls = spec.nbd.tls.as_ref().map(TlsSpec::load).transpose()?;
    let offered = ServedDisk::open(spec, on_damage)?;
    for damage in offered.losses().into_iter().flat_map(|(_, damage)| damage) {
        tracing::warn!("{damage}");
    }
    let exports = Exports::new(vec![offered.export()])?;
    let exports = match tls {
        Some(tls) => exports.over(tls),
        None => exports,
    };
    let server = Server::start(exports, &addresses, limits)?;
    let listen: Vec<String> = server.addresses().map(|address| Listen::from(address).to_string()).collect();
    tracing::info!("{name}: {}, {}, at {}", offered.kind(), offered.size(), listen.join(", "));
    let mut served = Served { offered, server, attached: None, ending: false };
    if here == LocalDevice::Attached {
        served.attach(front)?;
    }
    Ok(served)
}

/// Waits for a request or signal to end, and detaches the block device. While the device is in use, a request is
/// refused, and after a signal the detachment is tried again and again.
fn wait_until_detached(
    ends: &Receiver<EndReason>,
    served: &Mutex<Option<Served>>,
) -> anyhow::Result<(EndReason, Served)> {
    let mut leaving = false;
    loop {
        let end = if leaving { ends.recv_timeout(RETRY_INTERVAL).ok() } else { ends.recv().ok() }
            .unwrap_or(EndReason::Signal);
        let mut place = served.lock();
        if let EndReason::Detach { requester, .. } = &end
            && !requester.is_waiting()
        {
            requester.done(Err(CLIENT_GONE.to_owned()));
            continue;
        }
        let Some(mut disk) = place.take() else { bail!("the disk is gone") };
        let Err(error) = disk.detach_device() else { return Ok((end, disk)) };
        disk.ending |= matches!(end, EndReason::Signal);
        *place = Some(disk);
        match end {
            EndReason::Detach { requester, .. } => requester.done(Err(reasons(&error))),
            EndReason::Signal if !leaving => {
                tracing::warn!("{}: waiting until it is free (a second signal ends at once)", reasons(&error));
                leaving = true;
            }
            EndReason::Signal => {}
        }
    }
}

fn stop(Served { offered, server, .. }: Served, flash: AtDetach) -> anyhow::Result<()> {
    let stopped = server.stop();
    let ended = match flash {
        AtDetach::Keep => offered.close(),
        AtDetach::Empty => offered.detach(),
        AtDetach::Dissolve => offered.dissolve(),
    };
    // What the disk says is the better reason.
    ended.and(stopped.map_err(Into::into))
}

/// What to say of an address that other machines can reach.
pub(crate) fn open_to_others(address: &Listen) -> String {
    format!(
        "other machines can reach {address}, and anyone there can read and write the disk: to require a certificate, \
        set tls and tls_verify_peer in [nbd]"
    )
}

fn addresses(spec: &DiskSpec) -> Vec<Address> {
    let Some(listen) = &spec.nbd.listen else { return vec![Address::Unix(place::nbd(&spec.name))] };
    listen.iter().map(Address::from).collect()
}

/// The first signal ends the daemon in order, the second at once.
fn install_signal_handlers(end: Sender<EndReason>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("catching signals")?;
    let heed = move || {
        let mut asked = false;
        for signal in signals.forever() {
            if asked {
                tracing::warn!("second signal: ending at once");
                std::process::exit(128 + signal);
            }
            asked = true;
            tracing::info!("signal received: finishing requests (a second signal ends at once)");
            let _ = end.send(EndReason::Signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(heed).context("starting a thread")?;
    Ok(())
}
