//! `umbrella disk status`: disks at a glance.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use umbrella_units::{ByteSize, SectorRange, format_duration};

use super::DiskArg;
use crate::client::ClientError;
use crate::config::disk::DiskName;
use crate::disk::place;
use crate::disk::protocol::{Answer, BreakEven, DiskClient, DiskStatus, Motor, Request};
use crate::output::{self, reasons};
use crate::text::{count, visible, visible_path};

/// How long each may take to answer when all disks are queried.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// Most ranges that are shown to people.
const SHOWN_RANGES: usize = 20;

/// Show served disks: how full the flash is, what the disk does, and what is wrong.
///
/// Wakes no disk. Without DISK: all served disks.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk status
  umbrella disk status media --json | jq .cache.used
  umbrella disk status media --watch")]
pub(super) struct DiskStatusArgs {
    #[command(flatten)]
    disk: DiskArg,
    /// Show it again every second, until Ctrl-C.
    #[arg(short, long)]
    watch: bool,
    /// Print JSON: an object, or a list of them without DISK.
    #[arg(long)]
    pub(super) json: bool,
}

impl DiskStatusArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        loop {
            self.show()?;
            if !self.watch {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn show(&self) -> anyhow::Result<()> {
        if self.disk.disk.is_some() {
            let status = fetch_status(&place::find(self.disk.disk.as_deref())?.client()?.with_timeout(place::TIMEOUT))?;
            if self.json {
                if self.watch { output::json_line(&status) } else { output::json(&status) }?;
            } else {
                output::print(&text(&status))?;
            }
            return Ok(());
        }
        let known = place::known().with_context(|| format!("looking for disks in {}", visible_path(&place::dir())))?;
        let (served, dead): (Vec<_>, Vec<_>) = known.into_iter().partition(place::is_served);
        for name in dead {
            report!("{name}: its daemon is gone and did not clean up; attach or serve it again, or detach it");
        }
        let (mut all, is_none_served) = (Vec::new(), served.is_empty());
        for (name, status) in fetch_all(served) {
            // One that is just being taken away, or does not answer, is no reason to be silent about the others.
            match status {
                Ok(status) => all.push(status),
                Err(error) => report!("{name}: {}", reasons(&error)),
            }
        }
        if self.json {
            if self.watch { output::json_line(&all) } else { output::json_list(&all) }?;
        } else if is_none_served {
            output::line("no disk is served")?;
        } else {
            output::print(&all.iter().map(text).collect::<Vec<_>>().join("\n"))?;
        }
        Ok(())
    }
}

/// All at once: one that does not answer holds up no other.
fn fetch_all(names: Vec<DiskName>) -> Vec<(DiskName, anyhow::Result<DiskStatus>)> {
    let fetch = |name: &DiskName| fetch_status(&DiskClient::new(&place::control(name)).with_timeout(STATUS_TIMEOUT));
    std::thread::scope(|scope| {
        let asked: Vec<_> = names.into_iter().map(|name| (name.clone(), scope.spawn(move || fetch(&name)))).collect();
        let answer = |asked: ScopedJoinHandle<_>| asked.join().unwrap_or_else(|_| Err(ClientError::Unexpected.into()));
        asked.into_iter().map(|(name, asked)| (name, answer(asked))).collect()
    })
}

fn fetch_status(client: &DiskClient) -> anyhow::Result<DiskStatus> {
    let Answer::Status(status) = client.call(&Request::Status)? else {
        return Err(ClientError::Unexpected.into());
    };
    Ok(*status)
}

fn text(status: &DiskStatus) -> String {
    let mut text = String::new();
    let kind = match status.kind.as_str() {
        "hybrid" => "hybrid disk",
        "log" => "log store",
        kind => kind,
    };
    let read_only = if status.read_only { ", read-only" } else { "" };
    let uptime = format_duration(Duration::from_secs(status.uptime_seconds));
    let _ = writeln!(
        text,
        "{}  {}, {}{read_only}, up {uptime}, process {}, version {}",
        visible(&status.name),
        visible(kind),
        status.size,
        status.pid,
        visible(&status.version)
    );
    if let Some(device) = &status.device {
        let _ = writeln!(text, "  here   {}", visible(device));
    }
    let clients = count(status.clients, "client");
    let _ = writeln!(text, "  nbd    {}, {clients}", visible(&status.listen.join(", ")));
    if let Some(power) = status.power {
        let _ = writeln!(text, "  disk   {}", motor(power));
    }
    if let Some(cache) = &status.cache {
        let percent = (cache.used.0 * 100).checked_div(cache.size.0).unwrap_or(0);
        let _ = writeln!(
            text,
            "  flash  {percent} % full: {} of {} in use; {:.1} laps",
            cache.used, cache.size, cache.laps
        );
        let _ = writeln!(text, "         not on the disk yet: {}", unwritten(cache.cached, cache.cached_zeroes));
        let (when, algorithm) = (visible(&cache.when), visible(&cache.algorithm));
        let _ = writeln!(
            text,
            "         when = {when}, algorithm = {algorithm}, spin_down = {}",
            visible(&cache.spin_down)
        );
        let BreakEven { seconds, source } = &cache.break_even;
        if !source.is_empty() {
            let _ = writeln!(text, "         sleeping saves power after {seconds} s ({})", visible(source));
        }
        if let Some(left) = cache.draining {
            let _ = writeln!(text, "         {}", drain_progress(left, cache.cached));
        }
    }
    if let Some(log) = &status.log {
        text.push_str(&super::log::status(log, status.size));
    }
    if let Some(scrub) = &status.scrub {
        let _ = writeln!(text, "  scrub  {}", super::scrub::status(scrub));
    }
    for trouble in &status.trouble {
        let _ = writeln!(text, "  wrong: {}", visible(trouble));
    }
    for range in status.at_risk.iter().take(SHOWN_RANGES) {
        let _ = writeln!(text, "  at risk: {range}");
    }
    let hidden = status.at_risk.iter().skip(SHOWN_RANGES);
    let (ranges, sectors) =
        hidden.fold((0, 0), |(ranges, sectors), range: &SectorRange| (ranges + 1, sectors + range.sectors));
    if ranges > 0 {
        let _ = writeln!(text, "  at risk: {sectors} sectors more in {} (all with --json)", count(ranges, "range"));
    }
    text
}

/// What only the flash has. Zeroes are known without their room, so there may be more of them than the flash could
/// hold.
pub(super) fn unwritten(cached: ByteSize, zeroes: ByteSize) -> String {
    let data = ByteSize(cached.0.saturating_sub(zeroes.0));
    if zeroes.0 == 0 {
        format!("{data}")
    } else {
        format!("{data} of data, and {zeroes} of zeroes, which take no room")
    }
}

/// How far the flash is emptied. Nothing left, while it has something, means that it is not known yet what goes first.
fn drain_progress(left: ByteSize, cached: ByteSize) -> String {
    if left.0 == 0 && cached.0 > 0 { "about to be emptied".to_owned() } else { format!("being emptied, {left} left") }
}

fn motor(motor: Motor) -> &'static str {
    match motor {
        Motor::Spinning => "spinning",
        Motor::Standby => "asleep",
        Motor::Changing => "waking up or going to sleep",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flash_whose_emptying_has_not_begun_is_about_to_be_emptied() {
        let mib = |size: u64| ByteSize(size << 20);
        assert_eq!(drain_progress(mib(0), mib(3)), "about to be emptied");
        assert_eq!(drain_progress(mib(2), mib(3)), "being emptied, 2 MiB left");
        assert_eq!(drain_progress(mib(0), mib(0)), "being emptied, 0 B left");
    }

    #[test]
    fn zeroes_that_take_no_room_are_told_apart_from_data() {
        let mib = |size: u64| ByteSize(size << 20);
        assert_eq!(unwritten(mib(3), mib(0)), "3 MiB");
        assert_eq!(unwritten(mib(27), mib(24)), "3 MiB of data, and 24 MiB of zeroes, which take no room");
    }
}
