//! `umbrella disk attach --front ublk` on a machine that has the driver: Debian's 6.12 kernel, emulated by qemu, with
//! nothing on it but a few tools and `umbrella`. What is done there is in `ublk/init.sh`, and each of its steps has
//! to be reported as done.
#![cfg(feature = "ublk")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const INIT: &str = include_str!("ublk/init.sh");
/// Modules that the machine may ask for; what the kernel has built in needs none.
const MODULES: [&str; 3] = ["ublk_drv", "ext4", "mq-deadline"];
/// Programs besides `umbrella` and busybox, and where the machine has them.
const PROGRAMS: [(&str, &str); 4] = [
    ("/bin/dd", "bin/dd"),
    ("/sbin/blkdiscard", "sbin/blkdiscard"),
    ("/sbin/mke2fs", "sbin/mkfs.ext4"),
    ("/sbin/e2fsck", "sbin/fsck.ext4"),
];
/// The longest that the machine may run, in seconds; it takes less than a fifth of that.
const LIMIT: &str = "300";

#[test]
fn every_step_is_done_on_a_machine_with_the_driver() {
    let kernel = Kernel::unpacked();
    let work = tempfile::tempdir().expect("there is a place for temporary files");
    let archive = work.path().join("initramfs");
    fs::write(&archive, initramfs(&kernel, &work.path().join("root"))).expect("the archive can be written");
    let begun = Instant::now();
    let verdicts = boot(&kernel.image, &archive);
    eprintln!("the machine ran for {:.1} s", begun.elapsed().as_secs_f64());
    let done: Vec<&str> = verdicts.iter().filter_map(|line| line.strip_prefix("ok ")?.split(' ').next()).collect();
    let expected: Vec<&str> = INIT.lines().filter_map(|line| line.strip_prefix("step ")).collect();
    assert!(expected.len() > 10, "the steps are found: {expected:?}");
    assert_eq!(done, expected, "{verdicts:#?}");
    assert_eq!(verdicts.last().map(String::as_str), Some("end"), "{verdicts:#?}");
}

/// What `scripts/setup.sh ublk` has unpacked of Debian's kernel.
struct Kernel {
    folder: PathBuf,
    image: PathBuf,
    version: String,
}

impl Kernel {
    fn unpacked() -> Kernel {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ublk/kernel");
        let modules = folder.join("lib/modules");
        let found = fs::read_dir(&modules).ok().and_then(|mut entries| entries.next()?.ok());
        let found = found.unwrap_or_else(|| panic!("{} is missing: run `scripts/setup.sh ublk`", modules.display()));
        let version = found.file_name().into_string().expect("a version is text");
        let image = folder.join(format!("boot/vmlinuz-{version}"));
        Kernel { folder, image, version }
    }

    /// The files of a module and of those that it needs.
    fn files_of(&self, module: &str) -> Vec<PathBuf> {
        let folder = self.folder.to_str().expect("the path is text");
        let needs = output("modprobe", &["-d", folder, "-S", &self.version, "--show-depends", module]);
        // `builtin` and the name of what needs no file.
        needs.lines().filter_map(|line| line.trim().strip_prefix("insmod ")).map(PathBuf::from).collect()
    }
}

/// The machine's files, as the kernel unpacks them.
fn initramfs(kernel: &Kernel, root: &Path) -> Vec<u8> {
    for folder in ["bin", "sbin", "dev"] {
        fs::create_dir_all(root.join(folder)).expect("the folder is new");
    }
    fs::write(root.join("init"), INIT).expect("the folder can be written");
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
    symlink("/bin/busybox", root.join("sbin/modprobe")).expect("the folder is new");
    let umbrella = root.join("bin/umbrella");
    let stripped = umbrella.to_str().expect("the path is text");
    output("strip", &["-o", stripped, env!("CARGO_BIN_EXE_umbrella")]);
    copy_libraries(Path::new(env!("CARGO_BIN_EXE_umbrella")), root);
    for (from, to) in PROGRAMS {
        fs::copy(from, root.join(to)).expect("e2fsprogs is installed");
        copy_libraries(Path::new(from), root);
    }
    let modules = Path::new("lib/modules").join(&kernel.version);
    for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        copy(&kernel.folder.join(&modules).join(name), &root.join(&modules).join(name));
    }
    for file in MODULES.iter().flat_map(|module| kernel.files_of(module)) {
        let inside = file.strip_prefix(&kernel.folder).expect("it is the kernel's");
        copy(&file, &root.join(inside));
        if file.extension().is_some_and(|ending| ending == "xz") {
            output("xz", &["--decompress", "--force", root.join(inside).to_str().expect("the path is text")]);
        }
    }
    output("depmod", &["-b", root.to_str().expect("the path is text"), &kernel.version]);
    let archive = Command::new("sh")
        .args(["-c", "find . | busybox cpio -o -H newc"])
        .current_dir(root)
        .stderr(Stdio::null())
        .output()
        .expect("there is a shell");
    assert!(archive.status.success());
    archive.stdout
}

/// Copies what a program is linked with to the same places.
fn copy_libraries(program: &Path, root: &Path) {
    let listed = output("ldd", &[program.to_str().expect("the path is text")]);
    for library in listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/'))) {
        copy(Path::new(library), &root.join(library.trim_start_matches('/')));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("the folder can be made");
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

/// Runs the machine until it switches itself off, at most for [`LIMIT`]. Returns its verdicts; all that it says is
/// printed.
fn boot(image: &Path, archive: &Path) -> Vec<String> {
    let mut machine = Command::new("timeout")
        .args([
            "--kill-after=5",
            LIMIT,
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "512M",
        ])
        .args(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-append"])
        .arg("console=ttyS0 quiet panic=-1")
        .args([Path::new("-kernel"), image, Path::new("-initrd"), archive])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("timeout is part of coreutils");
    let said = BufReader::new(machine.stdout.take().expect("it is a pipe"));
    let mut verdicts = Vec::new();
    for line in said.split(b'\n') {
        let line = line.expect("the pipe can be read");
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        println!("{line}");
        if let Some((_, verdict)) = line.split_once("verdict: ") {
            verdicts.push(verdict.to_owned());
        }
    }
    let status = machine.wait().expect("it was started");
    assert!(status.success(), "the machine was stopped after {LIMIT} s, or qemu-system-x86_64 is missing: {status}");
    verdicts
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error} (run `scripts/setup.sh ublk`)"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}
