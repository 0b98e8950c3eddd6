//! The trace of requests: one line each, in a file (`umbrella mount --trace-requests FILE`).
//!
//! A request leaves its line in memory and goes on; one thread brings lines to the file, some at once. So the pool
//! never waits for the file. What does not fit in memory is left out and counted in the file. When the file cannot be
//! written, tracing ends with a warning.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{io, mem, thread};

use rustix::fs::OFlags;
use umbrella_fuse::{Finished, Observer, operation_name};

use crate::ground::locks::{Condvar, LeafMutex, rank};

/// Lines that wait for the file, in bytes, before more are left out.
const MOST_WAITING: usize = 8 << 20;
/// How long the end of a trace waits for the file.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long lines gather before they are written: the trace wakes its thread no more often.
const GATHER: Duration = Duration::from_millis(50);

/// A trace that goes on until it is dropped, which writes the last lines.
pub(crate) struct RequestTrace {
    lines: Arc<TraceLog>,
    writer: Option<JoinHandle<()>>,
}

/// What requests leave.
pub(crate) struct TraceLog {
    begun: Instant,
    waiting: LeafMutex<rank::TraceLines, TraceBuffer>,
    changed: Condvar,
}

#[derive(Default)]
struct TraceBuffer {
    text: String,
    left_out: u64,
    ended: bool,
}

impl RequestTrace {
    /// Begins a trace at the end of a regular file that only its owner may read.
    pub(crate) fn begin(path: &Path) -> io::Result<RequestTrace> {
        // A FIFO without a reader would wait for a reader.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let mut file = File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(io::Error::other(
                "other users can read it, and it names files (chmod 600, or name a new file)",
            ));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        writeln!(file, "# seconds since {unix:.6} (Unix time), request, operation and its details")?;
        let lines =
            Arc::new(TraceLog { begun: Instant::now(), waiting: LeafMutex::default(), changed: Condvar::new() });
        let (shared, path) = (Arc::clone(&lines), PathBuf::from(path));
        let writer = thread::Builder::new().name("trace".to_owned()).spawn(move || shared.write_to(file, &path))?;
        Ok(RequestTrace { lines, writer: Some(writer) })
    }

    /// The observer that records requests.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        Arc::<TraceLog>::clone(&self.lines)
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        self.lines.end();
        let Some(writer) = self.writer.take() else { return };
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !writer.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        // One that hangs in a write to its file must not keep the pool from ending.
        if writer.is_finished() {
            let _ = writer.join();
        }
    }
}

impl TraceLog {
    fn end(&self) {
        self.waiting.lock().ended = true;
        self.changed.notify_one();
    }

    fn write_to(&self, mut file: impl io::Write, path: &Path) {
        while let Some(text) = self.next() {
            if let Err(error) = file.write_all(text.as_bytes()) {
                tracing::warn!(file = %path.display(), %error, "cannot write the trace of requests: it ends here");
                self.end();
                return;
            }
        }
    }

    /// Waits for lines. None at the end.
    fn next(&self) -> Option<String> {
        let mut waiting = self.waiting.lock();
        while waiting.text.is_empty() && !waiting.ended {
            self.changed.wait(&mut waiting);
        }
        if !waiting.ended {
            // Woken before its time only by the end.
            self.changed.wait_for(&mut waiting, GATHER);
        }
        let mut text = mem::take(&mut waiting.text);
        match mem::take(&mut waiting.left_out) {
            0 => {}
            requests => {
                // A string takes everything.
                let _ = writeln!(text, "# {requests} requests left out: this file is too slow");
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

impl Observer for TraceLog {
    fn finished(&self, request: &Finished<'_>) {
        let mut waiting = self.waiting.lock();
        if waiting.ended {
            return;
        }
        if waiting.text.len() >= MOST_WAITING {
            waiting.left_out += 1;
            return;
        }
        let first = waiting.text.is_empty();
        let _ = write_line(&mut waiting.text, self.begun, request);
        drop(waiting);
        if first {
            self.changed.notify_one();
        }
    }
}

#[expect(clippy::unnecessary_debug_formatting, reason = "a name may hold spaces and line ends")]
fn write_line(text: &mut String, begun: Instant, request: &Finished<'_>) -> std::fmt::Result {
    let at = request.since.saturating_duration_since(begun);
    write!(text, "{:.6} #{} {}", at.as_secs_f64(), request.id.0, operation_name(request.operation))?;
    write!(text, " node={}", request.node.0)?;
    for (key, name) in [("name", request.name), ("new_name", request.new_name)] {
        if let Some(name) = name {
            write!(text, " {key}={name:?}")?;
        }
    }
    write!(text, " pid={} handler_us={:.1} result=", request.pid, request.took.as_secs_f64() * 1e6)?;
    match request.error {
        None => text.push_str("ok"),
        Some(error) => match error.name() {
            Some(name) => text.push_str(name),
            None => write!(text, "errno-{}", error.raw())?,
        },
    }
    match request.found {
        None => text.push('\n'),
        Some(node) if node.0 == 0 => text.push_str(" found=nothing\n"),
        Some(node) => writeln!(text, " found={}", node.0)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests;
