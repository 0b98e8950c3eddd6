//! Real programs as workloads.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Signal, pidfd_send_signal};

use crate::host;
use crate::place::Place;

/// What the real postmark does; sizes of files are its defaults, as in TESA and MRAM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Postmark {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) transactions: u64,
}

impl Postmark {
    /// The same for the lab.
    pub(crate) fn spec(&self) -> String {
        let Self { files, directories, transactions } = self;
        format!("postmark:files={files},dirs={directories},transactions={transactions}")
    }

    /// What postmark reads from its standard input.
    pub(crate) fn script(&self, root: &Path) -> String {
        let Self { files, directories, transactions } = self;
        format!(
            "set location {}\nset number {files}\nset subdirectories {directories}\nset transactions {transactions}\n\
             set read 4096\nset write 4096\nset buffering false\nrun\nquit\n",
            root.display()
        )
    }

    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        host::run_postmark(&self.script(root))
    }

    /// Runs it up to where it begins to delete what is left; then `look`s, and ends it.
    pub(crate) fn run_until_deletion(&self, root: &Path, look: impl FnOnce() -> Result<()>) -> Result<()> {
        run_until(&mut Command::new("postmark"), &self.script(root), "Deleting files", look)
    }
}

/// The real dbench with Debian's load file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dbench {
    pub(crate) clients: u64,
    /// In the disk's own time.
    pub(crate) duration: Duration,
}

impl Dbench {
    /// The same for the lab.
    pub(crate) fn spec(&self) -> String {
        format!("dbench:clients={},duration={}s", self.clients, self.duration.as_secs())
    }

    /// How many gigabytes the clients read and wrote; dbench tells the rate.
    pub(crate) fn run(&self, place: &Place, root: &Path) -> Result<f64> {
        let seconds = place.real(self.duration).as_secs().max(2);
        let mut command = Command::new("dbench");
        command.arg("-t").arg(seconds.to_string()).arg("-D").arg(root).arg(self.clients.to_string());
        let output = host::run(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line =
            text.lines().find_map(|line| line.strip_prefix("Throughput ")).context("dbench printed no throughput")?;
        let rate: f64 = line.split(' ').next().unwrap_or_default().parse().context("dbench printed no number")?;
        ensure!(rate > 0.0, "dbench did nothing");
        Ok(rate * seconds as f64 / 1000.0)
    }
}

/// Something like a file server, by fio: ten at once read and write files of 64 to 192 KiB in their order, a third of
/// it reading. It makes the files itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileServer {
    pub(crate) files: u64,
    /// Read and written, without the making.
    pub(crate) bytes: u64,
}

impl FileServer {
    const JOBS: u64 = 10;

    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let each = |all: u64| (all / Self::JOBS).max(1);
        let mut command = Command::new("fio");
        command
            .args(["--name=fileserver", "--thread", "--filesize=64k-192k", "--fallocate=none", "--openfiles=4"])
            .args(["--file_service_type=random", "--rw=rw", "--rwmixread=33", "--bs=16k", "--randrepeat=1"])
            .args([format!("--numjobs={}", Self::JOBS), format!("--nrfiles={}", each(self.files))])
            .args([format!("--io_size={}", each(self.bytes)), format!("--directory={}", root.display())]);
        host::run(&mut command).map(drop)
    }
}

/// Runs a program until it has printed `mark`; stops it there, `look`s, and ends it.
fn run_until(command: &mut Command, input: &str, mark: &str, look: impl FnOnce() -> Result<()>) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = host::start_with_input(command.stderr(Stdio::null()), input)?;
    let mut printed = String::new();
    let mut piece = [0; 256];
    let mut stdout = child.stdout.take().context("a program without an output")?;
    while !printed.contains(mark) {
        let length = stdout.read(&mut piece).with_context(|| format!("cannot read what {name} prints"))?;
        if length == 0 {
            break;
        }
        printed += &String::from_utf8_lossy(&piece[..length]);
    }
    let pidfd = host::watch(&child)?;
    let looked = if printed.contains(mark) {
        // It has ended already, or does not continue.
        let _ = pidfd_send_signal(&pidfd, Signal::STOP);
        look()
    } else {
        Err(anyhow!("{name} ended before it printed {mark:?}"))
    };
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    let ended = child.wait();
    host::set_program(None)?;
    ended.with_context(|| format!("cannot wait for {name}"))?;
    host::check()?;
    looked
}
