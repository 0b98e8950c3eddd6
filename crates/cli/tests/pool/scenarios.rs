//! The scenarios of the dissertation (UmbrellaFS, chapter III), small: each file on the device that suits it, on
//! emulated devices with a real file system each. `cargo bench --bench live -- scenarios` times the same.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::append;
use crate::support::disk::unmount;
use crate::support::pool::{Pool, UMBRELLA};
use crate::support::{KIB, MIB, bytes, poll, require_root_and_fuse, run, temp_dir};

/// Flash for what is only read or executed, a disk for the rest (figure 20).
const FLASH_FOR_READING: &str = r#"
[[rule]]
name = "read-only files on flash"
when = { access = "read-only" }
to = ["flash", "disk"]
[[rule]]
name = "executables on flash"
when = { access = "executable" }
to = ["flash", "disk"]
"#;

/// ext4 on an emulated device that keeps its data in memory.
#[derive(Debug)]
struct Emulated {
    dir: TempDir,
    name: &'static str,
}

impl Emulated {
    fn new(name: &'static str, profile: &str) -> Self {
        require_root_and_fuse();
        let emulated = Self { dir: temp_dir(name), name };
        let config = emulated.dir.path().join("emulated.toml");
        let text = format!(
            "name = \"{name}\"\n[disk]\nkind = \"emulated\"\nprofile = \"{profile}\"\nsize = \"128MiB\"\nspeed = 1000\n[nbd]\nlisten = []\n"
        );
        fs::write(&config, text).unwrap();
        let attached = emulated.disk(&["attach", config.to_str().unwrap()]);
        let device = attached["device"].as_str().unwrap_or_else(|| panic!("no device: {attached}"));
        // Nothing is to be written later by the kernel, which would do the rest of the work while a test counts.
        let options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        run("mkfs.ext4", ["-q", "-F", "-m", "0", "-E", options, device]);
        fs::create_dir(emulated.path()).unwrap();
        // A read leaves no mark, so that what is written is what somebody wrote.
        run(
            "mount",
            [
                "-t".as_ref(),
                "ext4".as_ref(),
                "-o".as_ref(),
                "noatime".as_ref(),
                device.as_ref(),
                emulated.path().as_os_str(),
            ],
        );
        fs::remove_dir(emulated.path().join("lost+found")).unwrap();
        emulated
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(UMBRELLA);
        command.arg("disk").args(args).env("UMBRELLA_RUN_DIR", self.dir.path().join("run"));
        command.env("UMBRELLA_LOG_DIR", self.dir.path().join("log"));
        command.env("UMBRELLA_STATE_DIR", self.dir.path().join("state"));
        command
    }

    fn disk(&self, args: &[&str]) -> Value {
        let output = self.command(args).arg("--json").output().expect("umbrella can be started");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    }

    /// Bytes that reached the device so far, once all are there.
    fn written(&self) -> u64 {
        rustix::fs::syncfs(fs::File::open(self.path()).unwrap()).unwrap();
        self.disk(&["stats", self.name])["umbrella_disk_written_bytes"].as_u64().expect("a number")
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        unmount(&self.path());
        // Whatever a test did, its disk ends with it; another program may look at all disks just now.
        let detached = || self.command(&["detach", self.name]).output().ok()?.status.success().then_some(());
        let _ = poll(Duration::from_secs(10), detached);
    }
}

/// A file of one of three kinds, by its number.
fn kind(number: u64) -> (&'static str, u32, &'static str) {
    match number % 4 {
        0 => ("read", 0o444, "flash"),
        1 => ("program", 0o755, "flash"),
        _ => ("data", 0o644, "disk"),
    }
}

fn content(number: u64) -> Vec<u8> {
    bytes(number + 1, 8 * KIB + number * 3 * KIB)
}

fn create(path: &Path, mode: u32, data: &[u8]) {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).unwrap();
    file.write_all(data).unwrap();
}

#[test]
fn what_is_only_read_lies_on_flash_and_changes_spare_it() {
    let (disk, flash) = (Emulated::new("disk", "cheetah_10k7"), Emulated::new("flash", "mlc_samsung"));
    let builder = Pool::builder().branch("disk", disk.path()).branch("flash", flash.path()).default(&["disk"]);
    let mut pool = builder.rules(FLASH_FOR_READING).mount();
    let name = |number: u64| format!("{}-{number}", kind(number).0);
    for number in 0..40 {
        create(&pool.join(name(number)), kind(number).1, &content(number));
    }
    for number in 0..40 {
        pool.expect_on(kind(number).2, name(number));
    }
    pool.settle();

    let before = flash.written();
    let piece = bytes(99, 256 * KIB);
    let changing = || (0..40).filter(|number| kind(*number).2 == "disk");
    for number in changing() {
        append(&pool.join(name(number)), &piece).unwrap();
    }
    for number in changing().filter(|number| number % 8 == 2) {
        fs::remove_file(pool.join(name(number))).unwrap();
        create(&pool.join(name(number)), 0o644, &content(number));
    }
    pool.settle();
    assert!(disk.written() >= 4 * MIB, "20 files grew by 256 KiB each: {}", disk.written());
    let grown = flash.written() - before;
    assert!(grown < 256 * KIB, "{grown} bytes reached the flash by changes to files that are not there");

    pool.remount();
    for number in 0..40 {
        pool.expect_on(kind(number).2, name(number));
        let read = fs::read(pool.join(name(number))).unwrap();
        let appended = kind(number).2 == "disk" && number % 8 != 2;
        let expected = if appended { [content(number), piece.clone()].concat() } else { content(number) };
        assert!(read == expected, "{}: {} bytes, {} expected", name(number), read.len(), expected.len());
    }
    pool.stop();
}

/// Every second file, whatever it is for.
const AT_RANDOM: &str = "[[rule]]\nname = \"at random\"\nmatch = [{ glob = \"*[13579]\", to = [\"flash\"] }]\n";

/// How much of what is appended to the files that change reaches the flash.
fn changes_on_flash(rules: &str, default: &'static str) -> u64 {
    let (disk, flash) = (Emulated::new("disk", "cheetah_10k7"), Emulated::new("flash", "mlc_samsung"));
    let builder = Pool::builder().branch("disk", disk.path()).branch("flash", flash.path()).default(&[default]);
    let mut pool = builder.rules(rules).mount();
    let name = |number: u64| format!("{}-{number}", kind(number).0);
    for number in 0..40 {
        create(&pool.join(name(number)), kind(number).1, &content(number));
    }
    pool.settle();
    let before = flash.written();
    for number in (0..40).filter(|number| kind(*number).0 == "data") {
        append(&pool.join(name(number)), &bytes(number, 256 * KIB)).unwrap();
    }
    pool.settle();
    let grown = flash.written() - before;
    pool.stop();
    grown
}

#[test]
fn placement_at_random_and_all_on_flash_bring_changes_to_the_flash_that_rules_spare_it() {
    let by_rules = changes_on_flash(FLASH_FOR_READING, "disk");
    let at_random = changes_on_flash(AT_RANDOM, "disk");
    let (all_on_flash, all_on_disk) = (changes_on_flash("", "flash"), changes_on_flash("", "disk"));
    let figures = format!("{by_rules} by rules, {at_random} at random, {all_on_flash} and {all_on_disk} all on one");
    assert!(by_rules < 256 * KIB && all_on_disk < 256 * KIB, "{figures}");
    assert!(at_random >= 10 * 256 * KIB && all_on_flash >= 20 * 256 * KIB, "{figures}");
    assert!(at_random < all_on_flash, "{figures}");
}

#[test]
fn a_file_that_may_be_written_again_leaves_the_flash_before_it_is() {
    let (disk, flash) = (Emulated::new("disk", "cheetah_10k7"), Emulated::new("flash", "mlc_samsung"));
    let builder = Pool::builder().branch("disk", disk.path()).branch("flash", flash.path()).default(&["disk"]);
    let mut pool = builder.rules(FLASH_FOR_READING).mount();
    create(&pool.join("file"), 0o444, &content(1));
    pool.expect_on("flash", "file");
    run("chmod", ["644".as_ref(), pool.join("file").as_os_str()]);
    pool.expect_on("disk", "file");
    pool.settle();
    let before = flash.written();
    append(&pool.join("file"), &bytes(5, MIB)).unwrap();
    assert!(flash.written() - before < 256 * KIB);
    assert_eq!(fs::metadata(pool.join("file")).unwrap().len(), content(1).len() as u64 + MIB);
    pool.stop();
}

/// Chapter IV: each branch has the policy that suits its device.
#[test]
fn each_branch_writes_back_by_its_own_policy() {
    let (disk, flash) = (Emulated::new("disk", "deskstar_500gb"), Emulated::new("flash", "mlc_samsung"));
    let mut pool = Pool::builder()
        .branch_with("disk", disk.path(), "write_back = \"zone_segment:alpha=20\"\nwrite_back_limit = \"32MiB\"")
        .branch_with("flash", flash.path(), "write_back = \"two_queue\"\nwrite_back_limit = \"32MiB\"")
        .default(&["disk"])
        .rules("[[rule]]\nname = \"databases\"\nmatch = [{ glob = \"*.db\", to = [\"flash\"] }]\n")
        .mount();
    for (name, branch) in [("a.db", "flash"), ("b.db", "flash"), ("letter", "disk")] {
        create(&pool.join(name), 0o644, &bytes(7, 3 * MIB));
        pool.expect_on(branch, name);
    }
    let shown = pool.json(["write-back", "show"]);
    let branches: Vec<&Value> =
        shown.iter().flat_map(|answer| answer.as_array().expect("a list of branches")).collect();
    let flusher =
        |branch: &str| &branches.iter().find(|of| of["branch"] == branch).expect("both are shown")["write_back"];
    // What it knows of: dirty, or written back by now.
    let seen = |branch: &str| {
        let bytes = |name: &str| flusher(branch)[name].as_u64().expect("a number");
        bytes("dirty") + bytes("in_flight") + bytes("flushed") + bytes("cleaned")
    };
    assert_eq!(flusher("disk")["policy"], "zone_segment:alpha=20");
    assert_eq!(flusher("flash")["policy"], "two_queue");
    assert!((3 * MIB..6 * MIB).contains(&seen("disk")), "one file: {}", flusher("disk"));
    assert!((6 * MIB..9 * MIB).contains(&seen("flash")), "two files: {}", flusher("flash"));
    assert!(flash.written() >= 6 * MIB && disk.written() >= 3 * MIB, "all of it reaches its own device");
    pool.stop();
}
