//! How warm files are, for the rules.

use umbrella_policy::heat::Opens;
use umbrella_policy::placement::FileFacts;
use umbrella_units::{ByteSize, Timestamp};

use crate::branch::Branch;
use crate::control::protocol::HeatStatus;
use crate::ground::meta::{Meta, now};
use crate::inode_map::HeatKey;
use crate::metrics::Metric;
use crate::node::{Node, inode_key};
use crate::placement::{Placement, settled_facts};
use crate::spec::HeatSpec;

impl Placement {
    /// `[heat]`, or what holds without it.
    pub(crate) fn heat_settings(&self) -> HeatSpec {
        self.context.settings().heat.unwrap_or_default()
    }

    /// Whether opens are counted: where a rule asks for heat, or the configuration speaks of it.
    pub(crate) fn counts_opens(&self) -> bool {
        self.rules.load().rules.asked().heat || self.context.settings().heat.is_some()
    }

    /// A file on the branch with this slot was used; the use counts as `by` opens. True, now and then: the file is so
    /// warm that a rule may want it elsewhere.
    pub(crate) fn note_use(&self, node: &Node, slot: u16, by: Opens) -> bool {
        if !self.counts_opens() {
            return false;
        }
        let key = HeatKey { ino: node.ino, born: node.born };
        let warm = self.rules.load().rules.warm_from();
        self.inodes.heats().used(key, slot, by, (now(), self.heat_settings().half_life), warm)
    }

    /// How warm a file on a branch is that was born then.
    pub(crate) fn heat(&self, branch: &Branch, meta: &Meta, born: Option<Timestamp>) -> Opens {
        if !self.counts_opens() {
            return Opens(0);
        }
        let Some(online) = branch.online() else { return Opens(0) };
        let key = HeatKey { ino: self.inodes.ino(inode_key(&online, meta)), born };
        self.inodes.heats().opens(key, now(), self.heat_settings().half_life)
    }

    /// Whether a fill level moved a file to this branch, and it has not been opened since.
    pub(crate) fn rests(&self, branch: &Branch, meta: &Meta) -> bool {
        let Some(online) = branch.online() else { return false };
        let key = HeatKey { ino: self.inodes.ino(inode_key(&online, meta)), born: self.born(branch, meta) };
        self.inodes.heats().rests(key)
    }

    /// The facts of a file on a branch; the caller adds its extended attributes.
    pub(crate) fn facts<'a>(&self, path: &'a [u8], meta: &Meta, branch: &Branch) -> FileFacts<'a> {
        let born = self.born(branch, meta);
        FileFacts { heat: self.heat(branch, meta, born), ..settled_facts(path, meta, born) }
    }

    /// What `status` says of it; nothing where no opens are counted.
    pub(crate) fn heat_status(&self) -> Option<HeatStatus> {
        if !self.counts_opens() {
            return None;
        }
        let (heats, metrics) = (self.inodes.heats(), &self.context.metrics);
        let warm = self.rules.load().rules.warm_from();
        Some(HeatStatus {
            files: heats.count() as u64,
            warm: warm.map(|from| heats.count_warm(from, now(), self.heat_settings().half_life)),
            files_promoted: metrics.get(Metric::Promotions),
            bytes_promoted: ByteSize(metrics.get(Metric::PromotionBytes)),
            files_evicted: metrics.get(Metric::HeatEvictions),
            bytes_evicted: ByteSize(metrics.get(Metric::HeatEvictionBytes)),
        })
    }

    /// A fill level has moved a file.
    pub(crate) fn note_evicted(&self, node: &Node) {
        self.inodes.heats().rest(HeatKey { ino: node.ino, born: node.born });
    }

    /// Whether files may move because of heat, as far as `max_move` goes.
    pub(crate) fn may_move_by_heat(&self) -> bool {
        self.inodes.heats().has_budget(now(), self.heat_settings().max_move)
    }

    /// A file has moved because of heat.
    pub(crate) fn note_moved_by_heat(&self, bytes: ByteSize) {
        self.inodes.heats().spend(bytes, now(), self.heat_settings().max_move);
    }
}
