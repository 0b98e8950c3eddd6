//! What only the real paths can tell: directories inside each other, missing mount points, odd sizes.
//!
//! Directories are compared by device and inode number as well as by name, so that a bind mount or a symbolic link
//! hides nothing. Each path is looked at in a thread of its own with a deadline: a hung branch delays the start, but
//! cannot stop it. So is the path of a staging area.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use serde::{Deserialize, Serialize};
use umbrella_fs::branch::cover::{self, Cover, is_covered};
use umbrella_fs::branch::{StateDir, identity_at};
use umbrella_fs::pool::staging_obstacle;
use umbrella_fs::spec::{StagingSpec, resolve};
use umbrella_units::{Amount, ByteSize};

use super::notice::{Notice, Reads, SpannedNotice, TIMEOUT};
use super::problem::{ConfigErrors, Located, Problem};
use super::seen::{Failure, Id, PathFacts};
use super::{Config, contradictions, suspicious_rules};
use crate::mounts::{self, PathLocality};
use crate::probe::{self, ProbeKind, Resolved};
use crate::text::quoted;

/// A smaller number of bytes is most likely a mistake.
const LEAST_MIN_FREE: u64 = 1 << 20;

/// Looks at every path of the pool; makes the mount point's path canonical.
pub(super) fn inspect_paths(config: &mut Config) -> Result<Vec<SpannedNotice>, ConfigErrors> {
    let mut paths: Vec<PathBuf> = config.spec.branches.iter().map(|branch| branch.path.clone()).collect();
    paths.push(config.spec.mount.clone());
    let mut seen = inspect_all(paths);
    let mount = seen.pop().unwrap_or_default();
    if let Some(errors) = ConfigErrors::all(&config.source, overlaps(config, &mount, &seen)) {
        return Err(errors);
    }
    let findings = findings(config, &mount, &seen);
    config.spec.mount = mount.resolved;
    Ok(findings)
}

fn inspect_all(paths: Vec<PathBuf>) -> Vec<PathFacts> {
    let deadline = Instant::now() + TIMEOUT;
    let waiting: Vec<_> = paths
        .into_iter()
        .map(|path| {
            let (sender, receiver) = mpsc::channel();
            let looked_at = path.clone();
            // A thread that hangs in the kernel would keep the process from ending: what may hang is looked at by
            // another process.
            let started = std::thread::Builder::new().spawn(move || {
                let seen = match mounts::locate(&looked_at) {
                    PathLocality::Here => Some(inspect(&looked_at)),
                    PathLocality::Away { path, .. } => probe::inspect_path(ProbeKind::See, &path, TIMEOUT),
                };
                if let Some(seen) = seen {
                    // The caller may have stopped waiting.
                    let _ = sender.send(seen);
                }
            });
            (path, started.map(|_| receiver))
        })
        .collect();
    waiting
        .into_iter()
        .map(|(path, started)| {
            let left = deadline.saturating_duration_since(Instant::now());
            let seen = match started {
                // The thread ends without a word when its file system is silent.
                Ok(receiver) => receiver.recv_timeout(left).map_err(|_| Failure::Silent),
                Err(error) => Err(Failure::Other(format!("cannot start a thread: {error}"))),
            };
            seen.unwrap_or_else(|failure| PathFacts { resolved: path, failure: Some(failure), ..PathFacts::default() })
        })
        .collect()
}

/// What a process that was started to look at a path tells.
pub(crate) fn probe_to_json(look: ProbeKind, path: &Path) -> serde_json::Result<String> {
    match look {
        ProbeKind::See => serde_json::to_string(&inspect(path)),
        ProbeKind::Resolve => serde_json::to_string(&Resolved { path: resolve(path) }),
        ProbeKind::VolatileStaging | ProbeKind::LastingStaging => serde_json::to_string(&StagingSeen::of(path, look)),
    }
}

fn inspect(path: &Path) -> PathFacts {
    let resolved = resolve(path);
    if is_covered(path) {
        // The pool is mounted, and has it.
        return PathFacts { resolved, directory: true, covered: true, ..PathFacts::default() };
    }
    let id = |path: &Path| std::fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    let mut seen = PathFacts { parents: resolved.ancestors().skip(1).filter_map(id).collect(), ..PathFacts::default() };
    match std::fs::metadata(path) {
        Ok(data) => {
            seen.id = Some((data.dev(), data.ino()));
            seen.directory = data.is_dir();
            seen.mount_root = is_mount_root(path);
            seen.identity = identity_at(path);
            let space = rustix::fs::statvfs(path).ok();
            seen.reads = space.as_ref().map(|space| Reads::of(space.f_flag)).unwrap_or_default();
            seen.total = space.map(|space| ByteSize(space.f_blocks.saturating_mul(space.f_frsize)));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => seen.failure = Some(Failure::Missing),
        Err(error) => seen.failure = Some(Failure::Other(error.to_string())),
    }
    PathFacts { resolved, ..seen }
}

fn is_not_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut names| names.next().is_some())
}

fn is_mount_root(path: &Path) -> bool {
    rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS)
        .is_ok_and(|data| data.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Branches inside each other, inside the mount point, or around it.
fn overlaps(config: &Config, mount: &PathFacts, branches: &[PathFacts]) -> Vec<Located> {
    let mut ids: HashMap<Id, usize> = HashMap::new();
    let mut paths: HashMap<&Path, usize> = HashMap::new();
    let mut errors = Vec::new();
    for (index, seen) in branches.iter().enumerate() {
        let twin = seen.id.and_then(|id| ids.get(&id)).or_else(|| paths.get(seen.resolved.as_path())).copied();
        if let Some(other) = twin.and_then(|twin| config.spec.branches.get(twin)) {
            report(config, index, &mut errors, |name, path| Problem::SameDirectory {
                name,
                path,
                other: other.name.clone(),
            });
            continue;
        }
        if let Some(id) = seen.id {
            ids.insert(id, index);
        }
        paths.insert(&seen.resolved, index);
    }
    // The innermost branch that holds a path, by identity or by name.
    let holder = |seen: &PathFacts| {
        let by_id = seen.parents.iter().find_map(|id| ids.get(id));
        by_id.or_else(|| seen.resolved.ancestors().skip(1).find_map(|path| paths.get(path))).copied()
    };
    for (index, seen) in branches.iter().enumerate() {
        if let Some(outer) = holder(seen).and_then(|outer| config.spec.branches.get(outer)) {
            report(config, index, &mut errors, |inner, inner_path| Problem::BranchInsideBranch {
                inner,
                inner_path,
                outer: outer.name.clone(),
                outer_path: outer.path.clone(),
            });
        }
        let same = mount.id.is_some_and(|id| seen.id == Some(id) || seen.parents.contains(&id));
        if same || seen.resolved.starts_with(&mount.resolved) {
            let mount = mount.resolved.clone();
            report(config, index, &mut errors, |name, path| Problem::BranchInsideMount { name, path, mount });
        }
    }
    if let Some(outer) = holder(mount).and_then(|outer| config.spec.branches.get(outer)) {
        let problem = Problem::MountInsideBranch {
            name: outer.name.clone(),
            path: outer.path.clone(),
            mount: mount.resolved.clone(),
        };
        errors.push(Located { problem, span: config.spans.mount.clone() });
    }
    // Programs that use it would bypass the pool.
    if let Some(mounted) = mounts::at(&mount.resolved).filter(|it| it.kind.starts_with("fuse") && !it.is_pool()) {
        let problem = Problem::MountTaken { mount: mount.resolved.clone(), kind: mounted.kind };
        errors.push(Located { problem, span: config.spans.mount.clone() });
    }
    errors.extend(staging_overlap(config, mount, branches));
    errors
}

/// A staging area inside a branch or the mount point, or around one.
fn staging_overlap(config: &Config, mount: &PathFacts, branches: &[PathFacts]) -> Option<Located> {
    let path = mounts::resolve(config.spec.staging.as_ref()?.path.as_ref()?);
    let overlaps = |seen: &PathFacts| path.starts_with(&seen.resolved) || seen.resolved.starts_with(&path);
    let branch = config.spec.branches.iter().zip(branches).find(|(_, seen)| overlaps(seen));
    let other = match branch {
        Some((branch, _)) => format!("the branch {}", quoted(&branch.name)),
        None if overlaps(mount) => "the mount point".to_owned(),
        None => return None,
    };
    Some(Located { problem: Problem::StagingOverlaps { path, other }, span: config.spans.staging.clone() })
}

fn report(config: &Config, index: usize, errors: &mut Vec<Located>, problem: impl FnOnce(String, PathBuf) -> Problem) {
    let Some(branch) = config.spec.branches.get(index) else { return };
    let span = config.spans.branches.get(index).cloned().unwrap_or_default();
    errors.push(Located { problem: problem(branch.name.clone(), branch.path.clone()), span });
}

fn findings(config: &Config, mount: &PathFacts, seen: &[PathFacts]) -> Vec<SpannedNotice> {
    let mut findings = Vec::new();
    let at_mount = |notice| SpannedNotice { span: config.spans.mount.clone(), notice };
    match &mount.failure {
        Some(Failure::Missing) => findings.push(at_mount(Notice::MountMissing { mount: mount.resolved.clone() })),
        None if !mount.directory => {
            findings.push(at_mount(Notice::MountNotDirectory { mount: mount.resolved.clone() }));
        }
        None if !mounts::may_hang(&mount.resolved) && is_not_empty(&mount.resolved) => {
            findings.push(at_mount(Notice::MountNotEmpty { mount: mount.resolved.clone() }));
        }
        _ => {}
    }
    let known = StateDir::remembered(&crate::pool::state_dir(&mount.resolved), &mount.resolved);
    let covers = if seen.iter().any(|seen| seen.covered) { cover::all() } else { Vec::new() };
    let mut devices: HashMap<u64, &str> = HashMap::new();
    for ((branch, seen), span) in config.spec.branches.iter().zip(seen).zip(&config.spans.branches) {
        let past = match known.get(&branch.name) {
            None => PathHistory::New,
            Some(known) if known.was_mount => PathHistory::Mount,
            Some(_) => PathHistory::Directory,
        };
        if let Amount::Bytes(min_free) = branch.min_free
            && (1..LEAST_MIN_FREE).contains(&min_free.0)
        {
            let notice = Notice::MinFreeTiny { name: branch.name.clone(), min_free };
            findings.push(SpannedNotice { span: span.clone(), notice });
        }
        if seen.covered {
            let hides = |cover: &&Cover| cover.path == seen.resolved && crate::pool::is_leftover(cover);
            if let Some(cover) = covers.iter().find(hides) {
                let (name, path, mount) = (branch.name.clone(), branch.path.clone(), cover.pool.clone());
                findings.push(SpannedNotice { span: span.clone(), notice: Notice::LeftHidden { name, path, mount } });
            }
            continue;
        }
        let other_disk = known.get(&branch.name).is_some_and(|known| {
            let there = seen.failure.is_none() && (seen.mount_root || !known.was_mount);
            known.has_marker && there && seen.identity != Some(known.uuid)
        });
        let is_listed =
            |name: &String| config.spec.branches.iter().any(|it| it.name == *name && it.name != branch.name);
        let of_another = known.iter().find(|(name, known)| is_listed(name) && Some(known.uuid) == seen.identity);
        let (name, path) = (branch.name.clone(), branch.path.clone());
        let config = config.source.name().to_owned();
        if let Some(theirs) = of_another.map(|(theirs, _)| theirs.clone()) {
            findings.push(SpannedNotice { span: span.clone(), notice: Notice::DiskOfAnother { name, path, theirs } });
        } else if other_disk {
            findings.push(SpannedNotice { span: span.clone(), notice: Notice::OtherDisk { name, path, config } });
        }
        for notice in branch_notices(branch, seen, past) {
            findings.push(SpannedNotice { span: span.clone(), notice });
        }
        // What is offline lies on no file system of its own: a mount point without its disk, on the one below.
        let offline = findings.iter().any(|finding| finding.missing_branch() == Some(&branch.name));
        let Some((device, _)) = seen.id.filter(|_| !offline) else { continue };
        if let Some(first) = devices.get(&device) {
            let notice = Notice::SameFileSystem { first: (*first).to_owned(), second: branch.name.clone() };
            findings.push(SpannedNotice { span: span.clone(), notice });
        } else {
            devices.insert(device, &branch.name);
        }
    }
    findings.extend(suspicious_rules::findings(config));
    findings.extend(contradictions::findings(config));
    findings.extend(suspicious_rules::idle_evicts(config));
    findings.extend(suspicious_rules::unnoted_reads(config, seen));
    findings.extend(staging_finding(config));
    findings.sort_by_key(|finding| finding.span.start);
    findings
}

/// What the pool remembers of a branch's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathHistory {
    /// Nothing: it was never used.
    New,
    /// It was a mount point when it was first used.
    Mount,
    /// It was none.
    Directory,
}

fn branch_notices(branch: &umbrella_fs::spec::BranchSpec, seen: &PathFacts, past: PathHistory) -> Vec<Notice> {
    let (name, path) = (branch.name.clone(), branch.path.clone());
    match &seen.failure {
        Some(Failure::Missing) => {
            return vec![Notice::BranchMissing { name, path, optional: branch.optional }];
        }
        Some(Failure::Silent) => return vec![Notice::BranchSilent { name, path }],
        Some(Failure::Other(reason)) => {
            return vec![Notice::BranchUnreadable { name, path, reason: reason.clone() }];
        }
        None if !seen.directory => return vec![Notice::BranchNotDirectory { name, path }],
        None => {}
    }
    let mut notices = Vec::new();
    if !seen.mount_root {
        match branch.require_mount {
            Some(true) => notices.push(Notice::NotMounted { name: name.clone(), path }),
            Some(false) => {}
            None => notices.push(match past {
                PathHistory::New => Notice::PlainAtFirst { name: name.clone(), path },
                PathHistory::Mount => Notice::NoLongerMounted { name: name.clone(), path },
                PathHistory::Directory => Notice::PlainDirectory { name: name.clone(), path },
            }),
        }
    }
    let Some(total) = seen.total else { return notices };
    let min_free = branch.min_free.of(total);
    if total.0 > 0 && min_free >= total {
        notices.push(Notice::MinFreeTooLarge { name: name.clone(), min_free: branch.min_free, total });
    }
    if let Some(headroom) = branch.headroom.map(|headroom| headroom.of(total)).filter(|headroom| *headroom < min_free) {
        notices.push(Notice::HeadroomBelowMinFree { name, headroom, min_free });
    }
    notices
}

fn staging_finding(config: &Config) -> Option<SpannedNotice> {
    let staging = config.spec.staging.as_ref()?;
    let path = staging.path.clone()?;
    let look = if staging.volatile { ProbeKind::VolatileStaging } else { ProbeKind::LastingStaging };
    let seen = match mounts::locate(&path) {
        PathLocality::Here => StagingSeen::of(&path, look),
        PathLocality::Away { path, .. } => probe::inspect_path(look, &path, TIMEOUT).unwrap_or_else(|| {
            let silence = mounts::describe_unresponsive(&path).unwrap_or_else(|| "cannot be checked".to_owned());
            StagingSeen { unusable_reason: Some(format!("it {silence}")), is_on_disk: false }
        }),
    };
    let notice = match seen {
        StagingSeen { unusable_reason: Some(reason), .. } => Notice::Staging { path, reason },
        StagingSeen { is_on_disk: true, .. } => Notice::StagingOnDisk { path },
        StagingSeen { .. } => return None,
    };
    Some(SpannedNotice { span: config.spans.staging.clone(), notice })
}

/// What was seen of the path of a staging area.
#[derive(Debug, Serialize, Deserialize)]
struct StagingSeen {
    unusable_reason: Option<String>,
    is_on_disk: bool,
}

impl StagingSeen {
    fn of(path: &Path, look: ProbeKind) -> StagingSeen {
        let volatile = look == ProbeKind::VolatileStaging;
        let spec = StagingSpec { path: Some(path.to_owned()), volatile, ..StagingSpec::default() };
        let is_on_disk = !volatile && device_of(path).is_some_and(|device| is_disk(&device));
        StagingSeen { unusable_reason: staging_obstacle(&spec), is_on_disk }
    }
}

/// The directory in sysfs of the device that a path lies on.
fn device_of(path: &Path) -> Option<PathBuf> {
    let device = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// Whether the device, or the one that it is a partition of, is known to be no persistent memory, which programs can
/// map (DAX).
pub(super) fn is_disk(device: &Path) -> bool {
    let tells = |device: &Path| std::fs::read_to_string(device.join("queue/dax")).ok();
    tells(device).or_else(|| tells(device.parent()?)).is_some_and(|dax| dax.trim() == "0")
}
