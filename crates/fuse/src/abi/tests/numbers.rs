//! The numbers of the protocol: those of the crate, against numbers written down from the description of 7.45, and
//! against the installed headers where they have the name.

use std::fmt::Write as _;

use bitflags::Flags;

use super::super::*;
use super::compile;
use crate::flags::{AttributeFlags, InitFlags, IoctlFlags, OpenFlags, RenameFlags, WriteFlags};
use crate::ioctl;
use crate::mount;

/// A number of the crate, and what it must be.
struct Number {
    name: String,
    found: u64,
    expected: u64,
}

/// Numbers as they are defined in the crate.
trait Plain {
    fn plain(self) -> u64;
}

macro_rules! plain {
    ($($kind:ty => |$it:ident| $number:expr;)*) => {$(
        impl Plain for $kind {
            fn plain(self) -> u64 {
                let $it = self;
                $number
            }
        }
    )*};
}

plain! {
    u32 => |it| u64::from(it);
    i32 => |it| it as u64;
    u64 => |it| it;
    usize => |it| it as u64;
    InitFlags => |it| it.bits();
    OpenFlags => |it| u64::from(it.bits());
    WriteFlags => |it| u64::from(it.bits());
    IoctlFlags => |it| u64::from(it.bits());
    RenameFlags => |it| u64::from(it.bits());
    AttributeFlags => |it| u64::from(it.bits());
    rustix::fs::StatxFlags => |it| u64::from(it.bits());
}

/// A list of numbers: the beginning of their names in the header, then name, other name in the header, number.
macro_rules! numbers {
    ($prefix:literal $group:ident { $($name:ident $(as $other:literal)? = $number:expr,)* }) => {
        vec![$(Number {
            name: format!("{}{}", $prefix, [stringify!($name) $(, $other)?].last().unwrap()),
            found: $group::$name.plain(),
            expected: $number,
        }),*]
    };
}

fn opcodes() -> Vec<Number> {
    numbers! { "FUSE_" opcode {
        LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9, UNLINK = 10, RMDIR = 11,
        RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21,
        GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29,
        FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33, ACCESS = 34, CREATE = 35, INTERRUPT = 36, BMAP = 37, DESTROY = 38,
        IOCTL = 39, POLL = 40, NOTIFY_REPLY = 41, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46,
        COPY_FILE_RANGE = 47, SYNCFS = 50, TMPFILE = 51, STATX = 52, COPY_FILE_RANGE_64 = 53,
    }}
}

fn init_flags() -> Vec<Number> {
    numbers! { "FUSE_" InitFlags {
        ASYNC_READ = 0x1, POSIX_LOCKS = 0x2, ATOMIC_O_TRUNC = 0x8, EXPORT_SUPPORT = 0x10, BIG_WRITES = 0x20, DONT_MASK = 0x40,
        FLOCK_LOCKS = 0x400, HAS_IOCTL_DIR = 0x800,
        AUTO_INVAL_DATA = 0x1000, DO_READDIRPLUS = 0x2000, READDIRPLUS_AUTO = 0x4000, ASYNC_DIO = 0x8000,
        WRITEBACK_CACHE = 0x1_0000, NO_OPEN_SUPPORT = 0x2_0000, PARALLEL_DIROPS = 0x4_0000, HANDLE_KILLPRIV = 0x8_0000,
        POSIX_ACL = 0x10_0000, ABORT_ERROR = 0x20_0000, MAX_PAGES = 0x40_0000, CACHE_SYMLINKS = 0x80_0000,
        NO_OPENDIR_SUPPORT = 0x100_0000, EXPLICIT_INVAL_DATA = 0x200_0000, SUBMOUNTS = 0x800_0000,
        HANDLE_KILLPRIV_V2 = 0x1000_0000, SETXATTR_EXT = 0x2000_0000, INIT_EXT = 0x4000_0000, SECURITY_CTX = 0x1_0000_0000,
        CREATE_SUPP_GROUP = 0x4_0000_0000, HAS_EXPIRE_ONLY = 0x8_0000_0000,
        DIRECT_IO_ALLOW_MMAP = 0x10_0000_0000, PASSTHROUGH = 0x20_0000_0000, NO_EXPORT_SUPPORT = 0x40_0000_0000,
        HAS_RESEND = 0x80_0000_0000, ALLOW_IDMAP = 0x100_0000_0000, OVER_IO_URING = 0x200_0000_0000,
        REQUEST_TIMEOUT = 0x400_0000_0000,
    }}
}

fn open_flags() -> Vec<Number> {
    numbers! { "FOPEN_" OpenFlags {
        DIRECT_IO = 1, KEEP_CACHE = 2, NONSEEKABLE = 4, CACHE_DIR = 8, STREAM = 16, NOFLUSH = 32, PARALLEL_DIRECT_WRITES = 64,
        PASSTHROUGH = 128,
    }}
}

fn write_flags() -> Vec<Number> {
    numbers! { "FUSE_WRITE_" WriteFlags { CACHE = 1, LOCK_OWNER as "LOCKOWNER" = 2, KILL_SUIDGID = 4, }}
}

fn ioctl_flags() -> Vec<Number> {
    numbers! { "FUSE_IOCTL_" IoctlFlags {
        COMPAT = 1, UNRESTRICTED = 2, RETRY = 4, BITS_32 as "32BIT" = 8, DIRECTORY as "DIR" = 16, COMPAT_X32 = 32,
    }}
}

fn rename_flags() -> Vec<Number> {
    numbers! { "RENAME_" RenameFlags { NOREPLACE = 1, EXCHANGE = 2, WHITEOUT = 4, }}
}

fn attribute_flags() -> Vec<Number> {
    numbers! { "FUSE_ATTR_" AttributeFlags { SUBMOUNT = 1, }}
}

/// Numbers that are defined one by one.
fn single() -> Vec<Number> {
    use crate::abi;
    let mut all = numbers! { "FUSE_NOTIFY_" notify_code {
        POLL = 1, INVAL_INODE = 2, INVAL_ENTRY = 3, STORE = 4, RETRIEVE = 5, DELETE = 6, RESEND = 7, INC_EPOCH = 8, PRUNE = 9,
    }};
    all.extend(numbers! { "FATTR_" fattr {
        MODE = 1, UID = 2, GID = 4, SIZE = 8, ATIME = 16, MTIME = 32, FH = 64, ATIME_NOW = 128, MTIME_NOW = 256, LOCKOWNER = 512,
        CTIME = 1024, KILL_SUIDGID = 2048,
    }});
    all.extend(numbers! { "FUSE_" bit {
        GETATTR_FH = 1, LK_FLOCK = 1, READ_LOCKOWNER = 2, RELEASE_FLUSH = 1, RELEASE_FLOCK_UNLOCK = 2, FSYNC_FDATASYNC = 1,
        OPEN_KILL_SUIDGID = 1, SETXATTR_ACL_KILL_SGID = 1, POLL_SCHEDULE_NOTIFY = 1, EXPIRE_ONLY = 1,
    }});
    all.extend(numbers! { "FUSE_" abi {
        MAJOR as "KERNEL_VERSION" = 7, MIN_READ_BUFFER = 8192, UNIQUE_RESEND = 1 << 63, EXT_GROUPS = 32, MAX_NR_SECCTX = 31,
    }});
    all.extend(numbers! { "FUSE_DEV_IOC_" device { BACKING_OPEN = 0x4010_e501, BACKING_CLOSE = 0x4004_e502, }});
    all.extend(numbers! { "FUSE_IO_URING_CMD_" uring { REGISTER = 1, COMMIT_AND_FETCH = 2, }});
    all.extend(numbers! { "FUSE_URING_" uring { HEADER_ROOM as "IN_OUT_HEADER_SZ" = 128, }});
    all.extend(numbers! { "FUSE_URING_" uring { HEADER_ROOM as "OP_IN_OUT_SZ" = 128, }});
    all.extend(numbers! { "FS_IOC_" ioctl {
        GET_FLAGS as "GETFLAGS" = 0x8008_6601, SET_FLAGS as "SETFLAGS" = 0x4008_6602, GET_EXTENDED as "FSGETXATTR" = 0x801c_581f,
        SET_EXTENDED as "FSSETXATTR" = 0x401c_5820,
    }});
    all.extend(numbers! { "STATX_" mount { UNIQUE as "MNT_ID_UNIQUE" = 0x4000, }});
    all
}

fn all() -> Vec<Number> {
    let flags = [open_flags(), write_flags(), ioctl_flags(), rename_flags(), attribute_flags()];
    [opcodes(), init_flags(), single()].into_iter().chain(flags).flatten().collect()
}

#[test]
fn every_number_is_that_of_the_description() {
    for Number { name, found, expected } in all() {
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(MINOR, 45);
}

/// Since which minor version the header has a name of an enum; `#ifdef` finds the others.
fn since(name: &str) -> Option<u32> {
    let later = [
        ("FUSE_STATX", 39),
        ("FUSE_COPY_FILE_RANGE_64", 45),
        ("FUSE_NOTIFY_RESEND", 40),
        ("FUSE_NOTIFY_INC_EPOCH", 44),
        ("FUSE_NOTIFY_PRUNE", 45),
        ("FUSE_EXT_GROUPS", 39),
        ("FUSE_MAX_NR_SECCTX", 38),
        ("FUSE_SYNCFS", 34),
        ("FUSE_TMPFILE", 37),
        ("FUSE_IO_URING_CMD_REGISTER", 42),
        ("FUSE_IO_URING_CMD_COMMIT_AND_FETCH", 42),
    ];
    let known = later.iter().find(|(other, _)| *other == name).map(|(_, since)| *since);
    let of_enum = name.starts_with("FUSE_NOTIFY_") || opcodes().iter().any(|number| number.name == name);
    // 7.31 came with Linux 5.6, the oldest that is spoken with.
    known.or(of_enum.then_some(31))
}

/// Compiled, not run: a difference is an error of the compiler that names the number.
#[test]
fn every_number_is_that_of_the_installed_headers() {
    let headers = ["linux/fuse.h", "linux/fs.h", "linux/stat.h", "sys/ioctl.h"];
    let mut program = headers.map(|header| format!("#include <{header}>\n")).concat();
    for Number { name, found, .. } in all() {
        match since(&name) {
            Some(since) => writeln!(program, "#if FUSE_KERNEL_MINOR_VERSION >= {since}").unwrap(),
            None => writeln!(program, "#ifdef {name}").unwrap(),
        }
        // Numbers of 32 bits: the header has some as negative ones.
        let mask = if found > u64::from(u32::MAX) { u64::MAX } else { u64::from(u32::MAX) };
        writeln!(program, "_Static_assert(((unsigned long long){name} & {mask}ull) == {found}ull, \"{name}\");")
            .unwrap();
        program.push_str("#endif\n");
    }
    compile(&program);
}

/// So that a number that is added to the crate is added here.
#[test]
fn every_operation_and_flag_is_in_the_list() {
    let listed = |number| opcodes().iter().any(|one| one.expected == u64::from(number));
    for number in 0..4096 {
        assert_eq!(operation_name(number) != "unknown", listed(number), "operation {number}");
    }
    assert_eq!(together(&init_flags()), InitFlags::all().plain());
    assert_eq!(together(&open_flags()), OpenFlags::all().plain());
    assert_eq!(together(&write_flags()), WriteFlags::all().plain());
    assert_eq!(together(&ioctl_flags()), IoctlFlags::all().plain());
    assert_eq!(together(&rename_flags()), RenameFlags::all().plain());
    assert_eq!(together(&attribute_flags()), AttributeFlags::all().plain());
    assert_eq!(init_flags().len(), InitFlags::FLAGS.len());
}

fn together(numbers: &[Number]) -> u64 {
    numbers.iter().fold(0, |all, number| all | number.expected)
}
