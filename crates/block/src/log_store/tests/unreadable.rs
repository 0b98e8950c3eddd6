//! A block that the disk cannot read, whichever it is, and an image in a file whose file system is full.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rand::seq::IteratorRandom;
use rustix::io::Errno;

use super::*;
use crate::error::{BlockError, Operation};
use crate::fault::CallFault;

/// The most blocks of a chunk, whose header may be what cannot be read.
const CHUNK: usize = (SEGMENT / 4096 - 1) as usize;

/// A copy of a disk that cannot read one block.
fn without(whole: &Arc<dyn BlockDevice>, block: u64) -> Arc<dyn BlockDevice> {
    faulty_copy_of(whole, Rule::on(Operation::Read, CallFault::Error(Errno::IO)).within(range(block * 8, 8)))
}

/// What a block holds by its number; nothing where it cannot be read.
fn held(store: &LogStore, block: u64) -> Option<u64> {
    let mut buffer = fill(0xee, 8);
    store.read(Lba(block * 8), &mut buffer).ok()?;
    let number = u64::from_le_bytes(buffer[..8].try_into().expect("eight bytes"));
    assert!(buffer == numbered(number), "block {block} is mixed");
    Some(number)
}

/// Blocks that cannot be read; all others hold what they should.
fn unread(store: &LogStore, truth: &[u64], label: &str) -> usize {
    let wrong = |(block, truth): (u64, &u64)| match held(store, block) {
        Some(number) => {
            assert_eq!(number, *truth, "{label}: block {block}");
            false
        }
        None => true,
    };
    (0..).zip(truth).filter(|pair| wrong(*pair)).count()
}

#[test]
fn a_block_that_cannot_be_read_takes_only_what_is_in_it_while_the_store_is_opened_read_cleaned_and_salvaged() {
    let (mut used, mut refused) = (0, 0);
    for seed in 0..4 {
        let (bytes, truth) = after_random_work(seed, 60);
        let mut random = StdRng::seed_from_u64(seed);
        let blocks = (0..bytes.len() as u64 / 4096)
            .filter(|block| bytes[*block as usize * 4096..][..4096].iter().any(|byte| *byte != 0));
        let whole = from_bytes(bytes.clone());
        for block in blocks.choose_multiple(&mut random, 40) {
            let label = format!("seed {seed}, block {block} of the disk");
            checked(&without(&whole, block), Depth::Data);
            salvaged(&without(&whole, block), &truth, &label);
            let device = without(&whole, block);
            match try_open(&device, OpenMode::ReadWrite) {
                Ok(store) => {
                    used += 1;
                    let lost = unread(&store, &truth, &label);
                    assert!(lost <= CHUNK, "{label}: {lost} blocks cannot be read");
                    cleaned(&store, &truth, &mut random, &label);
                }
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, LogStoreError::LogUnreadable { .. }), "{label}: {error}");
                    let store = try_open(&device, OpenMode::ReadOnly);
                    store.expect("it can be looked at");
                }
            }
        }
    }
    println!("{used} used, {refused} only looked at");
    assert!(used > 100 && refused > 0, "{used} used, {refused} only looked at");
}

/// Salvage gives each block as it was, or tells of it.
fn salvaged(device: &Arc<dyn BlockDevice>, truth: &[u64], label: &str) {
    let mut salvage = Salvage::open(Arc::clone(device), "disk").unwrap_or_else(|error| panic!("{label}: {error}"));
    let mut held = vec![0; truth.len()];
    let note = |block: BlockNo, data: &[u8]| {
        held[block.0 as usize] = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
        Ok::<(), ()>(())
    };
    let report = salvage.copy(note, &mut |_, _| {}).expect("the copy is kept");
    let is_reported = |block: u64| {
        report.missing_chunks > 0
            || report.unrecovered.iter().any(|run| (run.first.0..run.first.0 + run.blocks).contains(&block))
    };
    for ((block, held), truth) in (0..).zip(&held).zip(truth) {
        assert!(held == truth || is_reported(block), "{label}: block {block} is {held}, and nobody says so");
    }
}

/// Writes until much was cleaned; all is read as it was written last.
fn cleaned(store: &LogStore, truth: &[u64], random: &mut StdRng, label: &str) {
    let mut truth = truth.to_vec();
    for number in 1_000_000..1_000_000 + 2 * truth.len() as u64 {
        let block = random.random_range(0..truth.len() as u64);
        let written = store.write(Lba(block * 8), &numbered(number), Durability::Cached);
        written.unwrap_or_else(|error| panic!("{label}: {error}"));
        truth[block as usize] = number;
    }
    store.flush().unwrap_or_else(|error| panic!("{label}: {error}"));
    assert!(store.stats().segments_cleaned > 0, "{label}: the cleaner had nothing to do");
    assert!(unread(store, &truth, label) <= CHUNK, "{label}");
}

/// A file with holes on a file system that has no more room at some time.
struct Sparse {
    inner: Memory,
    /// Blocks that are no holes.
    present: Mutex<BTreeSet<u64>>,
    most: AtomicUsize,
}

impl BlockDevice for Sparse {
    crate::forward!(inner: geometry, read, flush, discard, write_zeroes);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let mut present = self.present.lock();
        for (nth, block) in (0..).zip(data.chunks(4096)) {
            let number = at.0 / 8 + nth;
            if !present.contains(&number) && present.len() >= self.most.load(Ordering::SeqCst) {
                return Err(BlockError::io(&"sparse".into(), Operation::Write, None, Errno::NOSPC.into()));
            }
            present.insert(number);
            self.inner.write(Lba(number * 8), block, durability)?;
        }
        Ok(())
    }
}

/// Rewrites a store on a file that may have `most` blocks. Returns the number of blocks that the file had at the first
/// failure or the end, whether there was a failure, and how many segments had been cleaned by then.
fn rewrite(most: usize) -> (usize, bool, u64) {
    let inner = Memory::new(ByteSize((2 << 20) + 60 * SEGMENT));
    let sparse = Arc::new(Sparse { inner, present: Mutex::default(), most: AtomicUsize::new(most) });
    let device: Arc<dyn BlockDevice> = sparse.clone();
    create(Arc::clone(&device), "disk", &small("r_lfs")).expect("there is room");
    let store = open(&device, by_hand());
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(7);
    let (mut flushed, mut truth) = (vec![0; blocks as usize], vec![0; blocks as usize]);
    let mut failed = None;
    for number in 1..blocks * 4 {
        let block = if number < blocks { number } else { random.random_range(0..blocks) };
        truth[block as usize] = number;
        failed = store.write(Lba(block * 8), &numbered(number), Durability::Cached).err();
        if failed.is_none() && number % 40 == 0 {
            failed = store.flush().err();
            if failed.is_none() {
                flushed.clone_from(&truth);
            }
        }
        if failed.is_some() {
            break;
        }
    }
    let segments_cleaned = store.stats().segments_cleaned;
    let label = format!("{most} blocks");
    if let Some(failed) = &failed {
        assert!(failed.to_string().to_lowercase().contains("no space left"), "{label}: {failed}");
        store.write(Lba(0), &numbered(1), Durability::Cached).expect_err("it refuses writes");
        store.flush().expect_err("nobody may believe that all is durable");
        assert!(store.stats().refuses_writes.is_some());
        for (block, flushed) in (0..).zip(&flushed) {
            assert!(held(&store, block).is_some_and(|held| held >= *flushed), "{label}: block {block}");
        }
    }
    drop(store);
    // There is room again.
    sparse.most.store(usize::MAX, Ordering::SeqCst);
    let store = open(&device, by_hand());
    for (block, (flushed, truth)) in (0..).zip(flushed.iter().zip(&truth)) {
        let held = held(&store, block).expect("it can be read");
        assert!((*flushed..=*truth).contains(&held), "{label}: block {block} is {held}");
    }
    store.write(Lba(0), &numbered(5), Durability::Through).expect("there is room");
    let present = sparse.present.lock().len();
    (present, failed.is_some(), segments_cleaned)
}

#[test]
fn an_image_whose_file_system_is_full_while_it_is_cleaned_loses_nothing_that_was_flushed() {
    let (all, failed, cleaned) = rewrite(usize::MAX);
    assert!(!failed && cleaned > 0, "{cleaned} segments cleaned");
    let mut while_cleaning = 0;
    for most in (all / 2..all).step_by(23) {
        let (_, failed, cleaned) = rewrite(most);
        while_cleaning += u32::from(failed && cleaned > 0);
    }
    println!("{while_cleaning} times after something had been cleaned");
    assert!(while_cleaning > 0, "the file system was never full while something was cleaned");
}
