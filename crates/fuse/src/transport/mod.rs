//! Two ways for requests to come: [`dev`] reads them from `/dev/fuse`, [`ring`] gets them over io_uring. Forgets, interruptions and
//! INIT come by the first in any case.

pub(crate) mod dev;
pub(crate) mod poker;
pub(crate) mod ring;
pub(crate) mod slot;
