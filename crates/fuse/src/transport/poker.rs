//! A process of its own that makes queues look for requests that wait.
//!
//! A queue hands a waiting request to an entry that becomes free by an answer, not to one that was just registered. So after a
//! registration somebody asks something on that processor, and the answer to that takes along what waits. It must not be a thread
//! of the process that serves: one that waits in the kernel for its own process cannot be killed, nor can the connection end, since
//! the memory of the process holds the rings and these the connection.
//!
//! One process listens on a socket. For each poke it forks a child that asks (`statfs` of the mount) and ends. A child may wait behind
//! other requests, even for an entry that its successor brings along: so each poke has one of its own. It tells its number first, so that
//! its request is answered without the file system. There are no more of them than entries.
//!
//! All end when the socket does. None shares memory or descriptors with who serves; between fork and exec they make system calls only.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// More processors than queues are made for.
pub(crate) const MOST_PROCESSORS: usize = 256;

/// Who pokes queues.
pub(crate) struct Pokers {
    socket: OwnedFd,
    process: Process,
    /// Children that told their number and have not asked yet.
    children: Mutex<Vec<u32>>,
}

/// The listening process, to be waited for.
enum Process {
    Forked(libc::pid_t),
    Program(Child),
}

impl Pokers {
    /// Starts the listener. Before there are rings: by then it has ended all that it shares.
    pub(crate) fn start(mount: &Path, program: Option<Command>) -> io::Result<Pokers> {
        let path = CString::new(mount.as_os_str().as_bytes())?;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let process = match program {
            Some(mut program) => {
                rustix::net::send(&ours, path.as_bytes(), SendFlags::NOSIGNAL)?;
                Process::Program(program.stdin(theirs).stdout(Stdio::null()).spawn()?)
            }
            None => Process::Forked(fork_listener(&theirs, &path)?),
        };
        Ok(Pokers { socket: ours, process, children: Mutex::default() })
    }

    /// Makes the queue of a processor look for what waits.
    pub(crate) fn poke(&self, processor: usize) {
        let message = (processor as u32).to_ne_bytes();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let Err(error) = rustix::net::send(&self.socket, &message, flags) {
            tracing::warn!(%error, "the process that pokes queues is gone: a request may wait for the next one");
        }
    }

    /// Whether a request is a poke. Each child is good for one: its number may be another's later.
    pub(crate) fn asked(&self, pid: u32) -> bool {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = [MaybeUninit::<u8>::uninit(); 4];
        while let Ok(((told, _), 4)) = rustix::net::recv(&self.socket, &mut told, RecvFlags::DONTWAIT) {
            children.extend(<[u8; 4]>::try_from(&*told).map(u32::from_ne_bytes));
        }
        let place = children.iter().position(|child| *child == pid);
        place.map(|place| children.swap_remove(place)).is_some()
    }
}

impl Drop for Pokers {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        match &mut self.process {
            // SAFETY: waits for a child of ours, which ends with the socket; the status is not wanted.
            Process::Forked(pid) => unsafe {
                libc::waitpid(*pid, std::ptr::null_mut(), 0);
            },
            Process::Program(child) => {
                let _ = child.wait();
            }
        }
    }
}

/// What the program of [`Config::poker`](crate::Config::poker) has to do: pokes queues, as told on the standard input, until that ends.
///
/// Call it first, before the program starts threads or opens anything.
pub fn run_poker() -> ! {
    let stdin = io::stdin();
    let mut path = [MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
    let path = match rustix::net::recv(stdin.as_fd(), &mut path, RecvFlags::empty()) {
        Ok(((path, _), _)) => CString::new(&*path).unwrap_or_default(),
        Err(_) => CString::default(),
    };
    listen(stdin.as_raw_fd(), &path)
}

fn fork_listener(socket: &OwnedFd, path: &CStr) -> io::Result<libc::pid_t> {
    // SAFETY: the child of a process with threads may only make system calls; `listen` does nothing else.
    match unsafe { libc::fork() } {
        0 => listen(socket.as_raw_fd(), path),
        pid if pid > 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The listener's life. System calls only: it may have been forked from a process with threads.
fn listen(socket: RawFd, path: &CStr) -> ! {
    leave_everything(socket);
    loop {
        let mut message = [0_u8; 4];
        // SAFETY: receives into an array of this size.
        let got = unsafe { libc::recv(socket, message.as_mut_ptr().cast(), message.len(), 0) };
        if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        if got != 4 {
            exit();
        }
        // SAFETY: this process has one thread.
        if unsafe { libc::fork() } == 0 {
            ask(socket, path, u32::from_ne_bytes(message) as usize);
        }
    }
}

/// Lets go of what a fork took along.
fn leave_everything(socket: RawFd) {
    // SAFETY: plain calls on this process alone. Its descriptors but one belong to nobody in it any more.
    unsafe {
        if socket > 0 {
            libc::syscall(libc::SYS_close_range, 0, socket - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, socket + 1, u32::MAX, 0);
        // No terminal and no group of its former self can end it, and it keeps no mount busy.
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"fuse-poker".as_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        // Children that end need nobody to wait for them.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
    }
}

/// The life of a child.
fn ask(socket: RawFd, path: &CStr, processor: usize) -> ! {
    pin_this_thread(processor);
    // SAFETY: what is told is an array of four bytes; `statfs` fills a struct of its own kind.
    unsafe {
        let told = (libc::getpid() as u32).to_ne_bytes();
        libc::send(socket, told.as_ptr().cast(), told.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        libc::close(socket);
        let mut space = MaybeUninit::<libc::statfs>::uninit();
        libc::statfs(path.as_ptr(), space.as_mut_ptr());
    }
    exit()
}

fn exit() -> ! {
    // SAFETY: ends this process without running anything of the one that it was forked from.
    unsafe { libc::_exit(0) }
}

/// Keeps this thread on a processor; whether that could be done.
pub(crate) fn pin_this_thread(processor: usize) -> bool {
    // SAFETY: a set of processors is plain bits; the call reads one of this size.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        if processor >= libc::CPU_SETSIZE as usize {
            return false;
        }
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}
