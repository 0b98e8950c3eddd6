use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use umbrella_units::{Amount, BranchId, ByteSize};
use uuid::Uuid;

use super::beneath::{open_beneath, parent_beneath};
use super::identity::Marker;
use super::prober::Hook;
use super::state::Remembered;
use super::*;
use crate::ground::workers::CALLS;

fn spec(name: &str, path: &Path) -> BranchSpec {
    BranchSpec { min_free: Amount::Bytes(ByteSize(4096)), ..BranchSpec::new(name, path) }
}

/// A folder with room for branches and a pool's memory.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn dir(&self, name: &str) -> std::path::PathBuf {
        let dir = self.0.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// As after a restart of the daemon.
    fn state(&self) -> Arc<StateDir> {
        StateDir::open(&self.0.path().join("state"), Path::new("/srv/pool")).unwrap()
    }

    fn branch(&self, name: &str, state: &Arc<StateDir>) -> Arc<Branch> {
        Branch::new(BranchId(0), spec(name, &self.dir(name)), Arc::clone(state))
    }
}

fn reason(branch: &Branch) -> String {
    match branch.branch_state() {
        BranchState::Offline { reason, .. } => reason,
        BranchState::Online => panic!("the branch is online"),
    }
}

#[test]
fn a_branch_keeps_its_identity_and_slot_over_restarts() {
    let place = Place::new();
    let seen = |state| {
        let (first, second) = (place.branch("first", &state), place.branch("second", &state));
        first.bring_online().unwrap();
        second.bring_online().unwrap();
        let (first, second) = (first.online().unwrap(), second.online().unwrap());
        assert_ne!(first.epoch, second.epoch);
        (first.uuid, first.slot, second.uuid, second.slot)
    };
    let before = seen(place.state());
    assert_eq!((before.1, before.3), (1, 2));
    assert_eq!(seen(place.state()), before);
}

#[test]
fn a_branch_keeps_identity_and_slot_when_the_memory_of_the_pool_is_lost() {
    let place = Place::new();
    let state = place.state();
    for name in ["first", "second"] {
        place.branch(name, &state).bring_online().unwrap();
    }
    std::fs::remove_dir_all(place.0.path().join("state")).unwrap();
    let state = place.state();
    let second = place.branch("second", &state);
    second.bring_online().unwrap();
    let first = place.branch("first", &state);
    first.bring_online().unwrap();
    assert_eq!((first.online().unwrap().slot, second.online().unwrap().slot), (1, 2));
}

#[test]
fn the_hidden_folder_is_for_the_daemon_only() {
    let place = Place::new();
    place.branch("disk", &place.state()).bring_online().unwrap();
    let hidden = place.dir("disk").join(HIDDEN_DIR);
    assert_eq!(std::fs::metadata(&hidden).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(std::fs::read_dir(hidden.join("tmp")).unwrap().count(), 0, "trials are cleaned up");
    let mut names: Vec<_> = std::fs::read_dir(&hidden).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["branch.json", "intents", "tmp"]);
}

#[test]
fn a_missing_directory_is_an_offline_branch() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    std::fs::remove_dir(place.dir("disk")).unwrap();
    assert!(matches!(branch.bring_online(), Err(BranchError::Open { source: Errno::NOENT, .. })));
    assert!(reason(&branch).contains("cannot be opened"));
    assert_eq!(branch.io(|_| Ok(())), Err(OFFLINE));
    let view = branch.view();
    assert!(!view.online && !view.writable);
}

#[test]
fn a_directory_that_lost_its_marker_is_not_the_branch_and_stays_empty() {
    let place = Place::new();
    place.branch("disk", &place.state()).bring_online().unwrap();
    let dir = place.dir("disk");
    std::fs::remove_dir_all(dir.join(HIDDEN_DIR)).unwrap();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap_err();
    let told = reason(&branch);
    let begin = format!("\"{}\" is not the branch: .umbrella/branch.json is gone", dir.display());
    assert!(told.starts_with(&begin), "{told}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn another_branch_at_the_path_is_refused_until_the_old_one_is_forgotten() {
    let place = Place::new();
    let state = place.state();
    place.branch("disk", &state).bring_online().unwrap();
    let other = place.branch("other", &state);
    other.bring_online().unwrap();
    let found = other.online().unwrap().uuid;
    drop(other);
    std::fs::remove_dir_all(place.dir("disk")).unwrap();
    std::fs::rename(place.dir("other"), place.0.path().join("disk")).unwrap();
    let branch = place.branch("disk", &state);
    assert!(matches!(branch.bring_online(), Err(BranchError::Another { .. })));
    state.forget("other").unwrap();
    state.forget("disk").unwrap();
    branch.bring_online().unwrap();
    assert_eq!(branch.online().unwrap().uuid, found);
}

#[test]
fn the_slot_of_a_branch_that_left_is_not_given_to_another() {
    let place = Place::new();
    let state = place.state();
    place.branch("first", &state).bring_online().unwrap();
    state.forget("first").unwrap();
    let state = place.state();
    let second = place.branch("second", &state);
    second.bring_online().unwrap();
    assert_eq!(second.online().unwrap().slot, 2);
}

#[test]
fn a_renamed_branch_stays_the_branch_it_was() {
    let place = Place::new();
    let state = place.state();
    let old = place.branch("disk", &state);
    old.bring_online().unwrap();
    let (uuid, slot) = old.online().map(|it| (it.uuid, it.slot)).unwrap();
    drop(old);
    let state = place.state();
    let new = Branch::new(BranchId(0), spec("hdd", &place.dir("disk")), Arc::clone(&state));
    new.bring_online().unwrap();
    assert_eq!(new.online().map(|it| (it.uuid, it.slot)).unwrap(), (uuid, slot));
    assert!(state.branch("disk").is_none());
}

#[test]
fn a_cloned_branch_is_refused_whether_the_original_is_online_or_not() {
    let place = Place::new();
    let state = place.state();
    let first = place.branch("first", &state);
    first.bring_online().unwrap();
    let hidden = place.dir("clone").join(HIDDEN_DIR);
    std::fs::create_dir(&hidden).unwrap();
    std::fs::copy(place.dir("first").join(HIDDEN_DIR).join("branch.json"), hidden.join("branch.json")).unwrap();
    let clone = place.branch("clone", &state);
    for _ in 0..2 {
        let error = clone.bring_online().unwrap_err();
        assert!(matches!(&error, BranchError::Twin { other, .. } if other == "first"), "{error}");
        first.take_offline("test".to_owned());
    }
}

#[test]
fn a_second_daemon_cannot_use_the_branch() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    let other_state = StateDir::open(&place.0.path().join("state"), Path::new("/srv/other")).unwrap();
    let other = place.branch("disk", &other_state);
    assert!(matches!(other.bring_online(), Err(BranchError::InUse { .. })));
    branch.take_offline("test".to_owned());
    other.bring_online().unwrap();
}

#[test]
fn a_branch_is_waited_for_while_the_daemon_that_had_it_comes_to_its_end() {
    let place = Place::new();
    // It is waited for for a second: where the one that had it came to its end later than that, nothing is known, and
    // it is done again.
    let waited = (0..30).any(|_| {
        let had = place.branch("disk", &place.state());
        had.bring_online().unwrap();
        let other = place.branch("disk", &place.state());
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            had.take_offline("test".to_owned());
        });
        let came = other.bring_online();
        ending.join().unwrap();
        assert!(matches!(came, Ok(()) | Err(BranchError::InUse { .. })), "{came:?}");
        other.take_offline("test".to_owned());
        came.is_ok()
    });
    assert!(waited, "nobody waits");
}

#[test]
fn a_branch_comes_back_while_its_old_life_is_still_in_use() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    let old = branch.online().unwrap();
    branch.take_offline("test".to_owned());
    branch.bring_online().unwrap();
    assert!(branch.online().unwrap().epoch > old.epoch);
}

#[test]
fn a_hidden_folder_that_is_a_link_or_somebody_elses_is_refused() {
    let place = Place::new();
    let elsewhere = place.dir("elsewhere");
    symlink(&elsewhere, place.dir("linked").join(HIDDEN_DIR)).unwrap();
    let linked = place.branch("linked", &place.state());
    let error = linked.bring_online().unwrap_err();
    assert!(matches!(error, BranchError::Hidden { problem: HiddenProblem::NotADirectory, .. }), "{error}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);

    let hidden = place.dir("taken").join(HIDDEN_DIR);
    std::fs::create_dir(&hidden).unwrap();
    std::os::unix::fs::chown(&hidden, Some(12345), None).unwrap();
    let taken = place.branch("taken", &place.state());
    let error = taken.bring_online().unwrap_err();
    assert!(matches!(error, BranchError::Hidden { problem: HiddenProblem::Owner { owner: 12345 }, .. }), "{error}");
    assert_eq!(std::fs::read_dir(place.dir("taken")).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn a_damaged_marker_is_reported_and_kept() {
    let place = Place::new();
    place.branch("disk", &place.state()).bring_online().unwrap();
    let marker = place.dir("disk").join(HIDDEN_DIR).join("branch.json");
    std::fs::write(&marker, "{").unwrap();
    let branch = place.branch("disk", &place.state());
    assert!(matches!(branch.bring_online(), Err(BranchError::Marker { .. })));
    assert_eq!(std::fs::read(&marker).unwrap(), b"{");
}

#[test]
fn the_marker_of_the_first_version_can_be_read() {
    let text = br#"{"version":1,"uuid":"000102030405060708090a0b0c0d0e0f","slot":7,"pool":"00000000000000000000000000000001"}"#;
    let marker = Marker::decode(text).unwrap();
    assert_eq!((marker.slot, marker.uuid.as_bytes()[15]), (7, 15));
    Marker::decode(br#"{"version":2,"uuid":"000102030405060708090a0b0c0d0e0f","slot":7,"pool":"00000000000000000000000000000001"}"#)
        .unwrap_err();
}

#[test]
fn a_read_only_branch_is_never_written_and_keeps_its_identity() {
    let place = Place::new();
    let mut spec = spec("archive", &place.dir("archive"));
    spec.read_only = true;
    let online = |spec: &BranchSpec| {
        let branch = Branch::new(BranchId(0), spec.clone(), place.state());
        branch.bring_online().unwrap();
        assert!(!branch.view().writable && branch.view().online);
        branch.online().unwrap()
    };
    let first = online(&spec);
    assert!(first.hidden.is_none());
    assert_eq!(online(&spec).uuid, first.uuid);
    assert_eq!(std::fs::read_dir(place.dir("archive")).unwrap().count(), 0);
    spec.read_only = false;
    let branch = Branch::new(BranchId(0), spec, place.state());
    branch.bring_online().unwrap();
    assert_eq!(branch.online().unwrap().uuid, first.uuid, "also when it may be written later");
}

#[test]
fn a_mount_that_is_required_and_missing_keeps_the_branch_offline() {
    let place = Place::new();
    let mut spec = spec("disk", &place.dir("disk"));
    spec.require_mount = Some(true);
    let branch = Branch::new(BranchId(0), spec, place.state());
    assert!(matches!(branch.bring_online(), Err(BranchError::NotMounted { .. })));
    assert_eq!(std::fs::read_dir(place.dir("disk")).unwrap().count(), 0);
}

#[test]
fn a_probe_finds_a_vanished_branch_and_its_return() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    let soon = TIMEOUT;
    assert_eq!(branch.probe(soon), ProbeResult::Healthy);
    let away = place.0.path().join("away");
    std::fs::rename(place.dir("disk"), &away).unwrap();
    assert!(matches!(branch.probe(soon), ProbeResult::WentOffline { .. }));
    assert!(matches!(branch.probe(soon), ProbeResult::StillOffline { .. }));
    std::fs::create_dir(place.0.path().join("disk")).unwrap();
    assert!(matches!(branch.probe(soon), ProbeResult::StillOffline { .. }), "an empty directory is not the branch");
    std::fs::remove_dir(place.0.path().join("disk")).unwrap();
    std::fs::rename(&away, place.0.path().join("disk")).unwrap();
    assert_eq!(branch.probe(soon), ProbeResult::CameBack);
}

#[test]
fn a_suspect_branch_is_looked_at_closely_and_stays_when_it_is_well() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    assert_eq!(branch.io(|_| Err::<(), _>(Errno::IO)), Err(Errno::IO));
    assert!(branch.is_suspect());
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::Healthy);
    assert!(!branch.is_suspect());
}

/// Something that hangs until it is let go, however the test ends.
struct Gate(Arc<(Mutex<bool>, parking_lot::Condvar)>);

impl Gate {
    fn closed() -> Gate {
        Gate(Arc::default())
    }

    fn waiter(&self) -> impl Fn() + Send + Sync + 'static {
        let gate = Arc::clone(&self.0);
        move || {
            let mut open = gate.0.lock();
            while !*open {
                gate.1.wait(&mut open);
            }
        }
    }

    fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// What is waited for on a machine that does much else.
const TIMEOUT_MS: u64 = 60_000;
const TIMEOUT: Duration = Duration::from_millis(TIMEOUT_MS);

fn guarded(place: &Place, timeout_ms: u64) -> Arc<Branch> {
    let branch = place.branch("far", &place.state());
    branch.bring_online().unwrap();
    branch.take_offline("to be guarded".to_owned());
    branch.set_always_guarded(true);
    branch.bring_online().unwrap();
    branch.set_timeout(Duration::from_millis(timeout_ms));
    assert!(branch.online().unwrap().guarded);
    branch
}

#[test]
fn calls_to_a_guarded_branch_run_elsewhere_and_give_their_result() {
    let place = Place::new();
    let branch = guarded(&place, TIMEOUT_MS);
    let here = std::thread::current().id();
    assert_ne!(branch.io(|_| Ok(std::thread::current().id())).unwrap(), here);
    assert_eq!(branch.io(|_| Err::<(), _>(Errno::NOENT)), Err(Errno::NOENT));
    assert!(branch.is_online());
    let local = place.branch("near", &place.state());
    local.bring_online().unwrap();
    assert_eq!(local.io(|_| Ok(std::thread::current().id())).unwrap(), here);
}

#[test]
fn a_call_that_hangs_takes_its_branch_offline_and_frees_everybody_who_waits() {
    let place = Place::new();
    let branch = guarded(&place, 300);
    let gate = Gate::closed();
    let (hang, other_hang) = (gate.waiter(), gate.waiter());
    let patient = Arc::clone(&branch);
    let other = std::thread::spawn(move || {
        patient.io_within(Duration::from_secs(600), move |_| {
            other_hang();
            Ok(())
        })
    });
    let hung = branch.io(move |_| {
        hang();
        Ok(())
    });
    assert_eq!(hung, Err(Errno::TIMEDOUT));
    assert_eq!(other.join().unwrap(), Err(OFFLINE), "long before its own time is over");
    assert!(reason(&branch).contains("does not answer"));
    assert_eq!(branch.io(|_| Ok(())), Err(OFFLINE));
    branch.set_timeout(TIMEOUT);
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::CameBack);
    branch.io(|_| Ok(())).unwrap();
}

#[test]
fn a_branch_that_hangs_again_and_again_has_a_bounded_number_of_threads() {
    let place = Place::new();
    let branch = guarded(&place, TIMEOUT_MS);
    let gate = Gate::closed();
    let mut refused_at_once = false;
    let deadline = Instant::now() + TIMEOUT;
    // On a busy machine not every call begins before it is given up.
    while !refused_at_once && Instant::now() < deadline {
        branch.bring_online().unwrap();
        let hang = gate.waiter();
        let begun = Arc::new(AtomicBool::new(false));
        let ran = Arc::clone(&begun);
        let _ = branch.io_within(Duration::from_millis(10), move |_| {
            ran.store(true, Ordering::Relaxed);
            hang();
            Ok(())
        });
        refused_at_once |= !begun.load(Ordering::Relaxed) && reason(&branch).contains("too many calls hang");
        assert!(branch.threads.calls.load(Ordering::Relaxed) <= CALLS.in_all);
    }
    assert!(refused_at_once);
    gate.open();
    let deadline = Instant::now() + TIMEOUT;
    while branch.threads.calls.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    // What earlier lives had open, the lock among it, is closed behind the calls.
    while branch.bring_online().is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    branch.io(|_| Ok(())).unwrap();
}

#[test]
fn many_calls_at_once_share_the_threads_of_a_guarded_branch() {
    let place = Place::new();
    let branch = guarded(&place, TIMEOUT_MS);
    let sum: u64 = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..200u64)
            .map(|n| {
                let branch = &branch;
                scope.spawn(move || {
                    branch
                        .io(move |_| {
                            std::thread::sleep(Duration::from_millis(5));
                            Ok(n)
                        })
                        .unwrap()
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(sum, 19_900);
    assert!(branch.threads.calls.load(Ordering::Relaxed) <= CALLS.in_pool);
}

#[test]
fn a_panic_in_a_guarded_call_is_the_callers() {
    let place = Place::new();
    let branch = guarded(&place, TIMEOUT_MS);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        branch.io(|_| -> rustix::io::Result<()> { panic!("for the caller") })
    }));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"for the caller"));
    branch.io(|_| Ok(())).unwrap();
}

#[test]
fn a_probe_that_hangs_takes_the_branch_offline_with_one_thread_stuck() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    let gate = Gate::closed();
    let (count, counted) = mpsc::channel();
    let wait = gate.waiter();
    let count = Mutex::new(count);
    *branch.prober.before.lock() = Some(Hook(Arc::new(move || {
        let _ = count.lock().send(());
        wait();
    })));
    let soon = Duration::from_millis(100);
    assert!(matches!(branch.probe(soon), ProbeResult::WentOffline { reason } if reason.contains("does not answer")));
    for _ in 0..3 {
        assert!(matches!(branch.probe(soon), ProbeResult::StillOffline { .. }));
    }
    counted.recv_timeout(TIMEOUT).expect("the first looks");
    assert_eq!(counted.try_iter().count(), 0, "nobody else does");
    gate.open();
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::CameBack);
}

#[test]
fn who_still_has_files_of_a_branch_that_is_offline_calls_for_no_probes() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    branch.take_offline("test".to_owned());
    branch.note_errno(ErrorSource::Read, Errno::IO);
    assert!(!branch.is_suspect());
    branch.bring_online().unwrap();
    assert!(!branch.is_suspect());
}

#[test]
fn a_probe_that_is_under_way_brings_no_retired_branch_back() {
    let place = Place::new();
    let state = place.state();
    let branch = place.branch("disk", &state);
    branch.bring_online().unwrap();
    branch.take_offline("test".to_owned());
    let gate = Gate::closed();
    let wait = gate.waiter();
    let (began, begins) = mpsc::channel();
    let began = Mutex::new(began);
    *branch.prober.before.lock() = Some(Hook(Arc::new(move || {
        let _ = began.lock().send(());
        wait();
    })));
    let probing = Arc::clone(&branch);
    let probe = std::thread::spawn(move || probing.probe(TIMEOUT));
    begins.recv_timeout(TIMEOUT).expect("the probe is under way");
    let retiring = Arc::clone(&branch);
    let retire = std::thread::spawn(move || retiring.retire("replaced".to_owned()));
    std::thread::sleep(Duration::from_millis(20));
    gate.open();
    retire.join().unwrap();
    state.forget("disk").unwrap();
    probe.join().unwrap();
    assert!(!branch.is_online());
    assert!(branch.bring_online().is_err());
    assert!(state.branch("disk").is_none(), "nor is it noted again");
    branch.reinstate();
    branch.bring_online().unwrap();
}

#[test]
fn space_is_read_anew_when_it_was_invalidated_and_kept_when_the_branch_is_offline() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    assert_eq!(branch.space(), Space::default());
    branch.bring_online().unwrap();
    let space = branch.space();
    assert!(space.total > space.free && space.free.0 > 0 && space.files_total > space.files_free);
    {
        let mut cache = branch.space.lock();
        // However long this takes, it is not old.
        (cache.value.free, cache.read_at) = (ByteSize(1), Some(Instant::now() + TIMEOUT));
    }
    assert_eq!(branch.space().free, ByteSize(1), "at most 100 ms old");
    branch.invalidate_space();
    assert!(branch.space().free.0 > 1);
    branch.take_offline("test".to_owned());
    assert_eq!(branch.space().total, space.total);
}

#[test]
fn space_that_is_asked_for_at_each_create_is_read_ten_times_a_second() {
    let place = Place::new();
    let state = place.state();
    let branches: Vec<_> = (0..4).map(|at| place.branch(&format!("disk{at}"), &state)).collect();
    for branch in &branches {
        branch.bring_online().unwrap();
    }
    let readings = || branches.iter().map(|branch| branch.space.lock().readings).sum::<u64>();
    let (began, before) = (Instant::now(), readings());
    for _ in 0..5_000 {
        assert!(branches.iter().all(|branch| branch.view().free.0 > 0));
    }
    let most = branches.len() as u64 * (began.elapsed().as_millis() as u64 / 100 + 1);
    assert!(readings() - before <= most, "{} readings, {most} at most", readings() - before);
}

#[test]
fn space_that_is_asked_now_waits_for_no_reading_that_began_before() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    branch.space();
    {
        let mut cache = branch.space.lock();
        (cache.value.free, cache.refreshing) = (ByteSize(1), true);
    }
    assert!(branch.space_now().free.0 > 1);
}

#[test]
fn headroom_is_a_tenth_but_at_least_a_gibibyte_and_what_is_kept_free() {
    let place = Place::new();
    let headroom = |configured: Option<&str>, min_free: &str, total: u64| {
        let mut spec = spec("disk", &place.dir("disk"));
        spec.headroom = configured.map(|text| text.parse().unwrap());
        spec.min_free = min_free.parse().unwrap();
        let branch = Branch::new(BranchId(0), spec, place.state());
        *branch.space.lock() = CachedSpace {
            value: Space { total: ByteSize(total), ..Space::default() },
            read_at: Some(Instant::now()),
            ..CachedSpace::default()
        };
        branch.headroom().0
    };
    assert_eq!(headroom(None, "0", 100 << 30), 10 << 30);
    assert_eq!(headroom(None, "0", 2 << 30), 1 << 30);
    assert_eq!(headroom(Some("1MiB"), "0", 2 << 30), 1 << 20);
    assert_eq!(headroom(Some("1MiB"), "50%", 2 << 30), 1 << 30);
}

#[test]
fn a_draining_branch_is_writable_for_placement_no_more() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    assert!(branch.view().writable);
    branch.set_draining(true).unwrap();
    branch.note_moved_out();
    assert!(!branch.view().writable && branch.is_writable());
    let status = branch.status();
    assert!(status.draining && !status.read_only && status.files_moved_out == 1 && status.state == BranchState::Online);
}

#[test]
fn passthrough_is_an_ability_only_where_configured_and_found() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    assert!(!branch.abilities().passthrough);
    branch.set_passthrough(true);
    assert!(branch.abilities().passthrough);
}

#[test]
fn a_pool_state_that_is_damaged_or_another_pools_is_reported() {
    let place = Place::new();
    let state = place.state();
    place.branch("disk", &state).bring_online().unwrap();
    let pools = place.0.path().join("state/pools");
    let file = std::fs::read_dir(&pools).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"{}").unwrap();
    let error = StateDir::open(&place.0.path().join("state"), Path::new("/srv/pool")).unwrap_err();
    assert!(matches!(error, StateError::Damaged { .. }), "{error}");
}

#[test]
fn nothing_outside_of_a_directory_is_opened() {
    let place = Place::new();
    let root_path = place.dir("root");
    std::fs::create_dir_all(root_path.join("a/b")).unwrap();
    std::fs::write(root_path.join("a/b/file"), "text").unwrap();
    symlink("b", root_path.join("a/link")).unwrap();
    let root = std::fs::File::open(&root_path).unwrap();
    let open = |path: &[u8]| open_beneath(root.as_fd(), path, OFlags::RDONLY, Mode::empty());
    for path in [&b"a/b/file"[..], b"/a//b/file", b"", b"a/b/"] {
        open(path).unwrap();
    }
    assert_eq!(open(b"a/../..").unwrap_err(), Errno::XDEV);
    assert_eq!(open(b"a/link/file").unwrap_err(), Errno::LOOP);
    assert_eq!(open(b"a/link").unwrap_err(), Errno::LOOP);
    let (dir, name) = parent_beneath(root.as_fd(), b"a/b/file").unwrap().unwrap();
    assert_eq!(name, b"file");
    let stat = rustix::fs::fstat(&dir).unwrap();
    assert_eq!(stat.st_ino, std::fs::metadata(root_path.join("a/b")).unwrap().ino());
    assert!(parent_beneath(root.as_fd(), b"/").unwrap().is_none());
}

#[test]
fn paths_longer_than_the_kernel_takes_are_opened_in_steps() {
    let place = Place::new();
    let root = std::fs::File::open(place.dir("root")).unwrap();
    let name = "n".repeat(255);
    let mut path = Vec::new();
    for _ in 0..40 {
        let (dir, _) = parent_beneath(root.as_fd(), &[&path[..], b"/x"].concat()).unwrap().unwrap();
        rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
        path.extend_from_slice(name.as_bytes());
        path.push(b'/');
    }
    assert!(path.len() > 2 * 4096);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    open_beneath(root.as_fd(), &[&path[..], b"file"].concat(), flags, Mode::RWXU).unwrap();
    open_beneath(root.as_fd(), &[&path[..], b"file"].concat(), OFlags::RDONLY, Mode::empty()).unwrap();
    let long = vec![b'n'; 5000];
    let error = open_beneath(root.as_fd(), &long, OFlags::RDONLY, Mode::empty()).unwrap_err();
    assert_eq!(error, Errno::NAMETOOLONG);
}

#[test]
fn a_branch_is_asked_by_its_open_marker_for_want_of_descriptors() {
    let place = Place::new();
    let branch = place.branch("disk", &place.state());
    branch.bring_online().unwrap();
    branch.note_suspect();
    without_descriptors(&branch);
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::Healthy);
    assert!(!branch.is_suspect());
}

/// Each probe of the branch finds no descriptor left. Its thread has a table of its own, so that nobody else lacks any.
fn without_descriptors(branch: &Branch) {
    *branch.prober.before.lock() = Some(Hook(Arc::new(|| {
        // SAFETY: takes no pointer, and concerns this thread only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let none = || rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(std::mem::forget);
        while none() != Err(Errno::MFILE) {}
    })));
}

#[test]
fn a_branch_that_could_not_be_asked_for_want_of_descriptors_stays_suspect() {
    let place = Place::new();
    // Nothing is open on it that could be asked.
    let read_only = BranchSpec { read_only: true, ..spec("disk", &place.dir("disk")) };
    let branch = Branch::new(BranchId(0), read_only, place.state());
    branch.bring_online().unwrap();
    branch.note_suspect();
    without_descriptors(&branch);
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::Healthy);
    assert!(branch.is_suspect(), "its disk was not asked");
    *branch.prober.before.lock() = None;
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::Healthy);
    assert!(!branch.is_suspect());
}

#[test]
fn a_branch_that_cannot_be_opened_anew_for_want_of_descriptors_stays_online() {
    let place = Place::new();
    let dir = place.dir("disk");
    let read_only = BranchSpec { read_only: true, ..spec("disk", &dir) };
    let branch = Branch::new(BranchId(0), read_only, place.state());
    branch.bring_online().unwrap();
    let epoch = branch.epoch();
    without_descriptors(&branch);
    branch.configure(spec("disk", &dir));
    assert_eq!(branch.epoch(), epoch, "as it may be written now");
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::Healthy);
    assert_eq!(branch.epoch(), epoch);
    assert!(!branch.is_writable());
    *branch.prober.before.lock() = None;
    assert_eq!(branch.probe(TIMEOUT), ProbeResult::CameBack);
    assert!(branch.is_writable());
}

#[test]
fn staging_areas_that_are_gone_are_remembered_and_a_bounded_number_of_them() {
    let place = Place::new();
    let area = |uuid| Remembered {
        uuid,
        slot: 1,
        was_mount: false,
        path: "/area".into(),
        has_marker: true,
        fsid: None,
        former_paths: Vec::new(),
        abilities: None,
    };
    let gone: Vec<Uuid> = (0..100).map(|_| Uuid::new_v4()).collect();
    for uuid in &gone {
        place.state().remember(".staging", &area(*uuid)).unwrap();
        place.state().forget_area(".staging").unwrap();
    }
    place.state().forget_area(".staging").unwrap();
    assert_eq!(place.state().gone_areas(), gone[36..]);
    let empty = place.state().empty_dir().unwrap();
    assert!(rustix::fs::mkdirat(&empty, "a", rustix::fs::Mode::RWXU).is_err(), "it has no name any more");
}
