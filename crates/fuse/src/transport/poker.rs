//! A process of its own that makes queues look for requests that wait.
//!
//! A queue hands a waiting request to an entry that becomes free by an answer, not to one that was just registered. So after a
//! registration somebody asks something on that processor, and the answer to that takes along what waits. It must not be a thread
//! of the process that serves: one that waits in the kernel for its own process cannot be killed, nor can the connection end, since
//! the memory of the process holds the rings and these the connection.
//!
//! One process listens on a socket, and has for each processor that was ever asked for a child that does the asking (`statfs` of the
//! mount) and may hang in it. The listener tells the children's numbers, so that their requests are answered without the file system.
//! All end when the socket does. None shares memory or descriptors with who serves; between fork and exit they make system calls only.

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
/// No process.
const NONE: RawFd = -1;

/// Who pokes queues.
pub(crate) struct Pokers {
    socket: OwnedFd,
    process: Process,
    /// Numbers of the children, as far as they were told.
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

    /// Whether a request comes from one of them.
    pub(crate) fn asked(&self, pid: u32) -> bool {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told = [MaybeUninit::<u8>::uninit(); 4];
        while let Ok(((told, _), 4)) = rustix::net::recv(&self.socket, &mut told, RecvFlags::DONTWAIT) {
            children.extend(<[u8; 4]>::try_from(&*told).map(u32::from_ne_bytes));
        }
        children.contains(&pid)
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
    let mut children = [NONE; MOST_PROCESSORS];
    listen(stdin.as_raw_fd(), &path, &mut children)
}

fn fork_listener(socket: &OwnedFd, path: &CStr) -> io::Result<libc::pid_t> {
    let mut children = [NONE; MOST_PROCESSORS];
    // SAFETY: the child of a process with threads may only make system calls; `listen` does nothing else.
    match unsafe { libc::fork() } {
        0 => listen(socket.as_raw_fd(), path, &mut children),
        pid if pid > 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The listener's life. System calls only: it may have been forked from a process with threads.
fn listen(socket: RawFd, path: &CStr, children: &mut [RawFd; MOST_PROCESSORS]) -> ! {
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
        let processor = u32::from_ne_bytes(message) as usize;
        let Some(pipe) = children.get(processor).copied() else { continue };
        let pipe = if pipe == NONE { start_child(socket, path, processor, children) } else { pipe };
        // SAFETY: writes one byte. A pipe that is full has enough of them.
        unsafe { libc::write(pipe, message.as_ptr().cast(), 1) };
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

/// Starts the child of a processor; the pipe by which it is told.
fn start_child(socket: RawFd, path: &CStr, processor: usize, children: &mut [RawFd; MOST_PROCESSORS]) -> RawFd {
    let mut pipe = [NONE; 2];
    // SAFETY: fills an array of two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return NONE;
    }
    let [read, write] = pipe;
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        for other in children.iter().copied().chain([socket, write]).filter(|other| *other != NONE) {
            // SAFETY: closes descriptors of the child that it does not use.
            unsafe { libc::close(other) };
        }
        ask(read, path, processor);
    }
    // SAFETY: the descriptor is this process's own; what is told is an array of four bytes.
    unsafe {
        libc::close(read);
        libc::fcntl(write, libc::F_SETFL, libc::O_NONBLOCK);
        let told = (pid as u32).to_ne_bytes();
        libc::send(socket, told.as_ptr().cast(), told.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
    if pid > 0
        && let Some(place) = children.get_mut(processor)
    {
        *place = write;
    }
    write
}

/// The life of a child.
fn ask(pipe: RawFd, path: &CStr, processor: usize) -> ! {
    pin_this_thread(processor);
    loop {
        let mut byte = 0_u8;
        // SAFETY: reads one byte; `statfs` fills a struct of its own kind.
        unsafe {
            if libc::read(pipe, (&raw mut byte).cast(), 1) <= 0 {
                exit();
            }
            let mut space = MaybeUninit::<libc::statfs>::uninit();
            libc::statfs(path.as_ptr(), space.as_mut_ptr());
        }
    }
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
