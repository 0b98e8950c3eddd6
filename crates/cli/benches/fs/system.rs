//! The systems that are compared, each as a directory to work in on a fresh disk image.
//!
//! A pool has two branches, two directories of the one image; its rules are the fewest that the work needs.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::disk::{self, Disk};
use crate::host::{self, Caches};
use crate::work::Lab;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The ext4 image itself
    Native,
    /// The mount as it comes
    Umbrella,
    /// The mount with `passthrough = false` on its branches: data goes through the daemon
    UmbrellaMediated,
    /// mergerfs, tuned without giving up features
    Mergerfs,
    /// mergerfs, tuned at all costs: no extended attributes, the kernel's write-back cache
    MergerfsStripped,
}

/// Measured to be the fastest set that keeps extended attributes and the meaning of `O_APPEND`. `full` may be used because here, as
/// in our own mount, every change goes through the mount.
const MERGERFS: &str = "allow_other,use_ino,cache.files=full,cache.entry=3600,cache.attr=3600,cache.negative_entry=3600,cache.statfs=10,\
    cache.readdir=true,cache.symlinks=true,dropcacheonclose=false,security_capability=false,category.create=ff,minfreespace=1G,\
    moveonenospc=true,threads=2";
const STRIPPED: &str = "xattr=nosys,cache.writeback=true";

const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(20);

impl System {
    pub(crate) const ALL: [Self; 5] =
        [Self::Native, Self::Umbrella, Self::UmbrellaMediated, Self::Mergerfs, Self::MergerfsStripped];

    /// As on the command line and in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Umbrella => "umbrella",
            Self::UmbrellaMediated => "umbrella-mediated",
            Self::Mergerfs => "mergerfs",
            Self::MergerfsStripped => "mergerfs-stripped",
        }
    }

    /// Head of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::UmbrellaMediated => "no passthrough",
            Self::MergerfsStripped => "m. stripped",
            _ => self.name(),
        }
    }

    /// Whether it knows rules.
    pub(crate) fn has_rules(self) -> bool {
        matches!(self, Self::Umbrella | Self::UmbrellaMediated)
    }
}

/// The rules of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rules {
    /// The default branch list alone.
    None,
    /// So many rules of which none matches: names in a table, extensions and owners.
    Unmatched(u32),
    /// Files beyond 8 KiB belong on the second branch, with hysteresis of so many KiB.
    BySize {
        /// 0: none.
        band_kib: u32,
    },
}

/// A disk and what is mounted over it. Drop unmounts all of it.
pub(crate) struct Stack {
    // Before the disk: fields are dropped in this order.
    pool: Option<Pool>,
    disk: Disk,
    root: PathBuf,
}

impl Stack {
    /// Makes the disk anew and mounts `system` over it.
    pub(crate) fn new(lab: &Lab, system: System, rules: Rules) -> Result<Self> {
        let disk = Disk::new(&lab.image, &lab.base().join("disk"))?;
        let branches = ["a", "b"].map(|name| disk.root().join(name));
        for branch in &branches {
            fs::create_dir(branch).with_context(|| format!("cannot make {}", branch.display()))?;
        }
        let (pool, root) = if system == System::Native {
            (None, branches[0].clone())
        } else {
            let pool = Pool::start(lab, system, &branches, rules)?;
            let root = pool.mount.clone();
            (Some(pool), root)
        };
        Ok(Self { pool, disk, root })
    }

    /// Where the work is done.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether something is mounted over the disk.
    pub(crate) fn is_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// Directory of the second branch.
    pub(crate) fn second_branch(&self) -> PathBuf {
        self.disk.root().join("b")
    }

    /// Writes everything back, of the mount and of the disk below; of nothing else on this machine.
    pub(crate) fn sync(&self) -> Result<()> {
        for root in [&*self.root, self.disk.root()] {
            let directory = File::open(root).with_context(|| format!("cannot open {}", root.display()))?;
            match rustix::fs::syncfs(&directory) {
                // Write-back caching under mergerfs reports pages of files that are deleted by now.
                Err(Errno::STALE) => {}
                other => other.with_context(|| format!("cannot sync {}", root.display()))?,
            }
        }
        Ok(())
    }

    /// Writes everything back, then makes the kernel forget it.
    pub(crate) fn cool(&self, what: Caches) -> Result<()> {
        self.sync()?;
        host::drop_caches(what)
    }

    /// Unmounts; fails when the daemon did not end by itself.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.pool.take().map_or(Ok(()), |mut pool| pool.stop())
    }
}

struct Pool {
    daemon: Option<Child>,
    mount: PathBuf,
    log: PathBuf,
}

impl Pool {
    fn start(lab: &Lab, system: System, branches: &[PathBuf; 2], rules: Rules) -> Result<Self> {
        let mount = lab.base().join("pool");
        fs::create_dir_all(&mount)?;
        let log = lab.base().join("daemon.log");
        let errors = File::create(&log)?;
        // The daemon ends with the benchmark, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if system.has_rules() {
            let config = lab.base().join("pool.toml");
            fs::write(&config, configuration(&mount, branches, rules, system == System::Umbrella))?;
            // What the daemon remembers of a pool names branches that are gone by the next measurement.
            let state = lab.base().join("state");
            if state.exists() {
                fs::remove_dir_all(&state).context("cannot clear the daemon's state")?;
            }
            command.env("UMBRELLA_STATE_DIR", &state).env("UMBRELLA_RUN_DIR", &state);
            command.args([env!("CARGO_BIN_EXE_umbrella"), "mount"]).arg(config);
        } else {
            let mut options = MERGERFS.to_owned();
            if system == System::MergerfsStripped {
                options = options + "," + STRIPPED;
            }
            if let Some(more) = &lab.mergerfs_options {
                options = options + "," + more;
            }
            let union = branches.each_ref().map(|branch| branch.display().to_string()).join(":");
            command.args(["mergerfs", "-f", "-o", &options, &union]).arg(&mount);
        }
        let daemon = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(errors.try_clone()?)
            .stderr(errors)
            .spawn()
            .context("cannot start the mount's daemon")?;
        host::set_daemon(Some(&daemon))?;
        let mut pool = Self { daemon: Some(daemon), mount, log };
        pool.wait_until_mounted()?;
        Ok(pool)
    }

    fn wait_until_mounted(&mut self) -> Result<()> {
        let begin = Instant::now();
        while !is_fuse_mounted(&self.mount)? {
            host::check()?;
            if let Some(status) = self.daemon.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("the mount's daemon ended at once ({status}): {}", self.last_words());
            }
            if begin.elapsed() > START {
                bail!("nothing was mounted after {} s: {}", START.as_secs(), self.last_words());
            }
            thread::sleep(Duration::from_millis(10));
        }
        // Answered once the daemon serves.
        fs::metadata(&self.mount).context("the mount does not answer")?;
        Ok(())
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    fn stop(&mut self) -> Result<()> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let before = daemon.try_wait()?;
        if before.is_none()
            && let Some(pid) = Pid::from_raw(daemon.id() as i32)
        {
            kill_process(pid, Signal::TERM)?;
        }
        let begin = Instant::now();
        let mut ended = before;
        while ended.is_none() && begin.elapsed() < STOP {
            thread::sleep(Duration::from_millis(5));
            ended = daemon.try_wait()?;
        }
        if ended.is_none() {
            daemon.kill()?;
            daemon.wait()?;
        }
        host::set_daemon(None)?;
        if is_fuse_mounted(&self.mount)? {
            disk::unmount(&self.mount);
        }
        match (before, ended) {
            (Some(status), _) => bail!("the mount's daemon died ({status}): {}", self.last_words()),
            (None, None) => {
                bail!("the mount's daemon did not end within {} s of SIGTERM: {}", STOP.as_secs(), self.last_words())
            }
            (None, Some(_)) => Ok(()),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Only after another error, which has been reported.
        let _ = self.stop();
    }
}

fn is_fuse_mounted(mount: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    let mount = mount.to_string_lossy();
    Ok(table.lines().any(|line| line.split(' ').nth(4) == Some(&*mount) && line.contains(" - fuse")))
}

fn configuration(mount: &Path, branches: &[PathBuf; 2], rules: Rules, passthrough: bool) -> String {
    let mut text = format!("mount = \"{}\"\ndefault = [\"a\", \"b\"]\n", mount.display());
    for (name, path) in ["a", "b"].into_iter().zip(branches) {
        let _ =
            writeln!(text, "[[branch]]\nname = \"{name}\"\npath = \"{}\"\npassthrough = {passthrough}", path.display());
    }
    match rules {
        Rules::None => {}
        Rules::BySize { band_kib } => {
            let band = if band_kib == 0 { String::new() } else { format!(", band = \"{band_kib}KiB\"") };
            let _ = writeln!(
                text,
                "[[rule]]\nname = \"large files\"\nwhen = {{ size = \"> 8KiB\"{band} }}\nto = [\"b\", \"a\"]"
            );
        }
        Rules::Unmatched(count) => {
            let named = count / 4;
            for number in named..count {
                let when = if number % 2 == 0 {
                    format!("extension = \"never{number}\"")
                } else {
                    format!("uid = {}", 100_000 + number)
                };
                let _ = writeln!(text, "[[rule]]\nname = \"never {number}\"\nwhen = {{ {when} }}\nto = [\"b\"]");
            }
            if named > 0 {
                text.push_str("[[rule]]\nname = \"names\"\nmatch = [\n");
                for number in 0..named {
                    let _ = writeln!(text, "  {{ glob = \"/never/{number}/**\", to = [\"b\"] }},");
                }
                text.push_str("]\n");
            }
        }
    }
    text
}
