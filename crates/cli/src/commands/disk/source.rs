//! Which disk is meant: a configuration, or options that say the same.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use umbrella_policy::flash_cache::{Algorithm, FlushTrigger};

use crate::config::disk::{self, CacheSettings, CacheSpec, DiskName, DiskSpec, Front, Listen, SleepSpec, TlsSpec};
use crate::disk::log::{named_by_device, refuse_other};
use crate::disk::looped::refuse_unresponsive;
use crate::pool;
use crate::text::visible_path;

/// A configuration or `--disk`, and what replaces its keys.
#[derive(Debug, Default, Args)]
pub(super) struct SourceArgs {
    /// The configuration file (docs/disk.md); or a block device, or an image of a log store (docs/log-store.md).
    #[arg(value_name = "CONFIG|DEVICE", required_unless_present = "disk", conflicts_with = "disk")]
    config: Option<PathBuf>,
    /// The disk: a path, or a kind with its keys, such as emulated:profile=modern,size=4GiB,speed=10.
    #[arg(long, value_name = "DEVICE")]
    disk: Option<String>,
    /// The flash in front of the disk, which makes it a hybrid disk; a configuration names its own.
    #[arg(long, value_name = "DEVICE")]
    flash: Option<String>,
    /// The disk's name in commands [default: the file's name].
    #[arg(long)]
    name: Option<DiskName>,
    /// Refuse all writes.
    #[arg(long)]
    read_only: bool,
    /// How `attach` makes it a block device of this machine: loop, or ublk for /dev/ublkbN [default: loop].
    #[arg(long, value_name = "NAME")]
    front: Option<Front>,
    /// When the disk sleeps: never, fixed:timeout=10m, adaptive or rent_to_buy (docs/spin-down.md).
    #[arg(long, value_name = "POLICY")]
    spin_down: Option<SleepSpec>,
    /// When the flash is emptied: each, full, watermark, piggyback.
    #[arg(long, value_name = "POLICY")]
    when: Option<FlushTrigger>,
    /// How the flash is emptied: alg1, alg2, alg3, alg4, whole.
    #[arg(long, value_name = "NAME")]
    algorithm: Option<Algorithm>,
    /// Where to listen for NBD clients: unix:PATH or ADDRESS:PORT, several separated by commas [default: the disk's own
    /// socket].
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    listen: Vec<Listen>,
    /// Serve NBD clients only over TLS, with server-cert.pem and server-key.pem of this directory (docs/disk.md).
    #[arg(long, value_name = "DIRECTORY")]
    tls: Option<PathBuf>,
    /// Accept only clients with a certificate that ca-cert.pem of that directory has signed.
    #[arg(long, requires = "tls")]
    tls_verify_peer: bool,
}

impl SourceArgs {
    /// The disk, with what the options replace.
    pub(super) fn read(&self) -> anyhow::Result<DiskSpec> {
        self.read_with(|config| {
            if let Some(spec) = named_by_device(config)? {
                return self.with_flash(spec);
            }
            refuse_other(config)?;
            self.of_config(config)
        })
    }

    /// As [`SourceArgs::read`], where anything but a `.toml` is a device, also if it is not there yet.
    pub(super) fn read_new(&self) -> anyhow::Result<DiskSpec> {
        self.read_with(|config| {
            if config.extension().is_some_and(|ending| ending == "toml") {
                return self.of_config(config);
            }
            let Some(device) = config.to_str() else { bail!("{} is not UTF-8", visible_path(config)) };
            self.with_flash(DiskSpec::of_device(disk::device_option("DEVICE", device)?)?)
        })
    }

    /// A configuration, or what may be a device or image although it is damaged; and its flash.
    pub(super) fn of_path(path: PathBuf, flash: Option<String>) -> SourceArgs {
        SourceArgs { config: Some(path), flash, ..SourceArgs::default() }
    }

    /// A path that was given in the place of a configuration, if nothing is there and it is not called one.
    pub(super) fn missing_image(&self) -> Option<&Path> {
        let is_image = |path: &&Path| !path.exists() && path.extension().is_none_or(|ending| ending != "toml");
        self.config.as_deref().filter(is_image)
    }

    fn read_with(&self, positional: impl FnOnce(&Path) -> anyhow::Result<DiskSpec>) -> anyhow::Result<DiskSpec> {
        if let Some(config) = &self.config {
            refuse_unresponsive(config)?;
        }
        let mut spec = match (&self.config, &self.disk) {
            (Some(config), _) => positional(config)?,
            (None, Some(disk)) => self.spec_from_options(disk)?,
            (None, None) => bail!("no disk: name a configuration, or give --disk DEVICE"),
        };
        if let Some(name) = &self.name {
            spec.name = name.clone();
        }
        spec.read_only |= self.read_only;
        spec.front = self.front.unwrap_or(spec.front);
        self.replace_settings(spec.cache.as_mut().map(|cache| &mut cache.settings))?;
        if !self.listen.is_empty() {
            spec.nbd.listen = Some(self.listen.clone());
        }
        if let Some(folder) = &self.tls {
            let folder = pool::absolute(folder)?;
            spec.nbd.tls = Some(TlsSpec { folder, verify_peer: self.tls_verify_peer, required: true });
        }
        spec.paths().try_for_each(refuse_unresponsive)?;
        Ok(spec)
    }

    fn replace_settings(&self, settings: Option<&mut CacheSettings>) -> anyhow::Result<()> {
        let Some(settings) = settings else {
            let given = [
                self.when.map(|_| "--when"),
                self.algorithm.map(|_| "--algorithm"),
                self.spin_down.as_ref().map(|_| "--spin-down"),
            ];
            return match given.into_iter().flatten().next() {
                Some(option) => bail!("{option} needs a flash (name one with --flash)"),
                None => Ok(()),
            };
        };
        let options = &mut settings.options;
        options.when = self.when.unwrap_or(options.when);
        options.algorithm = self.algorithm.unwrap_or(options.algorithm);
        if let Some(spin_down) = &self.spin_down {
            settings.spin_down = spin_down.clone();
        }
        Ok(())
    }

    /// The same on a command line, for a daemon that is started where this program was.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                args.push(format!("--{name}={value}").into());
            }
        };
        option("disk", self.disk.clone());
        option("flash", self.flash.clone());
        option("name", self.name.as_ref().map(ToString::to_string));
        option("front", self.front.map(|front| front.to_string()));
        option("spin-down", self.spin_down.as_ref().map(ToString::to_string));
        option("when", self.when.as_ref().map(ToString::to_string));
        option("algorithm", self.algorithm.as_ref().map(ToString::to_string));
        for address in &self.listen {
            option("listen", Some(address.to_string()));
        }
        if self.read_only {
            args.push("--read-only".into());
        }
        if let Some(folder) = &self.tls {
            args.extend(["--tls".into(), folder.clone().into_os_string()]);
        }
        if self.tls_verify_peer {
            args.push("--tls-verify-peer".into());
        }
        if let Some(config) = &self.config {
            args.extend(["--".into(), config.clone().into_os_string()]);
        }
        args
    }

    fn of_config(&self, config: &Path) -> anyhow::Result<DiskSpec> {
        if self.flash.is_some() {
            bail!(
                "--flash cannot be combined with a configuration: {} names the flash under [flash]",
                visible_path(config)
            );
        }
        Ok(disk::read(config)?)
    }

    /// A disk that was named by its device, with the flash that was named with it.
    fn with_flash(&self, disk: DiskSpec) -> anyhow::Result<DiskSpec> {
        let Some(flash) = self.flash.as_deref().map(|flash| disk::device_option("--flash", flash)).transpose()? else {
            return Ok(disk);
        };
        if let (Some(path), Some(other)) = (disk.disk.path(), flash.path())
            && path == other
        {
            bail!("the disk and --flash are both {}; the flash must be a device of its own", visible_path(path));
        }
        Ok(DiskSpec { cache: Some(CacheSpec { flash, settings: CacheSettings::default() }), ..disk })
    }

    fn spec_from_options(&self, disk: &str) -> anyhow::Result<DiskSpec> {
        let disk = disk::device_option("--disk", disk)?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => disk.name()?,
        };
        self.with_flash(DiskSpec::new(name, disk))
    }
}
