//! The thread that takes requests from the driver and brings it their results. Where there are workers it waits for
//! nothing else: the driver takes commands from it alone.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use rustix::io::Errno;

use super::kernel::{Queue, RingEvent};
use super::wire::{QueueCommand, RequestTag};
use super::work::{Desk, Worker};
use crate::file::AlignedBuffer;

/// Who carries requests out.
pub(super) enum Hands {
    /// Workers, at this desk.
    Many(Arc<Desk>),
    /// The queue's thread itself.
    Own(Worker<File>),
}

/// Serves until the driver says that there will be no more requests. Sends to `ready` once every tag waits for one.
pub(super) fn serve(queue: &mut Queue, depth: u16, hands: &Hands, ready: &Sender<io::Result<()>>) {
    // Needs a right that not every user has. Without it, all works except under a shortage of memory.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let served = match begin(queue, depth) {
        Ok(()) => {
            let _ = ready.send(Ok(()));
            go_on(queue, depth, hands)
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

/// Asks for a request with every tag. What the driver refuses, it refuses at once.
fn begin(queue: &mut Queue, depth: u16) -> io::Result<()> {
    for tag in 0..depth {
        queue.send(QueueCommand::Fetch, RequestTag(tag), 0)?;
    }
    queue.listen()?;
    queue.submit()?;
    let mut events = Vec::new();
    queue.events(&mut events);
    let refused = events.iter().find_map(|event| match event {
        RingEvent::Ended(failed) => Some(failed.map_or(Errno::NODEV.raw_os_error(), |failed| -failed)),
        // Nobody has seen the device yet.
        RingEvent::Request(_) | RingEvent::Rung => None,
    });
    refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

fn go_on(queue: &mut Queue, depth: u16, hands: &Hands) -> io::Result<()> {
    // Tags that the driver has not given up. Those that are with the desk count: their last command returns later.
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
                    match hands {
                        Hands::Many(desk) => desk.give(tag, request),
                        Hands::Own(worker) => {
                            let result = worker.carry_out(tag, &request, &mut buffer);
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
                RingEvent::Rung => {
                    queue.silence();
                    queue.listen()?;
                }
            }
        }
        if let Hands::Many(desk) = hands {
            for (tag, result) in desk.results() {
                queue.send(QueueCommand::CommitAndFetch, tag, result)?;
            }
        }
    }
    Ok(())
}
