//! What is not a store, not a whole one, or not meant.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::house::text;
use crate::support::house::House;
use crate::support::looped::Looped;
use crate::support::{MIB, bytes, run};

const SIZE: &str = "64MiB";

/// Writes over a part of a file.
fn overwrite(house: &House, name: &str, at: u64, data: &[u8]) {
    let file = OpenOptions::new().write(true).open(house.path(name)).expect("it is there");
    file.write_all_at(data, at).expect("it can be written");
}

#[test]
fn what_is_there_is_not_overwritten_unless_told_so() {
    let house = House::new();
    fs::write(house.path("full"), bytes(1, 64 * MIB)).expect("there is room");
    house.refused(&["create", "--kind", "log", "full"], 1, &["full is not empty", "--force"]);
    assert!(fs::read(house.path("full")).expect("it is there") == bytes(1, 64 * MIB));
    house.given(&["create", "--kind", "log", "full", "--force"]);
    house.given(&["check", "full"]);
    house.refused(&["create", "--kind", "log", "full"], 1, &["--force"]);
    house.given(&["serve", "full", "--daemon"]);
    house.refused(&["create", "--kind", "log", "full", "--force"], 1, &["full is served; detach it first"]);
}

#[test]
fn wrong_options_say_what_to_write() {
    let house = House::new();
    let create = |rest: &[&'static str]| [&["create", "--kind", "log", "new"][..], rest].concat();
    house.refused(&create(&[]), 1, &["new does not exist", "size"]);
    house.refused(&create(&["--size", "1000"]), 2, &["a multiple of 4096 bytes"]);
    for size in ["16EiB", "99999999999999999999", "8EiB", "18446744073709547520"] {
        house.refused(
            &create(&["--size", size]),
            2,
            &["too large", "at most 8 EiB less 4 KiB, and with a log store 4 PiB"],
        );
    }
    house.refused(&create(&["--size", "5PiB"]), 1, &["new: 5 PiB is too large; a log store has at most 4 PiB"]);
    house.refused(&create(&["--size", SIZE, "--segment", "3MiB"]), 2, &["a power of two from \"64KiB\" to \"256MiB\""]);
    house.refused(&create(&["--size", SIZE, "--spare", "10"]), 2, &["from \"1%\" to \"90%\""]);
    house.refused(
        &create(&["--size", SIZE, "--scheme", "rlfs"]),
        2,
        &["there is no placement scheme \"rlfs\" (did you mean \"r_lfs\"?)", "known: r_lfs, sepgc"],
    );
    let told = ["\"oracle\" needs to know the future", "for a disk there are: r_lfs, sepgc, dac, sfs, sepbit, organ\n"];
    house.refused(&create(&["--size", SIZE, "--scheme", "oracle"]), 2, &told);
    assert!(!house.said(&create(&["--size", SIZE, "--scheme", "rlfs"])).contains("oracle"), "no disk can use it");
    house.refused(&create(&["--size", SIZE, "--scheme", "r_lfs:regions=9"]), 2, &["regions=9 is not possible"]);
    house.refused(&create(&["--size", "512KiB"]), 1, &["a log store needs at least"]);
    assert!(!house.path("new").exists(), "what could not be made is not left behind");
    fs::write(house.path("plain"), bytes(1, MIB)).expect("there is room");
    house.refused(
        &["create", "--disk", "plain", "--scheme", "sepgc"],
        1,
        &["--scheme is for a log store", "--kind log"],
    );
    let config = house.config(
        "a",
        "[disk]\npath = \"/dev/sdz\"\n[log]\nvictim = \"gready\"\nclean_share = \"0%\"\nscheme = \"x\"\nfoo = 1\n",
    );
    house.refused(&["check", &config], 1, &["a.disk.toml:7:1", "unknown key \"foo\"", "checkpoint_every"]);
    let config = house.config("a", "[disk]\npath = \"/dev/sdz\"\n[log]\nvictim = \"gready\"\nclean_share = \"0%\"\nscheme = \"x\"\nsegment = \"5MiB\"\nspare = \"95%\"\nmap_memory = \"1KiB\"\nquiet = \"x\"\n");
    let told = [
        "4:10: \"gready\" is not valid here (did you mean \"greedy\"?); valid values: \"cost-benefit\", \"greedy\"",
        "5:15: clean_share must be a share from \"1%\" to \"100%\", not \"0%\"",
        "6:10: scheme: there is no placement scheme \"x\"; known: r_lfs, sepgc",
        "7:11: segment must be a power of two from \"64KiB\" to \"256MiB\", not \"5MiB\"",
        "8:9: spare must be a share from \"1%\" to \"90%\", not \"95%\"",
        "9:14: map_memory must be 64KiB or more, not \"1KiB\"",
        "10:9: quiet",
    ];
    house.refused(&["check", &config], 1, &told);
}

#[test]
fn a_configuration_that_wants_a_store_gets_no_other_disk() {
    let house = House::new();
    fs::write(house.path("plain"), bytes(1, 8 * MIB)).expect("there is room");
    let config = house.config("a", &format!("[disk]\npath = \"{}\"\n[log]\n", text(&house.path("plain"))));
    house.refused(&["serve", &config, "--daemon"], 1, &["no log store is on this device", "umbrella disk create"]);
    house.refused(&["check", &config], 1, &["no log store is on this device"]);
}

#[test]
fn damage_is_found_and_said_and_never_served_as_a_plain_disk() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "d.img", "--size", SIZE]);
    house.given(&["serve", "d.img", "--daemon"]);
    house.write("d.img", &bytes(4, 20 * MIB));
    house.given(&["detach"]);
    let whole = fs::read(house.path("d.img")).expect("it is there");
    let damaged = |at: u64, data: &[u8]| {
        fs::write(house.path("d.img"), &whole).expect("there is room");
        overwrite(&house, "d.img", at, data);
    };
    // A block of data: the structure is whole, the data is not.
    let data = bytes(4, 20 * MIB);
    let block = &data[10 << 20..][..4096];
    let at = whole.chunks(4096).position(|found| found == block).expect("it lies somewhere") as u64 * 4096;
    damaged(at, &[0xa5; 512]);
    house.given(&["check", "d.img"]);
    house.refused(&["check", "d.img", "--data"], 1, &["is not what was written", "not ok"]);
    // One superblock: the other one counts, and mends it.
    damaged(100, &[9; 8]);
    house.refused(&["check", "d.img"], 0, &["the copy of the superblock at block 0 is damaged or old", "1 warning"]);
    house.given(&["serve", "d.img", "--daemon"]);
    house.given(&["detach"]);
    house.refused(&["check", "d.img", "--data"], 0, &["0 warnings"]);
    // Also when nothing says what it was.
    damaged(3, &[9]);
    house.refused(&["check", "d.img"], 0, &["the copy of the superblock at block 0 is damaged or old", "1 warning"]);
    house.given(&["serve", "d.img", "--daemon"]);
    house.given(&["detach"]);
    house.refused(&["check", "d.img"], 0, &["0 warnings"]);
    // Both.
    damaged(100, &[9; 8]);
    overwrite(&house, "d.img", MIB + 100, &[9; 8]);
    for command in [&["check", "d.img"][..], &["serve", "d.img", "--daemon"]] {
        house.refused(command, 1, &["both copies of the superblock are damaged"]);
    }
    // Cut off.
    fs::write(house.path("d.img"), &whole[..whole.len() / 2]).expect("there is room");
    let told = [
        "d.img: the device has 32 MiB, the store needs 64 MiB: ",
        "`truncate -s 67108864 COPY`",
        "`umbrella disk check --data`",
        "`umbrella disk salvage`",
    ];
    for command in [&["check", "d.img"][..], &["attach", "d.img"], &["serve", "d.img", "--daemon"]] {
        house.refused(command, 1, &told);
    }
    let file = OpenOptions::new().write(true).open(house.path("d.img")).expect("it is there");
    file.set_len(67_108_864).expect("it can be made larger");
    let told = house.said(&["check", "d.img", "--data"]);
    assert!(!told.contains("the device has"), "{told}");
}

#[test]
fn a_disk_that_was_a_store_before_is_not_taken_for_one() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "e.img", "--size", SIZE]);
    let image = text(&house.path("e.img"));
    // Where nothing else is it was one all the same.
    overwrite(&house, "e.img", 0, &[0; 4096]);
    house.given(&["serve", "--disk", &image, "--daemon"]);
    assert_eq!(house.status("e.img")["kind"], "log");
    house.given(&["detach"]);
    // As a file system has it.
    overwrite(&house, "e.img", 0, &[0; 4096]);
    overwrite(&house, "e.img", 64 << 10, b"_BHRfS_M");
    house.refused(
        &["serve", "--disk", &image, "--daemon"],
        1,
        &["has the second superblock of one", "[log]", "umbrella disk salvage", "dd if=/dev/zero"],
    );
    overwrite(&house, "e.img", MIB, &[0; 4096]);
    run("mkfs.ext4", ["-q", "-F", &image]);
    house.given(&["serve", "--disk", &image, "--daemon"]);
    assert_eq!(house.status("e.img")["kind"], "file");
    house.given(&["detach"]);
}

#[test]
fn an_image_and_a_loop_device_on_it_are_not_served_both() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "b.img", "--size", SIZE]);
    {
        let device = Looped::on(&house.path("b.img"));
        house.refused(
            &["serve", "b.img", "--daemon"],
            1,
            &["b.img is ", "is also attached as", "losetup -d /dev/loop"],
        );
        // The same file by another name.
        std::fs::hard_link(house.path("b.img"), house.path("b2.img")).expect("a link");
        house.refused(
            &["serve", "b2.img", "--daemon"],
            1,
            &["b2.img is ", "is also attached as", "losetup -d /dev/loop"],
        );
        house.given(&["serve", device.as_str(), "--daemon"]);
        house.refused(&["attach", "b.img"], 1, &["b.img is in use as /dev/loop"]);
        house.refused(&["serve", "b.img", "--daemon"], 1, &["b.img is in use as /dev/loop"]);
        house.given(&["detach"]);
    }
    house.given(&["serve", "b.img", "--daemon"]);
    let device = Looped::on(&house.path("b.img"));
    house.refused(&["attach", device.as_str()], 1, &["b.img, which is served or in use"]);
    house.given(&["detach"]);
}

#[test]
fn a_store_on_a_hybrid_disk_is_not_offered_raw_when_log_is_forgotten() {
    let house = House::new();
    let (disk, flash) = (text(&house.path("disk")), text(&house.path("flash")));
    let halves =
        format!("[disk]\npath = \"{disk}\"\nsize = \"96MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"24MiB\"\n");
    let whole = house.config("whole", &format!("{halves}[log]\n"));
    let forgotten = house.config("forgotten", &halves);
    house.given(&["create", &whole]);
    for command in [&["serve", &forgotten, "--daemon"][..], &["attach", &forgotten]] {
        house.refused(command, 1, &["a log store is on it: add [log] to the configuration"]);
    }
    house.given(&["serve", &whole, "--daemon"]);
    house.given(&["detach", "whole"]);
}

#[test]
fn no_file_is_made_in_dev() {
    let house = House::new();
    let device = "/dev/umbrella-no-such-device";
    house.refused(
        &["create", "--kind", "log", device, "--size", "12MiB"],
        1,
        &["does not exist, and no image is made in /dev"],
    );
    house.refused(&["create", "--kind", "log", device], 1, &["check the name of the device"]);
    house.refused(&["check", "--disk", device], 1, &["check the name of the device"]);
    assert!(!Path::new(device).exists());
}

#[test]
fn a_store_that_is_served_is_said_not_to_be_looked_at() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "t.img", "--size", SIZE]);
    house.given(&["serve", "t.img", "--daemon"]);
    let told = ["): its data was not checked", "t.img: in use, not checked (log store, 0 errors, 1 warning)"];
    house.refused(&["check", "t.img", "--data"], 0, &told);
    house.given(&["detach"]);
}

#[test]
fn a_store_that_is_served_is_not_looked_at_by_another_name_of_it_either() {
    let house = House::new();
    let is_left_alone = |disk: &str, told: &[&str]| {
        let said =
            [told, &["its data was not checked", ": in use, not checked (log store, 0 errors, 1 warning)"]].concat();
        house.refused(&["check", disk, "--data"], 0, &said);
    };
    house.given(&["create", "--kind", "log", "a.img", "--size", SIZE]);
    std::fs::hard_link(house.path("a.img"), house.path("a2.img")).expect("a link");
    {
        // The image, and a loop device on it that is served.
        let device = Looped::on(&house.path("a.img"));
        house.given(&["check", "a.img"]);
        house.given(&["serve", device.as_str(), "--daemon"]);
        is_left_alone("a.img", &["a.img is in use as /dev/loop"]);
        is_left_alone("a2.img", &["a2.img is in use as /dev/loop"]);
        house.given(&["detach"]);
        house.given(&["check", "a.img", "--data"]);
    }
    // The other way round, also read-only.
    house.given(&["serve", "a.img", "--daemon"]);
    let pid =
        format!("in use by umbrella (process {}), which serves it under another name", house.status("a.img")["pid"]);
    is_left_alone("a2.img", &[&pid]);
    house.refused(&["attach", "a2.img"], 1, &[&pid]);
    let device = Looped::on(&house.path("a.img"));
    is_left_alone(device.as_str(), &["a.img, which is served or in use"]);
    house.given(&["detach"]);
    house.given(&["check", device.as_str(), "--data"]);
}

#[test]
fn an_image_whose_beginning_is_gone_is_no_configuration() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "f.img", "--size", SIZE]);
    overwrite(&house, "f.img", 0, &[9; 4096]);
    let commands = [&["check", "f.img"][..], &["attach", "f.img"], &["serve", "f.img", "--daemon"]];
    for command in commands {
        house.refused(command, 1, &["has the second superblock of one", "[log]"]);
    }
    let config = house.config("f", &format!("[disk]\npath = \"{}\"\n[log]\n", text(&house.path("f.img"))));
    house.given(&["serve", &config, "--daemon"]);
    house.given(&["detach"]);
    house.given(&["check", "f.img", "--data"]);
    overwrite(&house, "f.img", 0, &[9; 4096]);
    overwrite(&house, "f.img", MIB, &[9; 4096]);
    for command in commands.into_iter().chain([&["status", "f.img"][..]]) {
        house.refused(
            command,
            1,
            &["f.img is no log store", "too large for a configuration", "run it again with --force"],
        );
    }
}

#[test]
fn an_image_keeps_its_size_and_one_that_is_missing_is_said_to_be() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "g.img", "--size", SIZE]);
    let again = ["create", "--kind", "log", "g.img", "--force", "--size", "128MiB"];
    house.refused(&again, 1, &["--size is for an image that does not exist yet", "g.img has 64"]);
    house.refused(&["attach", "nope.img"], 1, &["nope.img: no such image, device or configuration"]);
    let told =
        ["nope.img: no such image", "`umbrella disk create --kind log nope.img --size SIZE` makes a log store there"];
    house.refused(&["create", "nope.img", "--size", "1GiB"], 1, &told);
}

#[test]
fn a_file_that_is_neither_image_nor_configuration_is_said_to_be_neither() {
    let house = House::new();
    fs::write(house.path("empty.img"), "").expect("the folder can be written");
    fs::write(house.path("notes.txt"), "hello\n").expect("the folder can be written");
    fs::write(house.path("bytes.img"), [0xff; 3000]).expect("the folder can be written");
    let commands = |file: &'static str| {
        [vec!["attach", file], vec!["check", file], vec!["serve", file, "--daemon"], vec!["grow", file]]
    };
    for command in commands("empty.img") {
        let told = [
            "empty.img is empty: neither an image of a log store nor a configuration",
            "create --kind log empty.img --size SIZE",
        ];
        house.refused(&command, 1, &told);
    }
    for command in commands("notes.txt").into_iter().chain(commands("bytes.img")) {
        let told = ["is neither an image of a log store nor a configuration", "--disk", "create --kind log --force"];
        house.refused(&command, 1, &told);
    }
    // What is one with a mistake is still told where that is.
    fs::write(house.path("disk.conf"), "[disk]\npth = \"x\"\n").expect("the folder can be written");
    house.refused(&["check", "disk.conf"], 1, &["disk.conf:2:1", "pth"]);
    house.refused(
        &["create", "--kind", "log", "empty.img"],
        1,
        &["empty.img is empty; to make it, give its size", "--size"],
    );
    house.given(&["create", "--kind", "log", "empty.img", "--size", SIZE]);
    house.given(&["check", "empty.img"]);
}

#[test]
fn a_configuration_that_names_another_scheme_than_the_store_has_is_told_which_counts() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "d.img", "--size", "64MiB", "--scheme", "sepgc", "--segment", "1MiB"]);
    let check = |keys: &str| {
        let config = house.config("d", &format!("[disk]\npath = {:?}\n\n[log]\n{keys}", house.path("d.img")));
        house.given(&["check", &config])
    };
    let told = check("scheme = \"organ\"\nsegment = \"512KiB\"\n");
    for part in
        ["its scheme is sepgc, not organ", "its segments have 1 MiB, not 512 KiB", "the store's own value is used"]
    {
        assert!(told.contains(part), "{told}");
    }
    for keys in ["", "scheme = \"sepgc\"\nsegment = \"1MiB\"\n"] {
        assert!(!check(keys).contains("the store's own value is used"), "{keys}");
    }
}

#[test]
fn an_image_that_cannot_be_made_names_path_and_remedy_and_leaves_nothing() {
    let house = House::new();
    let create = |path: &'static str, size: &'static str| ["create", "--kind", "log", path, "--size", size];
    let told = ["no/such/h.img: the directory ", "no/such does not exist", "create it first (`mkdir -p "];
    house.refused(&create("no/such/h.img", "64MiB"), 1, &told);
    assert!(!house.path("no").exists());
    // Room for a store, but no file may be so large.
    let too_large_for_a_file = || {
        let limited = ["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$@\"", "sh"];
        let command = house.umbrella(&create("h.img", "64MiB"));
        let mut shell = Command::new("sh");
        shell.args(limited).arg(command.get_program()).args(command.get_args()).current_dir(house.path("."));
        let output = shell.env("UMBRELLA_RUN_DIR", house.path("run")).output().expect("sh(1) runs");
        let told = crate::support::said(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        for part in
            ["64 MiB is too large for the file system of ", "give a smaller --size, or a path on another file system"]
        {
            assert!(told.contains(part), "{part:?} is not in {told:?}");
        }
    };
    too_large_for_a_file();
    house.refused(&create("h.img", "8191KiB"), 2, &["a multiple of 4096 bytes"]);
    house.refused(&create("h.img", "7880KiB"), 1, &["a log store needs at least"]);
    assert!(!house.path("h.img").exists(), "nothing is left");
    // One that is there and empty is used, and stays as it is when it cannot be.
    fs::write(house.path("h.img"), "").expect("the folder can be written");
    house.refused(&create("h.img", "64KiB"), 1, &["a log store needs at least"]);
    too_large_for_a_file();
    assert_eq!(fs::metadata(house.path("h.img")).map(|data| data.len()).ok(), Some(0), "it was there before");
    house.given(&create("h.img", "64MiB"));
}

#[test]
fn a_flash_is_never_passed_over() {
    let house = House::new();
    let made = |name: &str| house.path(name).exists();
    // Beside a device it makes a hybrid disk, as with --disk.
    let create = ["create", "--kind", "log", "new.img", "--size", "64MiB", "--flash"];
    house.refused(&[&create[..], &["missing/flash"]].concat(), 1, &["missing/flash"]);
    assert!(!made("new.img"));
    house.refused(&[&create[..], &["new.img"]].concat(), 1, &["the flash must be a device of its own"]);
    house.given(&["create", "--kind", "log", "alone.img", "--size", "64MiB"]);
    for command in ["serve", "attach", "check"] {
        house.refused(&[command, "alone.img", "--flash", "missing/flash"], 1, &["missing/flash"]);
    }
    let config = house.config("a", "[disk]\npath = \"/dev/sdz\"\n[log]\n");
    for command in ["create", "serve", "attach", "check"] {
        house.refused(&[command, &config, "--flash", "flash"], 1, &["--flash cannot be combined with a configuration"]);
    }
}

#[test]
fn a_store_over_flash_whose_configuration_lacks_it_is_not_called_whole() {
    let house = House::new();
    let [disk, flash] = ["disk", "flash"].map(|half| text(&house.path(half)));
    let halves =
        format!("[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n");
    let config = house.config("both", &format!("{halves}[log]\n"));
    house.given(&["create", &config]);
    house.given(&["check", &config]);
    let config = house.config("both", &halves);
    house.refused(&["check", &config], 1, &["disk and flash hold a log store: add [log] to the configuration"]);
    house.refused(&["attach", &config], 1, &["add [log] to the configuration"]);
}

#[test]
fn an_image_that_may_not_be_read_is_not_called_something_else() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let house = House::new();
    house.given(&["create", "--kind", "log", "own.img", "--size", "64MiB"]);
    let mode =
        |name: &str, mode| fs::set_permissions(house.path(name), fs::Permissions::from_mode(mode)).expect("it is ours");
    mode("", 0o755);
    mode("own.img", 0o600);
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_umbrella"));
    // The folder is the test's, and so is the program; the image alone is not for others.
    let output = check.args(["disk", "check"]).arg(house.path("own.img")).uid(65534).gid(65534).output();
    let Ok(output) = output else { return };
    let told = crate::support::said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("ermission denied") && !told.contains("--force"), "{told}");
}

/// A configuration of disk and flash, which are files of these names.
fn pair(house: &House, name: &str, disk: &str, rest: &str) -> String {
    let [disk, flash] = [disk, &format!("{name}.flash")].map(|half| text(&house.path(half)));
    house.config(name, &format!("[disk]\npath = \"{disk}\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n{rest}"))
}

#[test]
fn a_store_that_fills_its_disk_is_not_made_half_of_a_hybrid_disk() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "full.img", "--size", SIZE]);
    house.given(&["serve", "full.img", "--daemon"]);
    house.write("full.img", &bytes(3, MIB));
    house.given(&["detach"]);
    let before = fs::read(house.path("full.img")).expect("it is there");
    let plain = pair(&house, "plain", "full.img", "");
    let log = pair(&house, "log", "full.img", "[log]\n");
    let told = ["full.img: a log store fills it", "label of a hybrid disk", "`truncate -s 67117056`", "--force"];
    for command in [&["create", &plain][..], &["create", &plain, "--force"], &["create", &log]] {
        house.refused(command, 1, &told);
        assert!(fs::read(house.path("full.img")).expect("it is there") == before, "it was written to");
        assert!(!house.path("plain.flash").exists() && !house.path("log.flash").exists(), "what was made is left");
    }
    // With room for the label it stays.
    let grow = |size: u64| {
        OpenOptions::new().write(true).open(house.path("full.img")).and_then(|file| file.set_len(size)).expect("room");
    };
    grow(64 * MIB + 4096);
    house.refused(&["create", &plain], 1, &told);
    grow(64 * MIB + 8192);
    house.given(&["create", &plain]);
    let log = house.config("log", &format!("{}[log]\n", fs::read_to_string(&plain).expect("text")));
    house.given(&["serve", &log, "--daemon"]);
    assert!(house.read("log", MIB as usize) == bytes(3, MIB));
    house.given(&["detach", "log", "--dissolve"]);
    // A new one is made with `--force` only.
    grow(64 * MIB);
    house.given(&["create", &log, "--force"]);
    house.given(&["check", &log]);
}

#[test]
fn a_store_that_is_half_of_a_hybrid_disk_does_not_grow_over_its_label() {
    let house = House::new();
    fs::File::create(house.path("half.img")).and_then(|file| file.set_len(64 * MIB)).expect("there is room");
    let log = pair(&house, "log", "half.img", "[log]\n");
    house.given(&["create", &log]);
    house.given(&["serve", &log, "--daemon"]);
    house.given(&["detach", "log"]);
    let told = ["half.img is half of a hybrid disk", "--dissolve"];
    house.refused(&["grow", "half.img"], 1, &told);
    house.given(&["serve", "half.img", "--daemon"]);
    house.refused(&["grow", "half.img"], 1, &told);
    house.given(&["detach", "half.img"]);
    house.given(&["serve", &log, "--daemon"]);
    house.given(&["detach", "log", "--dissolve"]);
    house.given(&["grow", "half.img"]);
}

#[test]
fn a_store_that_is_too_large_for_its_hybrid_disk_is_not_offered_raw() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "full.img", "--size", SIZE]);
    let whole = fs::read(house.path("full.img")).expect("it is there");
    fs::write(house.path("full.img"), vec![0; 64 * MIB as usize]).expect("there is room");
    let plain = pair(&house, "plain", "full.img", "");
    house.given(&["create", &plain]);
    // As a version that joined such a store left it.
    overwrite(&house, "full.img", 0, &whole[..63 * MIB as usize]);
    house.refused(&["serve", &plain, "--daemon"], 1, &["a log store is on it: add [log]"]);
    house.given(&["detach", &plain, "--dissolve"]);
    house.given(&["check", "full.img"]);
}

#[test]
fn a_store_on_a_hybrid_disk_in_memory_is_made_at_each_start_and_gone_at_its_end() {
    let house = House::new();
    let memory = "kind = \"memory\"\nsize = ";
    let config = house.config("m", &format!("[disk]\n{memory}\"64MiB\"\n[flash]\n{memory}\"24MiB\"\n[log]\n"));
    house.given(&["check", &config]);
    for flag in [&[][..], &["--keep-cache"], &["--dissolve"]] {
        house.given(&["serve", &config, "--daemon"]);
        assert!(house.read("m", MIB as usize) == vec![0; MIB as usize], "it is a new one");
        house.write("m", &bytes(5, MIB));
        house.refused(&["grow", "m"], 1, &["m is in memory, and does not grow"]);
        let told = house.given(&[&["detach", "m"], flag].concat());
        assert_eq!(told, "m is detached; it was in memory, so its data is gone\n");
    }
    house.refused(&["create", &config], 1, &["in memory and would be lost", "made at each start"]);
}
