//! What a balance can move: files by themselves, and the files that members hold of directories that are kept together.
//!
//! Large pools have many millions of files, so a file by itself takes one entry in two plain lists. The set of members
//! that a file may be on is shared by all files with the same set.

use rustc_hash::FxHashMap;
use umbrella_units::ByteSize;

use super::{BalanceRequest, Member, Unit, plan};

/// All that is found on the members of a group. `F` names a file by itself.
#[derive(Debug)]
pub struct Inventory<F> {
    units: Vec<Unit>,
    /// Files by themselves, and their units.
    files: Vec<(F, usize)>,
    /// By directory that is kept together, and member.
    dirs: FxHashMap<(Box<[u8]>, usize), usize>,
    /// Units that are part of another, which may be part of a third.
    joined: FxHashMap<usize, usize>,
    /// Lists of members. The first has all.
    classes: Vec<Vec<usize>>,
    class_of: FxHashMap<Vec<usize>, usize>,
}

/// A file as it was found.
#[derive(Debug, Clone, Copy)]
pub struct InventoryFile<'a> {
    /// The member that has it.
    pub on: usize,
    /// Members that it may be on.
    pub may_be_on: &'a [usize],
    /// What it occupies.
    pub bytes: ByteSize,
}

/// Where the files go.
#[derive(Debug)]
pub struct Moves<F> {
    /// Files by themselves, in order.
    files: Vec<(F, usize)>,
    dirs: FxHashMap<(Box<[u8]>, usize), usize>,
    /// Bytes that move.
    pub bytes: ByteSize,
    /// Bytes in use on each member at the end.
    pub used: Vec<ByteSize>,
}

impl<F> Inventory<F> {
    /// Empty, for this number of members.
    #[must_use]
    pub fn new(members: usize) -> Inventory<F> {
        let all: Vec<usize> = (0..members).collect();
        Inventory {
            units: Vec::new(),
            files: Vec::new(),
            dirs: FxHashMap::default(),
            joined: FxHashMap::default(),
            classes: vec![all.clone()],
            class_of: FxHashMap::from_iter([(all, 0)]),
        }
    }

    /// Notes a file; `dirs` are the directories that are kept together and have a name of it.
    pub fn note(&mut self, file: F, found: InventoryFile<'_>, dirs: impl IntoIterator<Item = Box<[u8]>>) {
        let mut of_dirs = dirs.into_iter();
        let unit = if let Some(first) = of_dirs.next() {
            let first = self.unit_of_dir(first, found.on);
            for other in of_dirs {
                let other = self.unit_of_dir(other, found.on);
                self.join(first, other);
            }
            self.root(first)
        } else {
            let unit = self.new_unit(found.on);
            self.files.push((file, unit));
            unit
        };
        if let Some(unit) = self.units.get_mut(unit) {
            unit.bytes.0 = unit.bytes.0.saturating_add(found.bytes.0);
            unit.files += 1;
        }
        self.narrow(unit, |member| found.may_be_on.contains(&member));
    }

    fn unit_of_dir(&mut self, dir: Box<[u8]>, on: usize) -> usize {
        let next = self.units.len();
        let unit = *self.dirs.entry((dir, on)).or_insert(next);
        if unit == next { self.new_unit(on) } else { unit }
    }

    /// One that could be on every member, as far as is known yet.
    fn new_unit(&mut self, on: usize) -> usize {
        self.units.push(Unit { on, bytes: ByteSize(0), files: 0, class: 0 });
        self.units.len() - 1
    }

    fn root(&self, unit: usize) -> usize {
        std::iter::successors(Some(unit), |unit| self.joined.get(unit).copied()).last().unwrap_or(unit)
    }

    /// Two directories share a file: they move together.
    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return;
        }
        let Some(unit) = self.units.get_mut(other) else { return };
        let joined = Unit { bytes: std::mem::take(&mut unit.bytes), files: std::mem::take(&mut unit.files), ..*unit };
        self.joined.insert(other, one);
        if let Some(unit) = self.units.get_mut(one) {
            unit.bytes.0 = unit.bytes.0.saturating_add(joined.bytes.0);
            unit.files += joined.files;
        }
        let may_be_on = self.may_be_on(joined.class).to_vec();
        self.narrow(one, |member| may_be_on.contains(&member));
    }

    fn may_be_on(&self, class: usize) -> &[usize] {
        self.classes.get(class).map_or(&[], Vec::as_slice)
    }

    /// Limits a unit to those of its members that may stay.
    fn narrow(&mut self, unit: usize, stays: impl Fn(usize) -> bool) {
        let Some(class) = self.units.get(unit).map(|unit| unit.class) else { return };
        let members = self.may_be_on(class);
        if members.iter().all(|member| stays(*member)) {
            return;
        }
        let members: Vec<usize> = members.iter().copied().filter(|member| stays(*member)).collect();
        let next = self.classes.len();
        let class = *self.class_of.entry(members).or_insert_with_key(|members| {
            self.classes.push(members.clone());
            next
        });
        if let Some(unit) = self.units.get_mut(unit) {
            unit.class = class;
        }
    }

    /// What is split may only come together: the rest goes to the member that holds most.
    fn gather_split(&mut self) {
        let mut holders: FxHashMap<&[u8], Vec<(u64, usize)>> = FxHashMap::default();
        for ((dir, _), unit) in &self.dirs {
            let root = self.root(*unit);
            let bytes = self.units.get(root).map_or(0, |unit| unit.bytes.0);
            holders.entry(dir).or_default().push((bytes, root));
        }
        let mut only = Vec::new();
        for holders in holders.into_values().filter(|holders| holders.len() > 1) {
            let most = holders.iter().max_by_key(|(bytes, unit)| (*bytes, std::cmp::Reverse(*unit)));
            let target = most.and_then(|(_, unit)| self.units.get(*unit)).map(|unit| unit.on);
            only.extend(holders.iter().map(|(_, unit)| (*unit, target)));
        }
        for (unit, target) in only {
            self.narrow(unit, |member| Some(member) == target);
        }
    }

    /// Says what to move. `within`: how far apart the used shares may be, in thousandths of a percent.
    #[must_use]
    pub fn plan(mut self, members: &[Member], within: u32) -> Moves<F>
    where
        F: Ord,
    {
        self.gather_split();
        let plan = plan(&BalanceRequest { members, units: &self.units, classes: &self.classes, within });
        let moved = plan.moves.iter().filter_map(|next| self.units.get(next.unit));
        let bytes = ByteSize(moved.map(|unit| unit.bytes.0).sum());
        let mut to: Vec<Option<usize>> = vec![None; self.units.len()];
        for next in &plan.moves {
            if let Some(to) = to.get_mut(next.unit) {
                *to = Some(next.to);
            }
        }
        let files = std::mem::take(&mut self.files).into_iter();
        let target = |unit: usize| to.get(self.root(unit)).copied().flatten();
        let mut files: Vec<(F, usize)> = files.filter_map(|(file, unit)| Some((file, target(unit)?))).collect();
        files.sort_unstable();
        let dirs = self.dirs.iter().filter_map(|(dir, unit)| Some((dir.clone(), target(*unit)?))).collect();
        Moves { files, dirs, bytes, used: plan.used }
    }
}

impl<F: Ord> Moves<F> {
    /// Where a file goes that a member has.
    pub fn target_of(&self, file: &F, on: usize, dirs: impl IntoIterator<Item = Box<[u8]>>) -> Option<usize> {
        let found = self.files.binary_search_by(|(known, _)| known.cmp(file));
        let itself = found.ok().and_then(|at| self.files.get(at)).map(|(_, to)| *to);
        itself.or_else(|| dirs.into_iter().find_map(|dir| self.dirs.get(&(dir, on)).copied()))
    }
}
