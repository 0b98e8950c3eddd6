use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;
use umbrella_model::device::profile;
use umbrella_units::Nanos;

use super::*;

fn read_text(text: &str) -> Result<DiskSpec, ConfigErrors> {
    parse(Path::new("/etc/umbrella/media.disk.toml"), text.as_bytes().to_vec())
}

fn good(text: &str) -> DiskSpec {
    read_text(text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Each mistake as `line:column: message`.
fn mistakes(text: &str) -> Vec<String> {
    let errors = read_text(text).expect_err("the configuration is wrong");
    let place = |report: crate::config::ErrorReport| {
        format!("{}:{}: {}", report.line.unwrap_or(0), report.column.unwrap_or(0), report.message)
    };
    errors.reports().into_iter().map(place).collect()
}

fn option(text: &str) -> DeviceSpec {
    device_option("--disk", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn option_mistake(text: &str) -> String {
    let errors = device_option("--disk", text).expect_err("the option is wrong");
    errors.reports().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn two_paths_make_a_hybrid_disk_with_defaults_that_work() {
    let spec = good("[disk]\npath = \"/dev/sdb\"\n[flash]\npath = \"/dev/nvme0n1p3\"\n");
    let expected = json!({
        "name": "media",
        "read_only": false,
        "front": "loop",
        "disk": { "kind": "file", "path": "/dev/sdb", "size": null, "direct": true },
        "cache": {
            "flash": { "kind": "file", "path": "/dev/nvme0n1p3", "size": null, "direct": true },
            "when": "piggyback", "algorithm": "whole", "high": 75, "memory": 16 << 20, "drain_share": 50, "quiet": "2s",
            "spin_down": "adaptive",
        },
        "log": null,
        "scrub": { "every": null, "bandwidth": 20 << 20 },
        "nbd": { "listen": null, "connections": 16 },
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), expected);
}

#[test]
fn every_key_is_read() {
    let spec = good(
        r#"
        name = "Slow.disk_1"
        read_only = true
        front = "ublk"
        [disk]
        kind = "emulated"
        profile = "modern"
        path = "/srv//slow.img"
        size = "4GiB"
        speed = 10
        [flash]
        kind = "emulated"
        profile = "mlc_samsung"
        size = "256MiB"
        speed = 2.5
        [cache]
        when = "watermark"
        algorithm = "alg4"
        high = "60%"
        memory = "1MiB"
        drain_share = "10 %"
        quiet = "500ms"
        spin_down = "fixed:timeout=5m"
        [log]
        scheme = "r_lfs:regions=2"
        segment = "1MiB"
        spare = "15%"
        victim = "greedy"
        map_memory = "8MiB"
        clean_share = "50%"
        checkpoint_every = "64MiB"
        quiet = "3s"
        [scrub]
        every = "7d"
        bandwidth = "1MiB"
        [nbd]
        listen = ["unix:/run/slow.nbd", "127.0.0.1:10809", "[::1]:0"]
        connections = 4
        tls = "/etc/umbrella/tls"
        tls_verify_peer = true
        "#,
    );
    let expected = json!({
        "name": "Slow.disk_1",
        "read_only": true,
        "front": "ublk",
        "disk": { "kind": "emulated", "profile": "modern", "speed": 10.0, "path": "/srv/slow.img", "size": 4u64 << 30 },
        "cache": {
            "flash": { "kind": "emulated", "profile": "mlc_samsung", "speed": 2.5, "path": null, "size": 256 << 20 },
            "when": "watermark", "algorithm": "alg4", "high": 60, "memory": 1 << 20, "drain_share": 10, "quiet": "500ms",
            "spin_down": "fixed:timeout=5m",
        },
        "log": {
            "scheme": "r_lfs:regions=2", "segment": 1 << 20, "spare": 15, "victim": "greedy", "map_memory": 8 << 20,
            "clean_share": 50, "checkpoint_every": 64 << 20, "quiet": "3s",
        },
        "scrub": { "every": "7d", "bandwidth": 1 << 20 },
        "nbd": {
            "listen": ["unix:/run/slow.nbd", "127.0.0.1:10809", "[::1]:0"], "connections": 4,
            "tls": { "folder": "/etc/umbrella/tls", "verify_peer": true, "required": true },
        },
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), expected);
}

#[test]
fn a_table_without_keys_makes_a_log_store_with_defaults_that_work() {
    let spec = good("[disk]\npath = \"/dev/sdb\"\n[log]\n");
    assert_eq!(spec.log, Some(LogSpec::default()));
    let log = spec.log.unwrap_or_default();
    assert_eq!(log.options(), umbrella_block::log_store::Options::default());
    assert_eq!(log.create_options(false), umbrella_block::log_store::CreateOptions::default());
}

#[test]
fn the_file_gives_the_name_where_none_is_given() {
    let name = |file: &str| DiskName::of_file(file).map(|name| name.to_string()).map_err(|error| error.to_string());
    for (file, expected) in [
        ("media.disk.toml", "media"),
        ("media.toml", "media"),
        ("ata-WDC_WD80.1", "ata-WDC_WD80.1"),
        ("-old disk.img", "old-disk.img"),
        ("ü", ""),
    ] {
        match expected {
            "" => assert!(name(file).unwrap_err().contains("cannot be a disk's name"), "{file}"),
            _ => assert_eq!(name(file).unwrap(), expected, "{file}"),
        }
    }
    assert_eq!(name(&"x".repeat(200)).unwrap().len(), 64);
}

const DISK: &str = "[disk]\npath = \"/dev/sdb\"\n";

/// The error of each text.
fn check(cases: &[(String, &[&str])]) {
    for (text, expected) in cases {
        assert_eq!(mistakes(text), *expected, "{text}");
    }
}

#[test]
fn mistakes_about_devices_are_found_and_say_what_to_write() {
    check(&[
        (String::new(), &["1:1: missing key \"disk\""]),
        (
            "front = \"lop\"\n[disk]\npath = \"/dev/sdb\"\n".into(),
            &["1:9: \"lop\" is not valid here (did you mean \"loop\"?); valid values: \"loop\", \"ublk\""],
        ),
        ("[dsk]\n".into(), &["1:2: unknown key \"dsk\" (did you mean \"disk\"?); valid keys: name, read_only, front, disk, flash, cache, log, power, scrub, nbd"]),
        ("[disk]\n".into(), &["1:1: a device of kind \"file\" needs \"path\""]),
        (
            "[disk]\npaht = 1\n".into(),
            &["2:1: unknown key \"paht\" (did you mean \"path\"?); valid keys: kind, path, size, direct, profile, speed"],
        ),
        ("[disk]\npath = \"sdb\"\n".into(), &["2:8: path must be an absolute path without \"..\" (it begins with \"/\"), not \"sdb\""]),
        (
            "[disk]\nkind = \"emulatd\"\n".into(),
            &["2:8: \"emulatd\" is not valid here (did you mean \"emulated\"?); valid values: \"file\", \"emulated\", \"memory\""],
        ),
        ("[disk]\nkind = \"emulated\"\n".into(), &["2:8: a device of kind \"emulated\" needs \"profile\""]),
        ("[disk]\nkind = \"memory\"\n".into(), &["2:8: a device of kind \"memory\" needs \"size\""]),
        (
            "[disk]\nkind = \"memory\"\nsize = 0\n".into(),
            &["3:8: size must be a multiple of 4096 bytes, and more than 0, not \"0\""],
        ),
        (
            "[disk]\nkind = \"memory\"\nsize = 5000\n".into(),
            &["3:8: size must be a multiple of 4096 bytes, and more than 0, not \"5000\""],
        ),
        (
            "[disk]\nkind = \"memory\"\nsize = \"1MiB\"\npath = \"/x\"\ndirect = true\nprofile = \"modern\"\nspeed = 1\n".into(),
            &[
                "4:8: \"path\" is only for kind \"file\" and \"emulated\"",
                "5:10: \"direct\" is only for kind \"file\"",
                "6:11: \"profile\" is only for kind \"emulated\"",
                "7:9: \"speed\" is only for kind \"emulated\"",
            ],
        ),
        (format!("{DISK}profile = \"modern\"\n"), &["3:11: \"profile\" is only for kind \"emulated\""]),
        (format!("{DISK}speed = 1\n"), &["3:9: \"speed\" is only for kind \"emulated\""]),
        (
            "[disk]\nkind = \"emulated\"\nprofile = \"modern\"\n".into(),
            &["2:8: an emulated disk without a path is in memory and needs a size"],
        ),
        (
            "[disk]\nkind = \"emulated\"\nprofile = \"maxtor_80gb\"\nsize = \"1TiB\"\nspeed = 0\ndirect = false\n".into(),
            &[
                "4:8: size: 1 TiB is more than 74.5 GiB, the size of \"maxtor_80gb\"",
                "5:9: speed must be from 0.01 to 1000, not \"0\"",
                "6:10: \"direct\" is only for kind \"file\"",
            ],
        ),
        (
            "[disk]\nkind = \"emulated\"\nprofile = \"modern\"\nspeed = \"fast\"\n".into(),
            &["4:9: invalid type: string \"fast\", expected a number"],
        ),
        (format!("{DISK}size = \"much\"\n"), &[
            "3:8: size: \"much\" is not a size (write for example \"512\", \"10MB\" or \"4GiB\")",
        ]),
    ]);
}

#[test]
fn mistakes_about_sleep_and_flash_are_found_and_say_what_to_write() {
    let flash = format!("{DISK}[flash]\npath = \"/dev/sdc\"\n");
    check(&[
        (
            format!("{flash}[cache]\nspin_down = \"adaptiv\"\n"),
            &[
                "6:13: spin_down: there is no policy \"adaptiv\" (did you mean \"adaptive\"?); known: never, fixed, adaptive, rent_to_buy, optimum",
            ],
        ),
        (
            format!("{flash}[cache]\nspin_down = \"optimum\"\n"),
            &["6:13: spin_down: the policy \"optimum\" needs to know the future, which only the lab does"],
        ),
        (
            format!("{flash}[cache]\nspin_down = \"fixed:time=1m\"\n"),
            &["6:13: spin_down: \"fixed\" has no parameter \"time\"; it has: timeout"],
        ),
        (format!("{DISK}[cache]\n"), &["3:1: [cache] needs [flash]; name the flash, or leave [cache] out"]),
        (
            format!("{DISK}[flash]\npath = \"/dev/sdb\"\n"),
            &["4:8: [flash] and [disk] are both /dev/sdb; the flash must be a device of its own"],
        ),
        (
            format!("{flash}[cache]\nwhen = \"ful\"\nalgorithm = \"alg5\"\n"),
            &[
                "6:8: \"ful\" is not valid here (did you mean \"full\"?); valid values: \"each\", \"full\", \"watermark\", \"piggyback\"",
                "7:13: \"alg5\" is not valid here (did you mean \"alg1\"?); valid values: \"alg1\", \"alg2\", \"alg3\", \"alg4\", \"whole\"",
            ],
        ),
        (
            format!("{flash}[cache]\nhigh = \"0%\"\ndrain_share = 50\nmemory = \"0\"\n"),
            &[
                "6:8: high must be a share from \"1%\" to \"100%\", not \"0%\"",
                "7:15: drain_share must be a share from \"1%\" to \"100%\", not \"50\"",
                "8:10: memory must be 64KiB to 4GiB, not \"0\"",
            ],
        ),
        (
            format!("{flash}[cache]\nmemory = \"1KiB\"\nquiet = \"0s\"\n"),
            &["6:10: memory must be 64KiB to 4GiB, not \"1KiB\"", "7:9: quiet must be 10ms to 1h, not \"0s\""],
        ),
        (
            format!("{flash}[cache]\nmemory = \"5GiB\"\nquiet = \"2h\"\n"),
            &["6:10: memory must be 64KiB to 4GiB, not \"5GiB\"", "7:9: quiet must be 10ms to 1h, not \"2h\""],
        ),
        (
            format!("{DISK}[flash]\n[cache]\nwhen = \"now\"\n"),
            &[
                "3:1: a device of kind \"file\" needs \"path\"",
                "5:8: \"now\" is not valid here; valid values: \"each\", \"full\", \"watermark\", \"piggyback\"",
            ],
        ),
    ]);
}

#[test]
fn mistakes_about_names_and_addresses_are_found_and_say_what_to_write() {
    check(&[
        (
            format!("name = \"a b\"\n{DISK}"),
            &[
                "1:8: \"a b\" cannot be a disk's name: use 1 to 64 letters, digits, \".\", \"_\" and \"-\", beginning with a letter or digit",
            ],
        ),
        (
            format!("{DISK}[nbd]\nlisten = \"localhost\"\n"),
            &[
                "4:10: listen: \"localhost\" is not an address (write for example \"unix:/run/media.nbd\", \"127.0.0.1:10809\" or \"[::1]:10809\")",
            ],
        ),
        (
            format!("{DISK}[nbd]\nlisten = [\"unix:x\", \"1.2.3.4:5\", \"1.2.3.4:5\"]\nconnections = 0\n"),
            &[
                "4:11: listen: \"unix:x\" is not an address (write for example \"unix:/run/media.nbd\", \"127.0.0.1:10809\" or \"[::1]:10809\")",
                "4:34: listen: 1.2.3.4:5 is in the list twice",
                "5:15: connections must be 1 to 1024, not \"0\"",
            ],
        ),
        (
            format!("{DISK}[nbd]\ntls = \"tls\"\n"),
            &["4:7: tls must be an absolute path without \"..\" (it begins with \"/\"), not \"tls\""],
        ),
        (
            format!("{DISK}[nbd]\ntls_verify_peer = true\n"),
            &["4:19: tls_verify_peer needs tls = \"DIRECTORY\" (docs/disk.md lists the files in it)"],
        ),
    ]);
}

#[test]
fn an_unknown_profile_is_answered_with_those_that_there_are() {
    let reported = mistakes("[disk]\nkind = \"emulated\"\nprofile = \"moden\"\nsize = \"1GiB\"\n");
    let known = profile("moden").expect_err("there is no such profile").known;
    let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
    let expected =
        format!("3:11: \"moden\" is not valid here (did you mean \"modern\"?); valid values: {}", known.join(", "));
    assert_eq!(reported, [expected]);
}

#[test]
fn the_examples_of_the_documentation_are_good() {
    let blocks = |page: &'static str| page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let guide = blocks(include_str!("../../../../../docs/guides/sleeping-disk.md"));
    let examples: Vec<&str> = blocks(include_str!("../../../../../docs/disk.md")).chain(guide).collect();
    assert_eq!(examples.len(), 4);
    for example in examples {
        good(example);
    }
}

#[test]
fn a_device_on_the_command_line_is_a_path_or_a_kind_with_keys() {
    let file = |path: &str| DeviceSpec::File { path: PathBuf::from(path), size: None, direct: true };
    assert_eq!(option("/dev/disk/by-id/ata-x:1"), file("/dev/disk/by-id/ata-x:1"));
    assert_eq!(option("image.raw"), file(&format!("{}/image.raw", std::env::current_dir().unwrap().display())));
    assert_eq!(
        option("file:path=/srv/x,direct=false,size=1MiB"),
        DeviceSpec::File { path: "/srv/x".into(), size: Some("1MiB".parse().unwrap()), direct: false }
    );
    assert_eq!(option("memory:size=1MiB"), DeviceSpec::Memory { size: "1MiB".parse().unwrap() });
    let emulated = serde_json::to_value(option("emulated:profile=modern,size=4GiB,speed=0.5")).unwrap();
    let expected = json!({ "kind": "emulated", "profile": "modern", "speed": 0.5, "path": null, "size": 4u64 << 30 });
    assert_eq!(emulated, expected);
}

#[test]
fn mistakes_in_a_device_on_the_command_line_are_reported_with_their_place() {
    for (text, message) in [
        ("memory", "--disk:1:1: a device of kind \"memory\" needs \"size\""),
        (
            "memroy:size=1MiB",
            "--disk:1:1: \"memroy\" is not valid here (did you mean \"memory\"?); valid values: \"file\", \"emulated\", \"memory\"",
        ),
        (
            "memory:size=lots",
            "--disk:1:13: size: \"lots\" is not a size (write for example \"512\", \"10MB\" or \"4GiB\")",
        ),
        (
            "memory:sise=1MiB,size=1MiB",
            "--disk:1:8: unknown key \"sise\" (did you mean \"size\"?); valid keys: path, size, direct, profile, speed",
        ),
        ("memory:size=1MiB,size=2MiB", "--disk:1:18: \"size\" is given twice (leave one)"),
        ("memory:size=1MiB,1MiB", "--disk:1:18: \"1MiB\" has no value (write KIND:KEY=VALUE,KEY=VALUE)"),
        ("file:path=/x,direct=no", "--disk:1:21: \"no\" is not valid here; valid values: \"true\", \"false\""),
        (
            "emulated:profile=modern,size=1GiB,speed=fast",
            "--disk:1:41: speed: \"fast\" is not a number; write for example 10 or 0.5",
        ),
        ("emulated:profile=modern,size=1GiB,speed=NaN", "--disk:1:41: speed must be from 0.01 to 1000, not \"NaN\""),
    ] {
        assert_eq!(option_mistake(text), message, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_disk_or_a_mistake(text in "\\PC{0,80}") {
        let _ = read_text(&text);
        let _ = device_option("--disk", &text);
    }

    #[test]
    fn any_values_are_a_disk_or_a_mistake(
        kind in "file|emulated|memory|x",
        keys in prop::collection::vec(("path|size|direct|profile|speed|spin_down", "\"\\PC{0,8}\"|-?[0-9]{1,20}(\\.[0-9])?|true|\"modern\"|\"/x\"|\"1MiB\""), 0..6),
    ) {
        let keys = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join("\n");
        let _ = read_text(&format!("[disk]\nkind = \"{kind}\"\n{keys}"));
    }

    #[test]
    fn any_keys_on_the_command_line_are_a_device_or_a_mistake(text in "(file|emulated|memory):([a-z]{0,6}=?[,=/.0-9a-zé]{0,9}){0,4}") {
        let _ = device_option("--disk", &text);
    }
}

const HYBRID: &str = "[disk]\npath = \"/dev/sdb\"\n[flash]\npath = \"/dev/nvme0n1p3\"\n";

#[test]
fn what_a_disk_takes_is_a_break_even_time_or_watts() {
    let power = |text: &str| serde_json::to_value(good(&format!("{HYBRID}[power]\n{text}"))).unwrap()["power"].clone();
    assert_eq!(power("break_even = \"45s\"\n"), json!({ "break_even": "45s" }));
    let watts = "idle = 5\nstandby = 1\nspin_up = 20.5\n";
    assert_eq!(
        power(watts),
        json!({ "idle": 5.0, "standby": 1.0, "spin_up": 20.5, "spin_up_time": null, "source": "datasheet" })
    );
    let all = power(&format!("{watts}spin_up_time = \"8s\"\nsource = \"measured\"\n"));
    assert_eq!((&all["spin_up_time"], &all["source"]), (&"8s".into(), &"measured".into()));
}

#[test]
fn watts_and_the_time_of_a_spin_up_say_when_sleeping_pays() {
    let spec = good(&format!("{HYBRID}[power]\nidle = 5\nstandby = 1\nspin_up = 20\n"));
    let Some(PowerSpec::Watts(watts)) = spec.power else { panic!("{:?}", spec.power) };
    // 20 W for 10 s are 200 J; 4 W are saved.
    assert_eq!(watts.break_even(Nanos::from_secs(10)), Nanos::from_secs(50));
    assert_eq!(watts.break_even(Nanos::from_secs(5)), Nanos::from_secs(25));
}

#[test]
fn mistakes_about_power_say_what_to_write() {
    check(&[
        (
            format!("{HYBRID}[power]\nbreak_even = \"45s\"\nidle = 5\n"),
            &["7:8: \"idle\" does nothing beside \"break_even\"; leave one of them out"],
        ),
        (
            format!("{HYBRID}[power]\nbreak_even = \"0s\"\n"),
            &["6:14: break_even must be more than 0, and at most 1d, not \"0s\""],
        ),
        (
            format!("{HYBRID}[power]\nidle = 5\nspin_up = 20\n"),
            &["5:1: [power] needs \"standby\", in watts (or \"break_even\" alone)"],
        ),
        (
            format!("{HYBRID}[power]\nidle = 5\nstandby = 6\nspin_up = 0\n"),
            &["8:11: spin_up must be more than 0, and at most 1000, not \"0\""],
        ),
        (
            format!("{HYBRID}[power]\nidle = 5\nstandby = 6\nspin_up = 20\n"),
            &["7:11: standby must be less than idle, not \"6\""],
        ),
        (
            "[disk]\npath = \"/dev/sdb\"\n[power]\nbreak_even = \"45s\"\n".into(),
            &["3:1: [power] needs [flash], because only a hybrid disk sleeps; leave it out"],
        ),
    ]);
}

#[test]
fn a_scrub_has_an_interval_and_a_bandwidth() {
    let spec = good("[disk]\npath = \"/dev/sdb\"\n[scrub]\nevery = \"30d\"\nbandwidth = \"5MiB\"\n");
    let month = std::time::Duration::from_secs(30 * 86_400);
    assert_eq!(spec.scrub, ScrubSpec { every: Some(month), bandwidth: umbrella_units::ByteSize(5 << 20) });
    let wrong = "[disk]\npath = \"/dev/sdb\"\n[scrub]\nevery = \"1s\"\nbandwidth = \"1KiB\"\n";
    let reported = mistakes(wrong);
    assert!(reported[0].starts_with("4:9: ") && reported[0].contains("a minute or longer"), "{reported:?}");
    assert!(reported[1].starts_with("5:13: ") && reported[1].contains("64KiB or more"), "{reported:?}");
}
