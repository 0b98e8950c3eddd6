//! Rescued data of a damaged store: the newest copy of each block, and a report on each block that may not be it,
//! whatever was damaged.

use rand::seq::IndexedRandom;

use super::*;

/// By block, 0 where nothing is, and why it may not be the newest; and how many chunks nobody knows the blocks of.
type GotOut = (Vec<u64>, Vec<Option<DoubtReason>>, u64);

fn got_out(bytes: &[u8]) -> Result<GotOut, LogStoreError> {
    let device = from_bytes(bytes.to_vec());
    let mut salvage = Salvage::open(Arc::clone(&device), "disk")?;
    let blocks = (salvage.size().0 / 4096) as usize;
    let (mut held, mut why) = (vec![0; blocks], vec![None; blocks]);
    let report = salvage.copy(
        |block, data| {
            held[block.0 as usize] = u64::from_le_bytes(data[..8].try_into().expect("it is a block"));
            Ok::<(), ()>(())
        },
        &mut |_, _| {},
    );
    let report = report.expect("memory does not fail");
    for run in &report.unrecovered {
        (run.first.0..run.first.0 + run.blocks).for_each(|block| why[block as usize] = Some(run.why));
    }
    assert!(bytes_of(&*device) == bytes, "the store was written to");
    Ok((held, why, report.missing_chunks))
}

/// Checks that every block without a report is the newest. Returns the number of reports: all blocks when chunks are
/// missing.
fn assert_told(bytes: &[u8], truth: &[u64], label: &str) -> usize {
    let (held, why, missing) = got_out(bytes).unwrap_or_else(|error| panic!("{label}: {error}"));
    if missing > 0 {
        return truth.len();
    }
    for (block, (held, truth)) in held.iter().zip(truth).enumerate() {
        assert!(
            why[block].is_some() || held == truth,
            "{label}: block {block} is {held}, not {truth}, and nobody says so"
        );
    }
    why.iter().flatten().count()
}

/// Where each page of the map lies, in bytes, at the last checkpoint.
fn pages(bytes: &[u8]) -> Vec<usize> {
    let named = named::NamedDevice::new("disk", Arc::new(Memory::from_bytes(bytes.to_vec())));
    let found = named.checkpoint(&superblock(bytes)).expect("it is whole");
    let at = |place| superblock(bytes).device_block(place).0 as usize * 4096;
    found.index.iter().flatten().map(|entry| at(entry.place())).collect()
}

#[test]
fn a_whole_store_is_got_out_whole_and_nothing_is_reported() {
    for seed in 0..3 {
        let (bytes, truth) = after_random_work(seed, 130);
        assert_eq!(got_out(&bytes).expect("it is whole"), (truth.clone(), vec![None; truth.len()], 0), "seed {seed}");
    }
}

#[test]
fn one_flipped_byte_in_any_page_of_the_map_hides_nothing_and_the_store_opens_all_the_same() {
    for seed in 0..4 {
        let (bytes, truth) = after_random_work(seed, 130);
        let pages = pages(&bytes);
        assert!(pages.len() > 1, "{} pages", pages.len());
        for (nth, page) in pages.iter().enumerate() {
            let mut bytes = bytes.clone();
            bytes[page + 700] ^= 0x10;
            let label = format!("seed {seed}, page {nth}");
            let reported = assert_told(&bytes, &truth, &label);
            println!("{label}: {reported} of {} blocks reported", truth.len());
            assert!(reported < truth.len() / 8, "{label}: {reported} reported");
            // By the store itself: what it reads is right, and of the rest it says that it cannot be read.
            let store =
                try_open(&from_bytes(bytes), OpenMode::ReadOnly).unwrap_or_else(|error| panic!("{label}: {error}"));
            let mut block = fill(0, 8);
            let mut refused = 0;
            for (number, truth) in truth.iter().enumerate() {
                match store.read(Lba(number as u64 * 8), &mut block) {
                    Ok(()) => assert!(block == numbered(*truth), "{label}: block {number}"),
                    Err(_) => refused += 1,
                }
            }
            assert!(refused <= reported.max(512), "{label}: {refused} refused");
        }
    }
}

#[test]
fn a_discard_is_known_of_when_the_segment_that_said_so_has_become_empty_by_itself() {
    let device = made(130, "r_lfs:regions=1");
    let store = open(&device, by_hand());
    let write = |block: u64, number| {
        store.write(Lba(block * 8), &numbered(number), Durability::Through).expect("there is room");
    };
    (0..300).for_each(|block| write(block, block + 1));
    store.checkpoint().expect("there is room");
    store.discard(range(5 * 8, 8)).expect("it is discarded");
    store.flush().expect("memory does not fail");
    // Its segment is filled with what is overwritten at once, and used anew.
    (0..1000).for_each(|number| write(600, number));
    store.checkpoint().expect("there is room");
    (0..1000).for_each(|number| write(601, number));
    assert_eq!(store.stats().segments_cleaned, 0);
    store.close().expect("it can be closed");
    let mut bytes = bytes_of(&*device);
    let blocks = sectors_of(&try_open(&device, OpenMode::ReadOnly).expect("it can be opened")) / 8;
    let mut truth: Vec<u64> = (1..=blocks).map(|number| if number > 300 { 0 } else { number }).collect();
    (truth[5], truth[600], truth[601]) = (0, 999, 999);
    let at = pages(&bytes)[0];
    bytes[at + 700] ^= 0x10;
    assert_eq!(assert_told(&bytes, &truth, "page 0"), 0);
}

#[test]
fn all_pages_of_the_map_are_rebuilt_at_once_whatever_their_number() {
    for seed in 0..2 {
        let (whole, truth, _) = discarded(seed);
        let (mut bytes, pages) = (whole.clone(), pages(&whole));
        assert!(pages.len() > 2, "{} pages", pages.len());
        for at in &pages {
            bytes[at + 700] ^= 0x10;
        }
        assert_eq!(assert_told(&bytes, &truth, &format!("seed {seed}")), 0);
        let device = from_bytes(bytes);
        let store = open(&device, by_hand());
        for (block, number) in (0..).zip(&truth) {
            assert!(read(&store, block * 8, 8) == numbered(*number), "seed {seed}, block {block}");
        }
        store.close().expect("it can be closed");
        let report = checked(&device, Depth::Data);
        assert_eq!(report.problem_count, 0, "seed {seed}: {:?}", report.problems);
    }
}

#[test]
fn a_page_that_is_rebuilt_without_a_doubt_is_repaired_by_the_opening() {
    let (device, store) = opened(130);
    (0..1200).for_each(|block| put(&store, block, block + 1));
    store.checkpoint().expect("there is room");
    (0..20).for_each(|block| put(&store, block, block + 5000));
    store.flush().expect("memory does not fail");
    drop(store);
    let mut bytes = bytes_of(&*device);
    let at = pages(&bytes)[0];
    bytes[at + 8] ^= 1;
    let device = from_bytes(bytes);
    let store = open(&device, by_hand());
    let truth = |block: u64| numbered(if block < 20 { block + 5000 } else { block + 1 });
    (0..1200).for_each(|block| assert!(read(&store, block * 8, 8) == truth(block), "block {block}"));
    store.close().expect("it can be closed");
    assert_whole(&device);
}

#[test]
fn whatever_structure_is_damaged_what_is_not_reported_as_lost_is_right() {
    for seed in 0..3 {
        let (bytes, truth) = after_random_work(seed, 80);
        let [first, second] = areas(&superblock(&bytes));
        let flipped = |at: &[usize]| {
            let mut bytes = bytes.clone();
            for at in at {
                bytes[at + 17] ^= 0x40;
            }
            bytes
        };
        for (what, at) in [
            ("the first superblock", vec![0]),
            ("the second superblock", vec![256 * 4096]),
            ("both superblocks", vec![0, 256 * 4096]),
        ] {
            assert_eq!(assert_told(&flipped(&at), &truth, &format!("seed {seed}, {what}")), 0, "seed {seed}, {what}");
        }
        for (what, at) in [
            ("a checkpoint", vec![first]),
            ("the other checkpoint", vec![second]),
            ("a payload", vec![first + 4096]),
            ("the other payload", vec![second + 4096]),
            ("both checkpoints", vec![first, second]),
            ("both superblocks and a checkpoint", vec![0, 256 * 4096, first]),
            ("both superblocks and the other checkpoint", vec![0, 256 * 4096, second]),
        ] {
            assert_told(&flipped(&at), &truth, &format!("seed {seed}, {what}"));
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_in_the_log_is_reported_or_changes_nothing() {
    let (bytes, truth) = after_random_work(9, 80);
    let first = superblock(&bytes).first.0 as usize;
    let headers: Vec<usize> = chunk_headers(&bytes).map(|at| at / 4096).collect();
    let mut random = StdRng::seed_from_u64(5);
    let mut unknown = 0;
    for round in 0..60 {
        let block = if round % 2 == 0 {
            *headers.choose(&mut random).expect("there are some")
        } else {
            random.random_range(first..bytes.len() / 4096)
        };
        let mut bytes = bytes.clone();
        let at = block * 4096 + random.random_range(0..4096);
        bytes[at] ^= 1 << random.random_range(0..8);
        unknown += usize::from(assert_told(&bytes, &truth, &format!("byte {at}")) == truth.len());
    }
    assert!(unknown < 30, "{unknown} of 60 times nobody knows what is lost");
}

#[test]
fn a_page_and_a_header_damaged_together_are_reported() {
    let (bytes, truth) = after_random_work(4, 130);
    let page = pages(&bytes)[0];
    for header in chunk_headers(&bytes).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[page + 700] ^= 0x10;
        bytes[header + 99] ^= 1;
        assert_told(&bytes, &truth, &format!("header at byte {header}"));
    }
}

#[test]
fn what_was_discarded_does_not_come_back_as_proved() {
    let (device, store) = opened(80);
    let blocks = sectors_of(&store) / 8;
    let mut truth: Vec<u64> = (1..=blocks).collect();
    (0..blocks).for_each(|block| put(&store, block, block + 1));
    for block in (0..400).step_by(5) {
        store.discard(range(block * 8, 8)).expect("it is discarded");
        truth[block as usize] = 0;
    }
    store.flush().expect("memory does not fail");
    // Until the chunks that say so are cleaned, again and again.
    for round in 0..4 {
        for block in (400..blocks).chain((0..400).filter(|block| block % 25 == 1)) {
            put(&store, block, round * 10_000 + block);
            truth[block as usize] = round * 10_000 + block;
        }
    }
    store.close().expect("it can be closed");
    let mut bytes = bytes_of(&*device);
    let page = pages(&bytes)[0];
    bytes[page + 5] ^= 2;
    let reported = assert_told(&bytes, &truth, "page 0");
    println!("{reported} reported");
}

/// A store after random writes, discards and zeroes of up to 20 blocks, with much cleaning; closed or killed.
fn discarded(seed: u64) -> (Vec<u8>, Vec<u64>, u64) {
    let device = made(110, "r_lfs");
    let store = open(&device, Options { checkpoint_every: ByteSize(1 << 20), ..by_hand() });
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(seed);
    let mut truth = vec![0; blocks as usize];
    for number in 1..blocks * 4 {
        let block = random.random_range(0..blocks);
        if !random.random_bool(0.06) {
            put(&store, block, number);
            truth[block as usize] = number;
            continue;
        }
        let count = random.random_range(1..=20).min(blocks - block);
        let all = range(block * 8, count * 8);
        if random.random_bool(0.5) {
            store.discard(all).expect("it is discarded");
        } else {
            store.write_zeroes(all, Zeroes::Unmap, Durability::Cached).expect("it is zeroed");
        }
        truth[block as usize..(block + count) as usize].fill(0);
    }
    store.flush().expect("memory does not fail");
    let cleaned = store.stats().segments_cleaned;
    if seed.is_multiple_of(2) {
        store.close().expect("it can be closed");
    } else {
        drop(store);
    }
    (bytes_of(&*device), truth, cleaned)
}

#[test]
fn a_block_that_was_discarded_is_never_served_or_salvaged_as_proved_old_data() {
    for seed in 0..6 {
        let (whole, truth, cleaned) = discarded(seed);
        assert!(cleaned > 20, "{cleaned} segments cleaned");
        let headers: Vec<usize> = chunk_headers(&whole).collect();
        let mut random = StdRng::seed_from_u64(seed);
        // Nothing comes behind the newest that could say that it is missing.
        let newest = headers.iter().max_by_key(|at| u64::from_le_bytes(whole[**at + 40..][..8].try_into().expect("8")));
        let some = headers.choose_multiple(&mut random, 12).filter(|at| Some(*at) != newest).copied();
        let pages = pages(&whole);
        for at in pages.iter().copied().chain(some) {
            let label = format!("seed {seed}, byte {at}");
            let mut bytes = whole.clone();
            bytes[at + 700] ^= 0x10;
            let reported = assert_told(&bytes, &truth, &label);
            let device = from_bytes(bytes);
            for access in [OpenMode::ReadOnly, OpenMode::Salvage] {
                let store = try_open(&copy_of(&device), access).expect("it can be opened");
                if !store.stats().repaired.iter().all(|reported| reported.contains("of the map was damaged")) {
                    continue;
                }
                let mut block = fill(0, 8);
                let refused = (0..).zip(&truth).filter(|(number, truth)| {
                    let is_read = store.read(Lba(number * 8), &mut block).is_ok();
                    assert!(!is_read || block == numbered(**truth), "{label}, {access:?}: block {number}");
                    !is_read
                });
                let refused = refused.count();
                println!("{label}, {access:?}: {refused} refused, {reported} reported by salvage");
                // What the log says of discarded blocks outlives the chunk that said it first.
                assert!(refused == 0 || !pages.contains(&at), "{label}, {access:?}: {refused} blocks are in doubt");
            }
        }
    }
}

#[test]
fn a_damaged_block_is_reported_with_an_older_copy_or_none() {
    let (device, store) = opened(80);
    store.write(Lba(0), &numbered(1), Durability::Through).expect("there is room");
    store.write(Lba(0), &numbered(2), Durability::Through).expect("there is room");
    store.write(Lba(8), &numbered(3), Durability::Through).expect("there is room");
    let at = [byte_of(&store, 0), byte_of(&store, 1)];
    store.close().expect("it can be closed");
    let mut bytes = bytes_of(&*device);
    for at in at {
        bytes[at + 50] ^= 1;
    }
    let (held, why, missing) = got_out(&bytes).expect("it can be opened");
    assert_eq!((&held[..2], &why[..2]), (&[1, 0][..], &[Some(DoubtReason::Old), Some(DoubtReason::Lost)][..]));
    assert_eq!(missing, 0);
}

#[test]
fn what_lies_behind_a_damaged_end_of_the_log_is_got_out_and_reported() {
    let (device, store) = opened(80);
    for block in 0..20 {
        store.write(Lba(block * 8), &numbered(block + 1), Durability::Through).expect("there is room");
    }
    let place = byte_of(&store, 5);
    drop(store);
    let mut bytes = bytes_of(&*device);
    bytes[place + 50] ^= 1;
    let (held, why, missing) = got_out(&bytes).expect("it can be opened");
    assert_eq!((&held[..5], missing), (&[1, 2, 3, 4, 5][..], 0));
    assert!(held[6..20].iter().zip(7..).all(|(held, number)| *held == number), "{held:?}");
    assert_eq!((held[5], why[5]), (0, Some(DoubtReason::Lost)));
    assert!(why[6..20].iter().all(|why| *why == Some(DoubtReason::BehindEnd)), "{why:?}");
}

/// The device of a store that was killed after `work`, with a byte flipped in what `block` was written to last, or in
/// the header before it.
fn killed_and_damaged(block: u64, part: Part, work: impl Fn(&LogStore, &dyn Fn(u64, u64))) -> Vec<u8> {
    let device = made(80, "r_lfs:regions=1");
    let store = open(&device, by_hand());
    let place = std::cell::Cell::new(0);
    let write = |written: u64, number: u64| {
        store.write(Lba(written * 8), &numbered(number), Durability::Through).expect("there is room");
        if written == block {
            place.set(byte_of(&store, block));
        }
    };
    (0..10).for_each(|block| write(block, block + 1));
    work(&store, &write);
    drop(store);
    let mut bytes = bytes_of(&*device);
    let at = if part == Part::Data { place.get() } else { place.get() - 4096 };
    bytes[at + 77] ^= 1;
    bytes
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Data,
    Header,
}

#[test]
fn a_flushed_discard_behind_the_damaged_end_is_reported() {
    let bytes = killed_and_damaged(30, Part::Data, |store, write| {
        write(30, 31);
        write(4, 104);
        store.discard(range(3 * 8, 8)).expect("it is discarded");
        store.discard(range(4 * 8, 8)).expect("it is discarded");
        store.discard(range(5 * 8, 8)).expect("it is discarded");
        store.flush().expect("memory does not fail");
        write(5, 105);
    });
    let (held, why, missing) = got_out(&bytes).expect("it can be opened");
    let reported = |block: usize| (held[block], why[block]);
    assert_eq!((reported(2), missing), ((3, None), 0));
    assert_eq!(reported(3), (4, Some(DoubtReason::OldOrDiscarded)));
    assert_eq!(reported(4), (104, Some(DoubtReason::OldOrDiscarded)), "it was written and discarded behind the end");
    assert_eq!(reported(5), (105, Some(DoubtReason::BehindEnd)), "it was written again after the discard");
}

#[test]
fn blocks_of_a_chunk_without_its_header_that_the_next_one_names_are_reported() {
    // Block 3 was written before; block 30 was not.
    for (block, expected) in [(3, (4, Some(DoubtReason::OldOrDiscarded))), (30, (0, Some(DoubtReason::MaybeLost)))] {
        let bytes = killed_and_damaged(block, Part::Header, |_, write| {
            write(block, 99);
            write(6, 106);
        });
        let (held, why, missing) = got_out(&bytes).expect("it can be opened");
        let reported = |block: usize| (held[block], why[block]);
        assert_eq!((reported(block as usize), missing), (expected, 0), "block {block}");
        assert_eq!((reported(2), reported(6)), ((3, None), (106, Some(DoubtReason::BehindEnd))));
    }
}

#[test]
fn what_is_left_of_a_device_that_was_cut_is_got_out_and_reported() {
    let (bytes, truth) = after_random_work(6, 130);
    let blocks = bytes.len() / 4096;
    for left in [blocks - 1, blocks * 3 / 4, blocks / 2 + 1, blocks / 3] {
        let cut = &bytes[..left * 4096];
        let salvage = Salvage::open(Arc::new(Memory::from_bytes(cut.to_vec())), "disk").expect("there is a store");
        let reported = salvage.damage().first().map(ToString::to_string).unwrap_or_default();
        assert!(reported.starts_with("disk ends before its store does: it has"), "{left} blocks: {reported}");
        let held = got_out(cut).expect("there is a store").0;
        assert!(held.iter().zip(&truth).any(|(held, truth)| held == truth && *truth != 0), "{left} blocks");
        // Without a checkpoint nothing is proved; the report says so.
        if salvage.has_map() {
            assert_told(cut, &truth, &format!("{left} blocks"));
        }
    }
}

#[test]
fn a_device_without_a_store_is_no_store_to_be_saved() {
    let error = Salvage::open(memory(60), "disk").err().expect("there is none");
    assert!(error.to_string().contains("no log store is on this device"), "{error}");
}
