//! Which files of a pool would gain most from its flash.
//!
//! Steps:
//!
//! 1. Each file on a disk with a motor is shown to the rules of the pool with one more rule behind them. The rules
//!    decide as they do live.
//! 2. Each recorded request is assigned to the file that lies at its place.
//! 3. [`umbrella_lab::advice::placement`] says what each rule gains.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use umbrella_fs::branch::{BranchState, BranchStatus};
use umbrella_lab::advice::placement::{self, Wanted};
use umbrella_lab::advice::write_back::Baseline;
use umbrella_lab::advice::{Recording, Samples};
use umbrella_policy::heat::Opens;
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{BranchView, EntryId, FileFacts, Rules, Stage};
use umbrella_units::{BranchId, ByteSize, PAGE_BYTES, SECTOR_BYTES, Timestamp};

use super::simulate::Simulator;
use crate::commands::block_trace::Device;
use crate::config::{self, Config};
use crate::text::{count, quoted};

/// More files are not looked at.
const MOST_FILES: u64 = 1_000_000;

/// The rules that are tried: a name and a condition.
const TRIED: [(&str, &str); 6] = [
    ("files up to 64 KiB", "size = \"<= 64KiB\""),
    ("files up to 1 MiB", "size = \"<= 1MiB\""),
    ("files up to 16 MiB", "size = \"<= 16MiB\""),
    ("files changed in the last day", "mtime = \"< 1d\""),
    ("files changed in the last 7 days", "mtime = \"< 7d\""),
    ("files changed in the last 30 days", "mtime = \"< 30d\""),
];

/// What rules would gain.
#[derive(Debug, Serialize)]
pub(super) struct PlacementReport {
    /// The branch on flash.
    pub(super) flash: String,
    /// Files that were looked at, on branches with a motor.
    pub(super) files: u64,
    /// What they occupy.
    pub(super) bytes: ByteSize,
    /// Whether there are more.
    pub(super) is_cut: bool,
    /// Requests to disks with a motor.
    pub(super) requests: u64,
    /// The requests among them whose file was found.
    pub(super) of_files: u64,
    /// How long programs waited without a rule.
    pub(super) today: Samples,
    pub(super) tried: Vec<RuleFigures>,
    /// The name of the one to set; none where nothing is gained.
    pub(super) best: Option<String>,
}

/// What a rule would bring to the flash.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RuleFigures {
    pub(super) name: String,
    /// The rule for the configuration.
    pub(super) lines: String,
    pub(super) files: u64,
    pub(super) bytes: ByteSize,
    pub(super) requests: u64,
    /// Whether the flash has room for these files.
    pub(super) fits: bool,
    /// How long programs waited; none where they do not fit.
    pub(super) waited_s: Option<Samples>,
}

impl PlacementReport {
    /// The rule to set.
    pub(super) fn best(&self) -> Option<&RuleFigures> {
        self.tried.iter().find(|rule| Some(&rule.name) == self.best.as_ref())
    }
}

/// A disk with a motor, and what it was asked for.
pub(super) struct Rotating<'a> {
    pub(super) device: Device,
    pub(super) branches: &'a [String],
    pub(super) recording: &'a Recording,
    pub(super) today: Baseline<'a>,
}

/// A rule behind the pool's own.
struct Candidate {
    name: &'static str,
    lines: String,
    rules: Rules,
    entry: EntryId,
}

/// What a disk was asked for, by place.
struct Requests {
    /// First byte, end, number; in order.
    places: Vec<(u64, u64, usize)>,
    longest: u64,
    wanted: Vec<Wanted>,
    is_of_file: Vec<bool>,
}

impl Requests {
    fn of(recording: &Recording) -> Requests {
        let columns = &recording.columns;
        let each = columns.offsets.iter().zip(&columns.sizes).enumerate();
        let mut places: Vec<_> = each.map(|(at, (offset, size))| (*offset, offset.saturating_add(*size), at)).collect();
        places.sort_unstable();
        let longest = columns.sizes.iter().copied().max().unwrap_or(0);
        Requests { longest, wanted: vec![0; places.len()], is_of_file: vec![false; places.len()], places }
    }

    /// Assigns what reaches into these bytes to a file that these rules want.
    fn assign(&mut self, start: u64, end: u64, wanted: Wanted) {
        let first = self.places.partition_point(|(offset, ..)| offset.saturating_add(self.longest) <= start);
        for &(offset, until, number) in self.places.get(first..).unwrap_or_default() {
            if offset >= end {
                break;
            }
            if until > start {
                self.wanted[number] |= wanted;
                self.is_of_file[number] = true;
            }
        }
    }
}

/// What rules gain; none where the pool has no flash or nothing with a motor was asked for anything.
pub(super) fn advise(
    config: &Path,
    branches: &[BranchStatus],
    is_flash: impl Fn(&str) -> bool,
    disks: &[Rotating<'_>],
    simulator: &Simulator,
) -> anyhow::Result<Option<PlacementReport>> {
    let takes = |branch: &&BranchStatus| {
        branch.state == BranchState::Online && branch.create && !branch.read_only && !branch.draining
    };
    let room = |branch: &BranchStatus| branch.free.0.saturating_sub(branch.min_free.0);
    let flashes = branches.iter().filter(takes).filter(|branch| is_flash(&branch.name));
    let Some(flash) = flashes.max_by_key(|branch| room(branch)) else { return Ok(None) };
    if disks.is_empty() {
        return Ok(None);
    }
    let config = config::read(config)?;
    let candidates = candidates(&config, &flash.name);
    let views = views(&config, branches);
    let mut figures: Vec<(u64, u64)> = vec![(0, 0); candidates.len()];
    let mut walk = SeenFiles { files: 0, bytes: 0, seen: BTreeSet::new() };
    let mut requests: Vec<Requests> = disks.iter().map(|disk| Requests::of(disk.recording)).collect();
    for (disk, requests) in disks.iter().zip(&mut requests) {
        for branch in branches.iter().filter(|branch| disk.branches.contains(&branch.name)) {
            report!("looking at the files of branch {}", quoted(&branch.name));
            walk.branch(simulator, &branch.path, &mut |path, data| {
                let wanted = choose_places(&candidates, &views, &facts(path, data));
                for (number, (files, bytes)) in figures.iter_mut().enumerate() {
                    if wanted >> number & 1 == 1 {
                        (*files, *bytes) = (*files + 1, *bytes + data.blocks() * 512);
                    }
                }
                let on_branch = branch.path.join(path.strip_prefix("/").unwrap_or(path));
                for (start, end) in places(&on_branch, data, disk.device) {
                    requests.assign(start, end, wanted);
                }
            })?;
        }
    }
    let mut runs = Vec::new();
    for (disk, requests) in disks.iter().zip(&requests) {
        runs.extend(placement::plan(disk.recording, &requests.wanted, candidates.len(), disk.today)?);
    }
    let (runs, cells): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    report!("placement: {}", count(cells.len() as u64, "run"));
    let outcomes = simulator.outcomes(&cells)?;
    let runs: Vec<_> = runs.into_iter().zip(outcomes).collect();
    let (today, waited) = placement::evaluate(&runs, candidates.len());
    let tried: Vec<RuleFigures> = candidates
        .iter()
        .enumerate()
        .map(|(number, candidate)| {
            let (files, bytes) = figures.get(number).copied().unwrap_or_default();
            let fits = bytes <= room(flash);
            RuleFigures {
                name: candidate.name.to_owned(),
                lines: candidate.lines.clone(),
                files,
                bytes: ByteSize(bytes),
                requests: requests.iter().flat_map(|of| &of.wanted).filter(|of| **of >> number & 1 == 1).count() as u64,
                fits,
                waited_s: waited.get(number).copied().filter(|_| fits),
            }
        })
        .collect();
    let figures: Vec<_> = tried.iter().map(|rule| Some((rule.waited_s?, rule.bytes))).collect();
    let best = placement::best(&today, &figures).and_then(|number| tried.get(number)).map(|rule| rule.name.clone());
    Ok(Some(PlacementReport {
        flash: flash.name.clone(),
        files: walk.files,
        bytes: ByteSize(walk.bytes),
        is_cut: walk.files == MOST_FILES,
        requests: requests.iter().map(|of| of.wanted.len() as u64).sum(),
        of_files: requests.iter().flat_map(|of| &of.is_of_file).filter(|is| **is).count() as u64,
        today,
        tried,
        best,
    }))
}

/// The rules that the configuration takes behind its own.
fn candidates(config: &Config, flash: &str) -> Vec<Candidate> {
    let names = config.spec.branches.iter().map(|branch| branch.name.clone());
    let ids: Vec<(String, BranchId)> = names.zip((0..=u16::MAX).map(BranchId)).collect();
    let candidate = |&(name, when): &(&'static str, &str)| {
        let lines = format!("[[rule]]\nname = {name:?}\nwhen = {{ {when} }}\nto = [{flash:?}, \"default\"]\n");
        let text = format!("{}\n{lines}", config.source.text());
        let spec = config::parse(Path::new("pool.toml"), text.into_bytes()).ok()?.spec;
        let rules = Rules::compile(&spec.rules, &ids).ok()?;
        let entry = (0..rules.entries().len()).find(|place| rules.entries()[*place].name == name)?;
        Some(Candidate { name, lines, entry: EntryId(u32::try_from(entry).ok()?), rules })
    };
    TRIED.iter().filter_map(candidate).collect()
}

/// The branches in the order of the configuration.
fn views(config: &Config, branches: &[BranchStatus]) -> Vec<BranchView> {
    let view = |name: &str| {
        let status = branches.iter().find(|status| status.name == name);
        let size = |of: fn(&BranchStatus) -> ByteSize| status.map_or(ByteSize(0), of);
        BranchView {
            online: status.is_some_and(|status| status.state == BranchState::Online),
            writable: status.is_some_and(|status| !status.read_only && !status.draining),
            creates: status.is_some_and(|status| status.create),
            total: size(|status| status.total),
            free: size(|status| status.free),
            min_free: size(|status| status.min_free),
            inodes: None,
        }
    };
    config.spec.branches.iter().map(|branch| view(&branch.name)).collect()
}

/// The candidates whose rules place the file, as a bit set.
fn choose_places(candidates: &[Candidate], views: &[BranchView], facts: &FileFacts<'_>) -> Wanted {
    let decides = |of: &Candidate| of.rules.deciding_entry(facts, views, None) == of.entry;
    let each = candidates.iter().enumerate().filter(|(_, candidate)| decides(candidate));
    each.fold(0, |wanted, (number, _)| wanted | 1 << number)
}

/// What the rules look at. Heat and extended attributes are not known here.
fn facts<'a>(path: &'a Path, data: &Metadata) -> FileFacts<'a> {
    let time = |secs: i64, nanos: i64| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    FileFacts {
        path: path.as_os_str().as_bytes(),
        kind: FileKind::File,
        size: ByteSize(data.size()),
        occupied: ByteSize(data.blocks() * 512),
        uid: data.uid(),
        gid: data.gid(),
        mode: data.mode() & 0o7777,
        links: u32::try_from(data.nlink()).unwrap_or(u32::MAX),
        atime: time(data.atime(), data.atime_nsec()),
        mtime: time(data.mtime(), data.mtime_nsec()),
        ctime: time(data.ctime(), data.ctime_nsec()),
        btime: None,
        heat: Opens::default(),
        now: time(i64::try_from(now.as_secs()).unwrap_or(i64::MAX), i64::from(now.subsec_nanos())),
        stage: Stage::Settled,
        xattrs: None,
    }
}

/// Where a file lies on the disk, in bytes; nothing where that cannot be said.
fn places(file: &Path, data: &Metadata, disk: Device) -> Vec<(u64, u64)> {
    let Some(start) = disk.start_of(data.dev()) else { return Vec::new() };
    let open =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOATIME).open(file);
    let extents = open.and_then(|open| umbrella_writeback::extents(open.as_fd())).unwrap_or_default();
    let bytes = |block: u64| block.saturating_mul(PAGE_BYTES).saturating_add(start * SECTOR_BYTES);
    extents.iter().map(|of| (bytes(of.start.0), bytes(of.start.0.saturating_add(of.blocks)))).collect()
}

/// Files that were seen.
struct SeenFiles {
    files: u64,
    bytes: u64,
    /// Those with several names.
    seen: BTreeSet<(u64, u64)>,
}

impl SeenFiles {
    /// Shows each regular file of a branch once, by its path in the pool.
    fn branch(
        &mut self,
        simulator: &Simulator,
        root: &Path,
        show: &mut dyn FnMut(&Path, &Metadata),
    ) -> anyhow::Result<()> {
        let device = fs::metadata(root)?.dev();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            simulator.check()?;
            // What cannot be read is not counted.
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Ok(data) = entry.metadata() else { continue };
                let path: PathBuf = entry.path();
                let is_ours = folder == root && entry.file_name().as_bytes().starts_with(b".umbrella");
                if data.dev() != device || is_ours {
                    continue;
                }
                if data.is_dir() {
                    folders.push(path);
                } else if data.is_file() && (data.nlink() == 1 || self.seen.insert((data.dev(), data.ino()))) {
                    if self.files == MOST_FILES {
                        return Ok(());
                    }
                    self.files += 1;
                    self.bytes += data.blocks() * 512;
                    show(&Path::new("/").join(path.strip_prefix(root).unwrap_or(&path)), &data);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use umbrella_lab::trace::{Columns, Skipped};

    use super::*;

    #[test]
    fn requests_go_to_the_files_at_their_places() {
        let columns = Columns {
            times: vec![0; 4],
            devices: vec![0; 4],
            ops: vec![1; 4],
            offsets: vec![8192, 0, 4096, 40_960],
            sizes: vec![4096, 65_536, 4096, 4096],
            ..Columns::default()
        };
        let skipped = Skipped::default();
        let recording = Recording { name: String::new(), columns: Arc::new(columns), is_cut: false, skipped };
        let mut requests = Requests::of(&recording);
        requests.assign(8192, 12_288, 0b01);
        requests.assign(12_288, 16_384, 0b10);
        requests.assign(4096, 8192, 0);
        assert_eq!(requests.wanted, [0b01, 0b11, 0, 0]);
        assert_eq!(requests.is_of_file, [true, true, true, false]);
    }

    fn pool(rules: &str) -> Config {
        let text = "mount = \"/pool\"\ndefault = \"hdd\"\n[[branch]]\nname = \"hdd\"\npath = \"/mnt/hdd\"\n[[branch]]\n\
                    name = \"ssd\"\npath = \"/mnt/ssd\"\n";
        config::parse(Path::new("pool.toml"), format!("{text}{rules}").into_bytes()).expect("a configuration")
    }

    #[test]
    fn a_rule_of_the_pool_goes_before_those_that_are_tried() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a");
        fs::write(&file, "text").expect("a file");
        let data = fs::metadata(&file).expect("it is there");
        let wanted_by = |config: &Config, path: &str| {
            let candidates = candidates(config, "ssd");
            assert_eq!(candidates.len(), TRIED.len());
            choose_places(&candidates, &views(config, &[]), &facts(Path::new(path), &data))
        };
        assert_eq!(wanted_by(&pool(""), "/films/a"), 0b11_1111, "it is small and young");
        let own = pool("[[rule]]\nwhen = { path = \"/films/**\" }\nto = \"hdd\"\n");
        assert_eq!((wanted_by(&own, "/films/a"), wanted_by(&own, "/a")), (0, 0b11_1111));
    }
}
