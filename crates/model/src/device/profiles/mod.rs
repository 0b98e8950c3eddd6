//! Devices by name. Each profile names the document that its figures come from; a figure without one says "assumed".

mod disks;

use thiserror::Error;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES};

use super::Device;
use super::disk::{Disk, DiskSpec};

/// A device that can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What users call it.
    pub name: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Where its figures come from.
    pub source: &'static str,
    /// How it is built.
    pub spec: Spec,
}

/// What a profile describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// A rotating disk.
    Disk(DiskSpec),
}

/// What may differ from the profile; by default nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Commands that the device takes at once.
    pub queue_depth: Option<u32>,
    /// Whether writes complete in a disk's buffer.
    pub write_cache: Option<bool>,
    /// Only the first bytes of the device; its mechanics stay the same.
    pub capacity: Option<ByteSize>,
}

/// A name that no profile has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no device is called {name:?} (known: {})", known.join(", "))]
pub struct UnknownProfile {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: Vec<&'static str>,
}

/// All profiles, in the order in which they are listed to users.
pub fn profiles() -> Vec<Profile> {
    disks::all()
}

/// The profile of that name.
pub fn profile(name: &str) -> Result<Profile, UnknownProfile> {
    let all = profiles();
    let known = all.iter().map(|profile| profile.name).collect();
    all.into_iter().find(|profile| profile.name == name).ok_or_else(|| UnknownProfile { name: name.to_owned(), known })
}

impl Profile {
    /// A device of this kind, idle and empty, at time zero.
    pub fn build(&self, options: &Options) -> Box<dyn Device> {
        let sectors = options.capacity.map(|capacity| Lba(capacity.0 / SECTOR_BYTES));
        match &self.spec {
            Spec::Disk(spec) => {
                let mut spec = spec.clone();
                spec.queue_depth = options.queue_depth.unwrap_or(spec.queue_depth);
                spec.write_cache = options.write_cache.unwrap_or(spec.write_cache);
                let disk = Disk::new(&spec);
                Box::new(match sectors {
                    Some(sectors) => disk.with_capacity(sectors),
                    None => disk,
                })
            }
        }
    }
}
