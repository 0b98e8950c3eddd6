//! Where the control socket of a disk is, and which disk a command means.
//!
//! The control socket of the disk `media` is `/run/umbrella/disks/media.sock`, beside it is `media.nbd` for NBD
//! clients.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use thiserror::Error;

use super::log::{named_by_device, refuse_other};
use super::looped::refuse_unresponsive;
use super::protocol::{Answer, DiskClient, DiskStatus, Request};
use crate::client::{self, ClientError};
use crate::config::ConfigErrors;
use crate::config::disk::{self, BadDiskName, DiskName, DiskSpec};
use crate::mounts;
use crate::pool;
use crate::text::{quoted, visible, visible_path};

/// How long a daemon may take to report the state of its disk.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a daemon may take to end after its answer.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A disk that cannot be found.
#[derive(Debug, Error)]
pub(crate) enum PlaceError {
    #[error("no disk is served (offer one with `umbrella disk serve CONFIG`)")]
    NoneServed,
    #[error("{} disks are served; name one: {}", names.len(), names.join(", "))]
    Several { names: Vec<String> },
    #[error("{} is not a served disk, its device or a configuration file{served}", quoted(given))]
    NotADisk { given: String, served: String },
    #[error(
        "{name}: its daemon is gone and did not clean up; attach or serve it again, or clean up with `umbrella disk detach {name}`"
    )]
    Dead { name: DiskName },
    #[error(transparent)]
    Other(#[from] anyhow::Error),
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Name(#[from] BadDiskName),
}

/// A disk that is target.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: DiskName,
    /// What it is made of, if it was named by its configuration.
    pub(crate) spec: Option<DiskSpec>,
}

impl Target {
    /// The way to its daemon, which must not serve another disk of the same name.
    pub(crate) fn client(&self) -> anyhow::Result<DiskClient> {
        if let Some(spec) = &self.spec {
            return Ok(client_of(spec)?.0);
        }
        Ok(DiskClient::new(&control(&self.name)))
    }
}

/// The way to the daemon of this very disk, and its state.
pub(crate) fn client_of(spec: &DiskSpec) -> anyhow::Result<(DiskClient, DiskStatus)> {
    let client = DiskClient::new(&control(&spec.name));
    let Answer::Status(status) = client.clone().with_timeout(TIMEOUT).call(&Request::Status)? else {
        return Err(ClientError::Unexpected.into());
    };
    let flash = spec.cache.as_ref().map(|cache| cache.flash.identity());
    if (&status.disk, &status.flash) != (&spec.disk.identity(), &flash) {
        let flash = status.flash.as_ref().map_or(String::new(), |flash| format!(", flash {}", visible(flash)));
        let (name, disk) = (&spec.name, visible(&status.disk));
        bail!("{name} is already served with another configuration (disk {disk}{flash}); give this one another name");
    }
    Ok((client, *status))
}

/// What of a served disk's cache is not as its configuration says now: the daemon read an older one.
pub(crate) fn outdated(spec: &DiskSpec, status: &DiskStatus) -> Vec<String> {
    let (Some(now), Some(wanted)) = (&status.cache, &spec.cache) else { return Vec::new() };
    let options = &wanted.settings.options;
    [
        ("when", &now.when, options.when.to_string()),
        ("algorithm", &now.algorithm, options.algorithm.to_string()),
        ("spin_down", &now.spin_down, wanted.settings.spin_down.to_string()),
    ]
    .into_iter()
    .filter(|(_, now, wanted)| *now != wanted)
    .map(|(key, now, wanted)| format!("{key} = \"{now}\", not \"{wanted}\""))
    .collect()
}

/// Where a disk's daemon listens.
pub(crate) fn control(name: &DiskName) -> PathBuf {
    dir().join(format!("{name}.sock"))
}

/// Where a disk's NBD clients find it, unless another place is given.
pub(crate) fn nbd(name: &DiskName) -> PathBuf {
    dir().join(format!("{name}.nbd"))
}

/// Where a disk is mounted as a file, for a loop device.
pub(crate) fn folder(name: &DiskName) -> PathBuf {
    dir().join(name.to_string())
}

pub(crate) fn dir() -> PathBuf {
    pool::run_dir().join("disks")
}

/// Whether a daemon listens for a disk of that name.
pub(crate) fn is_served(name: &DiskName) -> bool {
    client::is_listening(&control(name))
}

/// Waits until no daemon listens for a disk of that name. A daemon answers just before it ends, and a process that
/// starts one after that must not take it for one that continues. Gives up when another process has started one
/// meanwhile.
pub(crate) fn wait_until_gone(name: &DiskName) {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while is_served(name) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All disks that are served, by name.
pub(crate) fn served() -> Vec<DiskName> {
    known().unwrap_or_default().into_iter().filter(is_served).collect()
}

/// All disks, by name, that are served, or were until their daemon was killed.
pub(crate) fn known() -> io::Result<Vec<DiskName>> {
    let entries = match std::fs::read_dir(dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name = |path: PathBuf| path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok();
    let mut names: Vec<DiskName> = entries.flatten().filter_map(|entry| name(entry.path())).collect();
    names.sort();
    Ok(names)
}

/// The disk of that name, device or configuration, or the only one that is served.
pub(crate) fn find(given: Option<&str>) -> Result<Target, PlaceError> {
    let Some(given) = given else { return only_served() };
    let name: Result<DiskName, BadDiskName> = given.parse();
    if let Ok(name) = name.as_ref()
        && is_served(name)
    {
        return Ok(Target { name: name.clone(), spec: None });
    }
    if given.starts_with("/dev/")
        && let Some(name) = served().into_iter().find(|name| was_attached(name, given) || is_attached(name, given))
    {
        return Ok(Target { name, spec: None });
    }
    refuse_unresponsive(Path::new(given))?;
    if let Some(dead) =
        known().unwrap_or_default().into_iter().find(|known| name.as_ref() == Ok(known) || was_attached(known, given))
    {
        return Err(PlaceError::Dead { name: dead });
    }
    if let Some(spec) = named_by_device(Path::new(given))? {
        return Ok(Target { name: spec.name.clone(), spec: Some(spec) });
    }
    if Path::new(given).is_file() {
        refuse_other(Path::new(given))?;
        let spec = disk::read(Path::new(given))?;
        spec.paths().try_for_each(refuse_unresponsive)?;
        return Ok(Target { name: spec.name.clone(), spec: Some(spec) });
    }
    let served: Vec<String> = served().iter().map(ToString::to_string).collect();
    let served =
        if served.is_empty() { "; no disk is served".to_owned() } else { format!("; served: {}", served.join(", ")) };
    Err(PlaceError::NotADisk { given: given.to_owned(), served })
}

/// Whether a disk is attached to that device. Of a loop device the kernel knows it.
fn is_attached(name: &DiskName, device: &str) -> bool {
    if device.starts_with("/dev/loop") {
        return false;
    }
    let client = DiskClient::new(&control(name)).with_timeout(Duration::from_secs(3));
    matches!(client.call(&Request::Status), Ok(Answer::Status(status)) if status.device.as_deref() == Some(device))
}

/// Whether a loop device lies over the file of a disk. Its daemon is not asked: it may be gone, or hang.
fn was_attached(name: &DiskName, device: &str) -> bool {
    let Some(number) = device.strip_prefix("/dev/loop") else { return false };
    let below = std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file"));
    below.is_ok_and(|below| Path::new(below.trim_end()).parent() == Some(&folder(name)))
}

/// Removes what a killed daemon left behind; true if there was anything.
pub(crate) fn clear_leftovers(name: &DiskName) -> anyhow::Result<bool> {
    let (socket, folder) = (control(name), folder(name));
    if is_served(name) || !socket.exists() {
        return Ok(false);
    }
    if mounts::is_dead(&folder) {
        mounts::detach(&folder, true)
            .with_context(|| format!("detaching the dead mount at {}", visible_path(&folder)))?;
    }
    // Only a place to mount at; there is none for a disk that was not attached.
    let _ = std::fs::remove_dir(&folder);
    for left in [nbd(name), socket] {
        match std::fs::remove_file(&left) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(visible_path(&left)),
            _ => {}
        }
    }
    Ok(true)
}

fn only_served() -> Result<Target, PlaceError> {
    let mut names = served();
    match names.pop() {
        None => Err(PlaceError::NoneServed),
        Some(name) if names.is_empty() => Ok(Target { name, spec: None }),
        Some(last) => {
            names.push(last);
            Err(PlaceError::Several { names: names.iter().map(ToString::to_string).collect() })
        }
    }
}
