//! `umbrella disk attach`: a disk as a block device of this machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::serve;
use super::source::SourceArgs;
use crate::client::ClientError;
use crate::config::disk::DiskSpec;
use crate::disk::open::OnDamage;
use crate::disk::place;
use crate::disk::protocol::{Answer, DiskClient, DiskStatus, Request};
use crate::disk::serve::LocalDevice;
use crate::output;

/// How often it is tried while daemons of the disk come and go, and how long between.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Offer a disk to this machine, in the background, and print the device: /dev/loopN, or /dev/ublkbN with --front ublk.
///
/// Also attaches a disk that is already served. Needs root.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk attach /etc/umbrella/media.disk.toml
  mkfs.ext4 $(umbrella disk attach --disk emulated:profile=modern,size=1GiB,speed=10 --name slow)")]
pub(super) struct AttachArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Continue without flushed data that is damaged. Lost blocks cannot be read until they are written again. The disk
    /// is read-only if the log does not show which blocks are lost.
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
        let on_damage = serve::on_damage(self.salvage);
        spec.front.needs_to_be_built()?;
        serve::needs_root()?;
        let status = self.attached(&spec, on_damage, verbose)?;
        let device = status.device.unwrap_or_default();
        if self.json {
            output::json(&json!({ "name": status.name, "device": device, "pid": status.pid }))?;
        } else {
            output::line(&device)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Attaches it by the daemon that serves it, or by a new one. Others may start or end one meanwhile.
    fn attached(&self, spec: &DiskSpec, on_damage: OnDamage, verbose: u8) -> anyhow::Result<DiskStatus> {
        for _ in 0..ATTEMPTS {
            if place::is_served(&spec.name) {
                match self.attach_served(spec) {
                    Err(error) if is_gone(&error) => std::thread::sleep(PAUSE),
                    attached => return attached,
                }
                continue;
            }
            let started =
                serve::start(&self.source, &spec.name, LocalDevice::Attached, on_damage, self.log.as_deref(), verbose);
            match started {
                Ok(()) => return status_of(DiskClient::new(&place::control(&spec.name)).call(&Request::Status)?),
                // Another process was faster.
                Err(_) if place::is_served(&spec.name) => {}
                Err(error) => return Err(error),
            }
        }
        self.attach_served(spec)
    }

    fn attach_served(&self, spec: &DiskSpec) -> anyhow::Result<DiskStatus> {
        let (client, status) = place::client_of(spec)?;
        if spec.read_only && !status.read_only {
            bail!("{} is already served for writing; detach it first to attach it --read-only", spec.name);
        }
        if self.salvage {
            tracing::warn!(
                "{0} is already served, and --salvage takes effect only when a disk is opened: detach {0} first",
                spec.name
            );
        } else if status.read_only && !spec.read_only {
            tracing::warn!("{} is served read-only, so the device is read-only too", spec.name);
        }
        let outdated = place::outdated(spec, &status);
        if !outdated.is_empty() {
            tracing::warn!(
                "{} is served with {} (detach it and attach it again to change that)",
                spec.name,
                outdated.join(", ")
            );
        }
        status_of(client.call(&Request::Attach { front: spec.front })?)
    }
}

fn status_of(answer: Answer) -> anyhow::Result<DiskStatus> {
    let Answer::Status(status) = answer else { return Err(ClientError::Unexpected.into()) };
    Ok(*status)
}

/// Whether the daemon has ended before it answered.
fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::HungUp | ClientError::NotRunning { .. }))
}
