//! Structures that no program wrote, with right checksums: each is refused with a name or reported, and no block is
//! wrong in silence.

use super::*;
use crate::log_store::format::{
    Area, CheckpointHeader, CheckpointNo, Checksum, ChunkHeader, Entry, IndexEntry, LogBlock, MapEntry, MapPage,
    MapPageNo, Payload, PayloadEncoder, SegmentEntry, SegmentNo, SegmentState, Slot, Superblock,
};

/// What a checkpoint says.
struct Parts {
    superblock: Superblock,
    header: CheckpointHeader,
    map: Vec<Option<IndexEntry>>,
    table: Vec<SegmentEntry>,
}

impl Parts {
    /// A full segment that has live blocks, the nth.
    fn full(&self, nth: usize) -> usize {
        let is_full = |row: &&SegmentEntry| row.state == SegmentState::Full && row.live > 0;
        let full = self.table.iter().enumerate().filter(|(_, row)| is_full(row));
        full.map(|(number, _)| number).nth(nth).expect("there are some")
    }

    fn open(&self) -> (usize, SegmentNo) {
        let head = self.header.heads.iter().position(|head| head.open.is_some()).expect("there is one");
        (head, self.header.heads[head].open.expect("it has one").segment)
    }
}

/// A store that was closed in order: its bytes, and what it holds.
fn closed() -> (Vec<u8>, Vec<u8>) {
    let (device, store) = opened(60);
    let blocks = sectors_of(&store) / 8;
    let mut random = StdRng::seed_from_u64(5);
    for number in 1..blocks {
        let block = random.random_range(0..blocks);
        put(&store, block, number);
    }
    let held = read(&store, 0, blocks * 8);
    store.close().expect("it can be closed");
    (bytes_of(&*device), held)
}

/// Changes the newest checkpoint.
fn change(bytes: &mut [u8], change: impl Fn(&mut [u8], &mut Parts)) {
    let superblock = superblock(bytes);
    let header = |at: usize| CheckpointHeader::parse(&bytes[at..at + 4096], &superblock);
    let newest =
        areas(&superblock).into_iter().max_by_key(|at| header(*at).map_or(0, |header| header.number.0)).expect("two");
    let header = header(newest).expect("it is whole");
    let payload = Payload::parse(&bytes[newest + 4096..], &header, &superblock).expect("it is whole");
    let (map, table) = (payload.map().collect(), payload.segments().collect());
    let mut parts = Parts { superblock, header, map, table };
    change(bytes, &mut parts);
    let Parts { superblock, mut header, map, table } = parts;
    let mut encoder = PayloadEncoder::new(map.into_iter(), table.into_iter());
    let mut encoded = vec![0; 1 << 20];
    let filled = encoder.fill(&mut encoded);
    header.payload = encoder.sum();
    let block = header.encode(&superblock).expect("it is only wrong, not impossible");
    bytes[newest + 4096..newest + 4096 + filled].copy_from_slice(&encoded[..filled]);
    bytes[newest..newest + 4096].copy_from_slice(&block);
}

/// Changes a page of the map where it lies, and its checksum in the index; `raw` gets its bytes.
fn change_page(bytes: &mut [u8], page: usize, raw: impl Fn(&mut [u8], &Superblock)) {
    change(bytes, |bytes, parts| {
        let place = parts.map[page].expect("it was written").place();
        let at = parts.superblock.device_block(place).0 as usize * 4096;
        raw(&mut bytes[at..at + 4096], &parts.superblock);
        parts.map[page] = Some(IndexEntry::new(place, Checksum::of(&bytes[at..at + 4096])).expect("it fits"));
    });
}

fn change_entries(bytes: &mut [u8], change: impl Fn(&mut MapPage, Vec<(BlockNo, MapEntry)>)) {
    change_page(bytes, 0, |block, superblock| {
        let mut page = MapPage::parse(block, &superblock.shape, MapPageNo(0)).expect("it is whole");
        let entries = page.mapped(MapPageNo(0)).collect();
        change(&mut page, entries);
        block.copy_from_slice(&page.encode(&superblock.shape, MapPageNo(0)).expect("it fits"));
    });
}

/// Changes the first chunk of a full segment.
fn change_chunk(bytes: &mut [u8], change_chunk: impl Fn(&mut ChunkHeader)) {
    change(bytes, |bytes, parts| {
        let place = parts.superblock.first_place(SegmentNo(parts.full(0) as u32));
        let at = parts.superblock.device_block(place).0 as usize * 4096;
        let mut header = ChunkHeader::parse(&bytes[at..at + 4096], &parts.superblock, place).expect("it is whole");
        change_chunk(&mut header);
        bytes[at..at + 4096].copy_from_slice(&header.encode(&parts.superblock, place).expect("it fits"));
    });
}

/// Changes these copies of the superblock.
fn change_superblock(bytes: &mut [u8], copies: &[usize], change: impl Fn(&mut Superblock)) {
    let mut superblock = superblock(bytes);
    change(&mut superblock);
    for copy in copies {
        bytes[copy * 4096..][..4096].copy_from_slice(&superblock.encode().expect("it fits"));
    }
}

type Case = (&'static str, fn(&mut [u8]));

const CASES: &[Case] = &[
    ("a page of the map names a block of a segment beyond the store", |bytes| {
        change_page(bytes, 0, |page, _| {
            let at = page.chunks(8).position(|word| word.iter().any(|byte| *byte != 0)).expect("there are entries") * 8;
            let at = at.max(64);
            page[at..at + 8].copy_from_slice(&((1_u64 << 36) | (1 << 62)).to_le_bytes());
        });
    }),
    ("two blocks lie at one place", |bytes| {
        change_entries(bytes, |page, entries| _ = page.set(entries[0].0, Some(entries[1].1)));
    }),
    ("a block lies where a header is", |bytes| {
        change_entries(bytes, |page, entries| {
            let place = LogBlock(entries[0].1.place().0 / 16 * 16);
            page.set(entries[0].0, Some(MapEntry::new(place, entries[0].1.stamp()).expect("it fits")));
        });
    }),
    ("a block lies where another one was written", |bytes| {
        change_entries(bytes, |page, entries| {
            let (first, second) = (entries[0], entries[1]);
            page.set(first.0, Some(second.1));
            page.set(second.0, Some(first.1));
        });
    }),
    ("two pages of the map lie at one place", |bytes| change(bytes, |_, parts| parts.map[1] = parts.map[0])),
    ("a page of the map is another one", |bytes| change(bytes, |_, parts| parts.map.swap(0, 1))),
    ("a page of the map lies in a checkpoint", |bytes| {
        change(bytes, |bytes, parts| {
            let place = parts.superblock.first_place(parts.superblock.areas[0].first);
            let at = parts.superblock.device_block(place).0 as usize * 4096;
            let checksum = Checksum::of(&bytes[at..at + 4096]);
            parts.map[0] = Some(IndexEntry::new(place, checksum).expect("it fits"));
        });
    }),
    ("a segment in use is said to be free", |bytes| {
        change(bytes, |_, parts| {
            let row = parts.full(0);
            parts.table[row] = SegmentEntry { state: SegmentState::Free, live: 0, ..parts.table[row] };
        });
    }),
    ("a segment in use is said to be cleaned", |bytes| {
        change(bytes, |_, parts| {
            let row = parts.full(0);
            parts.table[row] = SegmentEntry { state: SegmentState::Cleaned, live: 0, ..parts.table[row] };
        });
    }),
    ("a segment counts fewer live blocks", |bytes| {
        change(bytes, |_, parts| {
            let row = parts.full(0);
            parts.table[row].live -= 1;
        });
    }),
    ("a segment counts no live blocks", |bytes| {
        change(bytes, |_, parts| {
            let row = parts.full(0);
            parts.table[row].live = 0;
        });
    }),
    ("a stream continues in a segment in use", |bytes| {
        change(bytes, |_, parts| {
            let (row, head) = (parts.full(0), parts.open());
            let taken = SegmentNo(row as u32);
            parts.table[head.1.0 as usize].state = SegmentState::Full;
            parts.table[row].state = SegmentState::Open;
            parts.header.heads[head.0].open.as_mut().expect("it has one").segment = taken;
        });
    }),
    ("a stream continues before its end", |bytes| {
        change(bytes, |_, parts| {
            let head = parts.header.heads.iter_mut().filter_map(|head| head.open.as_mut());
            head.max_by_key(|open| open.slot.0).expect("one is written to").slot = Slot(0);
        });
    }),
    ("the checkpoint counts lost blocks that no page has", |bytes| change(bytes, |_, parts| parts.header.lost = 3)),
    ("the checkpoint is of a number that cannot be", |bytes| {
        change(bytes, |_, parts| parts.header.number = CheckpointNo(u64::MAX));
    }),
    ("a chunk names another block", |bytes| {
        change_chunk(bytes, |header| {
            if let Some(Entry::Data { block, .. }) =
                header.entries.iter_mut().find(|entry| matches!(entry, Entry::Data { .. }))
            {
                block.0 ^= 1;
            }
        });
    }),
    ("a chunk has other checksums", |bytes| {
        change_chunk(bytes, |header| {
            for entry in &mut header.entries {
                if let Entry::Data { checksum, .. } = entry {
                    checksum.0 ^= 1;
                }
            }
        });
    }),
    ("a chunk holds fewer blocks", |bytes| {
        change_chunk(bytes, |header| header.entries.truncate(header.entries.len() / 2));
    }),
    ("the copies of the superblock differ under one generation", |bytes| {
        change_superblock(bytes, &[256], |superblock| superblock.created.0 += 1);
    }),
    ("a copy of the superblock is of another store", |bytes| {
        change_superblock(bytes, &[256], |superblock| superblock.store = uuid::Uuid::from_u128(7));
    }),
    ("the checkpoints are said to lie elsewhere", |bytes| {
        change_superblock(bytes, &[0, 256], |superblock| {
            superblock.areas = superblock.areas.map(|area| Area { first: SegmentNo(area.first.0 - 9), ..area });
        });
    }),
    ("the log is said to begin elsewhere", |bytes| {
        change_superblock(bytes, &[0, 256], |superblock| superblock.first.0 -= 16);
    }),
];

#[test]
fn what_contradicts_itself_is_refused_with_a_name_or_reported() {
    let (whole, held) = closed();
    let mut failed = Vec::new();
    for (label, change) in CASES {
        println!("{label}");
        let mut bytes = whole.clone();
        change(&mut bytes);
        let held = held.clone();
        let device = from_bytes(bytes.clone());
        let run = move || {
            let report = try_check(&device, Depth::Data);
            match &report {
                Ok(report) => assert!(report.problem_count > 0, "{label}: check says nothing"),
                Err(error) => println!("  refused: {error}"),
            }
            if let Ok(mut salvage) = Salvage::open(Arc::clone(&device), "disk") {
                _ = salvage.copy(|_, _| Ok::<(), ()>(()), &mut |_, _| {});
            }
            for access in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                let Ok(store) = try_open(&device, access) else { continue };
                for (block, held) in (0..).zip(held.chunks(4096)) {
                    let mut found = fill(0, 8);
                    // Only the check finds a block that a page of the map hides.
                    let is_empty = |found: &[u8]| found.iter().all(|byte| *byte == 0);
                    let is_wrong = store.read(Lba(block * 8), &mut found).is_ok() && found != held && !is_empty(&found);
                    assert!(!is_wrong, "{label}: block {block} is wrong in silence");
                }
                drop(store);
                assert!(access == OpenMode::ReadWrite || bytes_of(&*device) == bytes, "{label}: it was written to");
            }
        };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| within_bounds(run))).is_err() {
            failed.push(*label);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
