//! Words of flags that a file system meets.

use bitflags::bitflags;

bitflags! {
    /// What kernel and file system agree on at INIT.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at once.
        const ASYNC_READ = 1 << 0;
        /// The file system keeps POSIX locks.
        const POSIX_LOCKS = 1 << 1;
        /// Opening with `O_TRUNC` is one request.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `.` and `..` are looked up too, for NFS export.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes larger than a page.
        const BIG_WRITES = 1 << 5;
        /// The file system applies the umask.
        const DONT_MASK = 1 << 6;
        /// The file system keeps locks of `flock`.
        const FLOCK_LOCKS = 1 << 10;
        /// Ioctls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached pages are dropped when size or mtime change.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Listings with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// Listings with attributes where the kernel expects to need them.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O.
        const ASYNC_DIO = 1 << 15;
        /// The kernel gathers writes, and owns size and mtime.
        const WRITEBACK_CACHE = 1 << 16;
        /// An open that is answered ENOSYS is not asked again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of a directory in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The file system drops set-id bits, always.
        const HANDLE_KILLPRIV = 1 << 19;
        /// Access control lists, checked by the kernel.
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort says ECONNABORTED.
        const ABORT_ERROR = 1 << 21;
        /// The field `max_pages` is set.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are kept.
        const CACHE_SYMLINKS = 1 << 23;
        /// An opendir that is answered ENOSYS is not asked again.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages are dropped only when the file system asks for it.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// Directories can be mounts of their own.
        const SUBMOUNTS = 1 << 27;
        /// The file system drops set-id bits when a request says so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has a word of flags more.
        const SETXATTR_EXT = 1 << 29;
        /// INIT has a second word of flags.
        const INIT_EXT = 1 << 30;
        /// A new entry's security context comes with its request.
        const SECURITY_CTX = 1 << 32;
        /// A supplementary group of the caller comes with requests that create.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// The kernel knows [`Notifier::expire_entry`](crate::Notifier::expire_entry).
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// `mmap` of files that are opened for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Data of an open file can go straight to a backing file.
        const PASSTHROUGH = 1 << 37;
        /// File handles of NFS are refused.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The kernel knows [`Notifier::resend`](crate::Notifier::resend).
        const HAS_RESEND = 1 << 39;
        /// The mount may be mapped to other ids.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests over io_uring. The session sets it.
        const OVER_IO_URING = 1 << 41;
        /// The kernel ends a connection whose requests take too long.
        const REQUEST_TIMEOUT = 1 << 42;
    }

    /// How an open file behaves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct OpenFlags: u32 {
        /// Bypasses the page cache.
        const DIRECT_IO = 1 << 0;
        /// Keeps the file's pages in the page cache.
        const KEEP_CACHE = 1 << 1;
        /// `lseek` fails.
        const NONSEEKABLE = 1 << 2;
        /// The kernel may cache the directory's listing.
        const CACHE_DIR = 1 << 3;
        /// The file has no position.
        const STREAM = 1 << 4;
        /// No FLUSH at close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one file at once.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Data goes to the backing file. Set by [`Opened::passthrough`](crate::Opened::passthrough).
        const PASSTHROUGH = 1 << 7;
    }

    /// Flags of a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct WriteFlags: u32 {
        /// From the page cache: file handle and caller may be others than the writer's.
        const CACHE = 1 << 0;
        /// The lock owner is given.
        const LOCK_OWNER = 1 << 1;
        /// Set-id bits are to be dropped.
        const KILL_SUIDGID = 1 << 2;
    }

    /// Flags of an ioctl.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct IoctlFlags: u32 {
        /// A program of 32 bits on a kernel of 64.
        const COMPAT = 1 << 0;
        /// The kernel does not know what it moves.
        const UNRESTRICTED = 1 << 1;
        /// Asked again, with other buffers.
        const RETRY = 1 << 2;
        /// The program has 32 bits.
        const BITS_32 = 1 << 3;
        /// The open is of a directory.
        const DIRECTORY = 1 << 4;
        /// A program of the x32 kind.
        const COMPAT_X32 = 1 << 5;
    }

    /// Flags of a rename.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RenameFlags: u32 {
        /// Fails if the new name exists.
        const NOREPLACE = 1 << 0;
        /// Exchanges both names.
        const EXCHANGE = 1 << 1;
        /// A whiteout is left at the old name.
        const WHITEOUT = 1 << 2;
    }

    /// Flags of attributes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AttributeFlags: u32 {
        /// The directory is the root of a mount of its own.
        const SUBMOUNT = 1 << 0;
    }
}
