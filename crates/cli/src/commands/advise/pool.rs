//! What to set for a pool: its disks are recorded together, and each is judged alone.
//!
//! Where a branch has a policy, its decisions are recorded too. They are made again afterwards, by that policy, which
//! has to decide the same, and by the one that is advised.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use umbrella_fs::branch::{BranchState, BranchStatus};
use umbrella_fs::control::protocol::{Answer, Request};
use umbrella_fs::spec::WriteBackSpec;
use umbrella_lab::advice::Recording;
use umbrella_lab::advice::write_back::{Baseline, KERNEL, WriteBackAdvice, WriteBackFigures};
use umbrella_lab::events::{Written, replay};
use umbrella_units::ByteSize;

use super::apply::Applying;
use super::placement::{self, PlacementReport, Rotating};
use super::report::{Chosen, Decisions, DiskReport, LeftOut, PoolReport};
use super::simulate::Simulator;
use super::{AdviseArgs, block_trace, configuration, page, record, text};
use crate::client::{Client, ClientError};
use crate::commands::{self, block_trace::Device};
use crate::storage::{self, Medium};
use crate::text::{quoted, visible_path};

/// A disk, and what is on it.
struct PoolDisk {
    name: String,
    device: Device,
    is_flash: bool,
    branches: Vec<String>,
}

impl PoolDisk {
    /// The policy of today: the first that a branch has.
    fn policy<'a>(&self, policies: &'a BTreeMap<String, Option<String>>) -> &'a str {
        self.branches.iter().find_map(|branch| policies.get(branch)?.as_deref()).unwrap_or(KERNEL)
    }
}

/// Records, simulates, reports, and with `--apply` applies.
pub(super) fn advise(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    args.check_page()?;
    block_trace::require_root()?;
    let (pool, client) = commands::find_live_pool(args.pool.as_deref())?;
    let applying = args.apply.then(|| Applying::new(&client, args.yes)).transpose()?;
    let policies = policies(&client)?;
    let Answer::Branches { branches } = client.call(&Request::BranchList)? else {
        return Err(ClientError::Unexpected.into());
    };
    let (disks, left_out) = disks(&branches);
    for left in &left_out {
        report!("umbrella: branch {} is not recorded: {}", quoted(&left.branch), left.reason);
    }
    if disks.is_empty() {
        bail!("{}: no branch lies on a disk of its own that can be recorded", visible_path(&pool.mount));
    }
    let (recordings, records) = recorded(args, &client, &disks, &policies)?;
    if !recordings.iter().any(Recording::has_requests) {
        recordings.iter().try_for_each(record::refuse_empty)?;
    }
    let simulator = args.simulator()?;
    let mut reports = Vec::new();
    for (disk, recording) in disks.iter().zip(&recordings) {
        let records = records.iter().filter(|record| disk.branches.contains(&record.branch));
        reports.push(disk_report(args, &simulator, (disk, recording, disk.policy(&policies)), records)?);
    }
    let rotating: Vec<Rotating<'_>> = disks
        .iter()
        .zip(&recordings)
        .filter(|(disk, recording)| !disk.is_flash && recording.has_requests())
        .map(|(disk, recording)| Rotating {
            device: disk.device,
            branches: &disk.branches,
            recording,
            today: Baseline { disk: args.profile(false), memory: args.memory, policy: disk.policy(&policies) },
        })
        .collect();
    let is_flash = |branch: &str| {
        let mut below = disks.iter().filter(|disk| disk.branches.iter().any(|name| name == branch)).peekable();
        below.peek().is_some() && below.all(|disk| disk.is_flash)
    };
    let config = commands::config_of(&client)?;
    let placement = placement::advise(&config, &branches, is_flash, &rotating, &simulator)?;
    let changes = changes(&reports);
    let mut report = PoolReport {
        pool: visible_path(&pool.mount),
        configuration: configuration::of_pool(&changes, rule_of(placement.as_ref()), judged(&reports)),
        disks: reports,
        left_out,
        placement,
        applied: None,
    };
    if let Some(applying) = applying {
        // What is asked about is shown before.
        if !args.json {
            crate::output::print(&text::of_pool(&report))?;
        }
        report.applied = Some(applying.apply(&client, &changes, rule_of(report.placement.as_ref()))?);
    }
    let said = if report.applied.is_some() && !args.json { String::new() } else { text::of_pool(&report) };
    let titled = report.disks.iter().filter_map(|disk| Some((disk.device.as_str(), disk.advice.as_ref()?)));
    let titled: Vec<_> = titled.collect();
    args.print_report(&report, &said, || page::of(&titled, &text::of_pool(&report)))?;
    Ok(ExitCode::SUCCESS)
}

/// What to set for a disk with that policy.
fn disk_report<'a>(
    args: &AdviseArgs,
    simulator: &Simulator,
    (disk, recording, policy): (&PoolDisk, &Recording, &str),
    records: impl Iterator<Item = &'a DecisionRecord>,
) -> anyhow::Result<DiskReport> {
    let mut advice = None;
    if recording.has_requests() {
        report!("{}:", disk.name);
        let mut report = simulator.report(std::slice::from_ref(recording), args.profile(disk.is_flash), policy)?;
        // The lines for branches and kernel are those of the whole pool.
        report.configuration = configuration::of_sleep(&report.sleep).into_iter().collect();
        advice = Some(report);
    }
    let best = advice.as_ref().and_then(|advice| advice.write_back.best.as_ref());
    let decisions = records.map(|record| record.decisions(best)).collect();
    Ok(DiskReport { device: disk.name.clone(), branches: disk.branches.clone(), advice, decisions })
}

/// The rule to set, as the configuration says it.
fn rule_of(placement: Option<&PlacementReport>) -> Option<&str> {
    placement.and_then(PlacementReport::best).map(|rule| rule.lines.as_str())
}

fn judged(reports: &[DiskReport]) -> impl Iterator<Item = &WriteBackAdvice> {
    reports.iter().filter_map(|disk| disk.advice.as_ref()).map(|advice| &advice.write_back)
}

/// The policy of each branch; none is the kernel's.
fn policies(client: &Client) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let Answer::WriteBack { branches } = client.call(&Request::WriteBackShow { branch: None })? else {
        return Err(ClientError::Unexpected.into());
    };
    Ok(branches.into_iter().map(|of| (of.branch, of.write_back.map(|status| status.policy))).collect())
}

/// The disks below the branches, and the branches that have none to record.
fn disks(branches: &[BranchStatus]) -> (Vec<PoolDisk>, Vec<LeftOut>) {
    let mut disks: Vec<PoolDisk> = Vec::new();
    let mut left_out = Vec::new();
    for branch in branches {
        let found = match disks_of(branch) {
            Ok(found) => found,
            Err(reason) => {
                left_out.push(LeftOut { branch: branch.name.clone(), reason });
                continue;
            }
        };
        for (name, device, is_flash) in found {
            match disks.iter_mut().find(|disk| disk.device == device) {
                Some(disk) => disk.branches.push(branch.name.clone()),
                None => disks.push(PoolDisk { name, device, is_flash, branches: vec![branch.name.clone()] }),
            }
        }
    }
    (disks, left_out)
}

/// The disks of a branch, or why there are none.
fn disks_of(branch: &BranchStatus) -> Result<Vec<(String, Device, bool)>, String> {
    if let BranchState::Offline { reason, .. } = &branch.state {
        return Err(format!("it is offline ({reason})"));
    }
    if branch.covered {
        return Err("it is hidden, so its disk is not visible".to_owned());
    }
    let storage = storage::inspect(&branch.path).map_err(|error| error.to_string())?;
    if storage.medium == Medium::Remote || storage.disks.is_empty() {
        return Err(format!("{} lies on no disk of this machine", storage.kind));
    }
    let device = |name: &String| {
        let device = Device::from_kernel_name(name).filter(|device| device.is_there());
        let device = device.ok_or_else(|| format!("the kernel knows no disk {name}"))?;
        Ok((name.clone(), device, device.is_flash()))
    };
    storage.disks.iter().map(device).collect()
}

/// The requests of the disks, and the decisions of the branches with a policy.
fn recorded(
    args: &AdviseArgs,
    client: &Client,
    disks: &[PoolDisk],
    policies: &BTreeMap<String, Option<String>>,
) -> anyhow::Result<(Vec<Recording>, Vec<DecisionRecord>)> {
    let mut records = Vec::new();
    for (number, (branch, policy)) in policies.iter().enumerate() {
        if policy.is_some() && disks.iter().any(|disk| disk.branches.contains(branch)) {
            match DecisionRecord::begin(client, branch, number) {
                Ok(record) => records.push(record),
                Err(error) => report!("umbrella: the decisions of branch {} are not recorded: {error}", quoted(branch)),
            }
        }
    }
    let devices: Vec<Device> = disks.iter().map(|disk| disk.device).collect();
    let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let order = record::Order {
        devices: &devices,
        time: args.time,
        most: u64::from(args.max_requests()),
        save: args.save.as_deref(),
        name: &names.join(", "),
    };
    let recordings = record::record(&order)?;
    for record in &mut records {
        if let Err(error) = record.end() {
            report!("umbrella: the record of the decisions of branch {} has no end: {error}", quoted(&record.branch));
        }
    }
    Ok((recordings, records))
}

/// A record of a branch's decisions, which the daemon writes; removed when it is dropped.
struct DecisionRecord {
    client: Client,
    branch: String,
    file: PathBuf,
    has_ended: bool,
}

impl DecisionRecord {
    /// As much as is decided again in seconds.
    const MOST: ByteSize = ByteSize(256 << 20);

    fn begin(client: &Client, branch: &str, number: usize) -> Result<DecisionRecord, ClientError> {
        let file = std::env::temp_dir().join(format!("umbrella-advise-{}-{number}.events", std::process::id()));
        let branch = branch.to_owned();
        let request = Request::WriteBackRecord { branch: branch.clone(), file: Some(file.clone()), most: Self::MOST };
        client.call(&request)?;
        Ok(DecisionRecord { client: client.clone(), branch, file, has_ended: false })
    }

    fn end(&mut self) -> Result<(), ClientError> {
        self.has_ended = true;
        let request = Request::WriteBackRecord { branch: self.branch.clone(), file: None, most: Self::MOST };
        self.client.call(&request).map(drop)
    }

    /// Makes the decisions again.
    fn decisions(&self, best: Option<&WriteBackFigures>) -> Decisions {
        let again =
            |other: Option<&str>| -> anyhow::Result<_> { Ok(replay(BufReader::new(File::open(&self.file)?), other)?) };
        match again(None) {
            Ok(recorded) => {
                let other = best.filter(|best| best.policy != recorded.recorded_by);
                let chosen = other.and_then(|best| again(Some(&best.policy)).ok());
                Decisions {
                    branch: self.branch.clone(),
                    policy: recorded.recorded_by,
                    error: None,
                    recorded: recorded.recorded,
                    advised: chosen.map(|chosen| Chosen { policy: chosen.policy, written: chosen.chosen }),
                }
            }
            Err(error) => Decisions {
                branch: self.branch.clone(),
                policy: String::new(),
                error: Some(crate::output::reasons(&error)),
                recorded: Written::default(),
                advised: None,
            },
        }
    }
}

impl Drop for DecisionRecord {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.end();
        }
        let _ = std::fs::remove_file(&self.file);
    }
}

/// What to set for each branch: none is the kernel's order. A branch whose disks want different settings keeps what it
/// has.
fn changes(reports: &[DiskReport]) -> Vec<(String, Option<WriteBackSpec>)> {
    let mut wanted: BTreeMap<&str, Vec<Option<&WriteBackFigures>>> = BTreeMap::new();
    for disk in reports {
        let Some(advice) = &disk.advice else { continue };
        for branch in &disk.branches {
            wanted.entry(branch).or_default().push(advice.write_back.best.as_ref());
        }
    }
    let same = |wanted: Vec<Option<&WriteBackFigures>>| {
        let first = wanted.first().copied().flatten()?;
        let is_same = |of: &WriteBackFigures| (of.memory, &of.policy) == (first.memory, &first.policy);
        wanted.iter().all(|of| of.is_some_and(is_same)).then(|| configuration::write_back_of(first))
    };
    wanted.into_iter().filter_map(|(branch, wanted)| Some((branch.to_owned(), same(wanted)?))).collect()
}
