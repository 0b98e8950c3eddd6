//! What a disk is made of, and how it is offered.

use std::path::{Path, PathBuf};

use serde::Serialize;
use umbrella_block::serve::nbd::{Tls, TlsError};
use umbrella_policy::flash_cache::Options;
use umbrella_units::ByteSize;

use super::front::Front;
use super::listen::Listen;
use super::log::LogSpec;
use super::name::{BadDiskName, DiskName};
use super::power::PowerSpec;
use super::scrub::ScrubSpec;
use super::sleep::SleepSpec;

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DiskSpec {
    pub(crate) name: DiskName,
    pub(crate) read_only: bool,
    /// What makes it a block device of this machine, when it is attached.
    pub(crate) front: Front,
    pub(crate) disk: DeviceSpec,
    /// What makes it a hybrid disk.
    pub(crate) cache: Option<CacheSpec>,
    /// What makes it a log store. On a disk without flash a log store is recognised without it, too.
    pub(crate) log: Option<LogSpec>,
    /// What its disk takes from its supply, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) power: Option<PowerSpec>,
    /// When what it has checksums of is compared with them.
    pub(crate) scrub: ScrubSpec,
    pub(crate) nbd: NbdSpec,
}

impl DiskSpec {
    /// A device without further settings.
    pub(crate) fn of_device(disk: DeviceSpec) -> Result<DiskSpec, BadDiskName> {
        Ok(DiskSpec::new(disk.name()?, disk))
    }

    /// The same under another name.
    pub(crate) fn new(name: DiskName, disk: DeviceSpec) -> DiskSpec {
        DiskSpec {
            name,
            read_only: false,
            front: Front::default(),
            disk,
            cache: None,
            log: None,
            power: None,
            scrub: ScrubSpec::default(),
            nbd: NbdSpec::default(),
        }
    }

    /// The files that it is made of, where it is made of files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let flash = self.cache.as_ref().map(|cache| &cache.flash);
        std::iter::once(&self.disk).chain(flash).filter_map(DeviceSpec::path).map(PathBuf::as_path)
    }
}

/// Where sectors are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum DeviceSpec {
    /// A regular file or a device.
    File {
        path: PathBuf,
        /// What is made where there is no file.
        size: Option<ByteSize>,
        /// Past the page cache.
        direct: bool,
    },
    /// A modelled disk, in real time.
    Emulated {
        /// A name that the model knows.
        profile: String,
        speed: Speed,
        /// Where the data is; in memory if nowhere.
        path: Option<PathBuf>,
        /// The profile's if not given.
        size: Option<ByteSize>,
    },
    /// Zeroes at every start.
    Memory { size: ByteSize },
}

impl DeviceSpec {
    /// The file that it is kept in.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match self {
            DeviceSpec::File { path, .. } => Some(path),
            DeviceSpec::Emulated { path, .. } => path.as_ref(),
            DeviceSpec::Memory { .. } => None,
        }
    }

    /// How large it is said to be.
    pub(crate) fn size(&self) -> Option<ByteSize> {
        match self {
            DeviceSpec::File { size, .. } | DeviceSpec::Emulated { size, .. } => *size,
            DeviceSpec::Memory { size } => Some(*size),
        }
    }

    /// What distinguishes it from others: its file by its real path, else its whole description.
    pub(crate) fn identity(&self) -> String {
        match self {
            DeviceSpec::File { path, .. } | DeviceSpec::Emulated { path: Some(path), .. } => {
                path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string()
            }
            DeviceSpec::Emulated { profile, speed, path: None, size } => {
                let size = size.map_or(String::new(), |size| format!(",size={}", size.0));
                format!("emulated:profile={profile},speed={}{size}", speed.0)
            }
            DeviceSpec::Memory { size } => format!("memory:size={}", size.0),
        }
    }

    /// What a disk on it is called when no name is given: its file's name, else its kind.
    pub(crate) fn name(&self) -> Result<DiskName, BadDiskName> {
        let file = self.path().and_then(|path| path.file_name());
        DiskName::of_file(&file.map_or(self.kind().into(), |name| name.to_string_lossy()))
    }

    /// As it is written in a configuration.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            DeviceSpec::File { .. } => "file",
            DeviceSpec::Emulated { .. } => "emulated",
            DeviceSpec::Memory { .. } => "memory",
        }
    }
}

/// Speed in multiples of the real device's, from [`Speed::LEAST`] to [`Speed::MOST`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Speed(pub(crate) f64);

impl Speed {
    pub(crate) const LEAST: f64 = 0.01;
    pub(crate) const MOST: f64 = 1000.0;

    pub(super) fn new(times: f64) -> Option<Speed> {
        (Speed::LEAST..=Speed::MOST).contains(&times).then_some(Speed(times))
    }
}

/// The flash before a disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CacheSpec {
    pub(crate) flash: DeviceSpec,
    #[serde(flatten)]
    pub(crate) settings: CacheSettings,
}

/// What is done with the flash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CacheSettings {
    #[serde(flatten)]
    pub(crate) options: Options,
    pub(crate) spin_down: SleepSpec,
}

/// How it is offered over NBD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NbdSpec {
    /// Nothing said: the disk's own socket.
    pub(crate) listen: Option<Vec<Listen>>,
    pub(crate) connections: u16,
    /// How it encrypts; nothing said: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls: Option<TlsSpec>,
}

/// How connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TlsSpec {
    /// Where certificates and key are.
    pub(crate) folder: PathBuf,
    /// Only clients with a certificate of the authority are served.
    pub(crate) verify_peer: bool,
    /// Clients that do not encrypt are refused.
    pub(crate) required: bool,
}

impl TlsSpec {
    /// What is found there, read.
    pub(crate) fn load(&self) -> Result<Tls, TlsError> {
        let tls = Tls::load(&self.folder, self.verify_peer)?;
        Ok(if self.required { tls } else { tls.optional() })
    }
}

impl Default for NbdSpec {
    fn default() -> NbdSpec {
        NbdSpec { listen: None, connections: 16, tls: None }
    }
}

impl NbdSpec {
    /// The addresses where other machines can connect without a certificate.
    pub(crate) fn open_to_others(&self) -> impl Iterator<Item = &Listen> {
        let proven = self.tls.as_ref().is_some_and(|tls| tls.verify_peer && tls.required);
        let far =
            move |listen: &&Listen| matches!(listen, Listen::Tcp(address) if !proven && !address.ip().is_loopback());
        self.listen.iter().flatten().filter(far)
    }
}
