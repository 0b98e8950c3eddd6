//! fio on one file: sequential in 1 MiB blocks, random in 4 KiB blocks, through the page cache and past it. One job,
//! one request at a time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Lab, Samples};
use crate::caches::Caches;
use crate::host;
use crate::system::Stack;

const MIB: usize = 1 << 20;

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl Direction {
    /// As fio calls it.
    fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

struct Job<'a> {
    file: &'a Path,
    size: usize,
}

impl Job<'_> {
    /// Bytes a second of one job; writes include the fsync at the end.
    fn run(&self, direction: Direction, more: &[String]) -> Result<f64> {
        let mut command = Command::new("fio");
        command
            .args([
                "--name=bench",
                "--output-format=json",
                "--fallocate=none",
                "--invalidate=0",
                "--gtod_reduce=1",
                "--thread",
                "--end_fsync=1",
            ])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--size={}", self.size))
            .args(more);
        let output = host::run(&mut command)?;
        // Notes may come before the object.
        let begin = output.stdout.iter().position(|byte| *byte == b'{').context("fio printed no JSON")?;
        let report: Value = serde_json::from_slice(&output.stdout[begin..]).context("fio printed broken JSON")?;
        report["jobs"][0][direction.name()]["bw_bytes"].as_f64().context("fio reported no throughput")
    }

    fn sequential(&self, direction: Direction) -> Result<f64> {
        self.run(direction, &[format!("--rw={}", direction.name()), "--bs=1m".to_owned()])
    }

    fn random(&self, direction: Direction, requests: usize, direct: bool) -> Result<f64> {
        let direct = u8::from(direct);
        self.run(
            direction,
            &[
                format!("--rw=rand{}", direction.name()),
                "--bs=4k".to_owned(),
                "--norandommap=1".to_owned(),
                format!("--direct={direct}"),
                format!("--number_ios={requests}"),
            ],
        )
    }
}

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let file = stack.root().join("data");
    let job = Job { file: &file, size: lab.scaled(2048) * MIB };
    let cached = lab.scaled(500_000);
    let direct = lab.scaled(50_000);
    samples.push(("seq-write", job.sequential(Direction::Write)?));
    samples.push(("seq-read-warm", job.sequential(Direction::Read)?));
    stack.cool(Caches::All)?;
    samples.push(("seq-read-cold", job.sequential(Direction::Read)?));
    samples.push(("rand-read", job.random(Direction::Read, cached, false)?));
    samples.push(("rand-write", job.random(Direction::Write, cached, false)?));
    stack.cool(Caches::All)?;
    samples.push(("rand-read-direct", job.random(Direction::Read, direct, true)?));
    samples.push(("rand-write-direct", job.random(Direction::Write, direct, true)?));
    Ok(())
}
