//! Which branch: the facts of the real world, put before the rules.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use umbrella_policy::heat::Opens;
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{
    BranchView, Choice, Decision, EntryId, EntryInfo, FileFacts, Resident, Slot, Stage, Xattr,
};
use umbrella_units::{BranchId, ByteSize, Timestamp};

use crate::branch::Branch;
use crate::error::{OpError, OpResult};
use crate::ground::creds::Caller;
use crate::ground::meta::{Meta, now};
use crate::node::{Backing, Node, inode_key};
use crate::placement::{ActiveRules, Placement};
use crate::warning::{Warning, WarningSubject};

/// One view a branch.
pub(crate) type Views = SmallVec<[BranchView; 8]>;

/// What a creation asks the rules.
pub(crate) struct NewFile<'a> {
    pub(crate) parent: &'a Arc<Node>,
    pub(crate) name: &'a OsStr,
    pub(crate) kind: FileKind,
    pub(crate) perm: u32,
    pub(crate) caller: Caller,
}

impl Placement {
    pub(crate) fn views(&self) -> Views {
        self.views_by(Branch::view)
    }

    fn views_by(&self, look: impl Fn(&Branch) -> BranchView) -> Views {
        // No rule sends a file to the staging area, however full the others are.
        let view = |branch: &Arc<Branch>| {
            let view = look(branch);
            let (online, may) = (view.online && branch.in_use().is_some(), !self.branches.is_staging(branch.id));
            BranchView { online, writable: view.writable && may, ..view }
        };
        self.branches.list.load().iter().map(view).collect()
    }

    /// Where a settled file of these attributes belongs, judged where it is now; counted.
    pub(crate) fn evaluate(&self, path: &[u8], meta: &Meta, branch: &Branch) -> Choice {
        let mut decision = self.decide(path, meta, branch);
        if self.begin(&self.rules.load(), path, decision) {
            decision = self.decide(path, meta, branch);
        }
        if let Some(hits) = self.rules.load().hits.get(decision.entry.index()) {
            hits.fetch_add(1, Ordering::Relaxed);
        }
        if self.rules.load().rules.is_misplaced(decision, branch.id) {
            self.warn_misplaced(path, branch, decision.entry);
        }
        decision.choice
    }

    /// A file is on no branch of its list, and cannot be moved.
    pub(crate) fn warn_misplaced(&self, path: &[u8], branch: &Branch, entry: EntryId) {
        let warning = Warning::Misplaced {
            mount: self.context.spec.mount.clone(),
            path: String::from_utf8_lossy(path).into_owned(),
            on: branch.spec.name.clone(),
            list: self.list_of(entry),
        };
        self.context.warn(WarningSubject::Misplaced, &warning);
    }

    /// No branch of a list could take a file. One line a list, until it has room again.
    fn warn_full(&self, active: &ActiveRules, entry: EntryId, path: &[u8], need: ByteSize) {
        /// A file system may free this much by itself.
        const SMALL: u64 = 16 << 20;
        let (Some(info), Some(full)) = (active.rules.entries().get(entry.index()), active.full.get(entry.index()))
        else {
            return;
        };
        let views = self.views_by(Branch::view_now);
        let most = most_free(info, &views);
        let ends_at = most.map_or(1, |(_, view)| view.free.0.saturating_add(SMALL.min(view.total.0 / 32)).max(1));
        if full.swap(ends_at, Ordering::Relaxed) != 0 {
            return;
        }
        let branches = self.branches.all_named();
        let draining = branches.iter().filter(|branch| branch.draining());
        let draining = draining.filter(|branch| info.to.iter().any(|slot| slot.contains(branch.id)));
        let names_all = branches.iter().all(|branch| info.to.iter().any(|slot| slot.contains(branch.id)));
        let is_default = entry.index() + 1 == active.rules.entries().len();
        let more = if is_default { "\"any\"" } else { "\"default\" or \"any\"" };
        let groups = active.rules.groups();
        let group = info.to.iter().find(|slot| groups.iter().any(|group| group.name == slot.name));
        let warning = Warning::ListFull {
            list: self.list_of(entry),
            path: String::from_utf8_lossy(path).into_owned(),
            most_free: most.filter(|(_, view)| view.free < need).map(|(id, view)| (self.branch_name(id), view.free)),
            draining: draining.map(|branch| branch.spec.name.clone()).collect(),
            is_default,
            group: group.map(|slot| slot.name.clone()),
            more: (!names_all).then_some(more),
        };
        self.context.warn(WarningSubject::List(info.name.clone()), &warning);
    }

    /// Takes back that lists are full: a branch came or went.
    pub(crate) fn forget_full(&self) {
        self.forget_full_if(|_, _| true);
    }

    /// Takes it back for the lists where space was freed.
    pub(crate) fn forget_full_with_room(&self) {
        let views = self.views();
        self.forget_full_if(|info, ends_at| most_free(info, &views).is_some_and(|(_, view)| view.free.0 >= ends_at));
    }

    fn forget_full_if(&self, is_over: impl Fn(&EntryInfo, u64) -> bool) {
        let active = self.rules.load();
        for (info, full) in active.rules.entries().iter().zip(&active.full) {
            let ends_at = full.load(Ordering::Relaxed);
            if ends_at != 0 && is_over(info, ends_at) {
                full.store(0, Ordering::Relaxed);
                self.context.clear_warning(&WarningSubject::List(info.name.clone()));
            }
        }
    }

    /// A list, for people: whose it is, and its branches.
    fn list_of(&self, entry: EntryId) -> String {
        let active = self.rules.load();
        let Some(info) = active.rules.entries().get(entry.index()) else { return "its list".to_owned() };
        let slots: Vec<String> = info.to.iter().map(|slot| self.slot_name(slot)).collect();
        let is_default = entry.index() + 1 == active.rules.entries().len();
        let whose =
            if is_default { "the default list".to_owned() } else { format!("the list of rule {:?}", info.name) };
        format!("{whose} ({})", slots.join(", "))
    }

    /// As `evaluate`, without counting.
    pub(crate) fn decide(&self, path: &[u8], meta: &Meta, branch: &Branch) -> Decision {
        let resident = self.resident(branch, meta);
        let (active, views) = (self.rules.load(), self.views());
        let names = self.other_names(branch, meta);
        let xattrs = self.xattrs(path, meta, branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.facts(path, meta, branch) };
        let all = names.iter().map(Vec::as_slice).chain([path]);
        let path = active.rules.deciding_name(all, &facts, &views, Some(&resident)).unwrap_or(path);
        active.rules.decide(&FileFacts { path, ..facts }, &views, Some(&resident), &self.around(&active))
    }

    /// Whether reading a file may give it another place.
    pub(crate) fn depends_on_access_time(&self, path: &[u8], meta: &Meta, branch: &Branch) -> bool {
        let (resident, views) = (self.resident(branch, meta), self.views());
        let names = self.other_names(branch, meta);
        let xattrs = self.xattrs(path, meta, branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.facts(path, meta, branch) };
        let rules = &self.rules.load().rules;
        let depends = |path| rules.depends_on_access_time(&FileFacts { path, ..facts }, &views, Some(&resident));
        names.iter().map(Vec::as_slice).chain([path]).any(depends)
    }

    /// The name that decides where a file with these attributes belongs: of several, one whose list has neither
    /// `default` nor `any` comes first.
    pub(crate) fn deciding_path(&self, node: &Node, meta: &Meta) -> Vec<u8> {
        let names = node.paths();
        let Some(first) = names.first().filter(|_| names.len() > 1) else { return node.path() };
        let xattrs = self.xattrs_of(node, meta);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..settled_facts(first, meta, node.born) };
        let rules = &self.rules.load().rules;
        let deciding = rules.deciding_name(names.iter().map(Vec::as_slice), &facts, &self.views(), None);
        deciding.unwrap_or(first).to_vec()
    }

    /// All names of a file that has several, as far as they are known; none of one with one name.
    pub(crate) fn other_names(&self, branch: &Branch, meta: &Meta) -> Vec<Vec<u8>> {
        if meta.nlink <= 1 {
            return Vec::new();
        }
        self.nodes.find(Backing::of(branch, meta)).map(|node| node.paths()).unwrap_or_default()
    }

    /// A file where it is. A file that moved there, as its kept birth time shows, arrived when the branch's file system
    /// made its inode. A file that was made there has not come from anywhere, and is not held.
    pub(crate) fn resident(&self, branch: &Branch, meta: &Meta) -> Resident {
        let key = branch.online().map(|online| inode_key(&online, meta));
        let has_moved = key.is_some_and(|key| self.inodes.born(key).is_some());
        let is_evicted = key.is_some_and(|key| self.inodes.is_evicted(key, meta.ctime));
        Resident {
            branch: branch.id,
            since: meta.btime.filter(|_| has_moved),
            min_stay: branch.settings().min_stay,
            is_evicted,
            is_opened: is_evicted && !self.rests(branch, meta),
        }
    }

    /// The birth of a file as users see it, of its attributes on its branch.
    pub(crate) fn born(&self, branch: &Branch, meta: &Meta) -> Option<Timestamp> {
        let kept = branch.online().and_then(|online| self.inodes.born(inode_key(&online, meta)));
        kept.or(meta.btime)
    }

    /// The branch to create a new file on, not one of `full`.
    pub(crate) fn place_new(&self, new: &NewFile<'_>, full: &[BranchId]) -> OpResult<BranchId> {
        self.place_by(new, full).map(|(branch, _)| branch)
    }

    /// As `place_new`, with what decided.
    pub(crate) fn place_by(&self, new: &NewFile<'_>, full: &[BranchId]) -> OpResult<(BranchId, Decision)> {
        let chosen = self.choose_new(new, full)?;
        if full.is_empty() {
            self.count_hit(chosen.1);
        }
        Ok(chosen)
    }

    /// Where a file that leaves the staging area belongs.
    pub(crate) fn decide_leaving(&self, facts: &FileFacts<'_>) -> Decision {
        let (active, views) = (self.rules.load(), self.views());
        let decide = || active.rules.decide(facts, &views, None, &self.around(&active));
        let decision = decide();
        if self.begin(&active, facts.path, decision) { decide() } else { decision }
    }

    /// Counts a new file for the rule that decided.
    pub(crate) fn count_hit(&self, decision: Decision) {
        let active = self.rules.load();
        if let Some(hits) = active.hits.get(decision.entry.index()) {
            hits.fetch_add(1, Ordering::Relaxed);
        }
        let full = active.full.get(decision.entry.index());
        if full.is_some_and(|full| full.load(Ordering::Relaxed) != 0 && full.swap(0, Ordering::Relaxed) != 0)
            && let Some(info) = active.rules.entries().get(decision.entry.index())
        {
            self.context.clear_warning(&WarningSubject::List(info.name.clone()));
        }
    }

    /// As `place_by`, without counting.
    pub(crate) fn choose_new(&self, new: &NewFile<'_>, full: &[BranchId]) -> OpResult<(BranchId, Decision)> {
        let path = crate::node::path_of(new.parent, new.name);
        let facts = self.with_guess(new_facts(&path, new));
        let active = self.rules.load();
        // What waits in memory has been promised room.
        let mut views = self.views();
        let promised = self.staged.bytes();
        for view in &mut views {
            view.free = ByteSize(view.free.0.saturating_sub(promised));
        }
        let decide = || active.rules.decide(&facts, &views, None, &self.around(&active));
        let mut decision = decide();
        if full.is_empty() && self.begin(&active, &path, decision) {
            decision = decide();
        }
        let chosen = match decision.choice {
            Choice::Place(branch) if !full.contains(&branch) => Some(branch),
            // Below min_free everywhere, or full against what was thought: any room that is left serves.
            _ => active.rules.next_choice(&facts, &views, full, ByteSize(0), &self.around(&active)),
        };
        if let Some(branch) = chosen {
            return Ok((branch, decision));
        }
        // What may be only there has to wait until that is back; "no space" would send people looking for the wrong
        // thing.
        if active.rules.is_away(decision.entry, &views) {
            return Err(OpError::Offline);
        }
        let refusal = self.refusal();
        // With branches to leave out, others than full ones may be among them.
        if refusal == OpError::NoRoom && full.is_empty() {
            self.warn_full(&active, decision.entry, &path, ByteSize(1));
        }
        Err(refusal)
    }

    /// Whether a file with these names and attributes must not be on a branch: its list has neither `default` nor
    /// `any`, and leaves the branch out.
    pub(crate) fn forbids(&self, names: &[Vec<u8>], meta: &Meta, xattrs: Option<&[Xattr]>, branch: BranchId) -> bool {
        let rules = &self.rules.load().rules;
        let Some(first) = names.first().filter(|_| rules.entries().iter().any(|entry| entry.is_strict)) else {
            return false;
        };
        let (views, facts) = (self.views(), FileFacts { xattrs, ..settled_facts(first, meta, meta.btime) });
        let deciding = rules.deciding_name(names.iter().map(Vec::as_slice), &facts, &views, None).unwrap_or(first);
        rules.forbids(rules.deciding_entry(&FileFacts { path: deciding, ..facts }, &views, None), branch)
    }

    /// The error of a refused creation: read-only when nothing at all can be written, else no room. A branch that is
    /// being drained has none.
    pub(crate) fn refusal(&self) -> OpError {
        let branches = self.branches.list.load();
        let mut those_in_use =
            branches.iter().filter(|branch| branch.in_use().is_some() && !self.branches.is_staging(branch.id));
        if those_in_use.clone().any(|branch| branch.is_writable()) {
            OpError::NoRoom
        } else if those_in_use.next().is_some() {
            OpError::Sys(rustix::io::Errno::ROFS)
        } else {
            OpError::Offline
        }
    }

    /// The next branch for a file that needs `need` bytes and must leave those in `full`. The answer is none only after
    /// the branches were asked for their room anew.
    pub(crate) fn place_next(&self, facts: &FileFacts<'_>, full: &[BranchId], need: ByteSize) -> Option<BranchId> {
        let active = self.rules.load();
        let next = |views: &Views| active.rules.next_choice(facts, views, full, need, &self.around(&active));
        let found = next(&self.views()).or_else(|| next(&self.views_by(Branch::view_now)));
        if found.is_none() {
            let entry = active.rules.deciding_entry(facts, &self.views(), None);
            self.warn_full(&active, entry, facts.path, need);
        }
        found
    }
}

/// The branch of a list that has most space for new files.
fn most_free<'a>(info: &EntryInfo, views: &'a [BranchView]) -> Option<(BranchId, &'a BranchView)> {
    let members = info.to.iter().flat_map(Slot::members);
    let views = members.filter_map(|id| Some((id, views.get(id.index())?)));
    let takes_files = |view: &BranchView| {
        view.online && view.writable && view.creates && view.inodes.is_none_or(|inodes| inodes.free > 0)
    };
    views.filter(|(_, view)| takes_files(view)).max_by_key(|(_, view)| view.free)
}

/// The facts of a file that is about to be made.
pub(super) fn new_facts<'a>(path: &'a [u8], new: &NewFile<'_>) -> FileFacts<'a> {
    let time = now();
    FileFacts {
        path,
        kind: new.kind,
        size: ByteSize(0),
        occupied: ByteSize(0),
        uid: new.caller.uid,
        gid: new.caller.gid,
        mode: new.perm & 0o7777 & !new.caller.umask,
        links: 1,
        atime: time,
        mtime: time,
        ctime: time,
        btime: Some(time),
        heat: Opens(0),
        now: time,
        stage: Stage::New,
        xattrs: Some(&[]),
    }
}

/// The facts of a file that exists, and was born then. Its extended attributes are added by those who read them
/// ([`Placement::xattrs`]), and its heat by
/// [`Placement::facts`]: what is in memory is new, and cold.
pub(crate) fn settled_facts<'a>(path: &'a [u8], meta: &Meta, born: Option<Timestamp>) -> FileFacts<'a> {
    FileFacts {
        path,
        kind: meta.kind,
        // What users see is what rules speak of; what it occupies is what needs room.
        size: ByteSize(meta.size),
        occupied: meta.occupied(),
        uid: meta.uid,
        gid: meta.gid,
        mode: meta.perm,
        links: meta.nlink,
        atime: meta.atime,
        mtime: meta.mtime,
        ctime: meta.ctime,
        btime: born,
        heat: Opens(0),
        now: now(),
        stage: Stage::Settled,
        xattrs: None,
    }
}
