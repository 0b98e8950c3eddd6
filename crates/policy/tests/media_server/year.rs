//! The pool: files on branches, moved where the rules say.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use umbrella_policy::heat::{Heat, Opens, Spending};
use umbrella_policy::natural_order;
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{
    BranchView, Choice, DirUsage, FileFacts, Leaving, Resident, Rules, Stage, Surroundings, Urgency,
};
use umbrella_units::{BranchId, ByteSize, Timestamp};

use crate::household::{BEFORE, DAY, DAYS, Event, events};
use crate::motors::Motor;
use crate::strategy::{BRANCHES, Strategy};

const SSD: BranchId = BranchId(0);
/// An SSD of 500 GB and disks of 4 TB, as `df` shows them.
const SSD_SIZE: u64 = 465 << 30;
const DISK_SIZE: u64 = 3725 << 30;
const MIN_FREE: u64 = 20 << 30;
/// Bytes a second of a download, and of a move.
const ARRIVES: u64 = 20 << 20;
const MOVES: u64 = 150 << 20;
/// As without `[heat]`.
const HALF_LIFE: Duration = Duration::from_secs(7 * DAY);
const MAX_MOVE: ByteSize = ByteSize(50 << 30);

/// What came of it. Only the last 365 days count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Year {
    pub(crate) moves: u64,
    pub(crate) bytes_moved: u64,
    /// The most moves of one file, with the years before.
    pub(crate) most_moves: u64,
    pub(crate) reads: u64,
    pub(crate) reads_from_ssd: u64,
    pub(crate) spin_ups: u64,
    pub(crate) spinning_secs: u64,
    /// Files that found no room.
    pub(crate) refused: u64,
}

struct File {
    branch: BranchId,
    size: u64,
    since: u64,
    moves: u64,
    heat: Heat,
    is_evicted: bool,
    is_opened: bool,
}

struct Pool {
    rules: Rules,
    files: BTreeMap<String, File>,
    free: [u64; BRANCHES.len()],
    held: HashMap<String, [DirUsage; BRANCHES.len()]>,
    motors: [Motor; BRANCHES.len()],
    spending: Spending,
    neighbours: usize,
    year: Year,
}

/// Lives through the years before and the one that counts.
pub(crate) fn simulate(strategy: &Strategy, seed: u64) -> Year {
    let ids: Vec<_> = BRANCHES.iter().zip(0..).map(|(name, id)| ((*name).to_owned(), BranchId(id))).collect();
    let mut free = [DISK_SIZE; BRANCHES.len()];
    free[SSD.index()] = SSD_SIZE;
    let mut pool = Pool {
        rules: Rules::compile(&strategy.rules, &ids).unwrap(),
        files: BTreeMap::new(),
        free,
        held: HashMap::new(),
        motors: [Motor::default(); BRANCHES.len()],
        spending: Spending::default(),
        neighbours: strategy.neighbours,
        year: Year::default(),
    };
    let mut events = events(seed).into_iter().peekable();
    for day in 0..(BEFORE / DAY + DAYS) {
        if day * DAY == BEFORE {
            pool.year = Year::default();
            pool.motors = [Motor::default(); BRANCHES.len()];
        }
        let night = day * DAY + 3 * 3600;
        while let Some((at, event)) = events.next_if(|(at, _)| *at < night) {
            pool.happens(at, event);
        }
        // Before the year a look every tenth night is enough.
        if strategy.walks && (day * DAY >= BEFORE || day % 10 == 0) {
            pool.walk(night);
        }
        pool.keep_level(night, true);
        while let Some((at, event)) = events.next_if(|(at, _)| *at < (day + 1) * DAY) {
            pool.happens(at, event);
        }
    }
    let disks = pool.motors.iter().skip(1);
    pool.year.spin_ups = disks.clone().map(|motor| motor.spin_ups).sum();
    pool.year.spinning_secs = disks.map(|motor| motor.spinning_secs).sum();
    pool.year
}

impl Pool {
    fn happens(&mut self, at: u64, event: Event) {
        match event {
            Event::Arrives { path, size } => {
                let Choice::Place(branch) = self.decide(&path, at, 0, None) else {
                    self.year.refused += 1;
                    return;
                };
                self.put(&path, branch, size);
                self.motors[branch.index()].used(at, size / ARRIVES);
                let heat = Heat::default();
                self.files.insert(
                    path,
                    File { branch, size, since: at, moves: 0, heat, is_evicted: false, is_opened: false },
                );
                self.keep_level(at, false);
            }
            Event::Read { path, secs } => {
                let Some(file) = self.files.get_mut(&path) else { return };
                file.heat = file.heat.opened(stamp(at), HALF_LIFE);
                file.is_opened = true;
                self.year.reads += 1;
                self.year.reads_from_ssd += u64::from(file.branch == SSD);
                self.motors[file.branch.index()].used(at, secs);
                self.closed(&path, at + secs);
            }
            Event::Deleted { path } => {
                let file = self.files.remove(&path).unwrap();
                self.take(&path, file.branch, file.size);
                self.motors[file.branch.index()].used(at, 1);
            }
        }
    }

    /// A file was read: it and the next ones of its directory may be so warm that they move.
    fn closed(&mut self, path: &str, at: u64) {
        let Some(from) = self.rules.warm_from() else { return };
        if self.files[path].heat.opens(stamp(at), HALF_LIFE) < from {
            return;
        }
        let dir = &path[..=path.rfind('/').unwrap()];
        let order = |a: &str, b: &str| natural_order(a.as_bytes(), b.as_bytes());
        let together = self.files.range(dir.to_owned()..).map(|(other, _)| other);
        let together = together.take_while(|other| other.starts_with(dir));
        let mut next: Vec<String> = together.filter(|other| order(other, path).is_gt()).cloned().collect();
        next.sort_by(|a, b| order(a, b));
        next.truncate(self.neighbours);
        for other in &next {
            let file = self.files.get_mut(other).unwrap();
            file.heat = file.heat.raised(from.plus(Opens::ONE), stamp(at), HALF_LIFE);
            file.is_opened = true;
        }
        for path in [path.to_owned()].into_iter().chain(next) {
            let file = &self.files[&path];
            let size = file.size;
            let Choice::Place(to) = self.decide(&path, at, size, Some(file)) else { continue };
            if self.spending.allows(stamp(at), MAX_MOVE) {
                self.spending = self.spending.spent(ByteSize(size), stamp(at), MAX_MOVE);
                self.go(&path, to, at, false);
            }
        }
    }

    /// The fill levels: in their hours, or below `min_free`.
    fn keep_level(&mut self, at: u64, in_hours: bool) {
        for evict in self.rules.evicts().to_vec() {
            let level = evict.level(&self.views()).unwrap();
            let Some(urgency) = evict.begins(level, in_hours) else { continue };
            let on_it = self.files.iter().filter(|(_, file)| evict.members.contains(&file.branch));
            let mut order: Vec<_> =
                on_it.map(|(path, file)| (evict.key(&facts(path, at, file.size, Some(file))), path.clone())).collect();
            order.sort();
            let mut now = at;
            for (_, path) in order {
                let views = self.views();
                if evict.excess(evict.level(&views).unwrap()).0 == 0 {
                    break;
                }
                let file = &self.files[&path];
                let facts = facts(&path, now, file.size, Some(file));
                let leaving = self.rules.leaving((&evict, urgency), &facts, &views, &resident(file), self);
                let Leaving::To(to) = leaving else { continue };
                let size = file.size;
                if matches!(evict.order, umbrella_policy::placement::spec::EvictOrder::Coldest)
                    && urgency == Urgency::Level
                {
                    if !self.spending.allows(stamp(now), MAX_MOVE) {
                        break;
                    }
                    self.spending = self.spending.spent(ByteSize(size), stamp(now), MAX_MOVE);
                }
                self.go(&path, to, now, true);
                now += size / MOVES;
            }
        }
    }

    fn go(&mut self, path: &str, to: BranchId, at: u64, is_evicted: bool) {
        let file = &self.files[path];
        let (from, size) = (file.branch, file.size);
        self.year.moves += 1;
        self.year.bytes_moved += size;
        self.take(path, from, size);
        self.put(path, to, size);
        let file = self.files.get_mut(path).unwrap();
        (file.branch, file.is_evicted) = (to, is_evicted);
        file.is_opened &= !is_evicted;
        file.moves += 1;
        self.year.most_moves = self.year.most_moves.max(file.moves);
        for branch in [from, to] {
            self.motors[branch.index()].used(at, size / MOVES);
        }
    }

    /// The enforcer looks at every file.
    fn walk(&mut self, at: u64) {
        for motor in &mut self.motors {
            motor.used(at, 60);
        }
        let mut now = at;
        for path in self.files.keys().cloned().collect::<Vec<_>>() {
            let file = &self.files[&path];
            let size = file.size;
            let Choice::Place(to) = self.decide(&path, now, size, Some(file)) else { continue };
            self.go(&path, to, now, false);
            now += size / MOVES;
        }
    }

    /// Where a file goes that is new, or lies there.
    fn decide(&self, path: &str, at: u64, size: u64, lies: Option<&File>) -> Choice {
        let resident = lies.map(resident);
        self.rules.decide(&facts(path, at, size, lies), &self.views(), resident.as_ref(), self).choice
    }

    fn views(&self) -> [BranchView; BRANCHES.len()] {
        let view = |index: usize| BranchView {
            online: true,
            writable: true,
            creates: true,
            total: ByteSize(if index == SSD.index() { SSD_SIZE } else { DISK_SIZE }),
            free: ByteSize(self.free[index]),
            min_free: ByteSize(MIN_FREE),
            inodes: None,
        };
        std::array::from_fn(view)
    }

    fn put(&mut self, path: &str, branch: BranchId, size: u64) {
        self.free[branch.index()] -= size;
        for dir in dirs(path) {
            let held = &mut self.held.entry(dir.to_owned()).or_default()[branch.index()];
            held.bytes.0 += size;
            held.files += 1;
        }
    }

    fn take(&mut self, path: &str, branch: BranchId, size: u64) {
        self.free[branch.index()] += size;
        for dir in dirs(path) {
            let held = &mut self.held.get_mut(dir).unwrap()[branch.index()];
            held.bytes.0 -= size;
            held.files -= 1;
        }
    }

    fn held(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        let held = std::str::from_utf8(dir).ok().and_then(|dir| self.held.get(dir));
        held.map_or_else(DirUsage::default, |held| held[branch.index()])
    }
}

fn stamp(secs: u64) -> Timestamp {
    Timestamp { secs: secs as i64, nanos: 0 }
}

fn resident(file: &File) -> Resident {
    let (is_evicted, is_opened) = (file.is_evicted, file.is_opened);
    Resident { branch: file.branch, since: None, min_stay: Duration::ZERO, is_evicted, is_opened }
}

fn facts<'p>(path: &'p str, at: u64, size: u64, lies: Option<&File>) -> FileFacts<'p> {
    let changed = stamp(lies.map_or(at, |file| file.since));
    FileFacts {
        path: path.as_bytes(),
        kind: FileKind::File,
        size: ByteSize(size),
        occupied: ByteSize(size),
        uid: 1000,
        gid: 1000,
        mode: 0o644,
        links: 1,
        atime: changed,
        mtime: changed,
        ctime: changed,
        btime: Some(changed),
        heat: lies.map_or(Opens(0), |file| file.heat.opens(stamp(at), HALF_LIFE)),
        now: stamp(at),
        stage: if lies.is_some() { Stage::Settled } else { Stage::New },
        xattrs: Some(&[]),
    }
}

/// All directories above a file.
fn dirs(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').skip(1).map(|(end, _)| &path[..end])
}

impl Surroundings for Pool {
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool {
        self.held(dir, branch).files > 0
    }

    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage {
        self.held(dir, branch)
    }

    fn last_used(&self, _: usize) -> Option<BranchId> {
        None
    }

    fn random_number(&self) -> u64 {
        0
    }
}
