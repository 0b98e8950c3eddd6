//! A mounted file system.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use crate::connection::{self, Agreed};
use crate::device::Device;
use crate::filesystem::{Filesystem, Interruptions, Serve, Server};
use crate::memory::RingMemory;
use crate::mount::{MountSpec, Mounting, Unmounter};
use crate::notify::Notifier;
use crate::reply::Observer;
use crate::transport::Transport;
use crate::transport::dev::{self, DeviceReaders, DeviceThreads};
use crate::transport::processors;
use crate::transport::ring::{self, Refused, Rings};

/// The transport in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportInUse {
    /// Over io_uring.
    IoUring,
    /// From `/dev/fuse`, with the reason.
    Dev(String),
}

/// How a file system is served.
pub struct Config {
    /// How requests reach the file system.
    pub transport: Transport,
    /// The most bytes of one write or read; Linux sends no more than 1 MiB unless `fs.fuse.max_pages_limit` is raised.
    pub max_write: u32,
    /// Threads that read `/dev/fuse`, without io_uring; at least 2.
    pub threads: usize,
    /// Threads that there may be while handlers wait, without io_uring.
    pub max_threads: usize,
    /// Over io_uring, requests of one processor that may be with the file system at once; at least 2. More wait in the
    /// kernel: nothing that these need may be among them. Each takes a thread, a ring and a buffer until the
    /// connection ends: some 30 KiB, and as much in the kernel.
    pub max_entries: usize,
    /// Memory for the buffers of requests over io_uring, instead of the process's own.
    pub ring_memory: Option<RingMemory>,
    /// Sees every request when it was answered.
    pub observer: Option<Arc<dyn Observer>>,
    /// Called by every serving thread when it starts: for `prctl` settings such as `PR_SET_IO_FLUSHER`.
    pub thread_start: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            transport: Transport::Auto,
            max_write: 1 << 20,
            threads: 4,
            max_threads: 256,
            max_entries: 256,
            ring_memory: None,
            observer: None,
            thread_start: None,
        }
    }
}

/// A file system that is mounted and about to be served.
///
/// Dropping it without serving takes the mount away and ends the connection: waiting callers get an error.
pub struct Session<F: Filesystem> {
    served: Served<F>,
    device: Arc<Device>,
    unmounter: Unmounter,
}

/// A connection that has agreed with the kernel.
struct Served<F> {
    server: Arc<Server<F>>,
    readers: Arc<DeviceReaders>,
    rings: Option<Arc<Rings>>,
    transport: TransportInUse,
}

impl<F: Filesystem> Session<F> {
    /// Mounts a file system on a directory. Requests wait until [`Session::run`].
    ///
    /// Steps:
    ///
    /// 1. Switch io_uring on in the kernel where it is off: the kernel offers it, or not, when the mount is made.
    /// 2. Make a mount that nobody sees.
    /// 3. Receive INIT; make rings and threads before answering it.
    /// 4. Register the rings, or give the connection back to `/dev/fuse`.
    /// 5. With rings, a child process looks up for a moment a file of the kernel's that they need.
    /// 6. Put the mount into place.
    pub fn mount(filesystem: F, at: &Path, spec: &MountSpec, config: Config) -> io::Result<Session<F>> {
        let at = std::path::absolute(at)?;
        warn_of_request_timeout();
        let device = Arc::new(Device::open()?);
        let queues = processors::queues(config.transport);
        let mounting = Mounting::new(&device, spec, &at)?;
        let queues = match mounting.detached() {
            Some(_) => queues,
            None => Err("it needs the mount interface of Linux 5.2, which is forbidden here".to_owned()),
        };
        let served = match Session::connect(filesystem, Arc::clone(&device), config, queues) {
            Ok(served) => served,
            Err(error) => {
                mounting.abandon(&at);
                return Err(error);
            }
        };
        if let (Some(rings), Some(mount)) = (&served.rings, mounting.detached()) {
            rings.prepare_pokes(mount);
        }
        match mounting.attach(Arc::clone(&device), at) {
            Ok(unmounter) => Ok(Session { served, device, unmounter }),
            Err(error) => {
                served.end_rings();
                Err(error)
            }
        }
    }

    fn connect(
        mut filesystem: F,
        device: Arc<Device>,
        config: Config,
        queues: Result<usize, String>,
    ) -> io::Result<Served<F>> {
        let agreed =
            connection::negotiate(&device, config.max_write, |offer, agreement| filesystem.init(offer, agreement))?;
        let server = Arc::new(Server {
            filesystem,
            shape: agreed.shape(),
            interruptions: Interruptions::new(),
            observer: config.observer.clone(),
            thread_start: config.thread_start.clone(),
        });
        let (threads, max_threads) = (config.threads.max(2), config.max_threads);
        let (rings, transport) = match connect_rings(&agreed, &device, &server, config, queues) {
            Ok(rings) => (Some(rings), TransportInUse::IoUring),
            Err(NoRings::Reason(reason)) => (None, TransportInUse::Dev(reason)),
            Err(NoRings::Connection(error)) => return Err(error),
        };
        let gathers = rings.is_some();
        let (least, most) = if gathers { (2, 4) } else { (threads, max_threads) };
        let serve: Arc<dyn Serve> = Arc::<Server<F>>::clone(&server);
        let limits = dev::Limits { least, most, payload: agreed.payload(), gathers };
        let readers = DeviceReaders::new(device, serve, limits);
        Ok(Served { server, readers, rings, transport })
    }

    /// The transport in use, and why it is not io_uring.
    pub fn transport(&self) -> &TransportInUse {
        &self.served.transport
    }

    /// The file system.
    pub fn filesystem(&self) -> &F {
        &self.served.server.filesystem
    }

    /// Sends notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.device))
    }

    /// How many threads read `/dev/fuse`, to be changed while it is served.
    pub fn device_threads(&self) -> DeviceThreads {
        let none = self.served.rings.is_some();
        DeviceThreads(if none { Weak::new() } else { Arc::downgrade(&self.served.readers) })
    }

    /// Unmounts.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves the kernel until the mount is gone and every handler has returned.
    pub fn run(self) -> io::Result<()> {
        if let Some(rings) = &self.served.rings {
            rings.serve();
        }
        let ended = self.served.readers.run();
        self.end();
        self.served.server.filesystem.destroy();
        ended
    }

    /// Clears a mount that answers nobody, and ends a connection that has not ended.
    fn end(&self) {
        self.unmounter.clear();
        self.served.end_rings();
    }
}

impl<F> Served<F> {
    fn end_rings(&self) {
        if let Some(rings) = &self.rings {
            rings.end();
        }
    }
}

impl<F: Filesystem> Drop for Session<F> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<F: Filesystem> AsFd for Session<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

enum NoRings {
    /// `/dev/fuse` does it.
    Reason(String),
    /// Nothing does.
    Connection(io::Error),
}

/// Answers INIT, with rings if they are available.
fn connect_rings<F: Filesystem>(
    agreed: &Agreed,
    device: &Arc<Device>,
    server: &Arc<Server<F>>,
    config: Config,
    queues: Result<usize, String>,
) -> Result<Arc<Rings>, NoRings> {
    let most = config.max_entries.max(2);
    let prepared = queues.and_then(|queues| {
        if !agreed.offers_rings() {
            return Err("the kernel does not offer it".to_owned());
        }
        let serve: Arc<dyn Serve> = Arc::<Server<F>>::clone(server);
        let sizes = ring::Sizes { queues, most, payload: agreed.payload() };
        let prepared = Rings::prepare(device, serve, sizes, config.ring_memory);
        prepared.map_err(|error| format!("its rings cannot be made: {}", ring::with_remedy(&error)))
    });
    match prepared {
        Err(reason) => {
            agreed.answer(device, None).map_err(NoRings::Connection)?;
            Err(NoRings::Reason(reason))
        }
        Ok(prepared) => {
            if let Err(error) = agreed.answer(device, Some(most)) {
                prepared.abandon();
                return Err(NoRings::Connection(error));
            }
            prepared.register().map_err(|refused| match refused {
                Refused::GivenBack(error) => NoRings::Reason(format!("its rings cannot be registered: {error}")),
                Refused::Stuck(error) => NoRings::Connection(error),
            })
        }
    }
}

/// The administrator may have set a time after which an unanswered request ends a connection.
fn warn_of_request_timeout() {
    let setting = std::fs::read_to_string("/proc/sys/fs/fuse/default_request_timeout").unwrap_or_default();
    if let Ok(seconds @ 1..) = setting.trim().parse::<u32>() {
        tracing::warn!(
            seconds,
            "fs.fuse.default_request_timeout ends this mount if one request takes longer: set it to 0"
        );
    }
}
