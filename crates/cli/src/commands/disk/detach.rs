//! `umbrella disk detach`: takes a disk away.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use umbrella_block::hybrid::Losses;
use umbrella_units::ByteSize;

use super::DiskArg;
use super::progress::ProgressDisplay;
use crate::client::ClientError;
use crate::config::disk::DiskName;
use crate::disk::last_resort::{forget_flash, salvage};
use crate::disk::losses::{perhaps_lost, unknown};
use crate::disk::pair::detach_unserved;
use crate::disk::place::{self, PlaceError, Target};
use crate::disk::protocol::{Answer, AtDetach, DetachOutcome, Detached, Progress, Request};
use crate::output;
use crate::text::count;

/// How long a daemon may say nothing. It says how far it is every second at least.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Stop serving a disk: everything on the flash goes to the disk, which you can then use without the flash.
///
/// The two remain a pair: the next `attach` or `serve` uses both again, with what was written to the disk alone. Name a
/// disk that is not served by its configuration. Ctrl-C cancels, and the disk stays served.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk detach
  umbrella disk detach media --keep-cache    quick: what is on flash stays there for the next start
  umbrella disk detach media --dissolve      free the flash for another use: a plain disk is left")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct DetachArgs {
    #[command(flatten)]
    disk: DiskArg,
    /// Leave the data on the flash; without it the disk is incomplete.
    #[arg(long)]
    keep_cache: bool,
    /// End the pair: the disk is a plain disk then, and the flash is free. `umbrella disk create` joins them again.
    #[arg(long, conflicts_with = "keep_cache")]
    dissolve: bool,
    /// Disconnect NBD clients.
    #[arg(short, long)]
    force: bool,
    /// For a disk that is not served and has a damaged log: write the intact data to the disk, and list the lost
    /// sectors. There the disk has older data.
    #[arg(long, conflicts_with_all = ["keep_cache", "dissolve", "force", "forget_flash"])]
    salvage: bool,
    /// For a disk that is not served: give up all data that only the flash has. The flash may be missing; if it is
    /// readable, the lost data is listed.
    #[arg(long, conflicts_with_all = ["keep_cache", "dissolve", "force"])]
    forget_flash: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl DetachArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let target = match place::find(self.disk.disk.as_deref()) {
            Err(PlaceError::Dead { name }) if !(self.salvage || self.forget_flash) => {
                place::clear_leftovers(&name)?;
                return self.show(&leftovers_cleared(&name));
            }
            target => target?,
        };
        let mut view = ProgressDisplay::new("{bar:30} {bytes} of {total_bytes} to the disk  {eta} left");
        let detached = self.detach(&target, &mut |progress| {
            let line = || format!("{} of {} brought to the disk", progress.done, progress.total);
            view.show(progress.done.0, progress.total.0, line);
            true
        });
        drop(view);
        self.show(&detached?)
    }

    fn show(&self, detached: &Detached) -> anyhow::Result<ExitCode> {
        if self.json {
            output::json(detached)?;
        } else {
            output::print(&summary(detached))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn detach(&self, target: &Target, show: &mut dyn FnMut(&Progress) -> bool) -> anyhow::Result<Detached> {
        let served = place::is_served(&target.name);
        if served && (self.salvage || self.forget_flash) {
            bail!("{0} is served; end that first (`umbrella disk detach {0} --keep-cache`)", target.name);
        }
        if let (Some(spec), false) = (&target.spec, served) {
            let had_leftovers = place::clear_leftovers(&spec.name)?;
            if self.salvage {
                return salvage(spec, show);
            }
            if self.forget_flash {
                return forget_flash(spec);
            }
            if had_leftovers && (self.keep_cache || spec.cache.is_none()) {
                return Ok(leftovers_cleared(&spec.name));
            }
            if self.keep_cache {
                bail!("{} is not served: nothing to do", spec.name);
            }
            let (drained, lost, perhaps_lost) = detach_unserved(spec, self.flash(), show)?;
            let outcome = match self.flash() {
                AtDetach::Dissolve => DetachOutcome::Dissolved,
                _ if lost.is_empty() => DetachOutcome::Detached,
                _ => DetachOutcome::DetachedWithCache,
            };
            return Ok(Detached { name: spec.name.to_string(), outcome, drained, lost: Some(lost), perhaps_lost });
        }
        let mut has_begun = false;
        let request = Request::Detach { flash: self.flash(), force: self.force };
        let answer = target.client().and_then(|client| {
            let answer = client.with_timeout(TIMEOUT).call_with_heartbeat(&request, &mut |progress| {
                has_begun |= progress.ending;
                if progress.total.0 > 0 {
                    show(&progress);
                }
            });
            Ok(answer?)
        });
        let answer = answer.map_err(|error| match error.downcast_ref() {
            Some(ClientError::NoAnswer { .. }) => {
                anyhow!("{}: {error}; {}", target.name, describe_unfinished(has_begun))
            }
            _ => error,
        });
        let Answer::Detached(detached) = answer? else { return Err(ClientError::Unexpected.into()) };
        place::wait_until_gone(&target.name);
        Ok(detached)
    }
}

impl DetachArgs {
    fn flash(&self) -> AtDetach {
        match (self.keep_cache, self.dissolve) {
            (true, _) => AtDetach::Keep,
            (_, true) => AtDetach::Dissolve,
            _ => AtDetach::Empty,
        }
    }
}

/// What happens to a detachment after the program has stopped waiting for it.
fn describe_unfinished(has_begun: bool) -> &'static str {
    if has_begun {
        "it had begun to end, and finishes when the daemon continues"
    } else {
        "the disk stays served when its daemon continues: detach it again then"
    }
}

fn leftovers_cleared(name: &DiskName) -> Detached {
    let lost = Some(Losses::default());
    Detached {
        name: name.to_string(),
        outcome: DetachOutcome::LeftoversCleared,
        drained: ByteSize(0),
        lost,
        perhaps_lost: Losses::default(),
    }
}

/// Ranges that are shown to people.
const SHOWN_RANGES: usize = 20;

fn summary(Detached { name, outcome, drained, lost, perhaps_lost: perhaps }: &Detached) -> String {
    let mut lines = vec![match outcome {
        DetachOutcome::Detached if drained.0 > 0 => format!(
            "{name} is detached; {drained} brought from flash to the disk, which can be used alone; the next attach uses both again (--dissolve ends that)"
        ),
        DetachOutcome::Dissolved => {
            format!("{name} is a plain disk now; {drained} brought from flash to it, and the flash is free")
        }
        DetachOutcome::Detached => format!("{name} is detached"),
        DetachOutcome::DetachedWithCache => format!("{name} is detached; without its flash the disk is incomplete"),
        DetachOutcome::Salvaged => {
            format!("{name} is detached; {drained} of intact data brought from flash to the disk")
        }
        DetachOutcome::LeftoversCleared => {
            format!("{name}: cleaned up what its daemon left behind; the data on the disk was not touched")
        }
        DetachOutcome::Gone => format!("{name} is detached; it was in memory, so its data is gone"),
        DetachOutcome::FlashForgotten => format!("{name} is detached; the data that only the flash had is given up"),
    }];
    match lost {
        None => lines.push("lost: unknown, because the log could not be read".to_owned()),
        Some(lost) => {
            lines.extend(lost.at_risk.iter().take(SHOWN_RANGES).map(|range| format!("lost: {range}")));
            let more = lost.at_risk.len().saturating_sub(SHOWN_RANGES);
            lines.extend((more > 0).then(|| format!("lost: {} more (--json has all)", count(more as u64, "range"))));
            lines.extend(unknown(lost));
        }
    }
    let waits_for_data =
        matches!(outcome, DetachOutcome::DetachedWithCache) && lost.as_ref().is_some_and(|lost| !lost.is_empty());
    lines.extend(waits_for_data.then(|| {
        "attach it again and write the lost sectors, or end the pair without them: `umbrella disk detach --salvage CONFIG`".to_owned()
    }));
    lines.extend((!perhaps.is_empty()).then(|| perhaps_lost(perhaps)));
    lines.push(String::new());
    lines.join("\n")
}
