//! The systems that are compared, each as a directory to work in on a fresh disk image.
//!
//! A pool has two branches or more, directories of the one image; its rules are the fewest that the work needs.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::io::Errno;
use serde::Serialize;

use crate::caches::{self, Caches};
use crate::daemon::MountDaemon;
use crate::disk::Disk;
use crate::host;
use crate::work::Lab;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// The ext4 image itself
    Native,
    /// The mount, with requests over io_uring
    Umbrella,
    /// The mount, with requests from /dev/fuse
    UmbrellaDev,
    /// The mount with `passthrough = false` on its branches: data goes through the daemon
    UmbrellaMediated,
    /// The program of `--mirror`, which shows one directory as it is: what FUSE itself costs
    Mirror,
    /// mergerfs, tuned without giving up features
    Mergerfs,
    /// mergerfs, tuned at all costs: no extended attributes, the kernel's write-back cache
    MergerfsStripped,
}

/// Measured to be the fastest set that keeps extended attributes and the meaning of `O_APPEND`. `full` may be used
/// because here, as in our own mount, every change goes through the mount.
const MERGERFS: &str = "allow_other,use_ino,cache.files=full,cache.entry=3600,cache.attr=3600,cache.negative_entry=3600,cache.statfs=10,\
    cache.readdir=true,cache.symlinks=true,dropcacheonclose=false,security_capability=false,category.create=ff,minfreespace=1G,\
    moveonenospc=true,threads=2";
const STRIPPED: &str = "xattr=nosys,cache.writeback=true";

impl System {
    pub(crate) const ALL: [Self; 7] = [
        Self::Native,
        Self::Umbrella,
        Self::UmbrellaDev,
        Self::UmbrellaMediated,
        Self::Mirror,
        Self::Mergerfs,
        Self::MergerfsStripped,
    ];

    /// As on the command line and in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Umbrella => "umbrella",
            Self::UmbrellaDev => "umbrella-dev",
            Self::UmbrellaMediated => "umbrella-mediated",
            Self::Mirror => "mirror",
            Self::Mergerfs => "mergerfs",
            Self::MergerfsStripped => "mergerfs-stripped",
        }
    }

    /// Head of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Umbrella => "umbrella io_uring",
            Self::UmbrellaDev => "umbrella dev",
            Self::UmbrellaMediated => "no passthrough",
            Self::MergerfsStripped => "m. stripped",
            _ => self.name(),
        }
    }

    /// Whether it knows rules.
    pub(crate) fn has_rules(self) -> bool {
        matches!(self, Self::Umbrella | Self::UmbrellaDev | Self::UmbrellaMediated)
    }
}

/// The rules of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rules {
    /// The default branch list alone.
    None,
    /// This number of rules, none of which matches: names in a table, extensions and owners.
    Unmatched(u32),
    /// Files below 64 KiB belong on the second branch: they wait for their size.
    SmallFiles,
    /// This number of branches in a group with `spread = "most-free"`.
    MostFree(usize),
    /// This number of rules on owners, of which only the last matches: all files belong on the first branch.
    ByInode(u32),
    /// This number of rules on names that are like those of the work, and match none.
    ByName(u32),
    /// All files belong on the first branch, which is full, then on the second.
    Overflow,
    /// Three branches. A rule puts a tenth of the directories on the third, which is encrypted.
    Encrypted {
        /// The first two are encrypted, too.
        all: bool,
    },
    /// Files that are warmer than any gets here belong on the second branch.
    Heat,
    /// Files beyond 8 KiB belong on the second branch, with this hysteresis.
    BySize {
        /// In KiB; 0: none.
        hysteresis_kib: u32,
    },
}

impl Rules {
    /// Names of the branches: two, where the rules need no more.
    fn branches(self) -> Vec<String> {
        match self {
            Rules::MostFree(count) => (0..count).map(|at| format!("disk{at}")).collect(),
            Rules::Encrypted { .. } => ["a", "b", "c"].map(str::to_owned).to_vec(),
            _ => vec!["a".to_owned(), "b".to_owned()],
        }
    }

    fn is_encrypted(self, branch: usize) -> bool {
        matches!(self, Rules::Encrypted { all } if all || branch == 2)
    }
}

/// A disk and what is mounted over it. Drop unmounts all of it.
pub(crate) struct Stack {
    // Before the disk: fields are dropped in this order.
    pool: Option<MountDaemon>,
    encrypted: Vec<MountDaemon>,
    disk: Disk,
    root: PathBuf,
}

impl Stack {
    /// Makes the disk anew and mounts `system` over it.
    pub(crate) fn new(lab: &Lab, system: System, rules: Rules) -> Result<Self> {
        let disk = Disk::new(&lab.image, &lab.base().join("disk"))?;
        let branches: Vec<PathBuf> = rules.branches().iter().map(|name| disk.root().join(name)).collect();
        for branch in &branches {
            fs::create_dir(branch).with_context(|| format!("cannot make {}", branch.display()))?;
        }
        let mut encrypted = Vec::new();
        for (number, branch) in branches.iter().enumerate() {
            if system != System::Native && rules.is_encrypted(number) {
                encrypted.push(encrypt(lab, branch)?);
            }
        }
        let (pool, root) = if system == System::Native {
            (None, branches[0].clone())
        } else {
            let pool = start_pool(lab, system, &branches, rules)?;
            (Some(pool), lab.base().join("pool"))
        };
        Ok(Self { pool, encrypted, disk, root })
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
        caches::drop_caches(what)
    }

    /// Unmounts; fails when the daemon did not end by itself.
    pub(crate) fn stop(mut self) -> Result<()> {
        let stopped = self.pool.take().map_or(Ok(()), |mut pool| pool.stop());
        self.encrypted.iter_mut().map(MountDaemon::stop).fold(stopped, Result::and)
    }
}

/// Mounts gocryptfs over a branch, with its cipher text beside it.
fn encrypt(lab: &Lab, branch: &Path) -> Result<MountDaemon> {
    const PASSWORD: [&str; 2] = ["-extpass", "echo benchmark"];
    let cipher = branch.with_extension("cipher");
    fs::create_dir(&cipher).with_context(|| format!("cannot make {}", cipher.display()))?;
    // Its key is weak, so that the mount takes no time.
    host::run(Command::new("gocryptfs").args(["-init", "-q", "-scryptn", "10"]).args(PASSWORD).arg(&cipher))?;
    let mut command = Command::new("gocryptfs");
    command.args(["-fg", "-q", "-allow_other"]).args(PASSWORD).arg(&cipher).arg(branch);
    let log = lab.base().join(format!("{}.log", branch.file_name().unwrap_or_default().display()));
    MountDaemon::start(&command, branch, &log)
}

fn start_pool(lab: &Lab, system: System, branches: &[PathBuf], rules: Rules) -> Result<MountDaemon> {
    let mount = lab.base().join("pool");
    let command = if system.has_rules() {
        let config = lab.base().join("pool.toml");
        fs::write(&config, configuration(&mount, branches, rules, system))?;
        // What the daemon remembers of a pool names branches that are gone by the next measurement.
        let state = lab.base().join("state");
        if state.exists() {
            fs::remove_dir_all(&state).context("cannot clear the daemon's state")?;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbrella"));
        command.env("UMBRELLA_STATE_DIR", &state).env("UMBRELLA_RUN_DIR", &state).arg("mount").arg(config);
        command
    } else if system == System::Mirror {
        let mut words = lab.mirror.iter().flat_map(|command| command.split_whitespace());
        let mut command = Command::new(words.next().context("--mirror names no program")?);
        command.args(words).arg(&branches[0]).arg(&mount);
        command
    } else {
        let mut options = MERGERFS.to_owned();
        if system == System::MergerfsStripped {
            options = options + "," + STRIPPED;
        }
        if let Some(more) = &lab.mergerfs_options {
            options = options + "," + more;
        }
        let union = branches.iter().map(|branch| branch.display().to_string()).collect::<Vec<_>>().join(":");
        let mut command = Command::new("mergerfs");
        command.args(["-f", "-o", &options, &union]).arg(&mount);
        command
    };
    MountDaemon::start(&command, &mount, &lab.base().join("daemon.log"))
}

fn configuration(mount: &Path, branches: &[PathBuf], rules: Rules, system: System) -> String {
    let transport = if system == System::UmbrellaDev { "dev" } else { "io_uring" };
    let passthrough = system != System::UmbrellaMediated;
    // What no rule names goes back to a default list of one, and stays where it is on one of several.
    let default = match rules {
        Rules::MostFree(_) => "\"disks\"",
        Rules::BySize { .. } | Rules::Overflow | Rules::ByInode(_) | Rules::ByName(_) => "\"a\"",
        _ => "\"a\", \"b\"",
    };
    let mount = mount.display();
    let mut text = format!("mount = \"{mount}\"\ndefault = [{default}]\ntransport = \"{transport}\"\n");
    for (name, path) in rules.branches().iter().zip(branches) {
        let _ =
            writeln!(text, "[[branch]]\nname = \"{name}\"\npath = \"{}\"\npassthrough = {passthrough}", path.display());
    }
    let rule = |name: &str, when: &str, to: &[&str]| {
        format!("[[rule]]\nname = \"{name}\"\nwhen = {{ {when} }}\nto = {to:?}\n")
    };
    match rules {
        Rules::None => {}
        Rules::Overflow => {
            text = text.replace("name = \"a\"\n", "name = \"a\"\nmin_free = \"1TiB\"\n");
            text += &rule("all", "uid = 0", &["a", "b"]);
        }
        Rules::ByInode(count) => {
            let owner = |uid| rule(&format!("owner {uid}"), &format!("uid = {uid}"), &["a", "b"]);
            text.extend((0..count).rev().map(owner));
        }
        Rules::ByName(count) => {
            let never = |number| format!("path = \"/*/s*{number}/[0-9]*.never\"");
            text.extend((0..count).map(|number| rule(&format!("name {number}"), &never(number), &["b", "a"])));
        }
        // postmark's directories are s0 to s199.
        Rules::Encrypted { .. } => {
            text += &rule("secret", "path = \"/*/s*7/**\"", &["c"]);
            text += &rule("half of the rest", "path = \"/*/s*[13579]/**\"", &["b"]);
        }
        Rules::MostFree(_) => {
            text.push_str("[[group]]\nname = \"disks\"\nbranches = \"disk*\"\nspread = \"most-free\"\n");
        }
        Rules::SmallFiles => text += &rule("small files", "size = \"< 64KiB\"", &["b", "any"]),
        Rules::Heat => text += &rule("warm", "heat = \"> 1000000\"", &["b", "any"]),
        Rules::BySize { hysteresis_kib } => {
            let hysteresis =
                if hysteresis_kib == 0 { String::new() } else { format!(", hysteresis = \"{hysteresis_kib}KiB\"") };
            text += "[staging]\nmode = \"never\"\n";
            let large = format!("size = \"> 8KiB\"{hysteresis}");
            text += &rule("large files", &large, &["b", "a", "default", "any"]);
        }
        Rules::Unmatched(count) => {
            let named = count / 4;
            for number in named..count {
                let when = if number % 2 == 0 {
                    format!("extension = \"never{number}\"")
                } else {
                    format!("uid = {}", 100_000 + number)
                };
                text += &rule(&format!("never {number}"), &when, &["b", "default", "any"]);
            }
            if named > 0 {
                text.push_str("[[rule]]\nname = \"names\"\nmatch = [\n");
                for number in 0..named {
                    let _ =
                        writeln!(text, "  {{ glob = \"/never/{number}/**\", to = [\"b\", \"default\", \"any\"] }},");
                }
                text.push_str("]\n");
            }
        }
    }
    text
}
