//! What is not a store, not a whole one, or not meant.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::looped::Looped;
use crate::support::test_disks::TestDisks;
use crate::support::{MIB, bytes, run};
use crate::test_disks::text;

const SIZE: &str = "64MiB";

#[test]
fn what_is_there_is_not_overwritten_unless_told_so() {
    let disks = TestDisks::new();
    fs::write(disks.path("full"), bytes(1, 64 * MIB)).expect("there is room");
    disks.refused(&["create", "--kind", "log", "full"], 1, &["full is not empty", "--force"]);
    assert!(fs::read(disks.path("full")).expect("it is there") == bytes(1, 64 * MIB));
    disks.given(&["create", "--kind", "log", "full", "--force"]);
    disks.given(&["check", "full"]);
    disks.refused(&["create", "--kind", "log", "full"], 1, &["--force"]);
    disks.given(&["serve", "full", "--daemon"]);
    disks.refused(&["create", "--kind", "log", "full", "--force"], 1, &["full is served; detach it first"]);
}

#[test]
fn wrong_options_say_what_to_write() {
    let disks = TestDisks::new();
    let create = |rest: &[&'static str]| [&["create", "--kind", "log", "new"][..], rest].concat();
    disks.refused(&create(&[]), 1, &["new does not exist", "size"]);
    disks.refused(&create(&["--size", "1000"]), 2, &["a multiple of 4096 bytes"]);
    for size in ["16EiB", "99999999999999999999", "8EiB", "18446744073709547520"] {
        disks.refused(
            &create(&["--size", size]),
            2,
            &["too large", "at most 8 EiB less 4 KiB, and with a log store 4 PiB"],
        );
    }
    disks.refused(&create(&["--size", "5PiB"]), 1, &["new: 5 PiB is too large; a log store has at most 4 PiB"]);
    disks.refused(&create(&["--size", SIZE, "--segment", "3MiB"]), 2, &["a power of two from \"64KiB\" to \"256MiB\""]);
    disks.refused(&create(&["--size", SIZE, "--spare", "10"]), 2, &["from \"1%\" to \"90%\""]);
    disks.refused(
        &create(&["--size", SIZE, "--scheme", "rlfs"]),
        2,
        &["there is no placement scheme \"rlfs\" (did you mean \"r_lfs\"?)", "known: r_lfs, sepgc"],
    );
    let reported =
        ["\"oracle\" needs to know the future", "for a disk there are: r_lfs, sepgc, dac, sfs, sepbit, organ\n"];
    disks.refused(&create(&["--size", SIZE, "--scheme", "oracle"]), 2, &reported);
    assert!(!disks.said(&create(&["--size", SIZE, "--scheme", "rlfs"])).contains("oracle"), "no disk can use it");
    disks.refused(&create(&["--size", SIZE, "--scheme", "r_lfs:regions=9"]), 2, &["regions=9 is not possible"]);
    disks.refused(&create(&["--size", "512KiB"]), 1, &["a log store needs at least"]);
    assert!(!disks.path("new").exists(), "what could not be made is not left behind");
    fs::write(disks.path("plain"), bytes(1, MIB)).expect("there is room");
    disks.refused(
        &["create", "--disk", "plain", "--scheme", "sepgc"],
        1,
        &["--scheme is for a log store", "--kind log"],
    );
    let config = disks.config(
        "a",
        "[disk]\npath = \"/dev/sdz\"\n[log]\nvictim = \"gready\"\nclean_share = \"0%\"\nscheme = \"x\"\nfoo = 1\n",
    );
    disks.refused(&["check", &config], 1, &["a.disk.toml:7:1", "unknown key \"foo\"", "checkpoint_every"]);
    let config = disks.config("a", "[disk]\npath = \"/dev/sdz\"\n[log]\nvictim = \"gready\"\nclean_share = \"0%\"\nscheme = \"x\"\nsegment = \"5MiB\"\nspare = \"95%\"\nmap_memory = \"1KiB\"\nquiet = \"x\"\n");
    let reported = [
        "4:10: \"gready\" is not valid here (did you mean \"greedy\"?); valid values: \"cost-benefit\", \"greedy\"",
        "5:15: clean_share must be a share from \"1%\" to \"100%\", not \"0%\"",
        "6:10: scheme: there is no placement scheme \"x\"; known: r_lfs, sepgc",
        "7:11: segment must be a power of two from \"64KiB\" to \"256MiB\", not \"5MiB\"",
        "8:9: spare must be a share from \"1%\" to \"90%\", not \"95%\"",
        "9:14: map_memory must be 64KiB or more, not \"1KiB\"",
        "10:9: quiet",
    ];
    disks.refused(&["check", &config], 1, &reported);
}

#[test]
fn a_configuration_that_wants_a_store_gets_no_other_disk() {
    let disks = TestDisks::new();
    fs::write(disks.path("plain"), bytes(1, 8 * MIB)).expect("there is room");
    let config = disks.config("a", &format!("[disk]\npath = \"{}\"\n[log]\n", text(&disks.path("plain"))));
    disks.refused(&["serve", &config, "--daemon"], 1, &["no log store is on this device", "umbrella disk create"]);
    disks.refused(&["check", &config], 1, &["no log store is on this device"]);
}

#[test]
fn damage_is_found_and_said_and_never_served_as_a_plain_disk() {
    let disks = TestDisks::new();
    disks.log_store("d.img");
    disks.write("d.img", &bytes(4, 20 * MIB));
    disks.given(&["detach"]);
    let whole = fs::read(disks.path("d.img")).expect("it is there");
    let damaged = |at: u64, data: &[u8]| {
        fs::write(disks.path("d.img"), &whole).expect("there is room");
        disks.overwrite("d.img", at, data);
    };
    // A block of data: the structure is whole, the data is not.
    let data = bytes(4, 20 * MIB);
    let block = &data[10 << 20..][..4096];
    let at = whole.chunks(4096).position(|found| found == block).expect("it lies somewhere") as u64 * 4096;
    damaged(at, &[0xa5; 512]);
    disks.given(&["check", "d.img"]);
    disks.refused(&["check", "d.img", "--data"], 1, &["is not what was written", "not ok"]);
    // One superblock: the other one counts, and mends it.
    damaged(100, &[9; 8]);
    disks.refused(&["check", "d.img"], 0, &["the copy of the superblock at block 0 is damaged or old", "1 warning"]);
    disks.given(&["serve", "d.img", "--daemon"]);
    disks.given(&["detach"]);
    disks.refused(&["check", "d.img", "--data"], 0, &["0 warnings"]);
    // Also when nothing says what it was.
    damaged(3, &[9]);
    disks.refused(&["check", "d.img"], 0, &["the copy of the superblock at block 0 is damaged or old", "1 warning"]);
    disks.given(&["serve", "d.img", "--daemon"]);
    disks.given(&["detach"]);
    disks.refused(&["check", "d.img"], 0, &["0 warnings"]);
    // Both.
    damaged(100, &[9; 8]);
    disks.overwrite("d.img", MIB + 100, &[9; 8]);
    for command in [&["check", "d.img"][..], &["serve", "d.img", "--daemon"]] {
        disks.refused(command, 1, &["both copies of the superblock are damaged"]);
    }
    // Cut off.
    fs::write(disks.path("d.img"), &whole[..whole.len() / 2]).expect("there is room");
    let reported = [
        "d.img: the device has 32 MiB, the store needs 64 MiB: ",
        "`truncate -s 67108864 COPY`",
        "`umbrella disk check --data`",
        "`umbrella disk salvage`",
    ];
    for command in [&["check", "d.img"][..], &["attach", "d.img"], &["serve", "d.img", "--daemon"]] {
        disks.refused(command, 1, &reported);
    }
    disks.resize("d.img", 67_108_864);
    let reported = disks.said(&["check", "d.img", "--data"]);
    assert!(!reported.contains("the device has"), "{reported}");
}

#[test]
fn a_disk_that_was_a_store_before_is_not_taken_for_one() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "e.img", "--size", SIZE]);
    let image = text(&disks.path("e.img"));
    // Where nothing else is it was one all the same.
    disks.overwrite("e.img", 0, &[0; 4096]);
    disks.given(&["serve", "--disk", &image, "--daemon"]);
    assert_eq!(disks.status("e.img")["kind"], "log");
    disks.given(&["detach"]);
    // As on a file system.
    disks.overwrite("e.img", 0, &[0; 4096]);
    disks.overwrite("e.img", 64 << 10, b"_BHRfS_M");
    disks.refused(
        &["serve", "--disk", &image, "--daemon"],
        1,
        &["has the second superblock of one", "[log]", "umbrella disk salvage", "dd if=/dev/zero"],
    );
    disks.overwrite("e.img", MIB, &[0; 4096]);
    run("mkfs.ext4", ["-q", "-F", &image]);
    disks.given(&["serve", "--disk", &image, "--daemon"]);
    assert_eq!(disks.status("e.img")["kind"], "file");
    disks.given(&["detach"]);
}

#[test]
fn an_image_and_a_loop_device_on_it_are_not_served_both() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "b.img", "--size", SIZE]);
    {
        let device = Looped::on(&disks.path("b.img"));
        disks.refused(
            &["serve", "b.img", "--daemon"],
            1,
            &["b.img is ", "is also attached as", "losetup -d /dev/loop"],
        );
        // The same file by another name.
        std::fs::hard_link(disks.path("b.img"), disks.path("b2.img")).expect("a link");
        disks.refused(
            &["serve", "b2.img", "--daemon"],
            1,
            &["b2.img is ", "is also attached as", "losetup -d /dev/loop"],
        );
        disks.given(&["serve", device.as_str(), "--daemon"]);
        disks.refused(&["attach", "b.img"], 1, &["b.img is in use as /dev/loop"]);
        disks.refused(&["serve", "b.img", "--daemon"], 1, &["b.img is in use as /dev/loop"]);
        disks.given(&["detach"]);
    }
    disks.given(&["serve", "b.img", "--daemon"]);
    let device = Looped::on(&disks.path("b.img"));
    disks.refused(&["attach", device.as_str()], 1, &["b.img, which is served or in use"]);
    disks.given(&["detach"]);
}

#[test]
fn a_store_on_a_hybrid_disk_is_not_offered_raw_when_log_is_forgotten() {
    let disks = TestDisks::new();
    let (disk, flash) = (text(&disks.path("disk")), text(&disks.path("flash")));
    let halves =
        format!("[disk]\npath = \"{disk}\"\nsize = \"96MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"24MiB\"\n");
    let whole = disks.config("whole", &format!("{halves}[log]\n"));
    let forgotten = disks.config("forgotten", &halves);
    disks.given(&["create", &whole]);
    for command in [&["serve", &forgotten, "--daemon"][..], &["attach", &forgotten]] {
        disks.refused(command, 1, &["a log store is on it: add [log] to the configuration"]);
    }
    disks.given(&["serve", &whole, "--daemon"]);
    disks.given(&["detach", "whole"]);
}

#[test]
fn no_file_is_made_in_dev() {
    let disks = TestDisks::new();
    let device = "/dev/umbrella-no-such-device";
    disks.refused(
        &["create", "--kind", "log", device, "--size", "12MiB"],
        1,
        &["does not exist, and no image is made in /dev"],
    );
    disks.refused(&["create", "--kind", "log", device], 1, &["check the name of the device"]);
    disks.refused(&["check", "--disk", device], 1, &["check the name of the device"]);
    assert!(!Path::new(device).exists());
}

#[test]
fn a_store_that_is_served_is_said_not_to_be_looked_at() {
    let disks = TestDisks::new();
    disks.log_store("t.img");
    let reported = ["): its data was not checked", "t.img: in use, not checked (log store, 0 errors, 1 warning)"];
    disks.refused(&["check", "t.img", "--data"], 0, &reported);
    disks.given(&["detach"]);
}

#[test]
fn a_store_that_is_served_is_not_looked_at_by_another_name_of_it_either() {
    let disks = TestDisks::new();
    let is_left_alone = |disk: &str, reported: &[&str]| {
        let said = [reported, &["its data was not checked", ": in use, not checked (log store, 0 errors, 1 warning)"]]
            .concat();
        disks.refused(&["check", disk, "--data"], 0, &said);
    };
    disks.given(&["create", "--kind", "log", "a.img", "--size", SIZE]);
    std::fs::hard_link(disks.path("a.img"), disks.path("a2.img")).expect("a link");
    {
        // The image, and a loop device on it that is served.
        let device = Looped::on(&disks.path("a.img"));
        disks.given(&["check", "a.img"]);
        disks.given(&["serve", device.as_str(), "--daemon"]);
        is_left_alone("a.img", &["a.img is in use as /dev/loop"]);
        is_left_alone("a2.img", &["a2.img is in use as /dev/loop"]);
        disks.given(&["detach"]);
        disks.given(&["check", "a.img", "--data"]);
    }
    // The other way round, also read-only.
    disks.given(&["serve", "a.img", "--daemon"]);
    let pid =
        format!("in use by umbrella (process {}), which serves it under another name", disks.status("a.img")["pid"]);
    is_left_alone("a2.img", &[&pid]);
    disks.refused(&["attach", "a2.img"], 1, &[&pid]);
    let device = Looped::on(&disks.path("a.img"));
    is_left_alone(device.as_str(), &["a.img, which is served or in use"]);
    disks.given(&["detach"]);
    disks.given(&["check", device.as_str(), "--data"]);
}

#[test]
fn an_image_whose_beginning_is_gone_is_no_configuration() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "f.img", "--size", SIZE]);
    disks.overwrite("f.img", 0, &[9; 4096]);
    let commands = [&["check", "f.img"][..], &["attach", "f.img"], &["serve", "f.img", "--daemon"]];
    for command in commands {
        disks.refused(command, 1, &["has the second superblock of one", "[log]"]);
    }
    let config = disks.config("f", &format!("[disk]\npath = \"{}\"\n[log]\n", text(&disks.path("f.img"))));
    disks.given(&["serve", &config, "--daemon"]);
    disks.given(&["detach"]);
    disks.given(&["check", "f.img", "--data"]);
    disks.overwrite("f.img", 0, &[9; 4096]);
    disks.overwrite("f.img", MIB, &[9; 4096]);
    for command in commands.into_iter().chain([&["status", "f.img"][..]]) {
        disks.refused(
            command,
            1,
            &["f.img is no log store", "too large for a configuration", "run it again with --force"],
        );
    }
}

#[test]
fn an_image_keeps_its_size_and_one_that_is_missing_is_said_to_be() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "g.img", "--size", SIZE]);
    let again = ["create", "--kind", "log", "g.img", "--force", "--size", "128MiB"];
    disks.refused(&again, 1, &["--size is for an image that does not exist yet", "g.img has 64"]);
    disks.refused(&["attach", "nope.img"], 1, &["nope.img: no such image, device or configuration"]);
    let reported =
        ["nope.img: no such image", "`umbrella disk create --kind log nope.img --size SIZE` makes a log store there"];
    disks.refused(&["create", "nope.img", "--size", "1GiB"], 1, &reported);
}

#[test]
fn a_file_that_is_neither_image_nor_configuration_is_said_to_be_neither() {
    let disks = TestDisks::new();
    fs::write(disks.path("empty.img"), "").expect("the folder can be written");
    fs::write(disks.path("notes.txt"), "hello\n").expect("the folder can be written");
    fs::write(disks.path("bytes.img"), [0xff; 3000]).expect("the folder can be written");
    let commands = |file: &'static str| {
        [vec!["attach", file], vec!["check", file], vec!["serve", file, "--daemon"], vec!["grow", file]]
    };
    for command in commands("empty.img") {
        let reported = [
            "empty.img is empty: neither an image of a log store nor a configuration",
            "create --kind log empty.img --size SIZE",
        ];
        disks.refused(&command, 1, &reported);
    }
    for command in commands("notes.txt").into_iter().chain(commands("bytes.img")) {
        let reported =
            ["is neither an image of a log store nor a configuration", "--disk", "create --kind log --force"];
        disks.refused(&command, 1, &reported);
    }
    // What is one with a mistake is still told where that is.
    fs::write(disks.path("disk.conf"), "[disk]\npth = \"x\"\n").expect("the folder can be written");
    disks.refused(&["check", "disk.conf"], 1, &["disk.conf:2:1", "pth"]);
    disks.refused(
        &["create", "--kind", "log", "empty.img"],
        1,
        &["empty.img is empty; to make it, give its size", "--size"],
    );
    disks.given(&["create", "--kind", "log", "empty.img", "--size", SIZE]);
    disks.given(&["check", "empty.img"]);
}

#[test]
fn a_configuration_that_names_another_scheme_than_the_store_has_gets_a_note_which_counts() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "d.img", "--size", "64MiB", "--scheme", "sepgc", "--segment", "1MiB"]);
    let check = |keys: &str| {
        let config = disks.config("d", &format!("[disk]\npath = {:?}\n\n[log]\n{keys}", disks.path("d.img")));
        disks.given(&["check", &config])
    };
    let reported = check("scheme = \"organ\"\nsegment = \"512KiB\"\n");
    for part in
        ["its scheme is sepgc, not organ", "its segments have 1 MiB, not 512 KiB", "the store's own value is used"]
    {
        assert!(reported.contains(part), "{reported}");
    }
    for keys in ["", "scheme = \"sepgc\"\nsegment = \"1MiB\"\n"] {
        assert!(!check(keys).contains("the store's own value is used"), "{keys}");
    }
}

#[test]
fn an_image_that_cannot_be_made_names_path_and_remedy_and_leaves_nothing() {
    let disks = TestDisks::new();
    let create = |path: &'static str, size: &'static str| ["create", "--kind", "log", path, "--size", size];
    let reported = ["no/such/h.img: the directory ", "no/such does not exist", "create it first (`mkdir -p "];
    disks.refused(&create("no/such/h.img", "64MiB"), 1, &reported);
    assert!(!disks.path("no").exists());
    // Room for a store, but no file may be so large.
    let too_large_for_a_file = || {
        let limited = ["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$@\"", "sh"];
        let command = disks.umbrella(&create("h.img", "64MiB"));
        let mut shell = Command::new("sh");
        shell.args(limited).arg(command.get_program()).args(command.get_args()).current_dir(disks.path("."));
        let output = shell.env("UMBRELLA_RUN_DIR", disks.path("run")).output().expect("sh(1) runs");
        let reported = crate::support::said(&output);
        assert_eq!(output.status.code(), Some(1), "{reported}");
        for part in
            ["64 MiB is too large for the file system of ", "give a smaller --size, or a path on another file system"]
        {
            assert!(reported.contains(part), "{part:?} is not in {reported:?}");
        }
    };
    too_large_for_a_file();
    disks.refused(&create("h.img", "8191KiB"), 2, &["a multiple of 4096 bytes"]);
    disks.refused(&create("h.img", "7880KiB"), 1, &["a log store needs at least"]);
    assert!(!disks.path("h.img").exists(), "nothing is left");
    // One that is there and empty is used, and stays as it is when it cannot be.
    fs::write(disks.path("h.img"), "").expect("the folder can be written");
    disks.refused(&create("h.img", "64KiB"), 1, &["a log store needs at least"]);
    too_large_for_a_file();
    assert_eq!(fs::metadata(disks.path("h.img")).map(|data| data.len()).ok(), Some(0), "it was there before");
    disks.given(&create("h.img", "64MiB"));
}

#[test]
fn a_flash_is_never_passed_over() {
    let disks = TestDisks::new();
    let made = |name: &str| disks.path(name).exists();
    // Beside a device it makes a hybrid disk, as with --disk.
    let create = ["create", "--kind", "log", "new.img", "--size", "64MiB", "--flash"];
    disks.refused(&[&create[..], &["missing/flash"]].concat(), 1, &["missing/flash"]);
    assert!(!made("new.img"));
    disks.refused(&[&create[..], &["new.img"]].concat(), 1, &["the flash must be a device of its own"]);
    disks.given(&["create", "--kind", "log", "alone.img", "--size", "64MiB"]);
    for command in ["serve", "attach", "check"] {
        disks.refused(&[command, "alone.img", "--flash", "missing/flash"], 1, &["missing/flash"]);
    }
    let config = disks.config("a", "[disk]\npath = \"/dev/sdz\"\n[log]\n");
    for command in ["create", "serve", "attach", "check"] {
        disks.refused(&[command, &config, "--flash", "flash"], 1, &["--flash cannot be combined with a configuration"]);
    }
}

#[test]
fn a_store_over_flash_whose_configuration_lacks_it_is_not_called_whole() {
    let disks = TestDisks::new();
    let [disk, flash] = ["disk", "flash"].map(|half| text(&disks.path(half)));
    let halves =
        format!("[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n");
    let config = disks.config("both", &format!("{halves}[log]\n"));
    disks.given(&["create", &config]);
    disks.given(&["check", &config]);
    let config = disks.config("both", &halves);
    disks.refused(&["check", &config], 1, &["disk and flash hold a log store: add [log] to the configuration"]);
    disks.refused(&["attach", &config], 1, &["add [log] to the configuration"]);
}

#[test]
fn an_image_that_may_not_be_read_is_not_called_something_else() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "own.img", "--size", "64MiB"]);
    let mode =
        |name: &str, mode| fs::set_permissions(disks.path(name), fs::Permissions::from_mode(mode)).expect("it is ours");
    mode("", 0o755);
    mode("own.img", 0o600);
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_umbrella"));
    // The folder is the test's, and so is the program; the image alone is not for others.
    let output = check.args(["disk", "check"]).arg(disks.path("own.img")).uid(65534).gid(65534).output();
    let Ok(output) = output else { return };
    let reported = crate::support::said(&output);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("ermission denied") && !reported.contains("--force"), "{reported}");
}

/// A configuration of disk and flash, which are files of these names.
fn pair(disks: &TestDisks, name: &str, disk: &str, rest: &str) -> String {
    let [disk, flash] = [disk, &format!("{name}.flash")].map(|half| text(&disks.path(half)));
    disks.config(name, &format!("[disk]\npath = \"{disk}\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n{rest}"))
}

#[test]
fn a_store_that_fills_its_disk_is_not_made_half_of_a_hybrid_disk() {
    let disks = TestDisks::new();
    disks.log_store("full.img");
    disks.write("full.img", &bytes(3, MIB));
    disks.given(&["detach"]);
    let before = fs::read(disks.path("full.img")).expect("it is there");
    let plain = pair(&disks, "plain", "full.img", "");
    let log = pair(&disks, "log", "full.img", "[log]\n");
    let reported = ["full.img: a log store fills it", "label of a hybrid disk", "`truncate -s 67117056`", "--force"];
    for command in [&["create", &plain][..], &["create", &plain, "--force"], &["create", &log]] {
        disks.refused(command, 1, &reported);
        assert!(fs::read(disks.path("full.img")).expect("it is there") == before, "it was written to");
        assert!(!disks.path("plain.flash").exists() && !disks.path("log.flash").exists(), "what was made is left");
    }
    // With room for the label it stays.
    disks.resize("full.img", 64 * MIB + 4096);
    disks.refused(&["create", &plain], 1, &reported);
    disks.resize("full.img", 64 * MIB + 8192);
    disks.given(&["create", &plain]);
    let log = disks.config("log", &format!("{}[log]\n", fs::read_to_string(&plain).expect("text")));
    disks.given(&["serve", &log, "--daemon"]);
    assert!(disks.read("log", MIB as usize) == bytes(3, MIB));
    disks.given(&["detach", "log", "--dissolve"]);
    // A new one is made with `--force` only.
    disks.resize("full.img", 64 * MIB);
    disks.given(&["create", &log, "--force"]);
    disks.given(&["check", &log]);
}

#[test]
fn a_store_that_is_half_of_a_hybrid_disk_does_not_grow_over_its_label() {
    let disks = TestDisks::new();
    fs::File::create(disks.path("half.img")).and_then(|file| file.set_len(64 * MIB)).expect("there is room");
    let log = pair(&disks, "log", "half.img", "[log]\n");
    disks.given(&["create", &log]);
    disks.given(&["serve", &log, "--daemon"]);
    disks.given(&["detach", "log"]);
    let reported = ["half.img is half of a hybrid disk", "--dissolve"];
    disks.refused(&["grow", "half.img"], 1, &reported);
    disks.given(&["serve", "half.img", "--daemon"]);
    disks.refused(&["grow", "half.img"], 1, &reported);
    disks.given(&["detach", "half.img"]);
    disks.given(&["serve", &log, "--daemon"]);
    disks.given(&["detach", "log", "--dissolve"]);
    disks.given(&["grow", "half.img"]);
}

#[test]
fn a_store_that_is_too_large_for_its_hybrid_disk_is_not_offered_raw() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "full.img", "--size", SIZE]);
    let whole = fs::read(disks.path("full.img")).expect("it is there");
    fs::write(disks.path("full.img"), vec![0; 64 * MIB as usize]).expect("there is room");
    let plain = pair(&disks, "plain", "full.img", "");
    disks.given(&["create", &plain]);
    // As a version that joined such a store left it.
    disks.overwrite("full.img", 0, &whole[..63 * MIB as usize]);
    disks.refused(&["serve", &plain, "--daemon"], 1, &["a log store is on it: add [log]"]);
    disks.given(&["detach", &plain, "--dissolve"]);
    disks.given(&["check", "full.img"]);
}

#[test]
fn a_store_on_a_hybrid_disk_in_memory_is_made_at_each_start_and_gone_at_its_end() {
    let disks = TestDisks::new();
    let memory = "kind = \"memory\"\nsize = ";
    let config = disks.config("m", &format!("[disk]\n{memory}\"64MiB\"\n[flash]\n{memory}\"24MiB\"\n[log]\n"));
    disks.given(&["check", &config]);
    for flag in [&[][..], &["--keep-cache"], &["--dissolve"]] {
        disks.given(&["serve", &config, "--daemon"]);
        assert!(disks.read("m", MIB as usize) == vec![0; MIB as usize], "it is a new one");
        disks.write("m", &bytes(5, MIB));
        disks.refused(&["grow", "m"], 1, &["m is in memory, and does not grow"]);
        let reported = disks.given(&[&["detach", "m"], flag].concat());
        assert_eq!(reported, "m is detached; it was in memory, so its data is gone\n");
    }
    disks.refused(&["create", &config], 1, &["in memory and would be lost", "made at each start"]);
}
