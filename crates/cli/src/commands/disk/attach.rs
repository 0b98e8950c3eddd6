//! `umbrella disk attach`: a disk as a block device of this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::serve;
use super::source::SourceArgs;
use crate::client::ClientError;
use crate::disk::place;
use crate::disk::protocol::{Answer, DiskClient, Request};
use crate::disk::serve::Here;
use crate::output;

/// Offer a disk to this machine, in the background, and print the device: /dev/loopN, or /dev/ublkbN with --front ublk.
///
/// A disk that is served already is attached as well. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk attach /etc/umbrella/media.disk.toml
  mkfs.ext4 $(umbrella disk attach --disk emulated:profile=modern,size=1GiB,speed=10 --name slow)")]
pub(super) struct AttachArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Of a hybrid disk whose log is damaged, offer what is whole, read-only; what is lost cannot be read.
    #[arg(long)]
    salvage: bool,
    /// Where the daemon logs [default: /var/log/umbrella/disk-NAME.log].
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl AttachArgs {
    pub(super) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        let spec = self.source.read()?;
        let on_damage = serve::on_damage(&spec, self.salvage)?;
        spec.front.needs_to_be_built()?;
        serve::needs_root()?;
        let (client, request) = if place::is_served(&spec.name) {
            let (client, status) = place::client_of(&spec)?;
            let option = if self.salvage { "--salvage" } else { "--read-only" };
            if (spec.read_only || self.salvage) && !status.read_only {
                bail!("{} is served already, and can be written; detach it first to attach it {option}", spec.name);
            }
            if status.read_only && !spec.read_only && !self.salvage {
                tracing::warn!("{} is served read-only, and so is the device", spec.name);
            }
            let outdated = place::outdated(&spec, &status);
            if !outdated.is_empty() {
                tracing::warn!(
                    "{} is served with {} (detach it and attach it again to change that)",
                    spec.name,
                    outdated.join(", ")
                );
            }
            (client, Request::Attach { front: spec.front })
        } else {
            serve::start(&self.source, &spec.name, Here::Attached, on_damage, self.log.as_deref(), verbose)?;
            (DiskClient::new(&place::control(&spec.name)), Request::Status)
        };
        let Answer::Status(status) = client.ask(&request)? else { return Err(ClientError::Unexpected.into()) };
        let device = status.device.unwrap_or_default();
        if self.json {
            output::json(&json!({ "name": status.name, "device": device, "pid": status.pid }))?;
        } else {
            output::line(&device)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
