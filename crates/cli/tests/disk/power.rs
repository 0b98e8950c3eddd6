//! When sleeping pays, and where the watts come from that say so.

use super::*;

/// A hybrid disk of files with that much more in its configuration.
fn with(disks: &TestDisks, more: &str) -> String {
    let config = disks.hybrid("media", "adaptive");
    let text = fs::read_to_string(&config).expect("it was written");
    fs::write(&config, format!("{text}{more}")).expect("the folder can be written");
    config
}

#[test]
fn a_disk_says_when_sleeping_pays_and_how_that_is_known() {
    let watts = "[power]\nidle = 5\nstandby = 1\nspin_up = 20\n";
    for (more, seconds, source) in [
        (String::new(), 75, "assumed, from the profile \"modern\"; give the disk's own values in [power]"),
        ("[power]\nbreak_even = \"45s\"\n".to_owned(), 45, "of [power]"),
        (
            format!("{watts}spin_up_time = \"10s\"\nsource = \"measured\"\n"),
            50,
            "by the watts of [power], measured; it spins up in 10s, of [power]",
        ),
        // A file has no motor that could be timed.
        (watts.to_owned(), 75, "by the watts of [power], of a data sheet; it spins up in 15s, assumed"),
    ] {
        let disks = TestDisks::new();
        let config = with(&disks, &more);
        disks.given(&["create", &config]);
        disks.given(&["serve", &config, "--daemon"]);
        let break_even = &disks.status("media")["cache"]["break_even"];
        assert_eq!((&break_even["seconds"], &break_even["source"]), (&seconds.into(), &source.into()));
        let reported = disks.given(&["status", "media"]);
        assert!(reported.contains(&format!("sleeping saves power after {seconds} s ({source})")), "{reported}");
        disks.given(&["detach", "media"]);
    }
}

#[test]
fn energies_are_reported_with_where_their_watts_come_from_and_a_spin_up_is_timed() {
    let disks = TestDisks::new();
    let devices =
        ["--disk", "emulated:profile=modern,size=64MiB,speed=100", "--flash", "emulated:profile=sata_ssd,size=16MiB"];
    disks.given(&[&["serve", "--daemon", "--name", "ram", "--spin-down", "fixed:timeout=0"], &devices[..]].concat());
    eventually("it sleeps", || disks.status("ram")["power"] == "standby");
    run("qemu-io", ["-r", "-f", "raw", "-c", "read 32M 4k", &disks.nbd("ram")]);
    let stats = disks.json(&["stats", "ram"]);
    assert!(stats["umbrella_spindle_spin_up_seconds"].as_f64().is_some_and(|seconds| seconds > 0.1), "{stats}");
    assert_eq!(stats["watts"]["flash"], "the profile \"sata_ssd\": assumed");
    let reported = disks.given(&["stats", "ram"]);
    assert!(reported.contains("watts of the disk: those of the profile \"modern\": assumed"), "{reported}");
    disks.given(&["detach", "ram"]);
}
