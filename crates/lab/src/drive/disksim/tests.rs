use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;
use umbrella_model::device::disk::{ReadAheadTo, Spares, TrackOrder, WriteBack};

use super::*;
use crate::drive::{Measurements, validate};

/// A drive of our own in the format, in the four files that the format spreads it over.
const PARV: &str = "
disksim_global Global { Init Seed = 42 } # said of the whole simulation
disksim_bus BUS0 { type = 1, Read block transfer time = 0.0, Write block transfer time = 0.0 }
disksim_bus BUS1 { type = 1, Read block transfer time = 0.05, Write block transfer time = 0.06 }
disksim_ctlr CTLR0 { Bulk sector transfer time = 0.0 }
# the drive
source own.diskspecs
instantiate [ disk0 ] as OWN
topology disksim_iodriver driver0 [ disksim_bus bus0 [ disksim_disk disk0 [] ] ]
";

const DISKSPECS: &str = "
disksim_disk OWN {
   Model = source own.model,
   Scheduler = disksim_ioqueue { Scheduling policy = 1 },
   Max queue length = 4,
   Time scale for overheads = 2.0,
   Bulk sector transfer time = 0.01,
   Number of buffer segments = 3,
   Segment size (in blks) = 64,
   High (read) water mark = 0.5,
   Enable caching in buffer = 1,
   Buffer continuous read = 3,
   Maximum read-ahead (blks) = 32,
   Read-ahead over requested = -1,
   Read any free blocks = 1,
   Fast write level = 2,
   Read hit over. after read = 0.1,
   Read hit over. after write = 0.2,
   Write completion overhead = 0.04,
   First reselect overhead = 0.03
}
";

const MODEL: &str = "
dm_disk OWN_model {
   Number of data surfaces = 2,
   Number of cylinders = 20,
   Block count = 1900,
   Layout Model = dm_layout_g1 {
      LBN-to-PBN mapping scheme = 1,
      Sparing scheme used = 8,
      Rangesize for sparing = 5,
      Zones = [
         dm_layout_g1_zone {
            First cylinder number = 0, Last cylinder number = 9, Blocks per track = 60,
            Offset of first block = 2.0, Empty space at zone front = 120,
            Skew for track switch = 6.0, Skew for cylinder switch = 10.0,
            Number of spares = 8, slips = [ 5, 70 ], defects = [ 9, 599 ]
         },
         dm_layout_g1_zone {
            First cylinder number = 10, Last cylinder number = 19, Blocks per track = 50,
            Skew units = revolutions,
            Skew for track switch = 0.1, Skew for cylinder switch = 0.2,
            Number of spares = 8, slips = [], defects = []
         }
      ]
   },
   Mechanical Model = dm_mech_g1 {
      Access time type = trackSwitchPlusRotation,
      SEEK
      Add. write settling delay = -0.1,
      Head switch time = 0.7,
      Rotation speed (in rpms) = 6000
   }
}
";

const EXTRACTED: &str = "Seek type = extracted, Full seek curve = own.seek,";
const SEEKS: &str = "Seek distances measured: 3\n1, 1.5\n5, 2.5\n19, 6.0\n";

/// The drive in a directory, with so said seeks.
fn own(seek: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    file("own.parv", PARV);
    file("own.diskspecs", DISKSPECS);
    file("own.model", &MODEL.replace("SEEK", seek));
    file("own.seek", SEEKS);
    let parameters = directory.path().join("own.parv");
    (directory, parameters)
}

fn drive(seek: &str) -> DriveProfile {
    let (_directory, parameters) = own(seek);
    import(&parameters).unwrap()
}

/// The error of the drive when one of its files has this text.
fn refused(name: &str, text: &str) -> String {
    let (directory, parameters) = own(EXTRACTED);
    fs::write(directory.path().join(name), text).unwrap();
    import(&parameters).unwrap_err().to_string()
}

fn seek(drive: &DriveProfile, distance: u32) -> f64 {
    drive.seeks.iter().find(|&&(at, _)| at == distance).unwrap().1
}

#[test]
fn a_drive_is_read_from_the_files_that_name_each_other() {
    let drive = drive(EXTRACTED);
    assert_eq!((drive.name.as_str(), drive.rpm, drive.heads, drive.cylinders), ("OWN", 6000, 2, 20));
    assert_eq!(drive.seeks, [(1, 1.5), (5, 2.5), (19, 6.0)]);
    assert_eq!(drive.layout.sectors, 1900);
    assert_eq!((drive.layout.order, drive.layout.spares), (TrackOrder::BackAndForthInBand, Spares::RangeEnd));
    let [outer, inner] = drive.layout.bands.as_slice() else { panic!("two bands") };
    assert_eq!(
        (outer.reserved, outer.slipped.as_slice(), outer.remapped.as_slice()),
        (120, &[5, 70][..], &[(9, 599)][..])
    );
    assert_eq!((inner.track_skew, inner.cylinder_skew), (5.0, 10.0), "a tenth of a turn is 5 of 50 sectors");
}

#[test]
fn overheads_are_scaled_and_the_slowest_bus_counts() {
    let commands = drive(EXTRACTED).commands;
    assert_eq!((commands.read_sector_ms, commands.write_sector_ms), (0.05, 0.06));
    assert_eq!((commands.read_hit_ms, commands.read_share), ([0.2, 0.4], 0.5));
    assert!((commands.write_done_ms - 0.14).abs() < 1e-9, "to report a write the drive takes the bus again");
}

#[test]
fn a_drive_may_leave_the_bus_once_more_before_the_data_of_a_write() {
    assert_eq!(drive(EXTRACTED).commands.extra_disconnect, None);
    let extra = "Write miss over. after read = 0.5, Extra write disconnect = 1, Extradisc command overhead = 0.1,
        Extradisc disconnect overhead = 0.2, Extradisc inter-disconnect delay = 0.4, Other reselect overhead = 0.05,
        Extradisc seek delta = 0.3,";
    let (directory, parameters) = own(EXTRACTED);
    let text = DISKSPECS.replace("Max queue", &format!("{extra} Max queue"));
    fs::write(directory.path().join("own.diskspecs"), text).unwrap();
    let commands = import(&parameters).unwrap().commands;
    let misses = (commands.write_miss_ms, commands.read_share);
    assert_eq!(misses, ([1.0, 0.0], 0.5), "writes after reads take what they took");
    let extra = commands.extra_disconnect.unwrap();
    let figures = [extra.overhead_ms, extra.seek_delay_ms, extra.prepare_ms, extra.done_ms];
    let expected = [0.2, 0.6, 0.4 + 0.8 + 0.06, 0.1 + 0.08];
    assert!(figures.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-9), "{figures:?}");
}

#[test]
fn the_buffer_is_read() {
    let buffer = drive(EXTRACTED).buffer;
    assert_eq!((buffer.segments, buffer.segment_sectors, buffer.read_ahead_sectors), (3, 64, 32));
    assert_eq!((buffer.read_ahead, buffer.write_back), (ReadAheadTo::SegmentEnd, WriteBack::OneStream));
    assert!(buffer.keeps_requested && buffer.keeps_passing && !buffer.any_order);
}

#[test]
fn every_figure_has_a_source() {
    let sources = drive(EXTRACTED).sources;
    assert!(sources.measured.contains("seeks") && sources.datasheet.is_empty());
    assert_eq!(sources.assumed.into_iter().collect::<Vec<_>>(), ["settles_again"]);
}

#[test]
fn a_profile_survives_its_file() {
    let drive = drive(EXTRACTED);
    assert_eq!(DriveProfile::parse(&drive.to_toml()).unwrap(), drive);
}

#[test]
fn seeks_are_read_in_all_six_ways() {
    let three = "Single cylinder seek time = 1.0, Average seek time = 4.0, Full strobe seek time = 8.0,";
    assert_eq!(drive("Seek type = constant, Constant seek time = 3.0,").seeks, [(1, 3.0)]);
    assert_eq!(drive(&format!("Seek type = linear, {three}")).seeks, [(1, 1.0), (6, 4.0), (19, 8.0)]);

    // Lee and Katz: a = (-10 + 60 - 40) / (3 sqrt 20), b = (7 - 60 + 64) / 60.
    let curve = drive(&format!("Seek type = curve, {three}"));
    let expected = 10.0 / (3.0 * 20_f64.sqrt()) * 2.0 + 11.0 / 60.0 * 4.0 + 1.0;
    assert!((seek(&curve, 5) - expected).abs() < 1e-9);

    let six = "HPL seek equation values = [ 10, 2.0, 0.5, 3.0, 0.1, 1.2 ],";
    let hpl = drive(&format!("Seek type = hpl, {six}"));
    assert_eq!((seek(&hpl, 1), seek(&hpl, 4), seek(&hpl, 10)), (1.2, 3.0, 4.0));

    let ten = "First ten seek times = [ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ],";
    let hplplus10 = drive(&format!("Seek type = hplplus10, {six} {ten}"));
    assert_eq!((seek(&hplplus10, 7), seek(&hplplus10, 11)), (7.0, 3.0 + 0.1 * 11.0));
    assert_eq!(drive(EXTRACTED).seeks.len(), 3);
}

#[test]
fn without_a_knee_the_line_begins_where_it_meets_the_root() {
    // 1 + sqrt(d) and 2 + d / 4 meet at 4.
    let hpl = drive("Seek type = hpl, HPL seek equation values = [ 1.0, 1.0, 2.0, 0.25, -1.0 ],");
    assert_eq!((seek(&hpl, 1), seek(&hpl, 4), seek(&hpl, 16)), (2.0, 3.0, 6.0));
}

#[test]
fn a_file_outside_the_directory_is_not_read() {
    for name in ["/etc/passwd", "../own.model", "sub/own.model", "..", "/"] {
        let text = DISKSPECS.replace("own.model", name);
        assert!(refused("own.diskspecs", &text).contains("not a plain file in the same directory"), "{name}");
    }
    let (directory, parameters) = own(EXTRACTED);
    fs::remove_file(directory.path().join("own.seek")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.path().join("own.seek")).unwrap();
    assert!(import(&parameters).unwrap_err().to_string().contains("not a plain file in the same directory"));
}

#[test]
fn files_without_end_are_refused() {
    assert!(refused("own.model", "source own.model").contains("files are named"));
    assert!(refused("own.model", &"x ".repeat(MOST_BYTES as usize / 2 + 1)).contains("larger than"));
    assert!(refused("own.model", &"dm_disk a { b = ".repeat(1000)).contains("nested more than"));
    assert!(refused("own.model", &format!("x {{ y = {} }}", "[ ".repeat(1000))).contains("nested more than"));
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let model = MODEL.replace("SEEK", EXTRACTED);
    assert_eq!(refused("own.diskspecs", ""), ImportError::NoDisk.to_string());
    let of = |from: &str, to: &str| refused("own.model", &model.replace(from, to));
    assert!(of("Block count", "Blocks").starts_with("own.model, line 2: dm_disk has no \"Block count\""));
    assert!(of("= 6000", "= fast").starts_with("own.model, line 30: \"Rotation speed (in rpms)\" is not a number"));
    assert!(of("70 ]", "bad ]").starts_with("own.model, line 15: \"slips\" is not a number"));
    assert!(
        of("used = 8", "used = 11")
            .starts_with("own.model, line 8: \"Sparing scheme used\" is 11, which is impossible")
    );
    assert!(of("extracted", "magic").starts_with("own.model, line 27: \"Seek type\" is \"magic\" (known: constant"));
    assert!(of("revolutions", "bananas").starts_with("own.model, line 19: \"Skew units\" is \"bananas\""));
    assert!(of("own.seek", "none.seek").starts_with("own.model, line 27: none.seek: No such file"));
    assert!(of("Zones = [", "Zones = ]").starts_with("own.model, line 10: a mark is out of place"));
    let cut = of("Rotation speed (in rpms) = 6000\n   }\n}", "");
    assert!(cut.starts_with("own.parv, line 8: a mark is out of place behind \"instantiate\""), "{cut}");
    assert!(refused("own.parv", "\na b { c =").starts_with("own.parv, line 2: the text ends within \"a\""));
    // What no part of the text says alone is said of the drive.
    assert!(of("= 6000", "= 0").starts_with("own.diskspecs, line 2: rpm: 0 is out of range"));
    assert!(of("cylinder number = 10", "cylinder number = 3").starts_with("own.diskspecs, line 2: layout.bands"));
    let two = format!("{DISKSPECS}{DISKSPECS}");
    assert!(refused("own.diskspecs", &two).starts_with("own.diskspecs, line 23: there are 2 disksim_disk blocks"));
    for wrong in ["1, 2\n2, NaN\n", "# points\n3 4\n", "Seeks: 1\n-1, 2\n", "1, 2\n5, -0.1\n"] {
        assert!(refused("own.seek", wrong).starts_with("own.seek, line 2: a distance"), "{wrong}");
    }
    assert!(refused("own.seek", "Seek distances measured: 0\n").starts_with("own.model, line 27: the seek curve"));
}

#[test]
fn order_comments_and_what_may_be_missing_make_no_difference() {
    let (directory, parameters) = own(EXTRACTED);
    let expected = import(&parameters).unwrap();
    let model = MODEL.replace("SEEK", "Full seek curve = own.seek, # the curve\n Seek type = extracted,");
    let model = model
        .replace("Number of data surfaces = 2,", "")
        .replace("dm_disk OWN_model {", "dm_disk OWN_model { Number of data surfaces = 0x2,");
    fs::write(directory.path().join("own.model"), model.replace('\n', " # a comment, with { and =\r\n\n")).unwrap();
    fs::write(directory.path().join("own.seek"), "19, 6.0, 0.1\n\n1,1.5,0.2 # near\n  5 , 2.5\nend").unwrap();
    assert_eq!(import(&parameters).unwrap(), expected);
    let diskspecs = DISKSPECS.lines().filter(|line| !line.contains("over.")).collect::<Vec<_>>().join("\n");
    fs::write(directory.path().join("own.diskspecs"), diskspecs).unwrap();
    let commands = import(&parameters).unwrap().commands;
    assert_eq!((commands.read_hit_ms, commands.read_share), ([0.0, 0.0], 0.5));
}

/// Pieces of the format, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let words = [
        "disksim_disk",
        "dm_disk",
        "Model",
        "source",
        "own.model",
        "own.seek",
        "Zones",
        "{",
        "}",
        "[",
        "]",
        "=",
        ",",
        "#",
        "\n",
        "-1",
        "1e99",
        "7",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the files hold, a drive comes out or an error; a drive then serves requests.
    #[test]
    fn no_text_makes_the_reader_panic(
        which in 0..3_usize, cut in any::<prop::sample::Index>(), len in 0..40_usize, put in pieces(),
        number in prop::sample::select(vec!["0", "-3", "1e18", "4294967296", "16777215", "0.0001"]), nth in 0..60_usize,
    ) {
        let (directory, parameters) = own(EXTRACTED);
        let model = MODEL.replace("SEEK", EXTRACTED);
        let (name, text) = [("own.diskspecs", DISKSPECS), ("own.model", model.as_str()), ("own.seek", SEEKS)][which];
        let at = cut.index(text.len());
        let end = (at + len).min(text.len());
        let spoiled = format!("{}{put}{}", &text[..at], &text[end..]);
        fs::write(directory.path().join(name), spoiled).unwrap();
        let _ = import(&parameters);

        // One number changed.
        let mut seen = 0;
        let words = text.split(' ').map(|word| {
            let is_number = word.trim_end_matches(',').trim().parse::<f64>().is_ok();
            seen += usize::from(is_number);
            if is_number && seen == nth + 1 { format!("{number},") } else { word.to_owned() }
        });
        let changed = words.collect::<Vec<_>>().join(" ");
        fs::write(directory.path().join(name), changed).unwrap();
        if let Ok(drive) = import(&parameters) {
            let trace = Measurements::read(Cursor::new("R x 0 8 1 1\nW x 100 9 1 1\nW x 109 9 1 1\nR x 16 64 1 1\nR x 900 1 1 1\n")).unwrap();
            let _ = validate(&drive, &trace);
        }
    }
}
