//! Opens what a disk is made of.

use std::cmp::Ordering;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use umbrella_block::BlockDevice;
use umbrella_block::emulated::{EmulatedDisk, TimeScale};
use umbrella_block::file::{Access, Cache, FailedReads, FileDevice, OpenOptions as FileOptions};
use umbrella_block::hybrid::{self, HybridError, PairHalf};
use umbrella_block::memory::Memory;
use umbrella_block::spindle::{self, NoSpindle, Spindle};
use umbrella_model::device::{Options, profile};
use umbrella_policy::spin_down::Costs;
use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES, format_duration};

use super::looped::refuse_looped;
use super::remembered::{self, Remembered};
use crate::config::disk::{DeviceSpec, DiskSpec, PowerSpec};
use crate::output::reasons;
use crate::text::{visible, visible_path};

/// The disk whose break-even time stands in for that of a disk that is not known.
const TYPICAL: &str = "modern";

/// A device, and what it is besides.
pub(crate) struct OpenDevice {
    pub(crate) name: String,
    pub(crate) device: Arc<dyn BlockDevice>,
    /// If it is a file, which can say more than other devices.
    pub(crate) file: Option<Arc<FileDevice>>,
    /// The file that holds the data, also that of an emulated disk.
    pub(crate) data: Option<Arc<FileDevice>>,
    /// If it is emulated, which can say what it did.
    pub(crate) emulated: Option<Arc<EmulatedDisk>>,
}

impl OpenDevice {
    /// Opens a device as a program would use it.
    pub(crate) fn open(spec: &DeviceSpec, access: Access) -> anyhow::Result<OpenDevice> {
        if let (Some(path), Some(_)) = (spec.path(), spec.size())
            && is_missing(path).unwrap_or(false)
            && may_be_made(path)
        {
            bail!(
                "{} does not exist yet: `umbrella disk create CONFIG` makes it (if it existed before, find it first: \
                it may hold the newest data)",
                visible_path(path)
            );
        }
        refuse_looped(spec, access)?;
        match spec {
            DeviceSpec::File { path, direct, .. } => {
                let cache = if *direct { Cache::Direct } else { Cache::Page };
                OpenDevice::of_file(path, FileOptions { access, cache })
            }
            DeviceSpec::Memory { size } => OpenDevice::of_memory(*size),
            DeviceSpec::Emulated { profile: name, speed, path, size } => {
                let profile = profile(name)?;
                let backing = match path {
                    Some(path) => OpenDevice::of_file(path, FileOptions { access, cache: Cache::Page })?,
                    None => OpenDevice::of_memory(size.unwrap_or_default())?,
                };
                let options = Options { capacity: *size, ..Options::default() };
                // The model's clock wants the length of a second, not its speed.
                let scale = TimeScale::new(1.0 / speed.0)?;
                let emulated = Arc::new(EmulatedDisk::new(&profile, &options, scale, backing.device)?);
                Ok(OpenDevice {
                    name: backing.name,
                    device: emulated.clone(),
                    file: None,
                    data: backing.file,
                    emulated: Some(emulated),
                })
            }
        }
    }

    /// Opens only what holds the data, without the time that it would take; nothing if that does not outlive a program.
    pub(crate) fn open_data(spec: &DeviceSpec, access: Access) -> anyhow::Result<Option<OpenDevice>> {
        let data = spec.path().map(|path| OpenDevice::of_file(path, FileOptions { access, cache: Cache::Page }));
        data.transpose()
    }

    fn of_file(path: &Path, options: FileOptions) -> anyhow::Result<OpenDevice> {
        let file = Arc::new(FileDevice::open(path, options)?);
        let data = Some(Arc::clone(&file));
        Ok(OpenDevice { name: visible_path(path), device: file.clone(), file: Some(file), data, emulated: None })
    }

    fn of_memory(size: ByteSize) -> anyhow::Result<OpenDevice> {
        // A size that cannot be had would otherwise end the program.
        Vec::<u8>::new()
            .try_reserve_exact(usize::try_from(size.0)?)
            .with_context(|| format!("not enough memory for {size}"))?;
        let device = Arc::new(Memory::new(size));
        Ok(OpenDevice { name: "memory".to_owned(), device, file: None, data: None, emulated: None })
    }

    /// Reads that failed since it was opened.
    pub(crate) fn failed_reads(&self) -> Option<FailedReads> {
        self.data.as_ref()?.failed_reads()
    }

    /// As one half of a hybrid disk.
    pub(crate) fn half(&self) -> PairHalf {
        PairHalf { name: self.name.clone(), device: Arc::clone(&self.device) }
    }

    /// Its motor, or why it cannot be put to sleep.
    pub(crate) fn motor(&self, spec: &DeviceSpec) -> Result<Arc<dyn Spindle>, String> {
        match (&self.emulated, motor(spec)) {
            (Some(emulated), _) => Ok(emulated.clone()),
            (None, Some(opened)) => opened.map_err(|error| error.to_string()),
            (None, None) => Err(format!("{} has no motor, so it cannot sleep", self.name)),
        }
    }
}

/// What stands in for a motor where there is none.
pub(crate) fn no_motor() -> Arc<dyn Spindle> {
    Arc::new(NoSpindle::default())
}

/// The motor of a real disk; nothing for a regular file and for memory.
pub(crate) fn motor(spec: &DeviceSpec) -> Option<Result<Arc<dyn Spindle>, spindle::SpindleError>> {
    let DeviceSpec::File { path, .. } = spec else { return None };
    let device = std::fs::metadata(path).is_ok_and(|data| !data.is_file());
    device.then(|| spindle::open(path).map(Arc::from))
}

/// What sleeping costs a disk, and where that comes from, in words. `spin_up_time` is what was measured.
///
/// What the configuration says counts; else the profile of an emulated disk, and for others that of a typical one.
pub(crate) fn costs(spec: &DiskSpec, spin_up_time: Option<Duration>) -> anyhow::Result<(Costs, String)> {
    let typical = profile(TYPICAL)?;
    match &spec.power {
        Some(PowerSpec::BreakEven { break_even }) => {
            return Ok((Costs { break_even: nanos(*break_even) }, "of [power]".to_owned()));
        }
        Some(PowerSpec::Watts(watts)) => {
            let assumed = typical.power.spindle.map_or(Nanos(0), |spindle| spindle.spin_up.time);
            let (time, from) = match (watts.spin_up_time, spin_up_time) {
                (Some(time), _) => (nanos(time), "of [power]"),
                (None, Some(time)) => (nanos(time), "measured"),
                (None, None) => (assumed, "assumed"),
            };
            let shown = format_duration(Duration::from_nanos(time.0));
            let source = format!("by the watts of [power], {}; it spins up in {shown}, {from}", watts.source);
            return Ok((Costs { break_even: watts.break_even(time) }, source));
        }
        None => {}
    }
    let (profile, speed) = match &spec.disk {
        DeviceSpec::Emulated { profile: name, speed, .. } => (profile(name)?, speed.0),
        DeviceSpec::File { .. } | DeviceSpec::Memory { .. } => (typical.clone(), 1.0),
    };
    let break_even = profile.power.break_even();
    let profile = if break_even.is_some() { profile } else { typical };
    let virtual_time = break_even.or(profile.power.break_even()).unwrap_or(Nanos::NEVER);
    let source = if matches!(spec.disk, DeviceSpec::Emulated { .. }) {
        format!("by the watts of the profile {:?}: {}", profile.name, profile.watts)
    } else {
        format!("assumed, from the profile {:?}; give the disk's own values in [power]", profile.name)
    };
    Ok((Costs { break_even: Nanos((virtual_time.0 as f64 / speed) as u64) }, source))
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Where the watts come from that the energy of an emulated device is reckoned with.
pub(crate) fn watts(spec: &DeviceSpec) -> Option<String> {
    let DeviceSpec::Emulated { profile: name, .. } = spec else { return None };
    let profile = profile(name).ok()?;
    Some(format!("the profile {:?}: {}", profile.name, profile.watts))
}

/// Why a device should not be written on its own: it is half of a hybrid disk, or may be. Fails if it cannot be looked
/// at.
pub(crate) fn needs_flash(spec: &DeviceSpec) -> anyhow::Result<Option<String>> {
    let Some(disk) = OpenDevice::open_data(spec, Access::ReadOnly)? else { return Ok(None) };
    if let Some(of) = hybrid::disk_of(&disk.half()) {
        return Ok(Some(format!(
            "{} is the flash of the hybrid disk {of}, and may have its newest data; give it as [flash] (or --flash), or serve it --read-only",
            disk.name
        )));
    }
    match hybrid::flash_of(&disk.half()) {
        Ok(None) if hybrid::has_tag(&disk.half()) => Ok(None),
        Ok(None) => Ok(remembered::load(spec).map(|was| describe_missing_label(&disk, &was))),
        Ok(Some(flash)) => Ok(Some(format!(
            "{} belongs together with the flash {flash}: without it, its data may be old; give [flash] (or --flash), or serve it --read-only",
            disk.name
        ))),
        Err(error) => {
            let why = match &error {
                HybridError::NoTag { first, second, .. } => {
                    format!("its label is damaged ({first}; its copy: {second})")
                }
                error => reasons(&error.clone().into()),
            };
            Ok(Some(format!(
                "{} may be half of a hybrid disk: {why}; serve it --read-only to use it as it is",
                disk.name
            )))
        }
    }
}

/// The message about a disk that had a flash, and whose label is no longer at its place.
fn describe_missing_label(disk: &OpenDevice, was: &Remembered) -> String {
    let Remembered { size, flash, .. } = was;
    let is = disk.device.geometry().size();
    let [shown, shown_is] = size.told_apart(is);
    let became = match is.cmp(size) {
        Ordering::Less => format!("was cut: it had {shown}, and has {shown_is}"),
        Ordering::Greater => format!("grew: it had {shown}, and has {shown_is}"),
        Ordering::Equal => "lost its label".to_owned(),
    };
    format!(
        "{} was half of a hybrid disk with the flash {}, which may have its newest data; it {became}. Restore it and \
        give [flash], serve it --read-only, or give up the data on the flash: `umbrella disk detach CONFIG \
        --forget-flash`",
        disk.name,
        visible(flash)
    )
}

/// Whether a file of that name may be made: what is missing in /dev is a device, and its name is wrong.
pub(crate) fn may_be_made(path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return false };
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok()).unwrap_or(path);
    !folder.starts_with("/dev") || folder.starts_with("/dev/shm")
}

/// Whether there is no file, or an empty one, as is left when making it was interrupted.
pub(crate) fn is_missing(path: &Path) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(data) => Ok(data.is_file() && data.len() == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// A file that was made, or was there and empty.
pub(crate) struct NewImage {
    path: PathBuf,
    was_empty: bool,
}

impl NewImage {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves what was there before.
    pub(crate) fn undo(&self) -> anyhow::Result<()> {
        let undone = if self.was_empty {
            OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(0))
        } else {
            std::fs::remove_file(&self.path)
        };
        undone.with_context(|| format!("undoing the changes to {}", visible_path(&self.path)))
    }
}

/// How large the file of a device will be, if it is missing and is to be made.
pub(crate) fn size_to_be(spec: &DeviceSpec) -> Option<ByteSize> {
    let is_to_be_made = spec.path().is_some_and(|path| is_missing(path).unwrap_or(false) && may_be_made(path));
    spec.size().filter(|_| is_to_be_made)
}

/// That a file may come to need more than is free where it lies, if so: it has holes, or was just made.
pub(crate) fn may_fill_up(spec: &DeviceSpec) -> Option<String> {
    let path = spec.path()?;
    let data = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let space = rustix::fs::statvfs(path).ok()?;
    let free = ByteSize(space.f_bavail.saturating_mul(space.f_frsize));
    let wanted = ByteSize(data.len().saturating_sub(data.blocks().saturating_mul(SECTOR_BYTES)));
    (wanted > free).then(|| {
        let ([wanted, free], shown) = (wanted.told_apart(free), visible_path(path));
        format!(
            "{shown} may need {wanted} more, but its file system has only {free} free: when that is full, writes \
            fail"
        )
    })
}

/// Makes the file of a device if it is missing and its size is known; nothing if it is there.
pub(crate) fn make(spec: &DeviceSpec) -> anyhow::Result<Option<NewImage>> {
    let (DeviceSpec::File { path, size, .. } | DeviceSpec::Emulated { path: Some(path), size, .. }) = spec else {
        return Ok(None);
    };
    let shown = visible_path(path);
    if !is_missing(path).with_context(|| shown.clone())? {
        return Ok(None);
    }
    if !may_be_made(path) {
        bail!("{shown} does not exist, and no image is made in /dev; check the name of the device");
    }
    let Some(size) = size else {
        let is = if path.exists() { "is empty" } else { "does not exist" };
        bail!("{shown} {is}; to make it, give its size (`--size 40GiB`, or `size` in the configuration)")
    };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        let folder = visible_path(folder);
        bail!("cannot create {shown}: the directory {folder} does not exist; create it first (`mkdir -p {folder}`)");
    }
    let made = NewImage { path: path.clone(), was_empty: path.exists() };
    let file = OpenOptions::new().write(true).create_new(!made.was_empty).mode(0o600).open(path);
    let file = file.with_context(|| format!("making {shown}"))?;
    let Err(error) = file.set_len(size.0) else { return Ok(Some(made)) };
    // Half a file is none.
    made.undo()?;
    match error.kind() {
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => bail!(
            "{size} is too large for the file system of {shown}, or for `ulimit -f`; give a smaller --size, or a path \
            on another file system"
        ),
        _ => Err(error).with_context(|| format!("making {shown}")),
    }
}

/// What is done about a damaged log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDamage {
    /// The disk is not served.
    Refuse,
    /// What is whole is served: also to be written where it is known what is lost, else read-only.
    Salvage,
}

/// How long a disk that ends waits for calls under way.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until no other owner is left, and unwraps the value.
pub(super) fn into_unshared<T>(mut shared: Arc<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    loop {
        match Arc::try_unwrap(shared) {
            Ok(last) => return Ok(last),
            Err(_) if Instant::now() > deadline => bail!("requests do not end; flushed data is safe"),
            Err(again) => shared = again,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
