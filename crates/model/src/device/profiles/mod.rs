//! Devices by name. Each profile names the document that its figures come from; a figure without one says "assumed".

mod disks;
mod flash;
mod power;

use thiserror::Error;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, did_you_mean};

use super::Device;
use super::disk::{Disk, DiskSpec};
use super::raid5::Raid5;
use super::ssd::{Ssd, SsdSpec};
use crate::power::{PowerSpec, Powered};

/// A device that can be built.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// What users call it.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Where its figures come from.
    pub source: &'static str,
    /// How it is built.
    pub spec: Spec,
    /// What it takes from its supply.
    pub power: PowerSpec,
    /// Where the watts of that come from: a data sheet, or assumed.
    pub watts: &'static str,
}

/// What a profile describes.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    /// A rotating disk.
    Disk(DiskSpec),
    /// A flash drive.
    Ssd(SsdSpec),
    /// Disks with rotating parity.
    Raid5 {
        /// What each member is.
        member: DiskSpec,
        /// How many there are.
        members: u32,
        /// What lies on one member before the next follows.
        chunk: ByteSize,
    },
}

/// What may differ from the profile; by default nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Options {
    /// Commands that the device takes at once.
    pub queue_depth: Option<u32>,
    /// Whether writes complete in a disk's buffer.
    pub write_cache: Option<bool>,
    /// Only the first bytes of the device; its mechanics stay the same.
    pub capacity: Option<ByteSize>,
    /// The share of a disk's buffer that there is, beside a workload that is a share of its size. No less than
    /// 256 KiB is left, or than the disk has.
    pub buffer_share: Option<f64>,
}

/// With less a disk could not do what it does: read ahead of several streams, and merge what is written.
const LEAST_BUFFER: ByteSize = ByteSize(256 << 10);

/// A name that no profile has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no device is called {name:?}{} (known: {})", did_you_mean(name, known.iter().copied()), known.join(", "))]
pub struct UnknownProfile {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: Vec<&'static str>,
}

/// All profiles, in the order in which they are listed to users.
pub fn profiles() -> Vec<Profile> {
    let mut all = disks::all();
    all.extend(flash::all());
    all.push(raid5());
    all
}

/// The profile of that name.
pub fn profile(name: &str) -> Result<Profile, UnknownProfile> {
    let all = profiles();
    let known = all.iter().map(|profile| profile.name).collect();
    all.into_iter().find(|profile| profile.name == name).ok_or_else(|| UnknownProfile { name: name.to_owned(), known })
}

fn raid5() -> Profile {
    let members = 5;
    Profile {
        name: "raid5",
        summary: "RAID 5 of five Cheetah 10K.7 (the dissertation's array)",
        source: "UmbrellaFS dissertation (five Cheetah 10K.7 as a 4+P software RAID 5); chunk 64 KiB, left-symmetric: assumed, mdadm's defaults of \
                 the time",
        spec: Spec::Raid5 { member: disks::cheetah_spec(), members, chunk: ByteSize(64 << 10) },
        power: power::CHEETAH_10K7.times(members),
        watts: "assumed",
    }
}

impl Options {
    fn disk(&self, spec: &DiskSpec) -> Disk {
        let queue_depth = self.queue_depth.unwrap_or(spec.queue_depth);
        let write_cache = self.write_cache.unwrap_or(spec.write_cache);
        let shrunk = |share: f64| ByteSize((spec.cache.0 as f64 * share) as u64).max(LEAST_BUFFER).min(spec.cache);
        let cache = self.buffer_share.map_or(spec.cache, shrunk);
        Disk::new(&DiskSpec { cache, write_cache, queue_depth, ..spec.clone() })
    }
}

impl Spec {
    /// A device of this kind, idle, at time zero.
    pub fn build(&self, options: &Options) -> Box<dyn Device + Send> {
        let sectors = options.capacity.map_or(Lba(u64::MAX), |capacity| Lba(capacity.0 / SECTOR_BYTES));
        match self {
            Spec::Disk(spec) => Box::new(options.disk(spec).with_capacity(sectors)),
            Spec::Ssd(spec) => {
                let queue_depth = options.queue_depth.unwrap_or(spec.queue_depth);
                Box::new(Ssd::new(&SsdSpec { queue_depth, ..spec.clone() }).with_capacity(sectors))
            }
            Spec::Raid5 { member, members, chunk } => {
                let disk = options.disk(member);
                let members = (0..*members).map(|_| Box::new(disk.clone()) as Box<dyn Device + Send>).collect();
                Box::new(Raid5::new(members, *chunk).with_capacity(sectors))
            }
        }
    }
}

impl Profile {
    /// A device of this kind, idle, at time zero.
    pub fn build(&self, options: &Options) -> Box<dyn Device + Send> {
        self.spec.build(options)
    }

    /// The same with its motor and a meter.
    pub fn powered(&self, options: &Options) -> Powered {
        Powered::new(self.build(options), self.power)
    }

    /// Whether it has platters.
    pub fn rotates(&self) -> bool {
        self.power.spindle.is_some()
    }
}
