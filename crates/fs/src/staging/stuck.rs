//! Files that should have left and could not: one warning names one of them and how many there are, for as long as there are any.
//!
//! What is stuck is known with what waits, so that it goes with it: when a file left, or was deleted, nothing is left to warn of.

use std::sync::Arc;

use crate::area::{Area, id_of};
use crate::migrate::show;
use crate::node::Node;
use crate::staging::Staging;

impl Area {
    /// A file could not leave. It is logged where no other is stuck for the same reason.
    pub(crate) fn note_stuck(&self, node: &Arc<Node>, why: &dyn std::fmt::Display) {
        let why: Arc<str> = why.to_string().into();
        let mut queue = self.queue.lock();
        if !queue.nodes.contains_key(&id_of(node)) {
            return; // Deleted meanwhile.
        }
        let is_news = !queue.stuck.values().any(|known| *known == why);
        queue.stuck.insert(id_of(node), Arc::clone(&why));
        drop(queue);
        if is_news {
            tracing::warn!("{}", told(node, &why, 0));
        }
    }
}

impl Staging {
    /// Files that no worker has and that nothing keeps here but that they were in use when it was their turn.
    pub(crate) fn not_stuck(&self, area: &Area) -> Vec<Arc<Node>> {
        let queue = area.queue.lock();
        let mut files: Vec<_> = queue.nodes.keys().filter(|file| !queue.stuck.contains_key(file)).copied().collect();
        self.workers.keep_free(&mut files);
        files.iter().filter_map(|file| queue.nodes.get(file).cloned()).collect()
    }

    /// What `umbrella status` says of files that cannot leave the staging area.
    pub(crate) fn stuck_warning(&self) -> Option<String> {
        let (node, why, others) = {
            let queue = self.staged.area.as_ref()?.queue.lock();
            let (file, why) = queue.stuck.first_key_value()?;
            (Arc::clone(queue.nodes.get(file)?), Arc::clone(why), queue.stuck.len() - 1)
        };
        Some(told(&node, &why, others))
    }
}

fn told(node: &Arc<Node>, why: &str, others: usize) -> String {
    let file = show(node);
    match others {
        0 => format!("{file} cannot leave the staging area: {why}; it stays there, and the daemon tries again"),
        1 => {
            format!(
                "{file} and another file cannot leave the staging area: {why}; they stay there, and the daemon tries again"
            )
        }
        _ => format!(
            "{file} and {others} other files cannot leave the staging area: {why}; they stay there, and the daemon tries again"
        ),
    }
}
