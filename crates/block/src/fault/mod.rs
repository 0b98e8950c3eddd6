//! A device that fails on demand: errors, short and torn writes, lost flushes, power cuts.
//!
//! A [`Faulty`] device passes every call on to another one, except where its [`Plan`] says otherwise. With a volatile
//! write cache it holds writes back until a flush, so that a power cut loses them as on a real disk. The device behind
//! it then holds what survives.

mod cache;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange, SplitMix64};

use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::{BlockError, Operation};
use cache::{Body, VolatileWrites};
use plan::{InjectedFault, Occurrence};

pub use plan::{Answer, CallFault, Moment, Plan, ReadFault, Rule, TornWrite, Unflushed, WriteCache, WriteFault};

/// What a device was asked, and what went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes, of data or zeroes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Calls that wait for [`Faulty::release`] now.
    pub hanging: u64,
    /// How often each rule of the plan struck.
    pub fired: Vec<u64>,
}

#[derive(Debug)]
struct FaultState {
    counts: Counts,
    /// For each rule, how many calls it was for.
    seen: Vec<u64>,
    /// Sectors that were written again after a latent error.
    rewritten: BTreeSet<u64>,
    released: bool,
    poisoned: Option<Arc<str>>,
    random: SplitMix64,
}

/// What was decided about a call.
struct Verdict<'a> {
    /// The rule's number and its fault.
    fault: Option<(usize, &'a InjectedFault)>,
    delay: Duration,
    hang: bool,
}

/// The cache, and whether there is power.
#[derive(Debug, Default)]
struct PowerState {
    cache: VolatileWrites,
    off: bool,
}

/// A device with a plan of faults.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    name: Arc<str>,
    plan: Plan,
    state: Mutex<FaultState>,
    released_event: Condvar,
    /// Never taken while the state is held.
    power: Mutex<PowerState>,
}

impl<D: BlockDevice> Faulty<D> {
    /// `inner`, with what the plan says going wrong.
    pub fn new(inner: D, plan: Plan) -> Faulty<D> {
        let state = FaultState {
            counts: Counts { fired: vec![0; plan.rules.len()], ..Counts::default() },
            seen: vec![0; plan.rules.len()],
            rewritten: BTreeSet::new(),
            released: false,
            poisoned: None,
            random: SplitMix64::stream(plan.seed, 0),
        };
        Faulty {
            inner,
            name: Arc::from("faulty disk"),
            plan,
            state: Mutex::new(state),
            released_event: Condvar::new(),
            power: Mutex::default(),
        }
    }

    /// The medium. With a volatile cache it lacks what was not flushed.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The medium, what was not flushed being lost.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    /// Releases all calls that hang. No later call hangs.
    pub fn release(&self) {
        self.state.lock().released = true;
        self.released_event.notify_all();
    }

    /// Cuts the power now. An error is one of the device behind.
    pub fn cut_power(&self, unflushed: Unflushed) -> Result<(), BlockError> {
        let mut power = self.power.lock();
        self.cut(&mut power, unflushed)
    }

    fn cut(&self, power: &mut PowerState, unflushed: Unflushed) -> Result<(), BlockError> {
        if std::mem::replace(&mut power.off, true) {
            return Ok(());
        }
        let mut random = self.next_random();
        let result = power.cache.lose(&self.inner, unflushed, self.block_sectors(), &mut random);
        self.release();
        result
    }

    /// A random generator for one call.
    fn next_random(&self) -> SplitMix64 {
        let stream = self.state.lock().random.below(u64::MAX);
        SplitMix64::stream(self.plan.seed, stream)
    }

    /// Sectors of a logical block.
    fn block_sectors(&self) -> u64 {
        (u64::from(self.inner.geometry().logical_block) / SECTOR_BYTES).max(1)
    }

    fn failed(&self, call: Operation, range: Option<SectorRange>, errno: Errno) -> BlockError {
        BlockError::io(&self.name, call, range, io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    /// The cache, if there is power.
    fn powered(&self, call: Operation, range: Option<SectorRange>) -> Result<MutexGuard<'_, PowerState>, BlockError> {
        let power = self.power.lock();
        if power.off { Err(self.failed(call, range, Errno::NODEV)) } else { Ok(power) }
    }

    /// Counts a call, finds the fault that the plan injects into it, and applies a delay.
    fn begin_call(
        &self,
        call: Operation,
        range: Option<SectorRange>,
    ) -> Result<Option<(usize, &InjectedFault)>, BlockError> {
        drop(self.powered(call, range)?);
        let mut state = self.state.lock();
        if call != Operation::Read
            && let Some(reason) = &state.poisoned
        {
            let (device, reason) = (Arc::clone(&self.name), Arc::clone(reason));
            return Err(BlockError::Poisoned { device, operation: Operation::Flush, reason });
        }
        let verdict = state.match_rules(&self.plan, call, range);
        if verdict.hang && !state.released {
            state.counts.hanging += 1;
            self.released_event.wait_while(&mut state, |state| !state.released);
            state.counts.hanging -= 1;
        }
        drop(state);
        if !verdict.delay.is_zero() {
            std::thread::sleep(verdict.delay);
        }
        drop(self.powered(call, range)?);
        Ok(verdict.fault)
    }

    /// Carries out a call that a fault of any call may strike. Faults of another kind do not come here.
    fn call(
        &self,
        (call, range): (Operation, Option<SectorRange>),
        fault: Option<(usize, &InjectedFault)>,
        carry_out: impl FnOnce() -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let Some((_, InjectedFault::Call(_, fault))) = fault else { return carry_out() };
        match *fault {
            CallFault::Error(errno) => Err(self.failed(call, range, errno)),
            CallFault::PowerCut { moment: Moment::After, unflushed } => {
                let result = carry_out();
                self.cut_power(unflushed)?;
                result
            }
            CallFault::PowerCut { moment: Moment::During, unflushed } => {
                self.cut_power(unflushed)?;
                Err(self.failed(call, range, Errno::NODEV))
            }
            // The call has waited already.
            CallFault::Hang | CallFault::Delay(_) => carry_out(),
        }
    }

    fn store(&self, range: SectorRange, body: Body<'_>, durability: Durability) -> Result<(), BlockError> {
        let fault = self.begin_call(Operation::Write, Some(range))?;
        match fault.map(|(_, fault)| fault) {
            Some(InjectedFault::Write(WriteFault::Misdirected { to })) => {
                let elsewhere = SectorRange { start: *to, sectors: range.sectors };
                self.geometry().check_range(elsewhere)?;
                self.apply(elsewhere, body, durability)
            }
            Some(InjectedFault::Write(WriteFault::Partial { landed, answer })) => {
                self.apply_parts(range, landed, body, durability)?;
                match answer {
                    Answer::Done => Ok(()),
                    Answer::Error(errno) => Err(self.failed(Operation::Write, Some(range), *errno)),
                }
            }
            Some(&InjectedFault::Call(_, CallFault::PowerCut { moment: Moment::During, unflushed })) => {
                self.cut_during(range, body, unflushed)?;
                Err(self.failed(Operation::Write, Some(range), Errno::NODEV))
            }
            _ => self.call((Operation::Write, Some(range)), fault, || self.apply(range, body, durability)),
        }
    }

    /// A write that was under way when the power was cut fares as those that were not flushed.
    fn cut_during(&self, range: SectorRange, body: Body<'_>, unflushed: Unflushed) -> Result<(), BlockError> {
        let mut power = self.powered(Operation::Write, Some(range))?;
        power.cache.store_write(range, body);
        self.cut(&mut power, unflushed)
    }

    fn apply_parts(
        &self,
        range: SectorRange,
        landed: &TornWrite,
        body: Body<'_>,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let block_sectors = self.block_sectors();
        let part = |from: u64, to: u64| {
            let at = |block: u64| Lba(range.start.0 + (block * block_sectors).min(range.sectors));
            SectorRange::between(at(from), at(to))
        };
        let parts: Vec<SectorRange> = match landed {
            TornWrite::Nothing => Vec::new(),
            TornWrite::First(sectors) => vec![part(0, sectors / block_sectors)],
            TornWrite::Some => {
                let mut random = self.next_random();
                (0..range.sectors.div_ceil(block_sectors))
                    .filter(|_| random.random_bool())
                    .map(|block| part(block, block + 1))
                    .collect()
            }
        };
        parts.into_iter().try_for_each(|part| self.apply(part, body.part(range, part), durability))
    }

    /// Writes sectors to the medium or into the cache.
    fn apply(&self, range: SectorRange, body: Body<'_>, durability: Durability) -> Result<(), BlockError> {
        let mut power = self.powered(Operation::Write, Some(range))?;
        if self.plan.cache == WriteCache::Volatile {
            match durability {
                Durability::Cached => power.cache.store_write(range, body),
                Durability::Through => {
                    body.write_to(&self.inner, range, durability)?;
                    power.cache.forget(range);
                }
            }
        } else {
            drop(power);
            body.write_to(&self.inner, range, durability)?;
        }
        self.state.lock().mark_rewritten(&self.plan, range);
        Ok(())
    }

    fn fetch(&self, range: SectorRange, buffer: &mut [u8]) -> Result<(), BlockError> {
        let power = self.powered(Operation::Read, Some(range))?;
        if self.plan.cache == WriteCache::Volatile {
            self.inner.read(range.start, buffer)?;
            power.cache.show(range, buffer);
            return Ok(());
        }
        drop(power);
        self.inner.read(range.start, buffer)
    }

    /// Turns over one bit in each sector of the overlap.
    fn flip(&self, rule: usize, range: SectorRange, buffer: &mut [u8]) {
        let within = self.plan.rules.get(rule).and_then(|rule| rule.within).unwrap_or(range);
        let struck = range.intersection(within);
        for sector in struck.start.0..struck.end().0 {
            let bit = SplitMix64::stream(self.plan.seed ^ ((rule as u64) << 32), sector).below(SECTOR_BYTES * 8);
            let byte = (sector - range.start.0) * SECTOR_BYTES + bit / 8;
            if let Some(byte) = buffer.get_mut(byte as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    fn write_back(&self) -> Result<(), BlockError> {
        let mut power = self.powered(Operation::Flush, None)?;
        if self.plan.cache == WriteCache::Volatile {
            power.cache.write_back(&self.inner)?;
            return self.inner.flush();
        }
        drop(power);
        self.inner.flush()
    }
}

impl FaultState {
    fn match_rules<'a>(&mut self, plan: &'a Plan, call: Operation, range: Option<SectorRange>) -> Verdict<'a> {
        let count = match call {
            Operation::Read => Some(&mut self.counts.reads),
            Operation::Write => Some(&mut self.counts.writes),
            Operation::Flush => Some(&mut self.counts.flushes),
            Operation::Discard => Some(&mut self.counts.discards),
            Operation::Open | Operation::Power => None,
        };
        if let Some(count) = count {
            *count += 1;
        }
        let mut verdict = Verdict { fault: None, delay: Duration::ZERO, hang: false };
        for (number, rule) in plan.rules.iter().enumerate().filter(|(_, rule)| rule.is_for(call, range)) {
            let (Some(seen), Some(fired)) = (self.seen.get_mut(number), self.counts.fired.get_mut(number)) else {
                continue;
            };
            *seen += 1;
            let due = match rule.when {
                Occurrence::Always => true,
                Occurrence::Nth(n) => *seen == n,
                Occurrence::First(calls) => *seen <= calls,
                Occurrence::From(n) => *seen >= n,
                Occurrence::OneIn(calls) => self.random.below(calls) == 0,
            };
            let rewritten =
                rule.fault == InjectedFault::Read(ReadFault::Latent) && is_rewritten(&self.rewritten, rule, range);
            if !due || rewritten || (verdict.fault.is_some() && !rule.continues()) {
                continue;
            }
            *fired += 1;
            match &rule.fault {
                InjectedFault::Call(_, CallFault::Hang) => verdict.hang = true,
                InjectedFault::Call(_, CallFault::Delay(delay)) => verdict.delay += *delay,
                fault => verdict.fault = Some((number, fault)),
            }
        }
        verdict
    }

    /// Sectors with a latent error are good again once they have been written.
    fn mark_rewritten(&mut self, plan: &Plan, range: SectorRange) {
        for rule in plan.rules.iter().filter(|rule| rule.fault == InjectedFault::Read(ReadFault::Latent)) {
            let struck = range.intersection(rule.within.unwrap_or(range));
            self.rewritten.extend(struck.start.0..struck.end().0);
        }
    }
}

/// Whether all sectors that a read wants of those that a rule is for have been written again.
fn is_rewritten(rewritten: &BTreeSet<u64>, rule: &Rule, range: Option<SectorRange>) -> bool {
    range.is_some_and(|range| {
        let struck = range.intersection(rule.within.unwrap_or(range));
        rewritten.range(struck.start.0..struck.end().0).count() as u64 == struck.sectors
    })
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    crate::forward!(inner: geometry, refresh);

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry().check(at, buffer.len())?;
        let fault = self.begin_call(Operation::Read, Some(range))?;
        match fault {
            Some((_, InjectedFault::Read(ReadFault::Latent))) => {
                Err(self.failed(Operation::Read, Some(range), Errno::IO))
            }
            Some((rule, InjectedFault::Read(ReadFault::BitFlip))) => {
                self.fetch(range, buffer)?;
                self.flip(rule, range, buffer);
                Ok(())
            }
            _ => self.call((Operation::Read, Some(range)), fault, || self.fetch(range, buffer)),
        }
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry().check(at, data.len())?;
        self.store(range, Body::Data(data), durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        let fault = self.begin_call(Operation::Flush, None)?;
        if let Some((_, InjectedFault::LostFlush)) = fault {
            return Ok(());
        }
        self.call((Operation::Flush, None), fault, || self.write_back()).inspect_err(|error| {
            self.state.lock().poisoned.get_or_insert_with(|| Arc::from(error.to_string()));
        })
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        let fault = self.begin_call(Operation::Discard, Some(range))?;
        self.call((Operation::Discard, Some(range)), fault, || self.inner.discard(range))
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        self.store(range, Body::Zeroes(zeroes), durability)
    }
}
