//! What was measured of a drive, each part by itself, on a drive whose times are easy to add up.

use proptest::prelude::*;

use super::*;
use crate::device::profiles::{Spec, profile};

const SECTOR: Nanos = Nanos::from_micros(100);
const TURN: Nanos = Nanos::from_millis(10);

/// 100 sectors of 100 us on each of two tracks a cylinder; no skew.
fn band(first_cylinder: u32, last_cylinder: u32) -> Band {
    Band { first_cylinder, last_cylinder, sectors_per_track: 100, ..Band::default() }
}

fn layout(bands: Vec<Band>, spares: Spares) -> SectorLayout {
    let (order, range_cylinders) = (TrackOrder::Upwards, 1);
    SectorLayout { sectors: 1 << 40, order, spares, range_cylinders, slips_use_spares: true, bands }
}

fn drive(layout: SectorLayout) -> DiskSpec {
    let Spec::Disk(spec) = profile("modern").unwrap().spec else { panic!("a disk") };
    let measured = Measured { layout: Some(layout), seeks: Some([(1, SECTOR)].into()), ..Measured::default() };
    let head_switch = Nanos(0);
    let cylinder_switch = Nanos(0);
    DiskSpec { rpm: 6000, heads: 2, head_switch, cylinder_switch, overhead: Nanos(0), measured, ..spec }
}

/// The same with commands that cost nothing and a buffer of two segments that keeps what was asked for.
fn buffered() -> DiskSpec {
    let mut spec = drive(layout(vec![band(0, 99)], Spares::DiskEnd));
    spec.measured.commands = Some(CommandTimes::default());
    spec.measured.buffer = Some(BufferRules {
        segments: 2,
        segment_sectors: 50,
        read_ahead: ReadAheadTo::Nowhere,
        read_ahead_sectors: 50,
        keeps_requested: true,
        read_ahead_after_hits: false,
        keeps_passing: false,
        reads_written: false,
        any_order: false,
        write_back: WriteBack::Never,
    });
    spec
}

fn commands(spec: &mut DiskSpec) -> &mut CommandTimes {
    spec.measured.commands.as_mut().unwrap()
}

fn rules(spec: &mut DiskSpec) -> &mut BufferRules {
    spec.measured.buffer.as_mut().unwrap()
}

/// How long one request takes, sent when the platter has turned so far since the last one was done and a turn began.
fn serve(disk: &mut Disk, op: Op, lba: u64, sectors: u32, turned: Nanos) -> Nanos {
    let mut done = Vec::new();
    while let Some(at) = disk.next_event() {
        disk.advance(at, &mut done);
    }
    let sent = Nanos((disk.now.0 / TURN.0 + 2) * TURN.0) + turned;
    disk.advance(sent, &mut done);
    disk.submit(sent, Request { id: RequestId(9), op, lba: Lba(lba), sectors });
    done.clear();
    while done.is_empty() {
        disk.advance(disk.next_event().unwrap(), &mut done);
    }
    done[0].at - sent
}

fn assert_takes(took: Nanos, expected: Nanos) {
    assert!(took.0.abs_diff(expected.0) < 200, "took {took:?}, expected {expected:?}");
}

fn sectors(count: u64) -> Nanos {
    Nanos(SECTOR.0 * count)
}

fn places(layout: SectorLayout) -> Vec<(u32, u32, u32)> {
    let geometry = Geometry::new(&drive(layout));
    let in_track = |angle: Angle| (f64::from(angle.0) / 42_949_672.96).round() as u32 % 100;
    let place = |lba| geometry.place(Lba(lba));
    (0..geometry.capacity().0).map(place).map(|at| (at.cylinder, at.head, in_track(at.angle))).collect()
}

#[test]
fn bands_have_tracks_and_skews_of_their_own() {
    let outer = Band { track_skew: 7.0, cylinder_skew: 11.0, offset: 3.0, reserved: 100, ..band(0, 1) };
    let places = places(layout(vec![outer, band(4, 4)], Spares::DiskEnd));
    assert_eq!(places.len(), 300 + 200);
    assert_eq!(places[0], (0, 1, 10), "behind the reserved track, offset and skewed");
    assert_eq!((places[100], places[200]), ((1, 0, 21), (1, 1, 28)));
    assert_eq!(places[300], (4, 0, 0), "the next band begins anew");
}

#[test]
fn slipped_sectors_are_passed_over_and_take_the_place_of_spares() {
    let bad = Band { slipped: vec![10, 50], spares: 5, ..band(0, 0) };
    let places = places(layout(vec![bad, band(1, 1)], Spares::BandEnd));
    assert_eq!((places[9].2, places[10].2, places[49].2), (9, 11, 51));
    assert_eq!(places[195], (1, 0, 0), "195 sectors, whatever slips");
}

#[test]
fn slips_beside_spares_take_the_place_of_data() {
    let bad = Band { slipped: vec![10, 50], spares: 5, ..band(0, 0) };
    let layout = SectorLayout { slips_use_spares: false, ..layout(vec![bad, band(1, 1)], Spares::BandEnd) };
    assert_eq!(places(layout)[193], (1, 0, 0));
}

#[test]
fn whole_tracks_are_defective_where_whole_tracks_are_spare() {
    let bad = Band { slipped: vec![1], remapped: vec![(2, 5)], spares: 2, ..band(0, 2) };
    let places = places(layout(vec![bad], Spares::BandTracks));
    assert_eq!(places.len(), 400, "six tracks, of which two are spare");
    let first_of = [0, 100, 200, 300].map(|lba: usize| places[lba]);
    assert_eq!(first_of, [(0, 0, 0), (2, 1, 0), (1, 1, 0), (2, 0, 0)], "tracks 0, 5 for 2, 3 and 4");
    assert_eq!(places[199], (2, 1, 99));
}

#[test]
fn reserved_sectors_are_counted_as_addresses_are() {
    let front = |reserved, spares| Band { reserved, spares, ..band(0, 3) };
    assert_eq!(places(layout(vec![front(180, 10)], Spares::TrackEnd))[0], (1, 0, 0), "two tracks of 90");
    assert_eq!(places(layout(vec![front(190, 10)], Spares::RangeEnd))[0], (1, 0, 0), "a cylinder of 190");
    assert_eq!(places(layout(vec![front(190, 10)], Spares::CylinderFront))[0], (1, 0, 10));
}

#[test]
fn defects_are_counted_from_the_first_sector_of_the_band() {
    let bad = Band { slipped: vec![30, 160], reserved: 100, ..band(0, 1) };
    let places = places(layout(vec![bad], Spares::DiskEnd));
    assert_eq!(places[0], (0, 1, 1), "the slipped sector before it moved it on");
    assert_eq!((places[58], places[59]), ((0, 1, 59), (0, 1, 61)));
}

#[test]
fn spares_stand_where_the_scheme_says() {
    let spare = Band { spares: 5, ..band(0, 3) };
    let at = |spares, range_cylinders, lba: usize| {
        places(SectorLayout { range_cylinders, ..layout(vec![spare.clone()], spares) })[lba]
    };
    assert_eq!(at(Spares::TrackEnd, 1, 95), (0, 1, 0));
    assert_eq!(at(Spares::CylinderFront, 1, 0), (0, 0, 5));
    assert_eq!(at(Spares::RangeEnd, 1, 195), (1, 0, 0));
    assert_eq!(at(Spares::RangeEnd, 2, 395), (2, 0, 0));
    let tracks = Band { spares: 3, ..band(0, 3) };
    assert_eq!(places(layout(vec![tracks], Spares::BandTracks)).len(), 500);
}

#[test]
fn a_remapped_sector_lies_elsewhere_and_its_neighbours_stay() {
    let bad = Band { remapped: vec![(20, 399)], ..band(0, 1) };
    let at = |band, lba: usize| places(layout(vec![band], Spares::DiskEnd))[lba];
    assert_eq!([19, 20, 21].map(|lba| at(bad.clone(), lba)), [(0, 0, 19), (1, 1, 99), (0, 0, 21)]);
    let nowhere = Band { remapped: vec![(20, 400)], ..band(0, 1) };
    assert_eq!(at(nowhere, 20), (0, 0, 20), "there is no such place");
}

#[test]
fn tracks_may_go_back_and_forth() {
    let heads = |order, first| {
        let places = places(SectorLayout { order, ..layout(vec![band(first, first + 2)], Spares::DiskEnd) });
        [0, 100, 200, 300, 400].map(|lba| places[lba].1)
    };
    assert_eq!(heads(TrackOrder::BackAndForthInBand, 1), [0, 1, 1, 0, 0]);
    assert_eq!(heads(TrackOrder::BackAndForth, 1), [1, 0, 0, 1, 1]);
}

#[test]
fn a_transfer_over_a_switch_that_outlasts_the_skew_loses_a_turn() {
    let skewed = |track_skew| drive(layout(vec![Band { track_skew, ..band(0, 9) }], Spares::DiskEnd));
    let transfer = |spec: &DiskSpec| Geometry::new(spec).transfer(Lba(50), 100);
    assert_takes(transfer(&skewed(7.0)), sectors(107));
    let slow = DiskSpec { head_switch: sectors(8), ..skewed(7.0) };
    assert_takes(transfer(&slow), sectors(207));
}

#[test]
fn seeks_are_on_the_lines_between_the_points() {
    let mut spec = drive(layout(vec![band(0, 4999)], Spares::DiskEnd));
    spec.measured.seeks = Some([(2, Nanos(2000)), (4, Nanos(6000)), (4000, Nanos(1_005_000))].into());
    spec.measured.write_settle = -500;
    let disk = Disk::new(&spec);
    let read = |distance| disk.read_seek.time(distance).0;
    assert_eq!([0, 1, 2, 3, 4, 4999].map(read), [0, 2000, 2000, 4000, 6000, 1_005_000]);
    assert!(read(2002).abs_diff(505_500) < 300);
    assert_eq!(disk.write_seek.time(3), Nanos(3500));
}

#[test]
fn a_read_goes_over_the_bus_behind_the_media() {
    let mut spec = buffered();
    *commands(&mut spec) = CommandTimes {
        read_miss: After { read: sectors(1), write: sectors(2) },
        read_resume: sectors(3),
        read_done: sectors(4),
        ..CommandTimes::default()
    };
    // Sector 20 passes 20 after the turn began; eight of them.
    for (bus, expected) in [(50, 28), (100, 28), (300, 21 + 24)] {
        commands(&mut spec).read_sector = Nanos::from_micros(bus);
        let slow = (21 + 3) * 100 + 8 * bus;
        let expected = sectors(4) + Nanos::from_micros((expected * 100 + if bus > 100 { 300 } else { bus }).max(slow));
        assert_takes(serve(&mut Disk::new(&spec), Op::Read, 20, 8, Nanos(0)), expected);
    }
    // With half of it in the buffer first.
    (commands(&mut spec).read_share, commands(&mut spec).read_sector) = (500, Nanos::from_micros(300));
    assert_takes(serve(&mut Disk::new(&spec), Op::Read, 20, 8, Nanos(0)), sectors(24 + 3 + 24 + 4));
    // Three quarters of six are four whole sectors; of one, it is that one.
    commands(&mut spec).read_share = 750;
    assert_takes(serve(&mut Disk::new(&spec), Op::Read, 20, 6, Nanos(0)), sectors(24 + 3 + 18 + 4));
    assert_takes(serve(&mut Disk::new(&spec), Op::Read, 20, 1, Nanos(0)), sectors(21 + 3 + 3 + 4));
}

#[test]
fn what_a_command_costs_depends_on_the_one_before() {
    let mut spec = buffered();
    commands(&mut spec).read_hit = After { read: sectors(1), write: sectors(5) };
    let mut disk = Disk::new(&spec);
    serve(&mut disk, Op::Read, 20, 8, Nanos(0));
    assert_takes(serve(&mut disk, Op::Read, 20, 8, Nanos(0)), sectors(1));
    serve(&mut disk, Op::Write, 300, 8, Nanos(0));
    assert_takes(serve(&mut disk, Op::Read, 20, 8, Nanos(0)), sectors(5));
}

#[test]
fn the_media_waits_for_a_writes_data() {
    let mut spec = buffered();
    commands(&mut spec).write_sector = Nanos::from_micros(300);
    // Ten sectors take 30 of the media's; it may begin 21 after the command, and not sooner.
    assert_takes(serve(&mut Disk::new(&spec), Op::Write, 22, 10, Nanos(0)), sectors(32));
    assert_takes(serve(&mut Disk::new(&spec), Op::Write, 20, 10, Nanos(0)), sectors(130));
}

#[test]
fn a_write_after_another_one_elsewhere_leaves_the_bus_once_more_where_the_drive_does() {
    let mut spec = buffered();
    let extra =
        ExtraDisconnect { overhead: sectors(2), seek_delay: sectors(3), prepare: sectors(40), done: sectors(5) };
    *commands(&mut spec) = CommandTimes {
        write_miss: After { read: sectors(10), write: sectors(12) },
        write_done: sectors(1),
        extra_disconnect: Some(extra),
        ..CommandTimes::default()
    };
    let mut disk = Disk::new(&spec);
    serve(&mut disk, Op::Read, 0, 8, Nanos(0));
    // After a read as without it: after 10 the heads wait for sector 20.
    assert_takes(serve(&mut disk, Op::Write, 20, 8, Nanos(0)), sectors(28 + 1));
    // What continues it, too: it is ready before its sector passes.
    assert_takes(serve(&mut disk, Op::Write, 28, 8, Nanos(0)), sectors(36 + 1));
    // Another write has its data after 42, and is reported later.
    assert_takes(serve(&mut disk, Op::Write, 50, 8, Nanos(0)), sectors(58 + 5));
    assert_takes(serve(&mut disk, Op::Write, 41, 8, Nanos(0)), sectors(149 + 5));
}

#[test]
fn sectors_in_any_order_take_a_turn_at_most() {
    let mut spec = buffered();
    let read = |spec: &DiskSpec| serve(&mut Disk::new(spec), Op::Read, 10, 40, sectors(30));
    assert_takes(read(&spec), sectors(80 + 40));
    rules(&mut spec).any_order = true;
    assert_takes(read(&spec), sectors(100));
}

#[test]
fn sectors_that_pass_before_a_read_are_kept() {
    let mut spec = buffered();
    rules(&mut spec).keeps_passing = true;
    let mut disk = Disk::new(&spec);
    serve(&mut disk, Op::Read, 40, 8, sectors(30));
    assert_takes(serve(&mut disk, Op::Read, 32, 8, sectors(50)), Nanos(0));
    assert!(serve(&mut disk, Op::Read, 20, 8, sectors(50)) > Nanos(0), "that passed earlier");
}

#[test]
fn reading_ahead_ends_where_its_rule_says() {
    let cases = [
        (ReadAheadTo::Nowhere, true, 98),
        (ReadAheadTo::TrackEnd, true, 100),
        (ReadAheadTo::CylinderEnd, true, 90 + 50),
        (ReadAheadTo::SegmentEnd, true, 90 + 50),
        (ReadAheadTo::SegmentEnd, false, 98 + 50),
        (ReadAheadTo::NextTrackEnd, true, 98),
    ];
    for (read_ahead, keeps_requested, end) in cases {
        let mut spec = buffered();
        *rules(&mut spec) = BufferRules { read_ahead, keeps_requested, ..*rules(&mut spec) };
        let mut disk = Disk::new(&spec);
        serve(&mut disk, Op::Read, 90, 8, Nanos(0));
        assert_eq!(disk.ahead_limit(98), end, "{read_ahead:?}");
    }
}

#[test]
fn a_read_that_follows_the_track_before_is_read_ahead_to_the_end_of_the_next() {
    let mut spec = buffered();
    *rules(&mut spec) = BufferRules {
        read_ahead: ReadAheadTo::NextTrackEnd,
        segment_sectors: 400,
        read_ahead_sectors: 400,
        ..*rules(&mut spec)
    };
    let mut disk = Disk::new(&spec);
    serve(&mut disk, Op::Read, 90, 10, Nanos(0));
    serve(&mut disk, Op::Read, 100, 8, Nanos(0));
    assert_eq!(disk.ahead_limit(108), 300);
}

#[test]
fn a_write_completes_in_the_buffer_while_it_continues_the_one_before() {
    let mut spec = buffered();
    rules(&mut spec).write_back = WriteBack::OneStream;
    let mut disk = Disk::new(&spec);
    let mut done = Vec::new();
    for (id, lba) in [(1, 500), (2, 508), (3, 900)] {
        disk.submit(Nanos(0), Request { id: RequestId(id), op: Op::Write, lba: Lba(lba), sectors: 8 });
    }
    disk.advance(Nanos(0), &mut done);
    assert_eq!(done.iter().map(|done| done.id.0).collect::<Vec<_>>(), [1, 2], "the third waits for the media");
    disk.advance(Nanos::from_millis(100), &mut done);
    assert_eq!(done.len(), 3);
}

#[test]
fn what_was_written_is_read_where_the_drive_allows_it() {
    for reads_written in [false, true] {
        let mut spec = buffered();
        rules(&mut spec).reads_written = reads_written;
        let mut disk = Disk::new(&spec);
        serve(&mut disk, Op::Write, 500, 8, Nanos(0));
        let took = serve(&mut disk, Op::Read, 500, 8, sectors(50));
        assert_eq!(took == Nanos(0), reads_written);
    }
}

#[test]
fn a_single_segment_holds_what_was_used_last() {
    let mut spec = buffered();
    *rules(&mut spec) = BufferRules { segments: 1, reads_written: true, ..*rules(&mut spec) };
    let mut disk = Disk::new(&spec);
    serve(&mut disk, Op::Read, 20, 8, Nanos(0));
    serve(&mut disk, Op::Write, 500, 8, Nanos(0));
    assert!(serve(&mut disk, Op::Read, 20, 8, sectors(50)) > Nanos(0));
    assert!(serve(&mut disk, Op::Read, 500, 8, sectors(50)) > Nanos(0), "the read took the segment");
}

#[test]
fn the_heads_settle_again_where_the_profile_says_so() {
    let mut spec = DiskSpec { head_switch: sectors(12), ..buffered() };
    spec.measured.seeks = Some([(1, sectors(15))].into());
    for (settles_again, write, read) in [(false, 28, 28), (true, 28, 28)] {
        spec.measured.settles_again = settles_again;
        let mut disk = Disk::new(&spec);
        assert_takes(serve(&mut disk, Op::Write, 20, 8, Nanos(0)), sectors(write));
        assert_takes(serve(&mut disk, Op::Read, 20, 8, Nanos(0)), sectors(read));
        let turn = if settles_again { 100 } else { 0 };
        assert_takes(serve(&mut disk, Op::Write, 10, 8, Nanos(0)), sectors(18 + turn));
        assert_takes(serve(&mut disk, Op::Read, 12, 4, Nanos(0)), sectors(16 + turn));
    }
}

prop_compose! {
    fn any_band()(
        cylinders in 1..6_u32, sectors_per_track in 1..12_u32, offset in -20.0..20.0, track_skew in -3.0..15.0, cylinder_skew in -3.0..15.0,
        reserved in 0..40_u64, spares in 0..9_u32, slipped in prop::collection::vec(0..150_u64, 0..6),
        remapped in prop::collection::vec((0..150_u64, 0..150_u64), 0..4),
    ) -> Band {
        let last_cylinder = cylinders - 1;
        Band { first_cylinder: 0, last_cylinder, sectors_per_track, offset, track_skew, cylinder_skew, reserved, spares, slipped, remapped }
    }
}

fn any_spares() -> impl Strategy<Value = Spares> {
    use Spares::{BandEnd, BandTracks, CylinderFront, DiskEnd, RangeEnd, TrackEnd};
    prop::sample::select(vec![DiskEnd, BandTracks, BandEnd, TrackEnd, RangeEnd, CylinderFront])
}

proptest! {
    /// Any layout: every address lies on the drive, a transfer takes no less than its sectors, and every request
    /// completes.
    #[test]
    fn any_layout_serves_requests(
        bands in prop::collection::vec(any_band(), 0..4), spares in any_spares(), range_cylinders in 0..4_u32, slips_use_spares: bool,
        addresses in 0..600_u64, requests in prop::collection::vec((any::<bool>(), 0..700_u64, 0..80_u32), 1..12),
    ) {
        let mut first = 0;
        let mut bands = bands;
        for band in &mut bands {
            let cylinders = band.last_cylinder;
            (band.first_cylinder, band.last_cylinder) = (first, first + cylinders);
            first += cylinders + 1;
        }
        let layout = SectorLayout { sectors: addresses, range_cylinders, slips_use_spares, ..layout(bands, spares) };
        let mut spec = buffered();
        spec.measured.layout = Some(layout);
        let geometry = Geometry::new(&spec);
        prop_assert!(geometry.capacity().0 <= addresses.max(1));
        for lba in 0..geometry.capacity().0 {
            let (place, left) = (geometry.place(Lba(lba)), geometry.capacity().0 - lba);
            prop_assert!(place.cylinder < geometry.cylinders().max(1) && place.head < 2);
            prop_assert!(geometry.track_start(lba) <= lba && lba < geometry.track_end(lba) && lba < geometry.cylinder_end(lba));
            prop_assert!(geometry.passed(Lba(lba), Nanos::from_secs(100)) <= left);
        }
        let mut disk = Disk::new(&spec);
        for (write, lba, sectors) in requests {
            serve(&mut disk, if write { Op::Write } else { Op::Read }, lba, sectors, Nanos(0));
        }
    }
}
