//! Which branch of a set gets a file.
//!
//! 1. The member that holds most of the directory that the file is kept together with, as long as the file fits there
//!    at all: `min_free` is for other directories. When it is full, the spread decides, or there is no room
//!    ([`TogetherFull`]).
//! 2. Else the members with room, narrowed by the directories that they have ([`Narrow`]).
//! 3. Of those one is taken ([`SpreadOrder`]), the first in order on a tie.

use smallvec::SmallVec;
use umbrella_units::{BranchId, ByteSize};

use super::facts::{BranchView, view};
use super::group::Group;
use super::slot::Set;
use super::spec::{Narrow, SpreadOrder, TogetherFull};
use super::surroundings::{DirUsage, Surroundings};

/// A member with its view.
type MemberView<'a> = (BranchId, &'a BranchView);
type MemberViews<'a> = SmallVec<[MemberView<'a>; 8]>;

/// What a choice is made for and from.
#[derive(Clone, Copy)]
pub(super) struct SpreadRequest<'a> {
    pub(super) path: &'a [u8],
    pub(super) need: ByteSize,
    pub(super) branches: &'a [BranchView],
    /// Branches that are known to be full.
    pub(super) excluding: &'a [BranchId],
    /// Whether a branch has room for this many bytes.
    pub(super) room: fn(&BranchView, ByteSize) -> bool,
    /// Branches that take files from elsewhere only up to the low mark of a fill level, also those of a directory that
    /// they hold.
    pub(super) up_to_low_mark: &'a [BranchId],
    pub(super) around: &'a dyn Surroundings,
}

/// Why a member was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PickReason {
    /// There was no other with room.
    Only,
    /// It holds most of the file's directory.
    Together,
    /// It has the file's directory, or the nearest one above.
    SamePath,
    /// The order of the set's spread.
    Order(SpreadOrder),
}

/// What comes of looking for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    Member(BranchId, PickReason),
    /// None has room: the next entry of the list has its turn.
    Full,
    /// The member that holds the directory has no room, and the file may not be elsewhere.
    TogetherFull(BranchId),
    /// The members that have the directory have no room, and the file may not be elsewhere.
    PathFull,
}

impl Set {
    /// Chooses a member for a file.
    pub(super) fn pick(&self, groups: &[Group], question: &SpreadRequest<'_>) -> Pick {
        let Some((index, group)) = self.group.and_then(|index| Some((index, groups.get(index)?))) else {
            return one_of(question.with_room(&self.members), SpreadOrder::MostFree, |members| {
                most_free(members, SpreadOrder::MostFree)
            });
        };
        if let Some(picked) = self.pick_together(group, question) {
            return picked;
        }
        let members = question.with_room(&self.members);
        let narrow = group.spread.narrow.and_then(|narrow| self.narrow_down(narrow, &members, question));
        let narrowed = narrow.is_some();
        let members = match narrow {
            Some(none) if none.is_empty() => return Pick::PathFull,
            Some(narrowed) => narrowed,
            None => members,
        };
        let order = group.spread.order;
        let picked = one_of(members, order, |members| match order {
            SpreadOrder::HighWater => above_mark(&members, question.largest(&self.members)),
            SpreadOrder::RoundRobin => after(&members, &self.members, question.around.last_used(index)),
            SpreadOrder::InOrder => members.first().copied(),
            SpreadOrder::Random | SpreadOrder::RandomByFree => {
                choose_random(&members, order, question.around.random_number())
            }
            order => most_free(members, order),
        });
        match picked {
            Pick::Member(id, PickReason::Only) if narrowed => Pick::Member(id, PickReason::SamePath),
            picked => picked,
        }
    }

    /// The member that holds most of the directory that the file is kept together with. None: the spread decides.
    fn pick_together(&self, group: &Group, question: &SpreadRequest<'_>) -> Option<Pick> {
        let dir = group.kept_together(question.path)?;
        let held = question.open(&self.members).map(|member| (question.around.usage_below(dir, member.0), member));
        let holds: SmallVec<[(DirUsage, MemberView<'_>); 8]> =
            held.filter(|(held, _)| *held > DirUsage::default()).collect();
        let (_, (holder, view)) = holds.into_iter().rev().max_by_key(|(held, _)| *held)?;
        if !question.excluding.contains(&holder) && question.fits(holder, view) {
            return Some(Pick::Member(holder, PickReason::Together));
        }
        (group.together_full == TogetherFull::NoRoom).then_some(Pick::TogetherFull(holder))
    }

    /// Those of `members`, which have room, that the spread allows because of the directories they have. None: all
    /// count.
    fn narrow_down<'a>(
        &self,
        narrow: Narrow,
        members: &MemberViews<'a>,
        question: &SpreadRequest<'a>,
    ) -> Option<MemberViews<'a>> {
        let has = |dir: &[u8], id| question.around.has_directory(id, dir);
        let own = parent(question.path)?;
        let with =
            |dir: &[u8]| -> MemberViews<'a> { members.iter().copied().filter(|(id, _)| has(dir, *id)).collect() };
        let with_own = with(own);
        if !with_own.is_empty() {
            return Some(with_own);
        }
        match narrow {
            Narrow::SamePath => None,
            Narrow::OnlySamePath => {
                // Also one that takes no new files.
                let is_open = |id| view(question.branches, id).is_some_and(BranchView::open);
                self.members.iter().any(|id| is_open(*id) && has(own, *id)).then(MemberViews::new)
            }
            Narrow::NearestPath => {
                let above = std::iter::successors(parent(own), |dir| parent(dir));
                above.map(with).find(|with| !with.is_empty())
            }
        }
    }
}

impl<'a> SpreadRequest<'a> {
    /// Members that take new files.
    fn open(&self, members: &[BranchId]) -> impl Iterator<Item = MemberView<'a>> {
        let branches = self.branches;
        members.iter().filter_map(move |&id| Some((id, view(branches, id).filter(|view| view.takes_new())?)))
    }

    fn with_room(&self, members: &[BranchId]) -> MemberViews<'a> {
        let has_room = |(id, view): &MemberView<'a>| !self.excluding.contains(id) && (self.room)(view, self.need);
        self.open(members).filter(has_room).collect()
    }

    /// Whether a file fits at all, `min_free` or not, but below the low mark. A file of no bytes is there to be
    /// written.
    fn fits(&self, id: BranchId, view: &BranchView) -> bool {
        let min_free = if self.up_to_low_mark.contains(&id) { view.min_free } else { ByteSize(0) };
        let view = BranchView { min_free, ..*view };
        view.has_room(self.need) && (self.room)(&view, self.need)
    }

    /// The size of the largest member.
    fn largest(&self, members: &[BranchId]) -> u64 {
        self.open(members).map(|(_, view)| view.total.0).max().unwrap_or(0)
    }
}

fn one_of<'a>(
    members: MemberViews<'a>,
    order: SpreadOrder,
    choose: impl FnOnce(MemberViews<'a>) -> Option<MemberView<'a>>,
) -> Pick {
    match members.as_slice() {
        [] => Pick::Full,
        [(only, _)] => Pick::Member(*only, PickReason::Only),
        _ => choose(members).map_or(Pick::Full, |(id, _)| Pick::Member(id, PickReason::Order(order))),
    }
}

/// The directory that a file or directory is in; none above the topmost, which every branch has.
fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    (slash > 0).then(|| &path[..slash])
}

/// By free or used space. Backwards, so that the first in order wins a tie.
fn most_free(members: MemberViews<'_>, order: SpreadOrder) -> Option<MemberView<'_>> {
    let used = |view: &BranchView| view.total.0.saturating_sub(view.free.0);
    let share = |view: &BranchView| u128::from(view.free.0) * (1 << 32) / u128::from(view.total.0.max(1));
    let mut members = members.into_iter();
    match order {
        SpreadOrder::MostFreeShare => members.rev().max_by_key(|(_, view)| share(view)),
        SpreadOrder::LeastFree => members.min_by_key(|(_, view)| view.free),
        SpreadOrder::LeastUsed => members.min_by_key(|(_, view)| used(view)),
        SpreadOrder::MostFree => members.rev().max_by_key(|(_, view)| view.free),
        _ => members.next(),
    }
}

fn choose_random<'a>(members: &MemberViews<'a>, order: SpreadOrder, random: u64) -> Option<MemberView<'a>> {
    let weight = |(_, view): &MemberView<'_>| match order {
        // One that does not say how much is free has a small chance.
        SpreadOrder::RandomByFree => u128::from(view.free.0.max(1)),
        _ => 1,
    };
    let mut place = share_of(random, members.iter().map(weight).sum());
    members.iter().copied().find(|member| {
        let found = place < weight(member);
        place = place.saturating_sub(weight(member));
        found
    })
}

/// `random / 2^64 * of`, which is below `of`.
fn share_of(random: u64, of: u128) -> u128 {
    let (high, low) = (of >> 64, of & u128::from(u64::MAX));
    u128::from(random) * high + ((u128::from(random) * low) >> 64)
}

/// The next in the group's order after the one that got the last file.
fn after<'a>(members: &MemberViews<'a>, all: &[BranchId], last: Option<BranchId>) -> Option<MemberView<'a>> {
    let place = |id: BranchId| all.iter().position(|member| *member == id);
    let last = last.and_then(place);
    let next = members.iter().find(|(id, _)| last.is_none_or(|last| place(*id) > Some(last)));
    next.or_else(|| members.first()).copied()
}

/// The first with more free space than the mark, which falls by halves until there is one.
fn above_mark<'a>(members: &MemberViews<'a>, largest: u64) -> Option<MemberView<'a>> {
    let mut mark = largest / 2;
    loop {
        let above = members.iter().find(|(_, view)| view.free.0 > mark);
        if above.is_some() || mark == 0 {
            return above.or_else(|| members.first()).copied();
        }
        mark /= 2;
    }
}
