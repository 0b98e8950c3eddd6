//! The times of a command beside the mechanism: until the work for it begins, on the bus, and until it is reported.
//!
//! A data sheet gives one overhead and the rate of the interface, and data from the media is sent to the host at once.
//! For a measured drive each case is known, and reads go over the bus behind the media. The bus begins when enough is
//! in the buffer, and ends at least one sector after the media.

use umbrella_units::{Nanos, SECTOR_BYTES};

use super::measured::{CommandGaps, CommandTimes, ExtraDisconnect};
use super::spec::DiskSpec;

/// The times of commands, ready to be looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    times: CommandTimes,
    /// A sector's time on the interface to the host and from it, in nanoseconds times 2^16.
    sector: [u64; 2],
    /// Whether reads go over the bus behind the media, and writes before it.
    pub(super) bus: bool,
}

/// What the command before a write was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    /// A read, or nothing.
    Read,
    /// The write that it continues.
    ItsWrite,
    /// A write somewhere else.
    OtherWrite,
}

/// What a write takes that completes on the media.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteTimes {
    /// Until the drive does something for it.
    pub(super) overhead: Nanos,
    /// What the heads wait longer than that.
    pub(super) seek_delay: Nanos,
    /// Behind the overhead, before data flows.
    prepare: Nanos,
    /// Behind the media.
    pub(super) done: Nanos,
}

impl Timing {
    pub(super) fn new(spec: &DiskSpec) -> Timing {
        if let Some(times) = spec.measured.commands {
            let sector = [times.read_sector, times.write_sector].map(|time| time.0.min(1 << 40) << 16);
            return Timing { times, sector, bus: true };
        }
        let all = CommandGaps { read: spec.overhead, write: spec.overhead };
        let times =
            CommandTimes { read_hit: all, read_miss: all, write_hit: all, write_miss: all, ..CommandTimes::default() };
        let sector = ((SECTOR_BYTES * 1_000_000_000) << 16) / spec.interface.0.max(1 << 16);
        Timing { times, sector: [sector; 2], bus: false }
    }

    /// Until something is done for a command that is served by the buffer.
    pub(super) fn hit(&self, write: bool, after_write: bool) -> Nanos {
        (if write { self.times.write_hit } else { self.times.read_hit }).of(after_write)
    }

    /// Until something is done for a command that is served by the media.
    pub(super) fn miss(&self, write: bool, after_write: bool) -> Nanos {
        (if write { self.times.write_miss } else { self.times.read_miss }).of(after_write)
    }

    pub(super) fn on_bus(&self, write: bool, sectors: u64) -> Nanos {
        Nanos(sectors.saturating_mul(self.sector[usize::from(write)]) >> 16)
    }

    /// Before data flows to or from the buffer.
    pub(super) fn prepare(&self, write: bool) -> Nanos {
        if write { self.times.write_prepare } else { self.times.read_prepare }
    }

    /// Behind the last data.
    pub(super) fn done(&self, write: bool) -> Nanos {
        if write { self.times.write_done } else { self.times.read_done }
    }

    /// What a write takes that completes on the media.
    pub(super) fn write(&self, follows: Follows) -> WriteTimes {
        let times = &self.times;
        match times.extra_disconnect {
            Some(ExtraDisconnect { overhead, seek_delay, prepare, done }) if follows == Follows::OtherWrite => {
                WriteTimes { overhead, seek_delay, prepare, done }
            }
            _ => WriteTimes {
                overhead: self.miss(true, follows != Follows::Read),
                seek_delay: times.write_seek_delay,
                prepare: times.write_prepare,
                done: times.write_done,
            },
        }
    }

    /// When the media may take the first of a write's sectors, `sector` long, so that the bus keeps ahead of it.
    ///
    /// Counted from `ready`, the end of its overhead.
    pub(super) fn data_present(&self, ready: Nanos, sectors: u64, sector: Nanos, follows: Follows) -> Nanos {
        if !self.bus {
            return Nanos(0);
        }
        let write = self.write(follows);
        let all = self.on_bus(true, sectors);
        let ahead = Nanos(all.0.saturating_sub(sector.0.saturating_mul(sectors.saturating_sub(1))));
        let data = ready + write.prepare + ahead.max(self.on_bus(true, 1));
        let least = ready + write.seek_delay + self.times.write_positioning;
        if follows == Follows::ItsWrite { data } else { data.max(least) }
    }

    /// How many of a read's `sectors` are in the buffer when they begin to go over the bus.
    pub(super) fn enough(&self, sectors: u64) -> u64 {
        (sectors * u64::from(self.times.read_share.min(1000)) / 1000).max(1)
    }

    /// When data that the media has given by `enough` begins to flow.
    pub(super) fn resume(&self, enough: Nanos) -> Nanos {
        enough + self.times.read_resume
    }
}

impl CommandGaps {
    fn of(self, write: bool) -> Nanos {
        if write { self.write } else { self.read }
    }
}
