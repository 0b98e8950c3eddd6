//! What `umbrella status` and `umbrella explain` say.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{Choice, EntryInfo, Explained, FileFacts, Slot, Xattr};
use umbrella_units::{BranchId, Timestamp, format_duration};

use crate::admin::Admin;
use crate::branch::Branch;
use crate::branch::mounts::is_attached;
use crate::control::protocol::{
    BranchState, BranchStatus, ExplainPart, ExplainStep, Explanation, HypotheticalFile, RuleStatus, Status,
    bytes_unless_text,
};
use crate::error::{Error, OpError};
use crate::node::{Backing, DataPath, Node, NodeId, path_of};
use crate::placement::settled_facts;
use crate::warning::Warning;

/// A limit below this is reported as short from the start.
const FEW_DESCRIPTORS: u64 = 4096;
/// How long a status waits for branches to say how much room they have.
const ROOM_TIMEOUT: Duration = Duration::from_millis(500);

impl Admin {
    /// The pool at a glance. Waits for no branch that does not answer.
    pub(crate) fn status(&self) -> Status {
        self.refresh_space();
        self.write_back.measure_write_back();
        self.measure_errors();
        // The kernel asks for no file to be closed once no process uses the mount any more.
        let in_use = self.context.kernel.get().is_none_or(|kernel| kernel.is_mounted());
        // First: a release that begins later has its handle still.
        let closing = self.io.releases_under_way();
        let handles = if in_use { self.io.open_handles() } else { Vec::new() };
        let passthrough = handles.iter().filter(|handle| handle.data == DataPath::Passthrough).count();
        Status {
            mount: self.context.spec.mount.clone(),
            config: PathBuf::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime: self.started.elapsed(),
            ending: !in_use,
            detached: !in_use || self.context.mounted_as.get().is_some_and(|mount| !is_attached(*mount)),
            branches: self.branch_statuses(),
            rules: self.rule_statuses(),
            open_files: (handles.len() + closing) as u64,
            open_passthrough: passthrough as u64,
            inodes: self.tree.nodes.len() as u64,
            metrics: self.context.metrics.all(),
            warnings: self.warnings(),
            passthrough: self.context.gives_passthrough(),
            transport: self.context.kernel.get().map(|kernel| kernel.transport()),
            staging: self.staged.status(),
            walks: self.migrate.walks_under_way(),
            evicts: self.migrate.evict_statuses(),
            heat: self.placement.heat_status(),
        }
    }

    /// What to do where the daemon may soon have no descriptor left.
    pub(crate) fn descriptor_warning(&self) -> Option<Warning> {
        let limit = getrlimit(Resource::Nofile).current?;
        let used = (self.io.open_handles().len() + self.tree.dir_fds.len()) as u64;
        (limit < FEW_DESCRIPTORS || used > limit / 4 * 3).then_some(Warning::FewDescriptors { used, limit })
    }

    /// All branches.
    pub(crate) fn branch_statuses(&self) -> Vec<BranchStatus> {
        let status = |branch: &Arc<Branch>| {
            let mut status = BranchStatus { write_back: self.write_back.write_back_of(branch.id), ..branch.status() };
            if branch.is_arriving() {
                let reason = "it has just come back and is joining the pool".to_owned();
                status.state = BranchState::Offline { reason, since: crate::ground::meta::now() };
            }
            status
        };
        self.branches.all_named().iter().map(status).collect()
    }

    /// Refreshes the space of every branch, so that nothing after this waits for a branch. One that does not answer
    /// keeps its last known values.
    fn refresh_space(&self) {
        let (answered, answers) = std::sync::mpsc::channel();
        for branch in self.branches.list.load().iter() {
            let (branch, answered) = (Arc::clone(branch), answered.clone());
            let ask = move || {
                branch.space();
                let _nobody_waits = answered.send(());
            };
            // Without a thread the branch is asked when its figure is wanted.
            let _ = std::thread::Builder::new().name("room".to_owned()).spawn(ask);
        }
        drop(answered);
        let until = Instant::now() + ROOM_TIMEOUT;
        while answers.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    }

    fn rule_statuses(&self) -> Vec<RuleStatus> {
        let active = self.placement.rules.load();
        let views = self.placement.views();
        let entries = active.rules.entries().iter().zip(&active.hits).enumerate();
        entries
            .map(|(index, (entry, hits))| {
                let inactive = active.rules.inactive(umbrella_policy::placement::EntryId(index as u32), &views);
                let why = |first: &Slot| match self.placement.removed_from(first) {
                    Some(name) => format!("{name:?}, the first of its list, was removed from the pool"),
                    None => format!("{:?}, the first of its list, is offline", first.name),
                };
                RuleStatus {
                    name: entry.name.clone(),
                    to: entry.to.iter().map(|slot| self.placement.slot_name(slot)).collect(),
                    branches: self.reached(entry),
                    hits: hits.load(Ordering::Relaxed),
                    inactive: entry.to.first().filter(|_| inactive).map(why),
                }
            })
            .collect()
    }

    /// The branches that a list reaches.
    fn reached(&self, entry: &EntryInfo) -> Vec<String> {
        let mut reached: Vec<BranchId> = entry.to.iter().flat_map(Slot::members).collect();
        reached.sort_unstable();
        reached.dedup();
        let in_pool = reached.into_iter().filter_map(|id| self.branches.get(id).ok());
        in_pool.map(|branch| branch.spec.name.clone()).filter(|name| !name.is_empty()).collect()
    }

    /// Why a file is where it is. The path begins with `/`.
    pub(crate) fn explain(&self, path: &[u8]) -> Result<Explanation, Error> {
        let shown = String::from_utf8_lossy(path).into_owned();
        let failed = |source: OpError| match self.offline_names() {
            offline if (source.is_missing() || source == OpError::Offline) && !offline.is_empty() => {
                Error::PathOffline { path: shown.clone(), offline: offline.join(", ") }
            }
            _ => Error::Path { path: shown.clone(), source },
        };
        let _names = self.tree.rename_lock.read();
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let mut at = Arc::clone(&self.tree.root);
        at.retain();
        let Some((last, above)) = parts.split_last() else {
            return self
                .explain_dir(&self.tree.root, shown)
                .map_err(|source| Error::Path { path: "/".to_owned(), source });
        };
        if parts.first() == Some(&crate::branch::HIDDEN_DIR.as_bytes()) {
            return Err(Error::Path { path: shown, source: OpError::Reserved });
        }
        for part in above {
            let name = std::os::unix::ffi::OsStrExt::from_bytes(part);
            let next = self.tree.lookup_in(&at, name);
            self.release_walked(&at);
            at = match next {
                Ok((below, _)) => below,
                Err(error) if error.is_missing() => {
                    let path = parts.iter().flat_map(|part| [b"/", *part].concat()).collect::<Vec<u8>>();
                    let absent = self.explain_absent(&path, shown);
                    return Ok(Explanation { path_bytes: bytes_unless_text(&path), ..absent });
                }
                Err(error) => return Err(failed(error)),
            };
        }
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(last);
        let explained = self.explain_entry(&at, name, shown.clone());
        self.release_walked(&at);
        explained.map(|it| Explanation { path_bytes: bytes_unless_text(path), ..it }).map_err(failed)
    }

    fn release_walked(&self, node: &Arc<Node>) {
        if node.id != NodeId::ROOT {
            self.tree.nodes.release(node, 1);
        }
    }

    fn explain_entry(&self, parent: &Arc<Node>, name: &std::ffi::OsStr, shown: String) -> Result<Explanation, OpError> {
        let all = self.holders(parent, name)?;
        let found = self.tree.probe(parent, name)?;
        let Some(found) = found else {
            return Ok(self.explain_absent(&path_of(parent, name), shown));
        };
        if found.kind() == FileKind::Directory {
            let (node, _) = self.tree.intern(parent, name, &found)?;
            let explained = self.explain_dir(&node, shown);
            self.tree.nodes.release(&node, 1);
            return explained;
        }
        let (dir, meta) = found.first()?;
        let path = path_of(parent, name);
        let active = self.placement.rules.load();
        let area = self.staged.area().filter(|area| area.branch.id == dir.branch.id);
        let resident = area.is_none().then(|| self.placement.resident(&dir.branch, meta));
        let views = self.placement.views();
        let names = self.placement.other_names(&dir.branch, meta);
        let every = names.iter().map(Vec::as_slice).chain([path.as_slice()]);
        let xattrs = self.placement.xattrs(&path, meta, &dir.branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.placement.facts(&path, meta, &dir.branch) };
        let decides = active.rules.deciding_name(every, &facts, &views, resident.as_ref()).unwrap_or(&path);
        let explained = active.rules.explain(
            &FileFacts { path: decides, ..facts },
            &views,
            resident.as_ref(),
            &self.placement.around(&active),
        );
        let here = dir.branch.spec.name.clone();
        let belongs = match explained.decision.choice {
            Choice::Stay => Some(here.clone()),
            Choice::Place(id) => Some(self.placement.branch_name(id)),
            Choice::NoRoom => None,
        };
        let node = self.tree.nodes.find(Backing::of(&dir.branch, meta));
        let turn = match (area, &node) {
            (Some(area), _) => MoveTiming::Staged { leaves: area.leaves_when() },
            (None, Some(node)) => self.turn_of(node),
            (None, None) => MoveTiming::Unknown,
        };
        let fixed = dir.branch.settings().read_only && matches!(explained.decision.choice, Choice::Place(_));
        let moves = matches!(explained.decision.choice, Choice::Place(id) if id != dir.id());
        let pinned = moves && meta.kind == FileKind::File && dir.refer(name).is_ok_and(|file| file.is_pinned());
        let duplicates: Vec<String> = all.into_iter().filter(|branch| *branch != here).collect();
        let taken = belongs.as_ref().filter(|belongs| duplicates.contains(belongs));
        let mut outcome = if let Some(there) = taken {
            format!("it stays on {here}: {there} has another file of its name (delete or rename one of the two)")
        } else if pinned {
            format!("it stays on {here}: it is immutable or append-only (chattr -ia lets it move)")
        } else if fixed {
            format!("it stays on {here}: that branch is read-only ({})", explained.why)
        } else {
            outcome(&here, &explained, belongs.as_deref(), turn)
        };
        if turn == MoveTiming::AtItsClose && active.rules.asks_for_size(explained.decision.entry) {
            let _ = write!(outcome, ", if its size is still {}", facts.size);
        }
        let promotes = moves && active.rules.promotes(explained.decision.entry);
        if promotes && turn == MoveTiming::Unknown {
            outcome.push_str("; for its heat it is looked at once a minute at most");
        }
        if promotes && !self.placement.may_move_by_heat() {
            outcome.push_str("; it has to wait: max_move of [heat] is used up for now");
        }
        if decides != path {
            let _ = write!(outcome, "; its name {} decides", String::from_utf8_lossy(decides));
        }
        if let Some(resident) = resident.filter(|_| !moves) {
            let facts = FileFacts { path: decides, ..facts };
            for means in self.explain_fill_levels(&active, &facts, &views, &resident) {
                let _ = write!(outcome, "; {means}");
            }
        }
        let entry = active.rules.entries().get(explained.decision.entry.index());
        Ok(Explanation {
            path: shown,
            path_bytes: None,
            exists: true,
            on: vec![here.clone()],
            belongs,
            rule: entry.map(|entry| entry.name.clone()).unwrap_or_default(),
            steps: steps_shown(explained.steps),
            facts: self.facts_shown(&facts),
            outcome: self.with_removed(outcome),
            duplicates,
            may_be_on: Vec::new(),
        })
    }

    fn turn_of(&self, node: &Arc<Node>) -> MoveTiming {
        let Some(file) = node.file() else { return MoveTiming::Unknown };
        let (writers, copying) = {
            let state = file.state.read();
            (state.writers, state.copying.is_some())
        };
        if writers > 0 {
            MoveTiming::AtItsClose
        } else if copying {
            MoveTiming::Now
        } else if self.migrate.is_queued(node) {
            MoveTiming::Queued
        } else {
            MoveTiming::Unknown
        }
    }

    /// Where a new file of this name, made by root, would go.
    fn explain_absent(&self, path: &[u8], shown: String) -> Explanation {
        let new = self.what_if(&HypotheticalFile { path: path.to_vec(), ..HypotheticalFile::default() });
        Explanation { path: shown, path_bytes: None, facts: Vec::new(), may_be_on: self.offline_names(), ..new }
    }

    fn offline_names(&self) -> Vec<String> {
        let offline = self.branches.all().into_iter().filter(|branch| !branch.is_online());
        offline.map(|branch| branch.spec.name.clone()).collect()
    }

    /// Adds the names of removed branches that rules still mention. Without them the text would read as if they were
    /// only offline.
    pub(super) fn with_removed(&self, mut outcome: String) -> String {
        for name in self.placement.removed_in_rules() {
            let _ = write!(outcome, "; rules still name {name:?}, which was removed from the pool");
        }
        outcome
    }

    /// Branches that hold a file of this name.
    fn holders(&self, parent: &Arc<Node>, name: &std::ffi::OsStr) -> Result<Vec<String>, OpError> {
        let mut holders = Vec::new();
        for copy in self.tree.copies(parent)? {
            if copy.find(name)?.is_some() {
                holders.push(copy.branch.spec.name.clone());
            }
        }
        Ok(holders)
    }

    /// Facts as people read them; heat only where opens are counted.
    pub(super) fn facts_shown(&self, file: &FileFacts<'_>) -> Vec<(String, String)> {
        let mut facts = facts_shown(file);
        facts.retain(|(name, _)| name != "heat" || self.placement.counts_opens());
        facts
    }

    fn explain_dir(&self, node: &Arc<Node>, shown: String) -> Result<Explanation, OpError> {
        let on: Vec<String> = self.tree.copies(node)?.iter().map(|copy| copy.branch.spec.name.clone()).collect();
        let attr = self.tree.attr_of(node)?;
        Ok(Explanation {
            path: shown,
            path_bytes: None,
            exists: true,
            outcome: "a directory exists on every branch that holds something below it".to_owned(),
            on,
            belongs: None,
            rule: String::new(),
            steps: Vec::new(),
            facts: self.facts_shown(&settled_facts(b"", &attr.meta, attr.meta.btime)),
            duplicates: Vec::new(),
            may_be_on: Vec::new(),
        })
    }
}

/// When a file that is in the wrong place is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveTiming {
    /// It is being copied.
    Now,
    /// It waits for the mover.
    Queued,
    /// The file is open for writing.
    AtItsClose,
    /// It waits in memory.
    Staged {
        /// Until when, for people.
        leaves: &'static str,
    },
    /// No move of it is planned.
    Unknown,
}

fn outcome(here: &str, explained: &Explained, belongs: Option<&str>, turn: MoveTiming) -> String {
    let why = &explained.why;
    match (explained.decision.choice, belongs) {
        (Choice::Place(_), Some(there)) => match turn {
            MoveTiming::Now => format!("it is moving from {here} to {there} now ({why})"),
            MoveTiming::Queued => format!("it is queued to move from {here} to {there} ({why})"),
            MoveTiming::Staged { leaves } => format!("it waits in memory; it goes to {there} {leaves} ({why})"),
            MoveTiming::AtItsClose => format!("it moves from {here} to {there} when its last writer closes it ({why})"),
            MoveTiming::Unknown => {
                format!(
                    "it moves from {here} to {there} at its next close, or when the rules are enforced next ({why})"
                )
            }
        },
        (Choice::NoRoom, _) => format!("it stays on {here}: {why}"),
        _ if explained.is_first_choice => "nothing: it is where it belongs".to_owned(),
        _ => format!("it stays on {here} ({why})"),
    }
}

/// As rules say it.
fn kind_shown(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

pub(super) fn steps_shown(steps: Vec<umbrella_policy::placement::ExplainedRule>) -> Vec<ExplainStep> {
    let part = |part: umbrella_policy::placement::ExplainedCondition| ExplainPart {
        depth: part.depth,
        holds: part.holds,
        text: part.text,
    };
    let shown = |step: umbrella_policy::placement::ExplainedRule| ExplainStep {
        rule: step.rule,
        matched: step.matched,
        reason: step.reason,
        parts: step.parts.into_iter().map(part).collect(),
    };
    steps.into_iter().map(shown).collect()
}

/// Facts as people read them.
fn facts_shown(file: &FileFacts<'_>) -> Vec<(String, String)> {
    let age = |time: Timestamp| {
        let age = std::time::Duration::from_secs(time.age(file.now).as_secs());
        format!("{} ago", format_duration(age))
    };
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("type", kind_shown(file.kind).to_owned()),
        fact("size", file.guess_shown().unwrap_or_else(|| file.size.to_string())),
        fact("uid", file.uid.to_string()),
        fact("gid", file.gid.to_string()),
        fact("mode", format!("{:04o}", file.mode)),
        fact("links", file.links.to_string()),
        fact("atime", age(file.atime)),
        fact("mtime", age(file.mtime)),
        fact("ctime", age(file.ctime)),
        fact("btime", file.btime.map_or_else(|| "unknown".to_owned(), age)),
        fact("heat", file.heat.rounded().to_string()),
    ];
    let xattr = |xattr: &Xattr| fact(&xattr.name, String::from_utf8_lossy(&xattr.value).into_owned());
    facts.extend(file.xattrs.unwrap_or_default().iter().map(xattr));
    facts
}
