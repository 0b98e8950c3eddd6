//! Emulated disks with a copy of an ext4 image that was made once. Each is served by a daemon of its own, because a
//! process that waits for a file system must not be the one that serves its disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use serde::Deserialize;

use crate::daemon::Daemon;
use crate::host;
use crate::place::Place;
use crate::stack::BRANCH;

const UMBRELLA: &str = env!("CARGO_BIN_EXE_umbrella");
const UUID: &str = "a5a5a5a5-0000-4000-8000-000000000002";
/// How often a disk that is still looked at by others is tried to be taken away, and how long between.
const TRIES: u32 = 20;
const AGAIN: Duration = Duration::from_millis(100);

/// What the disk counts since it was started, by the names of `umbrella disk stats`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// One of them; 0 where the disk has no such figure.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Figures) -> Figures {
        Figures(self.0.iter().map(|(name, value)| (name.clone(), value - before.get(name))).collect())
    }
}

/// A mounted emulated disk; all of it goes when dropped.
pub(crate) struct EmulatedDisk {
    name: String,
    runs_in: PathBuf,
    root: PathBuf,
    device: PathBuf,
    daemon: Daemon,
}

#[derive(Deserialize)]
struct Status {
    device: Option<PathBuf>,
}

impl EmulatedDisk {
    /// A disk of this profile, `place.speed` times as fast as the real one, with what is in `image`, mounted.
    pub(crate) fn start(place: &Place, name: &str, profile: &str, image: &Path) -> Result<Self> {
        let config = place.base().join(format!("{name}.disk.toml"));
        let text = format!(
            "name = \"{name}\"\n[disk]\nkind = \"emulated\"\nprofile = \"{profile}\"\nspeed = {}\npath = \"{}\"\n[nbd]\nlisten = []\n",
            place.speed,
            image.display()
        );
        fs::write(&config, text).context("cannot write the disk's configuration")?;
        let runs_in = place.base().join("run");
        let mut command = Command::new(UMBRELLA);
        command.args(["disk", "serve", "--attach"]).arg(&config).env("UMBRELLA_RUN_DIR", &runs_in);
        // Killed, not asked: it would wait for the mount, which nobody is left to take away.
        let daemon = Daemon::start("the disk's daemon", &command, &place.base().join(format!("{name}.log")), "KILL")?;
        let root = place.base().join(name);
        let mut disk = Self { name: name.to_owned(), runs_in, root, device: PathBuf::new(), daemon };
        let (name, runs_in) = (disk.name.clone(), disk.runs_in.clone());
        disk.device = disk.daemon.wait_for(|| {
            let Ok(status) = ask(&runs_in, "status", &name) else { return Ok(None) };
            Ok(serde_json::from_slice::<Status>(&status)?.device)
        })?;
        fs::create_dir_all(&disk.root)?;
        mount(Some(&disk.device), &disk.root, Some("ext4"), MsFlags::empty(), Some("noinit_itable"))
            .with_context(|| format!("cannot mount {}", disk.device.display()))?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// As a block device of this machine.
    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    /// What it has counted so far.
    pub(crate) fn figures(&self) -> Result<Figures> {
        let json = ask(&self.runs_in, "stats", &self.name)?;
        let answer: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&json).context("the disk's figures are no JSON object")?;
        // Not everything in it is a figure.
        Ok(Figures(answer.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect()))
    }

    /// Waits until all that was written is on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        sync(&self.root)
    }

    /// Unmounts it and takes it away.
    pub(crate) fn stop(mut self) -> Result<()> {
        host::unmount(&self.root);
        let mut detached = Ok(());
        for _ in 0..TRIES {
            detached = ask(&self.runs_in, "detach", &self.name).map(drop);
            if detached.is_ok() {
                break;
            }
            thread::sleep(AGAIN);
        }
        detached?;
        ensure!(self.daemon.wait()?, "the disk's daemon did not end: {}", self.daemon.log_tail());
        Ok(())
    }
}

impl Drop for EmulatedDisk {
    fn drop(&mut self) {
        // After an error, which has been reported; nothing happens after `stop`.
        host::unmount(&self.root);
        if self.daemon.ended().is_ok_and(|ended| ended.is_none()) {
            let _ = ask(&self.runs_in, "detach", &self.name);
            let _ = self.daemon.wait();
        }
    }
}

/// `umbrella disk WHAT NAME --json`, also while the benchmark is being interrupted.
fn ask(runs_in: &Path, what: &str, name: &str) -> Result<Vec<u8>> {
    let output = Command::new(UMBRELLA)
        .args(["disk", what, name, "--json"])
        .env("UMBRELLA_RUN_DIR", runs_in)
        .stdin(Stdio::null())
        .output()
        .context("cannot start umbrella")?;
    ensure!(output.status.success(), "umbrella disk {what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// Waits until all that was written to the file system at `root` is on its disk.
pub(crate) fn sync(root: &Path) -> Result<()> {
    let directory = File::open(root).with_context(|| format!("cannot open {}", root.display()))?;
    rustix::fs::syncfs(&directory).with_context(|| format!("cannot sync {}", root.display()))
}

/// An ext4 image with what a workload finds there; each run gets a copy of it.
pub(crate) struct Image {
    path: PathBuf,
}

impl Image {
    /// Makes one, on a plain loop device: `fill` is given the folder for files.
    pub(crate) fn make(place: &Place, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let filler = Filler::start(place, name)?;
        fill(&filler.folder()).and_then(|()| sync(&filler.root))?;
        Ok(Self { path: filler.path.clone() })
    }

    /// Makes one for each name; `fill` is given the folder for files of each.
    pub(crate) fn make_all(
        place: &Place,
        names: &[&str],
        fill: impl FnOnce(&[PathBuf]) -> Result<()>,
    ) -> Result<Vec<Self>> {
        let fillers: Vec<Filler> = names.iter().map(|name| Filler::start(place, name)).collect::<Result<_>>()?;
        fill(&fillers.iter().map(Filler::folder).collect::<Vec<_>>())?;
        fillers.iter().try_for_each(|filler| sync(&filler.root))?;
        Ok(fillers.iter().map(|filler| Self { path: filler.path.clone() }).collect())
    }

    /// A copy for one run.
    pub(crate) fn copy(&self, place: &Place, name: &str) -> Result<PathBuf> {
        let copy = place.images().join(format!("{name}.img"));
        host::run(Command::new("cp").arg("--sparse=always").arg(&self.path).arg(&copy))?;
        Ok(copy)
    }
}

/// An image that is being filled; unmounted when dropped.
struct Filler {
    path: PathBuf,
    root: PathBuf,
}

impl Filler {
    fn start(place: &Place, name: &str) -> Result<Self> {
        let path = place.images().join(format!("{name}.ext4"));
        host::make_ext4(&path, place.disk_size.0, UUID)?;
        let root = place.base().join(format!("{name}.filled"));
        fs::create_dir_all(&root)?;
        host::run(Command::new("mount").args(["-o", "loop,noinit_itable"]).arg(&path).arg(&root))?;
        let filler = Self { path, root };
        fs::create_dir(filler.folder())?;
        Ok(filler)
    }

    fn folder(&self) -> PathBuf {
        self.root.join(BRANCH)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        host::unmount(&self.root);
    }
}
