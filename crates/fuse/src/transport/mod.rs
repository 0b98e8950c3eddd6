//! Two ways for requests to come: [`dev`] reads them from `/dev/fuse`, [`ring`] gets them over io_uring. Forgets,
//! interruptions and INIT come by the first in any case.

pub(crate) mod dev;
pub(crate) mod poke;
pub(crate) mod processors;
pub(crate) mod ring;
pub(crate) mod slot;

/// How the kernel's requests reach the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Over io_uring where the kernel can (Linux 6.14), else from `/dev/fuse`.
    #[default]
    Auto,
    /// From `/dev/fuse`.
    Dev,
}
