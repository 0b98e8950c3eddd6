//! What is left on a branch that was to be emptied, and why it cannot leave: names that another branch has too are never merged or
//! deleted unasked.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_policy::placement::spec::FileKind;

use crate::at::DirAt;
use crate::branch::Branch;
use crate::error::{OpResult, Twice};
use crate::migrate::Migrations;

/// What is left.
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// One of the files, as a path in the pool.
    pub(crate) example: Option<String>,
    /// Files that another branch has too.
    pub(crate) twice: Option<Twice>,
    /// Directories here that are files there, or the other way round.
    pub(crate) clash: Option<Twice>,
}

/// One directory, on the branch to be emptied and on those others that have it.
struct DirPair {
    here: DirAt,
    others: Vec<DirAt>,
    path: PathBuf,
}

impl Migrations {
    /// Looks through a whole branch, and for each name it still has at all others that are online.
    pub(crate) fn leftover_on(&self, branch: &Arc<Branch>) -> OpResult<Leftover> {
        let others = self.branches.list.load();
        let others = others.iter().filter(|other| other.id != branch.id && !self.branches.is_staging(other.id));
        let others = others.filter(|other| other.is_online()).filter_map(|other| DirAt::root(other).ok()).collect();
        let mut left = Leftover::default();
        let mut stack = vec![DirPair { here: DirAt::root(branch)?, others, path: PathBuf::new() }];
        while let Some(place) = stack.pop() {
            for entry in place.here.list(true)? {
                if place.path.as_os_str().is_empty() && entry.name == crate::branch::HIDDEN {
                    continue;
                }
                left.look(&place, &entry.name, &mut stack)?;
            }
        }
        Ok(left)
    }
}

impl Leftover {
    fn look(&mut self, place: &DirPair, name: &OsStr, stack: &mut Vec<DirPair>) -> OpResult<()> {
        let Some(meta) = place.here.find(name)? else { return Ok(()) };
        let path = place.path.join(name);
        let is_dir = meta.kind == FileKind::Directory;
        if !is_dir && self.example.is_none() {
            self.example = Some(format!("/{}", String::from_utf8_lossy(path.as_os_str().as_bytes())));
        }
        let mut below = Vec::new();
        for other in &place.others {
            let Some(there) = other.find(name)? else { continue };
            match (is_dir, there.kind == FileKind::Directory) {
                (true, true) => below.push(other.descend(name)?),
                (false, false) => note(&mut self.twice, place, other, &path),
                _ => note(&mut self.clash, place, other, &path),
            }
        }
        if is_dir {
            stack.push(DirPair { here: place.here.descend(name)?, others: below, path });
        }
        Ok(())
    }

    /// A directory here that is a file there keeps no file from leaving, but would be lost with the branch.
    pub(crate) fn into_example(self) -> (Option<String>, Option<Twice>, Option<Twice>) {
        let clash = self.clash.as_ref().map(|clash| clash.here.display().to_string());
        (self.example.or(clash), self.twice, self.clash)
    }
}

fn note(seen: &mut Option<Twice>, place: &DirPair, other: &DirAt, path: &Path) {
    let on = |dir: &DirAt| dir.branch.spec.path.join(path);
    seen.get_or_insert_with(|| Twice { names: 0, here: on(&place.here), there: on(other) }).names += 1;
}
