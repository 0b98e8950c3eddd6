//! Directory listings, entry by entry into the kernel's buffer.

use std::ffi::OsStr;

use umbrella_fuse::{FileType, Full, InodeNumber, Listed, Listing, Read};

use crate::error::OpResult;
use crate::fuse::Fuse;
use crate::fuse::convert::{file_type, node};
use crate::node::NodeId;

/// The cookie of `..`, the last entry that no branch has.
const DOT_DOT: u64 = 2;

impl Fuse {
    pub(super) fn list_plus(&self, thread: u32, request: &Read) -> OpResult<Listing> {
        let (dir, offset) = (node(request.node), request.offset);
        let mut listing = Listing::new(request.size);
        if self.dots(dir, offset, |dot| listing.add_plain(dot))?.is_err() {
            return Ok(listing);
        }
        let entries = self.pool.list(dir, offset_after_dots(offset), request.handle.0)?;
        let rest = entries.after(offset);
        let with_attributes = if offset == 0 {
            self.attribute_use.begin_listing(thread, dir, rest.len())
        } else {
            self.attribute_use.is_expected(thread)
        };
        let (strict, mut given) = (self.pool.context().is_strict(), Vec::new());
        for entry in rest {
            let name = Listed {
                ino: InodeNumber(entry.ino.0),
                next: entry.cookie,
                kind: file_type(entry.kind),
                name: &entry.name,
            };
            if !with_attributes {
                if listing.add_plain(&name).is_err() {
                    break;
                }
                continue;
            }
            match self.pool.lookup_entry(dir, &entries, entry) {
                Ok(attr) => {
                    let shown = self.entry(&attr);
                    let name = Listed { ino: shown.attributes.ino, kind: shown.attributes.kind, ..name };
                    if listing.add_with_attributes(&name, &shown).is_err() {
                        self.pool.forget(attr.node, 1);
                        break;
                    }
                    if strict {
                        given.push(attr.node);
                    }
                }
                Err(error) if error.is_missing() => {}
                Err(error) if strict => {
                    // The kernel gets none of the listing, and would never forget what is in it.
                    for node in given {
                        self.pool.forget(node, 1);
                    }
                    return Err(error);
                }
                // It is there, whatever is wrong with it: the name alone.
                Err(_) if listing.add_plain(&name).is_err() => break,
                Err(_) => {}
            }
        }
        Ok(listing)
    }

    pub(super) fn list(&self, request: &Read) -> OpResult<Listing> {
        let (dir, offset) = (node(request.node), request.offset);
        let mut listing = Listing::new(request.size);
        if self.dots(dir, offset, |dot| listing.add(dot))?.is_err() {
            return Ok(listing);
        }
        for entry in self.pool.list(dir, offset_after_dots(offset), request.handle.0)?.after(offset) {
            let (ino, kind) = (InodeNumber(entry.ino.0), file_type(entry.kind));
            if listing.add(&Listed { ino, next: entry.cookie, kind, name: &entry.name }).is_err() {
                break;
            }
        }
        Ok(listing)
    }

    /// Adds `.` and `..`, where they are still to come.
    fn dots(
        &self,
        dir: NodeId,
        offset: u64,
        mut add: impl FnMut(&Listed<'_>) -> Result<(), Full>,
    ) -> OpResult<Result<(), Full>> {
        if offset >= DOT_DOT {
            return Ok(Ok(()));
        }
        let [own, parents] = self.pool.dot_inos(dir)?;
        for (name, next, ino) in [(".", 1, own), ("..", DOT_DOT, parents)] {
            if offset >= next {
                continue;
            }
            let (ino, name) = (InodeNumber(ino.0), OsStr::new(name));
            if add(&Listed { ino, next, kind: FileType::Directory, name }).is_err() {
                return Ok(Err(Full));
            }
        }
        Ok(Ok(()))
    }
}

/// Where a listing of what the branches have goes on.
fn offset_after_dots(offset: u64) -> u64 {
    if offset <= DOT_DOT { 0 } else { offset }
}
