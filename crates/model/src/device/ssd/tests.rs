use super::*;
use crate::device::profiles::{Options, Spec, profile};
use crate::device::testing::{random, run, sequential};

fn slc() -> (SsdSpec, Ssd) {
    let Spec::Ssd(spec) = profile("slc_memoright").unwrap().spec else { panic!("a flash drive") };
    let ssd = Ssd::new(&spec);
    (spec, ssd)
}

#[test]
fn a_unit_is_the_megabyte_of_the_boundary() {
    assert_eq!(slc().1.unit(), ByteSize(1 << 20));
}

#[test]
fn sequential_writes_switch_and_copy_nothing() {
    let (spec, mut ssd) = slc();
    // 64 MB in requests of 256 KiB.
    let (_, end) = run(&mut ssd, sequential(Op::Write, 256, Lba(0), 512), 1);
    let stats = ssd.stats();
    assert_eq!(stats.pages_copied, 0);
    assert_eq!(stats.erases, 64 * 8);
    assert_eq!(stats.boundary_crossings, 63);
    // A unit: 512 pages over 8 chips, its map entry, one erase, four commands.
    let unit = 64 * spec.program.0 + spec.read.0 + spec.program.0 + spec.erase.0 + 4 * spec.overhead.0;
    assert_eq!(end, Nanos(64 * unit));
}

#[test]
fn random_writes_copy_whole_units() {
    let (spec, mut ssd) = slc();
    let count = 400;
    let requests = random(Op::Write, count, ssd.capacity(), 1);
    let (_, end) = run(&mut ssd, requests, 1);
    let stats = ssd.stats();
    let written = stats.sectors_written * 512;
    let amplification = (stats.pages_copied * 2048 + written) as f64 / written as f64;
    assert!(amplification > 100.0, "{amplification}");
    // What a full merge costs: 512 pages copied by 8 chips, two erases.
    let merge = 64 * (spec.read.0 + spec.program.0) + 2 * spec.erase.0;
    let merges = (count - spec.log_units as usize) as u64;
    assert!((end.0 as f64 / (merges * merge) as f64 - 1.0).abs() < 0.1, "{end}");
}

#[test]
fn a_log_that_holds_the_beginning_in_order_copies_only_the_rest() {
    let (spec, mut ssd) = slc();
    let half = 1024;
    let mut requests = vec![(Op::Write, Lba(0), half)];
    // Opening as many others as there are logs drives the first one out.
    requests.extend((1..=u64::from(spec.log_units)).map(|unit| (Op::Write, Lba(unit * 2048), 8)));
    run(&mut ssd, requests, 1);
    assert_eq!((ssd.stats().pages_copied, ssd.stats().erases), (256, 8));
}

#[test]
fn a_page_that_is_written_in_part_is_read_once() {
    let Spec::Ssd(spec) = profile("sandisk_ultra2").unwrap().spec else { panic!("a flash drive") };
    // In a unit that is open already; a page has four sectors, and there is one chip.
    let takes = |start, sectors| {
        let opening = (Op::Write, Lba(0), 4);
        let after = |requests| run(&mut Ssd::new(&spec), requests, 1).1;
        after(vec![opening, (Op::Write, Lba(start), sectors)]) - after(vec![opening])
    };
    for (start, sectors) in [(5, 1), (7, 1), (5, 2), (5, 3)] {
        assert_eq!(takes(start, sectors), takes(4, sectors), "{sectors} from {start}");
    }
    assert!(takes(4, 3) > takes(4, 4), "a whole page is not read");
    assert_eq!(takes(5, 6), takes(4, 6) + spec.read, "of two pages both in part, not one");
}

#[test]
fn a_log_that_is_rewritten_merges_in_full() {
    let (_, mut ssd) = slc();
    run(&mut ssd, sequential(Op::Write, 1, Lba(0), 8).repeat(256), 1);
    // 256 times 2 pages fill the log of 512.
    assert_eq!((ssd.stats().pages_copied, ssd.stats().erases), (512, 16));
}

#[test]
fn writes_inside_open_units_cost_no_merge() {
    let (spec, mut ssd) = slc();
    let requests =
        (0..200_u64).map(|turn| (Op::Write, Lba(turn % u64::from(spec.log_units) * 2048 + turn / 16 * 8), 8));
    run(&mut ssd, requests, 1);
    assert_eq!(ssd.stats().pages_copied, 0);
}

#[test]
fn a_stride_test_is_slow_where_it_enters_a_megabyte() {
    // The dissertation's figure 1: 4 KB written every 32 KB.
    let (_, mut ssd) = slc();
    let requests = (0..3200_u64).map(|step| (Op::Write, Lba(step * 64), 8));
    let (done, _) = run(&mut ssd, requests, 1);
    let took: Vec<u64> = done.windows(2).map(|pair| pair[1].at.0 - pair[0].at.0).collect();
    // From the second request on; the logs are full after 16 units of 32 requests.
    let slow: Vec<usize> = (600..3199).filter(|&step| took[step] > 5_000_000).map(|step| step + 1).collect();
    assert!(slow.iter().all(|step| step % 32 == 0), "{slow:?}");
    assert_eq!(slow.len(), 3200 / 32 - 19);
}

#[test]
fn a_read_takes_its_pages_over_all_chips() {
    let (spec, mut ssd) = slc();
    let (done, _) = run(&mut ssd, [(Op::Read, Lba(0), 8), (Op::Read, Lba(0), 2048)], 1);
    // 4 KiB: the interface is slower than one round of the chips; 1 MiB likewise.
    let carried = |bytes: u64| bytes * 1_000_000_000 / spec.interface.0;
    assert!(done[0].at.0.abs_diff(spec.overhead.0 + carried(4096).max(spec.read.0)) <= 1);
    let second = done[1].at - done[0].at;
    assert!(second.0.abs_diff(spec.overhead.0 + carried(1 << 20).max(64 * spec.read.0)) <= 1);
}

#[test]
fn the_slower_cells_take_longer() {
    let time = |name: &str| {
        let mut ssd = profile(name).unwrap().build(&Options::default());
        run(&mut *ssd, sequential(Op::Write, 64, Lba(0), 512), 1).1
    };
    assert!(time("mlc_samsung") > time("slc_memoright"));
}
