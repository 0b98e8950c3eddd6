//! How large a new file will be, for rules that ask for its size: a guess from the last files that were closed. Where
//! no rule asks, nothing is remembered.

use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{FileFacts, Stage};
use umbrella_units::ByteSize;

use crate::ground::meta::Meta;
use crate::node::Node;
use crate::placement::Placement;

impl Placement {
    /// A file was written, and its last writer has closed it.
    pub(crate) fn note_size(&self, node: &Node, meta: &Meta) {
        if meta.kind == FileKind::File && self.rules.load().rules.asked().sizes {
            let path = node.rule_path();
            self.last_sizes.lock().closed(&path, ByteSize(meta.size));
        }
    }

    /// The facts of a new file, with a guess at its size where a rule asks for that.
    pub(crate) fn with_guess<'a>(&self, new: FileFacts<'a>) -> FileFacts<'a> {
        if new.kind != FileKind::File || !self.rules.load().rules.asked().sizes {
            return new;
        }
        let guess = self.last_sizes.lock().guess(new.path);
        guess.map_or(new, |(size, alike)| FileFacts { size, stage: Stage::Guessed(alike), ..new })
    }
}
