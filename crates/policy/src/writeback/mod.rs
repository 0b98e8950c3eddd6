//! Which dirty pages go to disk next: one file per policy, one shared index of dirty pages, one registry.
//!
//! Events come in through [`WriteBack::on`], pages go out through [`WriteBack::select`]. The same object decides live
//! and in the lab.

mod carry;
mod event;
mod index;
mod policies;
mod policy;
pub mod record;
mod registry;

#[cfg(test)]
mod tests;

use std::fmt;

use umbrella_units::{Nanos, Pages};

pub use crate::error::PolicyError as WriteBackError;
pub use crate::param_info::{ParamInfo, ParamKind};
pub use crate::params::{ParamValues, Params, Spec};
pub use event::{DirtyPage, Event};
pub use index::{
    Age, Applied, BlockNeeds, DirtyFile, DirtyIndex, FileOrder, IndexedPage, Memory, Needs, Recency, Segments, Usage,
    Zone, ZoneNeeds, ZoneOrder,
};
pub use policy::{PageTimes, Policy, PolicyInfo, Write};
pub use registry::{find_policy, policies};

/// A policy with its index of dirty pages.
pub struct WriteBack {
    info: &'static PolicyInfo,
    needs: Needs,
    index: DirtyIndex,
    policy: Box<dyn Policy>,
}

impl fmt::Debug for WriteBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBack")
            .field("policy", &self.info.name)
            .field("dirty", &self.index.len())
            .finish_non_exhaustive()
    }
}

impl WriteBack {
    /// The policy of this name with these parameters, and no dirty page.
    pub fn new(name: &str, params: &Params) -> Result<WriteBack, WriteBackError> {
        let info = find_policy(name)?;
        let policy = (info.build)(&params.check(info.name, info.params)?);
        let needs = policy.needs();
        Ok(WriteBack { info, needs, index: DirtyIndex::new(needs), policy })
    }

    /// The policy that a text like `zone_segment:alpha=50,zone=8MiB` names.
    pub fn parse(text: &str) -> Result<WriteBack, WriteBackError> {
        let spec: Spec = text.parse()?;
        WriteBack::new(&spec.name, &spec.params)
    }

    /// Takes note of what happened.
    pub fn on(&mut self, now: Nanos, event: Event) {
        let applied = self.index.apply(now, event);
        match (event, applied) {
            (Event::Delete { file }, _) => self.policy.deleted(file),
            (_, Applied::Nothing) => {}
            (Event::Dirty { page, .. } | Event::Rewrite { page }, Applied::Written { writes, block }) => {
                self.policy.written(Write { page, block, writes }, &mut self.index);
                self.rank(now, page, Nanos::NEVER);
            }
            (Event::Foresee { page, next_write }, _) => self.rank(now, page, next_write),
            (Event::Deactivate { page }, _) if self.needs.inactive_only => self.rank(now, page, Nanos::NEVER),
            _ => {}
        }
    }

    fn rank(&mut self, now: Nanos, page: umbrella_units::PageKey, next: Nanos) {
        if self.needs.ranks
            && let Some((_, age)) = self.index.page(page, now)
        {
            let rank = self.policy.rank(PageTimes { since: now - age, next });
            self.index.set_rank(page, rank);
        }
    }

    /// Appends the pages to write next, in the order in which they are to be written; they are dirty no longer. Stops
    /// at `want` pages, except where the policy writes whole zones, segments or files.
    pub fn select(&mut self, now: Nanos, want: Pages, out: &mut Vec<DirtyPage>) {
        self.policy.select(now, want, &mut self.index, out);
    }

    /// How many pages are dirty.
    pub fn dirty(&self) -> Pages {
        Pages(self.index.len())
    }

    /// How many of them a selection can return.
    pub fn eligible(&self) -> Pages {
        Pages(self.index.eligible())
    }

    /// Bytes held, by structure. Walks the index: for reports, not for every event.
    pub fn memory(&self) -> Memory {
        Memory { policy: self.policy.bytes(), ..self.index.memory() }
    }

    /// The policy's name.
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// The policy's entry in the registry.
    pub fn info(&self) -> &'static PolicyInfo {
        self.info
    }

    /// What the policy needs of the index.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// The index, to look at.
    pub fn index(&self) -> &DirtyIndex {
        &self.index
    }
}
