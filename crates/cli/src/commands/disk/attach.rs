//! `umbrella disk attach`: a disk as a block device of this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::serve;
use super::source::SourceArgs;
use crate::client::ClientError;
use crate::disk::place;
use crate::disk::protocol::{Answer, DiskClient, DiskStatus, Request};
use crate::output;

/// Offer a disk to this machine, in the background, and print the device: /dev/loopN.
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
    /// Where the daemon logs [default: /var/log/umbrella/disk-NAME.log].
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl AttachArgs {
    pub(super) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        let spec = self.source.read()?;
        let client = DiskClient::new(&place::control(&spec.name));
        let started = !place::is_served(&spec.name);
        if started {
            serve::start(&self.source, &spec.name, self.log.as_deref(), verbose)?;
        }
        let status = match attach(&client) {
            Ok(status) => status,
            Err(error) => {
                if started {
                    // Nobody asked for a daemon that attaches nothing.
                    let _ = client.ask(&Request::Detach { keep_cache: true, force: true });
                }
                return Err(error);
            }
        };
        let device = status.device.unwrap_or_default();
        if self.json {
            output::json(&json!({ "name": status.name, "device": device, "pid": status.pid }))?;
        } else {
            output::line(&device)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn attach(client: &DiskClient) -> anyhow::Result<DiskStatus> {
    match client.ask(&Request::Attach)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(ClientError::Unexpected.into()),
    }
}
