//! The reply to one request. Sending consumes it, so it is sent once at most; dropping it answers EIO.
//!
//! Another thread may send it later. Until then the request's entry of the ring, and its thread, are taken.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::abi;
use crate::answer::{self, Answer, Data, Xattr};
use crate::channel::Channel;
use crate::types::{Errno, NodeId, RequestId};

/// A request that was answered, for tracers of requests.
#[derive(Debug, Clone, Copy)]
pub struct Finished<'a> {
    /// Which.
    pub id: RequestId,
    /// What was asked, see [`operation_name`](crate::operation_name).
    pub operation: u32,
    /// The node.
    pub node: NodeId,
    /// By which thread.
    pub pid: u32,
    /// The name that the request has: of an entry of the node, or of an extended attribute.
    pub name: Option<&'a OsStr>,
    /// The second name: where a rename goes, what a symbolic link points to.
    pub new_name: Option<&'a OsStr>,
    /// When it arrived.
    pub since: Instant,
    /// From the arrival to the answer. The time that it waited in the kernel before is not known.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<Errno>,
    /// Whom the name names, if the answer says so; node 0 is nobody.
    pub found: Option<NodeId>,
}

/// Sees each request that was answered, and each that wants no answer when it is done.
pub trait Observer: Send + Sync {
    /// Called on the thread that answers. Be quick: over io_uring the caller may wait until this returns.
    fn finished(&self, request: &Finished<'_>);
}

/// What an observer will get to see.
pub(crate) struct Observed {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) since: Instant,
    pub(crate) operation: u32,
    pub(crate) node: NodeId,
    pub(crate) pid: u32,
    pub(crate) names: [Option<OsString>; 2],
}

/// A request that waits for its answer.
pub(crate) struct Pending {
    pub(crate) id: RequestId,
    pub(crate) to: Arc<dyn Channel>,
    pub(crate) observed: Option<Box<Observed>>,
}

impl Pending {
    fn finish(self, error: Option<Errno>, found: Option<NodeId>) {
        let Some(observed) = self.observed else { return };
        let Observed { observer, since, operation, node, pid, names: [name, new_name] } = *observed;
        let (name, new_name) = (name.as_deref(), new_name.as_deref());
        let took = since.elapsed();
        let finished = Finished { id: self.id, operation, node, pid, name, new_name, since, took, error, found };
        // The request is answered; and this may run while a panic drops its reply, where a second one ends the process.
        if catch_unwind(AssertUnwindSafe(|| observer.finished(&finished))).is_err() {
            tracing::error!(operation = abi::operation_name(operation), "the observer of a request panicked");
        }
    }

    /// The request is done, and wants no answer.
    pub(crate) fn done(self) {
        self.finish(None, None);
    }

    fn send(self, answer: Result<&[&[u8]], Errno>) {
        self.to.send(self.id, answer);
        let found = self.observed.as_ref().and_then(|observed| answer::named(observed.operation, answer.ok()?));
        self.finish(answer.err(), found);
    }
}

/// The reply that one request waits for, of a kind.
#[must_use = "a reply that is dropped answers EIO"]
pub struct Reply<A> {
    pending: Option<Pending>,
    kind: PhantomData<fn(A)>,
}

impl<A> Reply<A> {
    pub(crate) fn new(pending: Pending) -> Reply<A> {
        Reply { pending: Some(pending), kind: PhantomData }
    }

    /// Which request it belongs to.
    pub fn id(&self) -> RequestId {
        self.pending.as_ref().map_or(RequestId(0), |pending| pending.id)
    }

    /// Answers with an error.
    pub fn error(mut self, error: Errno) {
        if let Some(pending) = self.pending.take() {
            pending.send(Err(error));
        }
    }
}

impl<A: Answer> Reply<A> {
    /// Answers.
    #[allow(clippy::needless_pass_by_value, reason = "most answers are made in place")]
    pub fn ok(mut self, answer: A) {
        if let Some(pending) = self.pending.take() {
            answer.with(|parts| pending.send(Ok(parts)));
        }
    }

    /// Answers with one or the other.
    pub fn send<E: Into<Errno>>(self, result: Result<A, E>) {
        match result {
            Ok(answer) => self.ok(answer),
            Err(error) => self.error(error.into()),
        }
    }
}

impl Reply<Data> {
    /// Answers with these bytes.
    pub fn data(mut self, data: &[u8]) {
        if let Some(pending) = self.pending.take() {
            pending.send(Ok(&[data]));
        }
    }

    /// Answers with what is written into a buffer of at most `size` bytes, which begins at a page. Over io_uring the
    /// kernel takes the data directly from this memory. Its earlier contents have no meaning.
    pub fn fill(mut self, size: usize, write: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let Some(pending) = &self.pending else { return };
        let (mut write, mut failed) = (Some(write), None);
        // A panic in `write` leaves the reply, which is dropped: EIO.
        pending.to.fill(pending.id, size, &mut |buffer| {
            let room = buffer.len();
            let filled = write.take().map_or(Err(Errno::EIO), |write| write(buffer)).map(|filled| filled.min(room));
            failed = filled.err();
            filled
        });
        if let Some(pending) = self.pending.take() {
            pending.finish(failed, None);
        }
    }
}

impl Reply<Xattr> {
    /// Answers with a value as it was asked for: its size, if that was asked (`room` is 0); ERANGE if it does not fit.
    pub fn value(mut self, room: u32, value: &[u8]) {
        let Some(pending) = self.pending.take() else { return };
        let size = abi::GetxattrOut { size: value.len() as u32, padding: 0 };
        match room {
            0 => pending.send(Ok(&[size.as_bytes()])),
            room if value.len() > room as usize => pending.send(Err(Errno::ERANGE)),
            _ => pending.send(Ok(&[value])),
        }
    }
}

impl<A> Drop for Reply<A> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            tracing::debug!(id = pending.id.0, "a handler left a request unanswered; it fails with EIO");
            pending.send(Err(Errno::EIO));
        }
    }
}

impl<A> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("id", &self.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
