//! Other users and other processes.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{TIMEOUT, poll};

/// `nobody`.
pub const NOBODY: u32 = 65534;

/// This thread, as the kernel numbers it.
pub fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw().cast_unsigned()
}

/// Waits until a process, or a thread, is blocked in one of these system calls.
#[track_caller]
pub fn wait_for_call(process: u32, calls: &[libc::c_long]) {
    let is_in = || {
        let reported = std::fs::read_to_string(format!("/proc/{process}/syscall")).ok()?;
        let call = reported.split_whitespace().next()?.parse().ok()?;
        calls.contains(&call).then_some(())
    };
    assert!(poll(TIMEOUT, is_in).is_some(), "{process} is not blocked in {calls:?}");
}

/// Whether a child waits: true when it stays blocked in one system call, false when it ends.
pub fn waits(child: &mut std::process::Child) -> bool {
    let (path, mut same, mut last) = (format!("/proc/{}/syscall", child.id()), 0, None);
    let waits = poll(TIMEOUT, || {
        if child.try_wait().expect("it is our child").is_some() {
            return Some(false);
        }
        let now = std::fs::read_to_string(&path)
            .ok()
            .filter(|reported| reported.starts_with(|first: char| first.is_ascii_digit()));
        same = if now.is_some() && now == last { same + 1 } else { 0 };
        last = now;
        (same >= 10).then_some(true)
    });
    waits.expect("it ends, or waits for something")
}

/// Does something as another user: in a thread of its own, whose credentials (and capabilities) are that user's.
/// For the kernel a thread is a caller like any process.
pub fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
                set_thread_groups(&groups).expect("groups can be set by root");
                let gid = Gid::from_raw(gid);
                set_thread_res_gid(gid, gid, gid).expect("the group can be set by root");
                let uid = Uid::from_raw(uid);
                set_thread_res_uid(uid, uid, uid).expect("the user can be set by root");
                work()
            })
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Does something as `nobody`, who belongs to no other group.
pub fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    as_user(NOBODY, NOBODY, &[], work)
}

/// A second process that runs a closure and can be spoken with: one byte at a time in each direction.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    to: PipeWriter,
    from: PipeReader,
    reaped: bool,
}

/// The other side of [`Process`].
#[derive(Debug)]
pub struct Parent {
    to: PipeWriter,
    from: PipeReader,
}

impl Parent {
    /// Tells the parent a byte.
    pub fn say(&mut self, byte: u8) {
        self.to.write_all(&[byte]).ok();
    }

    /// Waits for a byte of the parent; 0 when the parent is gone.
    pub fn hear(&mut self) -> u8 {
        let mut byte = [0];
        self.from.read_exact(&mut byte).map_or(0, |()| byte[0])
    }
}

impl Process {
    /// Starts it. The closure must not panic; its answer is the exit code.
    pub fn start(work: impl FnOnce(&mut Parent) -> u8) -> Self {
        let (from, child_to) = std::io::pipe().unwrap();
        let (child_from, to) = std::io::pipe().unwrap();
        // SAFETY: the child only runs the closure and leaves with `_exit`; glibc keeps its allocator usable after fork.
        match unsafe { fork() }.expect("fork works") {
            ForkResult::Child => {
                drop((from, to));
                let mut parent = Parent { to: child_to, from: child_from };
                let code = work(&mut parent);
                // SAFETY: ends the process without running anything of the parent's.
                unsafe { libc::_exit(i32::from(code)) }
            }
            ForkResult::Parent { child } => {
                drop((child_to, child_from));
                Self { pid: child, to, from, reaped: false }
            }
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// Tells the process a byte.
    pub fn say(&mut self, byte: u8) {
        self.to.write_all(&[byte]).unwrap();
    }

    /// Waits for a byte; `None` when nothing came.
    pub fn hear(&mut self) -> Option<u8> {
        let mut ready = [rustix::event::PollFd::new(&self.from, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        if rustix::event::poll(&mut ready, Some(&limit)).ok()? == 0 {
            return None;
        }
        let mut byte = [0];
        self.from.read_exact(&mut byte).ok().map(|()| byte[0])
    }

    /// Waits for its end; `None` when it does not end by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        poll(TIMEOUT, || match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => {
                self.reaped = true;
                Some(code)
            }
            Ok(WaitStatus::Signaled(..)) => {
                self.reaped = true;
                Some(-1)
            }
            _ => None,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, None);
        }
    }
}

/// A file mapped shared, for reading and writing.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
    file: Option<OwnedFd>,
}

impl Mapping {
    /// Maps the first `len` bytes.
    pub fn new(file: impl AsFd, len: usize) -> std::io::Result<Self> {
        let file = file.as_fd().try_clone_to_owned()?;
        // SAFETY: a new mapping of a descriptor we own; nothing else knows the address.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), len, file: Some(file) })
    }

    /// Closes the mapping's own descriptor; the mapping lives on.
    pub fn close_file(&mut self) {
        self.file = None;
    }

    /// Reads one byte.
    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: inside the mapping, which lives as long as `self`.
        unsafe { self.start.add(at).read_volatile() }
    }

    /// Writes one byte.
    pub fn set(&mut self, at: usize, value: u8) {
        assert!(at < self.len);
        // SAFETY: inside the mapping, which lives as long as `self`.
        unsafe { self.start.add(at).write_volatile(value) }
    }

    /// Writes back what was changed.
    pub fn sync(&self) -> std::io::Result<()> {
        // SAFETY: the whole mapping.
        let result = unsafe { libc::msync(self.start.cast(), self.len, libc::MS_SYNC) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, used by nobody any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Sends a signal to a process this test started.
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap_or_else(|error| panic!("cannot send {signal} to {pid}: {error}"));
}

/// Whether a process with this id exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}
