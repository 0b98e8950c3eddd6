//! `umbrella repair --duplicates`: files that several branches have.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use serde::Serialize;
use umbrella_units::ByteSize;

use super::ask::{Asker, Consent};
use super::import;
use crate::advice::command;
use crate::config::{self, Config};
use crate::duplicates::{self, Copy, KeptReason, LockedBranch, Verdict};
use crate::pool::{self, Pool};
use crate::survey::{Contents, Finding, PoolPath, Root, Step, walk};
use crate::text::{count, visible, visible_path};
use crate::{covers, mounts, output};

/// Which of different copies keeps the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Keep {
    /// The newest copy, which the pool shows.
    Newest,
}

/// What is asked for.
#[derive(Debug)]
pub(super) struct DuplicatesOptions {
    /// The pool, by its configuration.
    pub(super) config: PathBuf,
    /// Different copies are renamed.
    pub(super) keep: Option<Keep>,
    pub(super) yes: bool,
    pub(super) dry_run: bool,
    pub(super) json: bool,
}

/// What became of a copy.
#[derive(Debug, Serialize)]
struct Event {
    #[serde(flatten)]
    place: PoolPath,
    /// `deleted`, `renamed`, `left`; with `--dry-run` `would_delete`, `would_rename`.
    outcome: CopyOutcome,
    branch: String,
    /// The branch of the copy that stays.
    kept: String,
    size: ByteSize,
    /// The new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Why it was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CopyOutcome {
    Deleted,
    WouldDelete,
    Renamed,
    WouldRename,
    Left,
}

impl CopyOutcome {
    fn word(self) -> &'static str {
        match self {
            CopyOutcome::Deleted => "deleted",
            CopyOutcome::WouldDelete => "would delete",
            CopyOutcome::Renamed => "renamed",
            CopyOutcome::WouldRename => "would rename",
            CopyOutcome::Left => "left",
        }
    }
}

/// The totals.
#[derive(Debug, Default, Serialize)]
struct DuplicatesSummary {
    files: u64,
    deleted: u64,
    bytes: ByteSize,
    renamed: u64,
    left: u64,
    failed: u64,
    /// The user ended the questions.
    stopped: bool,
}

pub(super) fn run(wanted: &DuplicatesOptions) -> anyhow::Result<ExitCode> {
    let config = configuration(&wanted.config)?;
    let asker = Asker::new(wanted.yes || wanted.dry_run, "repair --duplicates")?;
    config.spec.branches.iter().try_for_each(|branch| covers::refuse_covered(&branch.path))?;
    let (roots, silent) = import::roots(&config);
    if let Some(line) = silent.first() {
        bail!("{line}");
    }
    let branches = locked(&config, &roots)?;
    let mut work = Deduplicator { wanted, branches, asker, summary: DuplicatesSummary::default() };
    let mut stopped = false;
    let walked = walk(&roots, Contents::Sizes, &mut |step| match step {
        Step::Found(Finding::File { place, .. }) => match work.file(&place)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                stopped = true;
                Err(anyhow::anyhow!("stopped"))
            }
        },
        Step::At { .. } | Step::Found(_) => Ok(()),
    });
    match walked {
        Err(_) if stopped => work.summary.stopped = true,
        walked => drop(walked?),
    }
    work.finish()
}

/// The configuration of a pool that is not mounted.
fn configuration(path: &Path) -> anyhow::Result<Config> {
    let pool = if let Some(pool) = pool::holding(path)? {
        pool
    } else {
        let config = config::read(path)?;
        let pool = Pool::at(&mounts::resolve(&config.spec.mount));
        if !mounts::pools().contains(&pool.mount) && !crate::client::is_listening(&pool.socket) {
            return Ok(config);
        }
        pool
    };
    bail!(
        "the pool at {} is mounted, and its daemon may change the same files: unmount it ({}), and name its configuration",
        visible_path(&pool.mount),
        command(["unmount", &pool.mount.to_string_lossy()])
    )
}

fn locked(config: &Config, roots: &[Root]) -> anyhow::Result<Vec<LockedBranch>> {
    let lock = |root: &Root| {
        let read_only = config.spec.branches.iter().any(|branch| branch.name == root.name && branch.read_only);
        LockedBranch::lock(root, !read_only && !mounts::may_hang(&mounts::resolve(&root.path)))
    };
    Ok(roots.iter().map(lock).collect::<Result<Vec<_>, _>>()?)
}

struct Deduplicator<'a> {
    wanted: &'a DuplicatesOptions,
    branches: Vec<LockedBranch>,
    asker: Asker,
    summary: DuplicatesSummary,
}

impl Deduplicator<'_> {
    /// Looks at the copies of one file, and asks of each what the pool does not show.
    fn file(&mut self, place: &PoolPath) -> anyhow::Result<ControlFlow<()>> {
        self.summary.files += 1;
        let path = relative(place);
        let branches = std::mem::take(&mut self.branches);
        let next = match duplicates::open(&branches, &path) {
            Err((branch, left)) => self.keep(place, branch, "", 0, &left).map(|()| ControlFlow::Continue(())),
            Ok(mut copies) => match copies.split_first_mut() {
                Some((kept, others)) => self.copies(place, &path, &branches, kept, others),
                None => Ok(ControlFlow::Continue(())),
            },
        };
        self.branches = branches;
        next
    }

    fn copies(
        &mut self,
        place: &PoolPath,
        path: &Path,
        branches: &[LockedBranch],
        kept: &mut Copy<'_>,
        others: &mut [Copy<'_>],
    ) -> anyhow::Result<ControlFlow<()>> {
        for other in others {
            let verdict = other.compare(kept);
            let (branch, size) = (other.branch.name.clone(), other.size());
            let done = match verdict {
                Verdict::Equal => self.delete(place, path, kept, other)?,
                Verdict::Different if self.wanted.keep == Some(Keep::Newest) => {
                    self.rename(place, path, branches, kept, other)?
                }
                Verdict::Different => {
                    let reason = "it differs; `--keep newest` renames it";
                    self.print_event(&Event::of(place, CopyOutcome::Left, other, kept).because(reason))?;
                    self.summary.left += 1;
                    Some(Ok(()))
                }
                Verdict::Left(left) => Some(Err(left)),
            };
            match done {
                None => return Ok(ControlFlow::Break(())),
                Some(Ok(())) => {}
                Some(Err(left)) => self.keep(place, &branch, &kept.branch.name, size, &left)?,
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// `None`: the user ended the questions.
    fn delete(
        &mut self,
        place: &PoolPath,
        path: &Path,
        kept: &Copy<'_>,
        other: &Copy<'_>,
    ) -> anyhow::Result<Option<Result<(), KeptReason>>> {
        let size = ByteSize(other.size());
        let outcome = if self.wanted.dry_run {
            CopyOutcome::WouldDelete
        } else {
            let (on, kept) = (visible(&other.branch.name), visible(&kept.branch.name));
            match self
                .ask(&format!("delete {} on {on} ({size}, equal to the copy on {kept})?", visible(&place.path)))?
            {
                Some(true) => CopyOutcome::Deleted,
                Some(false) => return Ok(Some(Ok(()))),
                None => return Ok(None),
            }
        };
        if outcome == CopyOutcome::Deleted
            && let Err(left) = other.delete(kept, path.file_name().unwrap_or_default())
        {
            return Ok(Some(Err(left)));
        }
        self.summary.deleted += 1;
        self.summary.bytes = ByteSize(self.summary.bytes.0.saturating_add(size.0));
        self.print_event(&Event::of(place, outcome, other, kept))?;
        Ok(Some(Ok(())))
    }

    /// `None`: the user ended the questions.
    fn rename(
        &mut self,
        place: &PoolPath,
        path: &Path,
        branches: &[LockedBranch],
        kept: &Copy<'_>,
        other: &Copy<'_>,
    ) -> anyhow::Result<Option<Result<(), KeptReason>>> {
        let name = path.file_name().unwrap_or_default();
        let mut event = Event::of(place, CopyOutcome::WouldRename, other, kept);
        let new = if self.wanted.dry_run {
            duplicates::name_from(name, &other.branch.name, 1)
        } else {
            let (on, kept) = (visible(&other.branch.name), visible(&kept.branch.name));
            let question = format!("rename {} on {on} (differs from the newer copy on {kept})?", visible(&place.path));
            match self.ask(&question)? {
                Some(true) => {}
                Some(false) => return Ok(Some(Ok(()))),
                None => return Ok(None),
            }
            event.outcome = CopyOutcome::Renamed;
            match other.rename(branches, path) {
                Ok(new) => new,
                Err(left) => return Ok(Some(Err(left))),
            }
        };
        event.name = Some(new.to_string_lossy().into_owned());
        self.summary.renamed += 1;
        self.print_event(&event)?;
        Ok(Some(Ok(())))
    }

    /// `None`: no more questions. A no is counted.
    fn ask(&mut self, question: &str) -> anyhow::Result<Option<bool>> {
        Ok(match self.asker.ask(question)? {
            Consent::Yes | Consent::All => Some(true),
            Consent::No => {
                self.summary.left += 1;
                Some(false)
            }
            Consent::Quit => None,
        })
    }

    fn keep(&mut self, place: &PoolPath, branch: &str, kept: &str, size: u64, left: &KeptReason) -> anyhow::Result<()> {
        if left.is_failure() {
            self.summary.failed += 1;
        } else {
            self.summary.left += 1;
        }
        self.print_event(&Event {
            place: place.clone(),
            outcome: CopyOutcome::Left,
            branch: branch.to_owned(),
            kept: kept.to_owned(),
            size: ByteSize(size),
            name: None,
            reason: Some(left.to_string()),
        })
    }

    fn print_event(&self, event: &Event) -> anyhow::Result<()> {
        let reported = if self.wanted.json { output::json_line(event) } else { output::line(&event.text()) };
        Ok(reported?)
    }

    fn finish(self) -> anyhow::Result<ExitCode> {
        let DuplicatesSummary { files, deleted, bytes, renamed, left, failed, stopped } = &self.summary;
        if self.wanted.json {
            output::json_line(&self.summary)?;
        } else {
            let would = if self.wanted.dry_run { "would be " } else { "" };
            let mut line = format!(
                "{} on several branches: {} ({bytes}) {would}deleted, {renamed} {would}renamed, {left} left unchanged",
                count(*files, "file"),
                if *deleted == 1 { "1 copy".to_owned() } else { format!("{deleted} copies") }
            );
            if *failed > 0 {
                let _ = write!(line, ", {failed} failed");
            }
            if *stopped {
                line.push_str("; stopped before the end");
            }
            output::line(&line)?;
        }
        Ok(if *failed > 0 || *stopped { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl Event {
    fn of(place: &PoolPath, outcome: CopyOutcome, other: &Copy<'_>, kept: &Copy<'_>) -> Event {
        Event {
            place: place.clone(),
            outcome,
            branch: other.branch.name.clone(),
            kept: kept.branch.name.clone(),
            size: ByteSize(other.size()),
            name: None,
            reason: None,
        }
    }

    fn because(self, reason: &str) -> Event {
        Event { reason: Some(reason.to_owned()), ..self }
    }

    fn text(&self) -> String {
        let new = self.name.as_ref().map(|name| format!(" -> {}", visible(name))).unwrap_or_default();
        let reason = self.reason.as_ref().map(|reason| format!(": {}", visible(reason))).unwrap_or_default();
        let kept = if self.kept.is_empty() { String::new() } else { format!(", kept on {}", visible(&self.kept)) };
        let (outcome, path) = (self.outcome.word(), visible(&self.place.path));
        format!("{outcome:<12} {path}{new}  on {} ({}){kept}{reason}", visible(&self.branch), self.size)
    }
}

/// Relative to the roots of the branches.
fn relative(place: &PoolPath) -> PathBuf {
    let bytes = place.path_bytes.as_deref().unwrap_or(place.path.as_bytes());
    let path = Path::new(OsStr::from_bytes(bytes));
    path.strip_prefix("/").unwrap_or(path).to_owned()
}
