use std::collections::BTreeMap;
use std::time::Duration;

use umbrella_fs::branch::BranchErrors;
use umbrella_fs::control::protocol::{EvictState, EvictStatus, EvictStay, EvictStays, ExplainPart, ExplainStep};
use umbrella_units::{Amount, Timestamp};

use super::*;

fn branch(name: &str) -> BranchStatus {
    BranchStatus {
        name: name.to_owned(),
        path: format!("/mnt/{name}").into(),
        state: BranchState::Online,
        fs_type: "ext4".to_owned(),
        total: ByteSize(100 << 30),
        free: ByteSize(58 << 30),
        min_free: ByteSize(5 << 30),
        read_only: false,
        create: true,
        max_files: None,
        hide: false,
        covered: false,
        files_used: Some(10),
        draining: false,
        abilities: Abilities::ALL,
        files_moved_in: 3,
        files_moved_out: 12,
        write_back: None,
        failing: false,
        errors: BranchErrors::default(),
    }
}

fn pool() -> Status {
    let lost = BranchStatus {
        state: BranchState::Offline { reason: "not mounted".to_owned(), since: Timestamp { secs: 0, nanos: 0 } },
        ..branch("usb")
    };
    let mut remote = BranchStatus { fs_type: "fuse.sshfs".to_owned(), read_only: true, ..branch("remote") };
    remote.abilities.xattr = false;
    remote.abilities.passthrough = false;
    Status {
        mount: "/srv/pool".into(),
        version: "0.1.0".to_owned(),
        pid: 4711,
        uptime: Duration::from_millis(5_400_250),
        detached: false,
        ending: false,
        config: "/etc/umbrella/pool.toml".into(),
        branches: vec![branch("disk"), remote, lost],
        rules: vec![
            RuleStatus {
                name: "recent".to_owned(),
                to: vec!["usb".to_owned(), "disk".to_owned()],
                branches: Vec::new(),
                hits: 0,
                inactive: Some("usb is offline".to_owned()),
            },
            RuleStatus {
                name: "default".to_owned(),
                to: vec!["disk".to_owned()],
                branches: Vec::new(),
                hits: 1234,
                inactive: None,
            },
        ],
        open_files: 1,
        open_passthrough: 1,
        inodes: 20,
        metrics: BTreeMap::new(),
        warnings: vec!["/a\x1b[2Jb is on two branches".to_owned()],
        passthrough: true,
        transport: Some(TransportStatus { kind: TransportKind::Dev, reason: Some("this kernel has none".to_owned()) }),
        staging: Some(StagingStatus {
            path: "/var/lib/umbrella/staging".into(),
            volatile: true,
            mode: StagingMode::Always,
            accepts: true,
            files: 3,
            used: ByteSize(12 << 10),
            limit: ByteSize(4 << 30),
            max_file: ByteSize(1 << 20),
            max_age: Some(Duration::from_secs(30)),
            files_staged: 10,
            files_left: 5,
            files_deleted: 2,
        }),
        walks: vec![WalkStatus {
            purpose: Purpose::Drain,
            dry_run: false,
            branch: Some("usb".to_owned()),
            progress: Progress { files_seen: 12, files_moved: 1, current: "/films".to_owned(), ..Progress::default() },
        }],
        evicts: vec![EvictStatus {
            of: "usb".to_owned(),
            total: ByteSize(100 << 30),
            used: ByteSize(85 << 30),
            above: Amount::MilliPercent(80_000),
            until: Amount::MilliPercent(70_000),
            state: EvictState::Moving,
            files_moved: 12,
            bytes_moved: ByteSize(3 << 30),
            next: vec!["/films/a.mkv".to_owned()],
            stays: vec![EvictStays { why: EvictStay::Nowhere, files: 2, bytes: ByteSize(1 << 20) }],
        }],
        heat: Some(HeatStatus {
            files: 1500,
            warm: Some(40),
            files_promoted: 7,
            bytes_promoted: ByteSize(5 << 30),
            files_evicted: 1,
            bytes_evicted: ByteSize(2 << 30),
        }),
    }
}

#[test]
fn a_status_shows_space_states_lacks_and_warnings() {
    assert_eq!(
        status(&pool()),
        r#"/srv/pool  up 1h30m, process 4711, version 0.1.0
1 file open (1 in passthrough)
requests from /dev/fuse, not over io_uring: this kernel has none
staging: 3 files (12 KiB of at most 4 GiB), up to 1 MiB each, for 30s; 10 came, 5 left, 2 deleted before
walking: the drain of branch "usb"; 12 files looked at, 1 file (0 B) moved, now at /films
evict: "usb" 85.0% full, from 80% down to 70%: files leave now; 12 files (3 GiB) left; next /films/a.mkv; 2 files (1 MiB) may not leave (their lists name no other branch)
heat: opens of 1500 files are counted, 40 of them warm; 7 files (5 GiB) came because they were warm; 1 file (2 GiB) left as the coldest

BRANCH  STATE              USED                 FREE     SIZE  MIN FREE  IN  OUT  TYPE        LACKS               PATH
disk    online             [#####.....]  42%  58 GiB  100 GiB     5 GiB   3   12  ext4        -                   /mnt/disk
remote  online, read-only  [#####.....]  42%  58 GiB  100 GiB     5 GiB   3   12  fuse.sshfs  xattr, passthrough  /mnt/remote
usb     OFFLINE            [#####.....]  42%  58 GiB  100 GiB     5 GiB   3   12  ext4        ?                   /mnt/usb
branch "usb" is offline: not mounted

RULE     TO         HITS
recent   usb, disk     0  inactive: usb is offline
default  disk       1234

warning: /a\u{1b}[2Jb is on two branches
"#
    );
}

#[test]
fn a_branch_whose_disk_fails_is_shown_so() {
    let failing = BranchStatus { failing: true, draining: true, ..branch("old") };
    assert!(branches(&[branch("new"), failing]).contains("old     online, FAILING, draining  ["));
}

#[test]
fn a_status_is_silent_on_what_there_is_none_of() {
    let mut pool = pool();
    (pool.open_files, pool.open_passthrough) = (0, 0);
    let area = pool.staging.as_mut().expect("it stages");
    (area.files, area.files_staged, area.files_left, area.files_deleted) = (0, 0, 0, 0);
    let always = status(&pool);
    assert!(always.contains("\nstaging: 0 files (12 KiB of at most 4 GiB), up to 1 MiB each, for 30s\n"), "{always}");
    let area = pool.staging.as_mut().expect("it stages");
    area.mode = StagingMode::Auto;
    pool.metrics.insert("umbrella_relocations_pending_count".to_owned(), 0);
    let idle = status(&pool);
    assert!(idle.contains("\n0 files open\n") && !idle.contains("staging:"), "{idle}");
    pool.metrics.insert("umbrella_relocations_pending_count".to_owned(), 2);
    pool.passthrough = false;
    let area = pool.staging.as_mut().expect("it stages");
    (area.files_staged, area.files_deleted) = (2, 2);
    let used = status(&pool);
    assert!(
        used.contains("\n0 files open, 2 files waiting to move; the kernel does not offer passthrough\n"),
        "{used}"
    );
    assert!(used.contains(", for 30s; 2 came, 2 deleted before\n"), "{used}");
    let area = pool.staging.as_mut().expect("it stages");
    (area.accepts, area.files_staged) = (false, 2);
    assert!(!status(&pool).contains("staging:"), "nothing is left of the earlier configuration");
}

#[test]
fn staging_that_takes_nothing_in_says_so() {
    let shown = |limit: u64| {
        let mut pool = pool();
        let area = pool.staging.as_mut().expect("it stages");
        area.limit = ByteSize(limit);
        status(&pool)
    };
    assert!(
        shown((1 << 20) - 1)
            .contains("2 deleted before; no more files are staged until memory has room for a file of that size\n")
    );
    assert!(!shown(1 << 20).contains("no more files are staged"));
}

#[test]
fn a_bar_never_leaves_its_frame() {
    for (total, free, shown) in [
        (0, 0, "[..........]   0%"),
        (100, 100, "[..........]   0%"),
        (100, 99, "[#.........]   1%"),
        (100, 0, "[##########] 100%"),
        (100, 200, "[..........]   0%"),
        (u64::MAX, 0, "[##########] 100%"),
    ] {
        assert_eq!(usage_bar(ByteSize(total), ByteSize(free)), shown, "{free} free of {total}");
    }
}

fn explained() -> Explanation {
    Explanation {
        path: "/home/dave/a.avi".to_owned(),
        path_bytes: None,
        exists: true,
        on: vec!["crypt".to_owned()],
        belongs: Some("disk".to_owned()),
        rule: "/home/dave/**.avi".to_owned(),
        steps: vec![
            ExplainStep {
                rule: "read-only files on flash".to_owned(),
                matched: false,
                reason: "mode 0644 is writable".to_owned(),
                parts: Vec::new(),
            },
            ExplainStep {
                rule: "/home/dave/**.avi".to_owned(),
                matched: true,
                reason: "longest match".to_owned(),
                parts: Vec::new(),
            },
        ],
        facts: vec![("size".to_owned(), "3 MiB".to_owned()), ("owner".to_owned(), "dave".to_owned())],
        outcome: "moves at the next enforce".to_owned(),
        duplicates: Vec::new(),
        may_be_on: Vec::new(),
    }
}

#[test]
fn an_explanation_says_where_and_why() {
    assert_eq!(
        explanation(&explained()),
        r#"/home/dave/a.avi
  is on       crypt
  belongs on  disk
  decided by  "/home/dave/**.avi"
  next        moves at the next enforce

  rules, in order
    1. no  read-only files on flash: mode 0644 is writable
    2. yes /home/dave/**.avi: longest match

  what is known about the file
  size   3 MiB
  owner  dave
"#
    );
}

#[test]
fn a_fill_level_of_100_percent_mentions_no_room() {
    let mut evict = pool().evicts.remove(0);
    (evict.used, evict.above) = (evict.total, Amount::MilliPercent(100_000));
    evict.state = EvictState::Below;
    let line = super::evict::line(&evict);
    assert!(line.contains(" 100.0% full, from 100% down to 70%: nothing has to leave;"), "{line}");
    evict.state = EvictState::Due;
    let line = super::evict::line(&evict);
    assert!(line.contains(": too full; files that may leave are looked for next;"), "{line}");
}

#[test]
fn a_fill_level_that_has_done_all_it_may_says_so() {
    let mut evict = pool().evicts.remove(0);
    evict.state = EvictState::Rests;
    evict.next.clear();
    assert!(
        super::evict::line(&evict).contains(": every file that may leave has left;"),
        "{}",
        super::evict::line(&evict)
    );
    evict.stays[0].why = EvictStay::Excluded;
    evict.files_moved = 0;
    let line = super::evict::line(&evict);
    assert!(line.ends_with(": no file may leave: \"only\" or \"min_age\" excludes all 2"), "{line}");
    evict.stays[0].why = EvictStay::InUse;
    assert!(super::evict::line(&evict).contains(": too full, but no more files can leave now;"));
}

#[test]
fn a_rule_that_joins_conditions_shows_which_of_them_hold() {
    let part = |depth, holds, text: &str| ExplainPart { depth, holds, text: text.to_owned() };
    let parts =
        vec![part(0, Some(true), "any of"), part(1, Some(false), "name is a.avi"), part(1, None, "needs the size")];
    let mut explained = explained();
    explained.steps[0].parts = parts;
    let shown = explanation(&explained);
    let expected =
        "\n       yes     any of\n         no      name is a.avi\n         unknown needs the size\n    2. yes";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn a_file_that_fits_nowhere_is_said_to() {
    let text = explanation(&Explanation { belongs: None, exists: false, on: Vec::new(), ..explained() });
    assert!(text.contains("belongs on  no branch: all that its rule allows are full, or take no new files"), "{text}");
    assert!(text.contains("is on       no branch: the file is hypothetical (--what-if)"), "{text}");
    let absent = Explanation { belongs: None, exists: false, facts: Vec::new(), on: Vec::new(), ..explained() };
    assert!(explanation(&absent).contains("is on       no branch: the file does not exist\n"));
}

#[test]
fn duplicates_are_named() {
    let away = Explanation { exists: false, on: Vec::new(), may_be_on: vec!["usb".to_owned()], ..explained() };
    let text = explanation(&away);
    assert!(text.contains("branch usb is offline and may hold it"), "{text}");
    let text = explanation(&Explanation { duplicates: vec!["flash".to_owned()], ..explained() });
    assert!(text.contains("also on     flash (of the same name; the newest is used)"), "{text}");
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let event = MoveEvent {
        path: "/a\u{1b}]0;x\u{7}\u{202e}b\n".to_owned(),
        path_bytes: None,
        from: "disk".to_owned(),
        to: "flash".to_owned(),
        size: ByteSize(10),
        rule: "small".to_owned(),
        outcome: MoveOutcome::Failed,
        detail: Some("no room".to_owned()),
    };
    assert_eq!(
        MoveLines::default().line(&event, &moved_by(&event.rule)),
        r#"failed      disk -> flash       10 B  /a\u{1b}]0;x\u{7}\u{202e}b\n  (rule "small"): no room"#
    );
}

#[test]
fn sizes_of_moves_stand_below_each_other() {
    let mut lines = MoveLines::default();
    let mut line = |from: &str, to: &str| {
        let event = MoveEvent {
            path: "/film".to_owned(),
            path_bytes: None,
            from: from.to_owned(),
            to: to.to_owned(),
            size: ByteSize(700 << 20),
            rule: "default".to_owned(),
            outcome: MoveOutcome::WouldMove,
            detail: None,
        };
        lines.line(&event, "balance")
    };
    assert_eq!(line("archive", "new-disk"), "would move  archive -> new-disk    700 MiB  /film  (balance)");
    assert_eq!(line("a", "new-disk"), "would move  a -> new-disk          700 MiB  /film  (balance)");
    assert_eq!(line("archive", ""), "would move  archive                700 MiB  /film  (balance)");
}

#[test]
fn members_of_a_balance_stand_in_columns() {
    let member = |branch: &str, gib: [u64; 3]| {
        let [size, used, used_after] = gib.map(|gib| ByteSize(gib << 30));
        MemberShare { branch: branch.to_owned(), size, used, used_after }
    };
    let members = vec![member("archive", [2048, 2048, 1074]), member("b", [2048, 100, 1074])];
    let summary = BalanceSummary { members, files_seen: 3, ..BalanceSummary::default() };
    assert_eq!(
        balance(&summary, true, 5_000),
        "BRANCH    SIZE  USED BEFORE          USED THEN
archive  2 TiB        2 TiB  100.0%      1 TiB  52.4%
b        2 TiB      100 GiB    4.9%      1 TiB  52.4%
3 files looked at, 0 files (0 B) would move
"
    );
}

#[test]
fn copies_of_a_directory_show_by_what_they_differ() {
    let copy = |branch: &str, mode, acl| CopyRights { branch: branch.to_owned(), mode, uid: 0, gid: 0, acl };
    let shown = |copies: [CopyRights; 2]| {
        let event = DirectoryEvent {
            path: "/films".to_owned(),
            path_bytes: None,
            copies: copies.to_vec(),
            to: copy("", 0o750, true),
            outcome: EqualiseOutcome::Differs,
            detail: None,
        };
        directory_event(&event)
    };
    let modes = [copy("disk1", 0o755, true), copy("disk2", 0o750, true)];
    assert_eq!(
        shown(modes),
        "differs    /films  disk1 0755 0:0 with an ACL, disk2 0750 0:0 with an ACL -> 0750 0:0 with an ACL"
    );
    let one_acl = [copy("disk1", 0o750, false), copy("disk2", 0o750, true)];
    assert_eq!(shown(one_acl), "differs    /films  disk1 0750 0:0, disk2 0750 0:0 with an ACL -> 0750 0:0 with an ACL");
    let acls = [copy("disk1", 0o750, true), copy("disk2", 0o750, true)];
    assert_eq!(
        shown(acls),
        "differs    /films  disk1 0750 0:0 with an ACL, disk2 0750 0:0 with an ACL; the ACLs differ -> 0750 0:0 with an ACL"
    );
}

#[test]
fn totals_name_only_what_there_was() {
    let mut totals =
        EnforceSummary { files_seen: 10, files_moved: 1, bytes_moved: ByteSize(2048), ..Default::default() };
    assert_eq!(summary(&totals, true), "10 files looked at, 1 file (2 KiB) would move");
    totals.files_busy = 2;
    totals.files_no_room = 1;
    assert_eq!(
        summary(&totals, false),
        "10 files looked at, 1 file (2 KiB) moved, 2 busy, 1 without room on their branches"
    );
}

#[test]
fn a_detached_pool_is_marked_among_others() {
    let detached = Status { mount: "/srv/old".into(), detached: true, ..pool() };
    let text = pools(&[(pool(), None), (detached, None)]);
    assert!(text.contains("/srv/old (detached)") && !text.contains("/srv/pool (detached)"), "{text}");
}
