//! The system calls: bpf(2), and the mapping of the ring. The only unsafe code of this folder.
//!
//! The structures are those of `include/uapi/linux/bpf.h`, cut off behind the last field that is used; the kernel takes what
//! is missing as zero.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use umbrella_units::ByteSize;

use super::btf::TypeId;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;

const PROG_TYPE_TRACING: u32 = 26;
const TRACE_RAW_TP: u32 = 23;
/// Both licences of the programs' source; the kernel asks whether the GPL is among them.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
const LOG_BYTES: usize = 64 << 10;

/// What a map is.
#[derive(Debug, Clone, Copy)]
pub(super) enum MapKind {
    Hash = 1,
    Array = 2,
    Ring = 27,
}

/// The sizes of a map.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapShape {
    pub(super) kind: MapKind,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) entries: u32,
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    value_or_next_key: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// `attributes` is one of the structures above, and what its addresses point to is valid for the call.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes at most `size_of::<T>()` bytes of `attributes`, which is borrowed for the call; the
    // callers below fill in addresses of buffers that live as long and are as large as the map's shape says.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn bpf_open<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: these commands return a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr().addr() as u64
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A table in the kernel.
pub(super) struct Map {
    fd: OwnedFd,
    shape: MapShape,
}

impl Map {
    /// An empty one.
    pub(super) fn new(shape: MapShape) -> io::Result<Map> {
        let mut attributes = MapCreate {
            map_type: shape.kind as u32,
            key_size: shape.key_bytes,
            value_size: shape.value_bytes,
            max_entries: shape.entries,
        };
        Ok(Map { fd: bpf_open(MAP_CREATE, &mut attributes)?, shape })
    }

    fn element(&self, key: &[u8], value: u64) -> MapElement {
        assert!(key.is_empty() || key.len() == self.shape.key_bytes as usize, "a key of another map");
        let key = if key.is_empty() { 0 } else { address(key) };
        MapElement { map_fd: number(self.fd.as_fd()), padding: 0, key, value_or_next_key: value, flags: 0 }
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0; self.shape.value_bytes as usize];
        let mut attributes = self.element(key, value.as_mut_ptr().expose_provenance() as u64);
        bpf(MAP_LOOKUP, &mut attributes)?;
        Ok(value)
    }

    /// Some key, if there is one.
    pub(super) fn first_key(&self) -> io::Result<Option<Vec<u8>>> {
        let mut key = vec![0; self.shape.key_bytes as usize];
        let mut attributes = self.element(&[], key.as_mut_ptr().expose_provenance() as u64);
        match bpf(MAP_NEXT_KEY, &mut attributes) {
            Ok(_) => Ok(Some(key)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a key out.
    pub(super) fn remove(&self, key: &[u8]) -> io::Result<()> {
        bpf(MAP_DELETE, &mut self.element(key, 0)).map(drop)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why a program is not accepted.
pub(super) struct Refusal {
    pub(super) error: io::Error,
    pub(super) log: String,
}

/// Loads a program for a tracepoint and attaches it, until the result is dropped.
pub(super) fn attach(name: &str, tracepoint: TypeId, words: &[u64]) -> Result<OwnedFd, Refusal> {
    let refused = |error| Refusal { error, log: String::new() };
    let program = load(name, tracepoint, words, &mut []).or_else(|_| {
        let mut log = vec![0; LOG_BYTES];
        load(name, tracepoint, words, &mut log).map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).trim().to_owned();
            Refusal { error, log: text }
        })
    })?;
    let mut attributes = RawTracepoint { name: 0, prog_fd: number(program.as_fd()), padding: 0 };
    bpf_open(RAW_TRACEPOINT_OPEN, &mut attributes).map_err(refused)
}

fn load(name: &str, tracepoint: TypeId, words: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut prog_name = [0; 16];
    for (place, byte) in prog_name.iter_mut().take(15).zip(name.bytes()) {
        *place = byte;
    }
    let log_buf = if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 };
    let mut attributes = ProgLoad {
        prog_type: PROG_TYPE_TRACING,
        insn_cnt: words.len() as u32,
        insns: address(words),
        license: address(LICENSE),
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log_buf,
        kern_version: 0,
        prog_flags: 0,
        prog_name,
        prog_ifindex: 0,
        expected_attach_type: TRACE_RAW_TP,
        prog_btf_fd: 0,
        func_info_rec_size: 0,
        func_info: 0,
        func_info_cnt: 0,
        line_info_rec_size: 0,
        line_info: 0,
        line_info_cnt: 0,
        attach_btf_id: tracepoint.0,
    };
    bpf_open(PROG_LOAD, &mut attributes)
}

/// The two positions and the data of a ring, mapped.
pub(super) struct Mapping {
    /// The page that the reader owns, and behind it what the kernel writes: its position, and the data twice.
    own: NonNull<u8>,
    theirs: NonNull<u8>,
    page: usize,
    data: usize,
}

// SAFETY: the memory belongs to the mapping alone, and is only read and written through atomics and copies.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Of a ring of so many bytes of data.
    pub(super) fn new(ring: BorrowedFd<'_>, data: ByteSize) -> io::Result<Mapping> {
        let page = rustix::param::page_size();
        let data = usize::try_from(data.0).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = |length, rights, offset: usize| {
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this program.
            let at = unsafe {
                libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, ring.as_raw_fd(), offset as i64)
            };
            match NonNull::new(at.cast::<u8>()) {
                Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(at),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let own = map(page, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        match map(page + 2 * data, libc::PROT_READ, page) {
            Ok(theirs) => Ok(Mapping { own, theirs, page, data }),
            Err(error) => {
                unmap(own, page);
                Err(error)
            }
        }
    }

    /// How far the reader has come.
    pub(super) fn read_to(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives, aligned, and shared with the kernel, which uses it atomically.
        unsafe { AtomicU64::from_ptr(self.own.as_ptr().cast()) }
    }

    /// How far the kernel has written.
    pub(super) fn written_to(&self) -> &AtomicU64 {
        // SAFETY: as above; only ever loaded, since the page is mapped for reading.
        unsafe { AtomicU64::from_ptr(self.theirs.as_ptr().cast()) }
    }

    /// The word before a record, at a position that is a multiple of eight.
    pub(super) fn head(&self, position: u64) -> &AtomicU32 {
        let at = self.page + (position as usize & (self.data - 1) & !7);
        // SAFETY: `at` lies within the mapping, aligned to eight; only ever loaded.
        unsafe { AtomicU32::from_ptr(self.theirs.as_ptr().add(at).cast()) }
    }

    /// The record behind a head, up to `N` bytes.
    pub(super) fn record<const N: usize>(&self, position: u64) -> [u8; N] {
        let at = self.page + (position as usize & (self.data - 1) & !7) + 8;
        assert!(N + 8 <= self.data, "a record larger than the ring");
        let mut record = [0; N];
        // SAFETY: the data is mapped twice in a row, so that `N` bytes behind any head lie within the mapping; the kernel
        // leaves a record alone until the reader's position has passed it.
        unsafe { std::ptr::copy_nonoverlapping(self.theirs.as_ptr().add(at), record.as_mut_ptr(), N) };
        record
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.own, self.page);
        unmap(self.theirs, self.page + 2 * self.data);
    }
}

fn unmap(at: NonNull<u8>, length: usize) {
    // SAFETY: exactly what `Mapping::new` has mapped, and no reference into it is left.
    unsafe { libc::munmap(at.as_ptr().cast(), length) };
}
