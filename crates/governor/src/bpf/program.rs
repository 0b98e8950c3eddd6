//! The two programs that run in the kernel, and the record that they leave in the ring.
//!
//! 1. On `writeback_dirty_folio(folio, mapping)`: a folio that was clean is dirty now.
//! 2. On `sb_clear_inode_writeback(inode)`: the last page of a file that was on its way to disk has arrived, whoever sent it.
//!
//! Both leave at once when the file is not a regular file of the device that is watched; otherwise they write one [`Record`].
//! When the ring is full they count it and note the file in a table, so that it can be looked through later; what that table
//! cannot take is counted as well. No loop, no lock, no memory of their own: a few loads and one or two calls.

use std::os::fd::BorrowedFd;

use umbrella_units::{FileId, Nanos, PageIndex, Pages};

use super::btf::{Btf, Offset};
use super::code::{Code, Helper, Label, Reg, Width};
use super::error::BpfError;
use super::source::{FileKey, Seen};

/// Bytes of a record, and of its fields from its begin: inode number, generation, what, page, time.
pub(super) const RECORD: usize = 32;
/// Bytes of a record that name the file, with a zero in place of what happened.
pub(super) const KEY: usize = 16;
/// Bytes of the counters: records lost, and files that could not be noted.
pub(super) const COUNTERS: usize = 16;

const INO: Offset = Offset(-32);
const GENERATION: Offset = Offset(-24);
const WHAT: Offset = Offset(-20);
const INDEX: Offset = Offset(-16);
const TIME: Offset = Offset(-8);

const LOST: Offset = Offset(0);
const UNNOTED: Offset = Offset(8);

/// In place of a folio's order.
const WRITTEN: i32 = 0x100;
/// No folio is larger: 2^20 pages are 4 GiB.
const HIGHEST_ORDER: u32 = 20;

const KIND_OF_FILE: i32 = 0o170_000;
const REGULAR: i32 = 0o100_000;
/// `BPF_RB_NO_WAKEUP`: the ring is emptied by the clock, which costs the writers least.
const NO_WAKEUP: i32 = 1;

/// Where the kernel keeps what the programs read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    host: Offset,
    sb: Offset,
    dev: Offset,
    mode: Offset,
    ino: Offset,
    generation: Offset,
    flags: Offset,
    index: Offset,
    order: Order,
    head: i32,
}

/// Where a large folio keeps its order.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// In a byte of its own, up to Linux 6.5.
    Byte(Offset),
    /// In the lowest byte of the second page's flags.
    Flags(Offset),
}

impl Layout {
    /// Of the kernel with these types.
    pub(super) fn of(btf: &Btf) -> Result<Layout, BpfError> {
        let order = match btf.field("folio", "_folio_order") {
            Ok(byte) => Order::Byte(byte),
            Err(_) => Order::Flags(btf.field("folio", "_flags_1")?),
        };
        let head = btf.enumerator("pageflags", "PG_head")?;
        let head = (0..31).contains(&head).then(|| 1 << head);
        Ok(Layout {
            host: btf.field("address_space", "host")?,
            sb: btf.field("inode", "i_sb")?,
            dev: btf.field("super_block", "s_dev")?,
            mode: btf.field("inode", "i_mode")?,
            ino: btf.field("inode", "i_ino")?,
            generation: btf.field("inode", "i_generation")?,
            flags: btf.field("folio", "flags")?,
            index: btf.field("folio", "index")?,
            order,
            head: head.ok_or(BpfError::NoField { structure: "pageflags", member: "PG_head" })?,
        })
    }
}

/// What the programs leave their findings in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maps<'a> {
    pub(super) ring: BorrowedFd<'a>,
    pub(super) counters: BorrowedFd<'a>,
    pub(super) overflowed: BorrowedFd<'a>,
}

/// A device's number as the kernel keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KernelDevice(pub(super) u32);

/// See the module, 1.
pub(super) fn dirtied(layout: &Layout, device: KernelDevice, maps: Maps<'_>) -> Vec<u64> {
    let mut code = Code::default();
    code.load(Width::Eight, Reg::R6, Reg::R1, Offset(0));
    code.load(Width::Eight, Reg::R7, Reg::R1, Offset(8));
    code.jump_if(Reg::R7, 0, Label::Out);
    code.load(Width::Eight, Reg::R8, Reg::R7, layout.host);
    leave_unless_watched(&mut code, layout, device);
    name_the_file(&mut code, layout);

    code.store_value(Width::Four, Reg::Stack, WHAT, 0);
    code.load(Width::Eight, Reg::R1, Reg::R6, layout.flags);
    code.and(Reg::R1, layout.head);
    code.jump_if(Reg::R1, 0, Label::Next);
    match layout.order {
        Order::Byte(at) => code.load(Width::One, Reg::R1, Reg::R6, at),
        Order::Flags(at) => {
            code.load(Width::Eight, Reg::R1, Reg::R6, at);
            code.and(Reg::R1, 0xff);
        }
    }
    code.store(Width::Four, Reg::Stack, WHAT, Reg::R1);
    code.here(Label::Next);
    code.load(Width::Eight, Reg::R1, Reg::R6, layout.index);
    code.store(Width::Eight, Reg::Stack, INDEX, Reg::R1);
    tell(&mut code, maps);
    code.finish()
}

/// See the module, 2.
pub(super) fn written(layout: &Layout, device: KernelDevice, maps: Maps<'_>) -> Vec<u64> {
    let mut code = Code::default();
    code.load(Width::Eight, Reg::R8, Reg::R1, Offset(0));
    leave_unless_watched(&mut code, layout, device);
    name_the_file(&mut code, layout);
    code.store_value(Width::Four, Reg::Stack, WHAT, WRITTEN);
    code.store_value(Width::Eight, Reg::Stack, INDEX, 0);
    tell(&mut code, maps);
    code.finish()
}

/// The inode is in `R8`.
fn leave_unless_watched(code: &mut Code, layout: &Layout, device: KernelDevice) {
    code.jump_if(Reg::R8, 0, Label::Out);
    code.load(Width::Eight, Reg::R1, Reg::R8, layout.sb);
    code.load(Width::Four, Reg::R1, Reg::R1, layout.dev);
    code.jump_unless(Reg::R1, device.0.cast_signed(), Label::Out);
    code.load(Width::Two, Reg::R1, Reg::R8, layout.mode);
    code.and(Reg::R1, KIND_OF_FILE);
    code.jump_unless(Reg::R1, REGULAR, Label::Out);
}

fn name_the_file(code: &mut Code, layout: &Layout) {
    code.load(Width::Eight, Reg::R1, Reg::R8, layout.ino);
    code.store(Width::Eight, Reg::Stack, INO, Reg::R1);
    code.load(Width::Four, Reg::R1, Reg::R8, layout.generation);
    code.store(Width::Four, Reg::Stack, GENERATION, Reg::R1);
}

/// Into the ring, or into the table of files to look through.
fn tell(code: &mut Code, maps: Maps<'_>) {
    code.call(Helper::Nanoseconds);
    code.store(Width::Eight, Reg::Stack, TIME, Reg::R0);
    code.map(Reg::R1, maps.ring);
    code.copy(Reg::R2, Reg::Stack);
    code.add(Reg::R2, i32::from(INO.0));
    code.set(Reg::R3, RECORD as i32);
    code.set(Reg::R4, NO_WAKEUP);
    code.call(Helper::RingOutput);
    code.jump_if(Reg::R0, 0, Label::Out);

    count(code, maps, LOST);
    code.store_value(Width::Four, Reg::Stack, WHAT, 0);
    code.map(Reg::R1, maps.overflowed);
    code.copy(Reg::R2, Reg::Stack);
    code.add(Reg::R2, i32::from(INO.0));
    code.copy(Reg::R3, Reg::Stack);
    code.add(Reg::R3, i32::from(TIME.0));
    code.set(Reg::R4, 0);
    code.call(Helper::MapUpdate);
    code.jump_if(Reg::R0, 0, Label::Out);
    count(code, maps, UNNOTED);
}

fn count(code: &mut Code, maps: Maps<'_>, counter: Offset) {
    code.map_value(Reg::R1, maps.counters);
    code.set(Reg::R2, 1);
    code.add_atomic(Reg::R1, counter, Reg::R2);
}

/// What a record says; none for one that no program writes.
pub(super) fn read(record: &[u8]) -> Option<Seen> {
    let what = u32::from_ne_bytes(record.get(12..16)?.try_into().ok()?);
    let index = u64::from_ne_bytes(record.get(16..24)?.try_into().ok()?);
    let at = Nanos(u64::from_ne_bytes(record.get(24..32)?.try_into().ok()?));
    let file = read_key(record)?;
    match what {
        order @ 0..=HIGHEST_ORDER => {
            Some(Seen::Dirtied { file, first: PageIndex(index), pages: Pages(1 << order), at })
        }
        what if what == WRITTEN.cast_unsigned() => Some(Seen::Written { file, at }),
        _ => None,
    }
}

/// The file that a record, or a key of the table of files, names.
pub(super) fn read_key(key: &[u8]) -> Option<FileKey> {
    let file = FileId(u64::from_ne_bytes(key.get(..8)?.try_into().ok()?));
    Some(FileKey { file, generation: u32::from_ne_bytes(key.get(8..12)?.try_into().ok()?) })
}
