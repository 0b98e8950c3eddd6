//! A disk that is open: what it is made of, its state, and how it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use umbrella_block::BlockDevice;
use umbrella_block::file::Access;
use umbrella_block::hybrid::{self, DamagedPair, Hybrid, HybridError, HybridStats, Losses, Motion};
use umbrella_block::log_store;
use umbrella_block::log_store::format::Superblock;
use umbrella_block::scrub::Scrub;
use umbrella_block::serve::Traffic;
use umbrella_block::serve::nbd::Export;
use umbrella_block::spindle::{Power, Spindle};
use umbrella_policy::spin_down::SpinDown;
use umbrella_units::ByteSize;

use super::figures::Sources;
use super::log::Log;
use super::losses::{perhaps_lost, skipped, unknown};
use super::motor::TimedMotor;
use super::open::{self, OnDamage, OpenDevice, into_unshared};
use super::pair::{Persistence, detach_pair, halves, keeps, salvage};
use super::protocol::{AtDetach, BreakEven, CacheStatus, Motor};
use super::remembered;
use crate::config::disk::{DiskSpec, LogSpec};
use crate::output::reasons;
use crate::text::count;

/// How to treat damage of the hybrid disk below a log store: refuse it, because `on_damage` is meant for the store.
fn for_pair_below_log(spec: &DiskSpec, on_damage: OnDamage) -> OnDamage {
    if spec.log.is_some() { OnDamage::Refuse } else { on_damage }
}

/// Whether a hybrid disk could not be opened because of its log: it is damaged, or cannot be read.
fn is_damage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(HybridError::Corrupt { .. } | HybridError::LogUnreadable { .. }))
}

/// A disk that is open.
pub(crate) struct ServedDisk {
    pub(crate) spec: DiskSpec,
    disk: OpenDevice,
    /// The motor of a disk that is not hybrid.
    motor: Option<Arc<dyn Spindle>>,
    /// The motor of a hybrid disk, which is put to sleep.
    timed: Option<Arc<TimedMotor>>,
    flash: Option<OpenDevice>,
    /// Why its disk is never put to sleep, though it should be.
    pub(crate) sleepless: Option<String>,
    hybrid: Option<Arc<Hybrid>>,
    /// In the place of `hybrid`, when only what is whole is offered.
    salvage: Option<Arc<DamagedPair>>,
    /// The log store on all of that.
    log: Option<Log>,
}

impl ServedDisk {
    /// Opens it, with the log store that is on it.
    pub(crate) fn open(spec: DiskSpec, on_damage: OnDamage) -> anyhow::Result<ServedDisk> {
        let mut offered = match ServedDisk::open_below(spec.clone(), for_pair_below_log(&spec, on_damage)) {
            Err(error) if on_damage == OnDamage::Salvage && is_damage(&error) => {
                ServedDisk::open_below(spec, on_damage)
            }
            opened => opened,
        }?;
        offered.log = Log::open(&offered.spec, offered.name(), &offered.device(), on_damage)?;
        match &offered.log {
            Some(log) => offered.spec.read_only = log.is_read_only(),
            None if on_damage == OnDamage::Salvage && offered.spec.cache.is_none() => {
                bail!("{} has neither flash nor a log store: there is no log to salvage", offered.spec.name)
            }
            None => {}
        }
        Ok(offered)
    }

    /// Opens what is below a log store. A hybrid disk goes through its log and sleeps by itself from then on.
    pub(super) fn open_below(spec: DiskSpec, on_damage: OnDamage) -> anyhow::Result<ServedDisk> {
        let Some(cache) = &spec.cache else {
            let access = if spec.read_only { Access::ReadOnly } else { Access::ReadWrite };
            let alone = if access == Access::ReadWrite { open::needs_flash(&spec.disk) } else { Ok(None) };
            if let Ok(Some(refusal)) = &alone {
                bail!("{refusal}");
            }
            // What cannot be opened says best why.
            let disk = OpenDevice::open(&spec.disk, access)?;
            alone.context("it may be half of a hybrid disk; serve it --read-only")?;
            let emulated = disk.emulated.clone().map(|emulated| emulated as Arc<dyn Spindle>);
            let motor = emulated.or_else(|| open::motor(&spec.disk)?.ok());
            return Ok(ServedDisk {
                disk,
                motor,
                timed: None,
                flash: None,
                sleepless: None,
                hybrid: None,
                salvage: None,
                log: None,
                spec,
            });
        };
        let keeps = keeps(&spec.disk, cache)?;
        if on_damage == OnDamage::Salvage && keeps == Persistence::Nothing {
            bail!("the disk was in memory: there is nothing to salvage");
        }
        // Opening a pair to be used writes to both halves.
        if on_damage == OnDamage::Salvage || spec.read_only && keeps == Persistence::All {
            let (disk, flash) = halves(&spec, cache, Access::ReadOnly)?;
            let pair = DamagedPair::open(disk.half(), flash.half())?;
            if let (OnDamage::Refuse, Some(damage)) = (on_damage, pair.damage()) {
                return Err(damage.clone().into());
            }
            if spec.read_only || pair.damage().is_some() && !pair.can_be_salvaged() {
                return Ok(ServedDisk::read_only(spec, disk, flash, pair));
            }
            drop((pair, disk, flash));
            salvage(&spec, cache)?;
        }
        let (disk, flash) = halves(&spec, cache, Access::ReadWrite)?;
        if keeps == Persistence::Nothing {
            // What they were was forgotten with the last daemon.
            hybrid::create(&disk.half(), &flash.half())?;
        }
        let (spindle, sleepless) = match disk.motor(&spec.disk) {
            Ok(spindle) => (spindle, None),
            Err(reason) => (open::no_motor(), (!cache.settings.spin_down.is_never()).then_some(reason)),
        };
        let sleepless = sleepless.map(|reason| format!("{reason} (treated as asleep)"));
        if let Some(sleepless) = &sleepless {
            tracing::warn!("{sleepless}");
        }
        let wanted = spec.clone();
        let reckoned = move |time| open::costs(&wanted, Some(time)).ok().map(|(costs, _)| costs);
        let motor = Arc::new(TimedMotor::new(spindle, reckoned));
        // It is woken anyway, and may have slept.
        motor.wake()?;
        let (costs, _) = open::costs(&spec, motor.spin_up_time())?;
        let spin_down = SpinDown::parse(&cache.settings.spin_down.to_string(), costs)?;
        let spindle = Arc::<TimedMotor>::clone(&motor);
        let hybrid = Hybrid::open(disk.half(), flash.half(), spindle, cache.settings.options, Some(spin_down))?;
        remembered::save(&spec, disk.device.geometry().size());
        let (hybrid, flash) = (Some(Arc::new(hybrid)), Some(flash));
        let timed = Some(motor);
        Ok(ServedDisk { disk, motor: None, timed, flash, sleepless, hybrid, salvage: None, log: None, spec })
    }

    /// Offers the undamaged part of a damaged pair, read-only.
    fn read_only(spec: DiskSpec, disk: OpenDevice, flash: OpenDevice, pair: DamagedPair) -> ServedDisk {
        let motor = disk.motor(&spec.disk).ok();
        ServedDisk {
            disk,
            motor,
            timed: None,
            flash: Some(flash),
            sleepless: None,
            hybrid: None,
            salvage: Some(Arc::new(pair)),
            log: None,
            spec: DiskSpec { read_only: true, ..spec },
        }
    }

    /// What messages call it.
    pub(super) fn name(&self) -> &str {
        &self.disk.name
    }

    /// What programs read and write.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        if let Some(log) = &self.log {
            return log.device();
        }
        match (&self.hybrid, &self.salvage) {
            (Some(hybrid), _) => Arc::<Hybrid>::clone(hybrid),
            (None, Some(salvage)) => Arc::<DamagedPair>::clone(salvage),
            (None, None) => Arc::clone(&self.disk.device),
        }
    }

    /// Whether they may write.
    pub(crate) fn access(&self) -> Access {
        if self.spec.read_only { Access::ReadOnly } else { Access::ReadWrite }
    }

    /// As an NBD server offers it.
    pub(crate) fn export(&self) -> Export {
        let name = self.spec.name.to_string();
        let export = match &self.disk.file {
            Some(file) if self.spec.cache.is_none() && self.log.is_none() => Export::of_file(name, Arc::clone(file)),
            _ => Export::new(name, self.device()),
        };
        let export = export.described(self.kind());
        if self.spec.read_only { export.read_only() } else { export }
    }

    /// `log`, `hybrid`, or the kind of its only device.
    pub(crate) fn kind(&self) -> &'static str {
        if self.log.is_some() {
            return "log";
        }
        if self.spec.cache.is_some() { "hybrid" } else { self.spec.disk.kind() }
    }

    pub(crate) fn size(&self) -> ByteSize {
        self.device().geometry().size()
    }

    /// What its motor does. Wakes nothing.
    pub(crate) fn power(&self) -> Option<Motor> {
        if let Some(stats) = self.cache_stats() {
            return Some(match stats.disk {
                Motion::Spinning => Motor::Spinning,
                Motion::Asleep => Motor::Standby,
                Motion::Starting | Motion::Stopping => Motor::Changing,
            });
        }
        let power = self.motor.as_ref()?.power().ok()?;
        Some(match power {
            Power::Spinning => Motor::Spinning,
            Power::Standby => Motor::Standby,
            Power::Changing => Motor::Changing,
        })
    }

    pub(crate) fn cache_stats(&self) -> Option<HybridStats> {
        self.hybrid.as_ref().map(|hybrid| hybrid.stats())
    }

    /// The state of the flash.
    pub(crate) fn cache_status(&self) -> Option<CacheStatus> {
        let (stats, cache) = (self.cache_stats()?, self.spec.cache.as_ref()?);
        Some(CacheStatus {
            used: stats.log_used,
            size: stats.log_size,
            cached: stats.cached,
            cached_zeroes: stats.cached_zeroes,
            when: cache.settings.options.when.to_string(),
            algorithm: cache.settings.options.algorithm.to_string(),
            spin_down: cache.settings.spin_down.to_string(),
            laps: stats.log_laps,
            break_even: self.break_even(),
            draining: stats.draining.then_some(stats.drain_left),
        })
    }

    /// When sleeping pays, for a hybrid disk, as far as is known by now.
    fn break_even(&self) -> BreakEven {
        let spin_up_time = self.timed.as_ref().and_then(|motor| motor.spin_up_time());
        open::costs(&self.spec, spin_up_time).map_or_else(
            |_| BreakEven::default(),
            |(costs, source)| BreakEven { seconds: Duration::from_nanos(costs.break_even.0).as_secs(), source },
        )
    }

    /// The sources of the figures, except those of the NBD server.
    pub(crate) fn sources(&self, here: Traffic) -> Sources {
        let meter = |part: &OpenDevice| part.emulated.as_ref().and_then(|emulated| emulated.meter().ok());
        let flash = self.flash.as_ref().and_then(meter);
        let log = self.log.as_ref().map(Log::stats);
        let failed = |part: &OpenDevice| part.failed_reads().map_or(0, |failed| failed.count);
        let (disk_failed_reads, flash_failed_reads) = (failed(&self.disk), self.flash.as_ref().map(failed));
        let disk = meter(&self.disk);
        let spin_up_time = self.timed.as_ref().and_then(|motor| motor.spin_up_time());
        let cache = self.cache_stats();
        Sources { cache, log, here, disk, flash, disk_failed_reads, flash_failed_reads, spin_up_time }
    }

    /// Where the watts come from that energies are reckoned with, for each emulated device.
    pub(crate) fn watts(&self) -> BTreeMap<String, String> {
        let flash = self.spec.cache.as_ref().map(|cache| ("flash", &cache.flash));
        let devices = std::iter::once(("disk", &self.spec.disk)).chain(flash);
        devices.filter_map(|(half, device)| Some((half.to_owned(), open::watts(device)?))).collect()
    }

    /// Problems of its devices: reads that failed.
    pub(crate) fn failed_reads(&self) -> Vec<String> {
        let halves = [("the disk", Some(&self.disk)), ("the flash", self.flash.as_ref())];
        let reported = halves.into_iter().filter_map(|(half, part)| {
            let (name, failed) = (&part?.name, part?.failed_reads()?);
            let reads = count(failed.count, "read");
            Some(format!(
                "{reads} of {half} ({name}) failed since it was offered, the last one at sector {}",
                failed.last.0
            ))
        });
        let damaged = self.cache_stats().map_or(0, |stats| stats.damaged_reads);
        let damaged = (damaged > 0).then(|| {
            let reads = count(damaged, "read");
            format!("{reads} of the flash failed since it was offered: it did not return what was written (the log names the sectors)")
        });
        reported.chain(damaged).collect()
    }

    /// What is lost by damage, and what is damaged.
    pub(crate) fn losses(&self) -> Option<(Losses, Vec<String>)> {
        if let Some(hybrid) = &self.hybrid {
            let lost = Losses { at_risk: hybrid.lost(), unknown_records: 0 };
            let perhaps = Some(hybrid.perhaps_lost()).filter(|lost| !lost.is_empty()).map(perhaps_lost);
            let reported = skipped(&lost).into_iter().chain(perhaps).collect();
            return Some((lost, reported));
        }
        let salvage = self.salvage.as_ref()?;
        let losses = salvage.losses();
        let damage = salvage.damage().map(ToString::to_string).into_iter().chain(unknown(&losses));
        Some((losses.clone(), damage.collect()))
    }

    /// Whether the flash still belongs to the disk when it has ended.
    pub(crate) fn keeps_flash(&self) -> bool {
        self.salvage.is_some()
    }

    /// Takes the space that a log store's disk has become larger by; how large it is now.
    pub(crate) fn grow(&self) -> anyhow::Result<ByteSize> {
        let name = &self.spec.name;
        if self.spec.disk.path().is_none() {
            bail!(
                "{name} is in memory, and does not grow: detach it and start it with another size (this loses its \
                data)"
            );
        }
        if self.spec.cache.is_none() && hybrid::has_tag(&self.disk.half()) {
            bail!(
                "{name} is half of a hybrid disk, with its label in the last {} of {}: it does not grow. First run \
                `umbrella disk detach --dissolve` (docs/disk.md, Enlarge a disk)",
                hybrid::LABEL,
                self.disk.name
            );
        }
        let (before, grown) = (self.size(), self.log.as_ref().map(Log::grow).transpose()?);
        match grown {
            Some(size) if size > before || self.spec.cache.is_none() => Ok(size),
            None if self.spec.cache.is_none() => {
                bail!("{name} is not a log store: detach it, enlarge its disk or file, and attach it again")
            }
            _ => bail!(
                "{name} is on a hybrid disk, which does not grow: first run `umbrella disk detach --dissolve` \
                (docs/disk.md, Enlarge a disk)"
            ),
        }
    }

    /// The log store on it.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// The hybrid disk, for work that takes long.
    pub(crate) fn hybrid(&self) -> Option<Arc<Hybrid>> {
        self.hybrid.clone()
    }

    /// What of it keeps checksums. A log store's cover all that is below it.
    pub(crate) fn scrubbed(&self) -> Option<Weak<dyn Scrub>> {
        let hybrid = || self.hybrid.clone().map(|hybrid| hybrid as Arc<dyn Scrub>);
        let scrubbed = self.log.as_ref().map(Log::scrubbed).or_else(hybrid)?;
        Some(Arc::downgrade(&scrubbed))
    }

    /// Ends it; what is on flash stays there. No client may use it any more.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        let log = self.log.take().map_or(Ok(()), Log::close);
        log.and(self.close_below())
    }

    fn close_below(self) -> anyhow::Result<()> {
        match self.hybrid {
            Some(hybrid) => into_unshared(hybrid)?.close().context("closing the hybrid disk"),
            None if self.spec.read_only => Ok(()),
            None => self.disk.device.flush().context("the last flush"),
        }
    }

    /// Ends it; all is on the disk then, which can be used without its flash. No client may use it any more.
    pub(crate) fn detach(mut self) -> anyhow::Result<()> {
        if let Some(log) = self.log.take() {
            log.close()?;
        }
        match self.hybrid {
            Some(hybrid) => detach_pair(into_unshared(hybrid)?, &self.spec, AtDetach::Empty),
            None => self.close_below(),
        }
    }

    /// Ends the pair: afterwards all data is on the disk, and the flash no longer belongs to it. No client may use it.
    pub(crate) fn dissolve(mut self) -> anyhow::Result<()> {
        if let Some(log) = self.log.take() {
            log.close()?;
        }
        match self.hybrid {
            Some(hybrid) => detach_pair(into_unshared(hybrid)?, &self.spec, AtDetach::Dissolve),
            None => self.close_below(),
        }
    }
}

/// Makes a store on a disk; what is on it is lost.
pub(crate) fn create_store(
    spec: &DiskSpec,
    log: &LogSpec,
    force: bool,
    progress: log_store::Progress<'_>,
) -> anyhow::Result<Superblock> {
    if spec.disk.path().is_none() {
        bail!(
            "the disk is in memory and would be lost; give it a path (a store in memory is made at each start, by \
            [log])"
        );
    }
    let below = ServedDisk::open_below(DiskSpec { read_only: false, ..spec.clone() }, OnDamage::Refuse)?;
    match log_store::create_with(below.device(), below.name(), &log.create_options(force), progress) {
        Ok(superblock) => {
            below.close()?;
            Ok(superblock)
        }
        Err(error) => {
            // Then it does not become a hybrid disk either.
            below.dissolve()?;
            let holds_something = spec.cache.is_some() && matches!(error, log_store::LogStoreError::Occupied { .. });
            let error = anyhow::Error::new(error);
            Err(if holds_something {
                anyhow!(
                    "{}; to keep the log store that is there, join disk and flash with a configuration without [log]",
                    reasons(&error)
                )
            } else {
                error
            })
        }
    }
}
