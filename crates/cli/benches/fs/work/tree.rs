//! A source tree: the packages that this workspace depends on, as cargo keeps them, unpacked by tar and walked by find.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cargo_metadata::MetadataCommand;

use super::files::{WARM_PASSES, cold, mean};
use super::{Lab, Samples};
use crate::host;
use crate::system::Stack;

pub(crate) fn run(lab: &Lab, stack: &Stack, samples: &mut Samples) -> Result<()> {
    let tarball = tarball(lab)?;
    let place = stack.root().join("tree");
    fs::create_dir(&place)?;
    // In memory for all alike.
    fs::read(&tarball).context("cannot read the archive")?;
    stack.sync()?;
    let untar =
        seconds(Command::new("tar").arg("--extract").arg("--file").arg(&tarball).arg("--directory").arg(&place))?;
    samples.push(("untar", untar));
    samples.push(("find-cold", cold(stack, || find(&place))?));
    samples.push(("find-warm", mean(WARM_PASSES, || find(&place))?));
    Ok(())
}

/// A walk that lists every directory and looks at every file.
fn find(place: &Path) -> Result<f64> {
    seconds(Command::new("find").arg(place).args(["-type", "f", "-size", "+100M"]))
}

pub(super) fn seconds(command: &mut Command) -> Result<f64> {
    let begin = Instant::now();
    host::run(command)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Made once a run.
fn tarball(lab: &Lab) -> Result<PathBuf> {
    if let Some(tarball) = lab.tarball.get() {
        return Ok(tarball.clone());
    }
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .other_options(
            ["--offline", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"].map(str::to_owned).to_vec(),
        )
        .exec()
        .context("cannot ask cargo for the packages this workspace depends on")?;
    let packages = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some())
        .filter_map(|package| package.manifest_path.parent());
    let mut command = Command::new("tar");
    let archive = lab.base().join("sources.tar");
    command.arg("--create").arg("--file").arg(&archive);
    let mut count = 0;
    for package in packages {
        if let (Some(parent), Some(name)) = (package.parent(), package.file_name()) {
            command.arg("--directory").arg(parent).arg(name);
            count += 1;
        }
    }
    ensure!(count > 0, "cargo names no packages to pack");
    host::run(&mut command)?;
    Ok(lab.tarball.get_or_init(|| archive).clone())
}
