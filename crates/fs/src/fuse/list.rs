//! Directory listings, entry by entry into the kernel's buffer.

use std::time::Duration;

use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::Fuse;
use super::convert::{dot_attr, file_attr, file_type};
use crate::error::OpResult;
use crate::node::NodeId;

impl Fuse {
    pub(super) fn list_plus(
        &self,
        thread: u32,
        ino: INodeNo,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> OpResult<()> {
        let node = NodeId(ino.0);
        // Beyond the beginning the kernel asks for attributes only where they are used. What is left out here it asks for as names.
        let most = if offset == 0 { self.readers.begin(thread, node) } else { usize::MAX };
        let zero = Duration::ZERO;
        for (name, cookie) in [(".", 1), ("..", 2)] {
            if offset < cookie {
                let own = self.pool.ino_of(node)?;
                let shown = if cookie == 1 { own } else { self.pool.parent_of(node)?.1 };
                let attr = dot_attr(INodeNo(shown.0));
                // Node id zero: the kernel takes it as a name only.
                if reply.add_for(INodeNo(0), INodeNo(shown.0), cookie, name, &zero, &zero, &attr, Generation(0)) {
                    return Ok(());
                }
            }
        }
        let listing = self.pool.list(node, if offset <= 2 { 0 } else { offset })?;
        for entry in listing.after(offset).iter().take(most) {
            let attr = match self.pool.lookup_entry(node, &listing, entry) {
                Ok(attr) => attr,
                Err(error) if error.is_missing() => continue,
                Err(error) if self.pool.is_strict() => return Err(error),
                // It is there, whatever is wrong with it: the name alone.
                Err(_) => {
                    let ino = INodeNo(entry.ino.0);
                    let attr = FileAttr { kind: file_type(entry.kind), ..dot_attr(ino) };
                    if reply.add_for(INodeNo(0), ino, entry.cookie, &entry.name, &zero, &zero, &attr, Generation(0)) {
                        return Ok(());
                    }
                    continue;
                }
            };
            let (id, ino) = (INodeNo(attr.node.0), INodeNo(attr.ino.0));
            let full = reply.add_for(
                id,
                ino,
                entry.cookie,
                &entry.name,
                &self.ttl,
                &self.attr_ttl(attr.cacheable),
                &file_attr(&attr),
                Generation(0),
            );
            if full {
                self.pool.forget(attr.node, 1);
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn list(&self, ino: INodeNo, offset: u64, reply: &mut ReplyDirectory) -> OpResult<()> {
        let node = NodeId(ino.0);
        if offset < 1 && reply.add(INodeNo(self.pool.ino_of(node)?.0), 1, FileType::Directory, ".") {
            return Ok(());
        }
        if offset < 2 && reply.add(INodeNo(self.pool.parent_of(node)?.1.0), 2, FileType::Directory, "..") {
            return Ok(());
        }
        let listing = self.pool.list(node, if offset <= 2 { 0 } else { offset })?;
        for entry in listing.after(offset) {
            if reply.add(INodeNo(entry.ino.0), entry.cookie, file_type(entry.kind), &entry.name) {
                break;
            }
        }
        Ok(())
    }
}
