//! What becomes dirty on one file system, page by page, as the kernel tells it.
//!
//! The programs are attached from [`Source::watch`] until the source is dropped; when the process dies, the kernel
//! takes them away.

use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use parking_lot::Mutex;
use rustix::fs::Dev;
use umbrella_units::ByteSize;

use super::error::BpfError;
use super::programs::{COUNTERS, OVERFLOWED, Programs, RING};
use super::record::{self, FileKey, KernelReport, LostEvents};

/// See the module.
pub struct Source {
    ring: RingBuffer<'static>,
    /// What the ring has handed over and that was not taken yet.
    arrived: Arc<Mutex<Vec<KernelReport>>>,
    programs: Programs,
}

impl Source {
    /// Watches the file system with this device number (`s_dev`, as `/proc/self/mountinfo` shows it) through a ring of
    /// at least `ring` bytes.
    pub fn watch(device: Dev, ring: ByteSize) -> Result<Source, BpfError> {
        let page = rustix::param::page_size() as u64;
        let programs = Programs::attach(device, ByteSize(ring.0.clamp(page, 1 << 30).next_power_of_two()))?;
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&arrived);
        let take = move |record: &[u8]| {
            to.lock().extend(record::parse(record));
            0
        };
        let ring = {
            let (map, mut builder) = (programs.map(RING)?, RingBufferBuilder::new());
            builder.add(&map, take).map_err(BpfError::of("mapping the ring"))?;
            builder.build().map_err(BpfError::of("mapping the ring"))?
        };
        Ok(Source { ring, arrived, programs })
    }

    /// Hands over up to `most` things that were seen, in the order in which they happened on each processor; how many.
    pub fn drain(&mut self, most: usize, take: impl FnMut(KernelReport)) -> usize {
        let taken = self.ring.consume_raw_n(most);
        self.arrived.lock().drain(..).for_each(take);
        // Negative only when what it calls says so.
        usize::try_from(taken).unwrap_or(0)
    }

    /// What was lost so far.
    pub fn lost(&self) -> Result<LostEvents, BpfError> {
        let counters = self.programs.map(COUNTERS)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let counters = counters.map_err(BpfError::of("reading the counts of lost events"))?;
        Ok(counters.and_then(|counters| record::lost(&counters)).unwrap_or_default())
    }

    /// Takes up to `most` of the files that lost events.
    pub fn overflowed(&mut self, most: usize) -> Result<Vec<FileKey>, BpfError> {
        let noted = self.programs.map(OVERFLOWED)?;
        let mut files = Vec::new();
        while files.len() < most
            && let Some(key) = noted.keys().next()
        {
            // First taken out, then looked through: what is lost in between notes the file again.
            noted.delete(&key).map_err(BpfError::of("reading which files lost events"))?;
            files.extend(record::key(&key));
        }
        Ok(files)
    }
}
