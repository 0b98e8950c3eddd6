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
use crate::operations::operations;
use crate::reply::{Observed, Observer, Pending, Reply};
use crate::request;
use crate::transport::poke;
use crate::types::{Errno, Lock, NodeId, RequestId};

/// The caller of a request.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The request.
    pub id: RequestId,
    /// User; `u32::MAX` on a mapped mount, except for requests that create.
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
    /// Thread; 0 is the kernel itself, or one whose number means nothing here.
    pub pid: u32,
    /// It was sent before, perhaps to another process, and may have been done ([`crate::Notifier::resend`]).
    pub resent: bool,
    interruptions: &'a Interruptions,
}

impl Context<'_> {
    /// Whether the caller does not want to wait any longer. Answer with EINTR, if nothing was done yet.
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

/// Defines the methods that answer, with their default, and which request calls which.
macro_rules! define_filesystem {
    ($($(#[$doc:meta])* $variant:ident $method:ident($request:ident $(<$life:lifetime>)?) -> $answer:ty;)*) => {
        /// A file system. Calls come from many threads at once.
        ///
        /// A method answers by its [`Reply`], at once or later, from any thread. A panic, or a dropped reply, is EIO.
        pub trait Filesystem: Send + Sync + 'static {
            /// The first call, before the mount can be seen: settles what kernel and file system may use. An error ends
            /// the mount.
            fn init(&mut self, _offer: &Offer, _agreement: &mut Agreement) -> io::Result<()> {
                Ok(())
            }

            /// The last call: the mount is gone, and every call has returned.
            fn destroy(&self) {}

            /// The kernel drops some or all lookups of a node. There is no answer.
            fn forget(&self, _request: &request::Forget) {}

            /// The caller of this request was interrupted. The request may not have arrived yet;
            /// [`Context::is_interrupted`] says it from now on. There is no answer but the request's own.
            fn interrupt(&self, _id: RequestId) {}

            /// Data that was asked for by [`Notifier::retrieve`](crate::Notifier::retrieve). There is no answer.
            fn retrieved(&self, _request: &request::Retrieved<'_>) {}

            $(
                $(#[$doc])*
                fn $method $(<$life>)? (&self, _context: &Context<'_>, _request: request::$request $(<$life>)?, reply: Reply<$answer>) {
                    reply.error(Errno::ENOSYS);
                }
            )*
        }

        impl<F: Filesystem> Server<F> {
            fn carry_out(&self, context: &Context<'_>, operation: Operation<'_>, pending: Pending) {
                match operation {
                    $(Operation::$variant(request) => self.filesystem.$method(context, request, Reply::new(pending)),)*
                    other => self.carry_out_other(other, pending),
                }
            }
        }
    };
}

operations!(define_filesystem);

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
            tracing::error!("the start hook of a request thread panicked; the thread serves requests all the same");
        }
    }

    fn serve(&self, header: &abi::InHeader, mut body: Body<'_>, channel: Arc<dyn Channel>) {
        let name = abi::operation_name(header.opcode);
        let span = tracing::debug_span!("request", name, id = header.unique, node = header.nodeid);
        let _entered = span.enter();
        let parsed = operation::parse(header, &mut body, self.shape);
        let observed = self.observer.as_ref().map(|observer| {
            let (operation, node, pid) = (header.opcode, NodeId(header.nodeid), header.pid);
            let names = body.names().map(|name| name.map(OsString::from));
            Box::new(Observed { observer: Arc::clone(observer), since: Instant::now(), operation, node, pid, names })
        });
        let id = RequestId(header.unique);
        let pending = Pending { id, to: channel, observed };
        let Ok(operation) = parsed else {
            tracing::warn!(operation = name, id = header.unique, "the kernel sent a request with inconsistent sizes");
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
            tracing::error!(operation = name, id = header.unique, "a handler panicked; its request fails with EIO");
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

    /// Executes operations that have no reply type of their own.
    fn carry_out_other(&self, operation: Operation<'_>, pending: Pending) {
        match operation {
            Operation::Forget(request) => self.forget(&request),
            Operation::BatchForget(all) => all.iter().for_each(|request| self.forget(request)),
            Operation::Interrupt(id) => {
                self.interruptions.remember(id);
                self.filesystem.interrupt(id);
            }
            Operation::Retrieved(request) => self.filesystem.retrieved(&request),
            Operation::Destroy => return Reply::new(pending).ok(()),
            _ => return Reply::<()>::new(pending).error(Errno::ENOSYS),
        }
        pending.done();
    }
}

#[cfg(test)]
mod tests;
