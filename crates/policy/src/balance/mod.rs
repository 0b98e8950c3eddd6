//! Which files even out the members of a group, with few bytes moved.
//!
//! The aim is a window of used shares, as wide as asked for, that every member lies in. It is placed where fewest bytes
//! have to move:
//!
//! 1. A window at `low` takes the surplus above it from some members, and fills others up to `low`. The first falls
//!    with `low` and the second grows, so the cheapest window is where they meet.
//! 2. The fullest member gives what is above the window; when none is, to those that are below it. It gives its largest
//!    file that is not more than what is left to give, to the emptiest member that may have it. When there is none, its
//!    smallest file.
//! 3. After each move the shares of both members lie between what they were before. So no move makes it worse, and the
//!    end is never worse than the beginning.
//!
//! A file moves once at most, so the plan ends. It moves no more than what the window takes, and one file a member.

use std::collections::BTreeSet;

use umbrella_units::ByteSize;

mod inventory;
#[cfg(test)]
mod tests;

pub use inventory::{Inventory, InventoryFile, Moves};

/// A member of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Size.
    pub total: ByteSize,
    /// Bytes in use.
    pub used: ByteSize,
    /// Bytes that may come; zero where nothing may.
    pub room: ByteSize,
    /// Files that may come.
    pub files: u64,
}

/// What moves as a whole: a file with all its names, or all that a member holds of a directory that is kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// The member that has it.
    pub on: usize,
    /// What it occupies.
    pub bytes: ByteSize,
    /// How many files it is.
    pub files: u64,
    /// Where it may be: the index of a list of [`BalanceRequest::classes`].
    pub class: usize,
}

/// What is to be evened out.
#[derive(Debug, Clone, Copy)]
pub struct BalanceRequest<'a> {
    /// In the group's order, which breaks ties.
    pub members: &'a [Member],
    /// Whatever may move.
    pub units: &'a [Unit],
    /// Lists of members, by index.
    pub classes: &'a [Vec<usize>],
    /// How far apart the used shares may be, in thousandths of a percent.
    pub within: u32,
}

/// One unit goes to another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Index of the unit.
    pub unit: usize,
    /// Index of the member.
    pub to: usize,
}

/// What to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In order.
    pub moves: Vec<Move>,
    /// Bytes in use on each member at the end.
    pub used: Vec<ByteSize>,
    /// Least number of bytes that any plan that reaches the aim moves.
    pub least: ByteSize,
}

/// A share of a member, in parts of 2^32.
type Share = u64;

const WHOLE: Share = 1 << 32;
const WHOLE_IN_MILLI_PERCENT: u64 = 100_000;

impl Member {
    fn share(&self) -> Share {
        let share = u128::from(self.used.0) * u128::from(WHOLE) / u128::from(self.total.0.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Whether anything may come.
    fn takes(&self) -> bool {
        self.room.0 > 0 && self.files > 0
    }

    /// The bytes of a share.
    fn at(&self, share: Share) -> u64 {
        u64::try_from((u128::from(self.total.0) * u128::from(share)) >> 32).unwrap_or(u64::MAX)
    }

    /// What is above a share.
    fn above(&self, share: Share) -> u64 {
        self.used.0.saturating_sub(self.at(share))
    }

    /// What is missing to a share.
    fn below(&self, share: Share) -> u64 {
        self.at(share).saturating_sub(self.used.0)
    }
}

/// The shares that all members are to lie in.
#[derive(Debug, Clone, Copy)]
struct ShareRange {
    low: Share,
    high: Share,
}

impl ShareRange {
    /// The window in which fewest bytes move, and how many those are at least.
    fn cheapest(members: &[Member], within: Share) -> (ShareRange, ByteSize) {
        let costs = |low: Share| {
            let surplus = members.iter().map(|member| u128::from(member.above(low.saturating_add(within)))).sum();
            let takers = members.iter().filter(|member| member.takes());
            let missing: u128 = takers.map(|member| u128::from(member.below(low))).sum();
            (surplus, missing)
        };
        let (mut low, mut high): (Share, Share) = (0, WHOLE);
        while low < high {
            let middle = low + (high - low) / 2;
            let (surplus, missing): (u128, u128) = costs(middle);
            if missing >= surplus { high = middle } else { low = middle + 1 }
        }
        let least = |low| {
            let (surplus, missing): (u128, u128) = costs(low);
            surplus.max(missing)
        };
        let low = if low > 0 && least(low - 1) < least(low) { low - 1 } else { low };
        let least = ByteSize(u64::try_from(least(low)).unwrap_or(u64::MAX));
        (ShareRange { low, high: low.saturating_add(within) }, least)
    }
}

/// Says what to move.
#[must_use]
pub fn plan(question: &BalanceRequest<'_>) -> Plan {
    let within = u64::from(question.within) * WHOLE / WHOLE_IN_MILLI_PERCENT;
    let (window, least) = ShareRange::cheapest(question.members, within);
    let mut planner = BalancePlanner {
        question,
        window,
        within,
        members: question.members.to_vec(),
        held: question.members.iter().map(|_| vec![BTreeSet::new(); question.classes.len()]).collect(),
    };
    for (index, unit) in question.units.iter().enumerate().filter(|(_, unit)| unit.bytes.0 > 0) {
        if let Some(held) = planner.held.get_mut(unit.on).and_then(|held| held.get_mut(unit.class)) {
            held.insert((unit.bytes.0, index));
        }
    }
    let mut moves = Vec::new();
    while let Some(next) = planner.next() {
        planner.apply(next);
        moves.push(next);
    }
    Plan { moves, used: planner.members.iter().map(|member| member.used).collect(), least }
}

struct BalancePlanner<'a> {
    question: &'a BalanceRequest<'a>,
    window: ShareRange,
    within: Share,
    /// As they are after the moves so far.
    members: Vec<Member>,
    /// By member and class: the units that have not moved, by size.
    held: Vec<Vec<BTreeSet<(u64, usize)>>>,
}

impl BalancePlanner<'_> {
    /// The next move; none when the members are even, or nothing that helps may move.
    fn next(&self) -> Option<Move> {
        let mut givers: Vec<usize> =
            (0..self.members.len()).filter(|giver| self.held[*giver].iter().any(|held| !held.is_empty())).collect();
        givers.sort_by_key(|giver| std::cmp::Reverse(self.members[*giver].share()));
        let mut takers: Vec<usize> = (0..self.members.len()).filter(|taker| self.members[*taker].takes()).collect();
        takers.sort_by_key(|taker| self.members[*taker].share());
        givers.iter().find_map(|giver| self.move_from(*giver, &takers))
    }

    /// The next move from a member; `takers` from the emptiest to the fullest.
    fn move_from(&self, from: usize, takers: &[usize]) -> Option<Move> {
        let giver = &self.members[from];
        let takers = || takers.iter().copied().filter(|taker| *taker != from && self.is_apart(from, *taker));
        let fitting = takers().find_map(|to| {
            let taker = &self.members[to];
            let surplus = giver.above(self.window.high);
            let wanted = if surplus > 0 { surplus } else { taker.below(self.window.low) };
            let most = wanted.min(taker.below(self.window.high)).min(self.closer(from, to));
            let fits = |(_, unit): &&(u64, usize)| self.has_inodes(to, *unit);
            let candidates = self.units(from, to).filter_map(|held| held.range(..=(most, usize::MAX)).rev().find(fits));
            candidates.max_by_key(|(bytes, unit)| (*bytes, std::cmp::Reverse(*unit))).map(|(_, unit)| (*unit, to))
        });
        let smallest = || {
            let each = takers().filter_map(|to| {
                let fits = |(_, unit): &&(u64, usize)| self.has_inodes(to, *unit);
                let first = self.units(from, to).filter_map(|held| held.iter().find(fits)).min()?;
                (first.0 <= self.closer(from, to)).then_some((*first, to))
            });
            each.min_by_key(|((bytes, _), _)| *bytes).map(|((_, unit), to)| (unit, to))
        };
        fitting.or_else(smallest).map(|(unit, to)| Move { unit, to })
    }

    /// Whether a move between two members is still needed.
    fn is_apart(&self, from: usize, to: usize) -> bool {
        let (giver, taker) = (&self.members[from], &self.members[to]);
        let is_needed = giver.share() > self.window.high || taker.share() < self.window.low;
        is_needed && giver.share() > taker.share().saturating_add(self.within)
    }

    /// The units of a member that another may have, by class.
    fn units(&self, from: usize, to: usize) -> impl Iterator<Item = &BTreeSet<(u64, usize)>> {
        let of_class = self.held[from].iter().zip(self.question.classes);
        of_class.filter(move |(_, members)| members.contains(&to)).map(|(held, _)| held)
    }

    /// Whether a member may have as many files more as a unit is.
    fn has_inodes(&self, member: usize, unit: usize) -> bool {
        self.question.units[unit].files <= self.members[member].files
    }

    /// The most bytes after which both shares lie between those of before, and that have room.
    fn closer(&self, from: usize, to: usize) -> u64 {
        let (giver, taker) = (&self.members[from], &self.members[to]);
        let until_full = taker.below(giver.share()).saturating_sub(1);
        let until_empty = giver.above(taker.share()).saturating_sub(1);
        until_full.min(until_empty).min(taker.room.0)
    }

    fn apply(&mut self, next: Move) {
        let unit = self.question.units[next.unit];
        self.held[unit.on][unit.class].remove(&(unit.bytes.0, next.unit));
        let giver = &mut self.members[unit.on];
        giver.used.0 = giver.used.0.saturating_sub(unit.bytes.0);
        giver.files = giver.files.saturating_add(unit.files);
        let taker = &mut self.members[next.to];
        taker.used.0 = taker.used.0.saturating_add(unit.bytes.0);
        taker.room.0 = taker.room.0.saturating_sub(unit.bytes.0);
        taker.files = taker.files.saturating_sub(unit.files);
    }
}
