//! The disk model against real drives: the folder that `UMBRELLA_DRIVES` names holds, for each, parameters in DiskSim's
//! format and requests with measured response times. Without the folder the tests say so and pass.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use umbrella_lab::drive::{Demerit, DriveProfile, Measurements, disksim, validate};
use umbrella_lab::result::html;
use umbrella_units::Nanos;

fn drives() -> Option<PathBuf> {
    let folder = std::env::var_os("UMBRELLA_DRIVES").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: UMBRELLA_DRIVES names no folder of measured drives");
    }
    folder
}

fn demerit(folder: &Path, name: &str) -> f64 {
    let drive = disksim::import(&folder.join(format!("{name}.parv"))).expect("its parameters can be read");
    let drive = DriveProfile::parse(&drive.to_toml()).expect("a profile survives its file");
    let trace = Measurements::open(&folder.join(format!("{name}.trace.gz"))).expect("its requests can be read");
    validate(&drive, &trace).expect("the drive has all sectors").all.millis()
}

/// The figures of the page on measured drives; a change of the model shows here.
#[test]
fn the_model_comes_as_near_to_the_drives_as_the_documents_say() {
    let Some(folder) = drives() else { return };
    let documented = [
        ("atlas_III", 0.255),
        ("barracuda", 0.210),
        ("cheetah4LP", 0.292),
        ("ibm18es", 0.132),
        ("atlas10k", 0.146),
        ("hp_c2247a", 0.085),
        ("hp_c2490a", 0.213),
        ("dec_rz26", 0.423),
    ];
    for (name, millis) in documented {
        let got = demerit(&folder, name);
        assert!((got - millis).abs() < 0.0006, "{name}: {got:.3} ms, documented {millis:.3}");
    }
}

#[test]
fn the_demerit_figure_is_the_root_mean_square_of_the_distance_in_order() {
    let times = |micros: &[u64]| micros.iter().map(|&us| Nanos::from_micros(us)).collect::<Vec<_>>();
    let demerit = Demerit::new(times(&[3000, 1000]), times(&[2000, 7000]));
    // 1 to 2 ms, 3 to 7 ms: the root of (1 + 16) / 2.
    assert!((demerit.millis() - 8.5_f64.sqrt()).abs() < 1e-12);
    assert!((demerit.share() - 8.5_f64.sqrt() / 2.0).abs() < 1e-12);
}

#[test]
fn the_example_of_the_documents_is_a_profile() {
    let page = include_str!("../../../docs/drives.md");
    let (_, example) = page.split_once("```toml\n").expect("there is an example");
    let (example, _) = example.split_once("```").expect("it ends");
    DriveProfile::parse(example).expect("it is a profile");
    for (line, wrong) in
        [("heads = 2", "heads = 0"), ("\"seeks\", ", ""), ("[5, 2.5]", "[1, 2.5]"), ("rpm = 6000", "rmp = 6000")]
    {
        assert!(DriveProfile::parse(&example.replace(line, wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_line_that_is_no_request_is_named() {
    for wrong in
        ["R Hit 5 8 1.0", "X Hit 5 8 1 1", "R Hit -5 8 1 1", "R Hit 5 8 NaN 1", "R Hit 5 8 1 1 1", "R Hit 5 8 1 1e99"]
    {
        let error = Measurements::read(Cursor::new(format!("# head\nR Hit 1 1 1 1\n{wrong}\n"))).unwrap_err();
        assert!(error.to_string().starts_with("line 3 is not a request"), "{wrong}: {error}");
    }
    assert!(Measurements::read(Cursor::new("")).is_err());
}

#[test]
fn a_request_beyond_the_drive_is_named() {
    let drive = DriveProfile::parse(include_str!("fixtures/drive.toml")).expect("the fixture is a profile");
    let trace = Measurements::read(Cursor::new("R Hit 0 8 900 10\nR Hit 9999999 8 900 10\n")).expect("two requests");
    let error = validate(&drive, &trace).unwrap_err().to_string();
    assert!(error.starts_with("request 2: sector 10000006 is beyond"), "{error}");
}

#[test]
fn the_page_has_a_curve_of_each_for_reads_and_writes() {
    let drive = DriveProfile::parse(include_str!("fixtures/drive.toml")).expect("the fixture is a profile");
    let trace = Measurements::read(Cursor::new("R Hit 0 8 900 10\nW Hit 400 8 5000 10\n")).expect("two requests");
    let [program, date, command] = ["Umbrella", "2026-01-02", "umbrella lab disk validate"].map(str::to_owned);
    let origin = html::Provenance { program, date, command };
    let page = html::demerit_page("a <drive>", &validate(&drive, &trace).expect("it has them"), &origin);
    let text = page.replacen("<!DOCTYPE html>", "", 1);
    let parsed = roxmltree::Document::parse(&text).expect("the page is well-formed");
    let curves = parsed.descendants().filter(|node| node.has_tag_name("section")).count();
    assert_eq!(curves, 3, "all, reads, writes");
    assert!(page.contains("a &lt;drive&gt;"));
}
