use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use umbrella_units::{BlockNo, Extent, FileId, PageIndex};

use super::layout::GROUP_BLOCKS;
use super::{Aging, AllocError, Ext2, Ext2Config};

fn small(blocks: u64, delayed: bool) -> Ext2 {
    Ext2::new(Ext2Config { blocks, delayed, ..Ext2Config::default() }, 1).unwrap()
}

fn write(disk: &mut Ext2, file: u64, pages: std::ops::Range<u64>) -> Vec<u64> {
    let mut touched = Vec::new();
    pages.map(|at| disk.allocate(FileId(file), PageIndex(at), &mut touched).unwrap().0).collect()
}

/// Every block is free or has exactly one owner, and all sums agree.
fn audit(disk: &Ext2) {
    let layout = &disk.layout;
    let mut owned = Vec::new();
    for place in disk.places.values() {
        let node = disk.node(*place);
        owned.extend(node.map.iter().map(|(_, block)| u64::from(block)));
        owned.extend(node.map.indirects().map(u64::from));
        owned.extend(node.map.promised().map(u64::from));
        owned.extend((0..u32::from(node.window_left)).map(|at| u64::from(node.window + at)));
    }
    let table = u64::from(layout.inodes_per_group / 32);
    for group in 0..layout.len() {
        owned.extend(layout.start(group)..layout.inode_bitmap(group).0 + 1 + table);
    }
    owned.sort_unstable();
    assert!(owned.is_sorted_by(|one, next| one < next), "a block has two owners");
    assert!(owned.iter().all(|&block| block < layout.blocks && !layout.is_free(block)), "a block in use is free");
    assert_eq!(owned.len() as u64 + layout.free_blocks, layout.blocks);
    assert_eq!(layout.groups.iter().map(|group| u64::from(group.free_blocks)).sum::<u64>(), layout.free_blocks);
    assert_eq!(layout.groups.iter().map(|group| u64::from(group.free_inodes)).sum::<u64>(), layout.free_inodes);
    let inodes = u64::from(layout.inodes_per_group) * u64::from(layout.len());
    assert_eq!(layout.free_inodes + 11 + disk.places.len() as u64 - 1, inodes);
}

#[test]
fn a_file_written_alone_is_contiguous_but_for_its_indirect_blocks() {
    let mut disk = small(GROUP_BLOCKS, false);
    disk.create(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let blocks = write(&mut disk, 2, 0..12 + 1024 + 1024);
    let start = blocks[0];
    assert_eq!(blocks[..12], (start..start + 12).collect::<Vec<_>>());
    assert_eq!(blocks[12..1036], (start + 13..start + 1037).collect::<Vec<_>>(), "one indirect block before them");
    assert_eq!(blocks[1036..], (start + 1039..start + 2063).collect::<Vec<_>>(), "two indirect blocks before them");
    assert_eq!(disk.fragments(FileId(2)), 3);
    assert_eq!(disk.distance(FileId(2)), Some(2062));
    audit(&disk);
}

/// Blocks of two files that are written a page each in turn, by two clients or by one.
fn in_turn(disk: &mut Ext2, clients: [u32; 2]) -> [Vec<u64>; 2] {
    let mut blocks = [Vec::new(), Vec::new()];
    for file in 0..2 {
        disk.create(FileId(2 + file), Ext2::ROOT, &mut Vec::new()).unwrap();
    }
    for at in 0..12 {
        for (file, client) in clients.into_iter().enumerate() {
            disk.set_writer(client);
            blocks[file].extend(write(disk, 2 + file as u64, at..at + 1));
        }
    }
    audit(disk);
    blocks
}

#[test]
fn two_writers_that_take_turns_alternate_in_windows_of_eight() {
    // Two processes of one colour.
    let [one, two] = in_turn(&mut small(GROUP_BLOCKS, false), [0, 16]);
    let window = |at: u64| (one[0] + at * 8..one[0] + at * 8 + 8).collect::<Vec<_>>();
    assert_eq!(one[..8], window(0));
    assert_eq!(two[..8], window(1));
    assert_eq!(one[8..], window(2)[..4]);
    assert_eq!(two[8..], window(3)[..4]);
}

#[test]
fn windows_that_grow_double_each_time_that_one_is_used_up() {
    let mut disk = Ext2::new(
        Ext2Config { blocks: GROUP_BLOCKS, growing_windows: true, close_on_switch: false, ..Ext2Config::default() },
        1,
    )
    .unwrap();
    for file in 2..4 {
        disk.create(FileId(file), Ext2::ROOT, &mut Vec::new()).unwrap();
    }
    let mut runs: Vec<u64> = Vec::new();
    let mut last = None;
    // In turn, below the first indirect block and beyond it.
    for at in 0..12 + 4000 {
        let block = write(&mut disk, 2, at..at + 1)[0];
        write(&mut disk, 3, at..at + 1);
        match runs.last_mut() {
            Some(run) if last.is_some_and(|last| (1..=3).contains(&block.wrapping_sub(last))) => *run += 1,
            _ => runs.push(1),
        }
        last = Some(block);
    }
    audit(&disk);
    // An indirect block takes a place now and then.
    assert!((7..=8).contains(&runs[0]) && (15..=16).contains(&runs[1]) && (30..=32).contains(&runs[2]), "{runs:?}");
    assert!(runs.iter().all(|run| *run <= 1024), "{runs:?}");
    assert!(runs.iter().any(|run| *run >= 1000), "{runs:?}");
}

#[test]
fn making_a_file_scans_the_directory_twice_and_removing_one_from_where_the_last_search_ended() {
    let mut disk = small(GROUP_BLOCKS, false);
    let per_block = 4096 / Ext2Config::default().entry_bytes;
    let mut touched = Vec::new();
    for file in 0..3 * per_block {
        disk.look_up_absent(Ext2::ROOT);
        disk.create(FileId(2 + file), Ext2::ROOT, &mut touched).unwrap();
    }
    disk.take_scanned();
    disk.look_up_absent(Ext2::ROOT);
    assert_eq!(disk.take_scanned(), 3 * per_block, "a name that is not there is looked for everywhere");
    let in_block = |block: u64| FileId(2 + block * per_block);
    let mut scanned = |disk: &mut Ext2, file| {
        disk.delete(file, &mut touched).unwrap();
        disk.take_scanned()
    };
    // Half of the block that has the entry, and whole ones before it.
    assert_eq!(scanned(&mut disk, in_block(2)), 2 * per_block + per_block / 2);
    assert_eq!(
        scanned(&mut disk, FileId(in_block(2).0 + 1)),
        (per_block - 1) / 2,
        "it begins where the last one ended"
    );
    assert_eq!(scanned(&mut disk, in_block(0)), per_block - 2 + per_block / 2, "it goes around");
    disk.create(FileId(1_000_000), Ext2::ROOT, &mut Vec::new()).unwrap();
    assert_eq!(disk.take_scanned(), per_block, "the first block has room");
    audit(&disk);
}

#[test]
fn one_client_keeps_a_window_only_for_the_file_it_writes_unless_told_otherwise() {
    let [one, two] = in_turn(&mut small(GROUP_BLOCKS, false), [0, 0]);
    assert_eq!(two[0], one[0] + 1, "the first file counts as closed");
    let config = Ext2Config { blocks: GROUP_BLOCKS, close_on_switch: false, ..Ext2Config::default() };
    let [one, two] = in_turn(&mut Ext2::new(config, 1).unwrap(), [0, 0]);
    assert_eq!(two[0], one[0] + 8);
}

#[test]
fn small_files_that_are_written_one_after_the_other_lie_side_by_side() {
    let mut disk = small(GROUP_BLOCKS, false);
    let mut blocks = Vec::new();
    for file in 2..22 {
        disk.create(FileId(file), Ext2::ROOT, &mut Vec::new()).unwrap();
        blocks.extend(write(&mut disk, file, 0..3));
    }
    assert_eq!(blocks, (blocks[0]..blocks[0] + 60).collect::<Vec<_>>());
}

#[test]
fn what_is_set_aside_is_free_again_when_the_file_is_closed() {
    let mut disk = small(GROUP_BLOCKS, false);
    disk.create(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let free = disk.free_blocks();
    write(&mut disk, 2, 0..1);
    assert_eq!(disk.free_blocks(), free - 8);
    disk.close(FileId(2), &mut Vec::new());
    assert_eq!(disk.free_blocks(), free - 1);
    audit(&disk);
}

#[test]
fn clients_start_at_their_own_sixteenth_of_the_group() {
    let mut disk = small(GROUP_BLOCKS, false);
    for file in [2, 3] {
        disk.create(FileId(file), Ext2::ROOT, &mut Vec::new()).unwrap();
        disk.set_writer(file as u32);
        assert_eq!(write(&mut disk, file, 0..1), [file * GROUP_BLOCKS / 16]);
    }
}

#[test]
fn inode_numbers_are_sequential_in_a_directory() {
    let mut disk = small(4 * GROUP_BLOCKS, false);
    disk.mkdir(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let dir = disk.inode_of(FileId(2)).unwrap().0;
    for at in 1..=100 {
        disk.create(FileId(2 + u64::from(at)), FileId(2), &mut Vec::new()).unwrap();
        assert_eq!(disk.inode_of(FileId(2 + u64::from(at))).unwrap().0, dir + at);
    }
}

#[test]
fn top_directories_are_spread_and_others_stay_with_their_parents() {
    let mut disk = small(8 * GROUP_BLOCKS, false);
    let group = |disk: &Ext2, dir| disk.layout.group_of_inode(disk.inode_of(FileId(dir)).unwrap());
    let mut groups = BTreeSet::new();
    for dir in 2..9 {
        disk.mkdir(FileId(dir), Ext2::ROOT, &mut Vec::new()).unwrap();
        groups.insert(group(&disk, dir));
    }
    assert_eq!(groups.len(), 7);
    disk.mkdir(FileId(20), FileId(5), &mut Vec::new()).unwrap();
    assert_eq!(group(&disk, 20), group(&disk, 5));
}

#[test]
fn a_full_group_spills_to_the_next() {
    let mut disk = small(2 * GROUP_BLOCKS, false);
    disk.create(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let blocks = write(&mut disk, 2, 0..GROUP_BLOCKS);
    assert!(blocks[0] < GROUP_BLOCKS && *blocks.last().unwrap() > GROUP_BLOCKS);
    audit(&disk);
}

#[test]
fn a_full_disk_says_so_and_has_room_again_after_a_deletion() {
    let mut disk = small(2048, false);
    let mut touched = Vec::new();
    disk.create(FileId(2), Ext2::ROOT, &mut touched).unwrap();
    let free = disk.free_blocks();
    let full = (0..).find_map(|at| disk.allocate(FileId(2), PageIndex(at), &mut touched).err());
    assert_eq!(full, Some(AllocError::NoSpace { blocks: 2048 }));
    assert_eq!(disk.free_blocks(), 0);
    audit(&disk);
    disk.delete(FileId(2), &mut touched).unwrap();
    assert_eq!(disk.free_blocks(), free);
    audit(&disk);
}

#[test]
fn inodes_run_out() {
    let mut disk = Ext2::new(Ext2Config { blocks: 2048, inode_bytes: 4 << 20, ..Ext2Config::default() }, 1).unwrap();
    let full = (2..).find_map(|file| disk.create(FileId(file), Ext2::ROOT, &mut Vec::new()).err());
    assert_eq!(full, Some(AllocError::NoInodes { inodes: 64 }));
}

#[test]
fn creating_touches_the_bitmap_the_descriptor_the_inode_and_the_directory() {
    let mut disk = small(GROUP_BLOCKS, false);
    let mut touched = Vec::new();
    disk.create(FileId(2), Ext2::ROOT, &mut touched).unwrap();
    let layout = &disk.layout;
    let entry = disk.block_of(Ext2::ROOT, PageIndex(0)).unwrap();
    let mut expected = vec![entry, layout.inode_block(super::Inode(2)), layout.inode_bitmap(0), layout.descriptor(0)];
    expected.sort_unstable();
    touched.sort_unstable();
    assert_eq!(touched, expected);
}

#[test]
fn a_window_is_taken_from_the_bitmap_once() {
    let mut disk = small(GROUP_BLOCKS, false);
    disk.create(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let bitmap = disk.layout.block_bitmap(0);
    let touches = |at: u64| {
        let mut touched = Vec::new();
        disk.allocate(FileId(2), PageIndex(at), &mut touched).unwrap();
        touched.contains(&bitmap)
    };
    let touched: Vec<bool> = (0..9).map(touches).collect();
    assert_eq!(touched, [true, false, false, false, false, false, false, false, true]);
}

#[test]
fn a_directory_grows_with_its_entries_and_keeps_its_blocks() {
    let mut disk = small(GROUP_BLOCKS, false);
    let per_block = 4096 / 24;
    for file in 0..=per_block {
        disk.create(FileId(10 + file), Ext2::ROOT, &mut Vec::new()).unwrap();
    }
    assert!(disk.block_of(Ext2::ROOT, PageIndex(1)).is_some());
    disk.delete(FileId(10), &mut Vec::new()).unwrap();
    let mut touched = Vec::new();
    disk.create(FileId(9), Ext2::ROOT, &mut touched).unwrap();
    assert!(touched.contains(&disk.block_of(Ext2::ROOT, PageIndex(0)).unwrap()), "the first block has room again");
    audit(&disk);
}

#[test]
fn freed_indirect_blocks_are_forgotten() {
    let mut disk = small(GROUP_BLOCKS, false);
    disk.create(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let blocks = write(&mut disk, 2, 0..13);
    disk.truncate(FileId(2), PageIndex(12), &mut Vec::new()).unwrap();
    let mut forgotten = Vec::new();
    disk.forgotten(&mut forgotten);
    assert_eq!(forgotten, [BlockNo(blocks[12] - 1)]);
    audit(&disk);
}

#[test]
fn reaches_by_three_levels_of_indirect_blocks_and_no_farther() {
    let mut disk = small(GROUP_BLOCKS, false);
    disk.create(FileId(2), Ext2::ROOT, &mut Vec::new()).unwrap();
    let end = 12 + 1024 + 1024 * 1024 + 1024 * 1024 * 1024;
    let index = PageIndex(end);
    assert_eq!(
        disk.allocate(FileId(2), index, &mut Vec::new()),
        Err(AllocError::FileTooLarge { file: FileId(2), index })
    );
    write(&mut disk, 2, end - 1..end);
    assert_eq!(disk.node(disk.places[&FileId(2)]).map.indirects().count(), 3);
    disk.truncate(FileId(2), PageIndex(0), &mut Vec::new()).unwrap();
    assert_eq!(disk.node(disk.places[&FileId(2)]).map.indirects().count(), 0);
    audit(&disk);
}

#[test]
fn directories_with_files_stay() {
    let mut disk = small(GROUP_BLOCKS, false);
    let mut touched = Vec::new();
    disk.mkdir(FileId(2), Ext2::ROOT, &mut touched).unwrap();
    disk.create(FileId(3), FileId(2), &mut touched).unwrap();
    let in_use = |directory| Err(AllocError::InUse { directory });
    assert_eq!(disk.delete(FileId(2), &mut touched), in_use(FileId(2)));
    disk.delete(FileId(3), &mut touched).unwrap();
    disk.delete(FileId(2), &mut touched).unwrap();
    assert_eq!(disk.delete(Ext2::ROOT, &mut touched), in_use(Ext2::ROOT));
    assert_eq!(disk.create(FileId(3), FileId(2), &mut touched), Err(AllocError::NoSuchFile { file: FileId(2) }));
    audit(&disk);
}

#[test]
fn delayed_writers_that_take_turns_get_contiguous_files() {
    let mut disk = small(GROUP_BLOCKS, true);
    let mut predicted = BTreeSet::new();
    for file in [2, 3] {
        disk.create(FileId(file), Ext2::ROOT, &mut Vec::new()).unwrap();
    }
    for at in 0..100 {
        for file in [2, 3] {
            assert!(predicted.insert(disk.reserve(FileId(file), PageIndex(at)).unwrap()), "two pages, one address");
        }
    }
    assert_eq!(disk.block_of(FileId(2), PageIndex(0)), None);
    audit(&disk);
    for file in [2, 3] {
        let mut extents = Vec::new();
        disk.allocate_run(FileId(file), PageIndex(0), 100, &mut Vec::new(), &mut extents).unwrap();
        assert_eq!(extents.len(), 1);
        assert_eq!(extents[0], Extent { start: disk.block_of(FileId(file), PageIndex(0)).unwrap(), blocks: 100 });
        audit(&disk);
    }
}

#[test]
fn a_promise_is_kept_on_a_full_disk() {
    let mut disk = small(2048, true);
    let mut touched = Vec::new();
    for file in [2, 3] {
        disk.create(FileId(file), Ext2::ROOT, &mut touched).unwrap();
    }
    let mut pages = 0;
    while disk.reserve(FileId(2 + pages % 2), PageIndex(pages / 2)).is_ok() {
        pages += 1;
    }
    assert_eq!(disk.free_blocks(), 0);
    for file in [2, 3] {
        let mut extents = Vec::new();
        disk.allocate_run(FileId(file), PageIndex(0), (pages + 3 - file) / 2, &mut touched, &mut extents).unwrap();
    }
    audit(&disk);
}

/// Runs of free blocks.
fn free_runs(disk: &Ext2) -> usize {
    let free = |block| disk.layout.is_free(block);
    (1..disk.blocks()).filter(|&block| free(block) && !free(block - 1)).count()
}

#[test]
fn aging_stops_on_request() {
    for looks in 0..4 {
        let mut disk = small(4 * GROUP_BLOCKS, false);
        let mut left = looks;
        let mut go_on = || {
            left -= 1;
            left >= 0
        };
        assert_eq!(disk.age(1, Aging::to(80), &mut go_on).unwrap(), None, "after {looks} looks");
        assert_eq!(left, -1, "it was asked again after it was asked to end");
    }
}

#[test]
fn aging_fills_the_disk_scatters_the_free_space_and_repeats() {
    for delayed in [false, true] {
        let aged = |seed, rounds| {
            let mut disk = small(2 * GROUP_BLOCKS, delayed);
            let metadata = disk.age(seed, Aging { percent: 80, rounds }, &mut || true).unwrap().unwrap();
            (disk, metadata)
        };
        let (disk, metadata) = aged(1, 4);
        let aged = |seed, rounds| aged(seed, rounds).0;
        audit(&disk);
        assert!(metadata.iter().all(|block| !disk.layout.is_free(block.0)), "what was freed holds nothing any more");
        let (files, mut of_files) = (disk.places.keys().copied().collect::<Vec<_>>(), Vec::new());
        for &file in &files {
            disk.all_metadata_of(file, &mut of_files);
        }
        assert!(files.len() > 100 && of_files.iter().all(|block| metadata.contains(block)), "{} files", files.len());
        let used = 1.0 - disk.free_blocks() as f64 / disk.blocks() as f64;
        assert!((0.79..0.82).contains(&used), "{used}");
        assert_eq!((disk.free_blocks(), free_runs(&disk)), (aged(1, 4).free_blocks(), free_runs(&aged(1, 4))));
        assert_ne!(free_runs(&disk), free_runs(&aged(2, 4)));
        let (young, old) = (free_runs(&aged(1, 0)), free_runs(&disk));
        assert!(old > 2 * young, "{young} runs of free blocks before, {old} after four rounds");
    }
}

#[test]
fn sizes_that_make_no_file_system_are_refused() {
    for blocks in [0, 100, 1 << 31] {
        assert!(matches!(
            Ext2::new(Ext2Config { blocks, ..Ext2Config::default() }, 0),
            Err(AllocError::BadSize { blocks: reported, .. }) if reported == blocks
        ));
    }
}

#[derive(Debug, Clone)]
enum AllocatorStep {
    Mkdir(u64, u64),
    Create(u64, u64),
    Write(u64, u64, u64),
    Reserve(u64, u64, u64),
    Truncate(u64, u64),
    Delete(u64),
    Close(u64),
}

fn step() -> impl Strategy<Value = AllocatorStep> {
    let (file, page) = (1u64..12, prop_oneof![0u64..40, 1000u64..1100, 1_050_000u64..1_050_100]);
    prop_oneof![
        1 => (file.clone(), file.clone()).prop_map(|(dir, parent)| AllocatorStep::Mkdir(dir, parent)),
        2 => (file.clone(), file.clone()).prop_map(|(file, dir)| AllocatorStep::Create(file, dir)),
        6 => (file.clone(), page.clone(), 1u64..40).prop_map(|(file, page, n)| AllocatorStep::Write(file, page, n)),
        3 => (file.clone(), page.clone(), 1u64..40).prop_map(|(file, page, n)| AllocatorStep::Reserve(file, page, n)),
        1 => (file.clone(), page).prop_map(|(file, page)| AllocatorStep::Truncate(file, page)),
        1 => file.clone().prop_map(AllocatorStep::Delete),
        1 => file.prop_map(AllocatorStep::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a map of all answers: blocks are stable, of one owner, and nothing is lost, also on a full disk.
    #[test]
    fn blocks_are_stable_and_of_one_owner(delayed: bool, steps in prop::collection::vec(step(), 1..120)) {
        let mut disk = small(1024 + 600, delayed);
        let mut said = BTreeMap::<(u64, u64), BlockNo>::new();
        let mut touched = Vec::new();
        for step in steps {
            match step {
                AllocatorStep::Mkdir(dir, parent) => drop(disk.mkdir(FileId(dir), FileId(parent), &mut touched)),
                AllocatorStep::Create(file, dir) => drop(disk.create(FileId(file), FileId(dir), &mut touched)),
                AllocatorStep::Write(file, page, pages) if delayed => {
                    let mut extents = Vec::new();
                    if disk.allocate_run(FileId(file), PageIndex(page), pages, &mut touched, &mut extents).is_ok() {
                        let blocks = extents.iter().flat_map(|run| (run.start.0..run.end().0).map(BlockNo));
                        for (page, block) in (page..page + pages).zip(blocks) {
                            prop_assert_eq!(*said.entry((file, page)).or_insert(block), block);
                        }
                    }
                }
                AllocatorStep::Write(file, page, pages) => {
                    for page in page..page + pages {
                        if let Ok(block) = disk.allocate(FileId(file), PageIndex(page), &mut touched) {
                            prop_assert_eq!(*said.entry((file, page)).or_insert(block), block);
                        }
                    }
                }
                AllocatorStep::Reserve(file, page, pages) if delayed => {
                    for page in page..page + pages {
                        if let Ok(block) = disk.reserve(FileId(file), PageIndex(page)) {
                            prop_assert_eq!(disk.expected_block(FileId(file), PageIndex(page)), Some(block));
                            prop_assert_eq!(*said.get(&(file, page)).unwrap_or(&block), block);
                        }
                    }
                }
                AllocatorStep::Reserve(..) => {}
                AllocatorStep::Truncate(file, page) => {
                    if disk.truncate(FileId(file), PageIndex(page), &mut touched).is_ok() {
                        said.retain(|&(of, at), _| of != file || at < page);
                    }
                }
                AllocatorStep::Delete(file) => {
                    if disk.delete(FileId(file), &mut touched).is_ok() {
                        said.retain(|&(of, _), _| of != file);
                    }
                }
                AllocatorStep::Close(file) => disk.close(FileId(file), &mut touched),
            }
            for (&(file, page), &block) in &said {
                prop_assert_eq!(disk.block_of(FileId(file), PageIndex(page)), Some(block));
            }
            audit(&disk);
        }
        prop_assert!(touched.iter().all(|&block| block.0 < disk.blocks()));
    }
}
