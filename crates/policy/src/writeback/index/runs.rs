//! A set of positions (blocks of a disk, pages of a file), kept as maximal runs in ascending order.
//!
//! Runs lie in leaves of at most [`FULL`], leaves in groups of at most [`FULL`], groups in one vector: a search is three
//! binary searches, a change moves at most a leaf's runs. A run costs eight bytes: its length, and its distance from the
//! first run of its leaf (a leaf never spans more than 2^32 positions). Each leaf and group knows the length of its
//! longest run, so that the longest of all is found without an order of its own. A set may be cut: then no run crosses
//! a multiple of the cut (the zones of WASL).

/// Runs of a leaf, and leaves of a group.
const FULL: usize = 64;
/// A leaf or group with fewer is joined with a neighbour when both fit well.
const FEW: usize = 16;
/// How full a joined leaf or group may be.
const WELL_FULL: usize = 48;
/// A leaf's room grows by so many runs.
const ROOM: usize = 8;

/// Adjacent positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Run {
    pub(super) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// The runs that a new position joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) left: Option<Run>,
    pub(super) right: Option<Run>,
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    offset: u32,
    len: u32,
}

#[derive(Debug)]
struct Leaf {
    /// Where the first run starts.
    base: u64,
    longest: u32,
    cells: Vec<Cell>,
}

impl Leaf {
    fn of(run: Run) -> Leaf {
        let mut cells = Vec::with_capacity(ROOM);
        cells.push(Cell { offset: 0, len: run.len as u32 });
        Leaf { base: run.start, longest: run.len as u32, cells }
    }

    fn run(&self, at: usize) -> Run {
        let cell = self.cells[at];
        Run { start: self.base + u64::from(cell.offset), len: u64::from(cell.len) }
    }

    fn last_start(&self) -> u64 {
        self.base + self.cells.last().map_or(0, |cell| u64::from(cell.offset))
    }

    /// Moves the base to `base`, from which every run must be in reach.
    fn rebase(&mut self, base: u64) {
        let by = self.base.wrapping_sub(base) as u32;
        for cell in &mut self.cells {
            cell.offset = cell.offset.wrapping_add(by);
        }
        self.base = base;
    }

    fn measure(&mut self) {
        self.longest = self.cells.iter().map(|cell| cell.len).max().unwrap_or(0);
    }

    fn insert(&mut self, at: usize, run: Run) {
        if self.cells.len() == self.cells.capacity() {
            self.cells.reserve_exact(ROOM);
        }
        self.cells.insert(at, Cell { offset: (run.start - self.base) as u32, len: run.len as u32 });
        self.longest = self.longest.max(run.len as u32);
    }

    fn give_back(&mut self) {
        if self.cells.len() + 2 * ROOM <= self.cells.capacity() {
            self.cells.shrink_to(self.cells.len() + ROOM / 2);
        }
    }
}

#[derive(Debug)]
struct Group {
    /// Where the first run starts.
    base: u64,
    longest: u32,
    leaves: Vec<Leaf>,
}

impl Group {
    fn of(leaves: Vec<Leaf>) -> Group {
        let mut group = Group { base: 0, longest: 0, leaves };
        group.measure();
        group
    }

    fn measure(&mut self) {
        self.base = self.leaves.first().map_or(0, |leaf| leaf.base);
        self.longest = self.leaves.iter().map(|leaf| leaf.longest).max().unwrap_or(0);
    }
}

/// Where a run lies: group, leaf, cell.
#[derive(Debug, Clone, Copy)]
struct At {
    group: usize,
    leaf: usize,
    cell: usize,
}

/// The set.
#[derive(Debug)]
pub(super) struct RunSet {
    groups: Vec<Group>,
    /// No run crosses a multiple of this; zero when runs are whole.
    cut: u64,
    runs: usize,
}

impl RunSet {
    /// An empty set; `cut` positions is the longest run, from one multiple to the next, zero for whole runs.
    pub(super) fn new(cut: u64) -> RunSet {
        RunSet { groups: Vec::new(), cut, runs: 0 }
    }

    /// How many runs there are.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    fn leaf(&self, at: At) -> &Leaf {
        &self.groups[at.group].leaves[at.leaf]
    }

    fn leaf_mut(&mut self, at: At) -> &mut Leaf {
        &mut self.groups[at.group].leaves[at.leaf]
    }

    fn run(&self, at: At) -> Run {
        self.leaf(at).run(at.cell)
    }

    fn is_border(&self, position: u64) -> bool {
        self.cut != 0 && position.is_multiple_of(self.cut)
    }

    /// The run with the greatest start that is not above `position`.
    fn before(&self, position: u64) -> Option<At> {
        let group = self.groups.partition_point(|group| group.base <= position).checked_sub(1)?;
        let leaves = &self.groups[group].leaves;
        let leaf = leaves.partition_point(|leaf| leaf.base <= position).checked_sub(1)?;
        let offset = u32::try_from(position - leaves[leaf].base).unwrap_or(u32::MAX);
        // Counted, not halved: the loads do not wait for each other, and a leaf is seldom in the processor's cache.
        let cell =
            leaves[leaf].cells.iter().map(|cell| usize::from(cell.offset <= offset)).sum::<usize>().checked_sub(1)?;
        Some(At { group, leaf, cell })
    }

    fn after(&self, at: Option<At>) -> Option<At> {
        let Some(at) = at else {
            return (!self.groups.is_empty()).then_some(At { group: 0, leaf: 0, cell: 0 });
        };
        let group = &self.groups[at.group];
        if at.cell + 1 < group.leaves[at.leaf].cells.len() {
            Some(At { cell: at.cell + 1, ..at })
        } else if at.leaf + 1 < group.leaves.len() {
            Some(At { leaf: at.leaf + 1, cell: 0, ..at })
        } else {
            (at.group + 1 < self.groups.len()).then_some(At { group: at.group + 1, leaf: 0, cell: 0 })
        }
    }

    /// The first run that starts at `position` or later.
    pub(super) fn from(&self, position: u64) -> Option<Run> {
        let before = self.before(position);
        match before.map(|at| self.run(at)) {
            Some(run) if run.start == position => Some(run),
            _ => self.after(before).map(|at| self.run(at)),
        }
    }

    /// The run that holds `position`, else the first after it.
    pub(super) fn at_or_after(&self, position: u64) -> Option<Run> {
        let before = self.before(position);
        match before.map(|at| self.run(at)) {
            Some(run) if position < run.end() => Some(run),
            _ => self.after(before).map(|at| self.run(at)),
        }
    }

    /// The run that holds `position`.
    pub(super) fn holding(&self, position: u64) -> Option<Run> {
        self.before(position).map(|at| self.run(at)).filter(|run| position < run.end())
    }

    /// The longest run; the first on a tie.
    pub(super) fn longest(&self) -> Option<Run> {
        let longest = self.groups.iter().map(|group| group.longest).max()?;
        let group = self.groups.iter().find(|group| group.longest == longest)?;
        let leaf = group.leaves.iter().find(|leaf| leaf.longest == longest)?;
        leaf.cells.iter().position(|cell| cell.len == longest).map(|cell| leaf.run(cell))
    }

    /// Adds a position; `None` when it was there already.
    pub(super) fn insert(&mut self, position: u64) -> Option<Joined> {
        let before = self.before(position);
        let left_run = before.map(|at| self.run(at));
        if left_run.is_some_and(|run| position < run.end()) {
            return None;
        }
        let after = self.after(before);
        let left = left_run.filter(|run| run.end() == position && !self.is_border(position));
        let right =
            after.map(|at| self.run(at)).filter(|run| run.start == position + 1 && !self.is_border(position + 1));
        let whole = Run {
            start: left.map_or(position, |run| run.start),
            len: 1 + left.map_or(0, |run| run.len) + right.map_or(0, |run| run.len),
        };
        match (before, after) {
            (Some(at), _) if left.is_some() => {
                self.set_len(at, whole.len);
                if let (Some(at), true) = (after, right.is_some()) {
                    self.remove_cell(at);
                }
            }
            (_, Some(at)) if right.is_some() => self.replace(at, whole),
            _ => self.insert_after(before, whole),
        }
        Some(Joined { left, right })
    }

    /// Takes out `len` adjacent positions of one run; answers the run as it was, `None` when they are not in one.
    pub(super) fn remove(&mut self, position: u64, len: u64) -> Option<Run> {
        let at = self.before(position)?;
        let run = self.run(at);
        let end = position + len;
        if len == 0 || end > run.end() {
            return None;
        }
        let rest = Run { start: end, len: run.end() - end };
        match (position - run.start, rest.len) {
            (0, 0) => self.remove_cell(at),
            (0, _) => self.replace(at, rest),
            (kept, 0) => self.set_len(at, kept),
            (kept, _) => {
                self.set_len(at, kept);
                self.insert_run(rest);
            }
        }
        Some(run)
    }

    /// Lets the run at a cell begin elsewhere, between its neighbours.
    fn replace(&mut self, at: At, run: Run) {
        let leaf = self.leaf_mut(at);
        if at.cell > 0
            && let Ok(offset) = u32::try_from(run.start - leaf.base)
        {
            leaf.cells[at.cell].offset = offset;
            self.set_len(at, run.len);
        } else if at.cell == 0 && u32::try_from(leaf.last_start().saturating_sub(run.start)).is_ok() {
            leaf.rebase(run.start);
            leaf.cells[0].offset = 0;
            if at.leaf == 0 {
                self.groups[at.group].base = run.start;
            }
            self.set_len(at, run.len);
        } else {
            self.remove_cell(at);
            self.insert_run(run);
        }
    }

    fn set_len(&mut self, at: At, len: u64) {
        let len = len as u32;
        let group = &mut self.groups[at.group];
        let leaf = &mut group.leaves[at.leaf];
        let before = std::mem::replace(&mut leaf.cells[at.cell].len, len);
        if len >= leaf.longest {
            leaf.longest = len;
            group.longest = group.longest.max(len);
        } else if before == leaf.longest {
            self.measure_after_loss(at, before);
        }
    }

    fn measure_after_loss(&mut self, at: At, lost: u32) {
        let group = &mut self.groups[at.group];
        let leaf = &mut group.leaves[at.leaf];
        if leaf.longest == lost && !leaf.cells.iter().any(|cell| cell.len == lost) {
            leaf.measure();
            if group.longest == lost && !group.leaves.iter().any(|leaf| leaf.longest == lost) {
                group.longest = group.leaves.iter().map(|leaf| leaf.longest).max().unwrap_or(0);
            }
        }
    }

    /// Adds a run that touches no other.
    pub(super) fn insert_run(&mut self, run: Run) {
        self.insert_after(self.before(run.start), run);
    }

    /// Adds a run that touches no other, after the last that starts before it.
    fn insert_after(&mut self, before: Option<At>, run: Run) {
        self.runs += 1;
        if self.groups.is_empty() {
            self.groups.push(Group::of(vec![Leaf::of(run)]));
            return;
        }
        let at = before.unwrap_or(At { group: 0, leaf: 0, cell: 0 });
        let cell = before.map_or(0, |at| at.cell + 1);
        let leaf = self.leaf_mut(at);
        let (low, high) = (leaf.base.min(run.start), leaf.last_start().max(run.start));
        if high - low > u64::from(u32::MAX) || (leaf.cells.len() == FULL && (cell == FULL || cell == 0)) {
            let place = at.leaf + usize::from(before.is_some());
            self.insert_leaf(at.group, place, Leaf::of(run));
            return;
        }
        if leaf.cells.len() == FULL {
            self.split_leaf(at, FULL / 2);
            self.runs -= 1;
            self.insert_run(run);
            return;
        }
        if run.start < leaf.base {
            leaf.rebase(run.start);
        }
        leaf.insert(cell, run);
        let group = &mut self.groups[at.group];
        group.base = group.base.min(run.start);
        group.longest = group.longest.max(run.len as u32);
    }

    /// Moves the runs from `cell` on to a leaf of their own.
    fn split_leaf(&mut self, at: At, cell: usize) {
        let leaf = self.leaf_mut(at);
        let mut cells = Vec::with_capacity(leaf.cells.len() - cell + ROOM);
        cells.extend(leaf.cells.drain(cell..));
        let mut right = Leaf { base: leaf.base, longest: 0, cells };
        right.rebase(leaf.base + right.cells.first().map_or(0, |cell| u64::from(cell.offset)));
        right.measure();
        leaf.cells.shrink_to(cell + ROOM / 2);
        leaf.measure();
        self.insert_leaf(at.group, at.leaf + 1, right);
    }

    fn insert_leaf(&mut self, group: usize, place: usize, leaf: Leaf) {
        let leaves = &mut self.groups[group].leaves;
        if leaves.len() < FULL {
            if leaves.len() == leaves.capacity() {
                leaves.reserve_exact(ROOM);
            }
            leaves.insert(place, leaf);
            self.groups[group].measure();
            return;
        }
        if place == leaves.len() {
            self.groups.insert(group + 1, Group::of(vec![leaf]));
            return;
        }
        let mut right: Vec<Leaf> = leaves.drain(FULL / 2..).collect();
        leaves.shrink_to(FULL / 2 + ROOM);
        if place > FULL / 2 {
            right.insert(place - FULL / 2, leaf);
        } else {
            leaves.insert(place, leaf);
        }
        self.groups[group].measure();
        self.groups.insert(group + 1, Group::of(right));
    }

    fn remove_cell(&mut self, at: At) {
        self.runs -= 1;
        let leaf = self.leaf_mut(at);
        let lost = leaf.cells.remove(at.cell).len;
        if leaf.cells.is_empty() {
            self.groups[at.group].leaves.remove(at.leaf);
            self.close_group(at.group);
            return;
        }
        if at.cell == 0 {
            leaf.rebase(leaf.base + u64::from(leaf.cells[0].offset));
        }
        leaf.give_back();
        let few = leaf.cells.len() < FEW;
        if at.cell == 0 && at.leaf == 0 {
            self.groups[at.group].base = self.groups[at.group].leaves[0].base;
        }
        self.measure_after_loss(at, lost);
        if few {
            self.join_leaf(at);
        }
    }

    fn join_leaf(&mut self, at: At) {
        let leaves = &mut self.groups[at.group].leaves;
        let left = if at.leaf + 1 < leaves.len() { at.leaf } else { at.leaf.wrapping_sub(1) };
        let Some([first, second]) = leaves.get(left..left.saturating_add(2)) else { return };
        let far = second.last_start() - first.base > u64::from(u32::MAX);
        if far || first.cells.len() + second.cells.len() > WELL_FULL {
            return;
        }
        let mut second = leaves.remove(left + 1);
        let first = &mut leaves[left];
        second.rebase(first.base);
        first.cells.reserve_exact(second.cells.len());
        first.cells.append(&mut second.cells);
        first.longest = first.longest.max(second.longest);
        self.close_group(at.group);
    }

    /// After a leaf has gone: an empty group goes, a small one joins its neighbour.
    fn close_group(&mut self, at: usize) {
        if self.groups[at].leaves.is_empty() {
            self.groups.remove(at);
            return;
        }
        self.groups[at].measure();
        let left = if at + 1 < self.groups.len() { at } else { at.wrapping_sub(1) };
        let Some([first, second]) = self.groups.get(left..left.saturating_add(2)) else { return };
        let small = first.leaves.len() < FEW || second.leaves.len() < FEW;
        if small && first.leaves.len() + second.leaves.len() <= WELL_FULL {
            let mut second = self.groups.remove(left + 1);
            self.groups[left].leaves.append(&mut second.leaves);
            self.groups[left].measure();
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let leaf = |leaf: &Leaf| leaf.cells.capacity() * size_of::<Cell>();
        let group =
            |group: &Group| group.leaves.capacity() * size_of::<Leaf>() + group.leaves.iter().map(leaf).sum::<usize>();
        self.groups.capacity() * size_of::<Group>() + self.groups.iter().map(group).sum::<usize>()
    }
}
