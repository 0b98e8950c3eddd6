//! The extended attributes that rules look at, read where a file lies. Where no rule looks at any, no call is made.

use rustix::fs::{Mode, OFlags, fstat, getxattr};
use rustix::io::{Errno, Result};
use umbrella_policy::placement::Xattr;

use crate::branch::beneath::open_beneath;
use crate::branch::{Branch, Online};
use crate::ground::fd_path::proc_path;
use crate::ground::meta::Meta;
use crate::node::Node;
use crate::placement::Placement;

/// The largest value of an attribute on Linux.
const LARGEST_VALUE: usize = 64 << 10;

impl Placement {
    /// Whether rules look at this extended attribute.
    pub(crate) fn looks_at_xattr(&self, name: &std::ffi::OsStr) -> bool {
        self.rules.load().rules.xattrs().iter().any(|asked| name == asked.as_str())
    }

    /// The extended attributes that rules look at, of a file with this path and these attributes on a branch. `None`:
    /// no rule looks at any, or they cannot be read, or the path leads to another file by now. Cost: an `openat2`, an
    /// `fstat`, and a `getxattr` for each name.
    pub(crate) fn xattrs(&self, path: &[u8], meta: &Meta, branch: &Branch) -> Option<Vec<Xattr>> {
        let asked = self.rules.load().rules.xattrs().to_vec();
        if asked.is_empty() {
            return None;
        }
        let (path, ino) = (path.to_vec(), meta.ino);
        branch.io(move |online| read(online, &path, ino, &asked)).ok().flatten()
    }

    /// As [`Placement::xattrs`], of a file of the tree.
    pub(crate) fn xattrs_of(&self, node: &Node, meta: &Meta) -> Option<Vec<Xattr>> {
        let file = node.file().filter(|_| !self.rules.load().rules.xattrs().is_empty())?;
        let branch = file.state.read().backing.branch;
        self.xattrs(&node.path(), meta, &*self.branches.get(branch).ok()?)
    }
}

fn read(online: &Online, path: &[u8], ino: u64, asked: &[String]) -> Result<Option<Vec<Xattr>>> {
    let file = match open_beneath(online.root(), path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        file => file?,
    };
    if fstat(&file)?.st_ino != ino {
        return Ok(None);
    }
    let link = proc_path(std::os::fd::AsFd::as_fd(&file));
    let mut found = Vec::new();
    let mut buffer = vec![0; LARGEST_VALUE];
    for name in asked {
        match getxattr(link.as_str(), name.as_str(), &mut buffer[..]) {
            Ok(length) => {
                let value = buffer.get(..length).unwrap_or_default().into();
                found.push(Xattr { name: name.as_str().into(), value });
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(found))
}
