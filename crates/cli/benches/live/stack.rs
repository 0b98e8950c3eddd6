//! What is compared: a file system on emulated disks, alone or with a mount over it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::daemon::MountDaemon;
use crate::disk::{EmulatedDisk, Figures};
use crate::host;
use crate::place::Place;

/// The folder of a disk that holds the files, so that the root's own entries are not among them.
pub(crate) const BRANCH: &str = "files";

/// Something that is compared with others.
#[derive(Debug, Clone, Default)]
pub(crate) struct System {
    /// As on the command line and in the results.
    pub(crate) name: String,
    /// Nothing: the first disk's file system itself.
    pub(crate) pool: Option<Pool>,
}

/// The configuration of a mount, as far as systems differ.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    /// Lines of each `[[branch]]`, in order; nothing where there are none.
    pub(crate) branches: Vec<String>,
    /// Tables: rules, staging.
    pub(crate) tables: String,
    /// Branches for what no rule names; nothing: all, in order.
    pub(crate) default: Vec<&'static str>,
}

impl System {
    /// The file system without a mount.
    pub(crate) fn native() -> Self {
        Self { name: "native".to_owned(), pool: None }
    }

    /// A mount.
    pub(crate) fn mount(name: &str, pool: Pool) -> Self {
        Self { name: name.to_owned(), pool: Some(pool) }
    }

    /// Whether a policy orders the write-back of a branch.
    pub(crate) fn has_flusher(&self) -> bool {
        self.pool.iter().flat_map(|pool| &pool.branches).any(|lines| lines.contains("write_back ="))
    }
}

/// Disks and what is mounted over them. Drop takes all of it away.
pub(crate) struct Stack {
    // Before the disks: fields are dropped in this order.
    pool: Option<MountDaemon>,
    disks: Vec<EmulatedDisk>,
    root: PathBuf,
    /// What the pool's daemon keeps.
    state: PathBuf,
    staged: bool,
}

impl Stack {
    /// Starts disks (name, profile, image) and mounts `system` over them.
    pub(crate) fn start(place: &Place, system: &System, disks: &[(&str, &str, PathBuf)]) -> Result<Self> {
        let disks: Vec<EmulatedDisk> = disks
            .iter()
            .map(|(name, profile, image)| EmulatedDisk::start(place, name, profile, image))
            .collect::<Result<_>>()?;
        let first = disks.first().context("no disk")?;
        let state = place.base().join("state");
        let Some(pool) = &system.pool else {
            let root = first.root().join(BRANCH);
            return Ok(Self { pool: None, disks, root, state, staged: false });
        };
        let mount = place.base().join("pool");
        let config = place.base().join("pool.toml");
        fs::write(&config, configuration(&mount, &disks, pool, &place.transport))
            .context("cannot write the pool's configuration")?;
        // What the daemon remembers of a pool names branches that are gone by the next measurement.
        if state.exists() {
            fs::remove_dir_all(&state).context("cannot clear the daemon's state")?;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
        command.env("UMBRELLA_STATE_DIR", &state).env("UMBRELLA_RUN_DIR", &state).arg("mount").arg(config);
        let daemon = MountDaemon::start(&command, &mount, &place.base().join("pool.log"))?;
        Ok(Self { pool: Some(daemon), disks, root: mount, state, staged: pool.tables.contains("[staging]") })
    }

    /// Where the work is done.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the files of a disk are, past the mount.
    pub(crate) fn below(&self, disk: usize) -> Option<PathBuf> {
        Some(self.disks.get(disk)?.root().join(BRANCH))
    }

    /// The disks as block devices.
    pub(crate) fn devices(&self) -> Vec<PathBuf> {
        self.disks.iter().map(|disk| disk.device().to_owned()).collect()
    }

    /// Waits until all that was written is on the disks, what is staged too (which syncfs(2) does not reach).
    pub(crate) fn sync(&self) -> Result<()> {
        if self.staged {
            let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
            command.env("UMBRELLA_STATE_DIR", &self.state).env("UMBRELLA_RUN_DIR", &self.state);
            host::run(command.arg("sync").arg(&self.root))?;
        }
        self.disks.iter().try_for_each(EmulatedDisk::sync)
    }

    /// What the disks have counted so far.
    pub(crate) fn figures(&self) -> Result<Vec<Figures>> {
        self.disks.iter().map(EmulatedDisk::figures).collect()
    }

    /// Takes everything away; fails when a daemon did not end in order.
    pub(crate) fn stop(mut self) -> Result<()> {
        let stopped = self.pool.take().map_or(Ok(()), |mut pool| pool.stop());
        let taken: Vec<Result<()>> = self.disks.drain(..).map(EmulatedDisk::stop).collect();
        taken.into_iter().fold(stopped, Result::and)
    }
}

fn configuration(mount: &Path, disks: &[EmulatedDisk], pool: &Pool, transport: &str) -> String {
    let names = |disk: &EmulatedDisk| disk.root().file_name().map(|name| name.to_string_lossy().into_owned());
    let all: Vec<String> = disks.iter().filter_map(names).collect();
    let default: Vec<&str> =
        if pool.default.is_empty() { all.iter().map(String::as_str).collect() } else { pool.default.clone() };
    let mut text = format!("mount = \"{}\"\ndefault = {default:?}\ntransport = \"{transport}\"\n", mount.display());
    for (number, (name, disk)) in all.iter().zip(disks).enumerate() {
        let lines = pool.branches.get(number).map_or("", String::as_str);
        let path = disk.root().join(BRANCH);
        let _ = writeln!(
            text,
            "[[branch]]\nname = \"{name}\"\npath = \"{}\"\nheadroom = \"1MiB\"\n{}",
            path.display(),
            lines
        );
    }
    text + &pool.tables
}
