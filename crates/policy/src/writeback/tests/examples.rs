//! The worked examples of the papers.

use umbrella_units::Nanos;

use super::script::{dirty_blocks, page, policy, secs, select, select_blocks};
use crate::writeback::{Event, WriteBack};
use umbrella_units::BlockNo;

/// Figure 2 of TESA as far as its text gives it: zones of 25 blocks, alpha 2. Zone 2 has most dirty pages, scattered;
/// zone 4 one segment of more than the average; zones 3 and 5 fewer than the average. Zones 1 to 5 hold 10, 14, 5,
/// 11, 7.
fn figure_2() -> WriteBack {
    let mut policy = policy("zone_segment:zone=100KiB,alpha=2");
    dirty_blocks(&mut policy, (50..72).step_by(2));
    dirty_blocks(&mut policy, 80..83);
    dirty_blocks(&mut policy, (100..110).chain(111..121));
    dirty_blocks(&mut policy, [125, 126, 128, 129, 131, 133, 135]);
    policy
}

/// Zones with dirty pages, their pages, segments and average length of segments in tenths.
fn zones(policy: &WriteBack) -> Vec<(u64, u64, u64, u64)> {
    let zone = |number: u64| (number * 25..number * 25 + 25).find_map(|block| policy.index().zone_of(BlockNo(block)));
    (0..6)
        .filter_map(zone)
        .map(|zone| (zone.number, zone.pages, zone.segments, 10 * zone.pages / zone.segments))
        .collect()
}

#[test]
fn tesa_figure_2_long_segments_first_and_then_the_fullest_zone() {
    let mut policy = figure_2();
    // The average is 10.3 pages a zone: zones 3 and 5 do not count, and zone 4 has 10 pages a segment.
    assert_eq!(zones(&policy), [(2, 11, 11, 10), (3, 3, 1, 30), (4, 20, 2, 100), (5, 7, 5, 14)]);
    assert_eq!(select_blocks(&mut policy, 1), (100..110).chain(111..121).collect::<Vec<_>>());
    // Now it is 7: zone 5 has the longest segments of those that count, but 1.4 pages are less than alpha.
    assert_eq!(zones(&policy), [(2, 11, 11, 10), (3, 3, 1, 30), (5, 7, 5, 14)]);
    assert_eq!(select_blocks(&mut policy, 1), (50..72).step_by(2).collect::<Vec<_>>());
}

#[test]
fn tesa_figure_2_without_a_threshold_continues_by_segments() {
    let mut policy = policy("zone_segment:zone=100KiB,alpha=1");
    dirty_blocks(&mut policy, (50..75).step_by(2));
    dirty_blocks(&mut policy, [125, 126, 127, 128, 129, 131, 132, 133, 134, 135, 136, 138, 139]);
    // Both have 13 pages; zone 5 has 13/3 a segment.
    assert_eq!(select_blocks(&mut policy, 1)[0], 125);
}

#[test]
fn tesa_a_page_between_two_segments_makes_them_one() {
    let mut policy = policy("segment");
    dirty_blocks(&mut policy, [1, 2, 3, 5, 6, 7, 8]);
    assert_eq!(policy.index().segments(), 2);
    dirty_blocks(&mut policy, [4]);
    assert_eq!(policy.index().segments(), 1);
    assert_eq!(select_blocks(&mut policy, 1), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn tesa_a_segment_belongs_to_the_zone_of_its_first_block() {
    let mut policy = policy("zone_segment:zone=12KiB");
    dirty_blocks(&mut policy, [1, 2, 3, 5, 6, 7, 8]);
    let zone =
        |policy: &WriteBack, block| policy.index().zone_of(BlockNo(block)).map(|zone| (zone.pages, zone.segments));
    assert_eq!([0, 3, 6].map(|block| zone(&policy, block)), [Some((3, 1)), Some((4, 1)), None]);
    dirty_blocks(&mut policy, [4]);
    assert_eq!([0, 3, 6].map(|block| zone(&policy, block)), [Some((8, 1)), None, None]);
    policy.on(Nanos(0), Event::Clean { page: umbrella_units::PageKey::device(BlockNo(6)) });
    assert_eq!([0, 3, 6].map(|block| zone(&policy, block)), [Some((5, 1)), None, Some((2, 1))]);
}

#[test]
fn tesa_active_pages_are_not_there_until_they_are_inactive_again() {
    for name in ["zone", "zone_segment", "segment", "recency"] {
        let mut policy = policy(name);
        dirty_blocks(&mut policy, [1, 2, 3]);
        let middle = umbrella_units::PageKey::device(BlockNo(2));
        policy.on(Nanos(0), Event::Activate { page: middle });
        assert_eq!((policy.dirty().0, policy.eligible().0), (3, 2), "{name}");
        assert_eq!(select_blocks(&mut policy, 9), [1, 3], "{name}");
        assert_eq!(select_blocks(&mut policy, 9), [0; 0], "{name}");
        policy.on(Nanos(0), Event::Deactivate { page: middle });
        assert_eq!(select_blocks(&mut policy, 9), [2], "{name}");
    }
}

fn umbrellafs_figures_9_to_12(name: &str) -> Vec<u64> {
    let mut policy = policy(name);
    for file in [1, 5, 3, 6, 7, 4, 2] {
        let block = BlockNo(100 - file);
        policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block, active: false });
    }
    for _ in 0..3 {
        for file in [2, 4, 6] {
            policy.on(Nanos(0), Event::Rewrite { page: page(file, 0) });
        }
    }
    select(&mut policy, Nanos(0), 3).iter().map(|chosen| chosen.page.file.0).collect()
}

#[test]
fn umbrellafs_figure_9_linux_goes_by_the_order_of_the_first_write() {
    assert_eq!(umbrellafs_figures_9_to_12("file"), [1, 5, 3]);
}

#[test]
fn umbrellafs_figure_10_two_queues_leave_rewritten_files_for_last() {
    assert_eq!(umbrellafs_figures_9_to_12("two_queue"), [1, 5, 3]);
    let mut policy = policy("two_queue");
    for (file, writes) in [(1, 4), (2, 3)] {
        policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block: BlockNo(file), active: false });
        (1..writes).for_each(|_| policy.on(Nanos(0), Event::Rewrite { page: page(file, 0) }));
    }
    assert_eq!(select_blocks(&mut policy, 2), [2, 1]);
}

#[test]
fn umbrellafs_figure_11_sorting_goes_by_inode_number() {
    assert_eq!(umbrellafs_figures_9_to_12("sorted"), [1, 2, 3]);
}

#[test]
fn umbrellafs_figure_12_both_sort_each_queue() {
    assert_eq!(umbrellafs_figures_9_to_12("two_queue_sorted"), [1, 3, 5]);
}

/// Which pages of which files are chosen, two at a time.
fn two_by_two(policy: &mut WriteBack, times: usize) -> Vec<(u64, u64)> {
    let chosen = (0..times).flat_map(|_| select(policy, Nanos(0), 2));
    chosen.map(|chosen| (chosen.page.file.0, chosen.page.index.0)).collect()
}

fn dirty(policy: &mut WriteBack, file: u64, index: u64) {
    let block = BlockNo(100 * file + index);
    policy.on(Nanos(0), Event::Dirty { page: page(file, index), block, active: false });
}

#[test]
fn linux_writes_a_file_on_from_where_it_was_left() {
    for name in ["file", "two_queue", "sorted", "two_queue_sorted", "file:chunk=0,requeue=true"] {
        let mut policy = policy(name);
        (0..4).for_each(|index| dirty(&mut policy, 1, index));
        assert_eq!(two_by_two(&mut policy, 1), [(1, 0), (1, 1)], "{name}");
        dirty(&mut policy, 1, 0);
        // Only when nothing is dirty behind that place does it begin at the start.
        assert_eq!(two_by_two(&mut policy, 2), [(1, 2), (1, 3), (1, 0)], "{name}");
        dirty(&mut policy, 1, 5);
        policy.on(Nanos(0), Event::Delete { file: umbrella_units::FileId(1) });
        dirty(&mut policy, 1, 0);
        dirty(&mut policy, 1, 5);
        assert_eq!(
            two_by_two(&mut policy, 1),
            [(1, 0), (1, 5)],
            "{name}: another file of that number begins at its start"
        );
    }
}

#[test]
fn linux_2_6_puts_a_file_that_is_written_in_part_behind_the_others() {
    for name in ["file:chunk=8KiB", "file:chunk=0,requeue=true", "two_queue"] {
        let mut policy = policy(name);
        (0..3).for_each(|index| dirty(&mut policy, 1, index));
        (0..3).for_each(|index| dirty(&mut policy, 2, index));
        assert_eq!(two_by_two(&mut policy, 3), [(1, 0), (1, 1), (2, 0), (2, 1), (1, 2), (2, 2)], "{name}");
    }
}

#[test]
fn a_sorted_file_that_is_written_in_part_waits_until_those_behind_it_had_their_share() {
    for name in ["sorted:requeue=true", "two_queue_sorted:requeue=true"] {
        let mut policy = policy(name);
        for file in [5, 3, 4] {
            (0..3).for_each(|index| dirty(&mut policy, file, index));
        }
        let expected = [(3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1), (3, 2), (4, 2), (5, 2)];
        assert_eq!(two_by_two(&mut policy, 5), expected, "{name}");
    }
}

#[test]
fn two_queues_take_metadata_after_the_files_however_often_it_was_written() {
    for spec in ["sorted", "two_queue_sorted"] {
        let mut policy = policy(spec);
        for file in [0, 7, 5] {
            policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block: BlockNo(file), active: false });
        }
        (0..9).for_each(|_| policy.on(Nanos(0), Event::Rewrite { page: page(0, 0) }));
        let order: Vec<_> =
            (0..3).flat_map(|_| select(&mut policy, Nanos(0), 1)).map(|chosen| chosen.page.file.0).collect();
        assert_eq!(order, [5, 7, 0], "{spec}");
    }
}

#[test]
fn two_queues_never_mark_metadata_and_leave_no_file_behind() {
    let mut policy = policy("two_queue");
    for file in [0, 7] {
        policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block: BlockNo(file), active: false });
        (0..9).for_each(|_| policy.on(Nanos(0), Event::Rewrite { page: page(0, 0) }));
    }
    assert_eq!(select_blocks(&mut policy, 2), [0, 7], "the device came first, and is not set back");
    // The device comes after the last file, regardless of its number.
    for spec in ["sorted", "two_queue_sorted"] {
        let mut policy = self::policy(spec);
        for (block, file) in [0, u64::MAX, 1, u64::MAX - 1].into_iter().enumerate() {
            let block = BlockNo(block as u64);
            policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block, active: false });
        }
        assert_eq!(select_blocks(&mut policy, 9), [2, 3, 1, 0], "{spec}");
    }
}

#[test]
fn two_queues_forget_the_mark_of_a_file_that_is_deleted_and_the_oldest_of_too_many() {
    let often = |policy: &mut crate::writeback::WriteBack, file: u64| {
        policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block: BlockNo(file), active: false });
        (0..3).for_each(|_| policy.on(Nanos(0), Event::Rewrite { page: page(file, 0) }));
    };
    let once = |policy: &mut crate::writeback::WriteBack, file: u64| {
        policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block: BlockNo(file), active: false });
    };
    let mut policy = policy("two_queue");
    often(&mut policy, 1);
    assert_eq!(select_blocks(&mut policy, 9), [1]);
    once(&mut policy, 1);
    once(&mut policy, 2);
    assert_eq!(select_blocks(&mut policy, 9), [2, 1], "the mark outlasts the write-back");
    policy.on(Nanos(0), Event::Delete { file: umbrella_units::FileId(1) });
    once(&mut policy, 1);
    once(&mut policy, 2);
    assert_eq!(select_blocks(&mut policy, 9), [1, 2], "a new file of this number has none");

    often(&mut policy, 1);
    for file in 10..10 + (1 << 16) {
        often(&mut policy, file);
        select(&mut policy, Nanos(0), 9);
    }
    for file in [1, 11, 3] {
        once(&mut policy, file);
    }
    assert_eq!(select_blocks(&mut policy, 9), [1, 3, 11], "the first mark went, the others are kept");
}

#[test]
fn a_long_segment_that_loses_its_far_end_is_measured_anew() {
    let mut policy = policy("wasl_segment");
    dirty_blocks(&mut policy, (32_000..70_000).chain(200_000..237_000).chain(600_000..640_000));
    assert_eq!(select_blocks(&mut policy, 1).len(), 40_000);
    policy.on(Nanos(0), Event::Clean { page: umbrella_units::PageKey::device(BlockNo(66_000)) });
    assert_eq!(select_blocks(&mut policy, 1).first(), Some(&200_000));
}

#[test]
fn mram_figure_3_9_of_two_zones_with_as_many_pages_the_one_with_longer_segments_goes_first() {
    let scattered = [40, 41, 43, 44, 46, 47, 49];
    let joined = [60, 61, 62, 63, 65, 66, 67];
    let mut hybrid = policy("wasl_segment_zone:zone=40KiB");
    dirty_blocks(&mut hybrid, scattered.into_iter().chain(joined));
    assert_eq!(select_blocks(&mut hybrid, 1), joined);
    let mut by_pages = policy("wasl_zone:zone=40KiB");
    dirty_blocks(&mut by_pages, scattered.into_iter().chain(joined));
    assert_eq!(select_blocks(&mut by_pages, 1), scattered);
}

#[test]
fn mram_segments_of_the_hybrid_end_at_the_border_of_the_zone() {
    let mut policy = policy("wasl_segment_zone:zone=40KiB");
    dirty_blocks(&mut policy, (5..15).chain(20..26));
    // The run from 5 to 14 is ten pages long, but five in each zone.
    assert_eq!(select_blocks(&mut policy, 1), [20, 21, 22, 23, 24, 25]);
}

#[test]
fn cscan_continues_where_it_ended_and_begins_again_after_the_last_block() {
    let mut policy = policy("cscan");
    dirty_blocks(&mut policy, [10, 11, 12, 30, 50]);
    assert_eq!(select_blocks(&mut policy, 2), [10, 11]);
    dirty_blocks(&mut policy, [5, 20]);
    assert_eq!(select_blocks(&mut policy, 3), [12, 20, 30]);
    assert_eq!(select_blocks(&mut policy, 9), [50, 5]);
}

#[test]
fn wow_passes_over_a_group_that_was_hit_once() {
    let mut policy = policy("wow:group=40KiB");
    dirty_blocks(&mut policy, [3, 13, 23, 14]);
    assert_eq!(select_blocks(&mut policy, 2), [3, 23]);
    assert_eq!(select_blocks(&mut policy, 1), [13, 14]);
}

#[test]
fn two_pages_of_one_block_are_both_written() {
    for info in crate::writeback::policies() {
        let mut policy = policy(info.name);
        for file in [1, 2] {
            policy.on(Nanos(0), Event::Dirty { page: page(file, 0), block: BlockNo(7), active: false });
        }
        policy.on(Nanos(0), Event::Dirty { page: page(3, 0), block: BlockNo(8), active: false });
        policy.on(Nanos(0), Event::Remap { page: page(3, 0), block: BlockNo(7) });
        policy.on(Nanos(0), Event::Clean { page: page(1, 0) });
        let mut files: Vec<u64> = select(&mut policy, Nanos(0), 9).iter().map(|chosen| chosen.page.file.0).collect();
        files.sort_unstable();
        assert_eq!(files, [2, 3], "{}", info.name);
    }
}

#[test]
fn clairvoyant_writes_last_what_is_written_again_first() {
    let mut policy = policy("clairvoyant");
    dirty_blocks(&mut policy, [1, 2, 3]);
    for (block, secs) in [(1, 50), (2, 5)] {
        let next_write = Nanos::from_secs(secs);
        policy.on(Nanos(0), Event::Foresee { page: umbrella_units::PageKey::device(BlockNo(block)), next_write });
    }
    assert_eq!(select_blocks(&mut policy, 3), [3, 1, 2]);
}

#[test]
fn a_rewrite_at_the_end_of_the_window_is_still_within_it() {
    let mut policy = policy("write_minimal:window=30s");
    dirty_blocks(&mut policy, [1, 2, 3]);
    for (block, next_write) in [(1, secs(30)), (2, secs(30) + Nanos(1)), (3, secs(31))] {
        policy.on(Nanos(0), Event::Foresee { page: umbrella_units::PageKey::device(BlockNo(block)), next_write });
    }
    assert_eq!(select_blocks(&mut policy, 3), [2, 3, 1], "the rewrite of block 1 saves a write");
}

#[test]
fn an_address_that_no_device_has_changes_nothing() {
    for info in crate::writeback::policies() {
        let mut policy = policy(info.name);
        let beyond = BlockNo(u64::MAX);
        policy.on(Nanos(0), Event::Dirty { page: page(1, 0), block: beyond, active: false });
        policy.on(Nanos(0), Event::Dirty { page: page(1, u64::MAX), block: BlockNo(1), active: false });
        policy.on(Nanos(0), Event::Dirty { page: page(1, 1), block: BlockNo(1), active: false });
        policy.on(Nanos(0), Event::Remap { page: page(1, 1), block: beyond });
        assert_eq!(select_blocks(&mut policy, 9), [1], "{}", info.name);
    }
}

#[test]
fn cscan_takes_no_more_than_a_block_too_many_where_two_pages_share_one() {
    let mut policy = policy("cscan");
    dirty_blocks(&mut policy, [40, 41, 42]);
    policy.on(Nanos(0), Event::Dirty { page: page(1, 0), block: BlockNo(40), active: false });
    assert_eq!(select_blocks(&mut policy, 2), [40, 40]);
    assert_eq!(select_blocks(&mut policy, 1), [41]);
}

#[test]
fn clairvoyant_takes_the_lower_file_where_all_else_is_equal() {
    let mut policy = policy("clairvoyant");
    for file in [1, 3, 2] {
        let index = if file == 1 { 0 } else { 9 };
        policy.on(Nanos(0), Event::Dirty { page: page(file, index), block: BlockNo(49), active: false });
    }
    let files: Vec<u64> = select(&mut policy, Nanos(0), 3).iter().map(|chosen| chosen.page.file.0).collect();
    assert_eq!(files, [1, 2, 3]);
}

#[test]
fn sweep_lets_a_stream_go_before_scattered_pages() {
    let mut policy = policy("sweep");
    dirty_blocks(&mut policy, (0..200).map(|n| n * 5_000).chain(700_000..701_000));
    let chosen = select_blocks(&mut policy, 500);
    assert!(chosen.iter().all(|block| (700_000..701_000).contains(block)), "{chosen:?}");
}

#[test]
fn sweep_leaves_pages_in_use_until_nothing_else_is_left() {
    let mut policy = policy("sweep");
    dirty_blocks(&mut policy, [10, 5_000, 9_000]);
    policy.on(Nanos(0), Event::Activate { page: umbrella_units::PageKey::device(BlockNo(5_000)) });
    assert_eq!(select_blocks(&mut policy, 2), [10, 9_000]);
    assert_eq!(select_blocks(&mut policy, 2), [5_000]);
}

/// A minute after 30 pages were selected: an old region of 100 pages with gaps between them, and two new ones. The
/// first holds as many pages: waiting saves stops there. The other holds two lone ones, where it saves nothing.
fn an_old_region_and_two_new_ones(spec: &str) -> WriteBack {
    let mut policy = policy(spec);
    dirty_blocks(&mut policy, 50_000..50_030);
    assert_eq!(select_blocks(&mut policy, 30).len(), 30);
    dirty_blocks(&mut policy, (0..100).map(|n| 8_192 + 10 * n));
    for block in (0..100).map(|n| 10 * n).chain([1_100, 1_900]) {
        let page = umbrella_units::PageKey::device(BlockNo(block));
        policy.on(secs(60), Event::Dirty { page, block: BlockNo(block), active: false });
    }
    policy
}

fn first_at_61_s(policy: &mut WriteBack, want: u64) -> u64 {
    select(policy, secs(61), want)[0].block.0
}

#[test]
fn sweep_passes_by_what_is_new_but_never_isolated_segments() {
    let mut policy = an_old_region_and_two_new_ones("sweep:expire=0s");
    let chosen: Vec<u64> = select(&mut policy, secs(61), 2).iter().map(|page| page.block.0).collect();
    assert_eq!(chosen, [1_100, 1_900]);
    assert_eq!([first_at_61_s(&mut policy, 1), first_at_61_s(&mut policy, 1)], [8_192, 0]);
}

#[test]
fn sweep_passes_nothing_by_when_the_disk_is_far_behind() {
    // 202 pages at 30 a minute stay for seven minutes.
    for (expire, first) in [("60s", 0), ("13m", 0), ("14m", 1_100)] {
        let mut policy = an_old_region_and_two_new_ones(&format!("sweep:expire={expire}"));
        assert_eq!(first_at_61_s(&mut policy, 1), first, "{expire}");
    }
}

#[test]
fn sweep_spares_a_cluster_that_is_mostly_in_use_until_nothing_else_is_left() {
    let mut policy = policy("sweep");
    dirty_blocks(&mut policy, [10, 20, 148, 400, 410, 3_100]);
    for block in [10, 20, 400] {
        policy.on(Nanos(0), Event::Activate { page: umbrella_units::PageKey::device(BlockNo(block)) });
    }
    // Of the cluster at 10 two pages of three are in use, of that at 400 one of two.
    assert_eq!(select_blocks(&mut policy, 3), [400, 410, 3_100]);
    assert_eq!(select_blocks(&mut policy, 1), [10, 20, 148]);
}
