//! The thread that receives requests from the driver and returns their results. The driver accepts commands from this
//! thread only, so it never waits for a device that has workers.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use rustix::io::Errno;

use super::kernel::{Queue, RingEvent};
use super::wire::{QueueCommand, RequestTag};
use super::work::{WorkQueue, Worker};
use crate::file::AlignedBuffer;

/// Executes requests.
pub(super) enum Executor {
    /// Workers, which this queue feeds.
    Workers(Arc<WorkQueue>),
    /// The queue's thread itself.
    Inline(Worker<File>),
}

/// Serves until the driver says that there will be no more requests. Sends to `ready` once every tag waits for one.
pub(super) fn serve(queue: &mut Queue, depth: u16, executor: &Executor, ready: &Sender<io::Result<()>>) {
    // Needs a right that not every user has. Without it, all works except under a shortage of memory.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let served = match fetch_all_tags(queue, depth) {
        Ok(()) => {
            let _ = ready.send(Ok(()));
            serve_requests(queue, depth, executor)
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            Ok(())
        }
    };
    if let Err(error) = served {
        tracing::error!(%error, "the ublk device ends: cannot serve its queue");
    }
}

/// Asks for a request with every tag. The driver refuses a command at once, or not at all.
fn fetch_all_tags(queue: &mut Queue, depth: u16) -> io::Result<()> {
    for tag in 0..depth {
        queue.send(QueueCommand::Fetch, RequestTag(tag), 0)?;
    }
    queue.arm_notifier()?;
    queue.submit()?;
    let mut events = Vec::new();
    queue.events(&mut events);
    let refused = events.iter().find_map(|event| match event {
        RingEvent::Ended(failed) => Some(failed.map_or(Errno::NODEV.raw_os_error(), |failed| -failed)),
        // No program has seen the device yet.
        RingEvent::Request(_) | RingEvent::Notified => None,
    });
    refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

fn serve_requests(queue: &mut Queue, depth: u16, executor: &Executor) -> io::Result<()> {
    // Tags that the driver has not ended. A tag in the work queue is one of them: its last command returns later.
    let mut open = depth;
    let mut events = Vec::new();
    let mut buffer = AlignedBuffer::default();
    while open > 0 {
        queue.wait()?;
        queue.events(&mut events);
        for event in events.drain(..) {
            match event {
                RingEvent::Request(tag) => {
                    let request = queue.request(tag).ok_or(Errno::PROTO)?;
                    match executor {
                        Executor::Workers(work_queue) => work_queue.submit(tag, request),
                        Executor::Inline(worker) => {
                            let result = worker.execute(tag, &request, &mut buffer);
                            queue.send(QueueCommand::CommitAndFetch, tag, result)?;
                        }
                    }
                }
                RingEvent::Ended(failed) => {
                    open -= 1;
                    if let Some(failed) = failed {
                        return Err(io::Error::from_raw_os_error(-failed));
                    }
                }
                RingEvent::Notified => {
                    queue.clear_notification();
                    queue.arm_notifier()?;
                }
            }
        }
        if let Executor::Workers(work_queue) = executor {
            for (tag, result) in work_queue.take_results() {
                queue.send(QueueCommand::CommitAndFetch, tag, result)?;
            }
        }
    }
    Ok(())
}
