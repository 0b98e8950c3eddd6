//! `umbrella disk grow`: a log store takes what its disk has become larger by.

use std::process::ExitCode;

use clap::Args;

use super::DiskArg;
use crate::client::ClientError;
use crate::disk::offered::ServedDisk;
use crate::disk::open::OnDamage;
use crate::disk::place::{self, Target};
use crate::disk::protocol::{Answer, GrowResult, Request};
use crate::output;

/// Let a log store use the space that its disk gained, even while it is mounted.
///
/// First enlarge its file or disk (`truncate -s +10G FILE`, `lvextend`), afterwards the file system on it
/// (`resize2fs DEVICE`, `xfs_growfs MOUNT POINT`). NBD clients see the new size when they connect again.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  truncate -s +10G /srv/store.img && umbrella disk grow store.img && resize2fs /dev/loop0
  umbrella disk grow store.img --json | jq .size")]
pub(super) struct GrowArgs {
    #[command(flatten)]
    disk: DiskArg,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl GrowArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let target = place::find(self.disk.disk.as_deref())?;
        let grown = grow(&target)?;
        if self.json {
            output::json(&grown)?;
        } else {
            output::line(&summary(&grown))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn grow(target: &Target) -> anyhow::Result<GrowResult> {
    if let (Some(spec), false) = (&target.spec, place::is_served(&target.name)) {
        let offered = ServedDisk::open(spec.clone(), OnDamage::Refuse)?;
        let (before, size) = (offered.size(), offered.grow()?);
        offered.close()?;
        return Ok(GrowResult { name: spec.name.to_string(), before, size, device: None });
    }
    let Answer::Grown(grown) = target.client()?.call(&Request::Grow)? else {
        return Err(ClientError::Unexpected.into());
    };
    Ok(grown)
}

fn summary(GrowResult { name, before, size, device }: &GrowResult) -> String {
    if before == size {
        return format!("{name} stays at {size}: its disk or file has no room for another segment");
    }
    let on = device.as_ref().map_or(String::new(), |device| format!("; now enlarge the file system on {device}"));
    format!("{name}: {size} (before: {before}){on}")
}
