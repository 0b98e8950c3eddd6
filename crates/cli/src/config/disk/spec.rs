//! What a disk is made of, and how it is offered.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;
use umbrella_block::serve::nbd::{Address, Tls, TlsError};
use umbrella_policy::flash_cache::Options;
use umbrella_policy::spin_down::{Costs, SpinDown};
use umbrella_policy::{PolicyError, Spec};
use umbrella_units::{ByteSize, Nanos};

use super::front::Front;
use super::log::LogSpec;
use super::power::PowerSpec;
use super::scrub::ScrubSpec;
use crate::text::quoted;

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
    /// What makes it a log store. One on a disk without flash is recognised also when nothing is said of it.
    pub(crate) log: Option<LogSpec>,
    /// What its disk takes from its supply, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) power: Option<PowerSpec>,
    /// When what it has checksums of is compared with them.
    pub(crate) scrub: ScrubSpec,
    pub(crate) nbd: NbdSpec,
}

impl DiskSpec {
    /// A device that nothing more is said of.
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

/// What commands call a disk. Fit for a file name, and for an NBD export.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct DiskName(String);

/// A name that no disk may have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{} cannot be a disk's name: 1 to {} letters, digits, \".\", \"_\" and \"-\", beginning with a letter or digit",
    quoted(name),
    DiskName::LONGEST
)]
pub(crate) struct BadDiskName {
    name: String,
}

impl DiskName {
    const LONGEST: usize = 64;

    /// The name of a file without its endings, other characters replaced: `/etc/umbrella/media.disk.toml` is `media`.
    pub(super) fn of_file(name: &str) -> Result<DiskName, BadDiskName> {
        let name = name.strip_suffix(".toml").unwrap_or(name);
        let name = name.strip_suffix(".disk").unwrap_or(name);
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        let plain: String =
            name.chars().map(plain).skip_while(|c| !c.is_ascii_alphanumeric()).take(Self::LONGEST).collect();
        plain.parse().map_err(|_| BadDiskName { name: name.to_owned() })
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DiskName {
    type Err = BadDiskName;

    fn from_str(name: &str) -> Result<DiskName, BadDiskName> {
        let good = name.len() <= DiskName::LONGEST
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        if good { Ok(DiskName(name.to_owned())) } else { Err(BadDiskName { name: name.to_owned() }) }
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

    /// What tells it from others: its file by its real path, else all that is said of it.
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

    /// What a disk on it is called when nobody says: its file's name, else its kind.
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

/// So many times as fast as the real one; from [`Speed::LEAST`] to [`Speed::MOST`].
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

/// When a disk sleeps: a spin-down policy with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SleepSpec {
    text: String,
}

impl SleepSpec {
    /// Whether the disk is to go on turning.
    pub(crate) fn is_never(&self) -> bool {
        self.text == "never"
    }
}

/// A spin-down policy that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BadSleep {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("the policy {name:?} must be told the future, which only the lab can")]
    Offline { name: &'static str },
}

impl FromStr for SleepSpec {
    type Err = BadSleep;

    fn from_str(text: &str) -> Result<SleepSpec, BadSleep> {
        let spec: Spec = text.parse()?;
        // Which parameters are good does not depend on the disk.
        let costs = Costs { break_even: Nanos::from_secs(10) };
        let policy = SpinDown::new(&spec.name, &spec.params, costs)?;
        if policy.info().offline {
            return Err(BadSleep::Offline { name: policy.name() });
        }
        Ok(SleepSpec { text: text.trim().to_owned() })
    }
}

impl fmt::Display for SleepSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for SleepSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CacheSettings {
    #[serde(flatten)]
    pub(crate) options: Options,
    pub(crate) spin_down: SleepSpec,
}

impl Default for CacheSettings {
    fn default() -> CacheSettings {
        CacheSettings { options: Options::default(), spin_down: SleepSpec { text: "adaptive".to_owned() } }
    }
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
    /// Where other machines can connect without having to prove who they are.
    pub(crate) fn open_to_others(&self) -> impl Iterator<Item = &Listen> {
        let proven = self.tls.as_ref().is_some_and(|tls| tls.verify_peer && tls.required);
        let far =
            move |listen: &&Listen| matches!(listen, Listen::Tcp(address) if !proven && !address.ip().is_loopback());
        self.listen.iter().flatten().filter(far)
    }
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// An address that cannot be listened on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{} is no address (write for example \"unix:/run/media.nbd\", \"127.0.0.1:10809\" or \"[::1]:10809\")",
    quoted(text)
)]
pub(crate) struct BadListen {
    text: String,
}

impl FromStr for Listen {
    type Err = BadListen;

    fn from_str(text: &str) -> Result<Listen, BadListen> {
        let bad = || BadListen { text: text.to_owned() };
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') && !path.contains('\0') => Ok(Listen::Unix(PathBuf::from(path))),
            Some(_) => Err(bad()),
            None => text.parse().map(Listen::Tcp).map_err(|_| bad()),
        }
    }
}

impl From<&Listen> for Address {
    fn from(listen: &Listen) -> Address {
        match listen {
            Listen::Unix(path) => Address::Unix(path.clone()),
            Listen::Tcp(address) => Address::Tcp(*address),
        }
    }
}

impl From<&Address> for Listen {
    fn from(address: &Address) -> Listen {
        match address {
            Address::Unix(path) => Listen::Unix(path.clone()),
            Address::Tcp(address) => Listen::Tcp(*address),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
