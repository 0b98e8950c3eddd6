//! What a user may get wrong, and what must not happen then.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use super::support::looped::Looped;
use super::support::process::{as_nobody, waits};
use super::support::{MIB, run, temp_dir};
use super::{TestDisks, said};

#[test]
fn a_configuration_of_the_same_name_is_not_taken_for_the_disk_that_is_served() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("b2", "never");
    disks.given(&["create", config]);
    let device = disks.given(&["attach", config]);
    fs::create_dir(disks.path("other")).expect("the folder can be made");
    let other: &str = &disks.hybrid("other/b2", "never");
    for command in ["attach", "serve", "detach", "status", "stats", "create"] {
        let parts = ["b2 is already served with another configuration (disk /", "b2.disk, flash /", "another name"];
        disks.refused(&[command, other], 1, &parts);
    }
    disks.refused(&["attach", "--disk", "memory:size=1MiB", "--name", "b2"], 1, &["with another configuration"]);
    disks.refused(&["attach", config, "--read-only"], 1, &["b2 is already served for writing"]);
    // The same file by another path is the same disk.
    std::os::unix::fs::symlink(disks.path("b2.disk"), disks.path("link")).expect("the link can be made");
    assert_eq!(disks.given(&["attach", "--disk", "link", "--flash", "b2.flash", "--name", "b2"]), device);
    disks.given(&["detach", config]);
}

#[test]
fn half_of_a_hybrid_disk_is_not_written_on_its_own() {
    let disks = TestDisks::new();
    let config = disks.hybrid("media", "never");
    disks.given(&["create", &config]);
    let reported = ["media.disk belongs together with the flash ", "its data may be old", "--read-only"];
    disks.refused(&["serve", "--disk", "media.disk", "--daemon"], 1, &reported);
    disks.refused(&["attach", "--disk", "media.disk"], 1, &reported);
    disks.refused(&["check", "--disk", "media.disk"], 0, &["warning: ", reported[0]]);
    disks.given(&["serve", "--disk", "media.disk", "--read-only", "--daemon"]);
    disks.given(&["detach", "media"]);
}

#[test]
fn half_of_a_hybrid_disk_that_grew_or_whose_label_is_damaged_is_not_written_on_its_own() {
    let disks = TestDisks::new();
    let config = disks.hybrid("media", "never");
    disks.given(&["create", &config]);
    for size in [65 * MIB, 127 * MIB] {
        disks.resize("media.disk", size);
        let reported = ["media.disk may be half of a hybrid disk", "had 64 MiB when it was joined with its flash"];
        for command in [&["serve", "--disk", "media.disk", "--daemon"][..], &["attach", "--disk", "media.disk"]] {
            disks.refused(command, 1, &reported);
        }
        disks.refused(&["check", "--disk", "media.disk"], 0, &["warning: ", reported[0]]);
        disks.given(&["serve", "--disk", "media.disk", "--read-only", "--daemon"]);
        disks.given(&["detach", "media"]);
    }
    disks.resize("media.disk", 64 * MIB);
    for copy in [64 * MIB - 8192, 64 * MIB - 4096] {
        disks.overwrite("media.disk", copy + 16, &[0xff; 4]);
    }
    disks.refused(&["serve", "--disk", "media.disk", "--daemon"], 1, &["may be half", "the checksum is wrong"]);
}

#[test]
fn a_plain_disk_may_hold_the_image_of_half_a_hybrid_disk() {
    let disks = TestDisks::new();
    let config = disks.hybrid("media", "never");
    disks.given(&["create", &config]);
    let image = fs::read(disks.path("media.disk")).expect("it is there");
    let plain = File::create(disks.path("plain")).expect("it can be made");
    plain.set_len(128 * MIB).and_then(|()| plain.write_all_at(&image, MIB)).expect("it can be written");
    disks.given(&["serve", "--disk", "plain", "--daemon"]);
    disks.given(&["detach"]);
}

#[test]
fn an_image_that_is_mounted_is_not_made_half_of_a_hybrid_disk() {
    let disks = TestDisks::new();
    let config = disks.hybrid("media", "never");
    File::create(disks.path("media.disk")).and_then(|file| file.set_len(64 * MIB)).expect("it can be made");
    run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), disks.path("media.disk").as_os_str()]);
    let mnt = disks.path("mnt");
    fs::create_dir(&mnt).expect("the folder can be made");
    run("mount", ["-o".as_ref(), "loop".as_ref(), disks.path("media.disk").as_os_str(), mnt.as_os_str()]);
    let created = disks.run(&["create", &config, "--force"]);
    run("umount", [&mnt]);
    assert!(said(&created).contains("media.disk is in use as /dev/loop"), "{}", said(&created));
    assert!(!disks.path("media.flash").exists());
}

#[test]
fn a_disk_that_was_not_made_yet_says_how_it_is_made() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    for command in [&["attach", config][..], &["serve", config, "--daemon"], &["serve", config]] {
        disks.refused(command, 1, &["media.disk does not exist yet: `umbrella disk create CONFIG` makes it"]);
    }
}

#[test]
fn a_flash_that_is_too_small_is_refused_before_anything_is_made() {
    let disks = TestDisks::new();
    let pair = ["--disk", "file:path=disk,size=64MiB", "--flash", "file:path=flash,size=4MiB"];
    for command in ["check", "create"] {
        disks.refused(&[&[command], &pair[..]].concat(), 1, &["4 MiB is too small; give it at least 5 MiB"]);
    }
    // The disk can be made, the flash cannot.
    let pair = ["--disk", "file:path=disk,size=64MiB", "--flash", "file:path=no/flash,size=16MiB"];
    disks.refused(&[&["create"], &pair[..]].concat(), 1, &["no/flash"]);
    assert!(!disks.path("disk").exists());
}

#[test]
fn a_daemon_that_did_not_start_leaves_nothing_to_connect_to() {
    let disks = TestDisks::new();
    for args in [&["--disk", "nowhere"][..], &["--disk", "memory:size=1MiB", "--listen", "192.0.2.1:1"]] {
        disks.refused(&[&["serve", "--daemon"], args].concat(), 1, &[]);
        disks.refused(&[&["attach"], args].concat(), 1, &[]);
    }
    let left: Vec<_> = fs::read_dir(disks.path("run/disks")).expect("it was made").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_disk_attached_by_serve_names_its_device() {
    let disks = TestDisks::new();
    let ram = ["serve", "--disk", "memory:size=1MiB", "--name", "ram", "--attach", "--daemon"];
    let device = disks.given(&ram);
    assert!(device.starts_with("/dev/loop"), "{device}");
    assert_eq!(disks.status("ram")["device"], device.trim());
    disks.given(&["detach"]);
    assert!(disks.json(&ram)["device"].as_str().is_some_and(|device| device.starts_with("/dev/loop")));
    disks.given(&["detach"]);
}

#[test]
fn a_configuration_that_is_missing_names_the_page_of_disks() {
    TestDisks::new().refused(&["serve", "no.toml"], 1, &["no.toml: does not exist", "(docs/disk.md describes it)"]);
}

#[test]
fn status_says_of_a_disk_without_a_motor_that_it_does_not_sleep() {
    let disks = TestDisks::new();
    for (name, sleep, reported) in [("sleeps", "fixed:timeout=0", 1), ("wakes", "never", 0)] {
        let config: &str = &disks.hybrid(name, sleep);
        disks.given(&["create", config]);
        disks.given(&["serve", config, "--daemon"]);
        let trouble = disks.status(name)["trouble"].to_string();
        assert_eq!(trouble.matches("has no motor").count(), reported, "{trouble}");
    }
    assert!(disks.given(&["status"]).contains("has no motor"));
}

#[test]
fn only_root_attaches_and_others_get_an_error() {
    // Where the program was built may be closed to others. Copied by a program: what this one has open for writing,
    // another test's child may keep, and then it cannot be started.
    let folder = temp_dir("nobody");
    let program = folder.path().join("umbrella");
    run("cp", [std::path::Path::new(env!("CARGO_BIN_EXE_umbrella")), &program]);
    for path in [folder.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("they are ours");
    }
    let attach = || {
        let mut command = Command::new(&program);
        command.args(["disk", "attach", "--disk", "memory:size=1MiB"]).current_dir("/").output()
    };
    let output = as_nobody(attach).expect("the program can be started");
    assert!(said(&output).contains("attach needs root"), "{}", said(&output));
}

#[test]
fn the_log_is_quiet_when_somebody_asks_for_extended_attributes() {
    let disks = TestDisks::new();
    disks.given(&["attach", "--disk", "memory:size=1MiB", "--name", "ram"]);
    let file = disks.path("run/disks/ram/disk");
    rustix::fs::getxattr(&file, "user.any", &mut [0_u8; 16]).expect_err("it has none");
    rustix::fs::listxattr(&file, &mut [0_u8; 16]).expect_err("it has none");
    disks.given(&["detach"]);
    assert!(!disks.logs().contains("xattr"), "{}", disks.logs());
}

#[test]
fn a_device_that_is_held_open_is_not_detached_and_its_holder_is_named() {
    let disks = TestDisks::new();
    let device = disks.given(&["attach", "--disk", "memory:size=1MiB", "--name", "ram"]).trim().to_owned();
    let held = File::open(&device).expect("it can be opened");
    let output = disks.run(&["detach"]);
    let reported = said(&output);
    let holder = format!("(process {})", std::process::id());
    assert!(reported.contains("held open by ") && reported.contains(&holder), "{reported}");
    assert_eq!(reported.matches("in use").count(), 1, "{reported}");
    drop(held);
    disks.given(&["detach"]);
}

#[test]
fn a_disk_that_other_machines_can_reach_is_warned_of() {
    let disks = TestDisks::new();
    let open = ["--disk", "memory:size=1MiB", "--listen", "0.0.0.0:10899"];
    disks.refused(&[&["check"], &open[..]].concat(), 0, &["warning: other machines can reach 0.0.0.0:10899"]);
    let folder = tempfile::TempDir::new().expect("a folder");
    let tls = ["--tls", folder.path().to_str().expect("UTF-8"), "--tls-verify-peer"];
    disks.refused(&[&["check"], &open[..], &tls].concat(), 1, &["server-cert.pem: No such file", "TLS needs"]);
    disks.refused(&[&["serve"], &open[..], &tls].concat(), 1, &["server-cert.pem: No such file"]);
    let near = ["check", "--disk", "memory:size=1MiB", "--listen", "127.0.0.1:10899"];
    assert!(!disks.given(&near).contains("other machines"));
}

#[test]
fn a_front_that_is_not_there_says_how_to_get_it() {
    let disks = TestDisks::new();
    let ublk = ["attach", "--front", "ublk", "--disk", "memory:size=16MiB"];
    if !cfg!(feature = "ublk") {
        disks.refused(&ublk, 1, &["built without ublk", "make build FEATURES=ublk"]);
        disks.refused(&["serve", "--attach", "--front", "ublk", "--disk", "memory:size=16MiB"], 1, &["built without"]);
    } else if !Path::new("/dev/ublk-control").exists() {
        disks.refused(&ublk, 1, &["/dev/ublk-control is missing", "`modprobe ublk_drv`", "linux-image-6.12-amd64"]);
    }
    assert_eq!(disks.given(&["status"]).trim(), "no disk is served");
    disks.refused(&["attach", "--front", "nbd", "--disk", "memory:size=16MiB"], 2, &["unknown front"]);
}

#[test]
fn a_disk_whose_making_was_interrupted_is_made() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    for empty in [&["media.disk"][..], &["media.flash"], &["media.disk", "media.flash"]] {
        for file in ["media.disk", "media.flash"] {
            let _ = fs::remove_file(disks.path(file));
        }
        for file in empty {
            File::create(disks.path(file)).expect("it can be made");
        }
        disks.refused(&["serve", config], 1, &["does not exist yet: `umbrella disk create CONFIG` makes it"]);
        disks.refused(&["check", config], 0, &["`umbrella disk create` makes it"]);
        assert_eq!(disks.json(&["create", config])["made"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_value_of_a_configuration_does_not_steer_the_terminal() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "\\u001b[31m");
    for command in [&["check", config][..], &["serve", config], &["serve", config, "--daemon"]] {
        disks.refused(command, 1, &[r"\u{1b}[31m"]);
        let output = disks.run(command);
        assert!(![output.stdout, output.stderr].concat().contains(&0x1b));
    }
}

#[test]
fn a_daemon_that_does_not_answer_hides_no_other_disk() {
    let disks = TestDisks::new();
    for name in ["one", "two", "three"] {
        disks.given(&["serve", "--disk", "memory:size=1MiB", "--name", name, "--daemon"]);
    }
    let stopped = ["one", "two"].map(|name| disks.signal(name, Signal::STOP));
    let output = disks.run(&["status"]);
    for pid in &stopped {
        kill_process(*pid, Signal::CONT).expect("it is there");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("three  memory"), "{output:?}");
    let reported = said(&output);
    for name in ["one", "two"] {
        assert!(reported.contains(&format!("{name}: the daemon (process ")), "{reported}");
    }
    assert!(reported.contains("did not answer within 2 s"), "{reported}");
}

#[test]
fn disks_attached_at_the_same_time_get_their_own_devices() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    disks.given(&["create", config]);
    for _ in 0..3 {
        let attach = || disks.umbrella(&["attach", config]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let attaching: Vec<_> = (0..4).map(|_| attach().expect("the program can be started")).collect();
        let outputs: Vec<_> =
            attaching.into_iter().map(|child| child.wait_with_output().expect("it is our child")).collect();
        let device = disks.status("media")["device"].as_str().expect("it is attached").to_owned();
        for output in outputs {
            let shown = String::from_utf8_lossy(&output.stdout);
            assert_eq!(shown.trim(), device, "{}", said(&output));
        }
        disks.given(&["detach", "--keep-cache"]);
    }
}

#[test]
fn a_daemon_that_was_killed_while_somebody_attached_is_replaced() {
    let disks = TestDisks::new();
    disks.given(&["serve", "--disk", "memory:size=1MiB", "--name", "ram", "--daemon"]);
    let pid = disks.signal("ram", Signal::STOP);
    let attach = ["attach", "--disk", "memory:size=1MiB", "--name", "ram"];
    let attaching = disks.umbrella(&attach).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut attaching = attaching.expect("the program can be started");
    assert!(waits(&mut attaching), "it does not wait for the daemon");
    kill_process(pid, Signal::KILL).expect("it is there");
    let output = attaching.wait_with_output().expect("it is our child");
    assert!(output.status.success(), "{}", said(&output));
    disks.given(&["detach"]);
}

#[test]
fn many_clients_that_break_the_rules_do_not_fill_the_log() {
    let disks = TestDisks::new();
    disks.given(&["serve", "--disk", "memory:size=1MiB", "--name", "ram", "--daemon"]);
    for _ in 0..100 {
        let mut client = UnixStream::connect(disks.path("run/disks/ram.nbd")).expect("it listens");
        let _ = client.write_all(&[0xff; 64]);
        let _ = client.read_to_end(&mut Vec::new());
    }
    let lines = disks.logs().matches("connection ended").count();
    assert!((1..10).contains(&lines), "{lines}");
    disks.given(&["detach"]);
}

#[test]
fn half_of_a_hybrid_disk_that_was_cut_or_grew_much_is_known_without_its_label() {
    for (size, became) in
        [(63 * MIB, "was cut: it had 64 MiB, and has 63 MiB"), (200 * MIB, "grew: it had 64 MiB, and has 200 MiB")]
    {
        let disks = TestDisks::new();
        let config: &str = &disks.asleep();
        disks.write("media", &super::bytes(9, MIB));
        disks.given(&["detach", "--keep-cache"]);
        disks.resize("media.disk", size);
        let reported = [became, "with the flash ", "--read-only", "--forget-flash"];
        for command in [&["serve", "--disk", "media.disk", "--daemon"][..], &["attach", "--disk", "media.disk"]] {
            disks.refused(command, 1, &reported);
        }
        disks.refused(&["check", "--disk", "media.disk"], 0, &["warning: ", became]);
        disks.refused(&["check", config], 1, &["when it was joined with its flash", "give it its old size again"]);
        disks.refused(&["attach", config], 1, &["when it was joined with its flash"]);
        disks.given(&["serve", "--disk", "media.disk", "--read-only", "--daemon"]);
        disks.given(&["detach", "media"]);
        // Under another name it is the same disk.
        fs::rename(disks.path("media.disk"), disks.path("moved")).expect("it can be renamed");
        disks.refused(&["serve", "--disk", "moved", "--daemon"], 1, &reported);
        fs::rename(disks.path("moved"), disks.path("media.disk")).expect("it can be renamed");
        disks.given(&["detach", config, "--forget-flash"]);
        disks.given(&["serve", "--disk", "media.disk", "--daemon"]);
        disks.given(&["detach"]);
    }
}

#[test]
fn a_disk_that_was_detached_whole_may_be_cut_and_used_alone() {
    let disks = TestDisks::new();
    let config = disks.asleep();
    disks.write("media", &super::bytes(9, MIB));
    disks.given(&["detach"]);
    disks.resize("media.disk", 63 * MIB);
    disks.given(&["serve", "--disk", "media.disk", "--daemon"]);
    disks.given(&["detach"]);
    disks.refused(&["attach", &config], 1, &["and lost the label at its end"]);
}

/// The number that XFS gives for its own is that of its device.
#[test]
fn a_disk_on_xfs_that_was_cut_is_known_when_its_file_system_was_mounted_from_another_device() {
    let disks = TestDisks::new();
    let (image, folder) = (disks.path("xfs.img"), disks.path("mnt"));
    File::create(&image).and_then(|file| file.set_len(320 * MIB)).expect("there is room");
    run("mkfs.xfs", [Path::new("-q"), &image]);
    fs::create_dir(&folder).expect("the folder can be written");
    let first = Looped::on(&image);
    run("mount", [first.path(), &folder]);
    let config = disks.path("media.disk.toml");
    let text = format!(
        "[disk]\npath = {:?}\nsize = \"64MiB\"\n[flash]\npath = {:?}\nsize = \"16MiB\"\n",
        folder.join("media.disk"),
        disks.path("media.flash")
    );
    fs::write(&config, text).expect("the folder can be written");
    let config = config.to_str().expect("text");
    disks.given(&["create", config]);
    disks.given(&["serve", config, "--daemon"]);
    disks.given(&["detach", "--keep-cache"]);
    run("umount", [&folder]);
    let second = Looped::on(&image);
    run("mount", [second.path(), &folder]);
    let disk = folder.join("media.disk");
    File::options().write(true).open(&disk).and_then(|file| file.set_len(32 * MIB)).expect("it is cut");
    disks.refused(
        &["serve", "--disk", disk.to_str().expect("text"), "--daemon"],
        1,
        &["was half of a hybrid disk", "was cut"],
    );
    run("umount", [&folder]);
}
