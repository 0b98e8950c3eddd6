//! A branch that comes or goes is reported as there only while the tree shows it.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::io::Errno;
use umbrella_fs::control::protocol::BranchState;
use umbrella_fs::pool::Pool;
use umbrella_fs::{Caller, DataPath, NodeId, OpError, PassthroughToken};

use super::bench::{BRANCHES, Bench, FakeKernel, Ground, WRITE};
use super::races::put;

/// Notes whether a branch is said to be online whenever the kernel is to forget what it keeps of the tree.
#[derive(Default)]
struct Seen {
    pool: OnceLock<Weak<Pool>>,
    online: Mutex<Vec<bool>>,
}

impl Seen {
    fn look(&self) {
        let Some(pool) = self.pool.get().and_then(Weak::upgrade) else { return };
        self.online.lock().unwrap().push(is_online(&pool));
    }

    fn take(&self) -> Vec<bool> {
        std::mem::take(&mut self.online.lock().unwrap())
    }
}

fn is_online(pool: &Pool) -> bool {
    let branches = pool.status().branches;
    let tiny = branches.into_iter().find(|branch| branch.name == BRANCHES[2]).expect("it is a branch");
    tiny.state == BranchState::Online
}

#[test]
fn a_branch_is_said_to_be_online_as_long_as_the_kernel_may_keep_what_it_showed_and_no_sooner() {
    let mut bench = Bench::new(Ground::Memory);
    let pool = bench.assemble(0);
    assert!(is_online(&pool));
    let seen = Arc::<Seen>::default();
    let looks = Arc::clone(&seen);
    pool.set_kernel(Box::new(FakeKernel { forgets: Box::new(move |_| looks.look()), register: None }));
    let _once = seen.pool.set(Arc::downgrade(&pool));
    for _ in 0..3 {
        bench.take_away(2);
        pool.probe_now();
        let forgets = seen.take();
        assert!(!forgets.is_empty() && forgets.iter().all(|online| *online), "it goes: {forgets:?}");
        assert!(!is_online(&pool));

        bench.give_back(2);
        pool.probe_now();
        let forgets = seen.take();
        assert!(!forgets.is_empty() && forgets.iter().all(|online| !online), "it comes: {forgets:?}");
        assert!(is_online(&pool));
    }
}

#[test]
fn an_fsync_of_a_directory_fails_where_a_branch_that_went_away_may_have_lost_its_last_change() {
    let mut bench = Bench::new(Ground::Memory);
    // Logs go to the branch that can be taken away.
    let pool = bench.assemble(2);
    let mkdir = |name: &str| pool.mkdir(NodeId::ROOT, OsStr::new(name), 0o755, Caller::ROOT).unwrap().node;
    let [changed, synced, elsewhere] = ["changed", "synced", "elsewhere"].map(mkdir);
    put(&pool, changed, "new.log", b"text");
    put(&pool, synced, "new.log", b"text");
    put(&pool, elsewhere, "new", b"text");
    assert_eq!(pool.fsync_dir(synced, false), Ok(()));
    let lost = Err(OpError::Sys(Errno::IO));

    bench.take_away(2);
    pool.probe_now();
    assert!(!is_online(&pool));
    assert_eq!(pool.fsync_dir(changed, false), lost);
    assert_eq!(pool.fsync_dir(changed, false), lost, "the next who asks is told too");
    assert_eq!((pool.fsync_dir(synced, false), pool.fsync_dir(elsewhere, false)), (Ok(()), Ok(())));

    bench.give_back(2);
    pool.probe_now();
    assert!(is_online(&pool));
    assert_eq!(pool.fsync_dir(changed, false), lost, "what came back may lack it");
    assert_eq!(pool.fsync_dir(changed, false), Ok(()));
}

#[test]
fn a_sync_of_all_fails_where_a_branch_that_went_away_may_have_lost_its_last_change() {
    let mut bench = Bench::new(Ground::Memory);
    let pool = bench.assemble(2);
    let lost = Err(OpError::Sys(Errno::IO));
    put(&pool, NodeId::ROOT, "first.log", b"text");
    assert_eq!(pool.sync_all(), Ok(()));

    bench.take_away(2);
    pool.probe_now();
    assert_eq!(pool.sync_all(), Ok(()), "nothing is missing on it");
    put(&pool, NodeId::ROOT, "elsewhere", b"text");
    assert_eq!(pool.sync_all(), Ok(()));

    bench.give_back(2);
    pool.probe_now();
    put(&pool, NodeId::ROOT, "second.log", b"text");
    bench.take_away(2);
    pool.probe_now();
    assert_eq!((pool.sync_all(), pool.sync_all()), (lost, lost), "whoever asks is told");

    bench.give_back(2);
    pool.probe_now();
    assert_eq!(pool.sync_all(), lost, "what came back may lack it");
    assert_eq!(pool.sync_all(), Ok(()));

    let register = || Ok(Arc::new(()) as PassthroughToken);
    pool.set_kernel(Box::new(FakeKernel { forgets: Box::new(|_| ()), register: Some(Box::new(register)) }));
    let file = pool.lookup(NodeId::ROOT, OsStr::new("first.log")).unwrap().node;
    let opened = pool.open(file, WRITE).unwrap();
    assert_eq!((opened.data, pool.sync_all()), (DataPath::Passthrough, Ok(())));
    bench.take_away(2);
    pool.probe_now();
    assert_eq!(pool.sync_all(), lost, "what is written past the daemon, nobody knows");
}
