//! Real programs on ext4 and xfs on a store that has little room, so that it is cleaned under them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::test_disks::TestDisks;
use crate::support::tools::tool;
use crate::support::{KIB, MIB, bytes, number_from_env, run, temp_dir};
use crate::test_disks::text;

fn postmark(folder: &Path) {
    let script = format!(
        "set location {}\nset number 300\nset size 500 60000\nset transactions 600\nset subdirectories 10\nrun\nquit\n",
        folder.display()
    );
    let mut postmark = Command::new("timeout")
        .args(["-k", "5", "600", "postmark"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("timeout(1) runs");
    postmark.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
    assert!(postmark.wait().expect("it ends").success(), "postmark failed (scripts/setup.sh installs it)");
}

/// Writes a file at random, again and again, and each time compares all that is read.
fn fio_with_verify(folder: &Path, size: u64, loops: u32) {
    let file = format!("--filename={}", folder.join("fio").display());
    let (size, loops) = (format!("--size={size}"), format!("--loops={loops}"));
    let job = ["600", "fio", "--name=verify", &file, &size, "--rw=randwrite", "--bsrange=4k-64k", &loops];
    let rest = [
        "--verify=crc32c",
        "--direct=1",
        "--ioengine=psync",
        "--fsync=64",
        "--do_verify=1",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    run("timeout", [&job[..], &rest[..]].concat());
}

/// Every operation of fsx, on one file.
fn fsx(folder: &Path) {
    let config = temp_dir("log-fsx");
    let file = config.path().join("fsx.toml");
    let weights = "flen = 1048576\n[opsize]\nmin = 0\nmax = 65536\nalign = 1\n[weights]\nclose_open = 2\ninvalidate = 1\nmapread = 10\n\
        mapwrite = 10\nread = 10\nwrite = 20\ntruncate = 10\nfsync = 2\nfdatasync = 2\nposix_fallocate = 4\npunch_hole = 6\n\
        sendfile = 4\nposix_fadvise = 1\ncopy_file_range = 4\n";
    fs::write(&file, weights).expect("the folder can be written");
    let operations = number_from_env("UMBRELLA_FSX_OPS", 1200).to_string();
    for seed in ["1", "2"] {
        let output = Command::new("timeout")
            .args(["-k", "5", "600"])
            .arg(tool("fsx"))
            .args(["-N", &operations, "-S", seed, "-f"])
            .arg(&file)
            .arg("-P")
            .arg(config.path())
            .arg(folder.join(format!("fsx-{seed}")))
            .output()
            .expect("timeout(1) runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "fsx -N {operations} -S {seed} failed ({}):\n{said}", output.status);
    }
}

/// A tree like that of a kernel: many small files in many folders.
fn make_tree(folder: &Path) {
    for number in 0..600_u64 {
        let path = folder.join(format!("tree/{}/{}/{number}.c", number % 12, number % 5));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes(number, 100 + number * 37 % 30_000)).expect("a file");
    }
    run(
        "tar",
        ["-C".as_ref(), folder.as_os_str(), "-cf".as_ref(), folder.join("tree.tar").as_os_str(), "tree".as_ref()],
    );
}

/// Writes a file, and then over a piece of every 64 KiB of it, again and again: its segments are neither all live nor
/// all dead.
fn make_ballast(path: &Path, length: u64) -> Vec<u8> {
    let mut data = bytes(1, length);
    fs::write(path, &data).expect("there is room");
    let file = fs::OpenOptions::new().write(true).open(path).expect("it is there");
    file.sync_all().expect("it can be written");
    for round in 0..7_u64 {
        let piece = bytes(round + 2, 8 * KIB);
        for at in (round * 8 * KIB..length - 64 * KIB).step_by(64 << 10) {
            file.write_all_at(&piece, at).expect("it can be written");
            data[at as usize..][..piece.len()].copy_from_slice(&piece);
        }
        file.sync_all().expect("it can be written");
    }
    data
}

struct Case<'a> {
    make: &'a [&'a str],
    check: &'a [&'a str],
    image: &'a str,
    /// What lies there, and is changed in many places.
    ballast: u64,
    /// The file that fio writes.
    fio: u64,
    /// How often.
    loops: u32,
    log: &'a str,
}

fn programs_run_clean(case: &Case<'_>) {
    let disks = TestDisks::new();
    let image = text(&disks.path("image"));
    let config = format!("[disk]\npath = \"{image}\"\nsize = \"{}\"\n[log]\n{}", case.image, case.log);
    let config = disks.config("store", &config);
    disks.given(&["create", &config]);
    let device = disks.attach(&config);
    run(case.make[0], [&case.make[1..], &[device.as_str()]].concat());
    let source = temp_dir("log-tree");
    make_tree(source.path());
    let ballast = {
        let mount = disks.mount(&device);
        let ballast = make_ballast(&mount.path().join("ballast"), case.ballast);
        postmark(mount.path());
        fio_with_verify(mount.path(), case.fio, case.loops);
        fsx(mount.path());
        run(
            "tar",
            ["-C".as_ref(), mount.path().as_os_str(), "-xf".as_ref(), source.path().join("tree.tar").as_os_str()],
        );
        run("diff", ["-r".into(), source.path().join("tree"), mount.path().join("tree")]);
        ballast
    };
    run(case.check[0], [&case.check[1..], &[device.as_str()]].concat());
    let stats = disks.json(&["stats", "store"]);
    let count = |name: &str| stats[format!("umbrella_log_{name}")].as_u64().expect("a number");
    assert!(count("cleaned_segments_count") >= 20 && count("copied_bytes") > MIB, "it was hardly cleaned: {stats}");
    assert_eq!(disks.status("store")["trouble"], serde_json::json!([]));
    disks.given(&["detach", "store"]);
    disks.given(&["check", &image, "--data"]);

    // What the last daemon left is found again.
    let device = disks.attach(&image);
    {
        let mount = disks.mount(&device);
        run("diff", ["-r".into(), source.path().join("tree"), mount.path().join("tree")]);
        assert!(fs::read(mount.path().join("ballast")).expect("it is there") == ballast);
    }
    disks.given(&["detach", &device]);
}

#[test]
fn programs_run_clean_on_ext4_while_the_store_is_cleaned() {
    programs_run_clean(&Case {
        make: &["mkfs.ext4", "-q", "-F", "-m", "0"],
        check: &["e2fsck", "-f", "-n"],
        image: "112MiB",
        ballast: 34 * MIB,
        fio: 16 * MIB,
        loops: 3,
        log: "scheme = \"r_lfs:regions=3\"\nsegment = \"256KiB\"\nspare = \"10%\"\n",
    });
}

#[test]
fn programs_run_clean_on_xfs_while_the_store_is_cleaned() {
    programs_run_clean(&Case {
        make: &["mkfs.xfs", "-q", "-f"],
        check: &["xfs_repair", "-n"],
        image: "368MiB",
        ballast: 170 * MIB,
        fio: 40 * MIB,
        loops: 2,
        log: "scheme = \"sepgc\"\nvictim = \"greedy\"\nmap_memory = \"256KiB\"\ncheckpoint_every = \"8MiB\"\nquiet = \"100ms\"\n",
    });
}

#[test]
fn a_file_system_filled_to_its_end_and_emptied_again_and_again_never_stops() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "f.img", "--size", "96MiB", "--segment", "256KiB"]);
    let device = disks.attach("f.img");
    run("mkfs.ext4", ["-q", "-F", "-m", "0", "-O", "^has_journal", &device]);
    for round in 0..4_u64 {
        let mount = disks.mount(&device);
        let mut written = Vec::new();
        for number in 0.. {
            let path = mount.path().join(format!("{round}-{number}"));
            let data = bytes(round << 32 | number, 300 * KIB + number * 7919 % 100_000);
            // Full: the file system says so, and the store does not.
            let Ok(()) = fs::write(&path, &data) else { break };
            written.push((path, data));
        }
        assert!(written.len() > 100, "round {round}: only {} files", written.len());
        let folder = fs::File::open(mount.path()).expect("it is mounted");
        rustix::fs::syncfs(&folder).expect("what fitted can be written");
        drop(folder);
        for (path, data) in written.iter().step_by(7) {
            assert!(&fs::read(path).expect("it is there") == data, "{} is another", path.display());
        }
        drop(mount);
        let mount = disks.mount(&device);
        for (number, (path, data)) in written.iter().enumerate() {
            assert!(number % 5 > 0 || &fs::read(path).expect("it is there") == data, "{} is another", path.display());
            fs::remove_file(path).expect("it can be removed");
        }
        let _ = fs::remove_file(mount.path().join(format!("{round}-{}", written.len())));
    }
    run("e2fsck", ["-f", "-n", &device]);
    assert_eq!(disks.status("f.img")["trouble"], serde_json::json!([]));
    disks.given(&["detach", "f.img"]);
    disks.given(&["check", "f.img", "--data"]);
}
