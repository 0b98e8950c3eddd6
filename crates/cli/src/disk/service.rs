//! How a disk's daemon answers requests.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::bail;
use parking_lot::Mutex;
use umbrella_block::hybrid::Losses;
use umbrella_block::serve::nbd::{Server, Stats};
use umbrella_fs::control::socket::Service;
use umbrella_units::ByteSize;

use super::attached::Attached;
use super::figures::figures;
use super::log::Log;
use super::offered::ServedDisk;
use super::pair::drain;
use super::place;
use super::protocol::ScrubResult;
use super::protocol::{Answer, AtDetach, DetachOutcome, Detached, DiskStatus, GrowResult, Progress, Request};
use super::scrub::Scrubs;
use crate::config::disk::{Front, Listen};
use crate::output::reasons;

/// Interval at which a client that waits for the end hears that it is under way.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a detachment waits for clients to hang up: one that ended a moment ago is still counted.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The outcome of a request whose client is gone.
pub(crate) const CLIENT_GONE: &str = "the client has gone, so the request was dropped";
/// Most ranges that a status names.
const MOST_RANGES: usize = 10_000;

/// Why the daemon ends.
pub(crate) enum EndReason {
    /// A signal: what is on flash stays there.
    Signal,
    /// A client requested it, and waits for the outcome.
    Detach { flash: AtDetach, requester: Requester },
}

/// The client that requested a detachment. A request that no client waits for is not done: it would come when no client
/// expects it.
pub(crate) struct Requester(Sender<RequesterMessage>);

/// A message to a requester.
enum RequesterMessage {
    /// Asks whether it still waits.
    Ping(Sender<bool>),
    /// How it ended.
    Done(Result<(), String>),
}

impl Requester {
    /// Whether the requester still waits. If so, it learns that the end has begun.
    pub(crate) fn is_waiting(&self) -> bool {
        let (reply, answer) = channel();
        self.0.send(RequesterMessage::Ping(reply)).is_ok() && answer.recv().is_ok_and(|waits| waits)
    }

    /// Tells it how the disk ended.
    pub(crate) fn done(&self, outcome: Result<(), String>) {
        let _ = self.0.send(RequesterMessage::Done(outcome));
    }
}

/// The disk and what offers it, until they end.
pub(crate) struct Served {
    pub(crate) offered: ServedDisk,
    pub(crate) server: Server,
    /// As a block device of this machine.
    pub(crate) attached: Option<Attached>,
    /// A signal asked for the end, and the block device is still in use.
    pub(crate) ending: bool,
}

/// What answers requests.
pub(crate) struct DiskService {
    /// Nothing once it is ending.
    pub(crate) served: Arc<Mutex<Option<Served>>>,
    pub(crate) end: Sender<EndReason>,
    pub(crate) since: Instant,
    pub(crate) scrubs: Arc<Scrubs>,
}

impl Service for DiskService {
    type Request = Request;
    type Answer = Answer;
    type Progress = Progress;

    fn carry_out(&self, request: Request, report: &mut dyn FnMut(&Progress) -> bool) -> Result<Answer, String> {
        let answer = match request {
            Request::Status => self.with_served(|served| Ok(Answer::Status(Box::new(self.status(served))))),
            Request::Stats => self.with_served(|Served { offered, server, attached, .. }| {
                let here = attached.as_ref().map(Attached::traffic).unwrap_or_default();
                let log = offered.log().map(Log::tables);
                let figures = figures(&server.stats(), &offered.sources(here));
                Ok(Answer::Stats { figures, watts: offered.watts(), log })
            }),
            Request::Attach { front } => self.with_served(|served| {
                served.attach(front)?;
                Ok(Answer::Status(Box::new(self.status(served))))
            }),
            Request::Grow => self.with_served(Served::grow).map(Answer::Grown),
            Request::Scrub { bandwidth, restart } => self.scrub(bandwidth, restart, report).map(Answer::Scrubbed),
            Request::Detach { flash, force } => self.detach(flash, force, report).map(Answer::Detached),
        };
        answer.map_err(|error| reasons(&error))
    }
}

impl Served {
    /// Makes it a block device of this machine, if it is none yet.
    pub(crate) fn attach(&mut self, front: Front) -> anyhow::Result<()> {
        let name = &self.offered.spec.name;
        match &self.attached {
            Some(attached) if attached.front() == front => {}
            Some(attached) => {
                let (shown, other) = (attached.shown(), attached.front());
                bail!("{name} is attached by {other} already, as {shown}; detach it first to attach it by {front}");
            }
            None => {
                let attached =
                    Attached::new(self.offered.device(), front, &place::folder(name), self.offered.access())?;
                tracing::info!("attached to {}", attached.device().display());
                self.attached = Some(attached);
            }
        }
        Ok(())
    }

    /// Takes the space that a log store's device has become larger by, and tells the block device of this machine.
    fn grow(&mut self) -> anyhow::Result<GrowResult> {
        let name = self.offered.spec.name.to_string();
        if let Some(fixed) = self.attached.as_ref().and_then(Attached::fixed) {
            bail!("{fixed}");
        }
        let before = self.offered.size();
        let size = self.offered.grow()?;
        if let Some(attached) = &self.attached {
            attached.resize()?;
        }
        tracing::info!("{name}: {before} before, {size} now");
        Ok(GrowResult { name, before, size, device: self.attached.as_ref().map(Attached::shown) })
    }

    /// Detaches the block device. Fails, and changes nothing, while the device is in use.
    pub(crate) fn detach_device(&mut self) -> anyhow::Result<()> {
        if let Some(attached) = &mut self.attached {
            attached.detach()?;
            self.attached = None;
        }
        Ok(())
    }
}

impl DiskService {
    fn with_served<T>(&self, look: impl FnOnce(&mut Served) -> anyhow::Result<T>) -> anyhow::Result<T> {
        match &mut *self.served.lock() {
            Some(served) => look(served),
            None => bail!("the disk is being detached"),
        }
    }

    fn status(&self, Served { offered, server, attached, ending }: &Served) -> DiskStatus {
        let Stats { connections, .. } = server.stats();
        let stats = offered.cache_stats();
        let refuses = stats.as_ref().and_then(|stats| stats.refuses_writes.clone());
        let at_risk = match (&refuses, offered.hybrid()) {
            (Some(_), Some(hybrid)) => hybrid.at_risk(),
            _ => Vec::new(),
        };
        let (losses, damage) = offered.losses().unwrap_or_default();
        let of_log = offered.log().map(Log::problems).unwrap_or_default();
        let drain_failure = stats.and_then(|stats| stats.drain_failure);
        let device = attached.as_ref().map(Attached::shown);
        let waits = device.as_ref().filter(|_| *ending);
        let waits = waits.map(|device| format!("signal received: waiting until {device} is no longer in use"));
        DiskStatus {
            name: offered.spec.name.to_string(),
            kind: offered.kind().to_owned(),
            size: offered.size(),
            read_only: offered.spec.read_only,
            disk: offered.spec.disk.identity(),
            flash: offered.spec.cache.as_ref().map(|cache| cache.flash.identity()),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.since.elapsed().as_secs(),
            device,
            listen: server.addresses().map(|address| Listen::from(address).to_string()).collect(),
            clients: connections,
            power: offered.power(),
            cache: offered.cache_status(),
            log: offered.log().map(Log::status),
            scrub: offered.scrubbed().map(|_| self.scrubs.status()),
            trouble: waits
                .into_iter()
                .chain(refuses)
                .chain(drain_failure)
                .chain(offered.failed_reads())
                .chain(offered.sleepless.clone())
                .chain(damage)
                .chain(of_log)
                .chain(self.scrubs.problems())
                .collect(),
            at_risk: at_risk.into_iter().chain(losses.at_risk).take(MOST_RANGES).collect(),
        }
    }

    fn scrub(
        &self,
        bandwidth: Option<ByteSize>,
        restart: bool,
        report: &mut dyn FnMut(&Progress) -> bool,
    ) -> anyhow::Result<ScrubResult> {
        let (scrubbed, bandwidth) = self.with_served(|Served { offered, .. }| {
            let (kind, name) = (offered.kind(), &offered.spec.name);
            let Some(scrubbed) = offered.scrubbed() else {
                bail!(
                    "{name} ({kind}) keeps no checksums to compare its data with: scrub a log store or a hybrid \
                    disk instead"
                );
            };
            Ok((scrubbed, bandwidth.unwrap_or(offered.spec.scrub.bandwidth)))
        })?;
        self.scrubs.run(&scrubbed, bandwidth, restart, report)
    }

    fn detach(
        &self,
        flash: AtDetach,
        force: bool,
        report: &mut dyn FnMut(&Progress) -> bool,
    ) -> anyhow::Result<Detached> {
        // A client that gave up while no daemon answered is not served later.
        if !report(&Progress::default()) {
            bail!("{CLIENT_GONE}");
        }
        let look = || {
            self.with_served(|Served { offered, server, attached, .. }| {
                if let Some(attached) = attached {
                    attached.refuse_in_use()?;
                }
                let (name, lasts) = (offered.spec.name.to_string(), offered.spec.disk.path().is_some());
                Ok((server.stats(), name, lasts, offered.hybrid(), offered.keeps_flash()))
            })
        };
        let began = Instant::now();
        let (Stats { connections, .. }, name, lasts, hybrid, keeps_flash) = loop {
            let seen = look()?;
            if seen.0.connections == 0 || force || began.elapsed() >= DISCONNECT_TIMEOUT {
                break seen;
            }
            std::thread::sleep(DISCONNECT_TIMEOUT / 50);
        };
        if connections > 0 && !force {
            bail!("{name} is in use by NBD clients ({connections} connected); --force disconnects them");
        }
        // Most of it while the disk can still be used.
        let has_cache = hybrid.is_some();
        let perhaps_lost = hybrid.as_ref().map(|hybrid| hybrid.perhaps_lost().clone()).unwrap_or_default();
        let drained = match hybrid.as_ref().filter(|_| flash != AtDetach::Keep) {
            Some(hybrid) => drain(hybrid, report)?,
            None => ByteSize(0),
        };
        // The damage was found on the way. A user that holds it keeps the disk from ending.
        let at_risk = hybrid.map(|hybrid| hybrid.lost()).unwrap_or_default();
        let (send, words) = channel();
        self.end.send(EndReason::Detach { flash, requester: Requester(send) })?;
        let mut ending = false;
        let outcome = loop {
            let pulse = Progress { ending, ..Progress::default() };
            match words.recv_timeout(HEARTBEAT_INTERVAL) {
                Ok(RequesterMessage::Ping(reply)) => {
                    ending = report(&Progress { ending: true, ..pulse });
                    let _ = reply.send(ending);
                }
                Ok(RequesterMessage::Done(outcome)) => break outcome,
                Err(RecvTimeoutError::Timeout) => {
                    report(&pulse);
                }
                Err(RecvTimeoutError::Disconnected) => bail!("{name} is already being detached"),
            }
        };
        if let Err(error) = outcome {
            bail!("{error}");
        }
        let outcome = match flash {
            _ if !lasts => DetachOutcome::Gone,
            _ if keeps_flash => DetachOutcome::DetachedWithCache,
            // Alone it would show what was there before.
            AtDetach::Empty if !at_risk.is_empty() => DetachOutcome::DetachedWithCache,
            AtDetach::Keep if has_cache => DetachOutcome::DetachedWithCache,
            AtDetach::Dissolve if has_cache => DetachOutcome::Dissolved,
            _ => DetachOutcome::Detached,
        };
        let lost = Some(Losses { at_risk, unknown_records: 0 });
        Ok(Detached { name, outcome, drained, lost, perhaps_lost })
    }
}
