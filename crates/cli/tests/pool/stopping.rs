//! Ctrl-C, and an unmount, while files move: what is done stays, what is left is said, and nothing is half moved.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::disk::Disk;
use crate::support::pool::{Builder, Pool};
use crate::support::tree::names;
use crate::support::{MIB, bytes, eventually};

/// So slow that a file of 12 MiB takes minutes.
const SLOWLY: &str = "[enforce]\nbandwidth = \"64KiB\"";

/// `a` with a small file and a large one, and `b`.
fn builder() -> ([Disk; 2], Builder) {
    let disks = [Disk::tmpfs(64 * MIB), Disk::tmpfs(64 * MIB)];
    fs::create_dir(disks[0].join("dir")).unwrap();
    fs::write(disks[0].join("dir/small"), bytes(1, 4096)).unwrap();
    fs::write(disks[0].join("large"), bytes(2, 12 * MIB)).unwrap();
    let builder = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path()).keys(SLOWLY);
    (disks, builder)
}

fn start(pool: &Pool, args: &[&str]) -> Child {
    pool.command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Ctrl-C in the middle of the copy of the large file; what the command said then.
fn stop_in_the_middle(pool: &Pool, disks: &[Disk; 2], mut command: Child) -> (ExitStatus, String) {
    let to = || disks.iter().any(|disk| is_being_copied(&disk.path()));
    eventually("the large file is being copied", to);
    kill_process(Pid::from_child(&command), Signal::INT).unwrap();
    let mut said = String::new();
    command.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = command.wait().unwrap();
    assert!(!to(), "the command ends after the copy was dropped");
    pool.settle();
    assert!(fs::read(pool.join("large")).unwrap() == bytes(2, 12 * MIB));
    assert!(fs::read(pool.join("dir/small")).unwrap() == bytes(1, 4096));
    assert_eq!(pool.found_on("large"), ["a"]);
    assert_eq!(pool.found_on("dir/small").len(), 1);
    for disk in disks {
        assert_eq!(names(&disk.join(".umbrella/intents")), Vec::<String>::new());
    }
    (status, said)
}

/// Whether the copy has data: small files are done with by then.
fn is_being_copied(branch: &Path) -> bool {
    let temps = fs::read_dir(branch.join(".umbrella/tmp")).unwrap();
    temps.flatten().any(|temp| temp.metadata().is_ok_and(|meta| meta.len() >= 12 * MIB))
}

#[test]
fn a_walk_that_is_interrupted_says_what_is_done_and_what_is_left() {
    let (disks, builder) = builder();
    let pool = builder.rules("[[rule]]\nname = \"all\"\nwhen = { path = \"/**\" }\nto = [\"b\"]\n").mount();
    let (status, said) = stop_in_the_middle(&pool, &disks, start(&pool, &["enforce"]));
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(
        said.contains("stopped before the end, ") && said.contains("run the same command again to continue"),
        "{said}"
    );
    assert!(said.contains(" found but not yet moved"), "{said}");
    let (again, _) = stop_in_the_middle(&pool, &disks, start(&pool, &["enforce", "--json"]));
    assert_eq!(again.code(), Some(130));
}

#[test]
fn a_drain_that_is_interrupted_says_what_is_left_and_goes_on_when_it_is_asked_again() {
    let (disks, builder) = builder();
    let mut pool = builder.default(&["a", "b"]).mount();
    let (status, said) = stop_in_the_middle(&pool, &disks, start(&pool, &["branch", "drain", "a"]));
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("stopped before the end") && said.contains("still gets no new files"), "{said}");
    assert!(pool.branch_status("a").draining);
    pool.write_keys("");
    pool.say(["rules", "reload"]);
    pool.say(["branch", "drain", "a"]);
    assert_eq!((pool.found_on("large"), pool.found_on("dir/small")), (vec!["b".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn a_balance_that_is_interrupted_says_how_much_is_left() {
    let (disks, builder) = builder();
    fs::write(disks[0].join("other"), bytes(3, 12 * MIB)).unwrap();
    let group = "[[group]]\nname = \"all\"\nbranches = [\"a\", \"b\"]\n";
    let pool = builder.default(&["all"]).rules(group).mount();
    // Either of the two is to move.
    let mut command = start(&pool, &["balance", "all"]);
    eventually("a large file is being copied", || is_being_copied(&disks[1].path()));
    kill_process(Pid::from_child(&command), Signal::INT).unwrap();
    let mut said = String::new();
    command.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(command.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("stopped before the end") && said.contains("12 MiB of 12 MiB are left to move"), "{said}");
    assert_eq!(names(&disks[1].join(".umbrella/tmp")), Vec::<String>::new());
    assert_eq!((pool.found_on("large"), pool.found_on("other")), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn a_second_interrupt_ends_the_command_and_the_walk() {
    let (disks, builder) = builder();
    let pool = builder.rules("[[rule]]\nname = \"all\"\nwhen = { path = \"/**\" }\nto = [\"b\"]\n").mount();
    let mut command = start(&pool, &["enforce"]);
    eventually("the large file is being copied", || is_being_copied(&disks[1].path()));
    rustix::process::kill_process(Pid::from_raw(pool.pid() as i32).unwrap(), Signal::STOP).unwrap();
    for _ in 0..2 {
        kill_process(Pid::from_child(&command), Signal::INT).unwrap();
        // The first one is heard before the second comes: signals of one kind are not counted.
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(command.stderr.as_mut().unwrap()), &mut line).unwrap();
    }
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&command.wait().unwrap()), Some(libc::SIGINT));
    rustix::process::kill_process(Pid::from_raw(pool.pid() as i32).unwrap(), Signal::CONT).unwrap();
    eventually("the walk ends", || !is_being_copied(&disks[1].path()) && pool.status().walks.is_empty());
    assert_eq!(pool.found_on("large"), ["a"]);
}
