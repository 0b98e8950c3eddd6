//! A pool connected with the kernel.

use std::path::Path;
use std::sync::{Arc, Mutex};

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};

use super::Fuse;
use super::convert::fs_name;
use super::tell::Tell;
use crate::pool::Pool;

/// A mount that nobody serves yet.
pub(crate) struct Mounted {
    session: Session<Fuse>,
}

/// How many threads there may be while all of them wait: for a disk, or for a file on its way to another branch. Many at once cost memory only, a megabyte each when all of them write. More than the kernel has in the background.
const MOST_THREADS: usize = 1100;

/// Mounts a pool on a directory, to be served by so many threads while none has to wait for long. `source` is what the table of mounts shows.
pub(crate) fn mount(pool: &Arc<Pool>, at: &Path, source: &Path, threads: usize) -> std::io::Result<Mounted> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(fs_name(source)),
        MountOption::Subtype("umbrella".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::Dev,
        MountOption::Suid,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    config.max_threads = Some(MOST_THREADS);
    let session = Session::new(Fuse::new(Arc::clone(pool)), at, &config)?;
    pool.set_kernel(Box::new(Tell { notifier: session.notifier() }));
    pool.announce_passthrough();
    Ok(Mounted { session })
}

impl Mounted {
    /// Takes the mount away; fails while it is in use.
    pub(crate) fn unmounter(&mut self) -> impl Fn() -> std::io::Result<()> + Send + Sync + 'static {
        let unmounter: Mutex<SessionUnmounter> = Mutex::new(self.session.unmount_callable());
        move || unmounter.lock().map_or_else(|_| Ok(()), |mut unmounter| unmounter.unmount())
    }

    /// Serves the kernel until the mount is gone.
    pub(crate) fn serve(self) -> std::io::Result<()> {
        self.session.run()
    }
}
