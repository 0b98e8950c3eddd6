//! How much memory an opening takes, counted: alone in its program, so that nothing else is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use umbrella_block::log_store::format::{ChunkHeader, Entry, LogBlock, Sequence, Superblock};
use umbrella_block::log_store::{CreateOptions, Depth, LogStore, OpenMode, Options, Problem, check, create};
use umbrella_block::memory::Memory;
use umbrella_block::{BlockDevice, Durability};
use umbrella_units::{BlockNo, ByteSize, Lba};

/// The system's allocator, counted.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as promised to this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as promised to this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised to this call.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

fn block(device: &dyn BlockDevice, at: u64) -> Vec<u8> {
    let mut block = vec![0; 4096];
    device.read(Lba(at * 8), &mut block).expect("memory does not fail");
    block
}

/// A store that was killed, with a segment full of headers behind the end of its log. Each has as many discards as fit,
/// and the last says that all had been flushed. Also returns the number of those headers.
fn with_headers_behind_the_end() -> (Arc<dyn BlockDevice>, u64) {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::new(ByteSize(600 << 20)));
    let segment = Some(ByteSize(16 << 20));
    let options = CreateOptions { scheme: "r_lfs:regions=1".to_owned(), segment, spare: 50, force: false };
    create(Arc::clone(&device), "disk", &options).expect("it can be made");
    let options = Options { threads: false, ..Options::default() };
    let store = LogStore::open(Arc::clone(&device), "disk", options, OpenMode::ReadWrite).expect("it can be opened");
    for nth in 0..3 {
        store.write(Lba(nth * 8), &[1; 4096], Durability::Through).expect("there is room");
    }
    drop(store);
    let capacity = device.geometry().capacity;
    let superblock = Superblock::parse(&block(&*device, 0), capacity).expect("it is whole");
    let header_at = |at: u64| {
        let place = LogBlock(at.checked_sub(superblock.first.0)?);
        let header = ChunkHeader::parse(&block(&*device, at), &superblock, place).ok()?;
        Some((header.sequence, at, header))
    };
    let last = (superblock.first.0..capacity.0 / 8).filter_map(header_at).max_by_key(|(sequence, ..)| *sequence);
    let (number, at, last) = last.expect("three were written");
    let mut data = block(&*device, at + 1);
    data[77] ^= 1;
    device.write(Lba((at + 1) * 8), &data, Durability::Through).expect("memory does not fail");
    let segment_blocks = u64::from(superblock.shape.segment_blocks());
    let from = at + u64::from(last.blocks());
    let end = (at - superblock.first.0) / segment_blocks * segment_blocks + superblock.first.0 + segment_blocks - 1;
    for (nth, at) in (1..).zip(from..end) {
        let sequence = Sequence(number.0 + nth);
        let discard = |start: u64| Entry::Unmapped { start: BlockNo(start * 2), blocks: 1 };
        let mut entries: Vec<Entry> = (0..200).map(discard).collect();
        entries.push(Entry::Mark { flushed: sequence, promised: 0 });
        let header = ChunkHeader { sequence, entries, before: None, next: None, ..last.clone() };
        let bytes = header.encode(&superblock, LogBlock(at - superblock.first.0)).expect("it can be read");
        device.write(Lba(at * 8), &bytes, Durability::Through).expect("memory does not fail");
    }
    (device, end - from)
}

#[test]
fn what_lies_behind_the_end_of_the_log_takes_less_memory_than_it_takes_on_the_disk() {
    let (device, headers) = with_headers_behind_the_end();
    assert!(headers > 4000, "{headers} headers");
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let report = check(device, "disk", Depth::Structure, &mut |_, _| {}).expect("it can be read");
    let taken = MOST.load(Relaxed) - before;
    let [Problem::Loss(loss)] = report.problems.as_slice() else { panic!("{:?}", report.problems) };
    assert!(loss.is_certain && loss.unknown == 0 && loss.last.0 - loss.first.0 == headers, "{loss:?}");
    assert_eq!(loss.blocks.len(), 200, "{loss:?}");
    assert!(taken < 8 << 20, "{taken} bytes for {headers} headers");
}
