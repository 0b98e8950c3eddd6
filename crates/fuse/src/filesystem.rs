//! What a file system does: one method for each operation. Those that it leaves out answer ENOSYS.

use std::ffi::OsString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::abi;
use crate::answer::{
    Block, Copied, Created, Data, Entry, IoctlAnswer, Listing, Offset, Opened, Ready, Space, Stat, Statx, Written,
    Xattr,
};
use crate::body::Body;
use crate::channel::Channel;
use crate::connection::{Agreement, Offer};
use crate::operation::{self, Operation, Shape};
use crate::reply::{Observed, Observer, Pending, Reply};
use crate::request;
use crate::transport::poke;
use crate::types::{Errno, Lock, NodeId, RequestId};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Which request.
    pub id: RequestId,
    /// User; `u32::MAX` on a mapped mount, but for requests that create.
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
    /// Thread; 0 is the kernel itself, or one whose number means nothing here.
    pub pid: u32,
    /// It was sent before, perhaps to another process, and may have been done ([`Notifier::resend`](crate::Notifier::resend)).
    pub resent: bool,
    interruptions: &'a Interruptions,
}

impl Context<'_> {
    /// Whether who asks does not want to wait any longer. Answer with EINTR, if nothing was done yet.
    ///
    /// To miss no interruption, first make the wait known to [`Filesystem::interrupt`], then ask this, then wait.
    pub fn is_interrupted(&self) -> bool {
        self.interruptions.has(self.id)
    }
}

/// How many interruptions are remembered. More than requests of one connection wait for something, mostly.
const REMEMBERED: usize = 256;

/// The requests that were interrupted last. An interruption may come before its request: so all are remembered.
#[derive(Debug)]
pub(crate) struct Interruptions {
    ids: [AtomicU64; REMEMBERED],
    next: AtomicUsize,
}

impl Interruptions {
    pub(crate) fn new() -> Interruptions {
        Interruptions { ids: [const { AtomicU64::new(0) }; REMEMBERED], next: AtomicUsize::new(0) }
    }

    pub(crate) fn remember(&self, id: RequestId) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % REMEMBERED;
        if let Some(slot) = self.ids.get(place) {
            slot.store(id.0, Ordering::SeqCst);
        }
    }

    fn has(&self, id: RequestId) -> bool {
        self.ids.iter().any(|slot| slot.load(Ordering::SeqCst) == id.0)
    }
}

/// Defines the methods that answer, with their default.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($request:ty) -> $answer:ty;)*) => {
        /// A file system. Calls come from many threads at once.
        ///
        /// A method answers by its [`Reply`], at once or later from any thread. If it panics or drops the reply, EIO is the answer.
        pub trait Filesystem: Send + Sync + 'static {
            /// The first call, before the mount can be seen: settles what kernel and file system may use. An error ends the mount.
            fn init(&mut self, _offer: &Offer, _agreement: &mut Agreement) -> io::Result<()> {
                Ok(())
            }

            /// The last call: the mount is gone, and every call has returned.
            fn destroy(&self) {}

            /// The kernel lets go of a node, of some or all of its lookups. There is no answer.
            fn forget(&self, _request: &request::Forget) {}

            /// The caller of this request was interrupted. The request may not have arrived yet; [`Context::is_interrupted`]
            /// says it from now on. There is no answer but the request's own.
            fn interrupt(&self, _id: RequestId) {}

            /// Data that was asked for by [`Notifier::retrieve`](crate::Notifier::retrieve). There is no answer.
            fn retrieved(&self, _request: &request::Retrieved<'_>) {}

            $(
                $(#[$doc])*
                fn $name(&self, _context: &Context<'_>, _request: $request, reply: Reply<$answer>) {
                    reply.error(Errno::ENOSYS);
                }
            )*
        }
    };
}

operations! {
    /// Looks up a name. [`Entry::negative`] lets the kernel remember that it does not exist.
    lookup(request::Lookup<'_>) -> Entry;
    /// Attributes.
    getattr(request::GetAttr) -> Stat;
    /// Attributes with the time of birth. After ENOSYS the kernel asks `getattr`.
    statx(request::GetStatx) -> Statx;
    /// Changes attributes, and returns the new ones.
    setattr(request::SetAttr) -> Stat;
    /// Target of a symbolic link.
    readlink(request::ReadLink) -> Data;
    /// Makes a file, device, pipe or socket.
    mknod(request::MkNod<'_>) -> Entry;
    /// Makes a directory.
    mkdir(request::MkDir<'_>) -> Entry;
    /// Makes a symbolic link.
    symlink(request::SymLink<'_>) -> Entry;
    /// Removes a name.
    unlink(request::Unlink<'_>) -> ();
    /// Removes a directory.
    rmdir(request::RmDir<'_>) -> ();
    /// Renames. Refuse flags that you do not know with EINVAL.
    rename(request::Rename<'_>) -> ();
    /// Makes a hard link.
    link(request::Link<'_>) -> Entry;
    /// Opens a file. After ENOSYS the kernel opens by itself, with handle 0.
    open(request::Open) -> Opened;
    /// Makes a file and opens it. After ENOSYS the kernel asks `mknod` and `open`.
    create(request::Create<'_>) -> Created;
    /// Makes a file without a name and opens it.
    tmpfile(request::Create<'_>) -> Created;
    /// Reads. Less than was asked for means the end of the file.
    read(request::Read) -> Data;
    /// Writes.
    write(request::Write<'_>) -> Written;
    /// A descriptor is closed. After ENOSYS the kernel asks no more.
    flush(request::Flush) -> ();
    /// The last descriptor of an open file is closed. The error, if any, reaches nobody.
    release(request::Release) -> ();
    /// Makes a file durable.
    fsync(request::FSync) -> ();
    /// Opens a directory. After ENOSYS the kernel opens by itself, with handle 0.
    opendir(request::Open) -> Opened;
    /// A piece of a listing; an empty one ends it.
    readdir(request::Read) -> Listing;
    /// A piece of a listing, with attributes.
    readdirplus(request::Read) -> Listing;
    /// The last descriptor of an open directory is closed.
    releasedir(request::Release) -> ();
    /// Makes a directory durable.
    fsyncdir(request::FSync) -> ();
    /// Makes the whole file system durable.
    syncfs(request::SyncFs) -> ();
    /// Free and total space.
    statfs(request::StatFs) -> Space;
    /// Sets an extended attribute.
    setxattr(request::SetXattr<'_>) -> ();
    /// Value of an extended attribute.
    getxattr(request::GetXattr<'_>) -> Xattr;
    /// Names of extended attributes.
    listxattr(request::ListXattr) -> Xattr;
    /// Removes an extended attribute.
    removexattr(request::RemoveXattr<'_>) -> ();
    /// Whether the caller may access a file.
    access(request::Access) -> ();
    /// Asks for a lock that conflicts.
    getlk(request::GetLock) -> Lock;
    /// Locks or unlocks; EAGAIN if it would have to wait and must not.
    setlk(request::SetLock) -> ();
    /// Block of the device below.
    bmap(request::BMap) -> Block;
    /// An ioctl; ENOTTY if it is not known.
    ioctl(request::Ioctl<'_>) -> IoctlAnswer;
    /// Asks which operations would not block.
    poll(request::Poll) -> Ready;
    /// Allocates space, or punches a hole.
    fallocate(request::FAllocate) -> ();
    /// Finds data or holes.
    lseek(request::LSeek) -> Offset;
    /// Copies data from one file to another.
    copy_file_range(request::CopyFileRange) -> Copied;
}

/// What a thread does first, see [`Config::thread_start`](crate::Config::thread_start).
pub(crate) type ThreadStart = Arc<dyn Fn() + Send + Sync>;

/// Serves requests; what the transports know of a file system.
pub(crate) trait Serve: Send + Sync {
    /// Called first by each thread that will serve.
    fn thread_starts(&self);

    /// Carries one request out. Its answer goes to the channel, now or later; requests that want none get none.
    fn serve(&self, header: &abi::InHeader, body: Body<'_>, channel: Arc<dyn Channel>);
}

/// A file system with what belongs to its connection.
pub(crate) struct Server<F> {
    pub(crate) filesystem: F,
    pub(crate) shape: Shape,
    pub(crate) interruptions: Interruptions,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) thread_start: Option<ThreadStart>,
}

impl<F: Filesystem> Serve for Server<F> {
    fn thread_starts(&self) {
        let Some(start) = &self.thread_start else { return };
        if catch_unwind(AssertUnwindSafe(|| start())).is_err() {
            tracing::error!("what a thread does first panicked; it serves all the same");
        }
    }

    fn serve(&self, header: &abi::InHeader, body: Body<'_>, channel: Arc<dyn Channel>) {
        let name = abi::operation_name(header.opcode);
        let span = tracing::debug_span!("request", name, id = header.unique, node = header.nodeid);
        let _entered = span.enter();
        let parsed = operation::parse(header, body, self.shape);
        let observed = self.observer.as_ref().map(|observer| {
            let (operation, node, pid) = (header.opcode, NodeId(header.nodeid), header.pid);
            let names = parsed.as_ref().map_or([None; 2], Operation::names).map(|name| name.map(OsString::from));
            Box::new(Observed { observer: Arc::clone(observer), since: Instant::now(), operation, node, pid, names })
        });
        let id = RequestId(header.unique);
        let pending = Pending { id, to: channel, observed };
        let Ok(operation) = parsed else {
            tracing::warn!(operation = name, id = header.unique, "the kernel sent a request whose sizes do not fit");
            if !operation::is_one_way(header.opcode) {
                Reply::<()>::new(pending).error(Errno::EIO);
            }
            return;
        };
        let context = Context {
            id,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            resent: header.unique & abi::UNIQUE_RESEND != 0,
            interruptions: &self.interruptions,
        };
        // The reply is dropped on the way out of a panic, and answers EIO.
        if catch_unwind(AssertUnwindSafe(|| self.carry_out(&context, operation, pending))).is_err() {
            tracing::error!(operation = name, id = header.unique, "a handler panicked; its request is answered EIO");
        }
    }
}

impl<F: Filesystem> Server<F> {
    fn forget(&self, request: &request::Forget) {
        // The file system never had that one.
        if request.node != poke::NODE {
            self.filesystem.forget(request);
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm an operation, and nothing else")]
    fn carry_out(&self, context: &Context<'_>, operation: Operation<'_>, pending: Pending) {
        use Operation as Op;
        let to = &self.filesystem;
        match operation {
            Op::Forget(request) => {
                self.forget(&request);
                pending.done();
            }
            Op::BatchForget(all) => {
                all.iter().for_each(|request| self.forget(&request));
                pending.done();
            }
            Op::Interrupt(id) => {
                self.interruptions.remember(id);
                to.interrupt(id);
                pending.done();
            }
            Op::Retrieved(request) => {
                to.retrieved(&request);
                pending.done();
            }
            Op::Lookup(request) => to.lookup(context, request, Reply::new(pending)),
            Op::GetAttr(request) => to.getattr(context, request, Reply::new(pending)),
            Op::Statx(request) => to.statx(context, request, Reply::new(pending)),
            Op::SetAttr(request) => to.setattr(context, request, Reply::new(pending)),
            Op::ReadLink(request) => to.readlink(context, request, Reply::new(pending)),
            Op::SymLink(request) => to.symlink(context, request, Reply::new(pending)),
            Op::MkNod(request) => to.mknod(context, request, Reply::new(pending)),
            Op::MkDir(request) => to.mkdir(context, request, Reply::new(pending)),
            Op::Unlink(request) => to.unlink(context, request, Reply::new(pending)),
            Op::RmDir(request) => to.rmdir(context, request, Reply::new(pending)),
            Op::Rename(request) => to.rename(context, request, Reply::new(pending)),
            Op::Link(request) => to.link(context, request, Reply::new(pending)),
            Op::Open(request) => to.open(context, request, Reply::new(pending)),
            Op::Create(request) => to.create(context, request, Reply::new(pending)),
            Op::TmpFile(request) => to.tmpfile(context, request, Reply::new(pending)),
            Op::Read(request) => to.read(context, request, Reply::new(pending)),
            Op::Write(request) => to.write(context, request, Reply::new(pending)),
            Op::StatFs(request) => to.statfs(context, request, Reply::new(pending)),
            Op::Release(request) => to.release(context, request, Reply::new(pending)),
            Op::FSync(request) => to.fsync(context, request, Reply::new(pending)),
            Op::SetXattr(request) => to.setxattr(context, request, Reply::new(pending)),
            Op::GetXattr(request) => to.getxattr(context, request, Reply::new(pending)),
            Op::ListXattr(request) => to.listxattr(context, request, Reply::new(pending)),
            Op::RemoveXattr(request) => to.removexattr(context, request, Reply::new(pending)),
            Op::Flush(request) => to.flush(context, request, Reply::new(pending)),
            Op::OpenDir(request) => to.opendir(context, request, Reply::new(pending)),
            Op::ReadDir(request) => to.readdir(context, request, Reply::new(pending)),
            Op::ReadDirPlus(request) => to.readdirplus(context, request, Reply::new(pending)),
            Op::ReleaseDir(request) => to.releasedir(context, request, Reply::new(pending)),
            Op::FSyncDir(request) => to.fsyncdir(context, request, Reply::new(pending)),
            Op::SyncFs(request) => to.syncfs(context, request, Reply::new(pending)),
            Op::GetLock(request) => to.getlk(context, request, Reply::new(pending)),
            Op::SetLock(request) => to.setlk(context, request, Reply::new(pending)),
            Op::Access(request) => to.access(context, request, Reply::new(pending)),
            Op::BMap(request) => to.bmap(context, request, Reply::new(pending)),
            Op::Ioctl(request) => to.ioctl(context, request, Reply::new(pending)),
            Op::Poll(request) => to.poll(context, request, Reply::new(pending)),
            Op::FAllocate(request) => to.fallocate(context, request, Reply::new(pending)),
            Op::LSeek(request) => to.lseek(context, request, Reply::new(pending)),
            Op::CopyFileRange(request) => to.copy_file_range(context, request, Reply::new(pending)),
            Op::Destroy => Reply::<()>::new(pending).ok(()),
            Op::Unknown => Reply::<()>::new(pending).error(Errno::ENOSYS),
        }
    }
}

#[cfg(test)]
mod tests;
