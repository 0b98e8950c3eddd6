//! The binary: wrong configurations, the control socket, mount(8), signals.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::disk::{Disk, is_mount_point};
use crate::support::pool::{Pool, UMBRELLA, text};
use crate::support::process::{as_nobody, is_alive, signal, waits};
use crate::support::{MIB, bytes, eventually, poll, run, temp_dir};
use crate::{disks, last_read_days_ago, names, pool};

/// What `umbrella check` says of this text, and whether it succeeds. `DIR` stands for a folder with branches `a` and
/// `b`.
fn check(config: &str) -> (bool, String) {
    let dir = temp_dir("check");
    for name in ["a", "b", "mnt", "a/inside", "mnt/inside"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    std::os::unix::fs::symlink("a", dir.path().join("alias")).unwrap();
    let file = dir.path().join("pool.toml");
    fs::write(&file, config.replace("DIR", dir.path().to_str().unwrap())).unwrap();
    let output = Command::new(UMBRELLA).arg("check").arg(&file).output().unwrap();
    (output.status.success(), text(&output))
}

const GOOD: &str = r#"mount = "DIR/mnt"
default = ["a"]
[[branch]]
name = "a"
path = "DIR/a"
[[branch]]
name = "b"
path = "DIR/b"
[[rule]]
name = "large"
when = { size = ">= 1MiB" }
to = ["b"]
"#;

#[test]
fn a_good_configuration_passes() {
    let (good, said) = check(GOOD);
    assert!(good, "{said}");
}

#[test]
fn every_mistake_is_named_with_its_place() {
    let cases = [
        ("not TOML", GOOD.replace("default = [\"a\"]", "default = [\"a\""), vec![":3"]),
        ("an unknown key", GOOD.replace("to = [\"b\"]", "too = [\"b\"]"), vec![":12", "too", "to"]),
        ("an unknown branch in a rule", GOOD.replace("to = [\"b\"]", "to = [\"c\"]"), vec![":12", "\"c\"", "\"b\""]),
        (
            "an unknown branch in the default",
            GOOD.replace("default = [\"a\"]", "default = [\"x\"]"),
            vec![":2", "\"x\""],
        ),
        ("a branch inside another", GOOD.replace("DIR/b", "DIR/a/inside"), vec![":8", "inside"]),
        ("a branch twice", GOOD.replace("DIR/b", "DIR/a"), vec![":8", "same"]),
        ("a branch twice by a link", GOOD.replace("DIR/b", "DIR/alias"), vec![":8", "same"]),
        ("a branch inside the mount", GOOD.replace("DIR/b", "DIR/mnt/inside"), vec![":8", "mount"]),
        ("the mount inside a branch", GOOD.replace("DIR/mnt", "DIR/a/inside"), vec![":1", "inside"]),
        ("a bad size", GOOD.replace("1MiB", "1 banana"), vec![":11", "banana"]),
        ("a bad share", GOOD.replace("path = \"DIR/a\"", "path = \"DIR/a\"\nmin_free = \"500%\""), vec![":6", "500%"]),
        (
            "a bad pattern",
            GOOD.replace("when = { size = \">= 1MiB\" }\nto = [\"b\"]", "match = [{ glob = \"/[\", to = \"b\" }]"),
            vec![":11", "/["],
        ),
        ("no destination", GOOD.replace("to = [\"b\"]\n", ""), vec!["to"]),
        ("a relative path", GOOD.replace("DIR/b", "b"), vec![":8", "absolute"]),
        ("two branches of one name", GOOD.replace("name = \"b\"", "name = \"a\""), vec![":7", "\"a\""]),
        ("no mount", GOOD.replace("mount = \"DIR/mnt\"\n", ""), vec!["mount"]),
    ];
    for (what, config, expected) in cases {
        assert_ne!(config, GOOD, "{what}");
        let (good, said) = check(&config);
        assert!(!good, "{what} is refused: {said}");
        for word in expected {
            assert!(said.contains(word), "{what}: {word:?} is in: {said}");
        }
        assert!(!said.contains("panicked"), "{what}: {said}");
    }
}

#[test]
fn a_configuration_that_is_not_text_is_refused() {
    let dir = temp_dir("check");
    fs::write(dir.path().join("pool.toml"), b"mount = \"/x\xff\"").unwrap();
    let output = Command::new(UMBRELLA).arg("check").arg(dir.path().join("pool.toml")).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("UTF-8"), "{}", text(&output));
    let directory = Command::new(UMBRELLA).args(["check", "/tmp"]).output().unwrap();
    assert!(text(&directory).contains("is a directory; name the configuration file"), "{}", text(&directory));
    let missing = Command::new(UMBRELLA).args(["check", "/does/not/exist"]).output().unwrap();
    assert!(!missing.status.success() && text(&missing).contains("/does/not/exist"), "{}", text(&missing));
}

#[test]
fn a_branch_that_is_no_longer_mounted_is_not_called_ok() {
    let (disks, builder) = disks(["a", "b"]);
    let mut pool = builder.mount();
    let said = pool.say(["check".as_ref(), pool.config_path().as_os_str()]);
    assert!(said.contains(": ok ("), "{said}");
    pool.stop();
    disks[1].vanish();
    let config = pool.config_path();
    let said = pool.say(["check".as_ref(), config.as_os_str()]);
    assert!(said.contains("is not mounted, but was") && said.contains("not there now: \"b\""), "{said}");
    assert!(!said.contains(": ok"), "{said}");
    let report = pool.json(["check".as_ref(), config.as_os_str()]).remove(0);
    assert_eq!((report["ok"].as_bool(), report["missing"].to_string().as_str()), (Some(true), "[\"b\"]"));
}

#[test]
fn rules_that_can_never_match_are_listed() {
    let never = GOOD.to_owned()
        + "[[rule]]\nname = \"shadowed\"\nwhen = { size = \">= 2MiB\" }\nto = [\"a\"]\n\
           [[rule]]\nname = \"contradiction\"\nwhen = { size = [\"> 10\", \"< 5\"] }\nto = [\"a\"]\n";
    let (_, said) = check(&never);
    assert!(said.contains("shadowed") && said.contains("contradiction"), "{said}");
    assert!(!said.contains("\"large\" can never"), "{said}");
}

#[test]
fn a_wrong_configuration_does_not_mount() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.rules("[[rule]]\nname = \"r\"\nwhen = {}\nto = [\"zzz\"]\n").prepare();
    let error = pool.try_start().expect_err("the rule names no branch");
    assert!(error.contains("zzz"), "{error}");
    assert!(!is_mount_point(&pool.mount_point()));
}

/// Unix sockets below the folder of a pool.
fn sockets(pool: &Pool) -> Vec<PathBuf> {
    let entries = fs::read_dir(pool.dir().join("run")).unwrap().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket())).map(|entry| entry.path()).collect()
}

#[test]
fn the_control_socket_is_for_the_owner_only() {
    let pool = pool(["a"], "");
    let sockets = sockets(&pool);
    assert_eq!(sockets.len(), 1);
    let mode = fs::metadata(&sockets[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "mode {mode:o}");
    assert!(UnixStream::connect(&sockets[0]).is_ok());
    assert!(as_nobody(|| UnixStream::connect(&sockets[0])).is_err());
    // Also when somebody opens its mode by mistake, only the owner is answered.
    fs::set_permissions(&sockets[0], fs::Permissions::from_mode(0o666)).unwrap();
    let heard = as_nobody(|| {
        use std::io::{Read, Write};
        let mut socket = UnixStream::connect(&sockets[0])?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        socket.write_all(b"{\"request\":\"status\"}\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map(|_| answer)
    });
    assert!(!heard.as_ref().is_ok_and(|answer| answer.contains("branches")), "nobody is told the status: {heard:?}");
}

#[test]
fn rubbish_on_the_control_socket_harms_nobody() {
    use std::io::{Read, Write};
    let pool = pool(["a"], "");
    let socket = &sockets(&pool)[0];
    let long = [b'x'; 200_000];
    for rubbish in
        [&b"\n"[..], b"{}\n", b"\xff\xfe\0\n", b"{\"request\":\"no such\"}\n", b"{\"request\":\"status\"", &long]
    {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(rubbish);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    let _silent = UnixStream::connect(socket).unwrap();
    assert_eq!(pool.status().branches.len(), 1, "the daemon answers, also beside a client that says nothing");
}

#[test]
fn a_second_mount_of_the_same_pool_is_refused() {
    let pool = pool(["a"], "");
    fs::write(pool.join("file"), "x").unwrap();
    let second = pool.command().arg("mount").arg(pool.config_path()).output().unwrap();
    assert!(!second.status.success());
    assert!(text(&second).contains("mounted"), "{}", text(&second));
    assert_eq!(fs::read(pool.join("file")).unwrap(), b"x", "the first goes on");
    assert_eq!(pool.status().pid, pool.pid());
}

#[test]
fn a_branch_of_a_mounted_pool_cannot_serve_another() {
    let first = pool(["a"], "");
    let mut second = Pool::builder().branch("stolen", first.disks[0].path()).prepare();
    let error = second.try_start().expect_err("two daemons on one branch would not know of each other");
    assert!(error.contains("stolen"), "{error}");
    fs::write(first.join("file"), "x").unwrap();
}

fn mount_as_daemon(pool: &Pool) -> Output {
    let mut mount = pool.command();
    mount.arg("mount").arg(pool.config_path()).args(["--daemon", "--log"]).arg(pool.dir().join("log"));
    mount.output().unwrap()
}

#[test]
fn a_daemon_detaches_once_the_mount_is_ready() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    let output = mount_as_daemon(&pool);
    assert!(output.status.success(), "{}", text(&output));
    fs::write(pool.join("file"), "at once").expect("it is ready when the command returns");
    let pid = pool.status().pid;
    assert!(is_alive(pid));
    pool.say(["unmount"]);
    assert!(!is_mount_point(&pool.mount_point()));
    eventually("the daemon ends", || !is_alive(pid));
    assert_eq!(fs::read(pool.on("a", "file")).unwrap(), b"at once");
}

#[test]
fn a_daemon_that_cannot_mount_says_so_before_it_returns() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.branch("gone", "/does/not/exist").prepare();
    let output = mount_as_daemon(&pool);
    assert!(!output.status.success());
    assert!(text(&output).contains("gone"), "{}", text(&output));
}

/// `mount -t fuse.umbrella CONFIG DIR`, as a line in /etc/fstab does it. mount(8) looks for the binary where programs
/// are installed. The test puts it there in a mount namespace of its own, in which everything else happens too.
#[test]
fn mount_8_mounts_a_pool() {
    let (_disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    let script = r#"set -eu
mount -t tmpfs none /usr/local/sbin
ln -s "$BINARY" /usr/local/sbin/umbrella
mount -t fuse.umbrella -o nosuid,noatime "$CONFIG" "$DIR"
echo "through mount(8)" > "$DIR/file"
grep " $DIR " /proc/self/mounts
echo "$CONFIG $DIR fuse.umbrella nosuid,noatime 0 0" > "$STATUS.fstab"
mount -a -T "$STATUS.fstab"
test "$(grep -c " $DIR " /proc/self/mounts)" = 1
if mount -T "$STATUS.fstab" -o remount,ro "$DIR" 2> "$STATUS.remount"; then exit 3; fi
grep "cannot be remounted" "$STATUS.remount" || { cat "$STATUS.remount"; exit 4; }
"$BINARY" status --json > "$STATUS"
umount "$DIR"
"#;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .env("BINARY", UMBRELLA)
        .env("CONFIG", pool.config_path())
        .env("DIR", pool.mount_point())
        .env("STATUS", pool.dir().join("status.json"))
        .env("UMBRELLA_RUN_DIR", pool.dir().join("run"))
        .env("UMBRELLA_STATE_DIR", pool.dir().join("state"))
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("fuse.umbrella") && text(&output).contains("nosuid"), "{}", text(&output));
    let status = fs::read_to_string(pool.dir().join("status.json")).unwrap();
    let pid = serde_json::from_str::<serde_json::Value>(&status).unwrap()["pid"].as_u64().unwrap() as u32;
    eventually("the daemon ends after umount(8)", || !is_alive(pid));
    assert_eq!(fs::read(pool.on("a", "file")).unwrap(), b"through mount(8)\n");
}

#[test]
fn signals_unmount_cleanly() {
    for stop in [Signal::SIGTERM, Signal::SIGINT] {
        let mut pool = pool(["a"], "");
        fs::write(pool.join("file"), "x").unwrap();
        signal(pool.pid(), stop);
        assert_eq!(pool.pool.wait_for_end(), Some(true), "{stop}");
        assert!(!is_mount_point(&pool.mount_point()), "{stop}");
        pool.pool.start();
        assert_eq!(fs::read(pool.join("file")).unwrap(), b"x");
    }
}

#[test]
fn sigterm_during_a_relocation_leaves_one_whole_copy() {
    let (disks, builder) = disks(["warm", "cold"]);
    // The whole copy takes longer than the end of the daemon is waited for.
    let mut pool = builder.keys("[enforce]\nbandwidth = \"128KiB\"").mount();
    let data = bytes(1, 16 * MIB);
    fs::write(pool.join("file"), &data).unwrap();
    last_read_days_ago(&pool.join("file"), 40);
    pool.settle();
    pool.load_rules("[[rule]]\nname = \"cold\"\nwhen = { atime = \"> 30d\" }\nto = [\"cold\"]\n");
    let mut walk = pool
        .command()
        .args(["enforce", "--json"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("it is being copied", || !names(&disks[1].join(".umbrella/tmp")).is_empty());
    assert!(walk.try_wait().unwrap().is_none(), "the copy takes two minutes");
    signal(pool.pid(), Signal::SIGTERM);
    assert_eq!(pool.wait_for_end(), Some(true));
    assert!(poll(Duration::from_secs(60), || walk.try_wait().unwrap()).is_some(), "the command ends with the daemon");
    assert!(!is_mount_point(&pool.mount_point()));
    let copies: Vec<_> = disks.iter().flat_map(Disk::files).collect();
    assert_eq!(copies, [PathBuf::from("file")], "one copy, and nothing half-made beside it");
    assert!(disks[1].free() > 31 * MIB || disks[0].free() > 31 * MIB, "no space is lost");
    pool.start();
    assert!(fs::read(pool.join("file")).unwrap() == data);
}

#[test]
fn a_path_in_no_pool_is_named_with_the_pools_that_there_are() {
    let dir = temp_dir("none");
    let none = |args: &[&str]| {
        let command = &mut Command::new(UMBRELLA);
        text(
            &command
                .args(args)
                .env("UMBRELLA_RUN_DIR", dir.path())
                .env("UMBRELLA_STATE_DIR", dir.path())
                .output()
                .unwrap(),
        )
    };
    for args in [&["explain", "/srv/none/x"][..], &["repair", "--equalise", "/srv/none/x"]] {
        let said = none(args);
        assert!(said.contains("/srv/none/x: no pool is mounted") && !said.contains("umbrella status"), "{said}");
    }
    let pool = pool(["a"], "");
    let said = text(&pool.umbrella(["repair", "--equalise", "/srv/none/x"]));
    let mounted = format!("/srv/none/x: in no mounted pool; mounted: {}", pool.mount_point().display());
    assert!(said.contains(&mounted), "{said}");
}

#[test]
fn commands_without_a_pool_say_what_to_do() {
    let dir = temp_dir("none");
    for args in [&["status"][..], &["unmount"], &["enforce"], &["branch", "list"], &["explain", "/x"]] {
        let output = Command::new(UMBRELLA).args(args).env("UMBRELLA_RUN_DIR", dir.path()).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(
            ["umbrella mount", "in no mounted pool"].iter().any(|hint| text(&output).contains(hint)),
            "{args:?}: {}",
            text(&output)
        );
    }
}

#[test]
fn who_may_not_ask_is_told_so_and_not_that_nothing_is_mounted() {
    let pool = pool(["a"], "");
    fs::write(pool.join("file"), "x").unwrap();
    // The binary is where nobody may go.
    let binary = pool.dir().parent().unwrap().join(format!("umbrella-{}", pool.pid()));
    // By another process: whatever this one has open to write, its children have until they run.
    run("cp", [UMBRELLA.as_ref(), binary.as_os_str()]);
    for args in [vec!["status"], vec!["status", "MOUNT"], vec!["enforce", "MOUNT"], vec!["explain", "MOUNT/file"]] {
        let mount = pool.mount_point().to_str().unwrap().to_owned();
        let args: Vec<String> = args.iter().map(|arg| arg.replace("MOUNT", &mount)).collect();
        let run = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&binary)
            .args(&args)
            .env_remove("UMBRELLA_RUN_DIR")
            .env_remove("XDG_RUNTIME_DIR")
            .output()
            .unwrap();
        let said = text(&run);
        assert!(!run.status.success(), "{args:?}: {said}");
        let expected = "permission denied: run as root or as the owner of the mount";
        assert!(said.contains(expected) && said.contains(&mount), "{args:?}: {said}");
    }
    fs::remove_file(&binary).unwrap();
}

#[test]
fn who_may_not_mount_is_told_so_before_anything_is_written() {
    let (disks, builder) = disks(["a"]);
    let pool = builder.prepare();
    fs::set_permissions(pool.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(disks[0].path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = pool.dir().join("umbrella");
    // By another process: whatever this one has open to write, its children have until they run.
    run("cp", [UMBRELLA.as_ref(), binary.as_os_str()]);
    let run = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .arg("mount")
        .arg(pool.config_path())
        .output()
        .unwrap();
    assert!(!run.status.success() && text(&run).contains("run this as root"), "{}", text(&run));
    assert_eq!(fs::read_dir(disks[0].path()).unwrap().count(), 0, "nothing is written to the branch");
}

#[test]
fn the_daemon_survives_what_its_mount_point_held_before() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.prepare();
    fs::write(pool.mount_point().join("hidden"), "below").unwrap();
    match pool.try_start() {
        Ok(()) => {
            assert!(!pool.join("hidden").exists());
            assert!(pool.log().contains("is not empty"), "{}", pool.log());
            pool.stop();
        }
        Err(error) => assert!(error.contains("empty"), "{error}"),
    }
    assert_eq!(fs::read(pool.mount_point().join("hidden")).unwrap(), b"below");
}

#[test]
fn a_tree_that_is_in_use_for_a_moment_is_unmounted() {
    let a = Disk::tmpfs(8 * MIB);
    let mut pool = Pool::builder().branch("a", a.path()).mount();
    // It is tried for a second: where the file was closed later than that, nothing is known, and it is done again.
    let waited = (0..20).any(|_| {
        let used = fs::File::create(pool.join("file")).unwrap();
        let mut unmounts = pool.command().arg("unmount").stderr(Stdio::null()).spawn().unwrap();
        let waits = waits(&mut unmounts);
        drop(used);
        unmounts.wait().unwrap().success() && waits
    });
    assert!(waited, "nobody waits: {}", pool.log());
    assert_eq!(pool.wait_for_end(), Some(true));
}
