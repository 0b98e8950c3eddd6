//! How much memory a store takes by its size alone, so that one that is too large is refused instead of ending the
//! program.

use umbrella_units::{ByteSize, PAGE_BYTES};

use super::error::LogStoreError;
use super::format::{PAGE_ENTRIES, Shape};

/// The memory of a page of the map. Its place in the index, in the image of a checkpoint and in the data read from one
/// take 8 bytes each, its place in the map takes 16.
const BYTES_OF_PAGE: u64 = 40;
/// The memory of a segment: its row in the table, in the image of a checkpoint and in the data read from one, and in
/// lists.
const BYTES_OF_SEGMENT: u64 = 160;

/// The memory of a store of that shape when all of its map is on the disk.
fn footprint(shape: &Shape) -> ByteSize {
    let (pages, segments) = (shape.map_pages().0, u64::from(shape.segments()));
    ByteSize(pages.saturating_mul(BYTES_OF_PAGE).saturating_add(segments.saturating_mul(BYTES_OF_SEGMENT)))
}

/// The memory of this machine, if it says.
pub(super) fn memory_of_machine() -> Option<ByteSize> {
    let reported = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = reported.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(ByteSize(kib.saturating_mul(1024)))
}

/// Refuses a store that does not fit into this much memory.
pub(super) fn refuse_without_memory(
    device: &str,
    shape: &Shape,
    memory: Option<ByteSize>,
) -> Result<(), LogStoreError> {
    let (needed, size) = (footprint(shape), ByteSize(shape.advertised().0.saturating_mul(PAGE_BYTES)));
    let Some(memory) = memory.filter(|memory| *memory < needed) else { return Ok(()) };
    let most = ByteSize(memory.0 / BYTES_OF_PAGE * (PAGE_ENTRIES * PAGE_BYTES));
    Err(LogStoreError::NoMemory { device: device.to_owned(), size, needed, memory, most })
}
